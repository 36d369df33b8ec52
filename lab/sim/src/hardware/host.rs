//! The host of a node: a processor that handles messages by interrupts, between which programs run.

use std::collections::VecDeque;

use super::flight::{Flight, Outgoing};
use super::profile::{Cost, Profile, Ps};
use super::{Ask, Call};

/// What a host does besides handling messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostState {
    /// Nothing: handlers stay in the caches.
    #[default]
    Idle,
    /// It runs a program that uses memory heavily.
    Active,
    /// The same, and nothing of a handler is in the caches when it is called.
    Cold,
}

#[derive(Debug)]
pub(super) enum HostJob {
    Message(Flight),
    /// The program makes a call.
    Ask(Ask),
    /// The NIC's handler found that the host has pages to send.
    Serve(Vec<Outgoing>),
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
    pub(super) state: HostState,
    pub(super) queue: VecDeque<HostJob>,
    /// What it does; a message only until the service has it.
    pub(super) job: Option<HostJob>,
    pub(super) phase: Option<Phase>,
    /// What leaves at the end of the second phase.
    pub(super) out: VecDeque<Outgoing>,
    pub(super) phase_began_ps: Ps,
    /// The part of the handler, in 2^32ths, that was out of the caches when it was called.
    lost: u64,
    last_end_ps: Ps,
    pub(super) busy_ps: Ps,
    pub(super) interrupts: u64,
}

impl Host {
    /// How much later a read of this host's memory begins.
    pub(super) fn bus_wait(&self, profile: &Profile) -> Ps {
        match self.state {
            HostState::Idle => 0,
            HostState::Active => profile.of(Cost::BusWaitActive),
            HostState::Cold => profile.of(Cost::BusWaitCold),
        }
    }

    /// How long the host takes until it calls the service. `is_woken` if nothing was handled just before.
    pub(super) fn before(&mut self, profile: &Profile, now_ps: Ps, is_woken: bool) -> Ps {
        if let Some(HostJob::Ask(ask)) = &self.job {
            let fault_ps = match ask.call {
                Call::Take | Call::Read => profile.of(Cost::HostFault),
                Call::Put(_) | Call::Discard => 0,
            };
            return profile.of(Cost::HostRequest) + fault_ps;
        }
        let half_ps = profile.of(Cost::CacheHalfLife).max(1);
        let since_ps = now_ps - self.last_end_ps;
        self.lost = match self.state {
            HostState::Idle => 0,
            // What is left falls as 1 / (1 + t / T).
            HostState::Active => {
                let lost = (u128::from(since_ps) << 32) / u128::from(since_ps + half_ps);
                lost as u64
            }
            HostState::Cold => 1 << 32,
        };
        let mut interrupt_ps = 0;
        if is_woken {
            self.interrupts += 1;
            interrupt_ps = profile.of(Cost::HostInterrupt);
        }
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

    pub(super) fn note_end(&mut self, now_ps: Ps) {
        self.last_end_ps = now_ps;
    }
}
