//! What a lookup costs, by the two equations of UTLB §6.2 and a profile of costs.
//!
//! All arithmetic is in integers: costs in picoseconds, rates as counts over lookups. Four of Table 6's cells lie exactly
//! between two printed values, and binary fractions would round some of them the wrong way.

mod derive;
mod measured;
mod profile;

pub use derive::{KernelCosts, kernel_costs, table_6_from_table_4};
pub use measured::{MeasuredError, from_bench_rows};
pub use profile::{Between, CostProfile, HandleMissCost, PerCount};

use crate::counts::Counts;

/// Mean cost of a lookup: a sum over a number of lookups, exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    total_ps: u128,
    lookups: u64,
}

impl Cost {
    /// So many picoseconds for all of so many lookups.
    pub fn new(total_ps: u128, lookups: u64) -> Self {
        Cost { total_ps, lookups }
    }

    /// In microseconds; 0 if there were no lookups.
    pub fn us(self) -> f64 {
        match self.lookups {
            0 => 0.0,
            lookups => self.total_ps as f64 / lookups as f64 / 1e6,
        }
    }

    /// In tenths of a microsecond, as Table 6 prints it; a half rounds up.
    pub fn tenths_us(self) -> u64 {
        let unit = 100_000 * u128::from(self.lookups.max(1));
        ((2 * self.total_ps + unit) / (2 * unit)) as u64
    }
}

/// Mean cost of a lookup where the costs of its parts are known as ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostRange {
    /// If each part costs the least.
    pub low: Cost,
    /// If each part costs the most.
    pub high: Cost,
}

impl CostRange {
    pub fn exactly(cost: Cost) -> Self {
        CostRange { low: cost, high: cost }
    }

    /// Whether the costs of all parts are exact.
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }

    /// The middle of the range, in microseconds.
    pub fn middle_us(&self) -> f64 {
        (self.low.us() + self.high.us()) / 2.0
    }
}

/// Whose equation holds, and with which of a profile's costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Equation {
    /// The library checks and pins before a transfer (UTLB §6.2).
    Utlb {
        /// Entries that a NIC miss fetches.
        prefetch: u64,
        /// Pages that a check miss pins in one call.
        prepin: u64,
    },
    /// A NIC miss interrupts the host, which pins (UTLB §6.2).
    Interrupt,
    /// A NIC miss drops the packet, which comes again when a thread of the host has served the miss (dynamic handle lookup §IV.A,
    /// §V.C). That paper prints ranges and no equation.
    DynamicHandle,
}

impl Equation {
    /// Mean cost of a lookup; `None` if the profile lacks a cost that the equation needs.
    ///
    /// * UTLB: `user_check + user_pin × check_misses + ni_check + ni_miss × nic_misses + user_unpin × unpins`, all rates per
    ///   lookup. With pre-pinning, `user_pin` is that of a call for so many pages, once for each call.
    /// * Interrupt: `ni_check + interrupt × interrupts + kernel_pin × pins + kernel_unpin × unpins`. Without exported pages
    ///   interrupts, pins and NIC misses are the same number, and it is the equation as printed.
    /// * Dynamic handles: `ni_check + (delay + processing + resend) × interrupts + kernel_unpin × unpins`, from the least to the
    ///   most, and `kernel_pin × pins` where the profile's processing does not include it. Misses of handles interrupt, too.
    pub fn cost(self, profile: &CostProfile, counts: &Counts) -> Option<CostRange> {
        let of = |count: u64, ps: u64| u128::from(count) * u128::from(ps);
        let check = of(counts.lookups, profile.nic_check_ps);
        let exactly = |total_ps| CostRange::exactly(Cost::new(total_ps, counts.lookups));
        Some(match self {
            Equation::Utlb { prefetch, prepin } => exactly(
                of(counts.lookups, profile.user_check_ps)
                    + of(counts.check_misses, profile.user_pin_ps.of(prepin))
                    + check
                    + of(counts.nic_misses, profile.nic_miss_ps.of(prefetch))
                    + of(counts.unpins, profile.user_unpin_ps),
            ),
            Equation::Interrupt => exactly(
                check
                    + of(counts.interrupts, profile.interrupt_ps?)
                    + of(counts.pins, profile.kernel_pin_ps?)
                    + of(counts.unpins, profile.kernel_unpin_ps?),
            ),
            Equation::DynamicHandle => {
                let miss = profile.handle_miss?;
                let pins = if miss.pins_apart { of(counts.pins, profile.kernel_pin_ps?) } else { 0 };
                let rest = check + pins + of(counts.unpins, profile.kernel_unpin_ps?);
                let all = |ps| Cost::new(rest + of(counts.interrupts, ps), counts.lookups);
                CostRange { low: all(miss.least_ps()), high: all(miss.most_ps()) }
            }
        })
    }
}

/// Pinning and unpinning alone, per lookup, as in UTLB Table 7.
pub fn pinning_costs(profile: &CostProfile, counts: &Counts, prepin: u64) -> (Cost, Cost) {
    let cost = |count: u64, ps: u64| Cost { total_ps: u128::from(count) * u128::from(ps), lookups: counts.lookups };
    (cost(counts.check_misses, profile.user_pin_ps.of(prepin)), cost(counts.unpins, profile.user_unpin_ps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_rounds_up() {
        let cost = |total_ps, lookups| Cost { total_ps, lookups }.tenths_us();
        assert_eq!(cost(8_950_000, 1), 90);
        assert_eq!(cost(8_949_999, 1), 89);
        assert_eq!(cost(21_650_000 * 7, 7), 217);
        assert_eq!(cost(0, 0), 0);
    }

    #[test]
    fn without_interrupt_cost_there_is_no_cost_of_an_interrupt_design() {
        let profile = CostProfile { interrupt_ps: None, ..CostProfile::papers() };
        let counts = Counts { lookups: 1, ..Counts::default() };
        assert_eq!(Equation::Interrupt.cost(&profile, &counts), None);
        let utlb = Equation::Utlb { prefetch: 1, prepin: 1 };
        assert_eq!(utlb.cost(&profile, &counts).unwrap().low.tenths_us(), 13);
    }

    #[test]
    fn pre_pinning_charges_calls_not_pages() {
        let counts = Counts { lookups: 100, check_misses: 3, pins: 48, ..Counts::default() };
        let cost = Equation::Utlb { prefetch: 1, prepin: 16 }.cost(&CostProfile::papers(), &counts).unwrap();
        // 0.5 + 0.8 + 3 × 70 ÷ 100
        assert_eq!((cost.low.us(), cost.is_exact()), (3.4, true));
    }

    #[test]
    fn a_miss_of_dynamic_handles_costs_from_what_the_paper_calls_least_to_what_it_calls_most() {
        let counts =
            Counts { lookups: 10, nic_misses: 1, interrupts: 2, buffer_misses: 1, pins: 64, ..Counts::default() };
        let cost = Equation::DynamicHandle.cost(&CostProfile::papers(), &counts).unwrap();
        // 0.8 + 2 × 5 ÷ 10, and 0.8 + 2 × (50 + 500 + 56.4) ÷ 10: the pins are in the processing.
        assert!((cost.low.us() - 1.8).abs() < 1e-9, "{cost:?}");
        assert!((cost.high.us() - (0.8 + 0.2 * 606.4)).abs() < 0.01, "{cost:?}");
        let interrupts = Equation::Interrupt.cost(&CostProfile::papers(), &counts);
        assert!(interrupts.unwrap().low.us() > cost.low.us());
    }
}
