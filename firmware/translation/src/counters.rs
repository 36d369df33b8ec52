//! Counters of a translation design, in the terms of UTLB §6 and of dynamic handle lookup §V.

use core::fmt;
use core::ops::{Add, Sub};

/// Counters since the start. The NIC side fills `lookups`, `nic_misses`, `interrupts` and `handles`, the library side the rest; their sum
/// (`+`) is the whole. The difference of two snapshots (`-`) covers the time between them.
///
/// ```
/// use mapwire_translation::Counters;
/// let before = Counters { lookups: 10, nic_misses: 1, pinned_pages: 4, ..Counters::default() };
/// let after = Counters { lookups: 30, nic_misses: 2, pinned_pages: 3, ..Counters::default() };
/// assert_eq!((after - before).lookups, 20);
/// assert_eq!((after - before).pinned_pages, 3); // a level, not a count: the later one
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Pages that the NIC translated.
    pub lookups: u64,
    /// Times that the library found a page of a transfer unpinned, and had it pinned together with those that it pins ahead.
    pub check_misses: u64,
    /// Lookups for which the NIC cache did not have the translation.
    pub nic_misses: u64,
    /// Requests of the NIC to the host.
    pub interrupts: u64,
    /// Pages pinned.
    pub pins: u64,
    /// Pages unpinned.
    pub unpins: u64,
    /// Pages pinned now. A level: subtraction keeps the later value.
    pub pinned_pages: u64,
    /// Additional counters of dynamic handle lookup; 0 in other designs.
    pub handles: HandleCounters,
}

/// Misses by path and kind (dynamic handle lookup Fig. 5), and the lookups of its two other handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandleCounters {
    /// Misses of sends on lines never requested before.
    pub send_cold_misses: u64,
    /// All other misses of sends.
    pub send_other_misses: u64,
    /// Misses of receives on lines never requested before.
    pub receive_cold_misses: u64,
    /// All other misses of receives.
    pub receive_other_misses: u64,
    /// Buffers looked up (CBH).
    pub buffer_lookups: u64,
    /// Buffers looked up that the NIC did not have.
    pub buffer_misses: u64,
    /// Processes looked up (PCH).
    pub process_lookups: u64,
    /// Processes looked up that the NIC did not have.
    pub process_misses: u64,
}

impl Counters {
    fn each(self, other: Counters, op: impl Fn(u64, u64) -> u64) -> Counters {
        Counters {
            lookups: op(self.lookups, other.lookups),
            check_misses: op(self.check_misses, other.check_misses),
            nic_misses: op(self.nic_misses, other.nic_misses),
            interrupts: op(self.interrupts, other.interrupts),
            pins: op(self.pins, other.pins),
            unpins: op(self.unpins, other.unpins),
            pinned_pages: op(self.pinned_pages, other.pinned_pages),
            handles: self.handles.each(other.handles, op),
        }
    }
}

impl HandleCounters {
    fn each(self, other: HandleCounters, op: impl Fn(u64, u64) -> u64) -> HandleCounters {
        HandleCounters {
            send_cold_misses: op(self.send_cold_misses, other.send_cold_misses),
            send_other_misses: op(self.send_other_misses, other.send_other_misses),
            receive_cold_misses: op(self.receive_cold_misses, other.receive_cold_misses),
            receive_other_misses: op(self.receive_other_misses, other.receive_other_misses),
            buffer_lookups: op(self.buffer_lookups, other.buffer_lookups),
            buffer_misses: op(self.buffer_misses, other.buffer_misses),
            process_lookups: op(self.process_lookups, other.process_lookups),
            process_misses: op(self.process_misses, other.process_misses),
        }
    }
}

impl Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        self.each(other, |one, two| one + two)
    }
}

impl Sub for Counters {
    type Output = Counters;

    /// `later - earlier`. Counters never fall; if they would, the difference is 0.
    fn sub(self, earlier: Counters) -> Counters {
        Counters { pinned_pages: self.pinned_pages, ..self.each(earlier, u64::saturating_sub) }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lookups {}, check misses {}, NIC misses {}, interrupts {}, pins {}, unpins {}, pinned pages {}",
            self.lookups,
            self.check_misses,
            self.nic_misses,
            self.interrupts,
            self.pins,
            self.unpins,
            self.pinned_pages
        )?;
        if self.handles == HandleCounters::default() {
            return Ok(());
        }
        write!(f, ", {}", self.handles)
    }
}

impl fmt::Display for HandleCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "send misses {} cold + {} other, receive misses {} cold + {} other, buffer lookups {} with {} misses, \
             process lookups {} with {} misses",
            self.send_cold_misses,
            self.send_other_misses,
            self.receive_cold_misses,
            self.receive_other_misses,
            self.buffer_lookups,
            self.buffer_misses,
            self.process_lookups,
            self.process_misses
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const SOME: Counters = Counters {
        lookups: 7,
        check_misses: 6,
        nic_misses: 5,
        interrupts: 4,
        pins: 3,
        unpins: 2,
        pinned_pages: 1,
        handles: HandleCounters {
            send_cold_misses: 11,
            send_other_misses: 12,
            receive_cold_misses: 13,
            receive_other_misses: 14,
            buffer_lookups: 15,
            buffer_misses: 16,
            process_lookups: 17,
            process_misses: 18,
        },
    };

    #[test]
    fn the_difference_of_snapshots_undoes_a_sum_but_keeps_the_level() {
        assert_eq!((SOME + SOME) - SOME, Counters { pinned_pages: 2, ..SOME });
    }

    #[test]
    fn every_count_is_printed() {
        let utlb = "lookups 7, check misses 6, NIC misses 5, interrupts 4, pins 3, unpins 2, pinned pages 1";
        let without = Counters { handles: HandleCounters::default(), ..SOME };
        assert_eq!(without.to_string(), utlb);
        let handles = "send misses 11 cold + 12 other, receive misses 13 cold + 14 other, buffer lookups 15 with 16 misses, \
                       process lookups 17 with 18 misses";
        assert_eq!(SOME.to_string(), std::format!("{utlb}, {handles}"));
    }
}
