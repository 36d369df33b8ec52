//! Calls of programs as a trace has them: who sends and fetches when, how much, and from where in a page.
//!
//! A trace does not name receivers, and its memory lies anywhere. So each process exports at the start and imports from its neighbours;
//! what it sends goes to one of them, into the lane that it has there, in parts of at most [`PART_BYTES`]. What a trace says of arrivals,
//! exports and pinned pages follows from that, and is passed over.

use mapwire_wire::{TraceOp, TraceRecord};
use thiserror::Error;

use crate::checks::bounds::{LANE_DATA, STATIC_BYTES};
use crate::cluster::MOST_NODES;
use crate::random::{Random, mix};
use crate::workload::deed::{Call, Deed};

/// Bytes of a lane of an export.
pub(crate) const LANE_BYTES: u64 = 12_288;
/// Bytes of a send at most; fetches are as long as what exports keep unchanged.
pub const PART_BYTES: u64 = LANE_BYTES - LANE_DATA;
/// Calls at most.
const MOST_CALLS: usize = 10_000_000;
/// Processes of a node at most.
const MOST_PROCESSES: u16 = 64;
/// Exports and imports of each process at the start, and how long they have.
const EXPORTS: u64 = 4;
const IMPORTS: u64 = 16;
const START_NS: u64 = 1_000_000;

/// A trace that cannot be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    #[error("record {record} is of node {node}; a simulated cluster has nodes 0 to {most}", most = MOST_NODES - 1)]
    Node { record: u64, node: u16 },
    #[error("record {record} is of process {process}; a simulated node has processes 0 to {most}", most = MOST_PROCESSES - 1)]
    Process { record: u64, process: u16 },
    #[error("record {record} would be call {MOST_CALLS} of the run, which is too long: replay its beginning only")]
    Long { record: u64 },
    #[error("the trace has {0} records, and no send or fetch among them")]
    Nothing(u64),
    #[error("the trace has {has} nodes, more than the {given} that were asked for")]
    Few { has: u16, given: u16 },
}

/// One transfer of the trace.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    at_ns: u64,
    node: u16,
    process: u16,
    deed: Deed,
}

/// A trace, as calls of programs.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    records: u64,
    nodes: u16,
    processes: u16,
    first_ns: u64,
    transfers: Vec<Transfer>,
}

impl Replay {
    pub fn push(&mut self, record: &TraceRecord) -> Result<(), ReplayError> {
        let number = self.records;
        self.records += 1;
        let (node, process) = (record.node.get(), record.process.get());
        if node >= MOST_NODES {
            return Err(ReplayError::Node { record: number, node });
        }
        if process >= MOST_PROCESSES {
            return Err(ReplayError::Process { record: number, process });
        }
        self.nodes = self.nodes.max(node + 1);
        self.processes = self.processes.max(process + 1);
        let deed: fn(u64, u64) -> Deed = match record.op() {
            Some(TraceOp::Send) => |length, shift| Deed::Send { length, shift },
            Some(TraceOp::Fetch) => |length, shift| Deed::Fetch { length, shift },
            _ => return Ok(()),
        };
        let most = match record.op() {
            Some(TraceOp::Fetch) => STATIC_BYTES,
            _ => PART_BYTES,
        };
        if self.transfers.is_empty() {
            self.first_ns = record.time_ns.get();
        }
        let (mut address, mut left) = (record.address.get(), record.bytes.get());
        while left > 0 {
            if self.transfers.len() == MOST_CALLS {
                return Err(ReplayError::Long { record: number });
            }
            let length = left.min(most);
            self.transfers.push(Transfer {
                at_ns: record.time_ns.get().saturating_sub(self.first_ns),
                node,
                process,
                deed: deed(length, (address % 4096) & !7),
            });
            (address, left) = (address.wrapping_add(length), left - length);
        }
        Ok(())
    }

    /// Transfers so far, longer ones in their parts.
    pub fn calls(&self) -> usize {
        self.transfers.len()
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// Nodes and processes of the cluster: `nodes` if given, and at least two.
    pub(crate) fn shape(&self, nodes: Option<u16>) -> Result<(u16, u16), ReplayError> {
        if self.transfers.is_empty() {
            return Err(ReplayError::Nothing(self.records));
        }
        match nodes {
            Some(given) if given < self.nodes => Err(ReplayError::Few { has: self.nodes, given }),
            Some(given) => Ok((given, self.processes)),
            None => Ok((self.nodes.max(2), self.processes)),
        }
    }

    /// The calls, in order of time, and the time of the last.
    pub(crate) fn calls_of(&self, random: &mut Random, nodes: u16) -> (Vec<Call>, u64) {
        let count = u32::from(nodes) * u32::from(self.processes);
        let seed = random.next();
        let mut calls = Vec::with_capacity(self.transfers.len());
        for process in 0..count {
            for (deed, times) in [(Deed::Export, EXPORTS), (Deed::Import, IMPORTS)] {
                calls.extend((0..times).map(|_| Call {
                    at_ns: random.below(START_NS / 2),
                    process,
                    seed: random.next(),
                    deed: Some(deed),
                }));
            }
        }
        calls.sort_by_key(|call| call.at_ns);
        let transfers = (0..).zip(&self.transfers);
        calls.extend(transfers.map(|(number, transfer)| Call {
            at_ns: START_NS + transfer.at_ns,
            process: u32::from(transfer.node) * u32::from(self.processes) + u32::from(transfer.process),
            seed: mix(seed ^ number),
            deed: Some(transfer.deed),
        }));
        let last_ns = calls.last().map_or(START_NS, |call| call.at_ns);
        (calls, last_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(time_ns: u64, node: u16, op: TraceOp, address: u64, bytes: u64) -> TraceRecord {
        TraceRecord {
            time_ns: time_ns.into(),
            node: node.into(),
            process: 1.into(),
            op: op as u8,
            flags: 0,
            reserved: 0.into(),
            address: address.into(),
            bytes: bytes.into(),
        }
    }

    #[test]
    fn sends_and_fetches_become_calls_in_parts_and_the_rest_is_passed_over() {
        let mut replay = Replay::default();
        for record in [
            record(70, 0, TraceOp::Export, 0, 100),
            record(90, 2, TraceOp::Send, 0x7fff_0000_1018, 30_000),
            record(95, 1, TraceOp::Fetch, 8, 2_049),
        ] {
            replay.push(&record).unwrap();
        }
        assert_eq!((replay.records(), replay.calls()), (3, 5));
        assert_eq!(replay.shape(None).unwrap(), (3, 2));
        assert!(matches!(replay.shape(Some(2)), Err(ReplayError::Few { has: 3, given: 2 })));
        let (calls, last_ns) = replay.calls_of(&mut Random::new(1), 3);
        let sent: Vec<_> = calls[calls.len() - 5..].iter().map(|call| call.deed.unwrap()).collect();
        let send = |length, shift| Deed::Send { length, shift };
        let fetch = |length, shift| Deed::Fetch { length, shift };
        let after = (0x18 + PART_BYTES) % 4096;
        assert_eq!(sent[0], send(PART_BYTES, 0x18));
        assert_eq!(sent[1], send(PART_BYTES, after & !7));
        assert_eq!(sent[3..], [fetch(2_048, 8), fetch(1, 2_056)]);
        assert_eq!(last_ns, START_NS + 5);
        assert!(calls.is_sorted_by_key(|call| call.at_ns));
    }

    #[test]
    fn what_no_cluster_has_room_for_is_named() {
        let mut replay = Replay::default();
        let error = replay.push(&record(0, 5_000, TraceOp::Send, 0, 1)).unwrap_err();
        let says = "record 0 is of node 5000; a simulated cluster has nodes 0 to 4095";
        assert_eq!(error.to_string(), says);
        let error = replay.shape(None).unwrap_err().to_string();
        assert_eq!(error, "the trace has 1 records, and no send or fetch among them");
    }
}
