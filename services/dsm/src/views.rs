//! Sets of minipages that share a page, and of pages close to each other.

/// The minipages that a message is about: one in the view that the message names, and one in each of some of the 63 views after it.
/// Where a message names a page: the pages, that one and some of the 63 after it.
///
/// All begin on one page. The request for the minipage that is `i` views after the first has the number of the first plus `i`. Where a
/// message names lengths, the minipages are as long as the first, and each begins where the one of the view before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Views(u64);

impl Views {
    /// Only the view that is named.
    pub const ONE: Self = Views(1);

    /// Bit `i` stands for the view that is `i` after the one that is named. `None` without bit 0.
    pub fn new(mask: u64) -> Option<Self> {
        (mask & 1 != 0).then_some(Views(mask))
    }

    /// The bits of which [`new`](Self::new) tells.
    pub fn mask(self) -> u64 {
        self.0
    }

    /// Distances from the view that is named, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        let mut mask = self.0;
        core::iter::from_fn(move || {
            let at = mask.trailing_zeros();
            mask &= mask.checked_sub(1)?;
            Some(at as u16)
        })
    }

    /// Runs of consecutive views: the distance of the first, and their number.
    pub fn runs(self) -> impl Iterator<Item = (u16, u16)> {
        let mut mask = self.0;
        core::iter::from_fn(move || {
            let first = mask.trailing_zeros();
            let ones = mask.checked_shr(first)?.trailing_ones();
            // The lowest bits up to the end of the run.
            mask &= u64::MAX.checked_shl(first + ones).unwrap_or(0);
            Some((first as u16, ones as u16))
        })
    }

    /// Adds the view so far after the one that is named; false if that is too far, or was there.
    pub(crate) fn insert(&mut self, at: u16) -> bool {
        let bit = 1u64.checked_shl(at.into()).filter(|bit| self.0 & bit == 0);
        self.0 |= bit.unwrap_or(0);
        bit.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_the_views_in_order_and_never_touch(mask in any::<u64>(), other in any::<u64>()) {
            // Both few and long runs.
            for mask in [mask | 1, mask & other | 1, mask | other | 1, u64::MAX] {
                let views = Views::new(mask).unwrap();
                let runs: Vec<_> = views.runs().collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
                let of_runs: Vec<_> = runs.iter().flat_map(|&(first, count)| first..first + count).collect();
                let all: Vec<_> = views.iter().collect();
                prop_assert_eq!(&of_runs, &all);
                let mut again = Views::ONE;
                prop_assert!(all[1..].iter().all(|&at| again.insert(at)));
                prop_assert_eq!(again, views);
            }
        }
    }

    #[test]
    fn a_set_without_its_first_minipage_is_none_and_no_view_is_too_far() {
        assert_eq!(Views::new(0), None);
        assert_eq!(Views::new(2), None);
        assert!(!Views::ONE.clone().insert(64));
        assert!(Views::ONE.clone().insert(63));
        assert!(!Views::ONE.clone().insert(0));
    }
}
