//! Large tables of zeroes.

use alloc::vec;
use alloc::vec::Vec;

/// From this size on, ask the machine first. Smaller tables are as likely to succeed as anything else.
const LARGE_BYTES: usize = 1 << 20;
/// Allocators return freed blocks of this size to the OS.
const RETURNED_BYTES: usize = 33 << 20;

/// A table of zeroes of an integer type, which the OS supplies on first use; `None` if the machine refuses memory for it. A refusal of
/// zeroed memory could not be caught, so the machine is asked first; and for more than the table takes: otherwise it might reuse the same
/// memory, and zero it by touching all of it.
pub(crate) fn zeroes<T: Copy + Default>(count: usize) -> Option<Vec<T>> {
    if count.checked_mul(size_of::<T>())? >= LARGE_BYTES {
        let asked = count.checked_add(RETURNED_BYTES / size_of::<T>())?;
        Vec::<T>::new().try_reserve_exact(asked).ok()?;
    }
    Some(vec![T::default(); count])
}

/// Entries of a table with a row for each page and a column for each view; `None` on overflow.
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
