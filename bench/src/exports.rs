//! `export`: heap memory is exported and taken back, beside the bare system calls and the copy that this takes.

use std::time::{Duration, Instant};

use mapwire::Node;
use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::job::{Job, Order, Steps, role};
use super::measure::{Effort, Step, sampled};
use super::placement::Placements;
use super::raw::BareMove;
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan};

/// The only order of rank 0, which measures alone.
const END: u64 = 0;

/// How long rank 1 sleeps between two looks for an order: it must not take half of a core from rank 0.
const NAP: Duration = Duration::from_micros(200);

/// Memory of the program, whole pages within a `Vec`.
struct Heap {
    pages: Words,
    _memory: Vec<u8>,
}

impl Heap {
    fn new(bytes: usize) -> Self {
        let mut memory = vec![0; bytes + PAGE_BYTES];
        let all = Words::new(memory.as_mut_ptr(), memory.len());
        Self { pages: all.part(all.before_page(), bytes), _memory: memory }
    }

    /// Microseconds of a way there and of a way back, means of `times`. The memory is written before each, as a program's would be.
    fn moved<T>(
        &self,
        times: u64,
        there: impl Fn(Words) -> Result<T, BenchError>,
        back: impl Fn(T) -> Result<(), BenchError>,
    ) -> Result<[f64; 2], BenchError> {
        let mut spent = [Duration::ZERO; 2];
        for time in 0..times {
            self.pages.fill(time as u8);
            let start = Instant::now();
            let moved = there(self.pages)?;
            let half = Instant::now();
            back(moved)?;
            spent[0] += half - start;
            spent[1] += half.elapsed();
        }
        Ok(spent.map(|spent| spent.as_nanos() as f64 / 1000.0 / times as f64))
    }
}

/// `mapwire bench export`.
pub(crate) fn export(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    if role().is_none() {
        let job = Job { bench: "export", ranks: 2, options: &["--wait", "event"], case: "pair" };
        return job.run(plan, report.is_json());
    }
    let node = Node::join()?;
    let mut steps = Steps::new(&node)?;
    let idle = || {
        node.poll();
    };
    if node.rank() == 1 {
        steps.next(|| {
            node.poll();
            std::thread::sleep(NAP);
        });
        steps.answer();
        return Ok(());
    }
    let mut placements = Placements::default();
    for bytes in [4 << 10, 1 << 20, 64 << 20] {
        let (bare, ours) = (Heap::new(bytes), Heap::new(bytes));
        let times = if plan.quick { 2 } else { ((1 << 20) / bytes as u64).clamp(1, 20) };
        let effort = Effort::planned(plan, 3, if bytes > 1 << 20 { 9 } else { 31 });
        let samples = sampled::<BenchError>(effort, &mut placements, 4, |step| {
            let both = match step {
                Step::Look => return Ok(steps.look(idle)),
                Step::Way(0 | 1) => bare.moved(times, BareMove::out, BareMove::back)?,
                Step::Way(_) => ours.moved(
                    times,
                    |pages| Ok(pages.export(&node).name("bench.moved").start()?),
                    |export| Ok(export.revoke()?),
                )?,
            };
            Ok(match step {
                Step::Way(0 | 2) => both[0],
                _ => both[1],
            })
        });
        let Some(samples) = report.settled(&format!("{bytes} B"), samples)? else {
            continue;
        };
        for (call, way, baseline) in [("export", 2, 0), ("unexport", 3, 1)] {
            let case = vec![("case", json!(call)), ("path", json!("heap")), ("bytes", json!(bytes))];
            report.rows(&case, "us", "system calls and copy", &samples.figures(way, baseline));
        }
    }
    let end = Order { what: END, bytes: 0, times: 0 };
    steps.together(end, || (), idle);
    Ok(())
}
