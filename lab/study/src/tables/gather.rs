//! The studies from which the tables are made.

use mapwire_trace::Metadata;
use mapwire_translation::{
    CacheConfig, DesignConfig, DynamicHandleConfig, HierarchicalConfig, InterruptConfig, PinLimit, PinRules,
};

use crate::config::Configuration;
use crate::decode::{LeftOut, Selection, Totals};
use crate::files::{FileError, TraceFindings};
use crate::published::{CACHE_SIZES, Figure5Configuration, figure_5_configurations};
use crate::study::{Outcome, Request};

/// Entries that a miss fetches, in UTLB Figure 8.
pub(super) const PREFETCHES: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// UTLB Table 5's limit: 4 MB a process.
const TABLE_5_PAGES: u64 = 1024;
/// UTLB Table 7's limit: 16 MB.
const TABLE_7_PAGES: u64 = 4096;

/// Whoever studies traces: files, or what a test makes up. Gets a request and returns the findings of all traces.
pub trait Source {
    fn study(&mut self, request: Request) -> Result<Vec<TraceFindings>, FileError>;
}

impl<F: FnMut(Request) -> Result<Vec<TraceFindings>, FileError>> Source for F {
    fn study(&mut self, request: Request) -> Result<Vec<TraceFindings>, FileError> {
        self(request)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    configurations: Vec<Configuration>,
    traces: Vec<TraceFindings>,
    pub(super) missing: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Gathered {
    pub names: Vec<String>,
    pub metadata: Vec<Metadata>,
    /// No limit, with causes: Tables 3, 4, 6 and 8, Figure 7.
    pub(super) unlimited: Part,
    /// Figure 8.
    pub(super) prefetch: Part,
    /// Table 5.
    pub(super) four_megabytes: Part,
    /// Table 7.
    pub(super) sixteen_megabytes: Part,
    /// Dynamic handle lookup Figure 5: all operations.
    pub(super) handles: Part,
    /// Findings with damage, for warnings.
    pub damaged: Vec<String>,
    /// What a reader of all tables must know of the traces.
    pub notes: Vec<String>,
}

impl Part {
    /// What a configuration did on each trace; `None` for all if there was no such study.
    pub(super) fn outcomes(&self, configuration: &Configuration) -> Vec<Option<Outcome>> {
        let at = self.configurations.iter().position(|it| it == configuration);
        let outcome = |trace: &TraceFindings| {
            let at = at?;
            trace.findings.failure(at).is_none().then_some(trace.findings.outcomes[at])
        };
        self.traces.iter().map(outcome).collect()
    }

    /// Nodes with lookups, and totals, of each trace.
    pub(super) fn totals(&self) -> Vec<(u64, Totals)> {
        let nodes =
            |trace: &TraceFindings| trace.findings.nodes.iter().filter(|(_, totals)| totals.lookups > 0).count() as u64;
        self.traces.iter().map(|trace| (nodes(trace), trace.findings.totals())).collect()
    }

    /// Traces of which some transfers were cut into pieces.
    pub(super) fn cut(&self) -> Option<String> {
        let cut = self.traces.iter().filter_map(|trace| {
            let cut = trace.findings.totals().cut_transfers;
            (cut > 0).then(|| format!("{} of {}", cut, trace.name()))
        });
        let cut: Vec<_> = cut.collect();
        (!cut.is_empty()).then(|| cut.join(", "))
    }
}

/// What is to be said of each trace of which lookups never met a NIC.
fn direct_notes(traces: &[TraceFindings]) -> Vec<String> {
    let note = |trace: &TraceFindings| direct_note(&trace.name(), &trace.findings.totals());
    traces.iter().filter_map(note).collect()
}

/// What a selection of operations and paths has left out of a trace; `None`: nothing.
pub fn left_out_note(name: &str, left_out: &LeftOut) -> Option<String> {
    let LeftOut { send, fetch, receive } = left_out;
    let lookups = left_out.lookups();
    (lookups > 0).then(|| {
        format!(
            "{name}: {lookups} lookups were not asked for and are left out: {send} of sends, {fetch} of fetches, {receive} of \
             receives"
        )
    })
}

/// Says that lookups of the trace never met a NIC, if it is so.
pub fn direct_note(name: &str, totals: &Totals) -> Option<String> {
    (totals.direct_lookups > 0).then(|| {
        let percent = 100.0 * totals.direct_lookups as f64 / totals.lookups.max(1) as f64;
        format!(
            "{name}: {percent:.1} % of the lookups are of transfers by mapped memory, which no NIC translated: what is counted is what a \
             NIC would have done. `--paths ring` leaves them out; `mapwire run --path ring` sends through the NIC all but the pages of \
             the shared memory"
        )
    })
}

pub(super) fn hierarchical(entries: usize, ways: usize, offset: bool, prefetch: u32) -> Configuration {
    let cache = CacheConfig::default().with_entries(entries).with_ways(ways).with_offset_per_process(offset);
    Configuration::new(DesignConfig::Hierarchical(HierarchicalConfig::from(cache).with_prefetch(prefetch)))
}

pub(super) fn interrupt(entries: usize) -> Configuration {
    let cache = CacheConfig::default().with_entries(entries);
    Configuration::new(DesignConfig::Interrupt(InterruptConfig::default().with_cache(cache)))
}

pub(super) fn four_megabytes(configuration: Configuration) -> Configuration {
    configuration.with_rules(PinRules::default().with_limit(PinLimit::Pages(TABLE_5_PAGES)))
}

pub(super) fn sixteen_megabytes(prepin: u64) -> Configuration {
    let rules = PinRules::default().with_limit(PinLimit::Pages(TABLE_7_PAGES)).with_prepin_pages(prepin);
    Configuration::new(DesignConfig::default()).with_rules(rules)
}

pub(super) fn dynamic_handle(shape: Figure5Configuration) -> Configuration {
    let config = DynamicHandleConfig::default();
    let cache = config.cache.with_entries(shape.entries).with_line_entries(shape.line_entries).with_ways(shape.ways);
    Configuration::new(DesignConfig::DynamicHandle(config.with_cache(cache)))
}

/// Studies the traces: `sends` for UTLB's tables, which count sends and fetches as its traces had them, `all` for those of dynamic
/// handle lookup, which has receives, too. Under a limit, transfers of more pages are cut into pieces.
///
/// # Errors
/// A trace that cannot be studied. A limit that is too small for the exports of one, where these count, leaves that table empty.
pub fn gather(
    source: &mut impl Source,
    sends: Selection,
    all: Selection,
    threads: usize,
) -> Result<Gathered, FileError> {
    let sizes = CACHE_SIZES.map(|(_, entries)| entries);
    let direct = || sizes.into_iter().map(|entries| hierarchical(entries, 1, true, 1));
    let interrupts = || sizes.into_iter().map(interrupt);
    let associative =
        sizes.into_iter().flat_map(|entries| [2, 4].into_iter().map(move |ways| hierarchical(entries, ways, true, 1)));
    let without_offset = sizes.into_iter().map(|entries| hierarchical(entries, 1, false, 1));
    let prefetch = PREFETCHES
        .into_iter()
        .flat_map(|prefetch| sizes.into_iter().map(move |entries| hierarchical(entries, 1, true, prefetch)));
    let handles = figure_5_configurations().map(dynamic_handle);
    let mut study = |configurations: Vec<Configuration>, selection, causes| -> Result<Part, FileError> {
        let request = Request { configurations: configurations.clone(), selection, causes, threads };
        let traces = source.study(request)?;
        let failure = traces.iter().flat_map(|trace| &trace.findings.failures).next();
        Ok(Part { missing: failure.map(|failure| failure.1.clone()), configurations, traces })
    };
    let unlimited =
        study(direct().chain(interrupts()).chain(associative).chain(without_offset).collect(), sends, true)?;
    let limited = direct().chain(interrupts()).map(four_megabytes).collect();
    let gathered = Gathered {
        names: unlimited.traces.iter().map(TraceFindings::name).collect(),
        metadata: unlimited.traces.iter().map(|trace| trace.metadata.clone()).collect(),
        damaged: unlimited.traces.iter().filter_map(|trace| trace.damage.as_ref()).map(ToString::to_string).collect(),
        notes: direct_notes(&unlimited.traces),
        prefetch: study(prefetch.collect(), sends, false)?,
        four_megabytes: study(limited, sends.in_pieces_of(TABLE_5_PAGES), false)?,
        sixteen_megabytes: study([1, 16].map(sixteen_megabytes).into(), sends.in_pieces_of(TABLE_7_PAGES), false)?,
        handles: study(handles.collect(), all, false)?,
        unlimited,
    };
    Ok(gathered)
}
