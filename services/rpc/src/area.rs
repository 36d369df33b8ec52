//! Where records lie in the memory that a peer lends for them: who stores there says where, and the peer says when it is done.
//!
//! The lowest room that is long enough is taken, so that as few pages are used, over and over, as records need at a time. Records may be
//! given back in any order.

use alloc::collections::BTreeMap;

/// What a place in the memory is a multiple of: records begin on lines of their own.
pub const LINE: u64 = 64;

#[derive(Debug, Default)]
pub(crate) struct Area {
    bytes: u64,
    /// Free ranges, by their begin; no two touch.
    free: BTreeMap<u64, u64>,
    /// What records have, by their begin.
    taken: BTreeMap<u64, u64>,
}

const fn whole(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(LINE)
}

impl Area {
    /// All of a memory of `bytes`, free.
    pub(crate) fn new(bytes: u64) -> Self {
        let bytes = bytes - bytes % LINE;
        let mut free = BTreeMap::new();
        if bytes > 0 {
            free.insert(0, bytes);
        }
        Self { bytes, free, taken: BTreeMap::new() }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the lowest room of `bytes`, at least a line; `None` as long as none is so long.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Option<u64> {
        let bytes = whole(bytes.max(1))?;
        let (&at, &there) = self.free.iter().find(|&(_, &there)| there >= bytes)?;
        self.free.remove(&at);
        if there > bytes {
            self.free.insert(at + bytes, there - bytes);
        }
        self.taken.insert(at, bytes);
        Some(at)
    }

    /// Gives back what a record does not need behind its first `bytes`. False: nothing was reserved there, or less.
    pub(crate) fn shrink(&mut self, at: u64, bytes: u64) -> bool {
        let Some(bytes) = whole(bytes.max(1)) else { return false };
        match self.taken.get_mut(&at) {
            Some(there) if bytes <= *there => {
                let left = *there - bytes;
                *there = bytes;
                self.put_back(at + bytes, left);
                true
            }
            _ => false,
        }
    }

    /// Releases a record's room. False: no such record.
    pub(crate) fn release(&mut self, at: u64) -> bool {
        match self.taken.remove(&at) {
            Some(bytes) => {
                self.put_back(at, bytes);
                true
            }
            None => false,
        }
    }

    #[cfg(test)]
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken.values().sum()
    }

    fn put_back(&mut self, at: u64, mut bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(behind) = self.free.remove(&(at + bytes)) {
            bytes += behind;
        }
        if let Some((&before, length)) = self.free.range_mut(..at).next_back()
            && before + *length == at
        {
            *length += bytes;
            return;
        }
        self.free.insert(at, bytes);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 32 * LINE;

    #[derive(Clone, Debug)]
    enum Step {
        Reserve(u64),
        Shrink(usize, u64),
        Release(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..40 * LINE).prop_map(Step::Reserve),
            1 => (0..32_usize, 0..40 * LINE).prop_map(|(which, bytes)| Step::Shrink(which, bytes)),
            2 => (0..32_usize).prop_map(Step::Release),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn records_never_overlap_and_the_lowest_room_is_taken(steps in steps()) {
            let mut area = Area::new(BYTES + 17);
            // Which line each record has, as a plain map of lines says.
            let mut lines = [None; 32];
            let mut records: Vec<(u64, u64)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Reserve(bytes) => {
                        let wanted = bytes.max(1).div_ceil(LINE) as usize;
                        let lowest = (0..=32_usize.saturating_sub(wanted)).find(|&at| {
                            wanted <= 32 && lines[at..at + wanted].iter().all(Option::is_none)
                        });
                        let given = area.reserve(bytes);
                        prop_assert_eq!(given, lowest.map(|at| at as u64 * LINE));
                        if let Some(at) = lowest {
                            lines[at..at + wanted].fill(Some(number));
                            records.push((at as u64 * LINE, wanted as u64));
                        }
                    }
                    Step::Shrink(which, bytes) if !records.is_empty() => {
                        let which = which % records.len();
                        let (at, there) = records[which];
                        let wanted = bytes.max(1).div_ceil(LINE);
                        prop_assert_eq!(area.shrink(at, bytes), wanted <= there);
                        if wanted <= there {
                            let first = (at / LINE) as usize;
                            lines[first + wanted as usize..first + there as usize].fill(None);
                            records[which].1 = wanted;
                        }
                    }
                    Step::Release(which) if !records.is_empty() => {
                        let (at, there) = records.swap_remove(which % records.len());
                        prop_assert!(area.release(at));
                        prop_assert!(!area.release(at), "what is free cannot be given back");
                        let first = (at / LINE) as usize;
                        lines[first..first + there as usize].fill(None);
                    }
                    Step::Shrink(..) | Step::Release(_) => {}
                }
                let taken = lines.iter().flatten().count() as u64 * LINE;
                prop_assert_eq!(area.taken_bytes(), taken);
            }
            for (at, _) in records {
                prop_assert!(area.release(at));
            }
            prop_assert_eq!(area.reserve(BYTES), Some(0), "all rooms have joined");
        }
    }

    #[test]
    fn a_memory_of_nothing_and_a_record_of_everything_have_no_room() {
        assert_eq!(Area::new(0).reserve(1), None);
        assert_eq!(Area::new(u64::MAX).reserve(u64::MAX), None);
        assert_eq!(Area::new(LINE - 1).reserve(1), None);
        assert!(!Area::new(BYTES).release(64));
        assert!(!Area::new(BYTES).shrink(0, 1));
    }
}
