//! `mapwire bench sim`: packets a second that simulated nodes deliver on one core.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

use mapwire_sim::Random;
use mapwire_sim::pump::pump;
use serde_json::json;

use super::measure::{Effort, paired};
use super::row::{Report, Row};
use super::{BenchError, Plan};

/// Packets of a run.
const PACKETS: u64 = 200_000;
/// Bytes of a message.
const MESSAGE_BYTES: u32 = 64;
/// What each figure is compared with.
const HEAP: &str = "entries through a bare heap";

/// Nodes that send 64 bytes to their neighbours, over and over.
pub(super) fn sim(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let effort = Effort::planned(plan, 2, 15);
    for nodes in [2, 8, 64] {
        let point = || -> Result<f64, BenchError> {
            let start = Instant::now();
            let totals = pump(nodes, MESSAGE_BYTES, PACKETS)?;
            Ok(totals.packets as f64 / start.elapsed().as_secs_f64() / 1e6)
        };
        let figure = paired(effort.scattered(), || Ok(heap(usize::from(nodes))), point)?;
        let case = vec![("nodes", json!(nodes)), ("bytes", json!(MESSAGE_BYTES))];
        report.row(&Row::of(case, "Mpackets/s", HEAP, &figure));
    }
    Ok(())
}

/// Millions of entries a second that go through a heap which holds some for each node: what any agenda of events costs.
fn heap(nodes: usize) -> f64 {
    let mut random = Random::new(1);
    let mut heap: BinaryHeap<Reverse<(u64, u64)>> =
        (0..nodes as u64 * 4).map(|number| Reverse((random.below(1 << 20), number))).collect();
    let start = Instant::now();
    for number in 0..PACKETS {
        if let Some(Reverse((at, _))) = heap.pop() {
            heap.push(Reverse((at + random.below(1 << 20), number)));
        }
    }
    black_box(&heap);
    PACKETS as f64 / start.elapsed().as_secs_f64() / 1e6
}
