//! Where the memory of a service lies: the regions of its stores, found in each process of a cluster.
//!
//! A [`Region`](mapwire_vmmc::service::Region) counts its bytes from the start of the service's memory, and a handler id says which service
//! that is. Its memory begins at the same address in every process. Each process has mapped that of the others, or imports it where
//! network interfaces are to store there.

use std::collections::BTreeMap;

use mapwire_node::{Act, Ask, ExportRequest};
use mapwire_vmmc::{Importers, RequestId};
use mapwire_wire::{Endpoint, HandlerId, ImportId, Key, NodeId, Rights};

use crate::cluster::{Cluster, StoreBy};

/// How long an importer waits for its exporter.
const IMPORT_NS: u64 = 10_000_000_000;

/// The memory of one service, in all processes.
#[derive(Debug)]
pub(crate) struct Segments {
    handler: HandlerId,
    address: u64,
    bytes: u64,
    /// Network interfaces store there, by imports.
    by_nic: bool,
    rights: Rights,
    imports: BTreeMap<(Endpoint, Endpoint), ImportId>,
    /// Imports that were asked for, with the exporter, and those that have an outcome.
    asked: BTreeMap<(Endpoint, RequestId), Endpoint>,
    over: Vec<(Endpoint, RequestId)>,
}

impl Segments {
    /// The memory of a service that begins at `address` in every process.
    pub(crate) fn new(handler: HandlerId, address: u64, bytes: u64, by_nic: bool) -> Self {
        Self {
            handler,
            address,
            bytes,
            by_nic,
            rights: Rights::STORE,
            imports: BTreeMap::new(),
            asked: BTreeMap::new(),
            over: Vec::new(),
        }
    }

    /// Lets processes fetch from each other, too.
    pub(crate) fn with_fetches(mut self) -> Self {
        self.rights = Rights::STORE | Rights::FETCH;
        self
    }

    fn name(&self) -> String {
        format!("memory of service {}", self.handler.0)
    }

    /// Lets the others import a process's memory, where network interfaces store there.
    pub(crate) fn export(&self, cluster: &mut Cluster, at: Endpoint) -> Result<(), String> {
        if !self.by_nic {
            return Ok(());
        }
        let request = ExportRequest {
            name: self.name(),
            key: Key([7; 16]),
            address: self.address,
            length: self.bytes,
            rights: self.rights,
            importers: Importers::Job,
            direct: None,
            // What is fetched must be pinned: late are only pages that packets are stored to.
            pins_late: !self.rights.contains(Rights::FETCH),
        };
        let (node, memory) = cluster.parts(at.node);
        node.export(at.process, memory, request).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Has each process import the memory of each other, where network interfaces store there.
    pub(crate) fn ask(&mut self, cluster: &mut Cluster, all: &[Endpoint]) -> Result<(), String> {
        let name = self.name();
        for &at in all.iter().filter(|_| self.by_nic) {
            let now_ns = cluster.clock_ns(at.node);
            let (node, _) = cluster.parts(at.node);
            for &from in all.iter().filter(|other| **other != at) {
                let asked = node.ask_import(now_ns, at.process, from, &name, self.rights, None, IMPORT_NS);
                let request = asked.map_err(|error| error.to_string())?;
                self.asked.insert((at, request), from);
            }
        }
        Ok(())
    }

    /// Takes note of an import that is over.
    pub(crate) fn note(&mut self, at: NodeId, ask: &Ask) {
        let process = ask.process;
        if let Act::ImportOver { request } = ask.act {
            self.over.push((Endpoint { node: at, process }, request));
        }
    }

    /// Forgets what was asked by a node that has crashed, or of it.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.asked.retain(|(by, _), from| by.node != node && from.node != node);
    }

    /// Whether all imports that were asked for have their outcomes.
    pub(crate) fn is_ready(&self) -> bool {
        self.asked.is_empty()
    }

    /// Enters imports that are over.
    pub(crate) fn enter(&mut self, cluster: &mut Cluster) -> Result<(), String> {
        while let Some((at, request)) = self.over.pop() {
            let Some(from) = self.asked.remove(&(at, request)) else { continue };
            let (node, _) = cluster.parts(at.node);
            match node.enter_import(at.process, request) {
                Some(Ok((id, _))) => _ = self.imports.insert((at, from), id),
                outcome => return Err(format!("{at} cannot import from {from}: {outcome:?}")),
            }
        }
        Ok(())
    }

    /// How the bytes of a store get into the receiver's memory, or those of a fetch here; `None` if another service asks.
    pub(crate) fn store(&self, at: NodeId, ask: &Ask) -> Option<StoreBy> {
        // The bytes that are moved, here and there, and the other process.
        let (handler, to, here, there) = match ask.act {
            Act::Store { handler, to, region, at } => (handler, to, region.offset, at),
            Act::StoreChanges { handler, to, region, .. } => (handler, to, region.offset, region.offset),
            Act::Fetch { handler, from, region, at } => (handler, from, at, region.offset),
            _ => return None,
        };
        if handler != self.handler {
            return None;
        }
        let process = ask.process;
        let (from, to_there) = (self.address + here, self.address + there);
        let import = self.imports.get(&(Endpoint { node: at, process }, to));
        Some(match (self.by_nic, import) {
            (false, _) => StoreBy::Place { from, to: to_there },
            (true, Some(import)) => StoreBy::Import(*import, from),
            // Its exporter has crashed before it could be imported.
            (true, None) => StoreBy::Nothing { is_claimed: false },
        })
    }
}
