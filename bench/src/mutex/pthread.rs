//! A mutex of the C library that processes share: what programs would use without mapwire.

use super::BenchError;

/// Such a mutex, in memory that all ranks have mapped until they end.
#[derive(Clone, Copy, Debug)]
pub(super) struct PthreadMutex(*mut libc::pthread_mutex_t);

impl PthreadMutex {
    /// That at `address`, in 64 bytes of memory that this process keeps mapped while it uses this value. One rank calls
    /// [`init`](Self::init) before any uses it.
    pub(super) fn at(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    pub(super) fn init(self) -> Result<(), BenchError> {
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are used; the mutex lies in memory of its size that nobody uses yet.
        let codes = unsafe {
            [
                libc::pthread_mutexattr_init(attributes.as_mut_ptr()),
                libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutex_init(self.0, attributes.as_ptr()),
            ]
        };
        if codes == [0; 3] { Ok(()) } else { Err("no mutex of the C library that processes share".into()) }
    }

    #[inline(always)]
    pub(super) fn locked(self, body: impl FnOnce()) {
        // SAFETY: initialised by a rank before the others learned of it; this thread does not hold it.
        unsafe { libc::pthread_mutex_lock(self.0) };
        body();
        // SAFETY: locked above.
        unsafe { libc::pthread_mutex_unlock(self.0) };
    }
}
