//! Threads of the program that poll.

use std::cell::RefCell;

use mapwire::Polling;

use crate::arguments::required;
use crate::failure::{Failure, call};
use crate::node::mw_node_t;
use crate::status::mw_status_t;

thread_local! {
    /// Polls that this thread has begun and not ended. They end with the thread.
    static BEGUN: RefCell<Vec<Polling>> = const { RefCell::new(Vec::new()) };
}

/// Counts the calling thread as polling, until it calls `mw_node_end_polling` or ends: what peers send wakes nobody, and is served when
/// the thread calls `mw_node_poll` or waits. For loops that poll often; a thread that computes meanwhile keeps its peers waiting. Calls
/// nest, each with its own end. Until the end the process stays in the job.
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

/// Ends the last `mw_node_begin_polling` of the calling thread, and serves what has arrived meanwhile.
///
/// # Errors
/// `MW_ERR_STATE`: this thread is not polling.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_end_polling(node: Option<&mw_node_t>) -> mw_status_t {
    call(|| {
        required(node, "node")?.node.check_process()?;
        // Dropped outside the borrow: it may run notification functions of the program.
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
