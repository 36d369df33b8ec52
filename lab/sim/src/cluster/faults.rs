//! Faults that begin and end, computers that crash.

use mapwire_wire::NodeId;

use super::host::Host;
use super::{Cluster, DETECTION_NS, Delivery, Event, Observer};
use crate::canary::Canary;
use crate::coverage::Condition;
use crate::rules::Effect;

impl Cluster {
    pub(super) fn gone(&mut self, at: NodeId, of: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(at.0)];
        if host.is_alive && self.canary != Some(Canary::UntoldCrash) {
            host.node.handle_peer_gone(host.clock.shows(self.now_ns), of);
            self.settle(at, observer);
        }
    }

    pub(super) fn fault_begins(&mut self, number: u32, observer: &mut impl Observer) {
        let fault = &self.faults[number as usize];
        let (effect, end_ns) = (fault.begin(), fault.window().end_ns);
        match effect {
            // What these do is counted as it is done.
            Effect::Packets | Effect::RefusePins(..) | Effect::Forge(_) => {}
            Effect::Pause(node) | Effect::Slow(node, _) | Effect::Crash(node) | Effect::Restart(node) => {
                self.fired[number as usize] += u64::from(self.is_alive(node))
            }
        }
        match effect {
            Effect::Packets => self.active.push(number),
            Effect::Pause(node) => {
                let host = &mut self.hosts[usize::from(node.0)];
                host.free_at_ns = host.free_at_ns.max(end_ns);
            }
            Effect::Slow(node, factor) => self.hosts[usize::from(node.0)].slowness = factor.max(1),
            Effect::RefusePins(node, calls, every) => {
                let memory = &mut self.hosts[usize::from(node.0)].memory;
                memory.refuse_pins(calls, every);
            }
            Effect::Forge(node) => {
                self.hosts[usize::from(node.0)].forges = Some(number);
                self.forgeries.is_on = true;
            }
            Effect::Crash(node) => self.crash(node, observer),
            Effect::Restart(node) => {
                if self.is_alive(node) {
                    self.crash(node, observer);
                    self.active.push(number);
                }
            }
        }
    }

    pub(super) fn fault_ends(&mut self, number: u32, observer: &mut impl Observer) {
        match self.faults[number as usize].begin() {
            Effect::Packets => self.active.retain(|active| *active != number),
            Effect::Restart(node) if self.active.contains(&number) => {
                self.active.retain(|active| *active != number);
                self.restart(node, observer);
            }
            Effect::Slow(node, _) => self.hosts[usize::from(node.0)].slowness = 1,
            Effect::RefusePins(node, ..) => {
                let memory = &mut self.hosts[usize::from(node.0)].memory;
                memory.refuse_pins(0, 1);
                // All of the node so far: faults of one node are not told apart.
                self.fired[number as usize] += memory.take_refused();
            }
            Effect::Forge(_) => {
                for host in &mut self.hosts {
                    host.forges = host.forges.filter(|forges| *forges != number);
                }
            }
            Effect::Pause(_) | Effect::Crash(_) | Effect::Restart(_) => {}
        }
    }

    /// A computer stops for good; the others learn of it some time later.
    pub fn crash(&mut self, node: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(node.0)];
        if !core::mem::replace(&mut host.is_alive, false) {
            return;
        }
        while let Some(packet) = self.hosts[usize::from(node.0)].inbox.pop_front() {
            self.let_go(packet);
        }
        self.coverage.note(Condition::Crashed);
        observer.crashed(self.now_ns, node);
        if let Delivery::Lossy { tells_of_crashes: false, .. } = self.config.delivery {
            return;
        }
        let incarnation = self.incarnations[usize::from(node.0)];
        for other in 0..self.config.nodes {
            let at_ns = self.now_ns + DETECTION_NS + self.random.below(DETECTION_NS);
            let event = Event::Gone { at: NodeId(other), of: node, incarnation };
            if other != node.0 {
                self.agenda.enter(at_ns, event);
            }
        }
    }

    /// A computer that has crashed starts anew, and knows nothing of before.
    pub(super) fn restart(&mut self, node: NodeId, observer: &mut impl Observer) {
        if self.is_alive(node) {
            return;
        }
        let incarnation = &mut self.incarnations[usize::from(node.0)];
        if self.canary != Some(Canary::KeptEpoch) {
            *incarnation += 1;
        }
        let incarnation = *incarnation;
        // As the first time: that had worked.
        let made = Self::host(&self.config, node, incarnation, &mut self.random);
        if let Ok(mut host) = made {
            // Whoever forges goes on with it; while others forge, so does who starts anew, and its former self had grants.
            let Host { clock, forges, .. } = self.hosts[usize::from(node.0)];
            let forges = forges.or_else(|| self.hosts.iter().find_map(|host| host.forges));
            host.memory.hides_refusals = self.canary == Some(Canary::RefusedPin);
            self.coverage.note(Condition::Restarted);
            let keeps = |host: &Host| host.is_alive && host.node.nic().early_bytes_of(node) > 0;
            if self.hosts.iter().any(keeps) {
                self.coverage.note(Condition::RestartedEarly);
            }
            self.hosts[usize::from(node.0)] = Host { clock, forges, ..host };
            observer.restarted(self.now_ns, node);
        }
    }
}
