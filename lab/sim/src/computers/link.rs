//! Links that keep what they sent, and how long hosts take to serve misses, where a paper states ranges.

use std::collections::{BTreeMap, VecDeque};

use mapwire_wire::NodeId;

use super::nic::Step;
use super::parcel::Parcel;
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
pub(super) struct Link {
    /// The number of the next packet that is sent.
    pub(super) next: u64,
    pub(super) unacked: VecDeque<Parcel>,
    pub(super) plan: u32,
    /// The number of the next packet that is taken.
    pub(super) expects: u64,
    /// Packets that came before their turn, by number.
    pub(super) early: BTreeMap<u64, usize>,
    /// The packet that is due was dropped, and its record.
    pub(super) dropped: Option<usize>,
}

/// All links, and the misses on them.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) on_miss: OnMiss,
    /// Draws how long hosts take to serve misses, where the profile states ranges.
    random: Option<Random>,
    pub(super) nodes: usize,
    window: usize,
    links: Vec<Link>,
    pub(super) missed: Vec<Missed>,
    /// Steps of NICs that send again, or ask for it.
    pub(super) steps: Vec<VecDeque<VecDeque<Step>>>,
}

impl Links {
    pub(super) fn new(on_miss: OnMiss, nodes: usize, window: u16, miss_seed: Option<u64>) -> Self {
        let mut links = Vec::new();
        links.resize_with(nodes * nodes, Link::default);
        Self {
            on_miss,
            random: miss_seed.map(Random::new),
            nodes,
            window: usize::from(window),
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

    pub(super) fn link(&mut self, from: usize, to: usize) -> &mut Link {
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
