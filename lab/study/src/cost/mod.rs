//! What a lookup costs, by the two equations of UTLB §6.2 and a profile of costs.
//!
//! All arithmetic is in integers: costs in picoseconds, rates as counts over lookups. Four of Table 6's cells lie exactly
//! between two printed values, and binary fractions would round some of them the wrong way.

mod derive;
mod measured;
mod profile;

pub use derive::{KernelCosts, kernel_costs, table_6_from_table_4};
pub use measured::{MeasuredError, from_bench_rows};
pub use profile::{CostProfile, PerCount};

use crate::counts::Counts;

/// Mean cost of a lookup: a sum over a number of lookups, exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    total_ps: u128,
    lookups: u64,
}

impl Cost {
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

/// Whose equation holds, and with which of a profile's costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Equation {
    /// The library checks and pins before a transfer.
    Utlb {
        /// Entries that a NIC miss fetches.
        prefetch: u64,
        /// Pages that a check miss pins in one call.
        prepin: u64,
    },
    /// A NIC miss interrupts the host, which pins. Also for dynamic handle lookup, whose paper gives no equation; time
    /// until a dropped packet is sent again is not in it.
    Interrupt,
}

impl Equation {
    /// Mean cost of a lookup; `None` if the profile lacks a cost that the equation needs.
    ///
    /// * UTLB: `user_check + user_pin × check_misses + ni_check + ni_miss × nic_misses + user_unpin × unpins`, all rates per
    ///   lookup. With pre-pinning, `user_pin` is that of a call for so many pages, once for each call.
    /// * Interrupt: `ni_check + interrupt × interrupts + kernel_pin × pins + kernel_unpin × unpins`. Without exported pages
    ///   interrupts, pins and NIC misses are the same number, and it is the equation as printed.
    pub fn cost(self, profile: &CostProfile, counts: &Counts) -> Option<Cost> {
        let of = |count: u64, ps: u64| u128::from(count) * u128::from(ps);
        let total_ps = match self {
            Equation::Utlb { prefetch, prepin } => {
                of(counts.lookups, profile.user_check_ps)
                    + of(counts.check_misses, profile.user_pin_ps.of(prepin))
                    + of(counts.lookups, profile.nic_check_ps)
                    + of(counts.nic_misses, profile.nic_miss_ps.of(prefetch))
                    + of(counts.unpins, profile.user_unpin_ps)
            }
            Equation::Interrupt => {
                of(counts.lookups, profile.nic_check_ps)
                    + of(counts.interrupts, profile.interrupt_ps?)
                    + of(counts.pins, profile.kernel_pin_ps?)
                    + of(counts.unpins, profile.kernel_unpin_ps?)
            }
        };
        Some(Cost {
            total_ps,
            lookups: counts.lookups,
        })
    }
}

/// Pinning and unpinning alone, per lookup, as in UTLB Table 7.
pub fn pinning_costs(profile: &CostProfile, counts: &Counts, prepin: u64) -> (Cost, Cost) {
    let cost = |count: u64, ps: u64| Cost {
        total_ps: u128::from(count) * u128::from(ps),
        lookups: counts.lookups,
    };
    (
        cost(counts.check_misses, profile.user_pin_ps.of(prepin)),
        cost(counts.unpins, profile.user_unpin_ps),
    )
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
        let profile = CostProfile {
            interrupt_ps: None,
            ..CostProfile::papers()
        };
        let counts = Counts {
            lookups: 1,
            ..Counts::default()
        };
        assert_eq!(Equation::Interrupt.cost(&profile, &counts), None);
        let utlb = Equation::Utlb {
            prefetch: 1,
            prepin: 1,
        };
        assert_eq!(utlb.cost(&profile, &counts).unwrap().tenths_us(), 13);
    }

    #[test]
    fn pre_pinning_charges_calls_not_pages() {
        let counts = Counts {
            lookups: 100,
            check_misses: 3,
            pins: 48,
            ..Counts::default()
        };
        let cost = Equation::Utlb {
            prefetch: 1,
            prepin: 16,
        }
        .cost(&CostProfile::papers(), &counts)
        .unwrap();
        // 0.5 + 0.8 + 3 × 70 ÷ 100
        assert_eq!(cost.us(), 3.4);
    }
}
