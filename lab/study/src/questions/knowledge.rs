//! What a trace tells of the future: when each page of a lookup is needed next, and when for the last time.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mapwire_translation::{Page, Process};

use super::{QuestionError, Source};
use crate::decode::{FIRST, Node, PAGE_ID, Selection};

/// In place of a next use where there is none.
pub const NEVER: u32 = u32::MAX;

/// Most lookups of a trace of which next uses are kept: 4 bytes each, 2 GiB in all.
pub const MOST_LOOKUPS: u64 = 1 << 29;

/// What is known of one process of a node. Times are numbers of its operations, from 1.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Future {
    /// For each lookup, in order, the operation that next needs its page, or [`NEVER`]. Empty if that was not asked for.
    pub next: Vec<u32>,
    /// For each page the last operation that needs it.
    pub last: HashMap<Page, u64>,
}

/// What is known of a trace.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    futures: HashMap<(u16, Process), Arc<Future>>,
}

impl Knowledge {
    /// The future of a process of a node; an empty one if it has no operation.
    pub fn of(&self, node: u16, process: Process) -> Arc<Future> {
        let future = self.futures.get(&(node, process));
        future.cloned().unwrap_or_default()
    }
}

/// A page of a node so far.
#[derive(Debug)]
struct Used {
    process: Process,
    page: Page,
    /// Place of its last lookup among those of its process.
    lookup: usize,
    /// Its last operation.
    operation: u64,
}

/// A node while it is gone through.
#[derive(Debug, Default)]
struct Seen {
    /// What is known of each process, and its operations.
    processes: HashMap<Process, (Future, u64)>,
    /// Pages by number.
    pages: Vec<Used>,
}

impl Seen {
    fn take(&mut self, node: &Node, next_uses: bool) {
        for id in self.pages.len()..node.pages.len() {
            let (process, page) = node.pages.name(id as u32);
            self.pages.push(Used {
                process,
                page,
                lookup: usize::MAX,
                operation: 0,
            });
        }
        for lookup in &node.chunk.lookups {
            let used = &mut self.pages[(lookup & PAGE_ID) as usize];
            let (future, operations) = self.processes.entry(used.process).or_default();
            *operations += u64::from(lookup & FIRST != 0);
            used.operation = *operations;
            if next_uses {
                // Operations are no more than lookups, of which there are fewer than 32 bits count.
                if let Some(before) = future.next.get_mut(used.lookup) {
                    *before = *operations as u32;
                }
                used.lookup = future.next.len();
                future.next.push(NEVER);
            }
        }
    }

    fn finish(self) -> impl Iterator<Item = (Process, Future)> {
        let mut processes = self.processes;
        for used in &self.pages {
            if let Some((future, _)) = processes.get_mut(&used.process) {
                future.last.insert(used.page, used.operation);
            }
        }
        processes
            .into_iter()
            .map(|(process, (future, _))| (process, future))
    }
}

/// Goes through a trace once. Last uses take memory for each page; next uses, if asked for, besides 4 bytes for each lookup.
///
/// # Errors
/// A trace that cannot be read, or with more than [`MOST_LOOKUPS`] if next uses are asked for.
pub fn knowledge(
    source: &mut impl Source,
    trace: usize,
    selection: Selection,
    next_uses: bool,
) -> Result<Knowledge, QuestionError> {
    let mut seen: HashMap<u16, Seen> = HashMap::new();
    let mut lookups = 0;
    let passed = source.pass(trace, selection, &mut |nodes| {
        let more = nodes.iter().map(|node| node.chunk.lookups.len() as u64);
        lookups += more.sum::<u64>();
        if next_uses && lookups > MOST_LOOKUPS {
            return ControlFlow::Break(());
        }
        for node in nodes {
            seen.entry(node.number).or_default().take(node, next_uses);
        }
        ControlFlow::Continue(())
    })?;
    if next_uses && lookups > MOST_LOOKUPS {
        return Err(QuestionError::TooLong {
            trace: passed.name,
            most: MOST_LOOKUPS,
        });
    }
    let futures = seen.into_iter().flat_map(|(node, seen)| {
        seen.finish()
            .map(move |(process, future)| ((node, process), Arc::new(future)))
    });
    Ok(Knowledge {
        futures: futures.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Made, sends};
    use super::*;

    #[test]
    fn next_and_last_uses_are_counted_in_operations_of_a_process() {
        let trace = sends(&[
            (0, 0, 1, 2),
            (0, 1, 1, 1),
            (0, 0, 2, 1),
            (0, 0, 1, 1),
            (0, 0, 2, 1),
        ]);
        let mut made = Made::new(vec![trace]);
        let known = knowledge(&mut made, 0, Selection::SEND_SIDE, true).unwrap();
        let future = known.of(0, Process(0));
        assert_eq!(future.next, [3, 2, 4, NEVER, NEVER]);
        assert_eq!((future.last[&Page(1)], future.last[&Page(2)]), (3, 4));
        assert_eq!(known.of(0, Process(1)).next, [NEVER]);
        assert!(known.of(7, Process(0)).next.is_empty());
        let known = knowledge(&mut made, 0, Selection::SEND_SIDE, false).unwrap();
        assert!(known.of(0, Process(0)).next.is_empty());
        assert_eq!(known.of(0, Process(0)).last, future.last);
    }
}
