//! `malloc` and its like in memory that all ranks share.

use core::ffi::c_void;
use core::ptr;

use crate::arguments::{get, required};
use crate::failure::{Failure, call};
use crate::shared::mw_shared_t;
use crate::status::mw_status_t;

/// Allocates `length` bytes of shared memory, as malloc(3) does of private memory: aligned to 16 bytes, at the same address in every rank,
/// freed by any thread of any rank. On one host, forked children may allocate and free too. What the block holds is unspecified.
///
/// Returns `NULL` if no room is left; `mw_error_message` says more.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_malloc(shared: Option<&mw_shared_t>, length: usize) -> *mut c_void {
    mapwire::allocates_by("mw_shared_malloc");
    block(|| Ok(required(shared, "shared")?.shared.malloc(length as u64)?))
}

/// As `mw_shared_malloc`, `count` times `length` zeroed bytes.
///
/// Returns `NULL` if no room is left, or the product is too large.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_calloc(shared: Option<&mw_shared_t>, count: usize, length: usize) -> *mut c_void {
    mapwire::allocates_by("mw_shared_calloc");
    block(|| Ok(required(shared, "shared")?.shared.calloc(count as u64, length as u64)?))
}

/// As `mw_shared_malloc`, at a multiple of `align`: a power of two, up to 2 MiB on one host, up to a page with minipages.
///
/// Returns `NULL` if no room is left, or for another alignment.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_aligned_alloc(shared: Option<&mw_shared_t>, align: usize, length: usize) -> *mut c_void {
    mapwire::allocates_by("mw_shared_aligned_alloc");
    block(|| Ok(required(shared, "shared")?.shared.aligned_alloc(align as u64, length as u64)?))
}

/// Makes the block at `memory` `length` bytes long, where it lies or elsewhere: what fits keeps its content. `NULL` for `memory` allocates.
///
/// Returns `NULL` if no room is left, or nothing is allocated at `memory`; the block is then as it was.
///
/// # Safety
/// No other thread uses the block during the call, nor `memory` afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_realloc(
    shared: Option<&mw_shared_t>,
    memory: *mut c_void,
    length: usize,
) -> *mut c_void {
    mapwire::allocates_by("mw_shared_realloc");
    block(|| {
        let shared = &required(shared, "shared")?.shared;
        Ok(match memory.is_null() {
            true => shared.malloc(length as u64)?,
            false => shared.realloc(memory.addr() as u64, length as u64)?,
        })
    })
}

/// Frees a block that any rank has allocated by these functions or, on one host, by `mw_shared_alloc`. `NULL` is no error.
///
/// # Errors
/// `MW_ERR_ADDRESS`: no block of the shared memory begins there, or it has been freed. `MW_ERR_STATE`: freed for the second time, or, with
/// `MAPWIRE_HEAP_DEBUG=true`, something has stored beside the block (the message says where, and which rank allocated it).
///
/// # Safety
/// Nobody uses the block afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_free(shared: Option<&mw_shared_t>, memory: *mut c_void) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        if memory.is_null() { Ok(()) } else { Ok(shared.free(memory.addr() as u64)?) }
    })
}

/// Returns in `*length` the bytes that may be used of the block at `memory`: as many as were asked for, or more.
///
/// # Errors
/// `MW_ERR_ADDRESS`: no block of the shared memory begins there.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_usable_size(
    shared: Option<&mw_shared_t>,
    memory: *const c_void,
    length: Option<&mut core::mem::MaybeUninit<usize>>,
) -> mw_status_t {
    let usable = || Ok(required(shared, "shared")?.shared.usable_bytes(memory.addr() as u64)? as usize);
    get(length, "length", usable)
}

/// The address of a new block, or `NULL`.
fn block(allocate: impl FnOnce() -> Result<u64, Failure>) -> *mut c_void {
    let mut address = 0;
    let status = call(|| {
        address = allocate()?;
        Ok(())
    });
    match status {
        mw_status_t::MW_OK => ptr::with_exposed_provenance_mut(address as usize),
        _ => ptr::null_mut(),
    }
}
