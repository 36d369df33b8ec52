//! Large tables of zeroes.

use alloc::vec;
use alloc::vec::Vec;

/// A table of zeroes of an integer type, which the OS supplies as they are touched; `None` if the machine refuses memory for
/// it. The machine is asked first, since a refusal of zeroed memory could not be caught.
pub(crate) fn zeroes<T: Copy + Default>(count: usize) -> Option<Vec<T>> {
    Vec::<T>::new().try_reserve_exact(count).ok()?;
    Some(vec![T::default(); count])
}

/// Entries of a table with a row for each page and a column for each view, if they can be counted.
pub(crate) fn entries(rows: u32, columns: u16) -> Option<usize> {
    usize::try_from(u64::from(rows) * u64::from(columns)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_beyond_the_address_space_is_refused_and_not_fatal() {
        assert_eq!(zeroes::<u64>(usize::MAX / 8), None);
        assert_eq!(zeroes::<u64>(usize::MAX), None);
        assert_eq!(zeroes(6), Some(vec![0u32; 6]));
    }
}
