//! Threads of the program that poll.

use std::cell::RefCell;

use mapwire::Polling;

use crate::arguments::required;
use crate::failure::{Failure, call};
use crate::node::mw_node_t;
use crate::status::mw_status_t;

thread_local! {
    /// What this thread has begun and not ended. A thread that ends without it polls no more.
    static BEGUN: RefCell<Vec<Polling>> = const { RefCell::new(Vec::new()) };
}

/// Counts the calling thread as one that polls, until it calls `mw_node_end_polling` or ends: what peers send wakes nobody, and is
/// served when the thread calls `mw_node_poll` or waits. For loops that poll closely; a thread that computes meanwhile keeps its
/// peers waiting. Calls nest, each with its own end. Until the end the process stays in the job.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_begin_polling(node: Option<&mw_node_t>) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        node.check_process()?;
        let polling = node.polling();
        BEGUN.with_borrow_mut(|begun| begun.push(polling));
        Ok(())
    })
}

/// Ends the last `mw_node_begin_polling` of the calling thread, and serves what came meanwhile.
///
/// # Errors
/// `MW_ERR_STATE`: this thread does not poll.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_end_polling(node: Option<&mw_node_t>) -> mw_status_t {
    call(|| {
        required(node, "node")?.node.check_process()?;
        // Dropped outside the borrow: it may run functions of the program that are told of deliveries.
        match BEGUN.with_borrow_mut(Vec::pop) {
            Some(polling) => {
                drop(polling);
                Ok(())
            }
            None => Err(Failure::state(
                "this thread does not poll: call mw_node_end_polling once for each mw_node_begin_polling, in the same thread",
            )),
        }
    })
}
