//! Putpages of this node that are under way, and the frames that peers grant it for them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use mapwire_wire::NodeId;

use crate::message::{MAX_GRANTS, PageInfo, Refusal};
use crate::outcome::Place;

/// Storing nodes that are asked, one after the other, to take a page.
const MAX_TRIES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The program asked, with this tag.
    Program(u64),
    /// It leaves this node, from a frame that serves others.
    Eviction,
}

#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub origin: Origin,
    pub page: PageInfo,
    pub frame: u32,
    /// The program chose the node.
    pub is_directed: bool,
    /// Copies that are not stored yet and may still be.
    pub open: u8,
    pub stored: u8,
    /// Where the last copy was stored.
    pub place: Option<Place>,
    pub why: Refusal,
    /// The page was discarded meanwhile, up to this version.
    pub discarded: Option<u32>,
    tried: Vec<NodeId>,
}

impl Put {
    pub(crate) fn new(origin: Origin, page: PageInfo, frame: u32) -> Self {
        Self {
            origin,
            page,
            frame,
            is_directed: false,
            open: 0,
            stored: 0,
            place: None,
            why: Refusal::NoDonor,
            discarded: None,
            tried: Vec::new(),
        }
    }

    fn is_of_program(&self) -> bool {
        matches!(self.origin, Origin::Program(_))
    }

    pub(crate) fn has_tried(&self, node: NodeId) -> bool {
        self.tried.contains(&node)
    }

    pub(crate) fn note_tried(&mut self, node: NodeId) {
        self.tried.push(node);
    }

    /// Whether one more node may be asked after a refusal.
    pub(crate) fn may_try_again(&self) -> bool {
        !self.is_directed && self.tried.len() < MAX_TRIES && self.discarded.is_none()
    }
}

/// One copy of a put, on its way to one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leg {
    pub put: u32,
    pub to: NodeId,
    /// The granted frame that it was sent to; `None` while it waits for one.
    pub frame: Option<u32>,
}

#[derive(Debug, Default)]
struct Credit {
    frames: Vec<u32>,
    is_wanted: bool,
    waiting: VecDeque<u32>,
}

/// Puts by number, their legs by the numbers that they carry.
#[derive(Debug, Default)]
pub(crate) struct Puts {
    puts: BTreeMap<u32, Put>,
    /// Of them, those of the program.
    of_program: usize,
    legs: BTreeMap<u32, Leg>,
    credits: BTreeMap<NodeId, Credit>,
}

impl Puts {
    pub(crate) fn len(&self) -> usize {
        self.puts.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.puts.is_empty()
    }

    pub(crate) fn of_program(&self) -> usize {
        self.of_program
    }

    pub(crate) fn insert(&mut self, number: u32, put: Put) {
        self.of_program += usize::from(put.is_of_program());
        self.puts.insert(number, put);
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Put> {
        self.puts.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Put> {
        let put = self.puts.remove(&number)?;
        self.of_program -= usize::from(put.is_of_program());
        Some(put)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Put> {
        self.puts.values_mut()
    }

    /// Adds a leg that waits for a frame. True if the node must be asked for frames.
    pub(crate) fn add_leg(&mut self, sequence: u32, put: u32, to: NodeId) -> bool {
        let frame = None;
        self.legs.insert(sequence, Leg { put, to, frame });
        let credit = self.credits.entry(to).or_default();
        credit.waiting.push_back(sequence);
        credit.frames.is_empty() && !core::mem::replace(&mut credit.is_wanted, true)
    }

    /// The next leg to a node for which there is a frame: its number, its put and the frame.
    pub(crate) fn next_ready(&mut self, to: NodeId) -> Option<(u32, u32, u32)> {
        let credit = self.credits.get_mut(&to)?;
        if credit.frames.is_empty() {
            return None;
        }
        let sequence = credit.waiting.pop_front()?;
        let leg = self.legs.get_mut(&sequence)?;
        let frame = credit.frames.pop()?;
        leg.frame = Some(frame);
        Some((sequence, leg.put, frame))
    }

    /// Takes frames that a node grants. False if they are more than it may grant.
    pub(crate) fn add_credit(&mut self, of: NodeId, frames: &[u32]) -> bool {
        let credit = self.credits.entry(of).or_default();
        credit.frames.extend_from_slice(frames);
        credit.frames.len() <= MAX_GRANTS
    }

    /// Whether a node was asked for frames, and has now answered.
    pub(crate) fn end_want(&mut self, of: NodeId) -> bool {
        let credit = self.credits.get_mut(&of);
        credit.is_some_and(|credit| core::mem::replace(&mut credit.is_wanted, false))
    }

    /// Whether a node must be asked for frames, because legs wait.
    pub(crate) fn begin_want(&mut self, of: NodeId) -> bool {
        let credit = self.credits.get_mut(&of);
        credit.is_some_and(|credit| {
            let wants = !credit.waiting.is_empty() && credit.frames.is_empty();
            wants && !core::mem::replace(&mut credit.is_wanted, true)
        })
    }

    /// Legs that wait for a frame of a node.
    pub(crate) fn waiting_for(&self, node: NodeId) -> Vec<u32> {
        let credit = self.credits.get(&node);
        credit.map_or(Vec::new(), |credit| credit.waiting.iter().copied().collect())
    }

    /// All frames that a node has granted and that are not used.
    pub(crate) fn take_credit(&mut self, of: NodeId) -> Vec<u32> {
        let credit = self.credits.get_mut(&of);
        credit.map_or(Vec::new(), |credit| core::mem::take(&mut credit.frames))
    }

    pub(crate) fn grantors(&self) -> Vec<NodeId> {
        let granted = |(&node, credit): (&NodeId, &Credit)| (!credit.frames.is_empty()).then_some(node);
        self.credits.iter().filter_map(granted).collect()
    }

    /// Frames that a node has granted and that are not used.
    pub(crate) fn credit_of(&self, node: NodeId) -> usize {
        self.credits.get(&node).map_or(0, |credit| credit.frames.len())
    }

    /// Forgets a node, and gives the legs to it: they fail.
    pub(crate) fn forget(&mut self, node: NodeId) -> Vec<u32> {
        self.credits.remove(&node);
        self.legs.iter().filter(|(_, leg)| leg.to == node).map(|(&sequence, _)| sequence).collect()
    }

    pub(crate) fn leg(&self, sequence: u32) -> Option<&Leg> {
        self.legs.get(&sequence)
    }

    pub(crate) fn end_leg(&mut self, sequence: u32) -> Option<Leg> {
        let leg = self.legs.remove(&sequence)?;
        if let Some(credit) = self.credits.get_mut(&leg.to) {
            credit.waiting.retain(|&waiting| waiting != sequence);
        }
        Some(leg)
    }

    /// All nodes that have legs or frames here.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.credits.keys().copied().collect()
    }
}
