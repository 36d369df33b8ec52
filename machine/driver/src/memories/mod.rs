//! Memory of this process that its peers may reach, and theirs that it may: exports and what importers map of them, memory that peers
//! pass, pinned pages, memory of services, and what libfabric moves. Carries out the node's moves, stores and protections.

mod exports;
mod passing;
mod records;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use mapwire_host::memory::SharedBuffer;
use mapwire_node::{HostErrorOf, Node};
use mapwire_translation::{AnyDesign, PAGE_BYTES, PageRange, PinRules};
use mapwire_transport::ofi::Ofi;
use mapwire_vmmc::service::{Access, Region};
use mapwire_wire::{Endpoint, HandlerId, ImportId, NodeId, TRACE_FLAG_DIRECT, TraceOp};

use self::records::{Export, FormerLanding, GivenUp};
use crate::config::DriverConfig;
use crate::error::DriverError;
use crate::ids::PROCESS;
use crate::imports::StoredInPlace;
use crate::log::Line;
use crate::mover::Frames;
use crate::outcomes::Outcomes;
use crate::pages::Pins;
use crate::rma::Rma;
use crate::service_memory::{MemoryFault, ServiceMemory, Stored};

/// See [the module](self).
#[derive(Debug)]
pub(crate) struct Memories {
    frames: Frames,
    exports: Vec<Export>,
    /// Former landings of redirected exports that a fetch may still read.
    former_landings: Vec<FormerLanding>,
    /// Importers are asked to ring after each direct store.
    watching: bool,
    /// Memory and statuses that peers have passed for imports under way, by tag, and from whom; `None` when this process had no descriptor left for it.
    passed: HashMap<u64, (NodeId, Option<OwnedFd>)>,
    /// Imports that are given up behind commands that wait.
    given_up: VecDeque<GivenUp>,
    stored_in_place: StoredInPlace,
    of_services: Vec<(HandlerId, ServiceMemory)>,
    /// A store that the page-fault handler has left to others.
    left_store: Option<Store>,
    /// Parts of a page, for one transfer after the other.
    parts: Vec<(u64, u64)>,
    /// Memory that libfabric moves, where it does.
    rma: Option<Box<Rma>>,
}

/// What a service asks to have stored into a peer's memory, or fetched from there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    /// Whose service asks.
    pub handler: HandlerId,
    /// The peer.
    pub to: Endpoint,
    /// Which bytes of the service's memory.
    pub region: Region,
    pub transfer: Transfer,
}

/// Which bytes go where. Offsets are in the service's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transfer {
    /// All, to this offset of the peer's memory.
    Store { at: u64 },
    /// Those that differ from the copy at this offset, to their places.
    Changes { copy: u64 },
    /// The peer's, to this offset here.
    Fetch { at: u64 },
}

impl Memories {
    /// Opens the pinner, and gives the rules by which the process may pin.
    pub(crate) fn new(config: &DriverConfig) -> Result<(Self, PinRules), DriverError> {
        let (pins, rules) = Pins::new(config.pinner.open()?, config);
        let memories = Self {
            frames: Frames::new(pins),
            exports: Vec::new(),
            former_landings: Vec::new(),
            watching: false,
            passed: HashMap::new(),
            given_up: VecDeque::new(),
            stored_in_place: StoredInPlace::default(),
            of_services: Vec::new(),
            left_store: None,
            parts: Vec::with_capacity(PAGE_BYTES / 2),
            rma: None,
        };
        Ok((memories, rules))
    }

    /// Begins to reach memory of peers by libfabric.
    pub(crate) fn add_rma(&mut self, rma: Box<Rma>) {
        self.rma = Some(rma);
    }

    /// What libfabric moves, where it does.
    #[inline]
    pub(crate) fn rma(&mut self) -> Option<&mut Rma> {
        self.rma.as_deref_mut()
    }

    pub(crate) fn has_rma(&self) -> bool {
        self.rma.is_some()
    }

    /// Takes note of transfers of libfabric that are over. Whether there were any: the threads that wait for them may sleep.
    #[inline]
    pub(crate) fn drain_moves<'a>(&mut self, library: impl FnOnce() -> Option<&'a mut Ofi>) -> bool {
        match &mut self.rma {
            None => false,
            Some(rma) => library().is_some_and(|ofi| rma.drain(ofi)),
        }
    }

    /// Bytes that calls stored straight into mapped memory.
    pub(crate) fn stored_in_place(&mut self) -> u64 {
        self.stored_in_place.total()
    }

    /// Where frames are in this process.
    #[inline(always)]
    pub(crate) fn frames(&self) -> &Frames {
        &self.frames
    }

    #[inline(always)]
    pub(crate) fn frames_mut(&mut self) -> &mut Frames {
        &mut self.frames
    }

    /// Marks the pages of `range` as in use by the command with completion word `word`.
    #[inline]
    pub(crate) fn hold(&mut self, node: &mut Node<AnyDesign>, word: u32, range: PageRange) -> Result<(), DriverError> {
        let held = node.hold(PROCESS, self.frames.pins_mut(), word, range);
        held.map_err(|error| self.frames.pins().explain(error).into())
    }

    /// Supplies what the NIC asks for. Whether there was anything.
    #[cold]
    pub(crate) fn serve_misses(&mut self, node: &mut Node<AnyDesign>, outcomes: &mut Outcomes) -> bool {
        let mut failed = Vec::new();
        let served = node.serve_misses(self.frames.pins_mut(), |error| failed.push(error));
        failed.into_iter().for_each(|error| self.log_unserved(error, outcomes));
        served
    }

    /// Gives back pages whose translations have long left the NIC, where there are more than the high-water mark allows
    /// (dynamic handle lookup §IV-B), and former landings.
    pub(crate) fn reclaim(&mut self, node: &mut Node<AnyDesign>, outcomes: &mut Outcomes) {
        let mut failed = Vec::new();
        node.reclaim(self.frames.pins_mut(), |error| failed.push(error));
        failed.into_iter().for_each(|error| self.log_unserved(error, outcomes));
        self.release_landings(node);
    }

    /// What asked for pages that cannot be pinned meets the garbage frame.
    fn log_unserved(&self, error: HostErrorOf<Pins>, outcomes: &mut Outcomes) {
        outcomes.log(Line::NotServed(self.frames.pins().explain(error).to_string()));
    }

    #[inline]
    pub(crate) fn of_service(&mut self, handler: HandlerId) -> Option<&mut ServiceMemory> {
        let mut all = self.of_services.iter_mut();
        all.find(|(id, _)| *id == handler).map(|(_, memory)| memory)
    }

    /// Gives a service its memory.
    pub(crate) fn set_of_service(&mut self, handler: HandlerId, memory: ServiceMemory) {
        self.of_services.retain(|(id, _)| *id != handler);
        self.of_services.push((handler, memory));
    }

    /// Gives up the store that a service waits for.
    pub(crate) fn drop_left_store(&mut self, node: &mut Node<AnyDesign>, handler: HandlerId) {
        if self.left_store.take_if(|store| store.handler == handler).is_some() {
            node.handle_stored(PROCESS, false);
        }
    }

    /// Takes the memory of a service away, and gives up the store that it waits for.
    pub(crate) fn take_of_service(&mut self, node: &mut Node<AnyDesign>, handler: HandlerId) -> Option<ServiceMemory> {
        self.drop_left_store(node, handler);
        let at = self.of_services.iter().position(|(id, _)| *id == handler)?;
        Some(self.of_services.swap_remove(at).1)
    }

    /// Gives a service memory for one peer, or takes it away: what lies in it is stored into the peer's memory `import` by the NIC. Memory
    /// that is taken away is kept until the NIC is done with it.
    pub(crate) fn set_pair(
        &mut self,
        node: &Node<AnyDesign>,
        handler: HandlerId,
        peer: NodeId,
        memory: Option<(Arc<Mutex<SharedBuffer>>, ImportId)>,
    ) {
        if self.of_service(handler).is_none() && memory.is_some() {
            self.set_of_service(handler, ServiceMemory::of_pairs());
        }
        if let Some(of_service) = self.of_service(handler) {
            of_service.set_pair(peer, memory, node.is_storing(PROCESS));
        }
    }

    /// The services whose memory it is, with that.
    pub(crate) fn of_services(&mut self) -> impl Iterator<Item = (HandlerId, &mut ServiceMemory)> {
        self.of_services.iter_mut().map(|(handler, memory)| (*handler, memory))
    }

    /// Stores a region into a peer's memory, at once or by the NIC; where there is no such memory, here or there, the service is
    /// told that the store is lost. What the NIC is to store may need pages pinned: the page-fault handler leaves it to other threads, and
    /// with it all that the services ask for next.
    #[inline]
    pub(crate) fn store(&mut self, node: &mut Node<AnyDesign>, outcomes: &mut Outcomes, store: Store) {
        let Store { handler, to, region, transfer } = store;
        let mut parts = core::mem::take(&mut self.parts);
        let stored = self.of_service(handler).map_or(Stored::Never, |memory| match transfer {
            Transfer::Store { at } => memory.store(to.node, &region, at),
            Transfer::Changes { copy } => memory.store_changes(to.node, &region, copy, &mut parts),
            Transfer::Fetch { at } => memory.fetch(to.node, &region, at),
        });
        self.parts = parts;
        if matches!(transfer, Transfer::Changes { .. }) {
            node.handle_changes(PROCESS, handler, region.offset, &self.parts);
        }
        match stored {
            Stored::ByNic(..) if node.is_confined() => {
                self.left_store = Some(store);
                node.leave_for_later();
                return;
            }
            Stored::ByNic(import, address) => {
                // If it fails the service is told that the store is lost.
                let pins = self.frames.pins_mut();
                let begun = match transfer {
                    Transfer::Store { .. } => node.store_by_import(PROCESS, pins, import, address),
                    Transfer::Changes { .. } => {
                        node.store_changes_by_import(PROCESS, pins, (import, address), &self.parts)
                    }
                    Transfer::Fetch { .. } => node.fetch_by_import(PROCESS, pins, import, address),
                };
                if let Err(error) = begun {
                    self.log_unserved(error, outcomes);
                }
            }
            Stored::InPlace => node.handle_stored(PROCESS, true),
            Stored::Never => {
                if let Some(memory) = self.of_service(handler) {
                    let is_met = memory.has_peer(to.node);
                    memory.fail(if is_met { MemoryFault::Outside } else { MemoryFault::Unmet(to.node) });
                }
                node.handle_stored(PROCESS, false);
            }
        }
        if outcomes.is_traced()
            && let Some(bytes) = self.traced(handler, region.offset, region.bytes)
        {
            let (op, moved, length) = match transfer {
                Transfer::Store { .. } => (TraceOp::Send, TraceOp::Give, bytes.1),
                Transfer::Changes { .. } => (TraceOp::Send, TraceOp::Give, self.parts.iter().map(|part| part.1).sum()),
                Transfer::Fetch { .. } => (TraceOp::Fetch, TraceOp::Take, bytes.1),
            };
            outcomes.trace(node, op, TRACE_FLAG_DIRECT, bytes);
            outcomes.trace(node, moved, 0, (to.node.0.into(), length));
        }
    }

    /// Takes the store that the page-fault handler has left.
    pub(crate) fn take_left_store(&mut self) -> Option<Store> {
        self.left_store.take()
    }

    /// Address and length of bytes of a service that the program sees in views.
    #[cold]
    pub(crate) fn traced(&mut self, handler: HandlerId, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        self.of_service(handler)?.traced(offset, bytes)
    }

    /// Gives the program an access to pages of a service.
    #[inline]
    pub(crate) fn protect(&mut self, handler: HandlerId, region: &Region, access: Access) {
        if let Some(memory) = self.of_service(handler)
            && let Some(pages) = memory.pages()
            && let Err(error) = pages.protect(region, access)
        {
            memory.fail(MemoryFault::Protection(error));
        }
    }
}
