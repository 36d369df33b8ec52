//! The model's state and its inputs.

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

use mapwire_wire::{
    ControlMessage, Endpoint, ExportId, Key, MAX_CONTROL_BYTES, MAX_NAME_BYTES, NodeId, Refusal, Rights,
};

use crate::action::{Action, Grant};
use crate::error::VmmcError;
use crate::offers::{MAX_OF_NODE, MAX_WAITING, Offer, Offered, Waiting};
use crate::requests::{Request, RequestId};

/// Exports and imports of one process.
///
/// * Commands: [`offer`](Self::offer), [`withdraw`](Self::withdraw), [`import`](Self::import), [`release`](Self::release),
///   [`leave`](Self::leave).
/// * `handle_*`: [`handle_control`](Self::handle_control), [`handle_peer_gone`](Self::handle_peer_gone),
///   [`handle_time`](Self::handle_time).
/// * `poll_*`: [`poll_action`](Self::poll_action), to be drained after each of the others, and
///   [`poll_at`](Self::poll_at), the time at which `handle_time` has something to do.
#[derive(Debug, Default)]
pub struct Vmmc {
    offers: Vec<Offered>,
    waiting: Vec<Waiting>,
    requests: Vec<Request>,
    next_request: u32,
    actions: VecDeque<Action>,
}

impl Vmmc {
    /// A process without offers or requests.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Offers an export under its name, and answers the requests that wait for it.
    ///
    /// # Errors
    /// [`VmmcError::BadName`], [`VmmcError::NameTaken`].
    pub fn offer(&mut self, offer: Offer) -> Result<(), VmmcError> {
        check_name(&offer.name)?;
        if self.offers.iter().any(|other| other.offer.name == offer.name) {
            return Err(VmmcError::NameTaken(offer.name));
        }
        let name = offer.name.clone();
        self.offers.push(Offered { offer, taken: Vec::new() });
        let (now, later) = core::mem::take(&mut self.waiting).into_iter().partition(|waiting| waiting.name == name);
        self.waiting = later;
        let now: Vec<Waiting> = now;
        for waiting in now {
            self.answer(&waiting);
        }
        Ok(())
    }

    /// Withdraws an offer and tells its importers. The NIC must refuse the export before this call.
    pub fn withdraw(&mut self, export: ExportId) -> Option<Offer> {
        let index = self.offers.iter().position(|other| other.offer.export == export)?;
        let Offered { offer, mut taken } = self.offers.remove(index);
        taken.sort_unstable();
        taken.dedup();
        for to in taken {
            self.send(to, &ControlMessage::Revoked { export });
        }
        Some(offer)
    }

    /// Number of imports of an export that others hold; `None` if it is not offered.
    #[must_use]
    pub fn holders(&self, export: ExportId) -> Option<usize> {
        self.offers.iter().find(|other| other.offer.export == export).map(|offered| offered.taken.len())
    }

    /// Whether a process of a node holds an import of an export.
    #[must_use]
    pub fn is_held_by(&self, export: ExportId, node: NodeId) -> bool {
        let mut offers = self.offers.iter();
        let offered = offers.find(|other| other.offer.export == export);
        offered.is_some_and(|offered| offered.taken.iter().any(|holder| holder.node == node))
    }

    #[must_use]
    pub fn offered(&self, export: ExportId) -> Option<&Offer> {
        self.offers.iter().find(|other| other.offer.export == export).map(|offered| &offered.offer)
    }

    /// Asks process `to` for the export `name` with `rights` (empty: all that it allows), showing `token`; gives up after `timeout_ns`.
    /// The outcome is [`Action::Imported`] or [`Action::Failed`].
    ///
    /// # Errors
    /// [`VmmcError::BadName`].
    pub fn import(
        &mut self,
        now_ns: u64,
        to: Endpoint,
        name: &str,
        rights: Rights,
        token: Option<Key>,
        timeout_ns: u64,
    ) -> Result<RequestId, VmmcError> {
        check_name(name)?;
        let id = RequestId(self.next_request);
        self.next_request = self.next_request.wrapping_add(1);
        self.requests.push(Request {
            id,
            to,
            name: name.to_string(),
            rights,
            deadline_ns: now_ns.saturating_add(timeout_ns),
            timeout_ns,
        });
        self.send(to, &ControlMessage::ImportRequest { request: id.0, name, rights, token });
        Ok(id)
    }

    /// Tells the exporter that an import is no longer used.
    pub fn release(&mut self, grant: &Grant) {
        self.send(grant.from, &ControlMessage::Released { export: grant.export, key: grant.key });
    }

    /// Tells `peers` that this process's node leaves.
    pub fn leave(&mut self, peers: impl IntoIterator<Item = Endpoint>) {
        for to in peers {
            self.send(to, &ControlMessage::Goodbye);
        }
    }

    /// Handles a control message of process `from`, whose user is `uid` according to the operating system. `maps` says whether it can map
    /// memory that is passed to it; if not, it imports without the direct path.
    ///
    /// # Errors
    /// [`VmmcError::Malformed`]; nothing has changed then. A valid message that answers no request is ignored: the request may have timed
    /// out.
    pub fn handle_control(&mut self, from: Endpoint, uid: u32, maps: bool, bytes: &[u8]) -> Result<(), VmmcError> {
        let message = ControlMessage::parse(bytes).map_err(|error| VmmcError::Malformed { from, error })?;
        match message {
            ControlMessage::ImportRequest { request, name, rights, token } => {
                let waiting = Waiting { from, uid, maps, request, name: name.to_string(), rights, token };
                if self.offers.iter().any(|other| other.offer.name == name) {
                    self.answer(&waiting);
                } else if !self.may_wait(from) {
                    self.send(from, &ControlMessage::ImportRefused { request, reason: Refusal::Busy });
                } else {
                    self.waiting.push(waiting);
                }
            }
            ControlMessage::ImportCancel { request } => {
                self.waiting.retain(|waiting| waiting.from != from || waiting.request != request);
            }
            ControlMessage::ImportGranted { request, export, key, length, rights, direct } => {
                if let Some(request) = self.answered(from, request) {
                    let grant = Grant { from, export, key, length, rights, direct };
                    if rights.contains(request.rights) {
                        self.actions.push_back(Action::Imported { request: request.id, grant });
                    } else {
                        let error = VmmcError::Refused { peer: from, name: request.name, reason: Refusal::NoRight };
                        self.actions.push_back(Action::Failed { request: request.id, error });
                    }
                } else {
                    // The importer gave up meanwhile: the exporter must not believe that it holds the import.
                    self.send(from, &ControlMessage::Released { export, key });
                }
            }
            ControlMessage::ImportRefused { request, reason } => {
                if let Some(Request { id, name, .. }) = self.answered(from, request) {
                    let error = VmmcError::Refused { peer: from, name, reason };
                    self.actions.push_back(Action::Failed { request: id, error });
                }
            }
            ControlMessage::Revoked { export } => self.actions.push_back(Action::Revoked { from, export }),
            ControlMessage::Released { export, key } => {
                let offered =
                    self.offers.iter_mut().find(|other| other.offer.export == export && other.offer.key == key);
                if let Some(offered) = offered
                    && let Some(index) = offered.taken.iter().position(|&holder| holder == from)
                {
                    offered.taken.swap_remove(index);
                }
            }
            ControlMessage::Goodbye => {
                self.handle_peer_gone(from.node);
                self.actions.push_back(Action::Goodbye { from });
            }
        }
        Ok(())
    }

    /// Node `node` is gone: forgets its processes' imports and requests; requests to it fail.
    pub fn handle_peer_gone(&mut self, node: NodeId) {
        self.waiting.retain(|waiting| waiting.from.node != node);
        for offered in &mut self.offers {
            offered.taken.retain(|holder| holder.node != node);
        }
        let (gone, left) = core::mem::take(&mut self.requests).into_iter().partition(|request| request.to.node == node);
        self.requests = left;
        let gone: Vec<Request> = gone;
        for Request { id, to, name, .. } in gone {
            self.actions.push_back(Action::Failed { request: id, error: VmmcError::PeerGone { peer: to, name } });
        }
    }

    /// Fails the requests that have timed out at `now_ns`.
    pub fn handle_time(&mut self, now_ns: u64) {
        let (over, left) =
            core::mem::take(&mut self.requests).into_iter().partition(|request| request.deadline_ns <= now_ns);
        self.requests = left;
        let over: Vec<Request> = over;
        for Request { id, to, name, timeout_ns, .. } in over {
            self.send(to, &ControlMessage::ImportCancel { request: id.0 });
            let error = VmmcError::TimedOut { peer: to, name, waited_ms: timeout_ns / 1_000_000 };
            self.actions.push_back(Action::Failed { request: id, error });
        }
    }

    /// Time of the next [`handle_time`](Self::handle_time).
    #[must_use]
    pub fn poll_at(&self) -> Option<u64> {
        self.requests.iter().map(|request| request.deadline_ns).min()
    }

    /// Whether this process waits for an answer of `peer` to this request.
    #[must_use]
    pub fn awaits(&self, peer: Endpoint, request: RequestId) -> bool {
        let is_it = |other: &Request| (other.to, other.id) == (peer, request);
        self.requests.iter().any(is_it)
    }

    /// Whether this process waits for an answer of any process of `node` to this request.
    #[must_use]
    pub fn awaits_node(&self, node: NodeId, request: RequestId) -> bool {
        let is_it = |other: &Request| (other.to.node, other.id) == (node, request);
        self.requests.iter().any(is_it)
    }

    /// Whether an action waits.
    #[inline]
    #[must_use]
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Whether a request is under way.
    #[inline]
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Number of requests under way.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Number of peers' requests that wait for a name to be offered.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether one more request of process `from` may wait.
    fn may_wait(&self, from: Endpoint) -> bool {
        let waiting = self.waiting.iter().map(|waiting| waiting.from);
        let of_process = waiting.clone().filter(|other| *other == from).count();
        let of_node = waiting.filter(|other| other.node == from.node).count();
        of_process < MAX_WAITING && of_node < MAX_OF_NODE
    }

    /// Answers a request for a name that is offered.
    fn answer(&mut self, waiting: &Waiting) {
        let Waiting { from, uid, maps, request, rights, token, .. } = *waiting;
        let Some(offered) = self.offers.iter_mut().find(|other| other.offer.name == waiting.name) else {
            return;
        };
        let offer = &offered.offer;
        let held = offered.taken.iter().filter(|holder| holder.node == from.node);
        let reason = if held.count() >= MAX_OF_NODE {
            Some(Refusal::Busy)
        } else if !offer.importers.include(from.node, uid, token) {
            Some(Refusal::NotPermitted)
        } else if !offer.rights.contains(rights) {
            Some(Refusal::NoRight)
        } else {
            None
        };
        if let Some(reason) = reason {
            return self.send(from, &ControlMessage::ImportRefused { request, reason });
        }
        let (export, key, length) = (offer.export, offer.key, offer.length);
        let is_direct = offer.direct.is_some();
        let direct = offer.direct.filter(|_| maps);
        // The same on every path, although a writable mapping can be read.
        let rights = match rights.is_empty() {
            true => offer.rights,
            false => rights,
        };
        offered.taken.push(from);
        self.actions.push_back(Action::Granted { to: from, export, rights });
        if direct.is_some() {
            self.actions.push_back(Action::PassMemory {
                to: from,
                export,
                // The importer's own number: it accepts memory only under the numbers of its requests.
                tag: u64::from(request),
            });
        } else if is_direct {
            self.actions.push_back(Action::GrantedApart { to: from, export });
        }
        self.send(from, &ControlMessage::ImportGranted { request, export, key, length, rights, direct });
    }

    /// Removes and returns the request of this process that `from` answers.
    fn answered(&mut self, from: Endpoint, request: u32) -> Option<Request> {
        let index = self.requests.iter().position(|other| other.id.0 == request && other.to == from)?;
        Some(self.requests.swap_remove(index))
    }

    fn send(&mut self, to: Endpoint, message: &ControlMessage<'_>) {
        // Names were checked on entry, so every message made here is legal.
        let mut bytes = [0; MAX_CONTROL_BYTES];
        if let Ok(length) = message.emit(&mut bytes) {
            self.actions.push_back(Action::Send { to, message: bytes[..length].to_vec() });
        }
    }
}

fn check_name(name: &str) -> Result<(), VmmcError> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(VmmcError::BadName(name.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
