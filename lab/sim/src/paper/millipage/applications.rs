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

/// Where a program comes from.
enum Source {
    /// Traces of as many runs.
    Traces(&'static [&'static [u8]]),
    Made,
}

/// An application of the paper.
pub(super) struct Application {
    pub(super) name: &'static str,
    /// As the paper has it.
    pub(super) data: &'static str,
    /// Its sequential run in thousandths of seconds, and those with 8 nodes by polling and by interrupts.
    pub(super) published: [i64; 3],
    /// By how many thousandths of a percent interrupts are faster.
    pub(super) improvement: i64,
    source: Source,
}

/// Table 1's, in its order.
pub(super) const APPLICATIONS: [Application; 5] = [
    Application {
        name: "SOR",
        data: "1024x1024 matrices",
        published: [7_100, 990, 990],
        improvement: 0,
        source: Source::Traces(&[
            include_bytes!("../../../traces/sor-8-1.mwt"),
            include_bytes!("../../../traces/sor-8-2.mwt"),
            include_bytes!("../../../traces/sor-8-3.mwt"),
        ]),
    },
    Application {
        name: "LU",
        data: "1024x1024, blocks 32x32",
        published: [26_000, 6_000, 5_720],
        improvement: 4_700,
        source: Source::Traces(&[
            include_bytes!("../../../traces/lu-8-1.mwt"),
            include_bytes!("../../../traces/lu-8-2.mwt"),
            include_bytes!("../../../traces/lu-8-3.mwt"),
        ]),
    },
    Application {
        name: "IS",
        data: "2^23 numbers, 2^9 values",
        published: [20_600, 2_830, 2_690],
        improvement: 4_900,
        source: Source::Traces(&[
            include_bytes!("../../../traces/is-8-1.mwt"),
            include_bytes!("../../../traces/is-8-2.mwt"),
            include_bytes!("../../../traces/is-8-3.mwt"),
        ]),
    },
    Application {
        name: "WATER",
        data: "343 molecules",
        published: [15_300, 2_680, 2_290],
        improvement: 14_600,
        source: Source::Made,
    },
    Application {
        name: "TSP",
        data: "19 cities, level 12",
        published: [160_000, 34_560, 28_570],
        improvement: 17_300,
        source: Source::Traces(&[include_bytes!("../../../traces/tsp-8-1.mwt")]),
    },
];

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
        let traces = match self.source {
            Source::Made => return Ok(water(WATER_STEPS, sequential_ps)),
            Source::Traces(traces) => traces,
        };
        let programs = traces.iter().map(|bytes| captured(bytes));
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
