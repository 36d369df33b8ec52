//! What becomes of packets whose pages a NIC cannot translate, where they do not wait for the host: they are dropped, and come again
//! (dynamic handle lookup §IV.A). And how long hosts take to serve misses, where a paper states ranges.
//!
//! A link keeps what it sent until the receiver has taken it. Acks take their time on the wire, and nobody's time besides: a system that
//! never drops has them, too.

use std::collections::{BTreeMap, VecDeque};

use mapwire_wire::NodeId;
use mapwire_wire::link::LINK_HEADER_BYTES;

use super::event::{Event, Happens, LinkEvent};
use super::nic::Step;
use super::parcel::Parcel;
use super::{Computers, Shape};
use crate::Random;
use crate::hardware::{Cost, Profile, Ps};

/// What becomes of a packet whose page is not in the NIC's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMiss {
    /// It stays in its buffer until the host has acted, and nothing else is taken meanwhile.
    Waits,
    /// It is dropped, as is what follows it; the sender sends all of that again when it has got no ack for so long.
    TimesOut(Ps),
    /// It is dropped, as is what follows it; when the host has acted, the receiver asks for all of that.
    AsksForAll,
    /// It is dropped, and what follows it is kept; when the host has acted, the receiver asks for the one packet.
    AsksForOne,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    pub node: NodeId,
    pub at_ps: Ps,
    /// When the host had brought in what it missed.
    pub filled_ps: Option<Ps>,
    /// When it had come again and was taken.
    pub taken_ps: Option<Ps>,
}

/// One direction between two nodes.
#[derive(Debug, Default)]
struct Link {
    /// The number of the next packet that is sent.
    next: u64,
    unacked: VecDeque<Parcel>,
    plan: u32,
    /// The number of the next packet that is taken.
    expects: u64,
    /// Packets that came before their turn, by number.
    early: BTreeMap<u64, usize>,
    /// The packet that is due was dropped, and its record.
    dropped: Option<usize>,
}

/// All links, and the misses on them.
#[derive(Debug)]
pub(super) struct Links {
    on_miss: OnMiss,
    /// Draws how long hosts take to serve misses, where the profile states ranges.
    random: Option<Random>,
    nodes: usize,
    window: usize,
    links: Vec<Link>,
    missed: Vec<Missed>,
    /// Steps of NICs that send again, or ask for it.
    steps: Vec<VecDeque<VecDeque<Step>>>,
}

impl Links {
    pub(super) fn new(shape: &Shape) -> Self {
        let nodes = usize::from(shape.nodes);
        let mut links = Vec::new();
        links.resize_with(nodes * nodes, Link::default);
        Self {
            on_miss: shape.on_miss,
            random: shape.miss_seed.map(Random::new),
            nodes,
            window: usize::from(shape.window),
            links,
            missed: Vec::new(),
            steps: (0..nodes).map(|_| VecDeque::new()).collect(),
        }
    }

    /// Whether a NIC takes nothing else while its host serves a miss.
    pub(super) fn waits(&self) -> bool {
        self.on_miss == OnMiss::Waits
    }

    /// What a NIC is to do for a link next.
    pub(super) fn next_steps(&mut self, node: usize) -> Option<VecDeque<Step>> {
        self.steps[node].pop_front()
    }

    /// Whether a NIC may send more before it has acks.
    pub(super) fn has_room(&self, from: usize) -> bool {
        let of = &self.links[from * self.nodes..(from + 1) * self.nodes];
        of.iter().all(|link| link.unacked.len() < self.window)
    }

    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from * self.nodes + to]
    }

    /// How long the thread that serves misses lets wait, and takes; nothing if that is not drawn.
    pub(super) fn draw(&mut self, profile: &Profile) -> Option<(Ps, Ps)> {
        let random = self.random.as_mut()?;
        let of = |cost| profile.of(cost);
        // All times between are as likely.
        let delay_ps = random.within(of(Cost::MissDelayLeast), of(Cost::MissDelayMost));
        let (least, most) = (of(Cost::MissProcessingLeast), of(Cost::MissProcessingMost));
        let even_percent = of(Cost::MissProcessingEven);
        let is_even = even_percent > 0 && random.chance(even_percent);
        Some((delay_ps, if is_even { random.within(least, most) } else { random.spread(least, most) }))
    }
}

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
