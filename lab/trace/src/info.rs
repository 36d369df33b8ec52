//! What a trace is made of: how many operations and lookups, on how many pages, by whom (UTLB Table 3).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io::Read;

use mapwire_wire::{TRACE_FLAG_DIRECT, TRACE_FLAG_INLINE, TraceOp};

use crate::block::Block;
use crate::error::{Damage, ReadError};
use crate::metadata::Metadata;
use crate::pages::{PageSet, pages_of};
use crate::reader::{Summary, TraceReader};
use crate::spread::Spread;

/// Whether the pages of an operation are looked up by a NIC: those of a transfer are, other records say what its host did.
pub const fn is_transfer(op: TraceOp) -> bool {
    matches!(op, TraceOp::Send | TraceOp::Fetch | TraceOp::Receive)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCount {
    pub records: u64,
    /// Those that went by mapped memory, without the NIC.
    pub direct: u64,
    /// Pages, those of each record counted anew: the lookups of a NIC that translates page by page. Data that travel in a command
    /// have none.
    pub pages: u64,
    /// Bytes; of computing none.
    pub bytes: u64,
}

impl OpCount {
    /// Adds another count. Sums stop at the largest number.
    pub fn add(&mut self, other: &Self) {
        self.records = self.records.saturating_add(other.records);
        self.direct = self.direct.saturating_add(other.direct);
        self.pages = self.pages.saturating_add(other.pages);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([OpCount; TraceOp::ALL.len()]);

impl Counts {
    pub const fn of(&self, op: TraceOp) -> &OpCount {
        &self.0[op as usize - 1]
    }

    /// Of all transfers: sends, fetches and receives.
    pub fn transfers(&self) -> OpCount {
        let mut sum = OpCount::default();
        for op in TraceOp::ALL.into_iter().filter(|op| is_transfer(*op)) {
            sum.add(self.of(op));
        }
        sum
    }

    /// Lookups: pages of transfers.
    pub fn lookups(&self) -> u64 {
        self.transfers().pages
    }

    /// Pages of sends and fetches: what the library prepares before a transfer.
    pub const fn send_side_lookups(&self) -> u64 {
        let (sends, fetches) = (self.of(TraceOp::Send).pages, self.of(TraceOp::Fetch).pages);
        sends.saturating_add(fetches)
    }

    /// The share of transfers that went by mapped memory; 0 if there was none.
    pub fn direct_share(&self) -> f64 {
        let all = self.transfers();
        if all.records == 0 { 0.0 } else { all.direct as f64 / all.records as f64 }
    }

    fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            sum.add(more);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    pub node: u16,
    pub process: u16,
    pub counts: Counts,
    /// Nanoseconds of processor time between its calls of the shared memory.
    pub computed_ns: u64,
    pub footprint_pages: u64,
    /// Distinct pages of its sends and fetches, those included that were held for one.
    pub send_footprint_pages: u64,
}

/// One node: all its processes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    pub node: u16,
    /// Its processes that occur in the trace.
    pub processes: u64,
    pub counts: Counts,
    /// The sum of their footprints: a page of each process is a page of its own.
    pub footprint_pages: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    pub metadata: Metadata,
    /// Records, and the times of the first and the last.
    pub summary: Summary,
    /// Bytes of the good part of the file.
    pub file_bytes: u64,
    /// Why the file is not good to its end, if it is not.
    pub damage: Option<Damage>,
    pub page_bytes: u64,
    /// By node and process.
    pub processes: Vec<ProcessInfo>,
}

impl Info {
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let mut nodes: Vec<NodeInfo> = Vec::new();
        for process in &self.processes {
            if nodes.last().is_none_or(|last| last.node != process.node) {
                nodes.push(NodeInfo {
                    node: process.node,
                    processes: 0,
                    counts: Counts::default(),
                    footprint_pages: 0,
                });
            }
            if let Some(node) = nodes.last_mut() {
                node.processes += 1;
                node.counts.add(&process.counts);
                node.footprint_pages = node.footprint_pages.saturating_add(process.footprint_pages);
            }
        }
        nodes
    }

    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for process in &self.processes {
            sum.add(&process.counts);
        }
        sum
    }

    /// Nanoseconds of processor time between calls of the shared memory, of all processes.
    pub fn computed_ns(&self) -> u64 {
        self.processes.iter().map(|p| p.computed_ns).fold(0, u64::saturating_add)
    }

    pub fn footprint_pages(&self) -> u64 {
        self.processes.iter().map(|p| p.footprint_pages).fold(0, u64::saturating_add)
    }

    /// Footprint and lookups of the average node that sends or fetches, of its sends and fetches alone: UTLB Table 3. `None` without
    /// such a node.
    pub fn per_node(&self) -> Option<(f64, f64)> {
        let (mut nodes, mut footprint, mut lookups) = (Vec::new(), 0_u64, 0_u64);
        for process in &self.processes {
            let sends = process.counts.send_side_lookups();
            if sends > 0 {
                nodes.push(process.node);
            }
            footprint = footprint.saturating_add(process.send_footprint_pages);
            lookups = lookups.saturating_add(sends);
        }
        nodes.dedup();
        let mean = |sum: u64| sum as f64 / nodes.len() as f64;
        (!nodes.is_empty()).then(|| (mean(footprint), mean(lookups)))
    }
}

#[derive(Debug, Default)]
struct Tally {
    counts: Counts,
    computed_ns: u64,
    footprint: PageSet,
    send_footprint: PageSet,
}

/// Counts blocks. Its memory grows with processes and footprints, not with records.
#[derive(Debug)]
pub struct Counter {
    page_bytes: u64,
    tallies: Vec<Tally>,
    index_of: HashMap<u32, usize, BuildHasherDefault<Spread>>,
}

impl Counter {
    /// Counts pages of `page_bytes` bytes, a power of two.
    pub fn new(page_bytes: u64) -> Self {
        Self { page_bytes, tallies: Vec::new(), index_of: HashMap::default() }
    }

    pub fn count(&mut self, block: &Block<'_>) {
        let mut last = (None, 0);
        for i in 0..block.len() {
            let key = u32::from(block.node[i]) << 16 | u32::from(block.process[i]);
            if last.0 != Some(key) {
                let next = self.tallies.len();
                let index = *self.index_of.entry(key).or_insert(next);
                if index == next {
                    self.tallies.push(Tally::default());
                }
                last = (Some(key), index);
            }
            let tally = &mut self.tallies[last.1];
            let op = usize::from(block.op[i]) - 1;
            let is_shared = TraceOp::ALL[op].is_shared_memory();
            let (first, pages) = match block.flags[i] & TRACE_FLAG_INLINE {
                0 if !is_shared => pages_of(block.address[i], block.bytes[i], self.page_bytes),
                // Copied into the command, or no transfer: no page is looked up.
                _ => (0, 0),
            };
            let bytes = match TraceOp::ALL[op] {
                TraceOp::Compute => {
                    let computed = &mut tally.computed_ns;
                    *computed = computed.saturating_add(block.bytes[i]);
                    0
                }
                TraceOp::OpenShared | TraceOp::ShapeShared => 0,
                _ => block.bytes[i],
            };
            tally.counts.0[op].add(&OpCount {
                records: 1,
                direct: u64::from(block.flags[i] & TRACE_FLAG_DIRECT != 0),
                pages,
                bytes,
            });
            if is_transfer(TraceOp::ALL[op]) {
                tally.footprint.insert(first, pages);
            }
            if matches!(TraceOp::ALL[op], TraceOp::Send | TraceOp::Fetch | TraceOp::Hold) {
                tally.send_footprint.insert(first, pages);
            }
        }
    }

    pub fn processes(&self) -> Vec<ProcessInfo> {
        let mut keys: Vec<(u32, usize)> = self.index_of.iter().map(|(k, i)| (*k, *i)).collect();
        keys.sort_unstable();
        keys.into_iter()
            .map(|(key, index)| ProcessInfo {
                node: (key >> 16) as u16,
                process: key as u16,
                counts: self.tallies[index].counts,
                computed_ns: self.tallies[index].computed_ns,
                footprint_pages: self.tallies[index].footprint.len(),
                send_footprint_pages: self.tallies[index].send_footprint.len(),
            })
            .collect()
    }
}

/// Counts a whole trace. One that is cut off or damaged gives the counts of its good part, and says so.
pub fn info<R: Read>(reader: TraceReader<R>, page_bytes: u64) -> Result<Info, ReadError> {
    let mut reader = reader.keep_good_part();
    let mut counter = Counter::new(page_bytes);
    while let Some(block) = reader.next_block()? {
        counter.count(&block);
    }
    Ok(Info {
        metadata: reader.metadata().clone(),
        summary: reader.so_far(),
        file_bytes: reader.position_bytes(),
        damage: reader.damage().cloned(),
        page_bytes,
        processes: counter.processes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::TraceWriter;
    use mapwire_wire::TraceRecord;

    fn record(time: u64, place: (u16, u16), op: TraceOp, memory: (u64, u64), direct: bool) -> TraceRecord {
        TraceRecord {
            time_ns: time.into(),
            address: memory.0.into(),
            bytes: memory.1.into(),
            node: place.0.into(),
            process: place.1.into(),
            op: op as u8,
            flags: if direct { TRACE_FLAG_DIRECT } else { 0 },
            reserved: 0.into(),
        }
    }

    fn written(records: &[TraceRecord]) -> Vec<u8> {
        let mut writer = TraceWriter::new(Vec::new(), &Metadata::default()).unwrap();
        records.iter().for_each(|r| writer.push(r).unwrap());
        writer.finish().unwrap()
    }

    /// Counted by hand: node 1 has two processes, node 4 one.
    fn example() -> Vec<TraceRecord> {
        use TraceOp::{Export, Fetch, Receive, Send, Unexport};
        vec![
            record(100, (1, 0), Export, (0x10_0000, 8 * 4096), false),
            record(110, (1, 0), Send, (0x5000, 4096), false),
            record(120, (1, 0), Send, (0x5800, 4096), true),
            record(130, (1, 0), Receive, (0x10_0000, 64), false),
            record(140, (1, 1), Send, (0x5000, 4096), false),
            record(150, (4, 0), Fetch, (0x5000, 3 * 4096), true),
            record(160, (4, 0), Fetch, (0x5000, 0), false),
            record(170, (1, 0), Unexport, (0x10_0000, 8 * 4096), false),
        ]
    }

    #[test]
    fn a_trace_counted_by_hand_has_these_counts() {
        let bytes = written(&example());
        let info = info(TraceReader::new(&bytes[..], "f").unwrap(), 4096).unwrap();
        assert_eq!(info.summary, Summary { records: 8, first_ns: 100, last_ns: 170 });
        assert_eq!(info.file_bytes, bytes.len() as u64);
        assert_eq!(info.damage, None);
        let rows: Vec<_> = info
            .processes
            .iter()
            .map(|p| (p.node, p.process, p.counts.transfers().records, p.counts.lookups(), p.footprint_pages))
            .collect();
        assert_eq!(rows, [(1, 0, 3, 4, 3), (1, 1, 1, 1, 1), (4, 0, 2, 3, 3)]);
        let nodes: Vec<_> =
            info.nodes().iter().map(|n| (n.node, n.processes, n.counts.lookups(), n.footprint_pages)).collect();
        assert_eq!(nodes, [(1, 2, 5, 4), (4, 1, 3, 3)]);
        // Of sends and fetches alone: 3 and 3 pages, 4 and 3 lookups.
        assert_eq!(info.per_node(), Some((3.0, 3.5)));
        let counts = info.counts();
        assert_eq!(*counts.of(TraceOp::Export), OpCount { records: 1, direct: 0, pages: 8, bytes: 8 * 4096 });
        assert_eq!(*counts.of(TraceOp::Send), OpCount { records: 3, direct: 1, pages: 4, bytes: 3 * 4096 });
        assert!((counts.direct_share() - 2.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn larger_pages_are_fewer() {
        let bytes = written(&example());
        let info = info(TraceReader::new(&bytes[..], "f").unwrap(), 1 << 20).unwrap();
        assert_eq!((info.footprint_pages(), info.counts().lookups()), (4, 5));
    }

    #[test]
    fn a_damaged_file_gives_the_counts_of_its_good_part_and_says_so() {
        let bytes = written(&example());
        let cut = &bytes[..bytes.len() - 7];
        let info = info(TraceReader::new(cut, "f").unwrap(), 4096).unwrap();
        assert_eq!(info.summary.records, 8);
        assert_eq!(info.damage.unwrap().records, 8);
    }

    #[test]
    fn a_trace_without_records_has_no_average_node() {
        let bytes = written(&[]);
        let info = info(TraceReader::new(&bytes[..], "f").unwrap(), 4096).unwrap();
        assert_eq!(info.per_node(), None);
        assert_eq!(info.counts().direct_share(), 0.0);
    }

    #[test]
    fn memory_of_any_size_is_counted_at_once() {
        let all = record(1, (0, 0), TraceOp::Send, (0, u64::MAX), false);
        let bytes = written(&[all; 9000]);
        let info = info(TraceReader::new(&bytes[..], "f").unwrap(), 4096).unwrap();
        assert_eq!(info.footprint_pages(), 1 << 52);
        assert_eq!(info.counts().lookups(), u64::MAX, "the sum stops at the largest number");
    }
}
