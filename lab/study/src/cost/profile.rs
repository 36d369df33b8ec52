//! Costs of the parts of a lookup on some machine.

/// A cost that depends on how many pages or entries one call takes. Between known numbers it is interpolated; past the last
/// one the last slope goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerCount {
    points: Vec<(u64, u64)>,
}

impl PerCount {
    /// From (count, picoseconds); `None` without any.
    pub fn new(mut points: Vec<(u64, u64)>) -> Option<Self> {
        points.sort_unstable();
        points.dedup_by_key(|point| point.0);
        (!points.is_empty()).then_some(PerCount { points })
    }

    /// Picoseconds of one call for `count`; below the first known number, that number's.
    pub fn of(&self, count: u64) -> u64 {
        let after = self.points.partition_point(|point| point.0 < count);
        match (self.points.get(after), after) {
            (Some(point), _) if point.0 == count => point.1,
            (Some(first), 0) => first.1,
            (Some(_), _) => line(self.points[after - 1], self.points[after], count),
            (None, 1) => self.points[0].1,
            (None, _) => line(self.points[after - 2], self.points[after - 1], count),
        }
    }
}

/// The straight line through two points, never below 0.
fn line(a: (u64, u64), b: (u64, u64), at: u64) -> u64 {
    let rise = i128::from(b.1) - i128::from(a.1);
    let run = i128::from(b.0) - i128::from(a.0);
    let value = i128::from(a.1) + rise * (i128::from(at) - i128::from(a.0)) / run;
    u64::try_from(value).unwrap_or(0)
}

/// A cost that is known as a range, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Between {
    pub least_ps: u64,
    pub most_ps: u64,
}

impl Between {
    pub const fn new(least_ps: u64, most_ps: u64) -> Self {
        Between { least_ps, most_ps }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleMissCost {
    /// Until the host's thread runs.
    pub delay: Between,
    pub processing: Between,
    /// The packet that was dropped travels once more. The time that passes before its link notices is not in it.
    pub resend: Between,
    /// Whether `processing` leaves out pinning, so that pins cost besides.
    pub pins_apart: bool,
}

impl HandleMissCost {
    /// §V.C: "miss processing time [...] within the 5-500µs range", "delay miss time [...] usually within the 0-50µs range". The
    /// paper prints no cost of sending again; a packet of up to a page takes the bus (133 MB/s) and the link (160 MB/s, Table II).
    pub const PAPER: HandleMissCost = HandleMissCost {
        delay: Between::new(0, 50_000_000),
        processing: Between::new(5_000_000, 500_000_000),
        resend: Between::new(0, 56_400_000),
        pins_apart: false,
    };

    pub const fn least_ps(&self) -> u64 {
        self.delay.least_ps + self.processing.least_ps + self.resend.least_ps
    }

    pub const fn most_ps(&self) -> u64 {
        self.delay.most_ps + self.processing.most_ps + self.resend.most_ps
    }
}

/// What the parts of a lookup cost, in picoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CostProfile {
    pub name: String,
    /// The library finds a page pinned.
    pub user_check_ps: u64,
    /// A call that pins so many pages.
    pub user_pin_ps: PerCount,
    /// A call that unpins one page.
    pub user_unpin_ps: u64,
    /// The NIC finds a translation in its cache.
    pub nic_check_ps: u64,
    /// What a miss that fetches so many entries costs besides.
    pub nic_miss_ps: PerCount,
    pub interrupt_ps: Option<u64>,
    /// A page is pinned while the host serves the NIC.
    pub kernel_pin_ps: Option<u64>,
    /// A page is unpinned while the host serves the NIC.
    pub kernel_unpin_ps: Option<u64>,
    pub handle_miss: Option<HandleMissCost>,
}

impl CostProfile {
    /// The papers' figures. UTLB Tables 1 and 2, §6.2; of a miss of dynamic handles, [`HandleMissCost::PAPER`]. Pinning in the kernel (17 µs) and unpinning (15 µs) are not printed; they follow
    /// from Table 6, as the tests of this module show.
    pub fn papers() -> Self {
        let us = |points: [u64; 6]| PerCount {
            points: [1, 2, 4, 8, 16, 32].into_iter().zip(points.map(|tenths| tenths * 100_000)).collect(),
        };
        CostProfile {
            name: "papers".to_owned(),
            user_check_ps: 500_000,
            user_pin_ps: us([270, 300, 360, 470, 700, 1150]),
            user_unpin_ps: 25_000_000,
            nic_check_ps: 800_000,
            nic_miss_ps: us([18, 19, 19, 23, 28, 32]),
            interrupt_ps: Some(10_000_000),
            kernel_pin_ps: Some(17_000_000),
            kernel_unpin_ps: Some(15_000_000),
            handle_miss: Some(HandleMissCost::PAPER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::{Paper, table};

    #[test]
    fn the_papers_profile_is_what_tables_1_and_2_print() {
        let profile = CostProfile::papers();
        let (one, two) = (table(Paper::Utlb, "Table 1").unwrap(), table(Paper::Utlb, "Table 2").unwrap());
        let printed = |table: &crate::published::PublishedTable, row: &str, column: &str| {
            (table.cell(&[row], column).unwrap().value().unwrap() * 1e6).round() as u64
        };
        for pages in ["1", "2", "4", "8", "16", "32"] {
            let count = pages.parse().unwrap();
            assert_eq!(profile.user_pin_ps.of(count), printed(&one, "pin", pages));
            assert_eq!(profile.nic_miss_ps.of(count), printed(&two, "total miss cost", pages));
        }
        assert_eq!(profile.user_unpin_ps, printed(&one, "unpin", "1"));
    }

    #[test]
    fn costs_between_known_numbers_lie_on_the_line_between_them() {
        let cost = PerCount::new(vec![(4, 400), (1, 100), (2, 300)]).unwrap();
        let values: Vec<_> = [0, 1, 2, 3, 4, 6].into_iter().map(|n| cost.of(n)).collect();
        assert_eq!(values, [100, 100, 300, 350, 400, 500]);
        assert_eq!(PerCount::new(vec![(1, 7)]).unwrap().of(32), 7);
        assert_eq!(PerCount::new(vec![]), None);
        assert_eq!(PerCount::new(vec![(1, 100), (2, 10)]).unwrap().of(9), 0);
    }
}
