//! The host sides of all processes of a NIC.

use crate::Counters;
use crate::design::{HostRequest, Lookup, NicSide, TranslationDesign, TranslationError};
use crate::host::{HostResult, HostSide, PinPages};
use crate::limit::PinRules;
use crate::opened::Opened;
use crate::page::{Frame, Page, Process};
use alloc::vec::Vec;

/// A host in control of all processes of a NIC, such as a study's or a daemon's. Where each process has a driver of its own, each has a
/// [`HostSide`].
///
/// ```
/// use mapwire_translation::*;
/// let cache = CacheConfig::default().with_entries(2);
/// let mut nic = AnyDesign::new(&DesignConfig::Interrupt(InterruptConfig::default().with_cache(cache)))?;
/// let mut hosts = Hosts::new();
/// let mut pinner = SimulatedPinner::default();
/// hosts.open(&mut nic, Process(0), PinRules::default())?;
/// for page in [0, 1, 0, 2] {
///     hosts.translate(&mut nic, &mut pinner, Process(0), Page(page))?;
/// }
/// let counters = hosts.counters() + nic.counters();
/// assert_eq!((counters.nic_misses, counters.interrupts), (3, 3));
/// assert_eq!((counters.pins, counters.unpins), (3, 1)); // page 2 took the place of page 0
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Hosts {
    sides: Opened<HostSide>,
    evicted: Vec<(Process, Page)>,
}

impl Default for Hosts {
    fn default() -> Self {
        Self::new()
    }
}

impl Hosts {
    /// Without processes.
    pub fn new() -> Self {
        Hosts { sides: Opened::new(), evicted: Vec::new() }
    }

    /// Opens the process, here and in the NIC.
    ///
    /// # Errors
    /// It is open already.
    pub fn open(&mut self, nic: &mut impl NicSide, process: Process, rules: PinRules) -> Result<(), TranslationError> {
        nic.design_mut().open(process)?;
        let side = HostSide::new(process, rules, nic.design());
        self.sides.open(process, side)
    }

    pub fn side(&self, process: Process) -> Option<&HostSide> {
        self.sides.get(process)
    }

    /// The host side of a process, for prepare, hold and release. Requests are served by [`serve`](Self::serve).
    ///
    /// # Errors
    /// The process is not open.
    #[inline]
    pub fn side_mut(&mut self, process: Process) -> Result<&mut HostSide, TranslationError> {
        self.sides.get_mut(process)
    }

    /// Serves a request of the NIC, and unpins what had to leave the NIC for it, of any process. Ignores a request of a process that is
    /// not open.
    ///
    /// # Errors
    /// As [`HostSide::serve`].
    pub fn serve<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        request: HostRequest,
    ) -> HostResult<N, P> {
        let Ok(side) = self.sides.get_mut(request.process()) else {
            return Ok(());
        };
        let mut outcome = side.serve(nic, pinner, request, &mut self.evicted);
        for (process, page) in self.evicted.drain(..) {
            if let Ok(side) = self.sides.get_mut(process) {
                outcome = outcome.and(side.drop_evicted(nic, pinner, page));
            }
        }
        outcome
    }

    /// Translates the page as the source of a send: looks it up, and serves the NIC until it has it.
    ///
    /// # Errors
    /// As [`HostSide::serve`]. The NIC would go on with the garbage frame.
    #[inline]
    pub fn translate<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        process: Process,
        page: Page,
    ) -> Result<Frame, HostFailure<N, P>> {
        self.until_found(nic, pinner, |design| design.lookup(process, page))
    }

    /// As [`translate`](Self::translate), for a page of an export.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn translate_receive<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        process: Process,
        page: Page,
    ) -> Result<Frame, HostFailure<N, P>> {
        self.until_found(nic, pinner, |design| design.lookup_receive(process, page))
    }

    #[inline]
    fn until_found<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        mut look: impl FnMut(&mut N::Design) -> Lookup,
    ) -> Result<Frame, HostFailure<N, P>> {
        loop {
            match look(nic.design_mut()) {
                Lookup::Hit(frame) | Lookup::Miss(frame) => return Ok(frame),
                Lookup::Host(request) => {
                    if let Err(error) = self.serve(nic, pinner, request) {
                        // The answer with which the NIC goes on.
                        look(nic.design_mut());
                        return Err(error);
                    }
                }
            }
        }
    }

    /// [`HostSide::reclaim`] of every process.
    ///
    /// # Errors
    /// As there; the others are served nevertheless.
    pub fn reclaim<N: NicSide, P: PinPages>(&mut self, nic: &mut N, pinner: &mut P) -> HostResult<N, P> {
        let mut outcome = Ok(());
        for side in self.sides.iter_mut() {
            outcome = outcome.and(side.reclaim(nic, pinner));
        }
        outcome
    }

    /// Counters of all processes' library sides.
    pub fn counters(&self) -> Counters {
        let each = self.sides.iter().map(HostSide::counters);
        each.fold(Counters::default(), |sum, counters| sum + counters)
    }
}

/// Why the host could not serve the NIC `N` with the pinner `P`.
pub type HostFailure<N, P> = crate::HostError<<P as PinPages>::Error, <N as NicSide>::Error>;
