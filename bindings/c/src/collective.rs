//! Collective calls of all ranks of the job, for small values.

use core::ffi::c_void;

use mapwire::{Reducible, Reduction};

use crate::arguments::required;
use crate::failure::{Failure, call};
use crate::memory;
use crate::node::mw_node_t;
use crate::status::mw_status_t;

/// Reduce to the sum; integers wrap modulo 2^64.
pub const MW_SUM: u32 = 0;
/// Reduce to the minimum.
pub const MW_MIN: u32 = 1;
/// Reduce to the maximum.
pub const MW_MAX: u32 = 2;

/// Waits until all ranks of the job have called this. As `mw_node_broadcast`, `mw_node_gather`, `mw_node_all_gather` and the reductions,
/// it is a collective call: all ranks make these calls in the same order, one thread of each at a time. All pass through rank 0, each KiB
/// in a step there and back: they are for small values, as when ranks set up what they share.
///
/// # Errors
/// `MW_ERR_GONE`: a rank has left or died; the message names it. `MW_ERR_ARGUMENT`: a rank makes another call, or with another length or
/// root: all ranks get this error, and may continue. `MW_ERR_STATE`: another thread of this rank is in such a call, or the caller is a
/// notification function.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_barrier(node: Option<&mw_node_t>) -> mw_status_t {
    call(|| Ok(required(node, "node")?.node.barrier()?))
}

/// Copies `length` bytes at `data` of rank `root` to `data` of all ranks.
///
/// # Errors
/// As `mw_node_barrier`, and `MW_ERR_RANGE`: `root` is not a rank of the job.
///
/// # Safety
/// `data` points to `length` writable bytes (it may be `NULL` if there are none), which no thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_broadcast(
    node: Option<&mw_node_t>,
    root: u32,
    data: *mut c_void,
    length: usize,
) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::target(data, length, "data") }?;
        Ok(node.broadcast(root as usize, data)?)
    })
}

/// Collects `length` bytes at `data` of all ranks in `into` of rank `root`, in the order of ranks.
///
/// # Errors
/// As `mw_node_broadcast`.
///
/// # Safety
/// `data` points to `length` readable bytes. In rank `root`, `into` points to as many for each rank of the job, writable and apart
/// from `data`; elsewhere it is not used. No thread changes them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_gather(
    node: Option<&mw_node_t>,
    root: u32,
    data: *const c_void,
    length: usize,
    into: *mut c_void,
) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::source(data, length, "data") }?;
        let room = match node.rank() == root as usize {
            true => length.saturating_mul(node.size()),
            false => 0,
        };
        // SAFETY: the caller's promise.
        let into = unsafe { memory::target(into, room, "into") }?;
        if let Some(all) = node.gather(root as usize, data)? {
            into.copy_from_slice(&all.concat());
        }
        Ok(())
    })
}

/// Collects `length` bytes at `data` of all ranks in `into` of all ranks, in the order of ranks.
///
/// # Errors
/// As `mw_node_barrier`.
///
/// # Safety
/// `data` points to `length` readable bytes, and `into` to as many for each rank of the job, writable and apart from `data`. No thread
/// changes them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_all_gather(
    node: Option<&mw_node_t>,
    data: *const c_void,
    length: usize,
    into: *mut c_void,
) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::source(data, length, "data") }?;
        let room = length.saturating_mul(node.size());
        // SAFETY: the caller's promise.
        let into = unsafe { memory::target(into, room, "into") }?;
        into.copy_from_slice(&node.all_gather(data)?.concat());
        Ok(())
    })
}

/// Reduces `count` values of 8 bytes in place.
///
/// # Safety
/// `values` points to `count` writable values, which no thread uses during the call.
unsafe fn reduce<T: Reducible>(
    node: Option<&mw_node_t>,
    how: u32,
    values: *mut T,
    count: usize,
    from: impl Fn([u8; 8]) -> T,
    to: impl Fn(T) -> [u8; 8],
) -> Result<(), Failure> {
    let node = &required(node, "node")?.node;
    let how = match how {
        MW_SUM => Reduction::Sum,
        MW_MIN => Reduction::Min,
        MW_MAX => Reduction::Max,
        other => {
            return Err(Failure::argument(format!("unknown reduction {other}: use MW_SUM, MW_MIN or MW_MAX")));
        }
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory::target(values.cast(), count.saturating_mul(8), "values") }?;
    let words = bytes.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        from(bytes)
    });
    let mut reduced: Vec<T> = words.collect();
    node.reduce(how, &mut reduced)?;
    for (word, value) in bytes.chunks_exact_mut(8).zip(reduced) {
        word.copy_from_slice(&to(value));
    }
    Ok(())
}

/// Replaces each of `count` values by the reduction of all ranks' values at that index: `how` is `MW_SUM`, `MW_MIN` or `MW_MAX`. All ranks
/// get the same results.
///
/// # Errors
/// As `mw_node_barrier`.
///
/// # Safety
/// `values` points to `count` writable values, which no thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_reduce_u64(
    node: Option<&mw_node_t>,
    how: u32,
    values: *mut u64,
    count: usize,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| unsafe { reduce(node, how, values, count, u64::from_ne_bytes, u64::to_ne_bytes) })
}

/// As `mw_node_reduce_u64`, for signed integers.
///
/// # Errors
/// As `mw_node_barrier`.
///
/// # Safety
/// As `mw_node_reduce_u64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_reduce_i64(
    node: Option<&mw_node_t>,
    how: u32,
    values: *mut i64,
    count: usize,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| unsafe { reduce(node, how, values, count, i64::from_ne_bytes, i64::to_ne_bytes) })
}

/// As `mw_node_reduce_u64`, for floating-point numbers, which are reduced in the order of ranks. Minimum and maximum ignore NaN.
///
/// # Errors
/// As `mw_node_barrier`.
///
/// # Safety
/// As `mw_node_reduce_u64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_reduce_f64(
    node: Option<&mw_node_t>,
    how: u32,
    values: *mut f64,
    count: usize,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| unsafe { reduce(node, how, values, count, f64::from_ne_bytes, f64::to_ne_bytes) })
}
