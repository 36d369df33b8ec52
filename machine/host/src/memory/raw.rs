//! Loads, stores and copies at raw addresses: the only place where bytes of shared memory move.
//!
//! Memory shared with another process can change at any time. These functions therefore never
//! make a reference to it; a copy that races with a writer yields some mixture of bytes, and
//! whoever needs whole data orders it by a word stored last ([`store_release_u64`]) and loaded
//! first ([`load_acquire_u64`]).

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::page::PAGE_BYTES;

/// Copies `from` to the address `to`.
///
/// # Safety
/// `to..to + from.len()` is mapped for stores and does not overlap `from`.
#[inline]
pub unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    // SAFETY: mapped, writable and apart from `from`, by this function's contract.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
}

/// Copies the bytes at the address `from` to `to`.
///
/// # Safety
/// `from..from + to.len()` is mapped for loads and does not overlap `to`.
#[inline]
pub unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
    // SAFETY: mapped, readable and apart from `to`, by this function's contract.
    unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
}

/// Copies `bytes` from one address to another; the ranges may overlap.
///
/// # Safety
/// `from` is mapped for loads and `to` for stores, `bytes` long each.
#[inline]
pub unsafe fn copy_within(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: both ranges are mapped as needed, by this function's contract.
    unsafe { ptr::copy(from, to, bytes) }
}

/// Sets `bytes` at `to` to zero.
///
/// # Safety
/// `to..to + bytes` is mapped for stores.
#[inline]
pub unsafe fn clear(to: *mut u8, bytes: usize) {
    // SAFETY: mapped and writable, by this function's contract.
    unsafe { ptr::write_bytes(to, 0, bytes) }
}

/// Stores `value` in one piece, after every store made before it.
///
/// # Safety
/// `to` is mapped for stores and a multiple of 8.
#[inline]
pub unsafe fn store_release_u64(to: *mut u64, value: u64) {
    debug_assert!(to.is_aligned());
    // SAFETY: mapped and aligned, by this function's contract.
    unsafe { AtomicU64::from_ptr(to) }.store(value, Ordering::Release);
}

/// Loads in one piece, before every load made after it.
///
/// # Safety
/// `from` is mapped for loads and a multiple of 8.
#[inline]
pub unsafe fn load_acquire_u64(from: *const u64) -> u64 {
    debug_assert!(from.is_aligned());
    // SAFETY: mapped and aligned, by this function's contract; a load does not write.
    unsafe { AtomicU64::from_ptr(from.cast_mut()) }.load(Ordering::Acquire)
}

/// Stores `value` in one piece, after every store made before it.
///
/// # Safety
/// `to` is mapped for stores and a multiple of 4.
#[inline]
pub unsafe fn store_release_u32(to: *mut u32, value: u32) {
    debug_assert!(to.is_aligned());
    // SAFETY: mapped and aligned, by this function's contract.
    unsafe { AtomicU32::from_ptr(to) }.store(value, Ordering::Release);
}

/// Loads in one piece, before every load made after it.
///
/// # Safety
/// `from` is mapped for loads and a multiple of 4.
#[inline]
pub unsafe fn load_acquire_u32(from: *const u32) -> u32 {
    debug_assert!(from.is_aligned());
    // SAFETY: mapped and aligned, by this function's contract; a load does not write.
    unsafe { AtomicU32::from_ptr(from.cast_mut()) }.load(Ordering::Acquire)
}

/// Whether every page of `address..address + bytes` is mapped, with whatever rights.
///
/// An answer of the moment: another thread may unmap it right after. One system call per 2 MiB,
/// no allocation. [`crate::memory::check_memory`] also looks at the rights, and costs more.
pub fn memory_is_mapped(address: usize, bytes: usize) -> bool {
    const PAGES: usize = 512;
    let Some(end) = address.checked_add(bytes) else {
        return false;
    };
    let mut at = address & !(PAGE_BYTES - 1);
    let mut resident = [0u8; PAGES];
    while at < end {
        let part = (end - at).min(PAGES * PAGE_BYTES);
        // SAFETY: mincore writes one byte per page of the part into `resident`, which has one
        // for each, and only inspects the range at `at`.
        let asked = unsafe {
            libc::mincore(
                ptr::without_provenance_mut(at),
                part,
                resident.as_mut_ptr().cast(),
            )
        };
        if asked != 0 {
            return false;
        }
        at += part;
    }
    true
}
