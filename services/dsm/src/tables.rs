//! Large tables of zeroes.

use alloc::vec;
use alloc::vec::Vec;

/// Whether the machine would give memory for that many elements. Asked before a table is made, since a refusal
/// of zeroed memory could not be caught.
fn is_possible<T>(rows: u32, columns: u16) -> Option<usize> {
    let count = usize::try_from(u64::from(rows) * u64::from(columns)).ok()?;
    Vec::<T>::new().try_reserve_exact(count).ok()?;
    Some(count)
}

/// A table of 32-bit zeroes, which the OS supplies as they are touched; `None` if it refuses.
pub(crate) fn words(rows: u32, columns: u16) -> Option<Vec<u32>> {
    is_possible::<u32>(rows, columns).map(|count| vec![0; count])
}

/// A table of 64-bit zeroes, which the OS supplies as they are touched; `None` if it refuses.
pub(crate) fn double_words(rows: u32, columns: u16) -> Option<Vec<u64>> {
    is_possible::<u64>(rows, columns).map(|count| vec![0; count])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_beyond_the_address_space_is_refused_and_not_fatal() {
        assert_eq!(is_possible::<[u64; 1 << 20]>(u32::MAX, u16::MAX), None);
        assert_eq!(words(3, 2), Some(vec![0; 6]));
        assert_eq!(double_words(2, 2), Some(vec![0; 4]));
    }
}
