//! The thread of the host that answers for a page directory there.

use std::sync::Arc;
use std::thread::JoinHandle;

use mapwire_driver::DriverError;
use mapwire_driver::host_bell::HostBell;

use crate::error::Result;
use crate::node::Node;
use crate::threads;

/// A thread that is woken when messages wait for the host, hands them to their service and sends what that answers. It waits as the node is
/// configured to, and takes no packets: that is the NIC's part.
#[derive(Debug)]
pub(super) struct HostThread {
    node: Node,
    bell: Arc<HostBell>,
    thread: Option<JoinHandle<()>>,
}

impl HostThread {
    /// Starts it.
    pub(super) fn start(node: &Node) -> Result<Self> {
        let engine = node.engine();
        let bell = Arc::new(HostBell::new(engine.wait_strategy()));
        let (of_thread, served) = (Arc::clone(&bell), node.clone());
        let thread = threads::spawn("mapwire-host", move || {
            // An interrupt does not wait for the program's turn to end.
            mapwire_host::scheduling::ask_for_short_turns();
            served.engine().run_host(&of_thread);
        });
        let thread = thread.map_err(DriverError::Thread)?;
        engine.lock().set_host_bell(Some(Arc::clone(&bell)));
        Ok(Self { node: node.clone(), bell, thread: Some(thread) })
    }
}

impl Drop for HostThread {
    fn drop(&mut self) {
        if self.node.check_process().is_err() {
            // The thread is its parent's.
            core::mem::forget(self.thread.take());
            return;
        }
        // What comes from here on is served where packets are taken.
        self.node.engine().lock().set_host_bell(None);
        self.bell.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
