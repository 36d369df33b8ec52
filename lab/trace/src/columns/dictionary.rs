//! The distinct values of a column, if they are few.

use super::MAX_DICTIONARY;

/// Slots of the hash table: twice the most values, so that probes stay short.
const SLOTS: usize = 2 * MAX_DICTIONARY;

/// Distinct values, and the place of each value of a column among them.
#[derive(Debug)]
pub(super) struct Dictionary {
    /// Index into `values` plus one; 0 is free.
    slots: Vec<u16>,
    values: Vec<u64>,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self { slots: vec![0; SLOTS], values: Vec::new() }
    }
}

fn slot_of(value: u64) -> usize {
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS
}

impl Dictionary {
    /// Index of `value`, which is added if it is new and there is room for it.
    fn index_of(&mut self, value: u64, most: usize) -> Option<u16> {
        let mut slot = slot_of(value);
        loop {
            match self.slots[slot] {
                0 if self.values.len() == most => return None,
                0 => {
                    self.values.push(value);
                    self.slots[slot] = self.values.len() as u16;
                    return Some(self.values.len() as u16 - 1);
                }
                taken if self.values[usize::from(taken) - 1] == value => return Some(taken - 1),
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }

    /// The distinct values of `column`, ascending, and the place of each of its values among them; `None` if more than `most`
    /// are distinct, or there would be nothing to gain.
    pub(super) fn of(&mut self, column: &[u64], most: usize) -> Option<(Vec<u64>, Vec<u64>)> {
        let most = most.min(MAX_DICTIONARY);
        self.slots.fill(0);
        self.values.clear();
        let mut places: Vec<u64> = Vec::with_capacity(column.len());
        for value in column {
            places.push(u64::from(self.index_of(*value, most)?));
        }
        let mut order: Vec<u16> = (0..self.values.len() as u16).collect();
        order.sort_unstable_by_key(|index| self.values[usize::from(*index)]);
        let mut place_of = vec![0; order.len()];
        for (place, index) in (0_u64..).zip(&order) {
            place_of[usize::from(*index)] = place;
        }
        for place in &mut places {
            *place = place_of[*place as usize];
        }
        let sorted = order.iter().map(|index| self.values[usize::from(*index)]);
        Some((sorted.collect(), places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_distinct_values_are_given_in_order_with_everyones_place() {
        let column = [9, 3, 9, u64::MAX, 3];
        let (values, places) = Dictionary::default().of(&column, 3).unwrap();
        assert_eq!(values, [3, 9, u64::MAX]);
        assert_eq!(places, [1, 0, 1, 2, 0]);
    }

    #[test]
    fn too_many_distinct_values_make_no_dictionary() {
        let column: Vec<u64> = (0..=MAX_DICTIONARY as u64).collect();
        let mut dictionary = Dictionary::default();
        assert!(dictionary.of(&column, usize::MAX).is_none());
        assert!(dictionary.of(&column[1..], usize::MAX).is_some());
        assert!(dictionary.of(&[1, 2, 3], 2).is_none());
    }
}
