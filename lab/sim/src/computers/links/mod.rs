//! What becomes of packets whose pages a NIC cannot translate, where they do not wait for the host: they are dropped, and come again
//! (dynamic handle lookup §IV.A).
//!
//! A link keeps what it sent until the receiver has taken it. Acks take their time on the wire, and nobody's time besides: a system that
//! never drops has them, too.

use std::collections::VecDeque;

use mapwire_wire::NodeId;
use mapwire_wire::link::LINK_HEADER_BYTES;

use super::Computers;
use super::event::{Event, Happens, LinkEvent};
use super::link::{Missed, OnMiss};
use super::nic::Step;
use super::parcel::Parcel;
use crate::hardware::{Cost, Ps};

/// What a NIC does with a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    /// It is kept until then.
    Kept,
    /// It is dropped: it has been taken, or one before it is missing.
    Never,
}

impl Computers {
    /// The packets that missed, in the order in which they did.
    pub fn missed(&self) -> &[Missed] {
        &self.resends.missed
    }

    /// A packet gets its number, and is kept for as long as it may have to be sent again.
    pub(super) fn enlist(&mut self, node: usize, parcel: &mut Parcel) {
        if self.resends.waits() || parcel.sequence.is_some() {
            return;
        }
        let link = self.resends.link(node, usize::from(parcel.packet.to.0));
        parcel.sequence = Some(link.next);
        link.next += 1;
        link.unacked.push_back(parcel.clone());
        if link.unacked.len() == 1 {
            self.arm(node, usize::from(parcel.packet.to.0));
        }
    }

    /// Starts the sender's time anew.
    fn arm(&mut self, from: usize, to: usize) {
        let OnMiss::TimesOut(after_ps) = self.resends.on_miss else { return };
        let link = self.resends.link(from, to);
        link.plan += 1;
        if !link.unacked.is_empty() {
            let what = Happens::TimedOut(link.plan);
            self.enter_link(after_ps, LinkEvent { from, to, what });
        }
    }

    /// Whether a packet that came may be taken now.
    pub(super) fn turn(&mut self, node: usize, slot: usize) -> Turn {
        let Some(parcel) = &self.flights[slot] else { return Turn::Never };
        let Some(number) = parcel.sequence else { return Turn::Now };
        let from = usize::from(parcel.packet.from.0);
        let keeps = self.resends.on_miss == OnMiss::AsksForOne;
        let link = self.resends.link(from, node);
        match number.cmp(&link.expects) {
            core::cmp::Ordering::Equal => Turn::Now,
            core::cmp::Ordering::Greater if keeps && !link.early.contains_key(&number) => {
                link.early.insert(number, slot);
                // It lies beside the buffers, else the one before it would find none.
                self.give_buffer(node);
                Turn::Kept
            }
            _ => Turn::Never,
        }
    }

    /// A packet whose turn it is was not taken: it is dropped.
    pub(super) fn drop_packet(&mut self, node: usize, slot: usize) {
        let Some(parcel) = &self.flights[slot] else { return };
        let from = usize::from(parcel.packet.from.0);
        let record = self.resends.missed.len();
        let link = self.resends.link(from, node);
        if link.dropped.is_none() {
            link.dropped = Some(record);
            self.resends.missed.push(Missed {
                node: NodeId(node as u16),
                at_ps: self.now_ps,
                filled_ps: None,
                taken_ps: None,
            });
        }
        self.free_buffer(slot);
    }

    /// A packet was taken: its sender learns of it, and the next may be there already.
    pub(super) fn packet_taken(&mut self, node: usize, slot: usize) {
        let Some(parcel) = &self.flights[slot] else { return };
        let (from, Some(number)) = (usize::from(parcel.packet.from.0), parcel.sequence) else { return };
        let now_ps = self.now_ps;
        let link = self.resends.link(from, node);
        link.expects = number + 1;
        let early = link.early.remove(&link.expects);
        let dropped = link.dropped.take();
        if let Some(record) = dropped {
            self.resends.missed[record].taken_ps = Some(now_ps);
        }
        if let Some(slot) = early {
            self.computers[node].port.coming += 1;
            self.computers[node].nic.inbox.push_front(slot);
        }
        let what = Happens::Acked(number + 1);
        self.enter_link(self.control_ps(), LinkEvent { from, to: node, what });
    }

    /// How long a datagram without data is on its way.
    fn control_ps(&self) -> Ps {
        let bytes = LINK_HEADER_BYTES as u64 + self.profile.of(Cost::HeaderBytes);
        self.profile.wire(bytes) + self.profile.of(Cost::WireLatency)
    }

    /// The host has brought in what a NIC missed: it asks for what it dropped, if it is one that asks.
    pub(super) fn ask_for_dropped(&mut self, node: usize) {
        for from in 0..self.resends.nodes {
            let link = self.resends.link(from, node);
            let (Some(record), first) = (link.dropped, link.expects) else { continue };
            let now_ps = self.now_ps;
            self.resends.missed[record].filled_ps.get_or_insert(now_ps);
            if matches!(self.resends.on_miss, OnMiss::AsksForAll | OnMiss::AsksForOne) {
                let work = self.profile.of(Cost::NicHeader) + self.profile.of(Cost::NicStartNetwork);
                let ask = Step::Ask { from, first };
                let steps = [Step::Work(work, "asks again"), ask].into();
                self.resends.steps[node].push_back(steps);
            }
        }
    }

    /// A NIC has put its request on the wire.
    pub(super) fn asked(&mut self, to: usize, from: usize, first: u64) {
        let what = Happens::Asked(first);
        self.enter_link(self.control_ps(), LinkEvent { from, to, what });
    }

    fn enter_link(&mut self, after_ps: Ps, event: LinkEvent) {
        self.agenda.enter(self.now_ps + after_ps, Event::Link(event));
    }

    pub(super) fn link_event(&mut self, LinkEvent { from, to, what }: LinkEvent) {
        match what {
            Happens::Acked(next) => {
                let link = self.resends.link(from, to);
                let before = link.unacked.len();
                link.unacked.retain(|parcel| parcel.sequence.is_some_and(|number| number >= next));
                if link.unacked.len() < before {
                    self.arm(from, to);
                    self.wake_nic(from);
                }
            }
            Happens::Asked(first) => {
                let takes = self.profile.of(Cost::NicTakePacket);
                let most = match self.resends.on_miss {
                    OnMiss::AsksForOne => 1,
                    _ => usize::MAX,
                };
                self.send_again(from, to, first, most, takes);
            }
            Happens::TimedOut(plan) => {
                if self.resends.link(from, to).plan == plan {
                    self.send_again(from, to, 0, usize::MAX, 0);
                    self.arm(from, to);
                }
            }
        }
    }

    /// Lets a NIC send packets again that it keeps, from a number on.
    fn send_again(&mut self, from: usize, to: usize, first: u64, most: usize, before_ps: Ps) {
        let resend = Step::Resend { to, first, most };
        let steps = [Step::Work(before_ps, "is asked again"), resend].into();
        self.resends.steps[from].push_back(steps);
        self.wake_nic(from);
    }

    /// The steps of that: all that was sent by now, as nothing else goes out before they are done.
    pub(super) fn resend(&mut self, from: usize, to: usize, first: u64, most: usize) -> VecDeque<Step> {
        let start_ps = self.profile.of(Cost::NicStartNetwork);
        let kept = self.resends.link(from, to).unacked.iter();
        let again = kept.filter(|parcel| parcel.sequence.is_some_and(|number| number >= first));
        let steps = again.take(most).flat_map(|parcel| {
            let start = Step::Work(start_ps, "sends again");
            [start, Step::Again(parcel.clone())]
        });
        steps.collect()
    }
}

#[cfg(test)]
mod tests;
