//! How evenly one server answers many callers that call as fast as they can.

use std::time::Duration;

use mapwire::Node;
use mapwire::rpc::{Rpc, RpcConfig};
use mapwire_host::waiting::now_ns;
use serde_json::json;

use crate::measure::Figure;
use crate::placement::Placement;
use crate::row::Report;
use crate::words::Words;
use crate::{BenchError, Plan};

const CALLERS: usize = 64;
/// The server is rank 0.
pub(super) const RANKS: usize = CALLERS + 1;

const PROGRAM: u32 = 0x2000_0101;
const VERSION: u32 = 1;

/// Lines of the shared memory: when it ends, then those of the ranks.
const ENDS_AT: usize = 0;

/// Each rank's line: whether it is connected, and how many calls it made.
const fn line(rank: usize) -> usize {
    64 * (rank + 1)
}

/// One round of all ranks. The value is the least share of a caller, as a part of the greatest.
pub(super) fn measure(plan: &Plan, node: &Node, shared: Words, report: &mut Report) -> Result<(), BenchError> {
    let rpc = Rpc::open(node, RpcConfig::default())?;
    let time = Duration::from_millis(if plan.quick { 500 } else { 4000 });
    if node.rank() > 0 {
        let caller = rpc.caller(0, PROGRAM, VERSION)?;
        let line = line(node.rank());
        shared.store(line, 1);
        let mut calls = 0_u64;
        let mut ends_at = 0;
        while ends_at == 0 || now_ns() < ends_at {
            caller.call::<()>(0, &())?;
            let seen = shared.load(ENDS_AT);
            // Calls count from the moment when all are there.
            calls = if ends_at == 0 { 0 } else { calls + 1 };
            ends_at = seen;
        }
        shared.store(line + 8, calls + 1);
        return Ok(());
    }
    let server = rpc.serve(PROGRAM, VERSION)?;
    let pause = Some(Duration::from_millis(10));
    let all = |offset: usize| (1..RANKS).all(|rank| shared.load(line(rank) + offset) > 0);
    let mut has_begun = false;
    while !all(8) {
        if let Some(mut request) = server.next(pause)? {
            request.reply(&())?;
        }
        if !has_begun && all(0) {
            has_begun = true;
            shared.store(ENDS_AT, now_ns() + time.as_nanos() as u64);
        }
    }
    let calls = || (1..RANKS).map(|rank| shared.load(line(rank) + 8) - 1);
    let least = calls().min().unwrap_or(0) as f64;
    let most = calls().max().unwrap_or(0).max(1) as f64;
    let figure = Figure {
        // All processors are in it.
        placement: (Placement::Unknown, None),
        ..Figure::of_pairs(&[(least / most, 1.0)])
    };
    let fields = vec![
        ("case", json!("fair")),
        ("ranks", json!(RANKS)),
        ("calls_per_second", json!((calls().sum::<u64>() as f64 / time.as_secs_f64()).round())),
    ];
    report.rows(&fields, "least share / greatest", "equal shares", &[figure]);
    Ok(())
}
