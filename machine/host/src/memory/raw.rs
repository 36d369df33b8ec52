//! Loads, stores and copies at raw addresses: the only module that moves bytes of shared memory.
//!
//! # Memory that others change
//! Other threads and other processes may store to shared memory at any time. In Rust such a race has a meaning only if each access is
//! atomic, so every copy here stands for a loop of relaxed atomic loads and stores of single bytes. A copy that races with a writer yields
//! some mixture of old and new bytes, and guarantees nothing more; to get whole data, store a word last ([`store_release_u64`]) and load
//! it first, with acquire order.
//!
//! Rust has no fast form of that loop yet. On x86_64 and aarch64 an `asm!` block does it: moves for up to 16 bytes,
//! else a call of the C library's `memcpy`. The compiler sees an opaque block that reads and writes memory: it
//! assumes nothing about the bytes and merges, repeats or splits no access. What the processor does is a correct
//! form of the loop, as each byte is loaded and stored by an ordinary instruction, which never tears a byte.
//! `memcpy` must not be called in the ordinary way: the compiler knows its name, and takes it for plain
//! accesses. A block of 4 or 8 aligned bytes is copied in one piece.
//!
//! Elsewhere, under Miri, and with `--cfg mapwire_bytewise` (for ThreadSanitizer, which takes `memcpy` for plain accesses) the loop itself
//! is compiled.
//!
//! No reference to bytes of shared memory is ever made.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::page::PAGE_BYTES;

/// Whether copies are compiled as the loop that they stand for.
const BYTEWISE: bool =
    cfg!(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, mapwire_bytewise)))));

/// Copies `bytes` from one address to another. Others may change either meanwhile.
///
/// # Safety
/// `from` is mapped for loads and `to` for stores, `bytes` long each; they do not overlap.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: this function's contract, passed on; each range of lengths has its own function.
    unsafe {
        if bytes > 16 {
            moves::long(from, to, bytes);
        } else if bytes >= 8 {
            moves::two_words_of_8(from, to, bytes);
        } else if bytes >= 4 {
            moves::two_words_of_4(from, to, bytes);
        } else {
            moves::each_byte(from, to, bytes);
        }
    }
}

/// Copies as [`copy`] does, but fills whole lines without reading them where the processor can (x86_64): for memory whose lines another
/// processor has in its cache. Fetching them from there one by one takes longer, on some processors many times, than writing them anew.
/// When it returns, the bytes are visible before any later store.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_whole_lines(from: *const u8, to: *mut u8, bytes: usize) {
    let head = to.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    let tail = bytes - head - lines * LINE;
    let done = head + lines * LINE;
    // SAFETY: this function's contract: the three parts lie one behind the other within both ranges, and the second begins on a line.
    unsafe {
        copy(from, to, head);
        moves::lines(from.add(head), to.add(head), lines);
        copy(from.add(done), to.add(done), tail);
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes to copy from, which others may change meanwhile unless they come from a slice; so this is not a slice.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    address: *const u8,
    bytes: usize,
    is_slice: bool,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for Source<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8]) -> Self {
        Self { address: bytes.as_ptr(), bytes: bytes.len(), is_slice: true, memory: PhantomData }
    }
}

impl<'a> Source<'a> {
    pub const EMPTY: Self =
        Self { address: ptr::NonNull::dangling().as_ptr(), bytes: 0, is_slice: false, memory: PhantomData };

    /// The `bytes` bytes from `address` on.
    ///
    /// # Safety
    /// They are mapped for loads while the value lives.
    #[inline(always)]
    pub unsafe fn from_raw(address: *const u8, bytes: usize) -> Self {
        Self { address, bytes, is_slice: false, memory: PhantomData }
    }

    /// The `bytes` bytes from byte `first` on.
    ///
    /// # Panics
    /// If the range is outside the source.
    #[must_use]
    pub fn part(&self, first: usize, bytes: usize) -> Source<'a> {
        assert!(first <= self.bytes && bytes <= self.bytes - first);
        Self { address: self.address.wrapping_add(first), bytes, ..*self }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// First address.
    #[inline(always)]
    pub fn as_ptr(&self) -> *const u8 {
        self.address
    }

    /// Copies the bytes to the address `to`.
    ///
    /// # Safety
    /// `to` is mapped for stores, for as many bytes, and does not overlap them.
    #[inline(always)]
    pub unsafe fn copy_to(&self, to: *mut u8) {
        // SAFETY: mapped, by the promise of `from_raw` or as a slice, whose bytes these still are; the rest is this function's
        // contract.
        unsafe {
            if BYTEWISE && self.is_slice {
                copy_in(to, core::slice::from_raw_parts(self.address, self.bytes));
            } else {
                copy(self.address, to, self.bytes);
            }
        }
    }

    /// Copies the bytes to the address `to` [in whole lines](copy_whole_lines).
    ///
    /// # Safety
    /// As [`copy_to`](Self::copy_to).
    pub unsafe fn copy_whole_lines_to(&self, to: *mut u8) {
        // SAFETY: as in `copy_to`.
        unsafe {
            match BYTEWISE {
                true => self.copy_to(to),
                false => copy_whole_lines(self.address, to, self.bytes),
            }
        }
    }

    /// Copies the bytes to `to`, which must have their length.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline(always)]
    pub fn copy_to_slice(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.bytes, "a copy of another length");
        // SAFETY: an exclusive slice of their length overlaps nothing that others use.
        unsafe { self.copy_to(to.as_mut_ptr()) };
    }
}

/// Copies `from` to the address `to`.
///
/// # Safety
/// `to..to + from.len()` is mapped for stores and does not overlap `from`.
#[inline(always)]
pub unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    // SAFETY: this function's contract, passed on.
    unsafe {
        if BYTEWISE {
            bytes::each_of_slice(from, to);
        } else {
            copy(from.as_ptr(), to, from.len());
        }
    }
}

/// Copies the bytes at the address `from` to `to`.
///
/// # Safety
/// `from..from + to.len()` is mapped for loads and does not overlap `to`.
#[inline(always)]
pub unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
    // SAFETY: this function's contract, passed on.
    unsafe { copy(from, to.as_mut_ptr(), to.len()) }
}

/// Loads a value, in one piece if it is an aligned word of at most 8 bytes.
///
/// # Safety
/// `from` is mapped for loads and aligned, and any bytes are a `T`.
#[inline(always)]
pub unsafe fn load<T: Copy>(from: *const T) -> T {
    // SAFETY: mapped and aligned, by this function's contract, and the alignment of `T` is that of the atomic of its size; the
    // bytes of such an atomic are a `T`. A load does not write.
    unsafe {
        match (size_of::<T>(), align_of::<T>()) {
            (8, 8) => {
                let word = AtomicU64::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                core::mem::transmute_copy(&word)
            }
            (4, 4) => {
                let word = AtomicU32::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                core::mem::transmute_copy(&word)
            }
            (bytes, _) => {
                let mut value = core::mem::MaybeUninit::<T>::uninit();
                copy(from.cast(), value.as_mut_ptr().cast(), bytes);
                value.assume_init()
            }
        }
    }
}

/// Stores a value, in one piece if it is an aligned word of at most 8 bytes.
///
/// # Safety
/// `to` is mapped for stores and aligned, and `T` has no padding.
#[inline(always)]
pub unsafe fn store<T: Copy>(to: *mut T, mut value: T) {
    // SAFETY: mapped and aligned, by this function's contract, and the alignment of `T` is that of the atomic of its size; the
    // bytes of a `T` without padding are such an atomic.
    unsafe {
        match (size_of::<T>(), align_of::<T>()) {
            (8, 8) => {
                let word = core::mem::transmute_copy(&value);
                AtomicU64::from_ptr(to.cast()).store(word, Ordering::Relaxed);
            }
            (4, 4) => {
                let word = core::mem::transmute_copy(&value);
                AtomicU32::from_ptr(to.cast()).store(word, Ordering::Relaxed);
            }
            (bytes, _) => copy((&raw mut value).cast(), to.cast(), bytes),
        }
    }
}

/// Stores `value` in one piece, after every earlier store.
///
/// # Safety
/// `to` is mapped for stores and a multiple of 8.
#[inline]
pub unsafe fn store_release_u64(to: *mut u64, value: u64) {
    debug_assert!(to.is_aligned());
    // SAFETY: mapped and aligned, by this function's contract.
    unsafe { AtomicU64::from_ptr(to) }.store(value, Ordering::Release);
}

/// The forms of a copy: each is a loop of relaxed atomic accesses to single bytes.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, mapwire_bytewise))))]
mod moves {
    use core::arch::asm;

    pub(super) use super::bytes::each_byte;

    /// Defines a copy of one to two words: the first and the last. The texts choose the registers' width.
    macro_rules! two_words {
        ($name:ident, $word:literal, $x86_64:literal, $aarch64:literal) => {
            /// # Safety
            /// As [`copy`](super::copy).
            #[inline(always)]
            pub(super) unsafe fn $name(from: *const u8, to: *mut u8, bytes: usize) {
                let last = bytes - $word;
                // SAFETY: both words lie within the ranges that the caller vouches for.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    asm!(
                        concat!("mov {head", $x86_64, "}, [{from}]"),
                        concat!("mov {tail", $x86_64, "}, [{from} + {last}]"),
                        concat!("mov [{to}], {head", $x86_64, "}"),
                        concat!("mov [{to} + {last}], {tail", $x86_64, "}"),
                        from = in(reg) from, to = in(reg) to, last = in(reg) last,
                        head = out(reg) _, tail = out(reg) _,
                        options(nostack, preserves_flags),
                    );
                    #[cfg(target_arch = "aarch64")]
                    asm!(
                        concat!("ldr {head", $aarch64, "}, [{from}]"),
                        concat!("ldr {tail", $aarch64, "}, [{from}, {last}]"),
                        concat!("str {head", $aarch64, "}, [{to}]"),
                        concat!("str {tail", $aarch64, "}, [{to}, {last}]"),
                        from = in(reg) from, to = in(reg) to, last = in(reg) last,
                        head = out(reg) _, tail = out(reg) _,
                        options(nostack, preserves_flags),
                    );
                }
            }
        };
    }
    two_words!(two_words_of_4, 4, ":e", ":w");
    two_words!(two_words_of_8, 8, ":r", ":x");

    /// Whether string instructions fill whole lines without reading them, faster than non-temporal stores: on Intel processors that report
    /// it ("enhanced").
    #[cfg(target_arch = "x86_64")]
    fn has_fast_strings() -> bool {
        static KNOWN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *KNOWN.get_or_init(|| {
            let vendor = core::arch::x86_64::__cpuid(0);
            let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
            name.as_flattened() == b"GenuineIntel" && std::is_x86_feature_detected!("ermsb")
        })
    }

    /// Copies whole lines to a destination that begins on one, without reading its old contents. They are visible when this returns.
    ///
    /// # Safety
    /// As [`copy`](super::copy), of 64 bytes for each line; `to` is a multiple of 16.
    pub(super) unsafe fn lines(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: this function's contract.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            match has_fast_strings() {
                true => lines_by_string(from, to, lines),
                false => lines_past_caches(from, to, lines),
            }
            #[cfg(not(target_arch = "x86_64"))]
            super::copy(from, to, lines * super::LINE);
        }
    }

    /// # Safety
    /// As [`lines`].
    #[cfg(target_arch = "x86_64")]
    pub(super) unsafe fn lines_by_string(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: one string of the bytes that the caller vouches for; the direction flag is clear, as Rust's calling convention has it. Its
        // stores are ordered before all that follow.
        unsafe {
            asm!(
                "rep movsb",
                inout("rdi") to => _, inout("rsi") from => _, inout("rcx") lines * super::LINE => _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// # Safety
    /// As [`lines`].
    #[cfg(target_arch = "x86_64")]
    pub(super) unsafe fn lines_past_caches(from: *const u8, to: *mut u8, lines: usize) {
        if lines == 0 {
            return;
        }
        // SAFETY: the loop loads and stores the lines that the caller vouches for; registers that it changes are given as outputs. The
        // fence at its end orders these stores before all that follow, which they are not by themselves.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movntps [{to}], {a}",
                "movntps [{to} + 16], {b}",
                "movntps [{to} + 32], {c}",
                "movntps [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {lines}",
                "jnz 2b",
                "sfence",
                from = inout(reg) from => _, to = inout(reg) to => _, lines = inout(reg) lines => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }

    /// Copies any number of bytes.
    ///
    /// # Safety
    /// As [`copy`](super::copy).
    #[inline]
    pub(super) unsafe fn long(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the block calls `memcpy` by the C calling convention: arguments in its registers, all that a callee may
        // change given as changed, the stack aligned (no `nostack`). The ranges are the caller's promise.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                "call {memcpy}",
                memcpy = in(reg) libc::memcpy as *const (),
                inout("rdi") to => _, inout("rsi") from => _, inout("rdx") bytes => _,
                clobber_abi("C"),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "blr {memcpy}",
                memcpy = in(reg) libc::memcpy as *const (),
                inout("x0") to => _, inout("x1") from => _, inout("x2") bytes => _,
                clobber_abi("C"),
            );
        }
    }
}

/// The same by the loop that they stand for.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, mapwire_bytewise)))))]
mod moves {
    pub(super) use super::bytes::{
        each_byte, each_byte as long, each_byte as two_words_of_4, each_byte as two_words_of_8,
    };

    /// # Safety
    /// As [`copy`](super::copy), of 64 bytes for each line.
    pub(super) unsafe fn lines(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: this function's contract.
        unsafe { each_byte(from, to, lines * super::LINE) };
    }
}

mod bytes {
    use core::sync::atomic::{AtomicU8, Ordering};

    /// As [`each_byte`] from bytes that nobody changes.
    ///
    /// # Safety
    /// As [`copy_in`](super::copy_in).
    #[inline(always)]
    pub(super) unsafe fn each_of_slice(from: &[u8], to: *mut u8) {
        for (at, &byte) in from.iter().enumerate() {
            // SAFETY: a byte of the range that the caller vouches for.
            unsafe { AtomicU8::from_ptr(to.add(at)) }.store(byte, Ordering::Relaxed);
        }
    }

    /// Copies byte by byte.
    ///
    /// # Safety
    /// As [`copy`](super::copy).
    #[inline(always)]
    pub(super) unsafe fn each_byte(from: *const u8, to: *mut u8, bytes: usize) {
        for at in 0..bytes {
            // SAFETY: a byte of each range that the caller vouches for; a load does not write.
            unsafe {
                let byte = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed);
                AtomicU8::from_ptr(to.add(at)).store(byte, Ordering::Relaxed);
            }
        }
    }
}

/// Whether every page of `address..address + bytes` is mapped, with any rights.
///
/// Only true at that moment: another thread may unmap it right after. One system call per 2 MiB, no allocation.
/// [`crate::memory::check_memory`] also checks the rights, and costs more.
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
        let asked = unsafe { libc::mincore(ptr::without_provenance_mut(at), part, resident.as_mut_ptr().cast()) };
        if asked != 0 {
            return false;
        }
        at += part;
    }
    true
}

#[cfg(test)]
mod tests {
    use core::cell::UnsafeCell;

    use super::*;

    /// Memory that all threads access without coordination.
    struct Commons(UnsafeCell<[u64; 64]>);

    // SAFETY: its bytes are reached by the functions of this module alone.
    unsafe impl Sync for Commons {}

    #[test]
    fn copies_of_every_length_and_alignment_move_these_bytes_and_no_others() {
        let source: Vec<u8> = (1..=200).collect();
        for bytes in (0..150).step_by(if cfg!(miri) { 13 } else { 1 }) {
            for (skip_from, skip_to) in [(0, 0), (1, 0), (0, 3), (5, 7)] {
                let mut place = [0_u8; 200];
                // SAFETY: both ranges lie within their own allocations.
                unsafe { copy_in(place[skip_to..].as_mut_ptr(), &source[skip_from..][..bytes]) };
                let (before, rest) = place.split_at(skip_to);
                let (moved, after) = rest.split_at(bytes);
                assert_eq!(moved, &source[skip_from..][..bytes]);
                assert!(before.iter().chain(after).all(|&byte| byte == 0));
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", not(any(miri, mapwire_bytewise))))]
    #[test]
    fn both_ways_of_filling_whole_lines_move_these_bytes_and_no_others() {
        #[repr(align(64))]
        struct Lines([u8; 40 * LINE]);
        let source: Vec<u8> = (0..39 * LINE).map(|at| (at * 7) as u8 | 1).collect();
        for fill in [moves::lines_by_string, moves::lines_past_caches] {
            for (lines, skip) in [(0, 0), (1, 0), (2, 3), (38, 61)] {
                let mut place = Lines([0; 40 * LINE]);
                // SAFETY: both ranges lie within their own variables, and the place begins on a line.
                unsafe { fill(source[skip..].as_ptr(), place.0[LINE..].as_mut_ptr(), lines) };
                let (before, rest) = place.0.split_at(LINE);
                let (moved, after) = rest.split_at(lines * LINE);
                assert_eq!(moved, &source[skip..][..lines * LINE]);
                assert!(before.iter().chain(after).all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn copies_in_whole_lines_of_every_length_and_alignment_move_these_bytes_and_no_others() {
        let source: Vec<u8> = (0..600).map(|at| (at * 7) as u8 | 1).collect();
        for bytes in (0..500).step_by(if cfg!(miri) { 61 } else { 7 }) {
            for (skip_from, skip_to) in [(0, 0), (1, 0), (0, 3), (5, 60), (16, 64)] {
                let mut place = vec![0_u8; 700];
                let to = place[skip_to..].as_mut_ptr();
                // SAFETY: both ranges lie within their own allocations.
                unsafe { copy_whole_lines(source[skip_from..].as_ptr(), to, bytes) };
                let (before, rest) = place.split_at(skip_to);
                let (moved, after) = rest.split_at(bytes);
                assert_eq!(moved, &source[skip_from..][..bytes]);
                assert!(before.iter().chain(after).all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn values_of_every_size_come_back() {
        fn back<T: Copy + PartialEq + core::fmt::Debug>(value: T, mut place: T) {
            // SAFETY: a variable of its own type.
            unsafe {
                store(&raw mut place, value);
                assert_eq!(load((&raw mut place).cast_const()), value);
            }
        }
        back(7_u8, 0);
        back(0x1234_u16, 0);
        back(-5_i32, 0);
        back(2.5_f64, 0.0);
        back(1_u128 << 100, 0);
        back([1_u32, 2, 3], [0; 3]);
        back([9_u8; 4], [0; 4]);
        back((), ());
    }

    /// Miri and ThreadSanitizer find a race here when any of the accesses is a plain one.
    #[test]
    fn threads_may_copy_to_and_from_the_same_memory_at_once() {
        let commons = Commons(UnsafeCell::new([0; 64]));
        let commons = &commons;
        let rounds = if cfg!(miri) { 3 } else { 2_000 };
        std::thread::scope(|scope| {
            for thread in 0..2_u8 {
                scope.spawn(move || {
                    let start = commons.0.get().cast::<u8>();
                    for round in 0..rounds {
                        for bytes in [1, 3, 4, 7, 8, 16, 100] {
                            let mut seen = vec![0; bytes];
                            // SAFETY: 512 bytes lie there, and `seen` is this thread's own.
                            unsafe {
                                copy_in(start.add(5), &vec![thread + 1; bytes]);
                                copy_out(start.add(5), &mut seen);
                                store(start.cast::<u32>().add(100), round);
                                load(start.cast::<u32>().add(100));
                            }
                            assert!(seen.iter().all(|byte| [1, 2].contains(byte)));
                        }
                    }
                });
            }
        });
    }
}
