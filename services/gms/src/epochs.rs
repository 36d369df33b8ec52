//! Epochs (Feeley §3): in each, one node knows how old the pages of all nodes are, and tells where replaced pages are to go.

use alloc::collections::BTreeMap;

use mapwire_wire::NodeId;

use crate::message::{AGE_BINS, AgeReport, EpochInfo};
use crate::nodes::MAX_NODES;

/// How long the initiator waits for reports, in nanoseconds.
const COLLECT_NS: u64 = 1_000_000_000;
/// Durations of an epoch after which the coordinator takes the initiator's place.
const PATIENCE: u64 = 3;
/// Pages that may be replaced in an epoch, at least.
const LEAST_BUDGET: u64 = 64;

/// What a node knows of the epoch.
#[derive(Debug)]
pub(crate) struct Epochs {
    duration_ms: u32,
    current: Option<EpochInfo>,
    began_ns: Option<u64>,
    /// When this node looks next whether the initiator is silent.
    look_ns: u64,
    /// The budget of this node is used up.
    is_over: bool,
    collecting: Option<Collecting>,
    /// Pages replaced here since the last report.
    replaced: u32,
    /// Pages taken in since the epoch began.
    taken_in: u64,
}

#[derive(Debug)]
struct Collecting {
    epoch: u32,
    until_ns: u64,
    reports: BTreeMap<NodeId, AgeReport>,
}

impl Epochs {
    pub(crate) fn new(duration_ms: u32) -> Self {
        Self {
            duration_ms: duration_ms.max(1),
            current: None,
            began_ns: None,
            look_ns: 0,
            is_over: false,
            collecting: None,
            replaced: 0,
            taken_in: 0,
        }
    }

    pub(crate) fn current(&self) -> Option<&EpochInfo> {
        self.current.as_ref()
    }

    /// The node's clock is known from now on.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.began_ns.get_or_insert(now_ns);
    }

    fn duration_ns(&self) -> u64 {
        let of_epoch = self.current.map(|info| info.duration_ms);
        u64::from(of_epoch.unwrap_or(self.duration_ms)) * 1_000_000
    }

    fn ends_ns(&self) -> Option<u64> {
        Some(self.began_ns?.saturating_add(self.duration_ns()))
    }

    pub(crate) fn poll_at(&self) -> Option<u64> {
        let collected = self.collecting.as_ref().map(|collecting| collecting.until_ns);
        if collected.is_some() {
            return collected;
        }
        if self.is_over { self.began_ns } else { self.ends_ns().map(|ends_ns| ends_ns.max(self.look_ns)) }
    }

    /// Whether this node must begin the next epoch, or end its collection of ages. If not, the next look is postponed.
    pub(crate) fn is_due(&mut self, now_ns: u64, me: NodeId, is_coordinator: bool) -> bool {
        if let Some(collecting) = &self.collecting {
            return now_ns >= collecting.until_ns;
        }
        let Some(ends_ns) = self.ends_ns() else { return false };
        let is_initiator = match &self.current {
            Some(info) => info.next_initiator == me,
            None => is_coordinator,
        };
        if is_initiator {
            return self.is_over || now_ns >= ends_ns;
        }
        if now_ns < ends_ns {
            return false;
        }
        // Others look again later: they may be coordinator by then.
        let patience_ns = self.duration_ns().saturating_mul(PATIENCE);
        let patient_until_ns = ends_ns.saturating_add(patience_ns);
        let is_patient = now_ns < patient_until_ns;
        self.look_ns = if is_patient { patient_until_ns } else { now_ns.saturating_add(patience_ns) };
        is_coordinator && !is_patient
    }

    /// Whether an epoch is long over and nobody begins the next one. To be asked before [`is_due`](Self::is_due), which postpones
    /// the next look.
    pub(crate) fn is_silent(&self, now_ns: u64) -> bool {
        let patience_ns = self.duration_ns().saturating_mul(PATIENCE);
        let patient_until_ns = self.ends_ns().map(|ends_ns| ends_ns.saturating_add(patience_ns));
        self.collecting.is_none()
            && now_ns >= self.look_ns
            && patient_until_ns.is_some_and(|until_ns| now_ns >= until_ns)
    }

    pub(crate) fn is_collecting(&self) -> bool {
        self.collecting.is_some()
    }

    /// Begins to collect ages for the next epoch, and gives its number.
    pub(crate) fn collect(&mut self, now_ns: u64) -> u32 {
        let epoch = self.current.map_or(0, |info| info.epoch).wrapping_add(1);
        self.collecting =
            Some(Collecting { epoch, until_ns: now_ns.saturating_add(COLLECT_NS), reports: BTreeMap::new() });
        epoch
    }

    /// Takes a report; gives how many there are now. `None` if none is wanted.
    pub(crate) fn add_report(&mut self, from: NodeId, report: AgeReport) -> Option<usize> {
        let collecting = self.collecting.as_mut()?;
        if collecting.epoch != report.epoch {
            return None;
        }
        collecting.reports.insert(from, report);
        Some(collecting.reports.len())
    }

    /// What holds in the next epoch, by the ages collected.
    pub(crate) fn compute(&mut self, me: NodeId) -> Option<EpochInfo> {
        let collecting = self.collecting.take()?;
        Some(plan(me, collecting.epoch, self.duration_ms, &collecting.reports))
    }

    pub(crate) fn adopt(&mut self, now_ns: u64, info: EpochInfo) {
        let is_later = |current: &EpochInfo| info.epoch.wrapping_sub(current.epoch) as i32 > 0;
        if !self.current.as_ref().is_none_or(is_later) {
            return;
        }
        self.current = Some(EpochInfo {
            // A duration of 0 would keep the node busy.
            duration_ms: info.duration_ms.max(1),
            ..info
        });
        self.began_ns = Some(now_ns);
        self.look_ns = 0;
        self.is_over = false;
        self.collecting = None;
        self.taken_in = 0;
    }

    /// Pages replaced here since it was asked last.
    pub(crate) fn take_replaced(&mut self) -> u32 {
        core::mem::take(&mut self.replaced)
    }

    pub(crate) fn note_replaced(&mut self) {
        self.replaced = self.replaced.saturating_add(1);
    }

    /// A page has come here. The next initiator ends the epoch when it has got its share of the budget.
    pub(crate) fn note_taken_in(&mut self, now_ns: u64, me: NodeId) {
        self.taken_in += 1;
        let Some(info) = &self.current else { return };
        let sum: u64 = info.weights.iter().map(|&weight| u64::from(weight)).sum();
        let share = u64::from(info.budget) * self.weight(me) / sum.max(1);
        if info.next_initiator == me && share > 0 && self.taken_in >= share && !self.is_over {
            self.is_over = true;
            self.began_ns.get_or_insert(now_ns);
        }
    }

    /// Weight of a node in this epoch.
    pub(crate) fn weight(&self, node: NodeId) -> u64 {
        let weights = self.current.as_ref().map(|info| &info.weights);
        let weight = weights.and_then(|weights| weights.get(usize::from(node.0)));
        u64::from(weight.copied().unwrap_or(0))
    }

    /// Whether a page of this age is not worth a frame. Before the first epoch every page is.
    pub(crate) fn is_old(&self, age_ms: u32) -> bool {
        let min_age_ms = self.current.as_ref().map(|info| info.min_age_ms);
        min_age_ms.is_some_and(|min_age_ms| age_ms > min_age_ms)
    }

    /// Whether a page of this age may be dropped, if it is on permanent storage. Before the first epoch every one may.
    pub(crate) fn may_drop(&self, age_ms: u32) -> bool {
        self.current.is_none() || self.is_old(age_ms)
    }
}

/// MinAge, weights, budget and next initiator, from the ages of all nodes.
///
/// The budget *M* is twice what was replaced in the last epoch, at least 64, at most a quarter of all frames. The *M* oldest pages,
/// where a free frame counts as older than any page, give MinAge and the weights.
fn plan(me: NodeId, epoch: u32, duration_ms: u32, reports: &BTreeMap<NodeId, AgeReport>) -> EpochInfo {
    let sum = |count: &dyn Fn(&AgeReport) -> u64| reports.values().map(count).sum::<u64>();
    let free = sum(&|report| u64::from(report.free));
    let in_bin = |bin: usize| sum(&|report: &AgeReport| u64::from(report.bins[bin]));
    let frames = free + (0..AGE_BINS).map(in_bin).sum::<u64>();
    let replaced = sum(&|report| u64::from(report.replaced));
    let budget = (2 * replaced).max(LEAST_BUDGET).min((frames / 4).max(1));
    let mut oldest = free;
    let mut first_bin = AGE_BINS;
    while oldest < budget && first_bin > 0 {
        first_bin -= 1;
        oldest += in_bin(first_bin);
    }
    let min_age_ms = match first_bin {
        AGE_BINS => u32::MAX,
        0 => 0,
        bin => 1 << (bin - 1),
    };
    let share = |report: &AgeReport| {
        let old = report.bins[first_bin..].iter().map(|&pages| u64::from(pages));
        u64::from(report.free) + old.sum::<u64>()
    };
    let shares = || reports.iter().map(|(&node, report)| (node, share(report)));
    let largest = shares().max_by_key(|&(node, share)| (share, core::cmp::Reverse(node)));
    let (next_initiator, most) = largest.filter(|&(_, most)| most > 0).unwrap_or((me, 1));
    let mut weights = [0; MAX_NODES as usize];
    for (node, share) in shares().filter(|&(_, share)| share > 0) {
        if let Some(weight) = weights.get_mut(usize::from(node.0)) {
            // Nodes with few old pages keep a weight.
            *weight = (share * u64::from(u16::MAX) / most).max(1) as u16;
        }
    }
    EpochInfo {
        epoch,
        min_age_ms,
        duration_ms,
        budget: u32::try_from(budget).unwrap_or(u32::MAX),
        next_initiator,
        weights,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(free: u32, replaced: u32, bins: &[(usize, u32)]) -> AgeReport {
        let mut report = AgeReport { epoch: 1, free, replaced, bins: [0; AGE_BINS] };
        bins.iter().for_each(|&(bin, pages)| report.bins[bin] = pages);
        report
    }

    fn planned(reports: &[AgeReport]) -> EpochInfo {
        let reports = (0..).map(NodeId).zip(reports.iter().copied()).collect();
        plan(NodeId(0), 1, 1000, &reports)
    }

    #[test]
    fn the_node_with_the_most_old_pages_gets_the_largest_weight_and_initiates_the_next_epoch() {
        let info = planned(&[
            report(0, 40, &[(3, 500)]),
            report(0, 10, &[(3, 100), (15, 150)]),
            report(0, 0, &[(15, 50), (2, 300)]),
        ]);
        // 100 of 1,100 pages may be replaced: 200 are 2^14 ms old or older.
        assert_eq!((info.budget, info.min_age_ms), (100, 1 << 14));
        assert_eq!(info.next_initiator, NodeId(1));
        assert_eq!(info.weights[..4], [0, u16::MAX, u16::MAX / 3, 0]);
    }

    #[test]
    fn free_frames_count_as_older_than_any_page() {
        let info = planned(&[report(100, 0, &[(31, 100)]), report(300, 0, &[(1, 100)])]);
        assert_eq!((info.budget, info.min_age_ms), (64, u32::MAX));
        assert_eq!(info.next_initiator, NodeId(1));
        assert_eq!(info.weights[..2], [u16::MAX / 3, u16::MAX]);
    }

    #[test]
    fn without_frames_the_same_node_tries_again() {
        let info = planned(&[report(0, 0, &[]), report(0, 0, &[])]);
        assert_eq!((info.next_initiator, info.budget), (NodeId(0), 1));
        assert!(info.weights.iter().all(|&weight| weight == 0));
    }

    #[test]
    fn the_coordinator_takes_the_place_of_an_initiator_that_is_silent() {
        let mut epochs = Epochs::new(1);
        epochs.begin(0);
        let (coordinator, other) = (NodeId(0), NodeId(1));
        assert!(!epochs.is_due(999_999, coordinator, true));
        assert!(epochs.is_due(1_000_000, coordinator, true));
        let mut info = planned(&[report(0, 0, &[])]);
        (info.next_initiator, info.duration_ms) = (other, 1);
        epochs.adopt(0, info);
        assert!(!epochs.is_due(2_000_000, coordinator, true));
        assert!(epochs.is_due(4_000_000, coordinator, true));
        assert!(epochs.is_due(1_000_000, other, false));
    }
}
