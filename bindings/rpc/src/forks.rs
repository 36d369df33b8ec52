//! Owners of objects across forks: after `fork` the child has the memory of its parent's nodes, and none of their threads.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Once, OnceLock};

use mapwire_host::processes::Owner;

/// What a new child calls, once there is something to be left.
static LEAVE: OnceLock<fn()> = OnceLock::new();

extern "C" fn in_child() {
    if let Some(leave) = LEAVE.get() {
        leave();
    }
}

/// Has new children call `leave`, which waits for no lock.
pub(crate) fn call_in_children(leave: fn()) {
    LEAVE.get_or_init(|| leave);
}

/// Closes a descriptor that this child inherited. Its owners are the parent's: the child must forget its copies of them.
pub(crate) fn close_inherited(fd: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open, and by this function's own contract nobody in this process uses or closes it after this.
    unsafe { libc::close(fd.as_raw_fd()) };
}

/// The calling process, as the owner of what it makes. From here on its children leave its objects to it.
pub(crate) fn owner() -> Owner {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the function may run in a child of a process with threads: it waits for no lock, and the C library's memory is in order.
        // Without memory for the handler, a child leaves these things when it is first called.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    Owner::me()
}
