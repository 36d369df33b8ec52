//! Division of an allocation into minipages.

use crate::{Error, PAGE_BYTES};

/// The part of an allocation that moves between ranks as one, under [`Protocol::Minipages`](crate::Protocol::Minipages).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unit {
    /// A page of an allocation that is longer than one, else the allocation.
    #[default]
    Auto,
    /// So many bytes, rounded up to pages: 1 to the allocation's length. The last unit is shorter if they do not divide the allocation.
    Bytes(u64),
    /// The allocation, however long.
    Whole,
}

impl Unit {
    /// The unit in bytes of an allocation of `length_bytes`: its length, or whole pages.
    ///
    /// # Errors
    /// [`Error::ZeroBytes`]; [`Error::Unit`], for a unit of 0 bytes or one that is longer than the allocation.
    pub fn of(self, length_bytes: u64) -> Result<u64, Error> {
        let unit_bytes = match self {
            _ if length_bytes == 0 => return Err(Error::ZeroBytes),
            Unit::Bytes(bytes) if bytes == 0 || bytes > length_bytes => {
                return Err(Error::Unit { unit_bytes: bytes, length_bytes });
            }
            Unit::Bytes(bytes) => bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes),
            Unit::Auto => PAGE_BYTES,
            Unit::Whole => length_bytes,
        };
        Ok(unit_bytes.min(length_bytes))
    }

    /// Bytes of `rows` rows of `row_bytes`, which are units themselves; saturates at 64 bits.
    ///
    /// # Errors
    /// [`Error::NoRows`]; [`Error::UnitOfRows`], unless this is [`Auto`](Self::Auto).
    pub fn of_rows(self, rows: u64, row_bytes: u64) -> Result<u64, Error> {
        if rows == 0 || row_bytes == 0 {
            return Err(Error::NoRows { rows, row_bytes });
        }
        if self != Unit::Auto {
            return Err(Error::UnitOfRows { row_bytes });
        }
        Ok(rows.saturating_mul(row_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_whole_pages_or_all() {
        let of = |unit: Unit, bytes| unit.of(bytes).unwrap();
        assert_eq!([of(Unit::Auto, 100), of(Unit::Auto, 4096), of(Unit::Auto, 4097)], [100, 4096, 4096]);
        assert_eq!([of(Unit::Whole, 100), of(Unit::Whole, 1 << 40)], [100, 1 << 40]);
        assert_eq!(
            [of(Unit::Bytes(10), 100), of(Unit::Bytes(10), 9000), of(Unit::Bytes(4097), 9000)],
            [100, 4096, 8192]
        );
        assert_eq!(of(Unit::Bytes(8193), 9000), 9000);
        assert_eq!(of(Unit::Bytes(u64::MAX), u64::MAX), u64::MAX);
    }

    #[test]
    fn a_unit_of_nothing_or_longer_than_all_is_refused_with_both_lengths() {
        for unit_bytes in [0, 101, u64::MAX] {
            assert_eq!(Unit::Bytes(unit_bytes).of(100), Err(Error::Unit { unit_bytes, length_bytes: 100 }));
        }
        assert_eq!(Unit::Auto.of(0), Err(Error::ZeroBytes));
    }
}
