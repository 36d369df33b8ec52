//! Connections: made when a rank first calls another, ended when one of them goes.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use mapwire_driver::DriverError;
use mapwire_driver::imports::LocalImport;
use mapwire_rpc::{Connection, Due, Loan, Offer, Standing};
use mapwire_vmmc::Importers;
use mapwire_wire::{NodeId, Rights};

use super::error::Error;
use super::inner::Inner;
use super::pair::Pair;
use crate::buffer::Buffer;

/// How long a rank waits for an answer before it asks again, at first and at most: one that has not opened its end hears nothing.
const ASKING_AGAIN: Duration = Duration::from_millis(10);
const MOST_PATIENT: Duration = Duration::from_millis(500);

impl Inner {
    /// Connects to a peer, or finds the connection.
    pub(super) fn connect(&self, peer: NodeId) -> Result<Arc<Pair>, Error> {
        self.node.check_process()?;
        let begun = Instant::now();
        let rank = usize::from(peer.0);
        let mut patience = ASKING_AGAIN;
        loop {
            self.begin(peer)?;
            let found =
                self.wait(Some(patience), |service| match service.connection(peer).standing(self.loan(peer)) {
                    Standing::Gone => Some(None),
                    Standing::Ready(session) => Some(Some(session)),
                    Standing::Absent | Standing::Begun => None,
                })?;
            match found {
                Some(None) => return Err(Error::Gone(rank)),
                Some(Some(session)) => {
                    if let Some(pair) = self.pair(peer).filter(|pair| pair.session == session) {
                        return Ok(pair);
                    }
                }
                None => {}
            }
            if self.node.engine().lock().is_gone(peer) {
                return Err(Error::Gone(rank));
            }
            if begun.elapsed() >= self.timeout {
                return Err(Error::NoAnswer { rank, after: self.timeout });
            }
            self.call(|service| service.hello(peer))?;
            patience = (patience * 2).min(MOST_PATIENT);
        }
    }

    /// What is lent to a peer. To be asked with the driver held, where no pair may be dropped.
    pub(super) fn loan(&self, peer: NodeId) -> Option<Loan> {
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        pairs.get(&peer.0).map(|pair| Loan { session: pair.session, is_ready: pair.is_ready() })
    }

    /// Begins a connection unless there is one.
    fn begin(&self, peer: NodeId) -> Result<(), Error> {
        let tending = self.tending.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = self.call(|service| service.connection(peer))?;
        if connection.standing(None) == Standing::Absent {
            self.offer(peer)?;
        }
        drop(tending);
        Ok(())
    }

    /// Lends a peer memory, and tells it so. Called by who tends.
    fn offer(&self, peer: NodeId) -> Result<(), Error> {
        let session = self.call(|service| service.new_session())?;
        let own = Buffer::allocate(self.config.area_bytes as usize)?;
        let importers = Importers::Nodes(vec![peer]);
        let export = own.offer(self.node.engine(), self.area_name(session), importers)?;
        let bytes = own.len() as u64;
        let pair = Arc::new(Pair::new(&self.node, peer, session, (own, export)));
        self.replace(peer, Some(pair));
        self.call(|service| service.connect(peer, session, bytes))
    }

    fn area_name(&self, session: u64) -> String {
        format!("mapwire.rpc.{}.{session:x}", self.config.handler.0)
    }

    /// Puts the memory of a new connection in the place of an older one's.
    fn replace(&self, peer: NodeId, pair: Option<Arc<Pair>>) {
        let mut pairs = self.pairs.write().unwrap_or_else(PoisonError::into_inner);
        let old = match pair {
            Some(pair) => pairs.insert(peer.0, pair),
            None => pairs.remove(&peer.0),
        };
        drop(pairs);
        let Some(old) = old else { return };
        let mut driver = self.node.engine().lock();
        if old.moves() {
            driver.set_pair_memory(self.config.handler, peer, None);
        }
        let mut imports = self.imports.lock().unwrap_or_else(PoisonError::into_inner);
        imports.retain(|(of, request)| {
            let is_old = Arc::ptr_eq(of, &old);
            if is_old {
                driver.abandon_import(*request);
                self.importing.fetch_sub(1, Ordering::Relaxed);
            }
            !is_old
        });
        drop(imports);
        drop(driver);
        // The last that holds it takes the driver.
        drop(old);
    }

    pub(super) fn tend(&self) -> Result<(), Error> {
        let tending = self.tending.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((peer, connection)) = self.call(|service| {
            let peer = service.take_news()?;
            Some((peer, service.connection(peer)))
        })? {
            self.tend_peer(peer, &connection);
        }
        drop(tending);
        Ok(())
    }

    fn tend_peer(&self, peer: NodeId, connection: &Connection) {
        let mut pair = self.pair(peer);
        if pair.take_if(|pair| !connection.is_of(pair.session)).is_some() {
            self.replace(peer, None);
            self.deferred.forget(peer);
        }
        let done = match (connection.due(pair.as_ref().map(|pair| pair.is_ready())), &pair) {
            (Due::Connect, _) => self.offer(peer),
            (Due::Import(theirs), Some(pair)) => self.import(pair, theirs),
            _ => Ok(()),
        };
        if let Err(error) = done {
            self.note_failed(peer, &error);
            let _ = self.call(|service| service.close(peer));
        }
    }

    /// That a peer goes while it connects is nothing to warn of: clients come and go.
    fn note_failed(&self, peer: NodeId, error: &Error) {
        match self.node.engine().lock().is_gone(peer) {
            true => tracing::debug!(%error, "no calls from or to rank {}", peer.0),
            false => tracing::warn!(%error, "no calls from or to rank {}", peer.0),
        }
    }

    /// Begins to import what a peer lends.
    fn import(&self, pair: &Arc<Pair>, theirs: Offer) -> Result<(), Error> {
        if theirs.area_bytes == 0 {
            pair.set_theirs(None);
            return Ok(());
        }
        let mut imports = self.imports.lock().unwrap_or_else(PoisonError::into_inner);
        if imports.iter().any(|(of, _)| Arc::ptr_eq(of, pair)) {
            return Ok(());
        }
        drop(imports);
        let timeout_ns = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        let name = self.area_name(theirs.session);
        let mut driver = self.node.engine().lock();
        let request = driver.ask_import(pair.peer, &name, Rights::ALL, None, timeout_ns)?;
        imports = self.imports.lock().unwrap_or_else(PoisonError::into_inner);
        imports.push((Arc::clone(pair), request));
        self.importing.fetch_add(1, Ordering::Relaxed);
        drop(imports);
        drop(driver);
        Ok(())
    }

    /// Takes what a peer lends, or ends the connection.
    #[cold]
    pub(super) fn handle_imported(
        &self,
        pair: &Arc<Pair>,
        local: Result<LocalImport, DriverError>,
    ) -> Result<(), Error> {
        let tending = self.tending.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = self.pair(pair.peer).is_some_and(|now| Arc::ptr_eq(&now, pair));
        let entered = local.map_err(Error::from).and_then(|local| {
            if !is_current {
                let mut driver = self.node.engine().lock();
                driver.release_import(local.id, &local.grant);
                return Ok(());
            }
            let is_mapped = local.mapped.as_ref().is_some_and(|mapped| {
                let part = mapped.part();
                part.start == 0 && part.end as u64 == local.grant.length
            });
            if is_mapped {
                pair.set_theirs(Some((local, None)));
                return Ok(());
            }
            let moved = Buffer::allocate(local.grant.length as usize)?;
            let memory = (Arc::clone(moved.memory()), local.id);
            let mut driver = self.node.engine().lock();
            driver.set_pair_memory(self.config.handler, pair.peer, Some(memory));
            drop(driver);
            pair.set_theirs(Some((local, Some(moved))));
            Ok(())
        });
        drop(tending);
        match entered {
            Err(error) if is_current => {
                self.note_failed(pair.peer, &error);
                self.call(|service| service.close(pair.peer))
            }
            // A call, so that other threads look again that wait for the memory.
            _ => self.call(|_| ()),
        }
    }
}
