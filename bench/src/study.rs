//! `study`: how many lookups a second the laboratory replays, on one core.

use std::cell::Cell;
use std::hint::black_box;
use std::io::Cursor;
use std::time::Instant;

use mapwire_study::config::Configuration;
use mapwire_study::decode::{Chunk, Decoder, Node, Selection};
use mapwire_study::fast::{KeyStream, Keys, Levels, Limited, Pins, Shape, Stack};
use mapwire_study::replay::Replay;
use mapwire_trace::generate::{Generator, Options, Pattern};
use mapwire_trace::{Metadata, TraceReader, TraceWriter};
use serde_json::{Value, json};

use super::measure::{Effort, Restless, paired};
use super::row::{Report, Row};
use super::{BenchError, Plan};

/// The cache sizes of UTLB Table 8, in entries.
const SIZES: [usize; 5] = [1024, 2048, 4096, 8192, 16384];
/// Its associativities.
const WAYS: [usize; 3] = [1, 2, 4];
/// Lookups of a run: a millisecond or less, too short for the machine to change its speed in.
const RUN_LOOKUPS: usize = 1 << 17;
/// UTLB Table 5's limit on pinned pages.
const LIMIT_PAGES: u64 = 1024;

/// A decoded trace of one node: five processes, about as many pages as those of UTLB Table 3.
struct Workload {
    name: &'static str,
    file: Vec<u8>,
    records: u64,
    node: Node,
    /// One after the other, and again from the first.
    runs: Vec<Chunk>,
    next: Cell<usize>,
}

impl Workload {
    fn new(pattern: Pattern, records: u64) -> Result<Self, BenchError> {
        let options = Options {
            patterns: vec![pattern],
            records,
            nodes: 2,
            processes: 5,
            buffer_bytes: 8 << 20,
            ..Options::default()
        };
        let mut writer = TraceWriter::new(Vec::new(), &Metadata::default())?;
        for record in Generator::new(&options)? {
            writer.push(&record)?;
        }
        let file = writer.finish()?;
        let mut whole = Chunk::default();
        let mut decoder = Decoder::new(Selection::SEND_SIDE);
        let mut reader = TraceReader::new(Cursor::new(&file), "memory")?;
        while let Some(block) = reader.next_block()? {
            let mut done = 0;
            while done < block.len() {
                done = decoder.take(&block, done)?;
                whole.lookups.extend_from_slice(&decoder.nodes()[0].chunk.lookups);
                decoder.clear();
            }
        }
        let run = |lookups: &[u32]| Chunk { lookups: lookups.to_vec(), events: Vec::new() };
        let runs: Vec<_> = whole.lookups.chunks_exact(RUN_LOOKUPS).map(run).collect();
        if runs.is_empty() {
            return Err("the trace is too short".into());
        }
        let node = decoder.nodes()[0].clone();
        Ok(Workload { name: pattern.name(), file, records, node, runs, next: Cell::new(0) })
    }

    /// The lookups of the next run.
    fn run(&self) -> &Chunk {
        let at = self.next.get();
        self.next.set((at + 1) % self.runs.len());
        &self.runs[at]
    }

    /// Nanoseconds a lookup of something that looks a run up.
    fn ns<T>(&self, run: impl FnOnce(&Chunk) -> Result<T, BenchError>) -> Result<f64, BenchError> {
        let chunk = self.run();
        let start = Instant::now();
        run(chunk)?;
        Ok(start.elapsed().as_nanos() as f64 / chunk.lookups.len() as f64)
    }

    /// Millions of lookups a second.
    fn rate<T>(&self, run: impl FnOnce(&Chunk) -> Result<T, BenchError>) -> Result<f64, BenchError> {
        Ok(1e3 / self.ns(run)?)
    }

    /// The raw limit: the page numbers are read once, and added up.
    fn read(&self) -> Result<f64, BenchError> {
        self.rate(|chunk| {
            let numbers = black_box(&chunk.lookups).iter();
            Ok(black_box(numbers.map(|it| u64::from(*it)).sum::<u64>()))
        })
    }

    fn case(&self, case: &str, more: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
        let mut fields =
            vec![("case", json!(case)), ("pattern", json!(self.name)), ("pages", json!(self.node.pages.len()))];
        fields.extend_from_slice(more);
        fields
    }
}

/// Caches of the shapes, from the page numbers on.
struct Pass {
    keys: Keys,
    stream: KeyStream,
    levels: Levels,
}

impl Pass {
    fn new(work: &Workload, shapes: &[Shape]) -> Self {
        let least = shapes.iter().map(|shape| shape.sets).min().unwrap_or(1);
        let mut keys = Keys::new(1, true, least);
        keys.extend(&work.node.pages);
        Pass { keys, stream: KeyStream::default(), levels: Levels::new(shapes, false) }
    }

    fn run(&mut self, chunk: &Chunk) {
        self.keys.stream(chunk, &mut self.stream);
        self.levels.run(&self.stream, self.keys.most_slot());
    }
}

fn shape(entries: usize, ways: usize) -> Shape {
    Shape { sets: entries / ways, ways }
}

/// `mapwire bench study`.
pub(crate) fn study(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let effort = Effort::planned(plan, 3, 101);
    for pattern in [Pattern::Zipf, Pattern::Transpose] {
        let work = Workload::new(pattern, if plan.quick { 1 << 20 } else { 5 << 20 })?;
        for ways in [1, 2, 4, 8] {
            one_configuration(&work, ways, effort, report)?;
        }
        for ways in [1, 4, 8] {
            under_a_limit(&work, ways, effort, report)?;
        }
        many_configurations(&work, effort, report)?;
        replayed(&work, effort, report)?;
        decoded(&work, effort, report)?;
    }
    Ok(())
}

/// A row of a paired measurement; a machine that never settles leaves it out with a remark.
fn row(
    report: &mut Report,
    case: Vec<(&'static str, Value)>,
    unit: &'static str,
    baseline: &'static str,
    figure: Result<super::measure::Figure, BenchError>,
) -> Result<(), BenchError> {
    match figure {
        Ok(figure) => report.row(&Row::of(case, unit, baseline, &figure)),
        Err(error) if error.is::<Restless>() => report.remark(&error.to_string()),
        Err(error) => return Err(error),
    }
    Ok(())
}

const READ: &str = "reading page numbers";

fn one_configuration(work: &Workload, ways: usize, effort: Effort, report: &mut Report) -> Result<(), BenchError> {
    let mut pass = Pass::new(work, &[shape(8192, ways)]);
    let point = || {
        work.rate(|chunk| {
            pass.run(chunk);
            Ok(())
        })
    };
    let figure = paired(effort, || work.read(), point);
    let more = [("entries", json!(8192)), ("ways", json!(ways))];
    row(report, work.case("one configuration", &more), "Mlookups/s", READ, figure)
}

fn under_a_limit(work: &Workload, ways: usize, effort: Effort, report: &mut Report) -> Result<(), BenchError> {
    let mut keys = Keys::new(1, true, 8192 / ways);
    keys.extend(&work.node.pages);
    let mut cache = Limited::new(shape(8192, ways));
    let mut pins = Pins::new(LIMIT_PAGES);
    let point = || {
        work.rate(|chunk| {
            let pages = &work.node.pages;
            Ok(pins.run(chunk, pages, &keys, |steps| cache.run(steps, keys.most_slot()))?)
        })
    };
    let figure = paired(effort, || work.read(), point);
    let more = [("entries", json!(8192)), ("ways", json!(ways)), ("limit_bytes", json!(LIMIT_PAGES * 4096))];
    row(report, work.case("one configuration under a limit", &more), "Mlookups/s", READ, figure)
}

fn many_configurations(work: &Workload, effort: Effort, report: &mut Report) -> Result<(), BenchError> {
    let of_size = |size: &usize| WAYS.map(|ways| shape(*size, ways));
    let shapes: Vec<_> = SIZES.iter().flat_map(of_size).collect();
    let mut alone: Vec<_> = shapes.iter().map(|shape| Pass::new(work, &[*shape])).collect();
    let mut all = Pass::new(work, &shapes);
    let one = || {
        let ns = work.ns(|chunk| {
            alone.iter_mut().for_each(|pass| pass.run(chunk));
            Ok(())
        })?;
        Ok(ns / shapes.len() as f64)
    };
    let mut together = || {
        work.ns(|chunk| {
            all.run(chunk);
            Ok(())
        })
    };
    let figure = paired(effort, one, &mut together);
    let case = work.case("the 15 configurations of Table 8", &[]);
    row(report, case, "ns/lookup", "one of them, mean", figure)?;
    let mut stack = Stack::new(&SIZES);
    let mut beside = Pass::new(work, &shapes);
    let with_causes = || {
        work.ns(|chunk| {
            beside.keys.stream(chunk, &mut beside.stream);
            beside.stream.tell_by(&mut stack, &chunk.lookups);
            beside.levels.run(&beside.stream, beside.keys.most_slot());
            Ok(())
        })
    };
    let figure = paired(effort, together, with_causes);
    row(report, work.case("the 15 with causes of misses", &[]), "ns/lookup", "without causes", figure)
}

fn replayed(work: &Workload, effort: Effort, report: &mut Report) -> Result<(), BenchError> {
    let configuration = Configuration::new(mapwire_translation::DesignConfig::default());
    let mut replay = Replay::new(configuration, false)?;
    let point = || work.rate(|chunk| Ok(replay.run(chunk, &work.node.pages)?));
    let figure = paired(effort, || work.read(), point);
    let case = work.case("one configuration by the firmware's code", &[("entries", json!(8192)), ("ways", json!(1))]);
    row(report, case, "Mlookups/s", READ, figure)
}

fn decoded(work: &Workload, effort: Effort, report: &mut Report) -> Result<(), BenchError> {
    let millions = |start: Instant| work.records as f64 / start.elapsed().as_secs_f64() / 1e6;
    let figure = paired::<BenchError>(
        effort,
        || {
            let start = Instant::now();
            let mut reader = TraceReader::new(Cursor::new(&work.file), "memory")?;
            while let Some(block) = reader.next_block()? {
                black_box(&block);
            }
            Ok(millions(start))
        },
        || {
            let start = Instant::now();
            let mut reader = TraceReader::new(Cursor::new(&work.file), "memory")?;
            let mut decoder = Decoder::new(Selection::SEND_SIDE);
            while let Some(block) = reader.next_block()? {
                let mut done = 0;
                while done < block.len() {
                    done = decoder.take(&block, done)?;
                    if decoder.is_full() {
                        decoder.clear();
                    }
                }
            }
            Ok(millions(start))
        },
    );
    row(report, work.case("a trace to page numbers", &[]), "Mrecords/s", "reading its blocks", figure)
}
