//! The processor of a NIC: it works on one thing at a time, and slows down while DMA uses its memory.

use super::Ps;
use super::timeline::{Lane, Timeline};

#[derive(Clone, Copy, Debug)]
struct Work {
    left_ps: Ps,
    since_ps: Ps,
    began_ps: Ps,
    label: &'static str,
}

/// How much of its time the processor works: parts, of so many; by whether host memory is transferred, and whether a wire is.
pub(crate) type Rates = [[(u64, u64); 2]; 2];

/// A processor whose work is planned by events: of those, only that of the last plan counts.
#[derive(Debug, Default)]
pub(crate) struct NicProcessor {
    work: Option<Work>,
    rates: Rates,
    plan: u64,
    host_transfers: u32,
    wire_transfers: u32,
}

impl NicProcessor {
    pub(crate) fn works(&self) -> bool {
        self.work.is_some()
    }

    /// The number of a new plan, which an event is entered by.
    pub(crate) fn plan(&mut self) -> u64 {
        self.plan += 1;
        self.plan
    }

    pub(crate) fn is_planned(&self, plan: u64) -> bool {
        self.plan == plan
    }

    fn rate(&self) -> (u64, u64) {
        self.rates[usize::from(self.host_transfers > 0)][usize::from(self.wire_transfers > 0)]
    }

    /// Begins work that takes so long at full speed. Gives its end, and its plan.
    pub(crate) fn begin(&mut self, now_ps: Ps, left_ps: Ps, label: &'static str, rates: Rates) -> Option<(Ps, u64)> {
        self.rates = rates;
        self.work = Some(Work { left_ps, since_ps: now_ps, began_ps: now_ps, label });
        self.end_of_work()
    }

    /// When the work in progress ends if nothing changes, and the plan of that; `None` without any, or while the processor stands still.
    fn end_of_work(&mut self) -> Option<(Ps, u64)> {
        let (work, (parts, of)) = (self.work?, self.rate());
        let plan = self.plan();
        (parts > 0).then(|| (work.since_ps + (work.left_ps * of).div_ceil(parts), plan))
    }

    /// Ends the work in progress. Gives what it was, and how long it took.
    pub(crate) fn end(&mut self, now_ps: Ps, node: usize, timeline: &mut Timeline) -> Option<(&'static str, Ps)> {
        let work = self.work.take()?;
        timeline.note(node, Lane::Nic, work.label, (work.began_ps, now_ps));
        Some((work.label, now_ps - work.began_ps))
    }

    /// A transfer begins or ends: what was done so far counts at the rate so far. Gives the new end of the work in progress.
    pub(crate) fn change_dma(&mut self, now_ps: Ps, is_wire: bool, begins: bool) -> Option<(Ps, u64)> {
        let (parts, of) = self.rate();
        if let Some(work) = &mut self.work {
            let done_ps = (now_ps - work.since_ps) * parts / of;
            work.left_ps = work.left_ps.saturating_sub(done_ps);
            work.since_ps = now_ps;
        }
        let active = if is_wire { &mut self.wire_transfers } else { &mut self.host_transfers };
        *active = if begins { *active + 1 } else { *active - 1 };
        self.end_of_work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(planned: Option<(Ps, u64)>) -> Option<Ps> {
        planned.map(|planned| planned.0)
    }

    #[test]
    fn a_transfer_slows_the_processor_only_while_it_lasts() {
        let mut nic = NicProcessor::default();
        let slowed = [[(1, 1), (3, 4)], [(3, 4), (0, 1)]];
        assert_eq!(end(nic.begin(0, 1_000, "scans", slowed)), Some(1_000));
        // 900 are left, which take 1,200 now.
        assert_eq!(end(nic.change_dma(100, false, true)), Some(1_300));
        // Of the 900, 300 were done in 400.
        assert_eq!(end(nic.change_dma(500, false, false)), Some(1_100));
    }

    #[test]
    fn the_processor_stops_while_both_wire_and_host_are_transferred() {
        let mut nic = NicProcessor::default();
        let slowed = [[(1, 1), (1, 2)], [(1, 2), (0, 1)]];
        nic.change_dma(0, true, true);
        assert_eq!(end(nic.begin(0, 1_000, "prepares", slowed)), Some(2_000));
        assert_eq!(end(nic.change_dma(1_000, false, true)), None);
        assert_eq!(end(nic.change_dma(5_000, true, false)), Some(6_000));
    }
}
