//! Free and locked parts of a range of address space.

use std::collections::BTreeMap;

/// The free parts, as offsets and lengths in bytes. First fit, lowest first, so that used parts are close together.
#[derive(Debug, Clone)]
pub(crate) struct Ranges {
    /// First byte to length; no two touch.
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// `bytes` bytes from 0, all free.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { free: BTreeMap::from([(0, bytes)]) }
    }

    pub(crate) fn none() -> Self {
        Self { free: BTreeMap::new() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// Takes the free bytes of this range; returns them as parts.
    pub(crate) fn cut(&mut self, first: u64, bytes: u64) -> Vec<(u64, u64)> {
        let end = first.saturating_add(bytes);
        let touching = self.free.range(..end).map(|(&start, &length)| (start, start + length));
        let parts = touching
            .rev()
            .take_while(|&(_, its_end)| its_end > first)
            .map(|(start, its_end)| (start.max(first), its_end.min(end) - start.max(first)));
        let parts: Vec<(u64, u64)> = parts.collect();
        for &(start, length) in &parts {
            self.take_at(start, length);
        }
        parts
    }

    /// Takes `bytes` bytes at a multiple of `alignment`. `None` if no free part is long enough.
    pub(crate) fn take(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let fits = |(&start, &length): (&u64, &u64)| {
            let first = start.checked_next_multiple_of(alignment)?;
            (first.checked_add(bytes)? <= start + length).then_some(first)
        };
        let first = self.free.iter().find_map(fits)?;
        self.take_at(first, bytes).then_some(first)
    }

    /// Takes these bytes, if all of them are free.
    pub(crate) fn take_at(&mut self, first: u64, bytes: u64) -> bool {
        let Some(end) = first.checked_add(bytes) else {
            return false;
        };
        let Some((&start, &length)) = self.free.range(..=first).next_back() else {
            return false;
        };
        if bytes == 0 || end > start + length {
            return false;
        }
        self.free.remove(&start);
        if start < first {
            self.free.insert(start, first - start);
        }
        if end < start + length {
            self.free.insert(end, start + length - end);
        }
        true
    }

    /// Frees bytes. Those already free stay so.
    pub(crate) fn give(&mut self, first: u64, bytes: u64) {
        let (mut start, mut end) = (first, first + bytes);
        // Merges it with all that it overlaps or touches.
        while let Some((&other, &length)) = self.free.range(..=end).next_back() {
            if other + length < start {
                break;
            }
            self.free.remove(&other);
            start = start.min(other);
            end = end.max(other + length);
        }
        if start < end {
            self.free.insert(start, end - start);
        }
    }

    /// Whether all of these bytes are taken.
    pub(crate) fn are_taken(&self, first: u64, bytes: u64) -> bool {
        let before = self.free.range(..first + bytes).next_back();
        bytes == 0 || before.is_none_or(|(&start, &length)| start + length <= first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_is_taken_at_its_alignment_and_what_is_before_it_stays_free() {
        let mut ranges = Ranges::new(100);
        assert_eq!(ranges.take(1, 1), Some(0));
        assert_eq!(ranges.take(10, 16), Some(16));
        assert_eq!(ranges.take(15, 1), Some(1));
        assert_eq!(ranges.take(75, 1), None);
        assert_eq!(ranges.take(74, 1), Some(26));
        assert_eq!(ranges.take(1, 1), None);
    }

    #[test]
    fn neighbours_that_are_given_back_become_one() {
        let mut ranges = Ranges::new(30);
        for first in [0, 10, 20] {
            assert_eq!(ranges.take(10, 1), Some(first));
        }
        for first in [0, 20, 10] {
            ranges.give(first, 10);
        }
        assert_eq!(ranges.take(30, 1), Some(0));
    }

    proptest! {
        #[test]
        fn bytes_are_taken_once_and_free_when_they_are_given_back(
            steps in prop::collection::vec((0..5_u8, 0..64_u64, 0..40_u64, 0..4_u32), 0..100)
        ) {
            let mut ranges = Ranges::new(64);
            let mut taken = [false; 64];
            for (kind, first, bytes, shift) in steps {
                let bytes = bytes.min(64 - first);
                let part = first as usize..(first + bytes) as usize;
                match kind {
                    0 => if let Some(at) = ranges.take(bytes, 1 << shift) {
                        let part = at as usize..(at + bytes) as usize;
                        prop_assert!(at % (1 << shift) == 0 && taken[part.clone()].iter().all(|it| !it));
                        taken[part].fill(true);
                    } else {
                        let fits = |at: usize| at.is_multiple_of(1 << shift) && at + bytes as usize <= 64
                            && taken[at..at + bytes as usize].iter().all(|it| !it);
                        prop_assert!(bytes == 0 || !(0..64).any(fits));
                    },
                    1 => {
                        let is_free = bytes > 0 && taken[part.clone()].iter().all(|it| !it);
                        prop_assert_eq!(ranges.take_at(first, bytes), is_free);
                        if is_free {
                            taken[part].fill(true);
                        }
                    }
                    2 => {
                        ranges.give(first, bytes);
                        taken[part].fill(false);
                    }
                    3 => {
                        let cut: u64 = ranges.cut(first, bytes).into_iter().map(|(_, length)| length).sum();
                        prop_assert_eq!(cut, taken[part.clone()].iter().filter(|it| !**it).count() as u64);
                        taken[part].fill(true);
                    }
                    _ => prop_assert_eq!(ranges.are_taken(first, bytes), taken[part].iter().all(|it| *it)),
                }
                prop_assert_eq!(ranges.bytes(), taken.iter().filter(|it| !**it).count() as u64);
            }
        }
    }
}
