//! The NIC of a node: a processor that does one job after the other, step by step, and slows down while DMA uses its memory.

use std::collections::VecDeque;

use super::flight::{Flight, Outgoing};
use super::host::HostJob;
use super::profile::{Cost, Profile, Ps};

/// What kind of code the NIC's processor runs: each is slowed by DMA in its own measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Scans,
    /// Loads and stores mostly.
    Moves,
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
    pub(super) out: VecDeque<Outgoing>,
    pub(super) for_host: Option<HostJob>,
    /// It sends what the host has handed over.
    pub(super) is_send: bool,
}

#[derive(Clone, Copy, Debug)]
struct Compute {
    left_ps: Ps,
    code: Code,
    since_ps: Ps,
    began_ps: Ps,
    label: &'static str,
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
    compute: Option<Compute>,
    /// Which wake-up counts: others are of plans that have changed.
    pub(super) plan: u64,
    /// Transfers to and from host memory that are active.
    host_dma: u32,
    /// Transfers to and from wires that are active.
    wire_dma: u32,
    pub(super) transfer: Transfer,
    pub(super) job_began_ps: Ps,
    /// How long jobs took that ended.
    pub(super) busy_ps: Ps,
    /// Of that, those that sent what the host had handed over.
    pub(super) sending_ps: Ps,
}

impl Nic {
    /// Work for each unit of time: parts, of so many.
    fn rate(&self, profile: &Profile, code: Code) -> (u64, u64) {
        let (alone, slowed) = match code {
            Code::Scans => (Cost::NicScan, Cost::NicScanInDma),
            Code::Moves => (Cost::NicPrepare, Cost::NicPrepareInDma),
        };
        let (alone, slowed) = (profile.of(alone), profile.of(slowed));
        match (self.host_dma > 0, self.wire_dma > 0) {
            // A processor whose memory is its own.
            _ if slowed <= alone => (1, 1),
            (false, false) => (1, 1),
            // GMS-NP §4.7: the processor stops when both are active.
            (true, true) => (0, 1),
            _ => (alone, slowed),
        }
    }

    pub(super) fn begin(&mut self, now_ps: Ps, work_ps: Ps, code: Code, label: &'static str) {
        self.compute = Some(Compute { left_ps: work_ps, code, since_ps: now_ps, began_ps: now_ps, label });
    }

    /// When the work in progress ends if nothing changes; `None` if nothing is in progress, or the processor stands still.
    pub(super) fn ends_at(&self, profile: &Profile) -> Option<Ps> {
        let compute = self.compute?;
        let (parts, of) = self.rate(profile, compute.code);
        (parts > 0).then(|| compute.since_ps + (compute.left_ps * of).div_ceil(parts))
    }

    /// Ends the work in progress. Gives what it was, and when it began.
    pub(super) fn end(&mut self) -> Option<(&'static str, Ps)> {
        let compute = self.compute.take()?;
        Some((compute.label, compute.began_ps))
    }

    /// Whether there is work in progress.
    pub(super) fn computes(&self) -> bool {
        self.compute.is_some()
    }

    /// A transfer begins or ends: what was done so far counts at the rate so far.
    pub(super) fn change_dma(&mut self, profile: &Profile, now_ps: Ps, is_wire: bool, begins: bool) {
        if let Some(mut compute) = self.compute {
            let (parts, of) = self.rate(profile, compute.code);
            let done_ps = (now_ps - compute.since_ps) * parts / of;
            compute.left_ps = compute.left_ps.saturating_sub(done_ps);
            compute.since_ps = now_ps;
            self.compute = Some(compute);
        }
        let active = if is_wire { &mut self.wire_dma } else { &mut self.host_dma };
        *active = if begins { *active + 1 } else { *active - 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Constant, Origin};

    fn profile() -> Profile {
        let is = |cost, value| Constant { cost, value, origin: Origin::Assumed, source: "test" };
        let constants =
            [is(Cost::NicScan, 3), is(Cost::NicScanInDma, 4), is(Cost::NicPrepare, 1), is(Cost::NicPrepareInDma, 2)];
        Profile::new("test", 0, &constants)
    }

    #[test]
    fn a_transfer_slows_the_processor_only_while_it_lasts() {
        let profile = profile();
        let mut nic = Nic::default();
        nic.begin(0, 1_000, Code::Scans, "scans");
        assert_eq!(nic.ends_at(&profile), Some(1_000));
        nic.change_dma(&profile, 100, false, true);
        // 900 are left, which take 1,200 now.
        assert_eq!(nic.ends_at(&profile), Some(1_300));
        nic.change_dma(&profile, 500, false, false);
        // Of the 900, 300 were done in 400.
        assert_eq!(nic.ends_at(&profile), Some(1_100));
    }

    #[test]
    fn the_processor_stops_while_both_wire_and_host_are_transferred() {
        let profile = profile();
        let mut nic = Nic::default();
        nic.change_dma(&profile, 0, true, true);
        nic.begin(0, 1_000, Code::Moves, "prepares");
        assert_eq!(nic.ends_at(&profile), Some(2_000));
        nic.change_dma(&profile, 1_000, false, true);
        assert_eq!(nic.ends_at(&profile), None);
        nic.change_dma(&profile, 5_000, true, false);
        assert_eq!(nic.ends_at(&profile), Some(6_000));
    }
}
