//! `passing`: much memory that one rank writes and another then reads.

use std::hint::black_box;
use std::time::Instant;

use mapwire::{AllocOptions, Node, Shared, SharedSlice, Unit};
use mapwire_host::mapping::{Mapping, Rights};
use mapwire_settings::Transport;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde_json::json;

use super::job::{self, Job, Order, Steps, in_step, join, role};
use super::loops::Message;
use super::measure::Effort;
use super::row::Report;
use super::udp::Datagrams;
use super::words::Words;
use super::{BenchError, Plan};

/// Bytes that are accessed at a time, and how many such parts are fetched ahead.
const PART_BYTES: usize = 64 << 10;
const AHEAD: usize = 8;
/// Bytes of a minipage: larger ones move as a whole.
const MINIPAGE_BYTES: usize = 1 << 20;
/// Bytes of a message of the baseline between hosts.
const MESSAGE_BYTES: usize = 1 << 20;

/// Both ranks allocate as much; then rank 0 writes it and rank 1 reads it.
const ALLOCATE: u64 = 1;
const WRITE: u64 = 2;
const READ: u64 = 3;
/// Datagrams from rank 0 to rank 1.
const STREAM: u64 = 4;

struct Station {
    node: Node,
    shared: Shared,
    parts: Vec<SharedSlice<u8>>,
    /// As long as a part.
    buffer: Vec<u8>,
    datagrams: Option<Datagrams>,
    memory: Words,
}

impl Station {
    /// Accesses one part after the other, with the next on their way.
    fn pass(&mut self, writes: bool) -> Result<(), BenchError> {
        let Self { shared, parts, buffer, .. } = self;
        for at in 0..parts.len() + AHEAD {
            if let Some(next) = parts.get(at) {
                if writes { shared.prefetch_to_write(next)? } else { shared.prefetch(next)? }
            }
            let Some(part) = at.checked_sub(AHEAD).map(|at| &parts[at]) else { continue };
            if writes { part.write_from(0, buffer)? } else { part.read_into(0, buffer)? }
        }
        black_box(buffer);
        Ok(())
    }
}

impl job::Part for Station {
    fn carry_out(&mut self, order: Order, _steps: &Steps) -> Result<f64, BenchError> {
        let rank = self.node.rank();
        let bytes = order.bytes as usize;
        match order.what {
            ALLOCATE => {
                self.parts.clear();
                let part_bytes = self.buffer.len();
                let each = if part_bytes == MINIPAGE_BYTES { part_bytes } else { bytes };
                for _ in 0..bytes / each {
                    let whole = AllocOptions::new().unit(Unit::Whole);
                    let mine = (rank == 0).then(|| self.shared.alloc_with(each, &whole)).transpose()?;
                    let all = self.shared.broadcast_slice(0, mine)?;
                    for at in (0..each).step_by(part_bytes) {
                        self.parts.push(all.part(at, part_bytes)?);
                    }
                }
            }
            WRITE if rank == 0 => self.pass(true)?,
            READ => {
                self.shared.barrier()?;
                if rank == 1 {
                    self.pass(false)?;
                }
            }
            STREAM => {
                let Some(datagrams) = &mut self.datagrams else { return Ok(0.0) };
                let message = vec![1; MESSAGE_BYTES];
                for _ in 0..bytes / MESSAGE_BYTES {
                    match rank {
                        0 => datagrams.send(&message, Message { at: 0, number: 0, is_stream: true })?,
                        _ => datagrams.take(self.memory, MESSAGE_BYTES, MESSAGE_BYTES)?,
                    }
                }
            }
            _ => {}
        }
        Ok(0.0)
    }

    fn idle(&self) {
        self.node.poll();
    }
}

/// Seconds to write a fresh file of memory by one mapping and read it by another.
fn by_two_mappings(bytes: usize, buffer: &mut [u8]) -> Result<f64, BenchError> {
    let file = memfd_create("mapwire-bench", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes as u64)?;
    let mappings = [(); 2].map(|()| Mapping::shared(&file, 0, bytes, Rights::ReadWrite));
    let [there, here] = mappings;
    let (there, here) = (there?, here?);
    let start = Instant::now();
    let words = Words::new(there.at(0, bytes), bytes);
    (0..bytes).step_by(buffer.len()).for_each(|at| words.put(at, buffer));
    let words = Words::new(here.at(0, bytes), bytes);
    (0..bytes).step_by(buffer.len()).for_each(|at| words.get(at, buffer));
    black_box(buffer);
    Ok(start.elapsed().as_secs_f64())
}

/// `mapwire bench passing`.
pub(crate) fn passing(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let is_remote = plan.transport() == Transport::Udp;
    let Some(case) = role() else {
        let cases: &[&str] = if is_remote { &["hlrc", "minipages"] } else { &["auto"] };
        for case in cases {
            let options = ["--coherence", case, "--shared", "5G", "--wait", "poll", "--transport", "udp"];
            let options = &options[..if is_remote { 8 } else { 6 }];
            Job { bench: "passing", ranks: 2, options, case }.run(plan, report)?;
        }
        return Ok(());
    };
    let (node, steps, memory) = join()?;
    let rank = node.rank();
    let datagrams = is_remote.then(|| Datagrams::new(memory, memory.part(0, 256), rank)).transpose()?;
    let shared = Shared::open(&node, 1)?;
    let part_bytes = if case == "minipages" { MINIPAGE_BYTES } else { PART_BYTES };
    let buffer = vec![rank as u8 + 1; part_bytes];
    let station = Station { node, shared: shared.clone(), parts: Vec::new(), buffer, datagrams, memory };
    let bytes = if plan.quick { 4 << 20 } else { 1 << 30 };
    in_step(station, steps, |leader| {
        let per_second = |seconds: f64| bytes as f64 / 1e6 / seconds;
        let effort = Effort { tries: 3, rough: true, ..Effort::planned(plan, 1, 3) };
        let mut written = 0.0;
        let samples = leader.sample(effort, 2, &case, report, |leader, way| {
            let mut timed = |what| {
                let start = Instant::now();
                leader.lead(what, bytes as u64, 1)?;
                Ok::<_, BenchError>(start.elapsed().as_secs_f64())
            };
            match (way, is_remote) {
                (0, true) => timed(STREAM).map(per_second),
                (0, false) => by_two_mappings(bytes, &mut leader.part.buffer).map(per_second),
                _ => {
                    timed(ALLOCATE)?;
                    let writing = timed(WRITE)?;
                    written = per_second(writing);
                    let reading = timed(READ)?;
                    Ok(per_second(if is_remote { reading } else { writing + reading }))
                }
            }
        })?;
        if let Some(samples) = samples {
            let fields = [("case", json!(case)), ("bytes", json!(bytes)), ("written_mb_per_s", json!(written))];
            let baseline = if is_remote { "datagrams" } else { "memcpy by two mappings" };
            report.rows(&fields, "MB/s", baseline, &samples.figures(1, 0));
        }
        Ok(())
    })?;
    Ok(shared.close()?)
}
