//! Semaphores, flags, barriers, reductions and queues in shared memory.

use core::mem::MaybeUninit;

use mapwire::sync::{Barrier, Flag, Number, QUEUE_BYTES, Queue, Reduce, Reduction, Semaphore, Steal};

use crate::arguments::{flag, give, required};
use crate::collective::{MW_MAX, MW_MIN, MW_SUM};
use crate::failure::{Failure, call};
use crate::status::mw_status_t;
use crate::sync::{deadline_ns, objects, try_call};

/// A counting semaphore in shared memory. 64 zeroed bytes are one of value 0.
#[derive(Debug)]
#[repr(C)]
pub struct mw_sem_t {
    /// The library's.
    pub reserved: [u64; 8],
}

/// # Safety
/// As for [`objects`].
#[inline]
unsafe fn semaphore_at<'a>(semaphore: *const mw_sem_t) -> Result<Semaphore<'a>, Failure> {
    // SAFETY: this function's contract.
    let objects = unsafe { objects(semaphore.addr(), "semaphore") }?;
    Ok(objects.semaphore(objects.offset(semaphore.addr()))?)
}

/// Makes `*semaphore` a semaphore of this value, whatever was there.
///
/// # Errors
/// `MW_ERR_LIMIT`: the value is above 2147483647.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_sem_init(semaphore: *mut mw_sem_t, value: u32) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { semaphore_at(semaphore) }?.init(value)?))
}

/// Waits until the value is not 0, and takes 1 from it.
///
/// # Errors
/// `MW_ERR_STATE`: it is destroyed or damaged. `MW_ERR_GONE`: a rank has left or died.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_sem_wait(semaphore: *mut mw_sem_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { semaphore_at(semaphore) }?.take()?))
}

/// Takes 1 from the value, if it is not 0.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: it is 0. Otherwise as `mw_sem_wait`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_sem_trywait(semaphore: *mut mw_sem_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    try_call(|| Ok(unsafe { semaphore_at(semaphore) }?.try_take()?))
}

/// As `mw_sem_wait`, for `timeout_ns` nanoseconds at most.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: it is 0 still. Otherwise as `mw_sem_wait`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_sem_timedwait(semaphore: *mut mw_sem_t, timeout_ns: u64) -> mw_status_t {
    // SAFETY: the caller's promise.
    try_call(|| Ok(unsafe { semaphore_at(semaphore) }?.take_until(deadline_ns(timeout_ns))?))
}

/// Adds 1 to the value, and wakes one that waits.
///
/// # Errors
/// `MW_ERR_LIMIT`: the value would be above 2147483647. `MW_ERR_STATE`: it is destroyed or damaged.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_sem_post(semaphore: *mut mw_sem_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { semaphore_at(semaphore) }?.post(1)?))
}

/// Returns the value in `*value`.
///
/// # Errors
/// `MW_ERR_STATE`: it is destroyed or damaged.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_sem_getvalue(
    semaphore: *mut mw_sem_t,
    value: Option<&mut MaybeUninit<u32>>,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| give(value, "value", unsafe { semaphore_at(semaphore) }?.value()?))
}

/// Makes later calls errors. Nobody waits.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_sem_destroy(semaphore: *mut mw_sem_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { semaphore_at(semaphore) }?.destroy()?;
        Ok(())
    })
}

/// A number in shared memory that others wait for. 64 zeroed bytes are one of value 0. What was stored before it was set is visible to
/// those that see its value.
#[derive(Debug)]
#[repr(C)]
pub struct mw_flag_t {
    /// The library's.
    pub reserved: [u64; 8],
}

/// # Safety
/// As for [`objects`].
#[inline]
unsafe fn flag_at<'a>(event: *const mw_flag_t) -> Result<Flag<'a>, Failure> {
    // SAFETY: this function's contract.
    let objects = unsafe { objects(event.addr(), "flag") }?;
    Ok(objects.flag(objects.offset(event.addr()))?)
}

/// Makes `*event` a flag of value 0, whatever was there.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_flag_init(event: *mut mw_flag_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { flag_at(event) }?.init()?;
        Ok(())
    })
}

/// Sets the value, 0 to clear it, and wakes those that wait for it.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_flag_set(event: *mut mw_flag_t, value: u64) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { flag_at(event) }?.set(value)?;
        Ok(())
    })
}

/// Adds to the value, and wakes those that wait for it.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_flag_add(event: *mut mw_flag_t, value: u64) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        let _before = unsafe { flag_at(event) }?.add(value)?;
        Ok(())
    })
}

/// Returns the value in `*value`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_flag_get(event: *mut mw_flag_t, value: Option<&mut MaybeUninit<u64>>) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| give(value, "value", unsafe { flag_at(event) }?.value()?))
}

/// Waits until the value is `least` or more.
///
/// # Errors
/// `MW_ERR_STATE`: it is destroyed. `MW_ERR_GONE`: a rank has left or died.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_flag_wait(event: *mut mw_flag_t, least: u64) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        let _value = unsafe { flag_at(event) }?.wait(least)?;
        Ok(())
    })
}

/// As `mw_flag_wait`, for `timeout_ns` nanoseconds at most.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: the value is less still. Otherwise as `mw_flag_wait`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_flag_timedwait(event: *mut mw_flag_t, least: u64, timeout_ns: u64) -> mw_status_t {
    // SAFETY: the caller's promise.
    try_call(|| Ok(unsafe { flag_at(event) }?.wait_until(least, deadline_ns(timeout_ns))?.is_some()))
}

/// Makes later waits errors.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_flag_destroy(event: *mut mw_flag_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { flag_at(event) }?.destroy()?;
        Ok(())
    })
}

/// A barrier of a number of threads of any ranks, in shared memory. `mw_barrier_init` makes one of 64 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct mw_barrier_t {
    /// The library's.
    pub reserved: [u64; 8],
}

/// # Safety
/// As for [`objects`].
#[inline]
unsafe fn barrier_at<'a>(barrier: *const mw_barrier_t) -> Result<Barrier<'a>, Failure> {
    // SAFETY: this function's contract.
    let objects = unsafe { objects(barrier.addr(), "barrier") }?;
    Ok(objects.barrier_at(objects.offset(barrier.addr()))?)
}

/// Makes `*barrier` a barrier of `count` threads, whatever was there.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: a count of 0.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_barrier_init(barrier: *mut mw_barrier_t, count: u32) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { barrier_at(barrier) }?.init(count)?))
}

/// Waits until as many threads have arrived as the barrier counts. `*is_last` becomes 1 in one of them and 0 in the others; `is_last` may be
/// `NULL`. The barrier may be used again at once.
///
/// # Errors
/// `MW_ERR_STATE`: it was not initialised, or is destroyed. `MW_ERR_GONE`: a rank has left or died.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_barrier_wait(
    barrier: *mut mw_barrier_t,
    is_last: Option<&mut MaybeUninit<i32>>,
) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        let last = unsafe { barrier_at(barrier) }?.wait()?;
        if let Some(place) = is_last {
            place.write(flag(last));
        }
        Ok(())
    })
}

/// Makes later calls errors. Nobody waits.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_barrier_destroy(barrier: *mut mw_barrier_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { barrier_at(barrier) }?.destroy()?;
        Ok(())
    })
}

/// A barrier whose threads each bring a value, in shared memory. `mw_reduction_init` makes one of 64 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct mw_reduction_t {
    /// The library's.
    pub reserved: [u64; 8],
}

/// # Safety
/// As for [`objects`].
#[inline]
unsafe fn reduction_at<'a>(reduction: *const mw_reduction_t) -> Result<Reduction<'a>, Failure> {
    // SAFETY: this function's contract.
    let objects = unsafe { objects(reduction.addr(), "reduction") }?;
    Ok(objects.reduction(objects.offset(reduction.addr()))?)
}

/// Makes `*reduction` a reduction over `count` threads, whatever was there.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: a count of 0.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_reduction_init(reduction: *mut mw_reduction_t, count: u32) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { reduction_at(reduction) }?.init(count)?))
}

/// # Safety
/// As for [`objects`]; `value` points to a number.
unsafe fn reduce<T: Number>(
    reduction: *mut mw_reduction_t,
    how: u32,
    value: Option<&mut MaybeUninit<T>>,
) -> mw_status_t {
    call(|| {
        let what = match how {
            MW_SUM => Reduce::Sum,
            MW_MIN => Reduce::Min,
            MW_MAX => Reduce::Max,
            _ => return Err(Failure::argument(format!("unknown reduction {how}: use MW_SUM, MW_MIN or MW_MAX"))),
        };
        let value = required(value, "value")?;
        // SAFETY: this function's contract.
        let (mine, reduction) = unsafe { (value.assume_init_read(), reduction_at(reduction)?) };
        value.write(reduction.reduce(what, mine)?);
        Ok(())
    })
}

/// Reduces `*value` of all threads of the reduction, by `MW_SUM`, `MW_MIN` or `MW_MAX`: waits until as many have come as it counts, and
/// returns the result in `*value` of all. Sums of integers wrap; the order in which floating-point numbers are added varies.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: an unknown reduction. `MW_ERR_STATE`: others ask for another one in this round, or it was not initialised, or is
/// destroyed. `MW_ERR_GONE`: a rank has left or died.
///
/// # Safety
/// The shared memory is not closed during the call, and `*value` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_reduction_i64(
    reduction: *mut mw_reduction_t,
    how: u32,
    value: Option<&mut MaybeUninit<i64>>,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    unsafe { reduce(reduction, how, value) }
}

/// As `mw_reduction_i64`, for unsigned integers.
///
/// # Errors
/// As `mw_reduction_i64`.
///
/// # Safety
/// The shared memory is not closed during the call, and `*value` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_reduction_u64(
    reduction: *mut mw_reduction_t,
    how: u32,
    value: Option<&mut MaybeUninit<u64>>,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    unsafe { reduce(reduction, how, value) }
}

/// As `mw_reduction_i64`, for floating-point numbers.
///
/// # Errors
/// As `mw_reduction_i64`.
///
/// # Safety
/// The shared memory is not closed during the call, and `*value` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_reduction_f64(
    reduction: *mut mw_reduction_t,
    how: u32,
    value: Option<&mut MaybeUninit<f64>>,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    unsafe { reduce(reduction, how, value) }
}

/// Makes later calls errors. Nobody waits.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_reduction_destroy(reduction: *mut mw_reduction_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { reduction_at(reduction) }?.destroy()?;
        Ok(())
    })
}

/// A work-stealing queue of values in shared memory; its values follow it, see `mw_queue_bytes`. The thread that pushes first owns it: it
/// pushes and pops at one end, and all other threads of all ranks steal at the other. If it ends, another may push and so become the owner.
#[derive(Debug)]
#[repr(C)]
pub struct mw_queue_t {
    /// The library's.
    pub reserved: [u64; 16],
}

/// # Safety
/// As for [`objects`].
#[inline]
unsafe fn queue_at<'a>(queue: *const mw_queue_t) -> Result<Queue<'a>, Failure> {
    // SAFETY: this function's contract.
    let objects = unsafe { objects(queue.addr(), "queue") }?;
    Ok(objects.queue(objects.offset(queue.addr()))?)
}

/// Returns the bytes of a queue with room for `capacity` values.
#[unsafe(no_mangle)]
pub extern "C" fn mw_queue_bytes(capacity: u64) -> u64 {
    capacity.saturating_mul(8).saturating_add(QUEUE_BYTES)
}

/// Makes the `mw_queue_bytes(capacity)` bytes at `queue` an empty queue, whatever was there. `capacity` is a power of two.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: another capacity. `MW_ERR_ADDRESS`: the values are not all in shared memory.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_queue_init(queue: *mut mw_queue_t, capacity: u64) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { queue_at(queue) }?.init(capacity)?))
}

/// Adds a value at the owner's end.
///
/// # Errors
/// `MW_ERR_LIMIT`: the queue is full. `MW_ERR_STATE`: another living thread owns it, or it was not initialised, or is destroyed.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_queue_push(queue: *mut mw_queue_t, value: u64) -> mw_status_t {
    // SAFETY: the caller's promise.
    match try_call(|| Ok(unsafe { queue_at(queue) }?.push(value)?)) {
        mw_status_t::MW_ERR_TIMEOUT => mw_status_t::MW_ERR_LIMIT,
        status => status,
    }
}

/// Takes the value that was pushed last.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: the queue is empty. `MW_ERR_STATE`: as `mw_queue_push`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_queue_pop(queue: *mut mw_queue_t, value: Option<&mut MaybeUninit<u64>>) -> mw_status_t {
    // SAFETY: the caller's promise.
    taken(value, || Ok(unsafe { queue_at(queue) }?.pop()?))
}

/// Takes the value that was pushed first; any thread may.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: the queue is empty. `MW_ERR_STATE`: it was not initialised, or is destroyed.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_queue_steal(queue: *mut mw_queue_t, value: Option<&mut MaybeUninit<u64>>) -> mw_status_t {
    taken(value, || {
        // SAFETY: the caller's promise.
        let (queue, objects) = unsafe { (queue_at(queue)?, objects(queue.addr(), "queue")?) };
        for losses in 1_u64.. {
            match queue.steal()? {
                Steal::Taken(value) => return Ok(Some(value)),
                Steal::Empty => return Ok(None),
                // Another thread took the value. If that goes on without end, it is because a rank spoils the queue.
                Steal::Lost if losses.is_multiple_of(1024) => objects.check()?,
                Steal::Lost => {}
            }
        }
        Ok(None)
    })
}

fn taken(place: Option<&mut MaybeUninit<u64>>, take: impl FnOnce() -> Result<Option<u64>, Failure>) -> mw_status_t {
    try_call(|| {
        let place = required(place, "value")?;
        let value = take()?;
        Ok(value.map(|value| place.write(value)).is_some())
    })
}

/// Makes later calls errors. Nobody uses it.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_queue_destroy(queue: *mut mw_queue_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { queue_at(queue) }?.destroy()?;
        Ok(())
    })
}
