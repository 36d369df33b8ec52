//! The driver as the page-fault handler reaches it.

use mapwire_host::masking;
use mapwire_transport::fabric::Fabric;

use super::Driver;

/// For whom a thread works with the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A call of the program.
    Program,
    /// The page-fault handler: no handler of the program runs, and nothing allocates or frees.
    FaultHandler,
}

/// What the page-fault handler may do with the driver: nothing of it allocates or frees. What may not be done so the node
/// [leaves](mapwire_node::Node::leave_for_later) to other threads. The driver is confined while this lives.
pub(crate) struct Confined<'a, F: Fabric>(&'a mut Driver<F>);

impl<F: Fabric> Driver<F> {
    /// Does what may be done for `caller`.
    #[inline]
    pub(crate) fn on_behalf_of<'a, T>(
        &'a mut self,
        caller: Caller,
        free: impl FnOnce(&'a mut Self) -> T,
        confined: impl FnOnce(&mut Confined<'a, F>) -> T,
    ) -> T {
        // A fault on the service thread interrupts nothing, and nobody else would do what it left.
        match caller == Caller::Program || masking::is_library_thread() {
            true => free(self),
            false => confined(&mut Confined::new(self)),
        }
    }
}

impl<'a, F: Fabric> Confined<'a, F> {
    fn new(driver: &'a mut Driver<F>) -> Self {
        driver.local.node.set_confined(true);
        driver.paths.fabric_mut().set_confined(true);
        Self(driver)
    }

    /// As [`Driver::poll`].
    pub(crate) fn poll(&mut self) -> bool {
        let worked = self.turn();
        self.0.paths.ring_due();
        worked
    }

    /// Packets in, what services ask for, and packets out. Whether anything was done.
    pub(crate) fn turn(&mut self) -> bool {
        let mut worked = self.0.paths.receive(&mut self.0.local);
        worked |= self.0.serve_services();
        worked |= self.0.paths.transmit(&mut self.0.local);
        self.0.paths.tell(&mut self.0.local);
        if worked {
            self.0.local.outcomes.fire_events();
        }
        worked
    }

    /// As [`Driver::carry_out`].
    #[inline]
    pub(crate) fn carry_out(&mut self) {
        self.0.carry_out();
    }

    /// As [`Driver::has_work`].
    pub(crate) fn has_work(&mut self) -> bool {
        self.0.has_work()
    }

    /// As [`Driver::next_deadline`]: nothing of imports is carried out here.
    pub(crate) fn next_deadline(&mut self) -> Option<u64> {
        self.0.next_deadline()
    }

    /// Lets peers know how much of their rings is free.
    pub(crate) fn flush(&mut self) {
        self.0.paths.fabric_mut().flush();
    }

    /// Sends the acks that wait for a packet to carry them: the thread that could send one goes on with its own work.
    pub(crate) fn acknowledge(&mut self) {
        self.0.paths.acknowledge(&mut self.0.local);
    }
}

impl<F: Fabric> Drop for Confined<'_, F> {
    fn drop(&mut self) {
        self.0.local.node.set_confined(false);
        self.0.paths.fabric_mut().set_confined(false);
    }
}
