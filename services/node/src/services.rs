//! What the model of exports and imports and the services ask for, carried out as far as a node can.

use mapwire_service::{Access, Action, Region};
use mapwire_translation::TranslationDesign;
use mapwire_vmmc::{Action as VmmcAction, RequestId};
use mapwire_wire::{Endpoint, ExportId, HandlerId, NodeId, ProcessId};

use crate::imports::Granted;
use crate::node::Node;
use crate::peers::Breach;
use crate::process::Process;

/// Packets that may wait for a peer that takes none before a confined node asks for more: the NIC has made room for twice as many.
const WAITING_PACKETS: usize = 8;

/// What a process or its service asks of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whose.
    pub process: ProcessId,
    /// What.
    pub act: Act,
}

/// Something that only the machine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Pass the memory of an export to a node under a tag, so that it can be mapped there (the direct path).
    PassMemory {
        /// Where to.
        to: Endpoint,
        /// Which export.
        export: ExportId,
        /// The number of the importer's request.
        tag: u64,
    },
    /// An import that was asked for has its [`outcome`](Node::outcome).
    ImportOver {
        /// Which.
        request: RequestId,
    },
    /// A peer has revoked an export that this node imports: what is mapped of it is dead memory.
    Revoked {
        /// The peer.
        from: Endpoint,
        /// Its export.
        export: ExportId,
    },
    /// Store the process's bytes of the region at the same place in a peer's memory, if that is mapped here, and say how it went by
    /// [`handle_stored`](Node::handle_stored) before anything else is asked.
    Store {
        /// Whose service asks.
        handler: HandlerId,
        /// The peer.
        to: Endpoint,
        /// Which bytes.
        region: Region,
    },
    /// Give the program this access to the region's pages.
    Protect {
        /// Whose service asks.
        handler: HandlerId,
        /// Which pages.
        region: Region,
        /// What the program may do from now on.
        access: Access,
    },
    /// Threads that wait for the service may find what they wait for.
    Resume {
        /// Which service.
        handler: HandlerId,
    },
}

/// A message that follows bytes which the machine stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Following {
    process: ProcessId,
    handler: HandlerId,
    to: Endpoint,
    length: usize,
}

/// What came of one action.
enum Done {
    /// The node did it.
    Here,
    /// The machine must.
    Asked(Act),
    /// A control message was lost: too many packets wait for its receiver.
    Lost(NodeId),
    /// A peer says that it leaves.
    Left(NodeId),
}

impl<D: TranslationDesign> Node<D> {
    /// Carries out what the model and the services ask for, until one asks for what the machine must do; `None` when nothing is
    /// left. To be drained after every input.
    #[inline]
    pub fn poll_ask(&mut self) -> Option<Ask> {
        if self.has_actions {
            self.poll_ask_now()
        } else {
            None
        }
    }

    fn poll_ask_now(&mut self) -> Option<Ask> {
        loop {
            let (process, done) = self.next_action()?;
            match done {
                Done::Here => {}
                Done::Asked(act) => return Some(Ask { process, act }),
                Done::Lost(node) => self.handle_lost(node),
                Done::Left(node) => self.handle_left(node),
            }
        }
    }

    /// Does the next action of any process.
    fn next_action(&mut self) -> Option<(ProcessId, Done)> {
        let is_confined = self.confinement.is_on();
        if is_confined && !self.blocked_have_room() {
            self.confinement.leave();
            return None;
        }
        let Self {
            processes,
            nic,
            peers,
            message,
            following,
            ..
        } = self;
        for process in processes.iter_mut() {
            let Process {
                id,
                vmmc,
                outcomes,
                services,
                ..
            } = process;
            if !is_confined && let Some(action) = vmmc.poll_action() {
                let done = match action {
                    VmmcAction::Send { to, message } => {
                        if peers.is_gone(to.node)
                            || nic.send_message(*id, to, HandlerId::CONTROL, &message)
                        {
                            Done::Here
                        } else {
                            Done::Lost(to.node)
                        }
                    }
                    VmmcAction::PassMemory { to, export, tag } => {
                        Done::Asked(Act::PassMemory { to, export, tag })
                    }
                    VmmcAction::Imported { request, grant } => {
                        let revoked = false;
                        outcomes.insert(request, Ok(Granted { grant, revoked }));
                        Done::Asked(Act::ImportOver { request })
                    }
                    VmmcAction::Failed { request, error } => {
                        outcomes.insert(request, Err(error));
                        Done::Asked(Act::ImportOver { request })
                    }
                    VmmcAction::Revoked { from, export } => {
                        nic.handle_revoked(from.node, export);
                        for granted in outcomes.values_mut().flatten() {
                            let grant = &granted.grant;
                            granted.revoked |= grant.from == from && grant.export == export;
                        }
                        Done::Asked(Act::Revoked { from, export })
                    }
                    VmmcAction::Goodbye { from } => Done::Left(from.node),
                };
                return Some((*id, done));
            }
            for registered in services.iter_mut() {
                let handler = registered.handler;
                if is_confined && !registered.service.allocates_nothing() {
                    continue;
                }
                let Some(action) = registered.service.poll_action() else {
                    continue;
                };
                let done = match action {
                    Action::Send { to, message } => {
                        if !nic.send_message(*id, to, handler, message) {
                            registered.service.handle_lost(to);
                        }
                        Done::Here
                    }
                    Action::Store {
                        to,
                        region,
                        message: follows,
                    } => {
                        // Kept here: what is asked for next must not reach the service before.
                        message.clear();
                        message.extend_from_slice(follows);
                        *following = Some(Following {
                            process: *id,
                            handler,
                            to,
                            length: follows.len(),
                        });
                        Done::Asked(Act::Store {
                            handler,
                            to,
                            region,
                        })
                    }
                    Action::Protect { region, access } => Done::Asked(Act::Protect {
                        handler,
                        region,
                        access,
                    }),
                    Action::Resume => Done::Asked(Act::Resume { handler }),
                };
                return Some((*id, done));
            }
        }
        // A confined node does not ask for what the model wants.
        let mut processes = self.processes.iter();
        self.has_actions = processes.any(|process| process.vmmc.has_actions());
        self.has_deadlines = self.next_deadline().is_some();
        None
    }

    /// The bytes that [`Act::Store`] named are in the peer's memory, and what follows them goes out; or they are not, and it is
    /// dropped.
    pub fn handle_stored(&mut self, is_stored: bool) {
        let Some(following) = self.following.take().filter(|_| is_stored) else {
            return;
        };
        let Following {
            process,
            handler,
            to,
            length,
        } = following;
        let message = &self.message[..length];
        if !self.nic.send_message(process, to, handler, message) {
            let process = self.processes.get_mut(process);
            let service = process.and_then(|process| process.services.get_mut(handler));
            if let Some(service) = service {
                service.handle_lost(to);
            }
        }
    }

    /// Whether no peer that takes nothing has more packets waiting than a confined node may add to.
    fn blocked_have_room(&self) -> bool {
        let mut blocked = self.blocked.iter();
        blocked.all(|&node| self.nic.waiting_for(node) < WAITING_PACKETS)
    }

    /// A control message to a peer was lost, and with it what the two agree on: the peer counts as gone. This node itself cannot.
    #[cold]
    fn handle_lost(&mut self, node: NodeId) {
        if !self.peers.is_gone(node) {
            self.handle_breach(node, Breach::Overfull);
        }
    }
}
