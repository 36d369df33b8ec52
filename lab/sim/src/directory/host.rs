//! The host of a node: a processor that handles messages by interrupts, between which programs run.

use std::collections::VecDeque;

use mapwire_gms::{Error, GetPage, Gms, PageName, PutPage};
use mapwire_wire::NodeId;

use crate::hardware::wires::Flight;
use crate::hardware::{Cost, Profile, Ps};

/// The version that all pages have.
const VERSION: u32 = 1;

/// What a host does besides handling messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostLoad {
    /// Nothing: handlers stay in the caches.
    #[default]
    Idle,
    /// It runs a program that uses memory heavily.
    Active,
    /// The same, and nothing of a handler is in the caches when it is called.
    Cold,
}

/// What a program wants done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Getpage; the storing node gives its copy away.
    Take,
    /// Getpage; the storing node keeps its copy.
    Read,
    Put(NodeId),
    Discard,
}

impl Call {
    /// Makes the call. All pages lie in, and land in, the program's only frame.
    pub(super) fn make(self, gms: &mut Gms, now_ns: u64, name: PageName) -> Result<(), Error> {
        let (frame, tag) = (0, name.page);
        match self {
            Self::Take | Self::Read => gms.get(now_ns, GetPage { name, frame, tag, keep: self == Self::Read }),
            Self::Put(to) => {
                let put = PutPage {
                    name,
                    version: VERSION,
                    frame,
                    tag,
                    checksum: 0,
                    age_ms: 0,
                    on_disk: false,
                    copies: 1,
                    to: Some(to),
                };
                gms.put(now_ns, put)
            }
            Self::Discard => gms.discard(now_ns, name, VERSION),
        }
    }
}

#[derive(Debug)]
pub(super) enum HostJob {
    Message(Flight),
    /// The program makes a call.
    Ask(PageName, Call),
    /// The NIC's handler found that the host has pages to send.
    Serve(Vec<Flight>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Up to the call of the service.
    Handles,
    /// From there to what leaves.
    Answers,
    /// Back to the interrupted program.
    Returns,
}

#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) load: HostLoad,
    pub(super) queue: VecDeque<HostJob>,
    /// What it does; a message only until the service has it.
    pub(super) job: Option<HostJob>,
    pub(super) phase: Option<Phase>,
    /// What leaves at the end of the second phase.
    pub(super) out: VecDeque<Flight>,
    pub(super) phase_began_ps: Ps,
    /// The part of the handler, in 2^32ths, that was out of the caches when it was called.
    lost: u64,
    pub(super) last_end_ps: Ps,
}

impl Host {
    /// How much later a read of this host's memory begins.
    pub(super) fn bus_wait(&self, profile: &Profile) -> Ps {
        match self.load {
            HostLoad::Idle => 0,
            HostLoad::Active => profile.of(Cost::BusWaitActive),
            HostLoad::Cold => profile.of(Cost::BusWaitCold),
        }
    }

    /// How long the host takes until it calls the service. `is_woken` if nothing was handled just before.
    pub(super) fn before(&mut self, profile: &Profile, now_ps: Ps, is_woken: bool) -> Ps {
        if let Some(HostJob::Ask(_, call)) = &self.job {
            let fault_ps = match call {
                Call::Take | Call::Read => profile.of(Cost::HostFault),
                Call::Put(_) | Call::Discard => 0,
            };
            return profile.of(Cost::HostRequest) + fault_ps;
        }
        let half_ps = profile.of(Cost::CacheHalfLife).max(1);
        let since_ps = now_ps - self.last_end_ps;
        self.lost = match self.load {
            HostLoad::Idle => 0,
            // What is left falls as 1 / (1 + t / T).
            HostLoad::Active => ((u128::from(since_ps) << 32) / u128::from(since_ps + half_ps)) as u64,
            HostLoad::Cold => 1 << 32,
        };
        let interrupt_ps = if is_woken { profile.of(Cost::HostInterrupt) } else { 0 };
        interrupt_ps + profile.of(Cost::HostHandler) + self.missing(profile.of(Cost::HostCold))
    }

    /// How long the way back takes: its cache misses are to those of interrupt and handler as its time is to theirs.
    pub(super) fn after(&self, profile: &Profile) -> Ps {
        let (handler, back) = (profile.of(Cost::HostHandler), profile.of(Cost::HostReturn));
        let whole = (profile.of(Cost::HostInterrupt) + handler).max(1);
        back + self.missing(profile.of(Cost::HostCold) * back / whole)
    }

    fn missing(&self, cold_ps: Ps) -> Ps {
        ((u128::from(cold_ps) * u128::from(self.lost)) >> 32) as Ps
    }
}
