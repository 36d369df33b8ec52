//! Threads that serve orders.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use mapwire_host::descriptors::above_stdio;
use mapwire_host::masking;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// A descriptor that is readable from a [`ring`](Self::ring) to the next [`clear`](Self::clear).
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn ring(&self) {
        // It fails only when it has been rung 2^64 times.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A thread that takes orders, and a bell between it and its owner. Dropping it rings, closes the orders and waits for the thread.
#[derive(Debug)]
pub(crate) struct Worker<O> {
    orders: Option<Sender<O>>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl<O: Send + 'static> Worker<O> {
    /// Starts the thread, on which no signal handler of the program runs. On failure, names the call.
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce(&Receiver<O>, &Arc<Bell>) + Send + 'static,
    ) -> Result<Self, (&'static str, Errno)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).and_then(above_stdio).map_err(|errno| ("eventfd", errno))?;
        let bell = Arc::new(Bell(bell));
        let (orders, heard) = mpsc::channel();
        let rung = Arc::clone(&bell);
        let masked = masking::mask();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            masking::mask_for_good();
            work(&heard, &rung);
        });
        drop(masked);
        let thread = thread.map_err(|e| ("starting a thread", Errno::from_io_error(&e).unwrap_or(Errno::AGAIN)))?;
        Ok(Self { orders: Some(orders), bell, thread: Some(thread) })
    }
}

impl<O> Worker<O> {
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Gives an order and rings. One to a thread that has ended goes nowhere.
    pub(crate) fn order(&self, order: O) {
        if let Some(orders) = &self.orders
            && orders.send(order).is_ok()
        {
            self.bell.ring();
        }
    }
}

impl<O> Drop for Worker<O> {
    fn drop(&mut self) {
        self.orders = None;
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
