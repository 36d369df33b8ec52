//! Descriptors for event loops.

use core::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use mapwire::EventFd;

use crate::arguments::{free, get, make, required};
use crate::failure::call;
use crate::node::mw_node_t;
use crate::status::mw_status_t;

/// A descriptor that becomes readable when something has arrived for this process, for programs that sleep in `epoll`, `poll` or an event
/// loop built on them.
#[derive(Debug)]
pub struct mw_eventfd_t {
    events: EventFd,
}

/// Makes a descriptor for an event loop; each loop needs its own. For each sleep: call `mw_eventfd_arm`, check everything that is waited
/// for (`mw_node_poll`, signals, requests), and sleep if there is nothing. In this order nothing is missed.
///
/// Between two armings it becomes readable once: at once when a send, signal or notification arrives, a request ends, or a rank leaves or
/// dies; within half a second when a peer stores through `mw_import_pointer`. It may also become readable although nothing has arrived:
/// after actions of this process, and up to five times a second while it is armed and importers may have mapped memory of this process. It
/// does not become readable while a thread counts as polling (`mw_node_begin_polling`).
///
/// It does not keep this process in the job; once the process has left, it stays readable. Free `*events` with `mw_eventfd_free`.
///
/// # Errors
/// `MW_ERR_LIMIT`: no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn mw_eventfd_create(
    node: Option<&mw_node_t>,
    events: Option<&mut MaybeUninit<*mut mw_eventfd_t>>,
) -> mw_status_t {
    make(events, "events", || Ok(mw_eventfd_t { events: required(node, "node")?.node.event_fd()? }))
}

/// Returns the descriptor in `*fd`. Only wait for it to be readable; leave reading, writing and closing to the library.
#[unsafe(no_mangle)]
pub extern "C" fn mw_eventfd_fd(events: Option<&mw_eventfd_t>, fd: Option<&mut MaybeUninit<i32>>) -> mw_status_t {
    get(fd, "fd", || Ok(required(events, "events")?.events.as_raw_fd()))
}

/// Clears the descriptor and arms it: what arrives from here on makes it readable. Check once more before you sleep: only that check finds
/// what arrived earlier.
///
/// # Errors
/// `MW_ERR_GONE`: this process has left the job; the descriptor stays readable.
#[unsafe(no_mangle)]
pub extern "C" fn mw_eventfd_arm(events: Option<&mw_eventfd_t>) -> mw_status_t {
    call(|| Ok(required(events, "events")?.events.arm()?))
}

/// Closes the descriptor: remove it from event loops first. `NULL` is no error.
///
/// # Safety
/// No other thread is in a call with `events`, or uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_eventfd_free(events: Option<Box<mw_eventfd_t>>) -> mw_status_t {
    free(events)
}
