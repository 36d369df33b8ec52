//! What a node keeps of each process behind its NIC.

mod exports;
mod imports;
mod stores;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use mapwire_nic::Nic;
use mapwire_translation::{PageRange, PinPages, PinRules, TranslationDesign};
use mapwire_vmmc::service::{Action, Broken, Region, Service};
use mapwire_vmmc::{Grant, RequestId, Vmmc, VmmcError};
use mapwire_wire::{Endpoint, ExportId, HandlerId, ImportId, NodeId, ProcessId};

use crate::act::Act;
use crate::error::HostErrorOf;
use crate::host_queue::HostQueue;
use crate::pages::Pages;
use crate::registry::Registry;
use crate::told::Backlog;
use crate::tracing::Trace;
pub use exports::ExportRequest;
pub use imports::ImportError;
pub(crate) use stores::is_store_word;

/// Stores of a process that the NIC may be about at a time.
const MOST_STORES: usize = 16;

#[derive(Debug)]
pub(crate) struct Process {
    id: ProcessId,
    vmmc: Vmmc,
    exports: Exports,
    outcomes: BTreeMap<RequestId, Result<Granted, VmmcError>>,
    pages: Pages,
    services: Registry,
    on_host: HostQueue,
    stores: Stores,
}

/// An import that the exporter has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub grant: Grant,
    /// It was revoked before it was entered.
    pub revoked: bool,
}

#[derive(Debug)]
struct Exported {
    id: ExportId,
    length: u64,
    is_direct: bool,
    /// Pages that stay pinned as long as the export stands (VMMC §4.4).
    held: Vec<PageRange>,
    /// Those of the buffer that it is redirected to.
    landing: Option<PageRange>,
}

#[derive(Debug, Default)]
struct Exports {
    list: Vec<Exported>,
    /// Pages of former landings, with the export whose fetches may still read them.
    left: Vec<(ExportId, PageRange)>,
}

/// A store or fetch that a service asked for. Until its packets are queued nothing else of this process's services is carried out: what they send
/// next must not arrive before it.
#[derive(Debug)]
struct Store {
    handler: HandlerId,
    to: Endpoint,
    region: Region,
    /// Where the bytes go: in the peer's memory, or of a fetch in the service's memory here.
    at: u64,
    is_fetch: bool,
    stage: Stage,
}

/// A command of the NIC for a store or fetch that is not over: the NIC may use the pages until then.
#[derive(Clone, Copy, Debug)]
struct Used {
    pages: PageRange,
    handler: HandlerId,
    /// The other process.
    peer: Endpoint,
    /// Where a fetch begins in the peer's memory.
    fetched: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    /// The NIC is to store it, once it takes a command of the process.
    Waiting {
        import: ImportId,
        address: u64,
        pages: PageRange,
    },
    /// The NIC has not queued all its packets yet.
    Cutting {
        word: u32,
        import: ImportId,
        address: u64,
        pages: PageRange,
    },
}

/// The store or fetch of a process, if one is under way, and what follows it.
#[derive(Debug, Default)]
struct Stores {
    current: Option<Store>,
    message: Vec<u8>,
    /// The parts of its region that are stored: offset and length. None stand for all of it.
    parts: Vec<(u64, u64)>,
    /// Parts that were given to the NIC.
    parts_begun: usize,
    /// Commands whose pages the NIC may still use, by completion word.
    used: [Option<Used>; MOST_STORES],
}

impl Process {
    pub(crate) fn new(
        id: ProcessId,
        rules: PinRules,
        words: usize,
        most_bytes: usize,
        design: &impl TranslationDesign,
    ) -> Self {
        Self {
            id,
            vmmc: Vmmc::new(),
            exports: Exports::default(),
            outcomes: BTreeMap::new(),
            pages: Pages::new(id, rules, words, design),
            services: Registry::default(),
            on_host: HostQueue::default(),
            stores: Stores::new(most_bytes),
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    /// Unpins pages whose translations have left the NIC, and lets go of those of former landings.
    pub(crate) fn reclaim<D: TranslationDesign, P: PinPages>(
        &mut self,
        nic: &mut Nic<D>,
        trace: &mut Trace,
        pinner: &mut P,
    ) -> Result<(), HostErrorOf<P>> {
        self.release_landings(nic, trace);
        self.pages.host_mut().reclaim(nic, pinner)
    }

    #[inline]
    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    #[inline]
    pub(crate) fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }

    /// The model of its exports and imports.
    #[inline]
    pub(crate) fn vmmc(&self) -> &Vmmc {
        &self.vmmc
    }

    #[inline]
    pub(crate) fn vmmc_mut(&mut self) -> &mut Vmmc {
        &mut self.vmmc
    }

    #[inline]
    pub(crate) fn services(&self) -> &Registry {
        &self.services
    }

    #[inline]
    pub(crate) fn services_mut(&mut self) -> &mut Registry {
        &mut self.services
    }

    /// Carries out what its services ask for, until one asks for what the machine must do; of a `confined` node, of those that
    /// allocate nothing, and as long as `has_room` says so.
    #[inline]
    pub(crate) fn serve<D: TranslationDesign>(
        &mut self,
        nic: &mut Nic<D>,
        confined: bool,
        has_room: impl Fn(&Nic<D>) -> bool,
    ) -> Served {
        self.push_store(nic, !confined);
        if self.is_storing() {
            return Served::All;
        }
        for (handler, service) in self.services.iter_mut() {
            if confined && !service.allocates_nothing() {
                continue;
            }
            loop {
                if !has_room(nic) {
                    return Served::NoRoom;
                }
                let act = match service.poll_action() {
                    None => match service.poll_meeting() {
                        None => break,
                        Some(to) => Act::Meet { handler, to },
                    },
                    Some(Action::Send { to, message }) => {
                        if !nic.send_message(self.id, to, handler, message) {
                            service.handle_lost(to);
                        }
                        continue;
                    }
                    Some(Action::Store { to, region, at, message }) => {
                        self.stores.begin(handler, to, region, at, message);
                        Act::Store { handler, to, region, at }
                    }
                    Some(Action::StoreChanges { to, region, copy, message }) => {
                        self.stores.begin(handler, to, region, region.offset, message);
                        Act::StoreChanges { handler, to, region, copy }
                    }
                    Some(Action::Fetch { from, region, to: at }) => {
                        self.stores.begin_fetch(handler, from, region, at);
                        Act::Fetch { handler, from, region, at }
                    }
                    Some(Action::Change(change)) => Act::Change { handler, change },
                    Some(Action::Protect { region, access }) => Act::Protect { handler, region, access },
                };
                return Served::Asked(act);
            }
        }
        Served::All
    }

    /// Gives a message to the service that it is for, or keeps it for a thread of the host; `None` when the service is not there. What the
    /// service says of it, and whether it may ask for anything now.
    #[inline]
    pub(crate) fn take_message(
        &mut self,
        now_ns: &mut impl FnMut() -> u64,
        handler: HandlerId,
        from: Endpoint,
        bytes: &[u8],
    ) -> Option<(Result<(), Broken>, bool)> {
        let service = self.services.get_mut(handler)?;
        let waits = !self.on_host.is_empty() && self.on_host.has(handler);
        if waits || service.runs_on_host(bytes) {
            self.on_host.push(handler, from, bytes);
            return Some((Ok(()), false));
        }
        let now_ns = if service.needs_time(bytes) { now_ns() } else { 0 };
        let taken = service.handle_message(now_ns, from, bytes);
        let asks = service.has_actions() || service.poll_at().is_some();
        // A store that waits is looked at with all that comes.
        Some((taken, asks || self.is_storing()))
    }

    /// Whether messages wait for a thread of the host, and whether no more may.
    #[inline]
    pub(crate) fn on_host(&self) -> &HostQueue {
        &self.on_host
    }

    /// Gives the message that waits longest for a thread of the host to its service. Whose it was, and what the service says of it.
    pub(crate) fn serve_on_host(&mut self, now_ns: u64) -> Option<(NodeId, Result<(), Broken>)> {
        let (handler, from, bytes) = self.on_host.pop()?;
        let taken = match self.services.get_mut(handler) {
            None => Ok(()),
            Some(service) => service.handle_message(now_ns, from, &bytes),
        };
        Some((from.node, taken))
    }

    /// Tells services of which `picked` is true that a peer is gone.
    pub(crate) fn tell_gone(&mut self, now_ns: u64, node: NodeId, picked: impl Fn(&dyn Service) -> bool) {
        for (_, service) in self.services.iter_mut() {
            if picked(service) {
                service.handle_peer_gone(now_ns, node);
            }
        }
    }

    /// Forgets what a peer that is gone had asked and was asked for.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.on_host.forget(node);
        self.vmmc.handle_peer_gone(node);
    }

    /// Ends what is over at `now_ns`. While its node is `confined`, what would allocate is left.
    pub(crate) fn handle_time(&mut self, now_ns: u64, confined: bool) {
        if self.vmmc.poll_at().is_some_and(|at| at <= now_ns) && !confined {
            self.vmmc.handle_time(now_ns);
        }
        for (_, service) in self.services.iter_mut() {
            let is_due = service.poll_at().is_some_and(|at| at <= now_ns);
            if is_due && (service.allocates_nothing() || !confined) {
                service.handle_time(now_ns);
            }
        }
    }

    pub(crate) fn has_deadline(&self) -> bool {
        let mut services = self.services.iter();
        self.vmmc.has_requests() || services.any(|service| service.poll_at().is_some())
    }

    pub(crate) fn count(&self, backlog: &mut Backlog) {
        backlog.requests += self.vmmc.requests();
        backlog.outcomes += self.outcomes.len();
        backlog.waiting += self.vmmc.waiting();
        backlog.stores += self.stores();
    }

    /// When [`handle_time`](Self::handle_time) has something to do.
    pub(crate) fn poll_at(&self, confined: bool) -> Option<u64> {
        let model = self.vmmc.poll_at().filter(|_| !confined);
        let services = self.services.iter();
        services
            .filter(|service| !confined || service.allocates_nothing())
            .filter_map(|service| service.poll_at())
            .chain(model)
            .min()
    }
}

/// How far what services ask for has been carried out.
pub(crate) enum Served {
    All,
    Asked(Act),
    NoRoom,
}

/// The processes of a node, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Processes(Vec<Option<Process>>);

impl Processes {
    #[inline]
    pub(crate) fn get(&self, id: ProcessId) -> Option<&Process> {
        self.0.get(usize::from(id.0))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.0.get_mut(usize::from(id.0))?.as_mut()
    }

    /// The `at`th of those that are open.
    #[inline]
    pub(crate) fn nth_mut(&mut self, at: usize) -> Option<&mut Process> {
        self.iter_mut().nth(at)
    }

    pub(crate) fn insert(&mut self, process: Process) {
        let index = usize::from(process.id.0);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(process);
    }

    pub(crate) fn remove(&mut self, id: ProcessId) -> Option<Process> {
        self.0.get_mut(usize::from(id.0))?.take()
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.0.iter().flatten()
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.0.iter_mut().flatten()
    }
}
