//! Connections of simulated nodes, made and ended as [`mapwire_rpc::Connection`] says.

use mapwire_rpc::{Due, Loan, Rpc, Standing};
use mapwire_wire::NodeId;

use super::running::{IMPORTED, KINDS, TRIES};
use super::{PROCESS, Programs, RPC};
use crate::canary::Canary;
use crate::cluster::Cluster;

/// How long an import of what a peer lends takes at most.
const IMPORT_NS: u64 = 20_000;
/// How long after a hello the next is said at least.
const GREETING_NS: u64 = 10_000_000;
/// Who calls a server that lives is connected to it within so long.
const CONNECTED_NS: u64 = 1_000_000_000;

impl Programs {
    /// How a connection stands, after what is to be done for a call by it.
    pub(super) fn connect(&mut self, cluster: &mut Cluster, node: NodeId, to: NodeId) -> Standing {
        let Some(service) = cluster.node(node).service::<Rpc>(PROCESS, RPC) else { return Standing::Gone };
        let standing = service.connection(to).standing(self.loans.get(&(node, to)).copied());
        match standing {
            Standing::Absent => self.offer(cluster, node, to),
            Standing::Begun => self.greet(cluster, node, to),
            Standing::Ready(_) | Standing::Gone => {}
        }
        standing
    }

    /// Says hello again, after a while.
    fn greet(&mut self, cluster: &mut Cluster, node: NodeId, to: NodeId) {
        let now_ns = cluster.now_ns();
        let last_ns = self.greeted_ns.entry((node, to)).or_insert(now_ns);
        if now_ns - *last_ns > GREETING_NS {
            *last_ns = now_ns;
            self.call(cluster, node, |rpc, _| rpc.hello(to));
        }
    }

    /// A call found no connection.
    pub(super) fn connect_later(&mut self, cluster: &mut Cluster, event: u32) {
        let Some(call) = self.calls.get_mut((event / KINDS) as usize) else { return };
        let since_ns = *call.apart_since_ns.get_or_insert(cluster.now_ns());
        let (node, to, tries) = (call.node, call.to, call.tries);
        let apart_ns = cluster.now_ns() - since_ns.max(self.ended_ns).min(cluster.now_ns());
        if tries >= TRIES && self.is_alive(to) && apart_ns > CONNECTED_NS {
            let text = format!("{node} finds no connection to {to}, which lives, in {apart_ns} ns");
            return self.unexplained(cluster.now_ns(), text);
        }
        self.try_later(cluster, event, tries);
    }

    /// Lends a peer memory, and tells it so.
    fn offer(&mut self, cluster: &mut Cluster, node: NodeId, to: NodeId) {
        let Some(session) = self.call(cluster, node, |rpc, _| rpc.new_session()) else { return };
        self.loans.insert((node, to), Loan { session, is_ready: false });
        self.call(cluster, node, |rpc, _| rpc.connect(to, session, 0));
    }

    /// The connection to a peer has changed.
    pub(super) fn tend(&mut self, cluster: &mut Cluster, node: NodeId, peer: NodeId) {
        let Some(service) = cluster.node(node).service::<Rpc>(PROCESS, RPC) else { return };
        let connection = service.connection(peer);
        let key = (node, peer);
        let is_kept = |loan: &Loan| connection.is_of(loan.session) || self.canary == Some(Canary::KeptLoan);
        if !self.loans.get(&key).is_some_and(is_kept) {
            self.loans.remove(&key);
        }
        let loan = self.loans.get(&key).copied();
        match connection.due(loan.map(|loan| loan.is_ready)) {
            Due::Connect if self.canary != Some(Canary::Unanswered) => self.offer(cluster, node, peer),
            Due::Import(_) if self.canary != Some(Canary::Unimported) => {
                let number = self.imports.len() as u32;
                self.imports.push((node, peer, loan.map_or(0, |loan| loan.session)));
                let after_ns = self.random.below(IMPORT_NS);
                cluster.schedule(cluster.now_ns() + after_ns, number * KINDS + IMPORTED);
            }
            Due::Connect | Due::Import(_) | Due::Nothing => {}
        }
    }

    /// What a peer lends is known.
    pub(super) fn import(&mut self, number: u32) {
        let Some(&(node, peer, session)) = self.imports.get(number as usize) else { return };
        if let Some(loan) = self.loans.get_mut(&(node, peer)).filter(|loan| loan.session == session) {
            loan.is_ready = true;
        }
    }
}
