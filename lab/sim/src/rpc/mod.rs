//! Programs that call each other's procedures, and what is checked of it: a call is carried out at most once, whatever is lost, repeated or
//! late, also if its caller asks again; it ends with its own reply, or with an error that something explains; every call ends; and no reply comes more often than it was asked
//! for.

mod running;
mod scenario;
mod watched;

pub use scenario::{NODES, RpcScenario, RpcWanted};

use std::collections::BTreeMap;

use mapwire_node::{Ask, Told};
use mapwire_rpc::{Config, Incoming, Rpc, Xid};
use mapwire_wire::{Endpoint, HandlerId, NodeId, ProcessId};
use thiserror::Error;

use crate::checks::restarts::Restarts;
use crate::cluster::{Cluster, ClusterError, Moved, Observer, Violation};
use crate::coverage::{Condition, Coverage};
use crate::random::Random;
use watched::Watched;

/// The handler id of calls.
const RPC: HandlerId = HandlerId(32);
const PROCESS: ProcessId = ProcessId(0);
const PROGRAM: u32 = 1000;
const VERSION: u32 = 1;

/// A run that cannot be made.
#[derive(Debug, Error)]
pub enum RpcError {
    /// Its cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A service could not be registered.
    #[error(transparent)]
    Register(#[from] mapwire_node::RegisterError),
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct RpcOutcome {
    /// The first violation, with its time.
    pub violation: Option<(u64, Violation)>,
    /// Events.
    pub events: u64,
    /// Packets delivered.
    pub packets: u64,
    /// What happened.
    pub seen: RpcSeen,
    /// The same, of all kinds of run.
    pub coverage: Coverage,
    /// It was not interrupted.
    pub is_whole: bool,
}

/// What happened in a run, so that one that shows nothing is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcSeen {
    /// Calls that got their reply.
    pub answered: u64,
    /// Calls whose deadline came first.
    pub timed_out: u64,
    /// Replies that came after that.
    pub late: u64,
    /// Calls that ended with their connection.
    pub ended: u64,
    /// Calls that were sent again.
    pub repeated: u64,
    /// Replies that came again.
    pub replied_again: u64,
    /// Records of sessions that were over.
    pub stray: u64,
    /// Calls without an answer that were carried out.
    pub one_way: u64,
    /// Nodes that died or started anew.
    pub crashed: u64,
}

impl RpcSeen {
    /// All counts, in order.
    #[must_use]
    pub const fn counts(&self) -> [u64; 9] {
        [
            self.answered,
            self.timed_out,
            self.late,
            self.ended,
            self.repeated,
            self.replied_again,
            self.stray,
            self.one_way,
            self.crashed,
        ]
    }

    /// Notes it.
    fn cover(&self, coverage: &mut Coverage) {
        for (condition, times) in [
            (Condition::Answered, self.answered),
            (Condition::TimedOut, self.timed_out),
            (Condition::LateReply, self.late),
            (Condition::Ended, self.ended),
            (Condition::Repeated, self.repeated),
            (Condition::RepeatedReply, self.replied_again),
            (Condition::Stray, self.stray),
            (Condition::OneWay, self.one_way),
        ] {
            coverage.note_many(condition, times);
        }
    }

    /// Adds what happened in another run.
    pub fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.timed_out += other.timed_out;
        self.late += other.late;
        self.ended += other.ended;
        self.repeated += other.repeated;
        self.replied_again += other.replied_again;
        self.stray += other.stray;
        self.one_way += other.one_way;
        self.crashed += other.crashed;
    }
}

/// A call that waits.
#[derive(Clone, Debug)]
struct Waiting {
    token: u32,
    to: NodeId,
    deadline_ns: u64,
    body: Vec<u8>,
}

/// The programs and what must be true of them.
#[derive(Debug)]
struct Programs {
    nodes: u16,
    config: Config,
    /// By caller and number.
    waiting: BTreeMap<(NodeId, u32), Waiting>,
    /// Calls in hand, by the event that answers them.
    held: BTreeMap<u32, (NodeId, Box<Incoming>, Vec<u8>)>,
    next_event: u32,
    /// A bug of all nodes.
    mixes_up: bool,
    /// Of 100 calls, those before which the caller ends its connection.
    close_percent: u64,
    /// Connections that were ended so.
    closed: u64,
    /// How often the reply to each call, by caller and number, is still owed; and that it has come.
    owed: BTreeMap<(NodeId, u32), (u32, bool)>,
    /// How often each call was carried out.
    carried_out: BTreeMap<u32, u32>,
    dead: Vec<bool>,
    /// Services that are to be put into nodes that have started again.
    anew: Vec<NodeId>,
    incarnations: u64,
    restarts: Restarts,
    random: Random,
    seen: RpcSeen,
    violation: Option<(u64, Violation)>,
}

impl Programs {
    fn broke(&mut self, now_ns: u64, text: String) {
        let check = "calls";
        self.violation.get_or_insert((now_ns, Violation { check, text }));
    }

    fn is_alive(&self, node: NodeId) -> bool {
        !self.dead[usize::from(node.0)]
    }

    fn all(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes).map(NodeId)
    }

    /// A call of a node's service, with the time of the node; then all that follows from it.
    fn call<R>(&mut self, cluster: &mut Cluster, node: NodeId, call: impl FnOnce(&mut Rpc, u64) -> R) -> Option<R> {
        let clock_ns = cluster.clock_ns(node);
        let (parts, _) = cluster.parts(node);
        let done = parts.call(PROCESS, RPC, |watched: &mut Watched| call(&mut watched.rpc, clock_ns));
        cluster.settle(node, self);
        done
    }

    /// A reply has come to a call: as often as that was sent, at most.
    fn check_reply(&mut self, now_ns: u64, key: (NodeId, u32), from: NodeId) {
        match self.owed.get_mut(&key) {
            Some((times, has_come)) if *times > 0 => {
                *times -= 1;
                self.seen.replied_again += u64::from(core::mem::replace(has_come, true));
            }
            _ => {
                let text = format!("{from} answers {key:?} more often than it was asked");
                self.broke(now_ns, text);
            }
        }
    }

    /// Puts the service into a node.
    fn put(&mut self, cluster: &mut Cluster, node: NodeId) -> Result<(), RpcError> {
        self.incarnations += 1;
        let mut rpc = Rpc::new(Config {
            // No two of them are alike.
            session: self.incarnations << 20,
            ..self.config
        });
        rpc.register(PROGRAM, VERSION);
        let (parts, _) = cluster.parts(node);
        let watched = Watched::new(rpc, self.mixes_up);
        parts.register(PROCESS, RPC, Box::new(watched))?;
        Ok(())
    }
}

impl Observer for Programs {
    fn moved(&mut self, _now_ns: u64, _moved: Moved<'_>) {}

    fn told(&mut self, now_ns: u64, at: NodeId, told: &Told) {
        let is_explained = match told {
            Told::PathChanged { .. } => true,
            Told::PeerRestarted { node } => match self.restarts.tell(at, *node) {
                Ok(()) => true,
                Err(violation) => return self.violated(now_ns, violation),
            },
            Told::PeerSilent { .. } => self.seen.crashed > 0,
            _ => false,
        };
        if !is_explained {
            self.broke(now_ns, format!("{at}: {told:?}"));
        }
    }

    fn asked(&mut self, _now_ns: u64, _at: NodeId, _ask: &Ask) {}

    fn unpinned(&mut self, _now_ns: u64, _at: Endpoint, _page: u64) {}

    fn crashed(&mut self, _now_ns: u64, node: NodeId) {
        self.seen.crashed += 1;
        self.dead[usize::from(node.0)] = true;
        // Its program is gone, and so is what it waited for and had in hand.
        self.waiting.retain(|(caller, _), _| *caller != node);
        self.held.retain(|_, (server, ..)| *server != node);
    }

    fn restarted(&mut self, _now_ns: u64, node: NodeId) {
        self.dead[usize::from(node.0)] = false;
        self.anew.push(node);
        self.restarts.happen(node);
    }

    fn violated(&mut self, now_ns: u64, violation: Violation) {
        self.violation.get_or_insert((now_ns, violation));
    }
}

/// The arguments of a call: its number, then bytes that follow from it.
fn body_of(token: u32, bytes: u64) -> Vec<u8> {
    let mut body = token.to_be_bytes().to_vec();
    body.resize(4 + bytes as usize, token as u8);
    body
}

/// The token of a body, if it is one.
fn token_of(body: &[u8]) -> Option<u32> {
    let (token, rest) = body.split_first_chunk()?;
    let token = u32::from_be_bytes(*token);
    rest.iter().all(|&byte| byte == token as u8).then_some(token)
}

/// A call, by its number at its caller.
fn key(node: NodeId, xid: Xid) -> (NodeId, u32) {
    (node, xid.0)
}
