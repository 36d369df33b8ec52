//! This rank's end of all calls, and how threads wait for it.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mapwire_driver::DriverError;
use mapwire_driver::imports::LocalImport;
use mapwire_host::waiting::coarse_now_ns;
use mapwire_rpc::Rpc as Service;
use mapwire_transport::job::JobFabric;
use mapwire_vmmc::RequestId;
use mapwire_wire::NodeId;

use super::config::RpcConfig;
use super::deferred::Deferred;
use super::error::Error;
use super::pair::Pair;
use crate::node::Node;

/// How long this end waits at its end for the NIC to be done with its memory.
const CLOSING: Duration = Duration::from_secs(2);

/// Most bytes of a body in a message to a rank of another host: with what stands before them they fit a datagram of most networks.
const INLINE_BYTES_APART: usize = 1024;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) node: Node,
    pub(super) config: RpcConfig,
    pub(super) timeout: Duration,
    /// Memory lent and borrowed, by peer. Never locked for changes by who holds the driver.
    pub(super) pairs: RwLock<BTreeMap<u16, Arc<Pair>>>,
    /// Held by who sees to connections.
    pub(super) tending: Mutex<()>,
    pub(super) imports: Mutex<Vec<(Arc<Pair>, RequestId)>>,
    pub(super) importing: AtomicUsize,
    pub(super) deferred: Deferred,
}

/// Why a wait was interrupted.
enum Step<T> {
    Found(T),
    /// Connections have changed.
    Tend,
    Imported(Arc<Pair>, Result<LocalImport, DriverError>),
    /// There is room for a reply that waits.
    Replies,
}

impl Inner {
    pub(super) fn new(node: Node, config: RpcConfig, timeout: Duration) -> Self {
        Self {
            node,
            config,
            timeout,
            pairs: RwLock::default(),
            tending: Mutex::default(),
            imports: Mutex::default(),
            importing: AtomicUsize::new(0),
            deferred: Deferred::default(),
        }
    }

    /// The node of a rank that can be called.
    pub(super) fn node_of(&self, rank: usize) -> Result<NodeId, Error> {
        Ok(self.node.peer(rank)?)
    }

    /// Calls the service, and sends what it asks for.
    #[inline]
    pub(super) fn call<R>(&self, call: impl FnOnce(&mut Service) -> R) -> Result<R, Error> {
        self.node.check_process()?;
        let mut driver = self.node.engine().lock();
        driver.call_service(self.config.handler, call).ok_or(Error::Closed)
    }

    /// As [`call`](Self::call), and leaves what it asks for to [`wait`](Self::wait), which must follow.
    #[inline]
    pub(super) fn ask<R>(&self, call: impl FnOnce(&mut Service) -> R) -> Result<R, Error> {
        self.node.check_process()?;
        let mut driver = self.node.engine().lock();
        driver.ask_service(self.config.handler, call).ok_or(Error::Closed)
    }

    /// Waits until `check` finds something, and sees to connections meanwhile. `None`: `timeout` is over.
    #[inline]
    pub(super) fn wait<T>(
        &self,
        timeout: Option<Duration>,
        mut check: impl FnMut(&mut Service) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.node.check_process()?;
        let engine = self.node.engine();
        let mut left = timeout;
        loop {
            let begun_ns = left.map(|_| coarse_now_ns());
            let mut seen_calls = None;
            let step = engine.wait_for_program(left, |driver| {
                if self.importing.load(Ordering::Relaxed) > 0
                    && let Some((pair, local)) = self.take_import(driver)
                {
                    return Some(Ok(Step::Imported(pair, local)));
                }
                // A service that nobody has called is as it was when this thread looked.
                let calls = driver.service_calls();
                if seen_calls == Some(calls) && !self.deferred.are_any() {
                    return None;
                }
                seen_calls = Some(calls + 1);
                let looked = driver.call_service(self.config.handler, |service: &mut Service| {
                    if let Some(found) = check(service) {
                        return Some(Step::Found(found));
                    }
                    if service.has_news() {
                        return Some(Step::Tend);
                    }
                    self.deferred
                        .may_go(service, |peer| self.loan(peer).is_some_and(|loan| loan.is_ready))
                        .then_some(Step::Replies)
                });
                match looked {
                    None => Some(Err(Error::Closed)),
                    Some(step) => step.map(Ok),
                }
            });
            match step {
                None => return Ok(None),
                Some(step) => match step? {
                    Step::Found(found) => return Ok(Some(found)),
                    Step::Tend => self.tend()?,
                    Step::Imported(pair, local) => self.handle_imported(&pair, local)?,
                    Step::Replies => self.send_deferred()?,
                },
            }
            if let (Some(left), Some(begun_ns)) = (&mut left, begun_ns) {
                let taken_ns = coarse_now_ns().saturating_sub(begun_ns);
                *left = left.saturating_sub(Duration::from_nanos(taken_ns));
            }
        }
    }

    /// The outcome of an import that is over.
    #[cold]
    fn take_import(
        &self,
        driver: &mut mapwire_driver::driver::Driver<JobFabric>,
    ) -> Option<(Arc<Pair>, Result<LocalImport, DriverError>)> {
        let mut imports = self.imports.lock().unwrap_or_else(PoisonError::into_inner);
        for at in 0..imports.len() {
            if let Some(local) = driver.take_import(imports[at].1) {
                let (pair, _) = imports.swap_remove(at);
                self.importing.fetch_sub(1, Ordering::Relaxed);
                return Some((pair, local));
            }
        }
        None
    }

    /// The memory shared with a peer in the present connection.
    pub(super) fn pair(&self, peer: NodeId) -> Option<Arc<Pair>> {
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        pairs.get(&peer.0).cloned()
    }

    /// A record for the peer of a pair is about to be written, with a body of `bytes` bytes if that is known.
    #[inline]
    pub(super) fn announce(&self, pair: &Pair, bytes: Option<usize>) {
        // Longer ones take longer to write than a thread to wake.
        if pair.is_near() && bytes.is_none_or(|bytes| bytes <= self.config.inline_bytes) {
            self.node.engine().announce(pair.peer);
        }
    }

    /// Bytes of the longest body that goes in a message to the peer of a pair.
    pub(super) fn inline_bytes(&self, pair: &Pair) -> usize {
        if pair.is_near() { self.config.inline_bytes } else { self.config.inline_bytes.min(INLINE_BYTES_APART) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.node.check_process().is_err() {
            // What its memory is for goes on in the parent.
            return;
        }
        let _ = self.call(Service::close_all);
        let engine = self.node.engine();
        let is_idle =
            |driver: &mut mapwire_driver::driver::Driver<JobFabric>| (!driver.is_storing_for_services()).then_some(());
        let is_idle = engine.wait_for(Some(CLOSING), String::new, is_idle).is_ok();
        let pairs = self.pairs.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !is_idle {
            // The NIC may still read there: the process keeps the memory.
            for pair in pairs.values() {
                pair.leak();
            }
        }
        drop(self.node.deregister_service(self.config.handler));
        let imports = self.imports.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, request) in imports.drain(..) {
            engine.lock().abandon_import(request);
        }
    }
}
