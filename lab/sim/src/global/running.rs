//! How a run goes: calls, then rest, then every node reads its pages, then rest again.

use mapwire_gms::Gms;

use super::{Ending, FIRST_LOOK_NS, Programs, Seen, own_page};
use crate::cluster::{Cluster, Observer, Violation};
use crate::coverage::Coverage;

/// By when all must be at rest: epochs that nobody begins are begun by then, and dead nodes noticed.
const REST_NS: u64 = 20_000_000_000;
/// Between the reads of two pages, at the end.
const READ_NS: u64 = 2_000_000;
/// Events of a run at most, for each call.
pub(super) const EVENTS_A_CALL: u64 = 50_000;
/// A call that finds the memory not imported yet is made so much later.
const AGAIN_NS: u64 = 50_000;
/// The event of a look at a cluster that should be at rest.
const LOOK: u32 = u32::MAX;
/// The event of the reads of all nodes' next page.
const READ: u32 = u32::MAX - 1;

impl Programs {
    /// The run ends after `end_ns`, when all is at rest.
    pub(super) fn begin_ending(&mut self, cluster: &mut Cluster, end_ns: u64) {
        self.ending = Ending { last_ns: end_ns, ..Ending::new(self.shape.pages) };
        cluster.schedule(end_ns + FIRST_LOOK_NS, LOOK);
    }

    /// Looks whether all is at rest. Whether the run is over.
    fn look(&mut self, cluster: &mut Cluster) -> bool {
        let now_ns = cluster.now_ns();
        match self.check_rest(cluster) {
            Ok(()) if self.ending.was_at_rest => return true,
            Ok(()) => {
                self.ending.last_ns = now_ns + READ_NS * self.ending.unread;
                (self.ending.was_at_rest, self.ending.look_ns) = (true, FIRST_LOOK_NS);
                cluster.schedule(now_ns, READ);
                cluster.schedule(self.ending.last_ns + FIRST_LOOK_NS, LOOK);
            }
            Err(violation) if self.ending.look_ns > REST_NS => self.violated(now_ns, violation),
            Err(_) => {
                self.ending.look_ns += self.ending.look_ns / 2;
                cluster.schedule(self.ending.last_ns + self.ending.look_ns, LOOK);
            }
        }
        false
    }

    fn read_next(&mut self, cluster: &mut Cluster) {
        self.ending.unread -= 1;
        for node in self.nodes() {
            if self.is_alive(node) {
                self.get(cluster, node, own_page(node, self.ending.unread), true);
            }
        }
        if self.ending.unread > 0 {
            cluster.schedule(cluster.now_ns() + READ_NS, READ);
        }
    }

    /// A program makes a call, or copies a page.
    fn go(&mut self, cluster: &mut Cluster, number: u32) {
        let call = self.calls.get(number as usize).copied();
        let copy = number.checked_sub(self.first_copy);
        let copy = copy.and_then(|copy| self.copies.get(copy as usize).copied());
        let Some(node) = call.map(|call| call.node).or(copy.map(|(node, _)| node)) else { return };
        if !self.is_alive(node) {
            return;
        }
        // A program runs when its processor has time for it.
        let busy_ns = cluster.busy_until_ns(node);
        if busy_ns > cluster.now_ns() {
            return cluster.schedule(busy_ns, number);
        }
        match (call, copy) {
            (Some(_), _) if !self.segments.is_ready() => {
                let after_ns = 1 + self.random.below(AGAIN_NS);
                cluster.schedule(cluster.now_ns() + after_ns, number);
            }
            (Some(call), _) => self.act(cluster, node, call.seed),
            (None, Some((_, tag))) => self.copy(cluster, node, tag),
            (None, None) => {}
        }
    }
}

impl crate::run::Programs for Programs {
    type Seen = Seen;

    fn violation(&self) -> Option<&(u64, Violation)> {
        self.violation.as_ref()
    }

    fn finish(self, coverage: &mut Coverage) -> Seen {
        self.seen.cover(coverage);
        self.seen
    }

    fn event(&mut self, cluster: &mut Cluster, number: u32) -> bool {
        match number {
            LOOK => return self.look(cluster),
            READ => self.read_next(cluster),
            _ => self.go(cluster, number),
        }
        false
    }

    fn follow_up(&mut self, cluster: &mut Cluster) {
        while let Some(node) = self.crashed.pop() {
            self.lose(cluster, node);
        }
        if let Err(text) = self.segments.enter(cluster) {
            self.unexplained(cluster.now_ns(), text);
        }
        for node in self.nodes() {
            let has_outcomes = |gms: &Gms| gms.has_outcomes();
            while self.is_alive(node) && self.gms(cluster, node).is_some_and(has_outcomes) {
                let outcome = self.call(cluster, node, |gms, _| gms.poll_outcome());
                if let Some(outcome) = outcome.flatten() {
                    self.hear(cluster, node, outcome);
                }
            }
        }
    }

    fn rest(&mut self, cluster: &mut Cluster) {
        let checked = self.check_rest(cluster);
        self.note(cluster.now_ns(), checked);
    }
}
