//! `mapwire lab question`: questions that the papers leave open. Each subcommand is a module with its arguments and its `command`.

mod application;
mod limits;
mod output;
mod per_process;
mod policies;
mod smallest;
mod traces;
mod values;

use clap::Subcommand;

use super::LabError;

#[derive(Debug, Subcommand)]
pub(crate) enum QuestionCommand {
    /// A table for each process, or one shared cache, in the same NIC memory?
    ///
    /// UTLB §3.1 gives each process a table of fixed size in the NIC, which never misses; what does not fit is unpinned. UTLB §8 leaves
    /// open how that compares with a cache that all programs of a node share. The tables have together as many entries as the cache
    /// (rounded down, at least one each), where a node has as many processes as the trace has on any. A page is fragmented whose
    /// entry does not follow that of the page before it, at the end of the trace. Rows marked `yes` cost least at their size.
    #[command(
        after_help = "Examples:\n  mapwire lab generate --mix zipf,sequential,strided,task-queue -o mix.mwt\n  mapwire lab question per-process mix.mwt\n  mapwire lab question per-process mix.mwt --entries 256,1K,4K --ways 4 --equal bytes"
    )]
    PerProcess(per_process::PerProcessArgs),
    /// What do the five policies for unpinning do, and how far is each from the optimum?
    ///
    /// UTLB §3.4 names LRU, MRU, LFU, MFU and RANDOM, and §8 says that only LRU was tried. All are tried under limits on the pinned pages of
    /// a process. Beside them stands the optimum, which unpins what is needed furthest in the future (Belady): no policy pins or
    /// unpins less. It knows the whole trace, reads it twice more, and keeps 4 bytes for each lookup (at most 2 GiB; --no-optimum
    /// leaves it out). It does not look at the NIC's cache, so a policy may have fewer NIC misses.
    #[command(
        after_help = "Examples:\n  mapwire lab question policies fft.mwt lu.mwt\n  mapwire lab question policies fft.mwt --limit 1/8,1/2,4MiB --csv -o policies.csv"
    )]
    Policies(policies::PoliciesArgs),
    /// What can an application win that chooses what to unpin itself?
    ///
    /// UTLB §3.4 lets it choose. `sweep` unpins what it used last while it goes at even steps through memory that it used before, and what it used
    /// least recently otherwise. `regions` takes from the 256 KiB with the fewest lookups per page. `released` takes first what the
    /// program does not need again, as it could tell on freeing a buffer: the trace tells the last use of each page. Beside them
    /// LRU, the one of the five policies that pins least, and the optimum.
    #[command(
        after_help = "Examples:\n  mapwire lab question application fft.mwt\n  mapwire lab question application fft.mwt --limit 1/2 --json"
    )]
    Application(application::ApplicationArgs),
    /// Which design bears a limit on pinned memory?
    ///
    /// All designs under limits from none down to a small part of the largest footprint of a process. What a design cannot do under a
    /// limit, as when a transfer has more pages, is told in its row.
    #[command(
        after_help = "Examples:\n  mapwire lab question limits fft.mwt lu.mwt\n  mapwire lab question limits fft.mwt --design hierarchical,interrupt --limit none,1M"
    )]
    Limits(limits::LimitsArgs),
    /// How little NIC memory is enough?
    ///
    /// For each design the fewest entries, by powers of two, with which a lookup costs at most so much more than with unlimited NIC
    /// memory, where only the first lookup of a page (of its line) misses. Bytes are what the design charges the NIC's memory budget,
    /// on the node that needs most. A per-process table has its entries for each process.
    #[command(
        after_help = "Examples:\n  mapwire lab question smallest fft.mwt\n  mapwire lab question smallest fft.mwt --design hierarchical,interrupt --ways 1,4 --within 1% --most 1M"
    )]
    Smallest(smallest::SmallestArgs),
}

/// `mapwire lab question`.
pub(super) fn command(question: &QuestionCommand) -> Result<(), LabError> {
    match question {
        QuestionCommand::PerProcess(args) => per_process::command(args),
        QuestionCommand::Policies(args) => policies::command(args),
        QuestionCommand::Application(args) => application::command(args),
        QuestionCommand::Limits(args) => limits::command(args),
        QuestionCommand::Smallest(args) => smallest::command(args),
    }
}
