//! Mutexes, reader-writer locks, condition variables, and what is done once, in shared memory.

use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::Arc;

use mapwire::sync::{Condition, Mutex, Objects, Once, RwLock};

use crate::export::MW_FOREVER;
use crate::failure::{Failure, call};
use crate::status::mw_status_t;

/// Most memories that a process has open with objects in them.
const MEMORIES: usize = 16;

/// The memories that this process has open. A forked child has its parent's.
static OPEN: [Slot; MEMORIES] = [const { Slot::new() }; MEMORIES];

/// A memory that is open, or nothing. It is changed while `version` is odd.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    version: AtomicUsize,
    base: AtomicUsize,
    bytes: AtomicUsize,
    objects: AtomicPtr<Objects>,
}

impl Slot {
    const fn new() -> Self {
        let objects = AtomicPtr::new(core::ptr::null_mut());
        Self { version: AtomicUsize::new(0), base: AtomicUsize::new(0), bytes: AtomicUsize::new(0), objects }
    }

    /// The objects of the memory here, if `address` is in it. One that changes meanwhile is not the caller's, which stays open.
    #[inline(always)]
    fn at(&self, address: usize) -> Option<*const Objects> {
        let version = self.version.load(Ordering::Acquire);
        if address.wrapping_sub(self.base.load(Ordering::Relaxed)) >= self.bytes.load(Ordering::Relaxed) {
            return None;
        }
        let objects = self.objects.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some(objects.cast_const())
    }

    /// Puts a memory here; false: there is one.
    fn fill(&self, range: Range<usize>, objects: *const Objects) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let is_free = version.is_multiple_of(2) && self.objects.load(Ordering::Relaxed).is_null();
        let (relaxed, change) = (Ordering::Relaxed, version.wrapping_add(1));
        if !is_free || self.version.compare_exchange(version, change, Ordering::AcqRel, relaxed).is_err() {
            return false;
        }
        self.change(version, range, objects);
        true
    }

    /// Takes the memory of these objects from here, if it is here.
    fn clear(&self, objects: *const Objects) {
        if core::ptr::eq(self.objects.load(Ordering::Relaxed), objects) {
            let version = self.version.fetch_add(1, Ordering::AcqRel);
            self.change(version, 0..0, core::ptr::null());
        }
    }

    /// Only for the thread that has made `version` odd.
    fn change(&self, version: usize, range: Range<usize>, objects: *const Objects) {
        fence(Ordering::Release);
        self.base.store(range.start, Ordering::Relaxed);
        self.bytes.store(range.len(), Ordering::Relaxed);
        self.objects.store(objects.cast_mut(), Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// Makes the objects of a memory those of its addresses in this process, until it is dropped.
#[derive(Debug)]
pub(crate) struct Published(Arc<Objects>);

impl Published {
    pub(crate) fn new(objects: &Arc<Objects>) -> Self {
        let range = objects.range();
        // Without a slot its objects are refused.
        let _ = OPEN.iter().any(|slot| slot.fill(range.clone(), Arc::as_ptr(objects)));
        Self(Arc::clone(objects))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        OPEN.iter().for_each(|slot| slot.clear(Arc::as_ptr(&self.0)));
    }
}

/// The objects of the open memory in which `address` lies, that of an object of this kind.
///
/// # Safety
/// The memory is not closed while they are used.
#[inline]
pub(crate) unsafe fn objects<'a>(address: usize, kind: &str) -> Result<&'a Objects, Failure> {
    match OPEN[0].at(address).or_else(|| in_others(address)) {
        // SAFETY: what a `Published` keeps until the memory is closed, which is later than the caller's use.
        Some(objects) => Ok(unsafe { &*objects }),
        None => Err(nowhere(address, kind)),
    }
}

#[cold]
fn in_others(address: usize) -> Option<*const Objects> {
    OPEN[1..].iter().find_map(|slot| slot.at(address))
}

#[cold]
fn nowhere(address: usize, kind: &str) -> Failure {
    if OPEN.iter().all(|slot| slot.objects.load(Ordering::Relaxed).is_null()) {
        return Failure::state("no shared memory is open: synchronisation objects need mw_shared_open");
    }
    let message = format!(
        "the {kind} at {address:#x} is not in shared memory that this process has open: put synchronisation objects there (of such \
         memories, {MEMORIES} at a time hold objects)"
    );
    Failure { status: mw_status_t::MW_ERR_ADDRESS, message }
}

/// A call that succeeds, fails, or finds that it is too early; this costs no message.
#[inline]
pub(crate) fn try_call(body: impl FnOnce() -> Result<bool, Failure>) -> mw_status_t {
    let mut is_done = true;
    let status = call(|| {
        is_done = body()?;
        Ok(())
    });
    if is_done { status } else { mw_status_t::MW_ERR_TIMEOUT }
}

/// The deadline of a timeout that begins now: of mapwire's clock.
pub(crate) fn deadline_ns(timeout_ns: u64) -> u64 {
    match timeout_ns {
        MW_FOREVER => u64::MAX,
        _ => mapwire::sync::now_ns().saturating_add(timeout_ns),
    }
}

/// A mutex in shared memory, anywhere: any thread of any rank locks it, and if all ranks are on one host, forked children too. 64 zeroed bytes
/// are an unlocked one; at a multiple of 64 bytes it shares no cache line.
///
/// On one host whoever comes when it is free takes it, except that a thread that has waited for more than a millisecond is served next, and
/// if a holder ends, all that wait and all that come later get `MW_ERR_GONE` and a message that names it. Between hosts, a rank keeps it, and
/// serves in the order of arrival.
#[derive(Debug)]
#[repr(C)]
pub struct mw_mutex_t {
    /// The library's.
    pub reserved: [u64; 8],
}

/// # Safety
/// As for [`objects`].
#[inline]
unsafe fn mutex_at<'a>(mutex: *const mw_mutex_t) -> Result<Mutex<'a>, Failure> {
    // SAFETY: this function's contract.
    let objects = unsafe { objects(mutex.addr(), "mutex") }?;
    Ok(objects.mutex(objects.offset(mutex.addr()))?)
}

/// Makes `*mutex` an unlocked mutex, whatever was there.
///
/// # Errors
/// Of this and all functions of synchronisation objects: `MW_ERR_ADDRESS`: it is not in shared memory, or not aligned to 8 bytes.
/// `MW_ERR_STATE`: no shared memory is open. `MW_ERR_LIMIT`: between hosts, the rank that keeps it has 65536 objects in use.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_mutex_init(mutex: *mut mw_mutex_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { mutex_at(mutex) }?.init()?;
        Ok(())
    })
}

/// Locks.
///
/// # Errors
/// `MW_ERR_STATE`: this thread holds it, or it is destroyed, or its memory freed. `MW_ERR_GONE`: its holder has ended, or a rank has left
/// or died. `MW_ERR_LIMIT`: more than 32767 threads use such objects.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_mutex_lock(mutex: *mut mw_mutex_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { mutex_at(mutex) }?.lock()?))
}

/// Locks, if it is free.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: it is locked. Otherwise as `mw_mutex_lock`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_mutex_trylock(mutex: *mut mw_mutex_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    try_call(|| Ok(unsafe { mutex_at(mutex) }?.try_lock()?))
}

/// Locks, after `timeout_ns` nanoseconds at most.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: it is locked still. Otherwise as `mw_mutex_lock`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_mutex_timedlock(mutex: *mut mw_mutex_t, timeout_ns: u64) -> mw_status_t {
    // SAFETY: the caller's promise.
    try_call(|| Ok(unsafe { mutex_at(mutex) }?.lock_until(deadline_ns(timeout_ns))?))
}

/// Unlocks.
///
/// # Errors
/// `MW_ERR_STATE`: this thread does not hold it; the message names who does.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_mutex_unlock(mutex: *mut mw_mutex_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { mutex_at(mutex) }?.unlock()?))
}

/// Makes later calls errors.
///
/// # Errors
/// `MW_ERR_STATE`: it is locked.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_mutex_destroy(mutex: *mut mw_mutex_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { mutex_at(mutex) }?.destroy()?))
}

/// A reader-writer lock in shared memory. 64 zeroed bytes are an unlocked one. Who cannot have it at once waits in one order: neither
/// readers nor writers starve. Holders that end are named as those of a mutex.
#[derive(Debug)]
#[repr(C)]
pub struct mw_rwlock_t {
    /// The library's.
    pub reserved: [u64; 8],
}

/// # Safety
/// As for [`objects`].
#[inline]
unsafe fn rwlock_at<'a>(lock: *const mw_rwlock_t) -> Result<RwLock<'a>, Failure> {
    // SAFETY: this function's contract.
    let objects = unsafe { objects(lock.addr(), "reader-writer lock") }?;
    Ok(objects.rwlock(objects.offset(lock.addr()))?)
}

/// Makes `*lock` an unlocked reader-writer lock, whatever was there.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_rwlock_init(lock: *mut mw_rwlock_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { rwlock_at(lock) }?.init()?;
        Ok(())
    })
}

/// Locks for reading, with others that read.
///
/// # Errors
/// `MW_ERR_STATE`: this thread holds it and a writer waits, or it is destroyed, or its memory freed. `MW_ERR_GONE`: a holder has ended, or
/// a rank has left or died.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_rwlock_rdlock(lock: *mut mw_rwlock_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { rwlock_at(lock) }?.read()?))
}

/// Locks for reading, if no writer has or wants it.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: a writer has or wants it. Otherwise as `mw_rwlock_rdlock`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_rwlock_tryrdlock(lock: *mut mw_rwlock_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    try_call(|| Ok(unsafe { rwlock_at(lock) }?.try_read()?))
}

/// Locks for reading, after `timeout_ns` nanoseconds at most.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: a writer has or wants it still. Otherwise as `mw_rwlock_rdlock`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_rwlock_timedrdlock(lock: *mut mw_rwlock_t, timeout_ns: u64) -> mw_status_t {
    // SAFETY: the caller's promise.
    try_call(|| Ok(unsafe { rwlock_at(lock) }?.read_until(deadline_ns(timeout_ns))?))
}

/// Locks for writing, alone.
///
/// # Errors
/// `MW_ERR_STATE`: this thread holds it, or it is destroyed, or its memory freed. `MW_ERR_GONE`: a holder has ended, or a rank has left or
/// died.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_rwlock_wrlock(lock: *mut mw_rwlock_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { rwlock_at(lock) }?.write()?))
}

/// Locks for writing, if nobody holds it.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: somebody holds it. Otherwise as `mw_rwlock_wrlock`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_rwlock_trywrlock(lock: *mut mw_rwlock_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    try_call(|| Ok(unsafe { rwlock_at(lock) }?.try_write()?))
}

/// Locks for writing, after `timeout_ns` nanoseconds at most.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: somebody holds it still. Otherwise as `mw_rwlock_wrlock`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_rwlock_timedwrlock(lock: *mut mw_rwlock_t, timeout_ns: u64) -> mw_status_t {
    // SAFETY: the caller's promise.
    try_call(|| Ok(unsafe { rwlock_at(lock) }?.write_until(deadline_ns(timeout_ns))?))
}

/// Unlocks what this thread has locked, for reading or writing.
///
/// # Errors
/// `MW_ERR_STATE`: this thread does not hold it.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_rwlock_unlock(lock: *mut mw_rwlock_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { rwlock_at(lock) }?.unlock()?))
}

/// Makes later calls errors.
///
/// # Errors
/// `MW_ERR_STATE`: it is locked.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_rwlock_destroy(lock: *mut mw_rwlock_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { rwlock_at(lock) }?.destroy()?))
}

/// A condition variable in shared memory. 64 zeroed bytes are one on which nobody waits.
#[derive(Debug)]
#[repr(C)]
pub struct mw_cond_t {
    /// The library's.
    pub reserved: [u64; 8],
}

/// # Safety
/// As for [`objects`].
#[inline]
unsafe fn condition_at<'a>(condition: *const mw_cond_t) -> Result<Condition<'a>, Failure> {
    // SAFETY: this function's contract.
    let objects = unsafe { objects(condition.addr(), "condition variable") }?;
    Ok(objects.condition(objects.offset(condition.addr()))?)
}

/// Makes `*condition` a condition variable, whatever was there.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_cond_init(condition: *mut mw_cond_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { condition_at(condition) }?.init()?;
        Ok(())
    })
}

/// Unlocks `mutex`, waits for a signal, and locks it again. May return without a signal: look whether what is waited for is true.
///
/// # Errors
/// `MW_ERR_STATE`: this thread does not hold the mutex, or `*condition` is destroyed. Otherwise as `mw_mutex_lock`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_cond_wait(condition: *mut mw_cond_t, mutex: *mut mw_mutex_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        let (condition, mutex) = unsafe { (condition_at(condition)?, mutex_at(mutex)?) };
        Ok(condition.wait(&mutex)?)
    })
}

/// As `mw_cond_wait`, for `timeout_ns` nanoseconds at most; then it has locked the mutex too.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: there was no signal. Otherwise as `mw_cond_wait`.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_cond_timedwait(
    condition: *mut mw_cond_t,
    mutex: *mut mw_mutex_t,
    timeout_ns: u64,
) -> mw_status_t {
    try_call(|| {
        // SAFETY: the caller's promise.
        let (condition, mutex) = unsafe { (condition_at(condition)?, mutex_at(mutex)?) };
        Ok(condition.wait_until(&mutex, deadline_ns(timeout_ns))?)
    })
}

/// Wakes one thread that waits.
///
/// # Errors
/// `MW_ERR_STATE`: it is destroyed.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_cond_signal(condition: *mut mw_cond_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { condition_at(condition) }?.signal()?))
}

/// Wakes all threads that wait.
///
/// # Errors
/// `MW_ERR_STATE`: it is destroyed.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_cond_broadcast(condition: *mut mw_cond_t) -> mw_status_t {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { condition_at(condition) }?.broadcast()?))
}

/// Makes later calls errors. Nobody waits.
///
/// # Safety
/// The shared memory is not closed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_cond_destroy(condition: *mut mw_cond_t) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { condition_at(condition) }?.destroy()?;
        Ok(())
    })
}

/// What one thread does for all ranks, in shared memory. 64 zeroed bytes: not done.
#[derive(Debug)]
#[repr(C)]
pub struct mw_once_t {
    /// The library's.
    pub reserved: [u64; 8],
}

/// What is done once.
pub type mw_once_fn = Option<unsafe extern "C" fn()>;

/// Calls `routine`, unless a thread of any rank has called it for `*once`; waits while one does. What it has stored is visible then.
///
/// # Errors
/// `MW_ERR_STATE`: `routine` calls this for the same `*once`. `MW_ERR_GONE`: the thread that called it has ended before it returned, or a
/// rank has left or died.
///
/// # Safety
/// The shared memory is not closed during the call, and `routine` returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_once(once: *mut mw_once_t, routine: mw_once_fn) -> mw_status_t {
    call(|| {
        let routine = crate::arguments::required(routine, "routine")?;
        // SAFETY: the caller's promise.
        let objects = unsafe { objects(once.addr(), "once") }?;
        let once: Once<'_> = objects.once(objects.offset(once.addr()))?;
        if once.begin()? {
            // SAFETY: the caller's function, which takes nothing.
            unsafe { routine() };
            once.end(true)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_in_the_open_memory_that_has_it() {
        let slots = [const { Slot::new() }; 2];
        let objects = [1, 2, 3].map(|nth| core::ptr::without_provenance::<Objects>(64 * nth));
        let at = |address| slots.iter().find_map(|slot| slot.at(address));
        let fill = |start, nth: usize| slots.iter().any(|slot| slot.fill(start..start + 10, objects[nth]));
        assert_eq!(at(0), None);
        assert!(fill(10, 0) && fill(30, 1) && !fill(50, 2));
        let found = [9, 10, 19, 20, 30, 39, 40].map(at);
        let (first, second) = (Some(objects[0]), Some(objects[1]));
        assert_eq!(found, [None, first, first, None, second, second, None]);
        slots.iter().for_each(|slot| slot.clear(objects[0]));
        assert_eq!([10, 30].map(at), [None, second]);
        assert!(fill(50, 2));
        assert_eq!([10, 30, 50].map(at), [None, second, Some(objects[2])]);
    }

    #[test]
    fn a_slot_that_changes_is_passed_over() {
        let slot = Slot::new();
        let objects = core::ptr::without_provenance::<Objects>(64);
        assert!(slot.fill(10..20, objects));
        slot.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(slot.at(10), None);
        assert!(!slot.fill(30..40, objects));
    }
}
