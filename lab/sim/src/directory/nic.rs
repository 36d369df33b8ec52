//! The NIC of a node: it does one job after the other, step by step.

use std::collections::VecDeque;

use super::host::HostJob;
use crate::hardware::wires::Flight;
use crate::hardware::{Cost, NicProcessor, Profile, Ps, Rates};

/// What kind of code the NIC's processor runs: each is slowed by DMA in its own measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Scans,
    /// Loads and stores mostly.
    Moves,
}

impl Code {
    /// How much work is done in each unit of time.
    pub(super) fn rates(self, profile: &Profile) -> Rates {
        let (alone, slowed) = match self {
            Self::Scans => (Cost::NicScan, Cost::NicScanInDma),
            Self::Moves => (Cost::NicPrepare, Cost::NicPrepareInDma),
        };
        let (alone, slowed) = (profile.of(alone), profile.of(slowed));
        if slowed <= alone {
            // A processor whose memory is its own.
            return [[(1, 1); 2]; 2];
        }
        // GMS-NP §4.7: the processor stops when both are active.
        [[(1, 1), (alone, slowed)], [(alone, slowed), (0, 1)]]
    }
}

/// One step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The processor works for so long, if no DMA slows it.
    Compute(Ps, Code, &'static str),
    /// The DMA engine begins a transfer, after those before it.
    Dma {
        bytes: u64,
        /// Reads host memory, rather than writing it.
        reads: bool,
        /// It cannot end before this, as the last bytes are not there.
        not_before_ps: Ps,
        label: &'static str,
    },
    /// Waits until so many bytes of the transfer begun last are there.
    Await(u64),
    /// Waits until the transfer begun last has ended.
    AwaitEnd,
    /// The message goes to the service.
    Handle,
    /// The job's next outgoing message leaves.
    Transmit,
    /// Gives the host what the job has for it, by an interrupt.
    Interrupt,
}

/// Steps, and what they are about.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) steps: VecDeque<Step>,
    pub(super) message: Option<Flight>,
    pub(super) out: VecDeque<Flight>,
    pub(super) for_host: Option<HostJob>,
    /// It sends what the host has handed over.
    pub(super) is_send: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Transfer {
    pub(super) begin_ps: Ps,
    pub(super) end_ps: Ps,
}

#[derive(Debug, Default)]
pub(super) struct Nic {
    pub(super) queue: VecDeque<Job>,
    pub(super) job: Option<Job>,
    pub(super) processor: NicProcessor,
    pub(super) transfer: Transfer,
    pub(super) job_began_ps: Ps,
}
