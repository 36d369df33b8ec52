//! Whether this process is still the one that made a thing: after `fork` the child has the memory of its parent's nodes, and none of their
//! threads.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A number that is another one in each child.
pub(crate) fn generation() -> u32 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the function adds to a counter, and may run in a child of a process with threads.
        if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
            crate::log::warn(
                "no memory to watch for fork(): children must not use clients of their parents",
            );
        }
    });
    FORKS.load(Ordering::Relaxed)
}
