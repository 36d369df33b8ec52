//! How a run goes: calls, then rest, then every node reads its pages, then rest again.

use mapwire_wire::NodeId;

use super::{Programs, own_page};
use crate::checks::liveness;
use crate::cluster::{Cluster, Step};

/// When it is looked first whether all is at rest, after the last call; then ever later.
const FIRST_LOOK_NS: u64 = 30_000_000;
/// By when all must be at rest: epochs that nobody begins are begun by then, and dead nodes noticed.
const REST_NS: u64 = 20_000_000_000;
/// Between the reads of two pages, at the end.
const READ_NS: u64 = 2_000_000;
/// Events of a run at most, for each call.
const EVENTS_A_CALL: u64 = 50_000;
/// A call that finds the memory not imported yet is made so much later.
const AGAIN_NS: u64 = 50_000;
/// The event of a look at a cluster that should be at rest.
const LOOK: u32 = u32::MAX;
/// The event of the reads of all nodes' next page.
const READ: u32 = u32::MAX - 1;

/// A call of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) at_ns: u64,
    pub(super) node: NodeId,
    pub(super) seed: u64,
}

impl Programs {
    /// Lets everything happen: calls until `end_ns`, then rest, then every node reads its pages, then rest again. False if it is
    /// interrupted.
    pub(super) fn run(&mut self, cluster: &mut Cluster, calls: &[Call], end_ns: u64) -> bool {
        let most_events = EVENTS_A_CALL * (calls.len() as u64 + 50);
        let mut last_ns = end_ns;
        let mut look_ns = FIRST_LOOK_NS;
        let (mut unread, mut was_at_rest) = (self.shape.pages, false);
        cluster.schedule(last_ns + look_ns, LOOK);
        while self.violation.is_none() {
            match cluster.step(self) {
                Step::Inside => {}
                Step::Program(LOOK) => match self.check_rest(cluster) {
                    Ok(()) if was_at_rest => return true,
                    Ok(()) => {
                        (was_at_rest, look_ns) = (true, FIRST_LOOK_NS);
                        last_ns = cluster.now_ns() + READ_NS * unread;
                        cluster.schedule(cluster.now_ns(), READ);
                        cluster.schedule(last_ns + look_ns, LOOK);
                    }
                    Err(violation) if look_ns > REST_NS => self.fail(cluster.now_ns(), violation),
                    Err(_) => {
                        look_ns += look_ns / 2;
                        cluster.schedule(last_ns + look_ns, LOOK);
                    }
                },
                Step::Program(READ) => {
                    unread -= 1;
                    for node in self.nodes() {
                        if self.is_alive(node) {
                            self.get(cluster, node, own_page(node, unread), true);
                        }
                    }
                    if unread > 0 {
                        cluster.schedule(cluster.now_ns() + READ_NS, READ);
                    }
                }
                Step::Program(number) => self.go(cluster, calls, number),
                Step::Rest => {
                    let checked = self.check_rest(cluster);
                    self.note(cluster.now_ns(), checked);
                    return true;
                }
                Step::Interrupted => return false,
            }
            self.follow_up(cluster);
            let events = cluster.totals().events;
            if events > most_events {
                let violation = liveness::never_rests(cluster.now_ns(), events);
                self.fail(cluster.now_ns(), violation);
            }
        }
        true
    }

    /// A program makes a call, or copies a page.
    fn go(&mut self, cluster: &mut Cluster, calls: &[Call], number: u32) {
        let call = calls.get(number as usize);
        let copy = number.checked_sub(self.first_copy);
        let copy = copy.and_then(|copy| self.copies.get(copy as usize).copied());
        let Some(node) = call.map(|call| call.node).or(copy.map(|(node, _)| node)) else {
            return;
        };
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
