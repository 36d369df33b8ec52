//! What nodes ask for is done, until they ask for nothing more; and their timers.

use mapwire_node::{Act, NoPayload};
use mapwire_wire::{Endpoint, NodeId, ProcessId};

use super::{Cluster, Event, Observer, PACKET_NS, PIN_CALL_NS, PIN_PAGE_NS, StoreBy};
use crate::canary::Canary;

impl Cluster {
    /// A transport that was full has room.
    pub(super) fn room(&mut self, number: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(number.0)];
        host.has_room_event = false;
        if host.is_alive && self.canary != Some(Canary::NeverRetried) {
            host.node.retry_blocked();
            self.settle(number, observer);
        }
    }

    pub(super) fn timer(&mut self, number: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(number.0)];
        if !host.is_alive || host.timer_ns != Some(self.now_ns) {
            return;
        }
        host.timer_ns = None;
        if host.free_at_ns > self.now_ns {
            host.timer_ns = Some(host.free_at_ns);
            self.agenda.enter(host.free_at_ns, Event::Timer(number));
            return;
        }
        if self.canary == Some(Canary::LostTimer) {
            return;
        }
        let clock_ns = host.clock.shows(self.now_ns);
        host.node.handle_time(clock_ns);
        if let Some(wrap) = &mut host.wrap {
            wrap.0.handle_time(clock_ns);
        }
        self.settle(number, observer);
    }

    /// Carries out what a node asks for, until it asks for nothing more.
    pub fn settle(&mut self, number: NodeId, observer: &mut impl Observer) {
        loop {
            let mut did = self.serve_commands(number);
            did |= self.drain(number, observer);
            did |= self.transmit(number, observer);
            did |= self.serve_misses(number);
            // A command may have failed as it was cut.
            did |= self.hosts[usize::from(number.0)].node.has_told();
            if !did {
                break;
            }
        }
        let now_ns = self.now_ns;
        let host = &mut self.hosts[usize::from(number.0)];
        if host.node.owes_pages() {
            host.node.reclaim(&mut host.memory, |_| {});
        }
        let costs = host.memory.take_costs();
        let cost_ns = costs.calls * PIN_CALL_NS + costs.pages * PIN_PAGE_NS;
        host.free_at_ns = host.free_at_ns.max(now_ns) + cost_ns * host.slowness;
        while let Some((process, page)) = host.memory.take_unpinned() {
            let at = Endpoint { node: number, process: ProcessId(process) };
            observer.unpinned(now_ns, at, page);
        }
        let of_wrap = host.wrap.as_ref().and_then(|wrap| wrap.0.poll_at());
        if let Some(at) = host.node.poll_at().into_iter().chain(of_wrap).min() {
            let at_ns = host.clock.time_of(at).max(now_ns + 1);
            if host.timer_ns.is_none_or(|timer| timer > at_ns) {
                host.timer_ns = Some(at_ns);
                self.agenda.enter(at_ns, Event::Timer(number));
            }
        }
    }

    pub(super) fn serve_commands(&mut self, number: NodeId) -> bool {
        let host = &mut self.hosts[usize::from(number.0)];
        let mut served = 0;
        for (process, commands) in (0..).zip(&mut host.commands) {
            served += commands.serve(&mut host.node, ProcessId(process));
        }
        host.free_at_ns = host.free_at_ns.max(self.now_ns) + served * PACKET_NS * host.slowness;
        served > 0
    }

    pub(super) fn drain(&mut self, number: NodeId, observer: &mut impl Observer) -> bool {
        let mut did = false;
        let host = &mut self.hosts[usize::from(number.0)];
        let clock_ns = host.clock.shows(self.now_ns);
        Self::moves(self.now_ns, number, host, &self.packets, self.canary, observer);
        while let Some(told) = host.node.poll_told(&NoPayload, || clock_ns) {
            did = true;
            Self::tell(self.now_ns, number, self.canary, &mut self.random, &told, observer);
        }
        let mut stored = Vec::new();
        let mut fetched = Vec::new();
        while let Some(ask) = host.node.poll_ask() {
            did = true;
            if let Act::Store { to, region, .. } = ask.act {
                match observer.store(self.now_ns, number, &ask) {
                    StoreBy::Nothing { is_claimed } => {
                        host.node.handle_stored(ask.process, is_claimed);
                    }
                    StoreBy::Place { from, to: address } => {
                        let mut bytes = vec![0; region.bytes as usize];
                        host.memory.read(ask.process.0, from, &mut bytes);
                        host.node.handle_stored(ask.process, true);
                        stored.push((to, address, bytes));
                    }
                    StoreBy::Import(import, address) => {
                        let memory = &mut host.memory;
                        // The service is told if it fails.
                        let _ = host.node.store_by_import(ask.process, memory, import, address);
                    }
                }
            }
            match ask.act {
                Act::StoreChanges { handler, to, region, copy } => {
                    let parts = host.memory.changes(ask.process.0, region, copy);
                    host.node.handle_changes(ask.process, handler, region.offset, &parts);
                    match observer.store(self.now_ns, number, &ask) {
                        StoreBy::Nothing { is_claimed } => host.node.handle_stored(ask.process, is_claimed),
                        StoreBy::Place { from, to: address } => {
                            for (start, length) in parts {
                                let mut bytes = vec![0; length as usize];
                                host.memory.read(ask.process.0, from + start, &mut bytes);
                                stored.push((to, address + start, bytes));
                            }
                            host.node.handle_stored(ask.process, true);
                        }
                        StoreBy::Import(import, address) => {
                            let memory = &mut host.memory;
                            // The service is told if it fails.
                            let _ = host.node.store_changes_by_import(ask.process, memory, (import, address), &parts);
                        }
                    }
                }
                Act::Fetch { from, region, .. } => match observer.store(self.now_ns, number, &ask) {
                    StoreBy::Nothing { is_claimed } => host.node.handle_fetched(ask.process, is_claimed),
                    StoreBy::Place { from: here, to: there } => {
                        fetched.push((ask.process, here, from, there, region.bytes))
                    }
                    StoreBy::Import(import, address) => {
                        let memory = &mut host.memory;
                        let _ = host.node.fetch_by_import(ask.process, memory, import, address);
                    }
                },
                Act::Change { change, .. } => {
                    let at = Endpoint { node: number, process: ask.process };
                    for change in observer.changes(at, change) {
                        host.memory.change(ask.process.0, change);
                    }
                }
                _ => {}
            }
            let is_untold = self.canary == Some(Canary::UntoldRevoke) && matches!(ask.act, Act::Revoked { .. });
            if !is_untold {
                observer.asked(self.now_ns, number, &ask);
            }
        }
        // Nothing that was sent behind them has left yet.
        for (to, address, bytes) in stored {
            let peer = &mut self.hosts[usize::from(to.node.0)];
            peer.memory.write(to.process.0, address, &bytes);
        }
        for (process, here, from, there, length) in fetched {
            let mut bytes = vec![0; length as usize];
            self.hosts[usize::from(from.node.0)].memory.read(from.process.0, there, &mut bytes);
            let host = &mut self.hosts[usize::from(number.0)];
            host.memory.write(process.0, here, &bytes);
            host.node.handle_fetched(process, true);
        }
        did
    }

    pub(super) fn serve_misses(&mut self, number: NodeId) -> bool {
        let host = &mut self.hosts[usize::from(number.0)];
        host.node.has_misses()
            && self.canary != Some(Canary::UnservedMiss)
            && host.node.serve_misses(&mut host.memory, |_| {})
    }
}
