//! Nodes that call each other, over a network that keeps messages in order and memory that each lends the others.

use std::collections::{BTreeMap, VecDeque};

use mapwire_rpc::{
    Body, CallHeader, Config, Credential, Draft, Due, Incoming, Outcome, Placed, Refusal, ReplyStatus, Rpc, Xid,
};
use mapwire_vmmc::service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

/// Bytes that each lends each.
pub(crate) const AREA: u64 = 4096;
pub(crate) const PROGRAM: u32 = 7;
pub(crate) const VERSION: u32 = 2;
/// Bodies of more bytes are stored.
pub(crate) const INLINE: usize = 32;

#[allow(dead_code, reason = "each test uses some of it")]
pub(crate) struct Network {
    pub(crate) nodes: Vec<Rpc>,
    /// What is under way from one to another.
    pub(crate) under_way: BTreeMap<(u16, u16), VecDeque<Vec<u8>>>,
    /// What an owner lends a peer.
    memory: BTreeMap<(u16, u16), Vec<u8>>,
    /// Where a sender writes what is moved into the peer's memory.
    staged: BTreeMap<(u16, u16), Vec<u8>>,
}

#[allow(dead_code, reason = "each test uses some of it")]
impl Network {
    pub(crate) fn new(nodes: u16, config: Config) -> Self {
        let node = |number: u16| {
            let mut rpc = Rpc::new(Config { session: 1000 * u64::from(number + 1), ..config });
            assert!(rpc.register(PROGRAM, VERSION));
            rpc
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            under_way: BTreeMap::new(),
            memory: BTreeMap::new(),
            staged: BTreeMap::new(),
        }
    }

    pub(crate) fn node(&mut self, number: u16) -> &mut Rpc {
        &mut self.nodes[usize::from(number)]
    }

    /// Takes out what nodes want to send, and sees to their connections.
    pub(crate) fn gather(&mut self) {
        for number in 0..self.nodes.len() as u16 {
            loop {
                while let Some(peer) = self.node(number).take_news() {
                    if self.node(number).connection(peer).due(None) == Due::Connect {
                        let session = self.node(number).new_session();
                        self.node(number).connect(peer, session, AREA);
                    }
                }
                if !self.send_one(number) {
                    break;
                }
            }
        }
    }

    fn send_one(&mut self, from: u16) -> bool {
        let Some(action) = self.nodes[usize::from(from)].poll_action() else {
            return false;
        };
        let (to, message) = match action {
            Action::Send { to, message } => (to, message),
            Action::Store { to, region, at, message } => {
                assert_eq!((region.view, region.offset), (to.node.0, at));
                let range = at as usize..(at + region.bytes) as usize;
                let bytes = self.staged[&(from, to.node.0)][range.clone()].to_vec();
                let lent = (to.node.0, from);
                let there = self.memory.entry(lent).or_insert_with(|| vec![0; AREA as usize]);
                there[range].copy_from_slice(&bytes);
                (to, message)
            }
            other => panic!("calls do nothing else: {other:?}"),
        };
        let message = message.to_vec();
        self.under_way.entry((from, to.node.0)).or_default().push_back(message);
        true
    }

    /// Delivers the oldest message from one node to another, if there is one.
    pub(crate) fn deliver(&mut self, from: u16, to: u16) -> bool {
        self.gather();
        let queue = self.under_way.entry((from, to)).or_default();
        let Some(message) = queue.pop_front() else {
            return false;
        };
        let from = Endpoint::first_of(NodeId(from));
        let known = format!("{:?}", self.node(to).connection(from.node));
        let taken = self.node(to).handle_message(0, from, &message);
        assert!(taken.is_ok(), "{message:?} of {from:?} is refused: {known}");
        self.gather();
        true
    }

    /// Delivers all messages.
    pub(crate) fn settle(&mut self) {
        self.gather();
        while let Some((&(from, to), _)) = self.under_way.iter().find(|(_, queue)| !queue.is_empty()) {
            self.deliver(from, to);
        }
    }

    pub(crate) fn connect(&mut self, from: u16, to: u16) {
        let session = self.node(from).new_session();
        self.node(from).connect(NodeId(to), session, AREA);
        self.settle();
        assert!(self.node(from).connection(NodeId(to)).is_open);
        assert!(self.node(to).connection(NodeId(from)).is_open);
    }

    /// Puts a body into the draft, or into the peer's memory: at once, or so that it is moved.
    fn place(
        &mut self,
        from: u16,
        to: u16,
        draft: &mut Draft,
        body: &[u8],
        moves: bool,
    ) -> Result<Option<Placed>, Refusal> {
        if body.len() <= INLINE {
            draft.body().extend_from_slice(body);
            return Ok(None);
        }
        let bytes = body.len() as u64;
        let room = self.node(from).reserve(NodeId(to), bytes)?;
        let memory = match moves {
            true => self.staged.entry((from, to)),
            false => self.memory.entry((to, from)),
        };
        let memory = memory.or_insert_with(|| vec![0; AREA as usize]);
        memory[room.at as usize..][..body.len()].copy_from_slice(body);
        Ok(Some(Placed { room, bytes, moves }))
    }

    pub(crate) fn draft(&mut self, from: u16, procedure: u32) -> Draft {
        let header = CallHeader { xid: 0, program: PROGRAM, version: VERSION, procedure, credential: Credential::None };
        let memory = self.node(from).take_spare();
        Draft::call(&header, memory)
    }

    pub(crate) fn begin(&mut self, from: u16, to: u16, body: &[u8], moves: bool) -> Result<Xid, Refusal> {
        let mut draft = self.draft(from, 1);
        self.node(from).may_begin(NodeId(to))?;
        let placed = self.place(from, to, &mut draft, body, moves)?;
        let begun = self.node(from).begin(NodeId(to), &mut Some(draft), placed, None);
        Ok(begun.expect("it may begin"))
    }

    pub(crate) fn one_way(&mut self, from: u16, to: u16, body: &[u8]) -> Result<(), Refusal> {
        let mut draft = self.draft(from, 1);
        let placed = self.place(from, to, &mut draft, body, false)?;
        self.node(from).one_way(NodeId(to), &mut Some(draft), placed)
    }

    /// Reads a body, and gives its memory back.
    pub(crate) fn read(&mut self, at: u16, from: u16, body: Body) -> Vec<u8> {
        match body {
            Body::Inline { record, at } => record[at..].to_vec(),
            Body::Lent(lent) => {
                assert!(lent.at.checked_add(lent.bytes).is_some_and(|end| end <= AREA));
                let range = lent.at as usize..(lent.at + lent.bytes) as usize;
                let lent_to = self.memory.entry((at, from));
                let memory = lent_to.or_insert_with(|| vec![0; AREA as usize]);
                let bytes = memory[range].to_vec();
                self.node(at).release(NodeId(from), &lent);
                bytes
            }
        }
    }

    pub(crate) fn next(&mut self, at: u16) -> Option<(Box<Incoming>, Vec<u8>)> {
        let mut call = self.node(at).next_call()?;
        let body = std::mem::replace(&mut call.body, Body::EMPTY);
        let from = call.id.peer.0;
        let bytes = self.read(at, from, body);
        Some((call, bytes))
    }

    pub(crate) fn reply(&mut self, at: u16, call: &Incoming, body: &[u8], moves: bool) -> Result<(), Refusal> {
        let to = call.id.peer.0;
        let mut draft = Draft::reply(call.id.xid, ReplyStatus::Success, Vec::new());
        let placed = self.place(at, to, &mut draft, body, moves)?;
        let replied = self.node(at).reply(&call.id, draft, placed);
        if let (Err(_), Some(placed)) = (&replied, placed) {
            self.node(at).cancel(call.id.peer, placed.room);
        }
        replied
    }

    pub(crate) fn outcome(&mut self, at: u16, from: u16, xid: Xid) -> Option<Result<Vec<u8>, mapwire_rpc::CallError>> {
        let outcome: Outcome = self.node(at).take_outcome(xid)?;
        Some(outcome.map(|body| self.read(at, from, body)))
    }
}
