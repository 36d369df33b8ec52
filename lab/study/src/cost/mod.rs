//! What a lookup costs, by the two equations of UTLB §6.2 and a profile of costs.
//!
//! All arithmetic is in integers: costs in picoseconds, rates as counts over lookups. Four of Table 6's cells lie exactly
//! between two printed values, and binary fractions would round some of them the wrong way.

mod measured;
mod profile;
#[cfg(test)]
mod tests;

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
    pub low: Cost,
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
