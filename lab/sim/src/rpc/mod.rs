//! Programs that call each other's procedures, and what is checked of it: a call is carried out at most once, whatever is lost, repeated or
//! late; it ends with its own reply, or with an error that something explains; every call ends; replies that nobody waits for are those of calls that
//! ended before; and who calls a server that lives is connected to it. Connections are made as on real computers
//! ([`mapwire_rpc::Connection`]).

mod running;
mod scenario;
mod tending;

pub use scenario::RpcScenario;

use std::collections::BTreeMap;

use mapwire_node::Told;
use mapwire_rpc::{Config, Incoming, Loan, Rpc, Xid};
use mapwire_wire::{HandlerId, NodeId, ProcessId};

use crate::canary::Canary;
use crate::checks::restarts::Restarts;
use crate::cluster::{Cluster, Observer, Violation};
use crate::coverage::counted;
use crate::random::Random;
use crate::run::RunError;

/// The handler id of calls.
const RPC: HandlerId = HandlerId(32);
const PROCESS: ProcessId = ProcessId(0);
const PROGRAM: u32 = 1000;
const VERSION: u32 = 1;

counted! { RpcSeen {
    answered = Answered: "Calls that got their reply.";
    timed_out = TimedOut: "Calls whose deadline came first.";
    late = LateReply: "Replies that came after that.";
    ended = Ended: "Calls that ended with their connection.";
    stray = Stray: "Records of sessions that were over.";
    one_way = OneWay: "Calls without an answer that were carried out.";
    crashed: "Nodes that died or started anew.";
} }

/// A call of a program.
#[derive(Clone, Copy, Debug)]
struct Call {
    node: NodeId,
    to: NodeId,
    bytes: u64,
    timeout_ns: u64,
    is_one_way: bool,
    tries: u32,
    /// When it found no connection first, since it had one.
    apart_since_ns: Option<u64>,
}

#[derive(Clone, Debug)]
struct Waiting {
    token: u32,
    to: NodeId,
    deadline_ns: u64,
    body: Vec<u8>,
}

/// The programs and what must be true of them.
#[derive(Debug, Default)]
struct Programs {
    calls: Vec<Call>,
    nodes: u16,
    config: Config,
    waiting: BTreeMap<(NodeId, u32), Waiting>,
    /// Calls in hand, by the event that answers them.
    held: BTreeMap<u32, (NodeId, Box<Incoming>, Vec<u8>)>,
    next_event: u32,
    /// A bug of all nodes.
    canary: Option<Canary>,
    /// What each node has lent each other.
    loans: BTreeMap<(NodeId, NodeId), Loan>,
    /// When each node said hello to each other last.
    greeted_ns: BTreeMap<(NodeId, NodeId), u64>,
    /// Imports of what peers lend, by the number of the event at their end.
    imports: Vec<(NodeId, NodeId, u64)>,
    /// When a connection may have ended last.
    ended_ns: u64,
    /// Of 100 calls, those before which the caller ends its connection.
    close_percent: u64,
    /// Connections that were ended so.
    closed: u64,
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
    fn unexplained(&mut self, now_ns: u64, text: String) {
        self.broke(now_ns, "calls", text);
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
        let done = parts.call(PROCESS, RPC, |rpc: &mut Rpc| call(rpc, clock_ns));
        cluster.settle(node, self);
        done
    }

    /// Puts the service into a node.
    fn put(&mut self, cluster: &mut Cluster, node: NodeId) -> Result<(), RunError> {
        self.incarnations += 1;
        let mut rpc = Rpc::new(Config {
            // No two of them are alike.
            session: self.incarnations << 20,
            ..self.config
        });
        rpc.register(PROGRAM, VERSION);
        let (parts, _) = cluster.parts(node);
        parts.register(PROCESS, RPC, Box::new(rpc))?;
        Ok(())
    }
}

impl Observer for Programs {
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
            self.unexplained(now_ns, format!("{at}: {told:?}"));
        }
    }

    fn crashed(&mut self, now_ns: u64, node: NodeId) {
        self.seen.crashed += 1;
        self.ended_ns = now_ns;
        self.loans.retain(|(of, _), _| *of != node);
        self.dead[usize::from(node.0)] = true;
        // Its program is gone, and so is what it waited for and had in hand.
        self.waiting.retain(|(caller, _), _| *caller != node);
        self.held.retain(|_, (server, ..)| *server != node);
    }

    fn restarted(&mut self, now_ns: u64, node: NodeId) {
        self.ended_ns = now_ns;
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
