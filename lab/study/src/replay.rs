//! The reference: a node's lookups by the very code of the firmware, for every design, policy and limit.

use std::collections::HashSet;
use std::convert::Infallible;

use mapwire_translation::{
    AnyDesign, CacheError, Counters, Frame, HostError, HostSide, Lookup, Page, PageRange, PinError,
    PinPages, Process, SimulatedPinner, TranslationDesign, TranslationError,
};

use crate::config::Configuration;
use crate::counts::{Causes, Counts};
use crate::decode::{Chunk, ExportEvent, FIRST, PAGE_ID, Pages, RECEIVE};
use crate::shadow::Shadow;

/// Why a configuration cannot be replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// The limit on pinned pages is too small for what the trace does.
    #[error("{0}")]
    Limit(PinError),
    /// The design refuses.
    #[error("{0}")]
    Nic(TranslationError),
    /// A design that asks for the same thing again and again.
    #[error("the design asks its host for {0} again and again")]
    Stuck(Page),
}

impl From<HostError<Infallible>> for ReplayError {
    fn from(error: HostError<Infallible>) -> Self {
        match error {
            HostError::Limit(error) => ReplayError::Limit(error),
            HostError::Nic(error) => ReplayError::Nic(error),
            HostError::Pin(never) => match never {},
        }
    }
}

/// Pins at once, and remembers what was unpinned.
#[derive(Debug, Default)]
struct Pinner {
    simulated: SimulatedPinner,
    unpinned: Vec<(Process, Page)>,
}

impl PinPages for Pinner {
    type Error = Infallible;

    fn pin(
        &mut self,
        process: Process,
        run: PageRange,
        frames: &mut [Frame],
    ) -> Result<(), Infallible> {
        self.simulated.pin(process, run, frames)
    }

    fn unpin(
        &mut self,
        process: Process,
        run: PageRange,
        frames: &[Frame],
    ) -> Result<(), Infallible> {
        self.unpinned.extend(run.iter().map(|page| (process, page)));
        self.simulated.unpin(process, run, frames)
    }
}

/// One node under one configuration.
#[derive(Debug)]
pub struct Replay {
    configuration: Configuration,
    design: AnyDesign,
    hosts: Vec<Option<HostSide>>,
    pinner: Pinner,
    counts: Counts,
    /// Lines that were looked up: process and line.
    looked_up: HashSet<(Process, u64)>,
    line_entries: u64,
    shadow: Option<Shadow>,
}

impl Replay {
    /// Nothing pinned, empty caches. With `causes`, a fully associative cache is replayed beside, where the design has a cache.
    ///
    /// # Errors
    /// A cache that cannot be built.
    pub fn new(configuration: Configuration, causes: bool) -> Result<Self, CacheError> {
        let cache = configuration.cache();
        Ok(Replay {
            design: AnyDesign::new(&configuration.design)?,
            hosts: Vec::new(),
            pinner: Pinner::default(),
            counts: Counts::default(),
            looked_up: HashSet::new(),
            line_entries: cache.map_or(1, |cache| cache.line_entries as u64),
            shadow: cache
                .filter(|_| causes)
                .map(|cache| Shadow::new(cache, configuration.prefetch())),
            configuration,
        })
    }

    /// Replays a chunk.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn run(&mut self, chunk: &Chunk, pages: &Pages) -> Result<(), ReplayError> {
        let lookups = chunk.lookups.as_slice();
        let mut exports = chunk.exports.iter().peekable();
        let mut at = 0;
        while at < lookups.len() {
            while let Some(event) = exports.next_if(|event| event.at <= at) {
                self.export(event)?;
            }
            let rest = &lookups[at..];
            let count = rest[1..]
                .iter()
                .position(|it| it & FIRST != 0)
                .map_or(rest.len(), |at| at + 1);
            let (process, first) = pages.name(rest[0] & PAGE_ID);
            let range = PageRange {
                first,
                count: count as u64,
            };
            self.operation(process, range, rest[0] & RECEIVE != 0)?;
            at += count;
        }
        exports.try_for_each(|event| self.export(event))
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        let host = self
            .hosts
            .iter()
            .flatten()
            .fold(Counters::default(), |sum, host| sum + host.counters());
        let nic = self.design.counters();
        Counts {
            nic_misses: nic.nic_misses,
            interrupts: nic.interrupts,
            check_misses: host.check_misses,
            pins: host.pins,
            unpins: host.unpins,
            ..self.counts
        }
    }

    /// NIC misses by cause; `None` if it was not asked for or the design has no such cache.
    pub fn causes(&self) -> Option<Causes> {
        let counts = self.counts();
        let compulsory = counts.misses.send_cold + counts.misses.receive_cold;
        Some(Causes::new(
            counts.nic_misses,
            compulsory,
            self.shadow.as_ref()?.misses(),
        ))
    }

    /// The NIC's side, to report on.
    pub fn design(&self) -> &AnyDesign {
        &self.design
    }

    fn host(&mut self, process: Process) -> Result<&mut HostSide, ReplayError> {
        let at = usize::from(process.0);
        if self.hosts.len() <= at {
            self.hosts.resize_with(at + 1, || None);
        }
        if self.hosts[at].is_none() {
            self.design.open(process).map_err(ReplayError::Nic)?;
        }
        let (design, rules) = (&self.design, self.configuration.rules);
        Ok(self.hosts[at].get_or_insert_with(|| HostSide::new(process, rules, design)))
    }

    fn operation(
        &mut self,
        process: Process,
        range: PageRange,
        receive: bool,
    ) -> Result<(), ReplayError> {
        self.host(process)?;
        let Replay {
            design,
            hosts,
            pinner,
            ..
        } = self;
        let Some(host) = &mut hosts[usize::from(process.0)] else {
            return Ok(());
        };
        host.prepare(design, pinner, range)?;
        host.hold(range).map_err(ReplayError::Limit)?;
        self.forget_unpinned();
        for page in range {
            self.look_up(process, page, receive)?;
        }
        if let Some(host) = &mut self.hosts[usize::from(process.0)] {
            host.release(range).map_err(ReplayError::Limit)?;
        }
        Ok(())
    }

    fn look_up(&mut self, process: Process, page: Page, receive: bool) -> Result<(), ReplayError> {
        self.counts.lookups += 1;
        self.counts.receive_lookups += u64::from(receive);
        let cold = self.looked_up.insert((process, page.0 / self.line_entries));
        if let Some(shadow) = &mut self.shadow {
            shadow.look_up(process, page, |page| {
                !self.design.installed(process, page).is_garbage()
            });
        }
        let mut missed = false;
        for _ in 0..4 {
            let answer = match receive {
                true => self.design.lookup_receive(process, page),
                false => self.design.lookup(process, page),
            };
            match answer {
                Lookup::Hit(_) => {}
                Lookup::Miss(_) => missed = true,
                Lookup::Host(_) => {
                    missed = true;
                    continue;
                }
            }
            if missed {
                self.counts.misses.count(receive, cold);
            }
            return Ok(());
        }
        Err(ReplayError::Stuck(page))
    }

    fn forget_unpinned(&mut self) {
        for (process, page) in self.pinner.unpinned.drain(..) {
            if let Some(shadow) = &mut self.shadow {
                shadow.remove(process, page);
            }
        }
    }

    fn export(&mut self, event: &ExportEvent) -> Result<(), ReplayError> {
        let ExportEvent {
            begins,
            process,
            range,
            ..
        } = *event;
        self.host(process)?;
        let Replay {
            design,
            hosts,
            pinner,
            ..
        } = self;
        let Some(host) = &mut hosts[usize::from(process.0)] else {
            return Ok(());
        };
        if begins {
            host.prepare(design, pinner, range)?;
            host.hold(range).map_err(ReplayError::Limit)?;
        } else {
            host.release(range).map_err(ReplayError::Limit)?;
        }
        self.forget_unpinned();
        Ok(())
    }
}
