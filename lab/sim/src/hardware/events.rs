//! What happens when.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::Ask;

use super::flight::Flight;
use super::profile::Ps;

/// Something that happens at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The NIC's processor ends a step of this plan.
    Nic { node: usize, plan: u64 },
    /// The host ends a phase.
    Host { node: usize },
    /// A transfer begins or ends.
    Dma { node: usize, is_wire: bool, begins: bool },
    /// A message is there, or its head if a page follows.
    Arrive { node: usize, slot: u64 },
    /// The program makes a call.
    Ask { node: usize, slot: u64 },
}

/// Events to come, by time, and by entry where times are equal.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(Ps, u64, Event)>>,
    entered: u64,
    flights: BTreeMap<u64, Flight>,
    asks: BTreeMap<u64, Ask>,
}

impl Agenda {
    pub(super) fn enter(&mut self, at_ps: Ps, event: Event) {
        self.entered += 1;
        self.heap.push(Reverse((at_ps, self.entered, event)));
    }

    pub(super) fn arrive(&mut self, at_ps: Ps, node: usize, flight: Flight) {
        let slot = self.entered;
        self.flights.insert(slot, flight);
        self.enter(at_ps, Event::Arrive { node, slot });
    }

    pub(super) fn ask(&mut self, at_ps: Ps, node: usize, ask: Ask) {
        let slot = self.entered;
        self.asks.insert(slot, ask);
        self.enter(at_ps, Event::Ask { node, slot });
    }

    pub(super) fn pop(&mut self) -> Option<(Ps, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    pub(super) fn flight(&mut self, slot: u64) -> Option<Flight> {
        self.flights.remove(&slot)
    }

    pub(super) fn asked(&mut self, slot: u64) -> Option<Ask> {
        self.asks.remove(&slot)
    }
}
