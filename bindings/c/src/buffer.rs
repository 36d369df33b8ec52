//! Memory that importers can map.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use mapwire::Buffer;

use crate::arguments::{free, get, make, required};
use crate::node::mw_node_t;
use crate::status::mw_status_t;

/// Memory that importers can map: they store into it, and fetch from it, without help of this process (the direct path).
#[derive(Debug)]
pub struct mw_buffer_t {
    pub(crate) buffer: Buffer,
}

/// Allocates `length` bytes, zeroed, on a page boundary.
///
/// Free `*buffer` with `mw_buffer_free`.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: 0 bytes. `MW_ERR_LIMIT`: no memory, address space or descriptors for them.
#[unsafe(no_mangle)]
pub extern "C" fn mw_buffer_alloc(
    node: Option<&mw_node_t>,
    length: usize,
    buffer: Option<&mut MaybeUninit<*mut mw_buffer_t>>,
) -> mw_status_t {
    make(buffer, "buffer", || Ok(mw_buffer_t { buffer: required(node, "node")?.node.alloc(length)? }))
}

/// Frees the buffer. Its memory is released when no export uses it any more, so a buffer may be freed while it is exported; do not use its
/// address afterwards. `NULL` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn mw_buffer_free(buffer: Option<Box<mw_buffer_t>>) -> mw_status_t {
    free(buffer)
}

/// Returns the address of the first byte in `*memory`. The memory does not move until it is freed. While it is exported, other ranks may
/// change it at any time: wait for a signal first (`mw_export_wait_signal`), or use atomics.
///
/// When an export of it is revoked, its pages are replaced by a copy at the same address: a store by another thread meanwhile may be lost.
#[unsafe(no_mangle)]
pub extern "C" fn mw_buffer_ptr(
    buffer: Option<&mw_buffer_t>,
    memory: Option<&mut MaybeUninit<*mut c_void>>,
) -> mw_status_t {
    get(memory, "memory", || Ok(required(buffer, "buffer")?.buffer.as_ptr().cast()))
}

/// Returns its length in bytes, as requested, in `*length`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_buffer_len(buffer: Option<&mw_buffer_t>, length: Option<&mut MaybeUninit<usize>>) -> mw_status_t {
    get(length, "length", || Ok(required(buffer, "buffer")?.buffer.len()))
}
