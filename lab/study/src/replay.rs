//! The reference: a node's lookups by the very code of the firmware, for every design, policy and limit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mapwire_translation::{
    AbsentRuns, AnyDesign, CacheError, Counters, DesignConfig, Frame, HostError, Hosts, Lookup, Page, PageRange,
    PinError, PinPages, Pinning, Process, SimulatedPinner, TranslationDesign, TranslationError,
};

use mapwire_wire::TraceOp;

use crate::choosers::Knowledge;
use crate::config::Configuration;
use crate::counts::{Cause, Causes, Counts};
use crate::decode::{Chunk, Event, FIRST, PAGE_ID, Pages, RECEIVE};
use crate::handles::Handles;
use crate::shadow::Shadow;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("{0}")]
    Limit(PinError),
    #[error("{0}")]
    Nic(TranslationError),
    #[error("the design asks its host for {0} again and again")]
    Stuck(Page),
    /// The trace says that the memory is not there.
    #[error(transparent)]
    Absent(Absent),
}

impl From<HostError<Absent>> for ReplayError {
    fn from(error: HostError<Absent>) -> Self {
        match error {
            HostError::Limit(error) => ReplayError::Limit(error),
            HostError::Nic(error) => ReplayError::Nic(error),
            HostError::Pin(absent) => ReplayError::Absent(absent),
        }
    }
}

/// Memory that cannot be pinned as a whole, as the trace says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not all of the {} pages from {} on are there", .0.count, .0.first)]
pub struct Absent(PageRange);

/// Pins at once what is not known to be absent, and remembers what was unpinned.
#[derive(Debug, Default)]
struct Pinner {
    simulated: SimulatedPinner,
    unpinned: Vec<(Process, Page)>,
    absent: HashMap<Process, AbsentRuns>,
}

fn is_within(range: PageRange, outer: PageRange) -> bool {
    outer.first <= range.first && range.end() <= outer.end()
}

impl Pinner {
    /// All of the range is there.
    fn is_there(&mut self, process: Process, range: PageRange) {
        if !self.absent.is_empty()
            && let Some(absent) = self.absent.get_mut(&process)
        {
            absent.found(range);
        }
    }

    /// Whether the trace says that not all of the range is there.
    fn lacks(&self, process: Process, range: PageRange) -> bool {
        // Most traces know of no absent memory, and need no search for the process.
        !self.absent.is_empty() && self.absent.get(&process).is_some_and(|absent| absent.lacks(range))
    }
}

impl PinPages for Pinner {
    type Error = Absent;

    fn pin(&mut self, process: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), Absent> {
        if self.lacks(process, run) {
            return Err(Absent(run));
        }
        let Ok(()) = self.simulated.pin(process, run, frames);
        Ok(())
    }

    fn unpin(&mut self, process: Process, run: PageRange, frames: &[Frame]) -> Result<(), Absent> {
        self.unpinned.extend(run.iter().map(|page| (process, page)));
        let Ok(()) = self.simulated.unpin(process, run, frames);
        Ok(())
    }
}

/// Lookups of a node after which its host unpins what is above a high-water mark. Dynamic handle lookup §IV.B says only
/// "periodically with long intervals".
pub const RECLAIM_LOOKUPS: u64 = 1 << 16;

/// Memory of a process that is pinned for longer than a record of the trace.
#[derive(Debug, Default)]
struct PinnedLong {
    exports: Vec<PageRange>,
    /// For peers, by exports of which the trace does not tell.
    unknown: HashSet<Page>,
    /// For transfers of its own that go on.
    holds: Vec<PageRange>,
}

impl PinnedLong {
    fn of(&mut self, export: bool) -> &mut Vec<PageRange> {
        if export { &mut self.exports } else { &mut self.holds }
    }
}

#[derive(Debug)]
pub struct Replay {
    configuration: Configuration,
    design: AnyDesign,
    hosts: Hosts,
    opened: HashSet<Process>,
    kept: HashMap<Process, PinnedLong>,
    since_reclaim: u64,
    pinner: Pinner,
    counts: Counts,
    /// Lines that were looked up: process and line.
    looked_up: HashSet<(Process, u64)>,
    line_entries: u64,
    shadow: Option<Shadow>,
    causes: Causes,
    /// What a design with caches of handles looks up there.
    handles: Option<Handles>,
    /// What is known of the node's future, and the node's number there.
    known: Option<(u16, Arc<Knowledge>)>,
}

impl Replay {
    /// Nothing pinned, empty caches. With `causes`, a fully associative cache is replayed beside, where the design has a cache.
    pub fn new(configuration: Configuration, causes: bool) -> Result<Self, CacheError> {
        let cache = configuration.cache();
        Ok(Replay {
            design: AnyDesign::new(&configuration.design)?,
            hosts: Hosts::new(),
            opened: HashSet::new(),
            kept: HashMap::new(),
            since_reclaim: 0,
            pinner: Pinner::default(),
            counts: Counts::default(),
            looked_up: HashSet::new(),
            line_entries: cache.map_or(1, |cache| cache.line_entries as u64),
            shadow: cache.filter(|_| causes && configuration.has_causes()).map(|cache| {
                let whole_lines = matches!(configuration.design, DesignConfig::DynamicHandle(_));
                Shadow::new(cache, configuration.prefetch(), whole_lines)
            }),
            causes: Causes::default(),
            handles: matches!(configuration.design, DesignConfig::DynamicHandle(_)).then(Handles::default),
            known: None,
            configuration,
        })
    }

    /// The same of a node whose future is known, for policies that go by it.
    #[must_use]
    pub fn knowing(self, node: u16, knowledge: Arc<Knowledge>) -> Self {
        Replay { known: Some((node, knowledge)), ..self }
    }

    pub fn run(&mut self, chunk: &Chunk, pages: &Pages) -> Result<(), ReplayError> {
        let lookups = chunk.lookups.as_slice();
        let mut events = chunk.events.iter().peekable();
        let mut at = 0;
        while at < lookups.len() {
            while let Some(event) = events.next_if(|event| event.at <= at) {
                self.event(event)?;
            }
            let rest = &lookups[at..];
            let count = rest[1..].iter().position(|it| it & FIRST != 0).map_or(rest.len(), |at| at + 1);
            let (process, first) = pages.name(rest[0] & PAGE_ID);
            let range = PageRange { first, count: count as u64 };
            self.operation(process, range, rest[0] & RECEIVE != 0)?;
            at += count;
        }
        events.try_for_each(|event| self.event(event))?;
        if self.design.unpins_evicted() {
            // What left the cache while its transfer went on is unpinned at the process's next miss, which may never come.
            self.hosts.reclaim(&mut self.design, &mut self.pinner)?;
            self.forget_unpinned();
        }
        Ok(())
    }

    pub fn counts(&self) -> Counts {
        let host: Counters = self.hosts.counters();
        let nic = self.design.counters();
        Counts {
            nic_misses: nic.nic_misses,
            interrupts: nic.interrupts,
            buffer_misses: nic.handles.buffer_misses,
            process_misses: nic.handles.process_misses,
            fragmented_pages: self.design.fragmented_pages(),
            check_misses: host.check_misses,
            pins: host.pins,
            unpins: host.unpins,
            ..self.counts
        }
    }

    /// NIC misses by cause; `None` if it was not asked for or the design has no such cache.
    pub fn causes(&self) -> Option<Causes> {
        Some(Causes { associative: self.shadow.as_ref()?.misses(), ..self.causes })
    }

    fn open(&mut self, process: Process) -> Result<(), ReplayError> {
        if self.opened.insert(process) {
            let rules = self.configuration.rules;
            self.hosts.open(&mut self.design, process, rules).map_err(ReplayError::Nic)?;
            if let Some(chooser) = self.configuration.chooser {
                let future = self.known.as_ref().map(|(node, knowledge)| knowledge.of(*node, process));
                let side = self.hosts.side_mut(process).map_err(ReplayError::Nic)?;
                side.set_chooser(chooser.with_future(future.unwrap_or_default()));
            }
        }
        Ok(())
    }

    fn operation(&mut self, process: Process, range: PageRange, receive: bool) -> Result<(), ReplayError> {
        self.open(process)?;
        if receive && let Some(handles) = &mut self.handles {
            handles.look_up(&mut self.design, process, range.first);
        }
        self.pinner.is_there(process, range);
        let pinned = self.is_kept(process, range, receive);
        let on_miss = self.design.pinning() == Pinning::OnMiss;
        if receive && !pinned && on_miss {
            // Of an export that the trace does not tell of. It lasts.
            self.prepare(process, range, true)?;
            self.kept.entry(process).or_default().unknown.extend(range);
        } else if !pinned {
            self.prepare(process, range, false)?;
        }
        for page in range {
            self.look_up(process, page, receive)?;
        }
        let held = !(pinned || receive && on_miss);
        if held {
            let side = self.hosts.side_mut(process).map_err(ReplayError::Nic)?;
            side.release(range).map_err(ReplayError::Limit)?;
        }
        self.since_reclaim += range.count;
        if self.since_reclaim >= RECLAIM_LOOKUPS {
            self.since_reclaim = 0;
            self.hosts.reclaim(&mut self.design, &mut self.pinner)?;
            self.forget_unpinned();
        }
        Ok(())
    }

    /// Whether all pages of a transfer are pinned for longer than it.
    fn is_kept(&self, process: Process, range: PageRange, receive: bool) -> bool {
        self.kept.get(&process).is_some_and(|kept| match receive {
            true => {
                kept.exports.iter().any(|export| is_within(range, *export))
                    || !kept.unknown.is_empty() && range.iter().all(|page| kept.unknown.contains(&page))
            }
            false => {
                !kept.holds.is_empty() && {
                    let is_held = |page| kept.holds.iter().any(|held| held.contains(page));
                    range.iter().all(is_held)
                }
            }
        })
    }

    fn look_up(&mut self, process: Process, page: Page, receive: bool) -> Result<(), ReplayError> {
        self.counts.lookups += 1;
        self.counts.receive_lookups += u64::from(receive);
        let cold = self.looked_up.insert((process, page.0 / self.line_entries));
        // A lookup of another table than the cache misses without a cause that the shadow knows.
        let mut cause = Cause::Capacity;
        if let Some(shadow) = &mut self.shadow
            && (!receive || self.design.pinning_receive() == self.design.pinning())
        {
            // What is pinned on a miss is there as soon as it is missed.
            let on_miss = self.design.pinning() == Pinning::OnMiss;
            cause = shadow.look_up(process, page, |page| on_miss || !self.design.installed(process, page).is_garbage());
        }
        let mut missed = false;
        for _ in 0..4 {
            let answer =
                if receive { self.design.lookup_receive(process, page) } else { self.design.lookup(process, page) };
            match answer {
                Lookup::Hit(_) => {}
                Lookup::Miss(_) => missed = true,
                Lookup::Host(request) => {
                    missed = true;
                    self.hosts.serve(&mut self.design, &mut self.pinner, request)?;
                    continue;
                }
            }
            if missed {
                self.counts.misses.count(receive, cold);
                self.causes.count(cause);
            }
            return Ok(());
        }
        Err(ReplayError::Stuck(page))
    }

    fn forget_unpinned(&mut self) {
        for (process, page) in self.pinner.unpinned.drain(..) {
            // A design that pins on a miss unpins what left its cache, not the other way round.
            if let Some(shadow) = &mut self.shadow
                && self.design.pinning() == Pinning::BeforeTransfer
            {
                shadow.remove(process, page);
            }
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), ReplayError> {
        let (process, range) = (event.process, event.range);
        self.open(process)?;
        if let Some(handles) = &mut self.handles {
            handles.event(event);
        }
        match event.op {
            TraceOp::Export => self.keep(process, range, true),
            TraceOp::Hold => self.keep(process, range, false),
            TraceOp::Unexport => self.end(process, range, true),
            TraceOp::Release => self.end(process, range, false),
            TraceOp::Absent => {
                self.pinner.absent.entry(process).or_default().insert(range);
                Ok(())
            }
            _ => {
                self.pinner.is_there(process, range);
                Ok(())
            }
        }
    }

    /// Checks and pins pages, and holds them.
    fn prepare(&mut self, process: Process, range: PageRange, receive: bool) -> Result<(), ReplayError> {
        let Replay { design, hosts, pinner, .. } = self;
        let side = hosts.side_mut(process).map_err(ReplayError::Nic)?;
        if receive {
            side.prepare_receive(design, pinner, range)?;
            side.hold_receive(range)
        } else {
            side.prepare(design, pinner, range)?;
            side.hold(range)
        }
        .map_err(ReplayError::Limit)?;
        self.forget_unpinned();
        Ok(())
    }

    /// Pins pages for an export or a transfer until it [`end`](Self::end)s.
    fn keep(&mut self, process: Process, range: PageRange, export: bool) -> Result<(), ReplayError> {
        self.pinner.is_there(process, range);
        self.prepare(process, range, export)?;
        let kept = self.kept.entry(process).or_default();
        kept.of(export).push(range);
        Ok(())
    }

    fn end(&mut self, process: Process, range: PageRange, export: bool) -> Result<(), ReplayError> {
        let kept = self.kept.entry(process).or_default().of(export);
        // What began before the trace cannot end.
        if let Some(at) = kept.iter().position(|kept| *kept == range) {
            kept.swap_remove(at);
            let side = self.hosts.side_mut(process).map_err(ReplayError::Nic)?;
            if export { side.release_receive(range) } else { side.release(range) }.map_err(ReplayError::Limit)?;
            self.forget_unpinned();
        }
        Ok(())
    }
}
