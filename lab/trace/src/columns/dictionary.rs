//! The distinct values of a column, if they are few.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::MAX_DICTIONARY;
use crate::spread::Spread;

/// Distinct values, each with its number in the order in which they occur.
#[derive(Debug, Default)]
pub(super) struct Dictionary(HashMap<u64, u64, BuildHasherDefault<Spread>>);

impl Dictionary {
    /// The distinct values of `column`, ascending, and the place of each of its values among them; `None` if more than `most`
    /// are distinct, or there would be nothing to gain.
    pub(super) fn of(&mut self, column: &[u64], most: usize) -> Option<(Vec<u64>, Vec<u64>)> {
        let most = most.min(MAX_DICTIONARY);
        self.0.clear();
        let mut places: Vec<u64> = Vec::with_capacity(column.len());
        for value in column {
            let next = self.0.len();
            let number = *self.0.entry(*value).or_insert(next as u64);
            if number == most as u64 {
                return None;
            }
            places.push(number);
        }
        let mut values: Vec<(u64, u64)> = self.0.iter().map(|(value, number)| (*value, *number)).collect();
        values.sort_unstable();
        let mut place_of = vec![0; values.len()];
        for (place, (_, number)) in (0_u64..).zip(&values) {
            place_of[*number as usize] = place;
        }
        for place in &mut places {
            *place = place_of[*place as usize];
        }
        Some((values.into_iter().map(|(value, _)| value).collect(), places))
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
