//! The applications: traces of runs with 8 ranks, and one that is made up.

use mapwire_trace::TraceReader;

use crate::hardware::Ps;
use crate::hosts::{self, Captured, Program, Scale, Water};
use crate::paper::PaperError;

use super::bench::NODES;

/// What each page fault's trap took on the computer of the traces, which they count as computing; and every other call. Estimates: they
/// change where computing is, not how much of it there is.
const TRAP_NS: u64 = 2_000;
const CALL_NS: u64 = 500;

/// An application of the paper.
pub(super) struct Application {
    pub(super) name: &'static str,
    /// As the paper has it.
    pub(super) data: &'static str,
    /// Its sequential run in thousandths of seconds, and those with 8 nodes by polling and by interrupts.
    pub(super) published: [i64; 3],
    /// By how many thousandths of a percent interrupts are faster.
    pub(super) improvement: i64,
    /// Of as many runs.
    traces: &'static [&'static [u8]],
}

/// Applications, one a line: name and data, times, improvement, and the traces that stand for it; without any it is made up.
macro_rules! applications {
    ($($name:literal, $data:literal, $published:expr, $improvement:literal: $($trace:literal)*;)*) => {
        [$(Application {
            name: $name,
            data: $data,
            published: $published,
            improvement: $improvement,
            traces: &[$(include_bytes!(concat!("../../../traces/", $trace, ".mwt"))),*],
        }),*]
    };
}

/// Table 1's, in its order.
pub(super) const APPLICATIONS: [Application; 5] = applications! {
    "SOR", "1024x1024 matrices", [7_100, 990, 990], 0: "sor-8-1" "sor-8-2" "sor-8-3";
    "LU", "1024x1024, blocks 32x32", [26_000, 6_000, 5_720], 4_700: "lu-8-1" "lu-8-2" "lu-8-3";
    "IS", "2^23 numbers, 2^9 values", [20_600, 2_830, 2_690], 4_900: "is-8-1" "is-8-2" "is-8-3";
    "WATER", "343 molecules", [15_300, 2_680, 2_290], 14_600:;
    "TSP", "19 cities, level 12", [160_000, 34_560, 28_570], 17_300: "tsp-8-1";
};

/// Steps of time of WATER, as SPLASH-2 comes: the paper does not state them.
pub(super) const WATER_STEPS: u32 = 3;

/// WATER with so many steps.
pub(super) fn water(steps: u32, computing_ps: Ps) -> Program {
    hosts::water(&Water { ranks: NODES, molecules: 343, bytes: 672, chunk: 1, steps, computing_ps })
}

impl Application {
    /// The program at the speed of the paper's computers: all its nodes compute together as long as the paper's sequential run takes.
    pub(super) fn program(&self) -> Result<Program, PaperError> {
        let sequential_ps = self.published[0] as Ps * 1_000_000_000;
        if self.traces.is_empty() {
            return Ok(water(WATER_STEPS, sequential_ps));
        }
        let programs = self.traces.iter().map(|bytes| captured(bytes));
        let programs: Vec<Program> = programs.collect::<Result<_, PaperError>>()?;
        let least = Program::least(&programs).or_else(|| programs.into_iter().next());
        let program = least.unwrap_or_default().up_to_last_barrier();
        let computing_ps = program.work_computing_ps().max(1);
        Ok(program.scaled(sequential_ps, computing_ps))
    }
}

fn captured(bytes: &[u8]) -> Result<Program, PaperError> {
    let mut captured = Captured::default();
    for record in TraceReader::new(bytes, "a trace of the chapter")?.records() {
        captured.push(&record?)?;
    }
    let scale = Scale { speed_milli: 1000, trap_ns: TRAP_NS, call_ns: CALL_NS };
    Ok(captured.finish(&scale)?.0)
}
