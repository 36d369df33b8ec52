//! What a trace tells of the future: when each page that a transfer uses is needed next, and when for the last time.
//!
//! A use is what a library tells its policy of: a page of a transfer that is prepared, which is one that begins before its lookups, or
//! an operation of whose pages not all are held. Each lookup of such an operation is a use.

use std::collections::HashMap;
use std::sync::Arc;

use mapwire_trace::Block;
use mapwire_translation::{Page, PageRange, Process};
use mapwire_wire::TraceOp;

use crate::decode::{Decoder, Event, FIRST, Node, PAGE_ID, Pages, Selection};
use crate::study::StudyError;

/// In place of a next use where there is none.
pub const NEVER: u32 = u32::MAX;

/// Most uses of a trace of which the next is kept: 4 bytes each, 2 GiB in all.
pub const MOST_USES: u64 = 1 << 29;

/// What is known of one process of a node. Times are numbers of its preparations, from 1.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Future {
    /// For each use, in order, the preparation that next needs its page, or [`NEVER`]. Empty if that was not asked for.
    pub next: Vec<u32>,
    /// For each page the last preparation that needs it.
    pub last: HashMap<Page, u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    futures: HashMap<(u16, Process), Arc<Future>>,
}

impl Knowledge {
    /// The future of a process of a node; an empty one if it has no operation.
    pub fn of(&self, node: u16, process: Process) -> Arc<Future> {
        self.futures.get(&(node, process)).cloned().unwrap_or_default()
    }
}

#[derive(Debug)]
struct Used {
    process: Process,
    page: Page,
    /// Place of its last use among those of its process.
    place: usize,
    time: u64,
}

#[derive(Debug, Default)]
struct OfProcess {
    future: Future,
    time: u64,
    holds: Vec<PageRange>,
}

#[derive(Debug, Default)]
struct Seen {
    processes: HashMap<Process, OfProcess>,
    pages: Vec<Used>,
    uses: u64,
}

impl Seen {
    fn take(&mut self, node: &Node, next_uses: bool) {
        for id in self.pages.len()..node.pages.len() {
            let (process, page) = node.pages.name(id as u32);
            self.pages.push(Used { process, page, place: usize::MAX, time: 0 });
        }
        let lookups = node.chunk.lookups.as_slice();
        let mut events = node.chunk.events.iter().peekable();
        let mut at = 0;
        while at < lookups.len() {
            while let Some(event) = events.next_if(|event| event.at <= at) {
                self.event(event, &node.pages, next_uses);
            }
            let others = lookups[at + 1..].iter().take_while(|lookup| *lookup & FIRST == 0);
            let operation = &lookups[at..at + 1 + others.count()];
            at += operation.len();
            let (process, first) = node.pages.name(operation[0] & PAGE_ID);
            let range = PageRange { first, count: operation.len() as u64 };
            let of_process = self.processes.entry(process).or_default();
            let is_held = |page| of_process.holds.iter().any(|held| held.contains(page));
            if of_process.holds.is_empty() || !range.iter().all(is_held) {
                self.prepare(process, operation.iter().map(|lookup| lookup & PAGE_ID), next_uses);
            }
        }
        events.for_each(|event| self.event(event, &node.pages, next_uses));
    }

    fn event(&mut self, event: &Event, pages: &Pages, next_uses: bool) {
        let held = match event.op {
            TraceOp::Hold => {
                let ids = event.range.iter().filter_map(|page| pages.find(event.process, page));
                self.prepare(event.process, ids, next_uses);
                let held = &mut self.processes.entry(event.process).or_default().holds;
                return held.push(event.range);
            }
            TraceOp::Release => &mut self.processes.entry(event.process).or_default().holds,
            _ => return,
        };
        if let Some(at) = held.iter().position(|held| *held == event.range) {
            held.swap_remove(at);
        }
    }

    fn prepare(&mut self, process: Process, ids: impl Iterator<Item = u32>, next_uses: bool) {
        let of_process = self.processes.entry(process).or_default();
        of_process.time += 1;
        for id in ids {
            let used = &mut self.pages[id as usize];
            used.time = of_process.time;
            self.uses += 1;
            if next_uses {
                let next = &mut of_process.future.next;
                // Preparations are no more than uses, of which there are fewer than 32 bits count.
                if let Some(before) = next.get_mut(used.place) {
                    *before = of_process.time as u32;
                }
                used.place = next.len();
                next.push(NEVER);
            }
        }
    }

    fn finish(self) -> impl Iterator<Item = (Process, Future)> {
        let mut processes = self.processes;
        for used in self.pages.iter().filter(|used| used.time > 0) {
            if let Some(of_process) = processes.get_mut(&used.process) {
                of_process.future.last.insert(used.page, used.time);
            }
        }
        processes.into_iter().map(|(process, of_process)| (process, of_process.future))
    }
}

/// Goes through a trace once. Last uses take memory for each page; next uses, if asked for, besides 4 bytes for each use.
#[derive(Debug)]
pub struct Learner {
    decoder: Decoder,
    seen: HashMap<u16, Seen>,
    next_uses: bool,
}

impl Learner {
    pub fn new(selection: Selection, next_uses: bool) -> Self {
        Learner { decoder: Decoder::new(selection), seen: HashMap::new(), next_uses }
    }

    /// Takes the records of a block.
    ///
    /// # Errors
    /// A record that cannot be studied; more than [`MOST_USES`] if next uses are asked for.
    pub fn take(&mut self, block: &Block<'_>) -> Result<(), StudyError> {
        let mut done = 0;
        while done < block.len() {
            done = self.decoder.take(block, done)?;
            if self.decoder.is_full() {
                self.learn();
            }
        }
        let uses: u64 = self.seen.values().map(|seen| seen.uses).sum();
        if self.next_uses && uses > MOST_USES { Err(StudyError::TooLong { most: MOST_USES }) } else { Ok(()) }
    }

    pub fn finish(mut self) -> Knowledge {
        self.learn();
        let futures = self
            .seen
            .into_iter()
            .flat_map(|(node, seen)| seen.finish().map(move |(process, future)| ((node, process), Arc::new(future))));
        Knowledge { futures: futures.collect() }
    }

    fn learn(&mut self) {
        for node in self.decoder.nodes() {
            let seen = self.seen.entry(node.number).or_default();
            seen.take(node, self.next_uses);
        }
        self.decoder.clear();
    }
}

#[cfg(test)]
pub(super) fn learned(records: &[crate::testing::Record], next_uses: bool) -> Knowledge {
    let mut learner = Learner::new(Selection::SEND_SIDE, next_uses);
    crate::testing::blocks(records, |block| learner.take(block)).unwrap();
    learner.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sends;

    #[test]
    fn what_is_held_is_used_when_its_transfer_begins_and_not_when_it_is_looked_up() {
        let (hold, release, send) = (TraceOp::Hold, TraceOp::Release, TraceOp::Send);
        let operations = [(hold, 1, 2), (send, 1, 1), (send, 2, 2), (send, 1, 2), (release, 1, 2), (send, 1, 1)];
        let trace = operations.map(|(op, page, count)| (0, 0, op, page, count));
        let future = learned(&trace, true).of(0, Process(0));
        // Preparations: the hold of 1 and 2; the send of 2 and 3, as 3 is not held; the last send.
        assert_eq!(future.next, [3, 2, NEVER, NEVER, NEVER]);
        assert_eq!(future.last[&Page(2)], 2);
    }

    #[test]
    fn next_and_last_uses_are_counted_in_preparations_of_a_process() {
        let trace = [(0, 1, 2), (1, 1, 1), (0, 2, 1), (0, 1, 1), (0, 2, 1)];
        let trace = trace.map(|(process, page, count)| (0, process, page, count));
        let known = learned(&sends(&trace), true);
        let future = known.of(0, Process(0));
        assert_eq!(future.next, [3, 2, 4, NEVER, NEVER]);
        assert_eq!((future.last[&Page(1)], future.last[&Page(2)]), (3, 4));
        assert_eq!(known.of(0, Process(1)).next, [NEVER]);
        assert!(known.of(7, Process(0)).next.is_empty());
        let without = learned(&sends(&trace), false).of(0, Process(0));
        assert!(without.next.is_empty());
        assert_eq!(without.last, future.last);
    }
}
