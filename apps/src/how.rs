//! How to run a program, as the command line and the environment say.

use clap::{Args, ValueEnum};

use crate::error::Failure;

/// How to run, check and report.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "How to run")]
pub struct How {
    /// auto: over mapwire, with the ranks that `mapwire run` has started; sequential; threads: plain threads of one process
    #[arg(long, value_enum, default_value = "auto", value_name = "MODE")]
    pub mode: Mode,
    /// Threads in each rank over mapwire, 1 by default; in mode threads all threads, as many as processors by default
    #[arg(long, value_name = "T")]
    pub threads: Option<usize>,
    /// Print figures as JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// Neither run sequentially nor check the result against that
    #[arg(long)]
    pub no_check: bool,
    /// Compare with as many plain threads, run in turn inside this job: how near does mapwire come to their speed-up?
    #[arg(long)]
    pub against_threads: bool,
    /// How often to run each, with --against-threads
    #[arg(long, default_value_t = 5, value_name = "R")]
    pub rounds: usize,
}

/// What carries the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// mapwire, in all ranks of the job.
    Auto,
    /// One thread.
    Sequential,
    /// Threads of one process.
    Threads,
}

/// Most threads of a run.
const MAX_THREADS: usize = 256;

impl How {
    /// Refuses invalid combinations.
    pub fn check(&self) -> Result<(), Failure> {
        let refuse = |what: &str| Err(Failure::Input(what.to_string()));
        if self.threads.is_some_and(|t| t == 0 || t > MAX_THREADS) {
            return Err(Failure::Input(format!(
                "--threads {}: must be between 1 and {MAX_THREADS}",
                self.threads.unwrap_or_default()
            )));
        }
        if self.rounds == 0 {
            return refuse("--rounds 0: run at least once");
        }
        if self.against_threads && self.mode != Mode::Auto {
            return refuse("--against-threads compares with mapwire: leave out --mode");
        }
        if self.mode == Mode::Sequential && self.threads.is_some_and(|t| t > 1) {
            return refuse("--mode sequential has one thread: leave out --threads");
        }
        Ok(())
    }
}

/// This process's rank, 0 outside a job.
pub fn rank_of_environment() -> usize {
    let rank = std::env::var("MAPWIRE_RANK").ok();
    rank.and_then(|rank| rank.parse().ok()).unwrap_or(0)
}
