//! The frames of this node that serve others, and the pages in them.

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use mapwire_wire::NodeId;

use crate::ages::{age_ms, bin_of};
use crate::message::{AGE_BINS, PageInfo};
use crate::name::PageName;

/// How far a page is on its way to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// The directory node is asked whether there is another copy.
    Asking,
    /// The directory node is asked whether it still names this copy.
    Checking,
    /// It is put, under this number. The last report then had this stamp.
    Putting { number: u32, stamp: u32 },
}

/// A page that lies in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub page: PageInfo,
    pub last_use_ns: u64,
    /// Number of the last report to the directory node.
    pub stamp: u32,
    /// The directory node has confirmed that report.
    pub is_listed: bool,
    /// Who waits for that, and its number of the put.
    pub putter: Option<(NodeId, u32)>,
    /// The copy counts only if that of this node does.
    pub moved_from: Option<NodeId>,
    pub eviction: Option<Eviction>,
}

#[derive(Clone, Debug)]
enum Use {
    Idle,
    Free,
    Granted(NodeId),
    Page(Resident),
    /// A page that has been given away but may have to be taken back.
    Given(Resident),
    /// No page's any more, but still read.
    Draining,
}

#[derive(Clone, Debug)]
struct Frame {
    uses: Use,
    readers: u16,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    frame: u32,
    gives: bool,
}

/// What the frames of a node that may serve others are used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameUses {
    /// They serve nobody.
    pub idle: u32,
    /// They wait for pages.
    pub free: u32,
    /// Peers may put pages into them.
    pub granted: u32,
    /// They hold pages.
    pub pages: u32,
    /// Peers fetch what is in them, and then they are free.
    pub draining: u32,
}

/// Frames are named by their numbers in the node's memory.
#[derive(Debug)]
pub(crate) struct Pool {
    first: u32,
    frames: Vec<Frame>,
    idle: Vec<u32>,
    free: Vec<u32>,
    by_name: BTreeMap<PageName, u32>,
    by_age: BTreeSet<(u64, u32)>,
    /// By reader, and its number of the getpage.
    reads: BTreeMap<(NodeId, u32), Read>,
    granted: BTreeMap<NodeId, BTreeSet<u32>>,
    /// Frames that wait for their readers only.
    draining: usize,
    target: u32,
    stamp: u32,
}

impl Pool {
    pub(crate) fn new(first: u32, count: u32) -> Self {
        let frame = Frame { uses: Use::Idle, readers: 0 };
        Self {
            first,
            frames: alloc::vec![frame; count as usize],
            idle: (first..first + count).rev().collect(),
            free: Vec::new(),
            by_name: BTreeMap::new(),
            by_age: BTreeSet::new(),
            reads: BTreeMap::new(),
            granted: BTreeMap::new(),
            draining: 0,
            target: 0,
            stamp: 0,
        }
    }

    pub(crate) fn contains(&self, frame: u32) -> bool {
        self.index(frame).is_some()
    }

    fn index(&self, frame: u32) -> Option<usize> {
        let index = frame.checked_sub(self.first)? as usize;
        (index < self.frames.len()).then_some(index)
    }

    fn get(&mut self, frame: u32) -> Option<&mut Frame> {
        let index = self.index(frame)?;
        self.frames.get_mut(index)
    }

    /// Frames that are to serve others.
    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    /// Frames that serve others.
    pub(crate) fn serving(&self) -> u32 {
        (self.frames.len() - self.idle.len()) as u32
    }

    /// Frames that serve nobody, the next to serve first.
    pub(crate) fn idle(&self) -> impl Iterator<Item = u32> + '_ {
        self.idle.iter().rev().copied()
    }

    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Frames of which nothing more is to be done for them to become free: they wait for readers only.
    pub(crate) fn draining(&self) -> usize {
        self.draining
    }

    pub(crate) fn uses(&self) -> FrameUses {
        let mut uses = FrameUses::default();
        for frame in &self.frames {
            match frame.uses {
                Use::Idle => uses.idle += 1,
                Use::Free => uses.free += 1,
                Use::Granted(_) => uses.granted += 1,
                Use::Page(_) => uses.pages += 1,
                Use::Given(_) | Use::Draining => uses.draining += 1,
            }
        }
        uses
    }

    /// Sets how many frames are to serve others, and lets as many as possible begin or end at once.
    pub(crate) fn set_target(&mut self, target: u32) {
        self.target = target;
        while self.serving() < target
            && let Some(frame) = self.idle.pop()
        {
            self.set_use(frame, Use::Free);
            self.free.push(frame);
        }
        while self.serving() > target
            && let Some(frame) = self.free.pop()
        {
            self.set_use(frame, Use::Idle);
            self.idle.push(frame);
        }
    }

    fn set_use(&mut self, number: u32, uses: Use) {
        let Some(index) = self.index(number) else { return };
        match uses {
            Use::Granted(to) => {
                self.granted.entry(to).or_default().insert(number);
            }
            Use::Draining | Use::Given(..) => self.draining += 1,
            _ => {}
        }
        let before = core::mem::replace(&mut self.frames[index].uses, uses);
        match before {
            Use::Granted(to) => {
                if let Some(frames) = self.granted.get_mut(&to) {
                    frames.remove(&number);
                    if frames.is_empty() {
                        self.granted.remove(&to);
                    }
                }
            }
            Use::Draining | Use::Given(..) => self.draining -= 1,
            _ => {}
        }
    }

    /// The frame holds nothing from now on, and serves others again once nobody reads it.
    fn vacate(&mut self, number: u32) {
        let serves = self.serving() <= self.target;
        let Some(frame) = self.get(number) else { return };
        if frame.readers > 0 {
            self.set_use(number, Use::Draining);
        } else if serves {
            self.set_use(number, Use::Free);
            self.free.push(number);
        } else {
            self.set_use(number, Use::Idle);
            self.idle.push(number);
        }
    }

    // What peers may fill.

    /// Gives a peer a free frame to put a page into.
    pub(crate) fn grant(&mut self, to: NodeId) -> Option<u32> {
        let frame = self.free.pop()?;
        self.set_use(frame, Use::Granted(to));
        Some(frame)
    }

    pub(crate) fn granted_to(&self, peer: NodeId) -> usize {
        self.granted.get(&peer).map_or(0, BTreeSet::len)
    }

    pub(crate) fn grantees(&self) -> Vec<NodeId> {
        self.granted.keys().copied().collect()
    }

    pub(crate) fn is_granted(&self, frame: u32, to: NodeId) -> bool {
        self.granted.get(&to).is_some_and(|frames| frames.contains(&frame))
    }

    pub(crate) fn end_grant(&mut self, frame: u32) {
        self.vacate(frame);
    }

    pub(crate) fn end_grants(&mut self, of: NodeId) {
        self.granted.get(&of).cloned().unwrap_or_default().into_iter().for_each(|frame| self.vacate(frame));
    }

    // Pages.

    pub(crate) fn find(&self, name: PageName) -> Option<u32> {
        self.by_name.get(&name).copied()
    }

    pub(crate) fn resident(&self, frame: u32) -> Option<&Resident> {
        match &self.frames[self.index(frame)?].uses {
            Use::Page(resident) => Some(resident),
            _ => None,
        }
    }

    pub(crate) fn resident_mut(&mut self, frame: u32) -> Option<&mut Resident> {
        match &mut self.get(frame)?.uses {
            Use::Page(resident) => Some(resident),
            _ => None,
        }
    }

    /// All frames with pages, by name of page.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (PageName, u32)> + '_ {
        self.by_name.iter().map(|(&name, &frame)| (name, frame))
    }

    /// All frames with pages, oldest first.
    pub(crate) fn oldest(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_age.iter().map(|&(_, frame)| frame)
    }

    /// Puts a page into a frame that was granted. No frame holds a page of that name.
    pub(crate) fn put(&mut self, frame: u32, resident: Resident) {
        let name = resident.page.name;
        self.by_age.insert((resident.last_use_ns, frame));
        self.by_name.insert(name, frame);
        self.set_use(frame, Use::Page(resident));
    }

    /// Takes the page out of a frame, which then waits for its readers.
    pub(crate) fn remove(&mut self, frame: u32) -> Option<Resident> {
        let resident = *self.resident(frame)?;
        self.forget(frame, &resident);
        self.vacate(frame);
        Some(resident)
    }

    fn forget(&mut self, frame: u32, resident: &Resident) {
        self.by_age.remove(&(resident.last_use_ns, frame));
        self.by_name.remove(&resident.page.name);
    }

    /// A number for the next report of a page.
    pub(crate) fn next_stamp(&mut self) -> u32 {
        self.stamp = self.stamp.wrapping_add(1);
        self.stamp
    }

    // Readers.

    pub(crate) fn reads_of(&self, peer: NodeId) -> usize {
        self.reads.range((peer, 0)..=(peer, u32::MAX)).count()
    }

    pub(crate) fn has_readers(&self) -> bool {
        !self.reads.is_empty()
    }

    /// A peer reads a page from now on. With `gives` the page is its own then, once it has said that it came.
    pub(crate) fn begin_read(&mut self, number: u32, peer: NodeId, sequence: u32, gives: bool) {
        let Some(resident) = self.resident(number).copied() else { return };
        if gives {
            self.forget(number, &resident);
        }
        let key = (peer, sequence);
        self.reads.insert(key, Read { frame: number, gives });
        self.hold(number);
        if gives {
            self.set_use(number, Use::Given(resident));
        }
    }

    /// Whether a peer's read is under way.
    pub(crate) fn is_reading(&self, peer: NodeId, sequence: u32) -> bool {
        self.reads.contains_key(&(peer, sequence))
    }

    /// A peer reads no more. Gives the frame whose page is back, because it was not taken.
    pub(crate) fn end_read(&mut self, peer: NodeId, sequence: u32, is_taken: bool) -> Option<u32> {
        let read = self.reads.remove(&(peer, sequence))?;
        let mut back = None;
        if read.gives && !is_taken {
            back = self.take_back(read.frame);
        } else if read.gives {
            // Others may still read it.
            self.set_use(read.frame, Use::Draining);
        }
        self.unhold(read.frame);
        back
    }

    fn take_back(&mut self, number: u32) -> Option<u32> {
        let index = self.index(number)?;
        let Use::Given(resident) = self.frames[index].uses else { return None };
        if self.by_name.contains_key(&resident.page.name) {
            self.set_use(number, Use::Draining);
            return None;
        }
        self.put(number, resident);
        Some(number)
    }

    /// Ends all reads of a peer, which has taken nothing. Gives the frames whose pages are back.
    pub(crate) fn end_reads(&mut self, peer: NodeId) -> Vec<u32> {
        let reads = self.reads.range((peer, 0)..=(peer, u32::MAX));
        let sequences: Vec<_> = reads.map(|(&(_, sequence), _)| sequence).collect();
        sequences.into_iter().filter_map(|sequence| self.end_read(peer, sequence, false)).collect()
    }

    /// This node itself reads a frame.
    pub(crate) fn hold(&mut self, frame: u32) {
        if let Some(frame) = self.get(frame) {
            frame.readers += 1;
        }
    }

    pub(crate) fn unhold(&mut self, number: u32) {
        let Some(frame) = self.get(number) else { return };
        frame.readers = frame.readers.saturating_sub(1);
        if frame.readers == 0 && matches!(frame.uses, Use::Draining) {
            self.vacate(number);
        }
    }

    /// Pages by age (Feeley §3), at `now_ns`.
    pub(crate) fn ages(&self, now_ns: u64) -> [u32; AGE_BINS] {
        let mut bins = [0; AGE_BINS];
        for &(last_use_ns, _) in &self.by_age {
            bins[bin_of(age_ms(now_ns, last_use_ns))] += 1;
        }
        bins
    }
}
