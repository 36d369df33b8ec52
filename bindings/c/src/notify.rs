//! Delivery of notifications to a function of the program, and a gate that closes when the export ends.

use core::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use mapwire::Notification;

/// A notification: a message has been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct mw_notification_t {
    /// Offset of the message's first byte in the export.
    pub offset: u64,
    /// Bytes of the message.
    pub length: u64,
    /// The rank that sent it.
    pub from: u32,
    /// Zero.
    pub reserved: u32,
}

/// Called on deliveries into an export. `notification` is valid until it returns; `data` is that of the export's options.
///
/// It runs in whichever thread then serves what has arrived: one in a call of this library or in an access to shared memory, or the
/// library's own. It may run in several threads at once. So keep it short and take no lock that the program holds while it calls the
/// library; it may send, but must not touch shared memory, nor leave by `longjmp` or an exception. Once `mw_export_revoke` has returned,
/// it does not run any more.
pub type mw_notify_fn = Option<unsafe extern "C" fn(notification: *const mw_notification_t, data: *mut c_void)>;

/// A function of the program with its data.
#[derive(Clone, Copy)]
pub(crate) struct Callback {
    function: unsafe extern "C" fn(*const mw_notification_t, *mut c_void),
    data: *mut c_void,
}

// SAFETY: the program knows that its function runs in any thread, so `data` is fit for that (`mw_notify_fn`).
unsafe impl Send for Callback {}
// SAFETY: and that it may run in several at once.
unsafe impl Sync for Callback {}

impl Callback {
    pub(crate) fn new(
        function: unsafe extern "C" fn(*const mw_notification_t, *mut c_void),
        data: *mut c_void,
    ) -> Self {
        Self { function, data }
    }

    fn call(&self, notification: Notification) {
        let notification = mw_notification_t {
            offset: notification.offset,
            length: notification.length,
            from: u32::from(notification.from.0),
            reserved: 0,
        };
        // SAFETY: a function of the program of this very type, with the data that it gave along; the gate is open, so the
        // export stands, and the program keeps both valid until it has revoked it.
        unsafe { (self.function)(&raw const notification, self.data) };
    }
}

/// Lets notifications through until it is closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<Passage>,
    /// A thread has come out of a closed gate.
    out: Condvar,
}

#[derive(Debug, Default)]
struct Passage {
    closed: bool,
    /// Threads that are within, one entry for each entrance.
    within: Vec<ThreadId>,
}

impl Gate {
    /// The handler of an export: calls `callback` while the gate is open.
    pub(crate) fn handler(self: &Arc<Self>, callback: Callback) -> impl Fn(Notification) + Send + Sync + 'static {
        let gate = Arc::clone(self);
        move |notification| gate.pass(|| callback.call(notification))
    }

    fn pass(&self, body: impl FnOnce()) {
        let me = std::thread::current().id();
        {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.within.push(me);
        }
        body();
        let mut state = self.lock();
        if let Some(at) = state.within.iter().rposition(|&thread| thread == me) {
            state.within.swap_remove(at);
        }
        if state.closed {
            self.out.notify_all();
        }
    }

    /// Lets nothing through from here on, and waits for the threads within, except the calling thread.
    pub(crate) fn close(&self) {
        let me = std::thread::current().id();
        let mut state = self.lock();
        state.closed = true;
        while state.within.iter().any(|&thread| thread != me) {
            state = self.out.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Passage> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_closed_gate_lets_nothing_through() {
        let gate = Gate::default();
        let passed = AtomicU32::new(0);
        gate.pass(|| {
            passed.fetch_add(1, Ordering::Relaxed);
        });
        gate.close();
        gate.pass(|| {
            passed.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(passed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn closing_waits_for_other_threads_within() {
        let gate = Gate::default();
        let (entered, over) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.pass(|| {
                    entered.store(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(50));
                    over.store(1, Ordering::SeqCst);
                });
            });
            while entered.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            gate.close();
            assert_eq!(over.load(Ordering::SeqCst), 1);
        });
    }

    #[test]
    fn a_handler_may_close_its_own_gate() {
        let gate = Gate::default();
        gate.pass(|| gate.close());
        assert!(gate.lock().within.is_empty());
    }
}
