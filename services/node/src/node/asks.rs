//! What the model of exports and imports and the services ask for, carried out as far as a node can.

use mapwire_nic::{Nic, NicError};
use mapwire_translation::{PinPages, TranslationDesign};
use mapwire_vmmc::Action as VmmcAction;
use mapwire_wire::{HandlerId, ImportId, NodeId, ProcessId};

use super::Node;
use crate::act::Act;
use crate::error::HostErrorOf;
use crate::peers::{Breach, Peers};
use crate::process::{Process, Served};

/// Packets that may wait for a peer that takes none before a confined node asks for more: the NIC has made room for twice as many.
const WAITING_PACKETS: usize = 8;

/// What a process or its service asks of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whose.
    pub process: ProcessId,
    pub act: Act,
}

/// Whether no peer that takes nothing has more packets waiting than a confined node may add to.
fn blocked_have_room<D: TranslationDesign>(blocked: &[NodeId], nic: &Nic<D>) -> bool {
    blocked.iter().all(|&node| nic.waiting_for(node) < WAITING_PACKETS)
}

/// What came of one action of the model.
enum Done {
    Here,
    Asked(Ask),
    /// A control message was lost: too many packets wait for its receiver.
    Lost(NodeId),
    Left(NodeId),
}

/// Carries out the next action of a process's model of exports and imports.
#[cold]
fn serve_model<D: TranslationDesign>(process: &mut Process, nic: &mut Nic<D>, peers: &Peers) -> Done {
    let id = process.id();
    let Some(action) = process.vmmc_mut().poll_action() else { return Done::Here };
    let act = match action {
        VmmcAction::Send { to, message } => {
            let is_over = peers.is_gone(to.node) || nic.send_message(id, to, HandlerId::CONTROL, &message);
            return if is_over { Done::Here } else { Done::Lost(to.node) };
        }
        VmmcAction::PassMemory { to, export, tag } => Act::PassMemory { to, export, tag },
        VmmcAction::Granted { to, export, rights } => {
            // One that finds no memory is no grant: what the importer sends is refused.
            let _ = nic.grant(export, to.node, rights);
            return Done::Here;
        }
        VmmcAction::GrantedApart { to, export } => Act::GrantedApart { to, export },
        VmmcAction::Imported { request, grant } => {
            process.note_outcome(request, Ok(grant));
            Act::ImportOver { request }
        }
        VmmcAction::Failed { request, error } => {
            process.note_outcome(request, Err(error));
            Act::ImportOver { request }
        }
        VmmcAction::Revoked { from, export } => {
            nic.handle_revoked(from.node, export);
            process.note_revoked(from, export);
            Act::Revoked { from, export }
        }
        VmmcAction::Goodbye { from } => return Done::Left(from.node),
    };
    Done::Asked(Ask { process: id, act })
}

impl<D: TranslationDesign> Node<D> {
    /// Carries out what the model and the services ask for, until one asks for what the machine must do; `None` when nothing is
    /// left. To be drained after every input.
    #[inline]
    pub fn poll_ask(&mut self) -> Option<Ask> {
        if self.has_actions { self.poll_ask_now() } else { None }
    }

    fn poll_ask_now(&mut self) -> Option<Ask> {
        let is_confined = self.confinement.is_on();
        let mut at = 0;
        while let Some(process) = self.processes.nth_mut(at) {
            if !is_confined && process.vmmc().has_actions() {
                match serve_model(process, &mut self.nic, &self.peers) {
                    Done::Here => {}
                    Done::Asked(ask) => return Some(ask),
                    Done::Lost(node) => self.handle_lost(node),
                    Done::Left(node) => self.handle_left(node),
                }
                continue;
            }
            let blocked = &self.blocked;
            let has_room = |nic: &Nic<D>| !is_confined || blocked_have_room(blocked, nic);
            match process.serve(&mut self.nic, is_confined, has_room) {
                Served::All => {}
                Served::Asked(act) => return Some(Ask { process: process.id(), act }),
                Served::NoRoom => {
                    self.confinement.leave();
                    return None;
                }
            }
            at += 1;
        }
        // A confined node leaves what the model wants to others.
        self.has_actions = is_confined && self.processes.iter().any(|process| process.vmmc().has_actions());
        self.has_deadlines = self.processes.iter().any(Process::has_deadline);
        None
    }

    /// The bytes that [`Act::Store`] named are in the peer's memory, and what follows them goes out; or they are not and never will be,
    /// and the service is told.
    #[inline]
    pub fn handle_stored(&mut self, process: ProcessId, is_stored: bool) {
        self.has_actions = true;
        if let Some(state) = self.processes.get_mut(process) {
            state.end_store(&mut self.nic, is_stored);
        }
    }

    /// The NIC is done with the store that it was given under a completion word.
    pub(super) fn handle_store_done(&mut self, process: ProcessId, word: u32, is_stored: bool) {
        self.has_actions = true;
        if let Some(state) = self.processes.get_mut(process) {
            state.handle_store_done(&mut self.nic, word, is_stored);
        }
    }

    /// Has the NIC store the bytes that [`Act::Store`] named, which begin at `address` in the process's memory, into their place in the
    /// peer's memory, all of which is `import`. What follows them goes out behind them. The NIC reads the bytes until the peer has
    /// taken them ([`is_storing`](Self::is_storing)): a service changes them only when the peer has said so.
    ///
    /// # Errors
    /// Pages that cannot be pinned. The service is told that the store is lost.
    pub fn store_by_import<P: PinPages>(
        &mut self,
        process: ProcessId,
        pinner: &mut P,
        import: ImportId,
        address: u64,
    ) -> Result<(), HostErrorOf<P>> {
        self.move_by_import(process, pinner, (import, address), &[])
    }

    /// Tells a service which parts of a page [`Act::StoreChanges`] found to differ from its copy. To be called before
    /// the stores are.
    pub fn handle_changes(&mut self, process: ProcessId, handler: HandlerId, offset: u64, parts: &[(u64, u64)]) {
        let service = self.processes.get_mut(process).and_then(|process| process.services_mut().get_mut(handler));
        if let Some(service) = service {
            service.handle_changes(offset, parts);
        }
    }

    /// As [`store_by_import`](Self::store_by_import), for what [`Act::StoreChanges`] named: only these parts of the page, by offset and
    /// length in bytes.
    ///
    /// # Errors
    /// Pages that cannot be pinned. The service is told that the store is lost.
    pub fn store_changes_by_import<P: PinPages>(
        &mut self,
        process: ProcessId,
        pinner: &mut P,
        (import, address): (ImportId, u64),
        parts: &[(u64, u64)],
    ) -> Result<(), HostErrorOf<P>> {
        if parts.is_empty() {
            self.handle_stored(process, true);
            return Ok(());
        }
        self.move_by_import(process, pinner, (import, address), parts)
    }

    /// Has the NIC fetch what [`Act::Fetch`] named to `address` in the process's memory; all of the peer's memory is `import`.
    ///
    /// # Errors
    /// Pages that cannot be pinned. The service is told that the peer is lost.
    pub fn fetch_by_import<P: PinPages>(
        &mut self,
        process: ProcessId,
        pinner: &mut P,
        import: ImportId,
        address: u64,
    ) -> Result<(), HostErrorOf<P>> {
        self.move_by_import(process, pinner, (import, address), &[])
    }

    /// The bytes that [`Act::Fetch`] named are here, or they never will be, and the service is told.
    #[inline]
    pub fn handle_fetched(&mut self, process: ProcessId, is_fetched: bool) {
        self.handle_stored(process, is_fetched);
    }

    fn move_by_import<P: PinPages>(
        &mut self,
        process: ProcessId,
        pinner: &mut P,
        from: (ImportId, u64),
        parts: &[(u64, u64)],
    ) -> Result<(), HostErrorOf<P>> {
        self.has_actions = true;
        match self.processes.get_mut(process) {
            Some(state) => {
                let (nic, trace) = (&mut self.nic, &mut self.trace);
                state.move_by_import(nic, trace, pinner, from, parts)
            }
            None => Err(HostErrorOf::<P>::Nic(NicError::UnknownProcess(process))),
        }
    }

    /// Whether bytes that [`Act::Store`] named may still be read.
    #[must_use]
    pub fn is_storing(&self, process: ProcessId) -> bool {
        self.processes.get(process).is_some_and(|process| process.stores() > 0)
    }

    /// A control message to a peer was lost, and with it what the two agree on: the peer counts as gone. This node itself cannot.
    #[cold]
    fn handle_lost(&mut self, node: NodeId) {
        if !self.peers.is_gone(node) {
            self.handle_breach(node, Breach::Overfull);
        }
    }
}
