//! Destination proxy space: a numbering of all imported bytes, backed by no memory (VMMC §2, §4.4). Each import takes whole proxy pages,
//! followed by an empty page, so that no range of addresses spans two imports.

use alloc::collections::BTreeMap;
use core::fmt;

use mapwire_translation::PAGE_BYTES;
use thiserror::Error;

/// Names a byte of an import. It is only a destination: its one arithmetic operation is [`ProxyAddress::offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProxyAddress(u64);

impl ProxyAddress {
    /// The address with the number from [`get`](Self::get). Any number is accepted, and checked on use.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The address as a number, for languages without this type. Never 0 for an address in an import.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The address `bytes` further on; `None` past the end of the space.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(address) => Some(Self(address)),
            None => None,
        }
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy {:#x}", self.0)
    }
}

/// Why a proxy address cannot be used for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProxyError {
    /// No import ever had the address.
    #[error("{0} is in no import of this process: an import tells its first address, and its bytes follow from there")]
    NoImport(ProxyAddress),
    /// The range passes the end of its import, or begins behind it.
    #[error("{length} bytes at {address} pass the end of their import, which is at {end}: shorten the range")]
    PastEnd {
        /// First address.
        address: ProxyAddress,
        /// Length of the range, in bytes.
        length: u64,
        /// Address behind the import's last byte.
        end: ProxyAddress,
    },
    /// The import that had the address is gone.
    #[error("{0} was in an import that has been dropped: keep the import for as long as its addresses are used")]
    Dropped(ProxyAddress),
    /// Too few addresses are left.
    #[error(
        "an export of {length} bytes is longer than the proxy addresses that are left: can its exporter be trusted?"
    )]
    Full {
        /// Length of the export, in bytes.
        length: u64,
    },
    /// Data and signal are not in the same import.
    #[error("the data at {data} and the signal at {signal} are in two imports: put both in one")]
    Apart {
        /// Destination of the data.
        data: ProxyAddress,
        /// Destination of the signal.
        signal: ProxyAddress,
    },
}

/// The proxy space of a process. Each import maps to a value of `T`.
#[derive(Clone, Debug)]
pub struct ProxySpace<T> {
    /// Imports by first address, with their length in bytes.
    imports: BTreeMap<u64, (T, u64)>,
    next: u64,
}

impl<T> Default for ProxySpace<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ProxySpace<T> {
    /// An empty space.
    #[must_use]
    pub const fn new() -> Self {
        // The first page stays empty, so that no valid proxy address is zero.
        Self { imports: BTreeMap::new(), next: PAGE_BYTES as u64 }
    }

    /// Assigns addresses to an import of `length` bytes. `import` gets the first, and returns the value to keep for them and the result
    /// for the caller. Addresses are never reused.
    ///
    /// # Errors
    /// Too few are left; that takes an exporter that lies about its length: 2^64 bytes outlast 2^16 imports of 2^47.
    pub fn enter<R>(&mut self, length: u64, import: impl FnOnce(ProxyAddress) -> (T, R)) -> Result<R, ProxyError> {
        let start = self.next;
        self.next = end_of(start, length).ok_or(ProxyError::Full { length })?;
        let (import, made) = import(ProxyAddress(start));
        self.imports.insert(start, (import, length));
        Ok(made)
    }

    /// Removes the import with this first address.
    pub fn leave(&mut self, address: ProxyAddress) -> Option<T> {
        self.imports.remove(&address.0).map(|(import, _)| import)
    }

    /// The import that holds `length` bytes at `address`, and the offset within it. A range of 0 bytes may also lie at its end.
    ///
    /// # Errors
    /// The bytes are not all within one import.
    #[inline]
    pub fn resolve(&self, address: ProxyAddress, length: u64) -> Result<(&T, u64), ProxyError> {
        if let Some((&start, (import, bytes))) = self.imports.range(..=address.0).next_back() {
            let offset = address.0 - start;
            if offset.checked_add(length).is_some_and(|end| end <= *bytes) {
                return Ok((import, offset));
            }
            if end_of(start, *bytes).is_some_and(|end| address.0 < end) {
                return Err(ProxyError::PastEnd { address, length, end: ProxyAddress(start + bytes) });
            }
        }
        Err(if (PAGE_BYTES as u64..self.next).contains(&address.0) {
            ProxyError::Dropped(address)
        } else {
            ProxyError::NoImport(address)
        })
    }
}

/// End of the addresses of an import of `length` bytes at `start`, including the empty page.
fn end_of(start: u64, length: u64) -> Option<u64> {
    let pages = length.div_ceil(PAGE_BYTES as u64).checked_add(1)?;
    start.checked_add(pages.checked_mul(PAGE_BYTES as u64)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enters an import; returns its first address.
    fn enter(space: &mut ProxySpace<char>, import: char, length: u64) -> ProxyAddress {
        space.enter(length, |address| (import, address)).unwrap()
    }

    #[test]
    fn an_address_resolves_within_its_import_and_nowhere_else() {
        let mut space = ProxySpace::new();
        let first = enter(&mut space, 'a', 100);
        let second = enter(&mut space, 'b', 5000);
        let past = |address: ProxyAddress, length, end: ProxyAddress| Err(ProxyError::PastEnd { address, length, end });
        let first_end = first.offset(100).unwrap();
        let second_end = second.offset(5000).unwrap();
        assert_eq!(space.resolve(first, 100), Ok((&'a', 0)));
        assert_eq!(space.resolve(first_end, 0), Ok((&'a', 100)));
        assert_eq!(space.resolve(first, 101), past(first, 101, first_end));
        assert_eq!(space.resolve(first_end, 1), past(first_end, 1, first_end));
        let in_second = second.offset(4096).unwrap();
        assert_eq!(space.resolve(in_second, 904), Ok((&'b', 4096)));
        assert_eq!(space.resolve(in_second, 905), past(in_second, 905, second_end));
        assert_eq!(space.resolve(second, u64::MAX), past(second, u64::MAX, second_end));
        let between = ProxyAddress::new(second.get() - 1);
        assert_eq!(space.resolve(between, 0), past(between, 0, first_end));
    }

    #[test]
    fn an_address_that_is_no_more_is_told_from_one_that_never_was() {
        let mut space = ProxySpace::new();
        let first = enter(&mut space, 'a', 100);
        let second = enter(&mut space, 'b', 100);
        assert_eq!(space.leave(first), Some('a'));
        assert_eq!(space.leave(first), None);
        assert_eq!(space.resolve(first, 1), Err(ProxyError::Dropped(first)));
        assert_eq!(space.resolve(second, 1), Ok((&'b', 0)));
        assert_eq!(space.leave(second), Some('b'));
        assert_eq!(space.resolve(second, 0), Err(ProxyError::Dropped(second)));
        for number in [0, 1, first.get() - 1, second.get() + 8192, u64::MAX] {
            let address = ProxyAddress::new(number);
            assert_eq!(space.resolve(address, 0), Err(ProxyError::NoImport(address)));
        }
    }

    #[test]
    fn addresses_are_never_given_twice() {
        let mut space = ProxySpace::new();
        let first = enter(&mut space, 'a', 1);
        space.leave(first);
        assert_ne!(enter(&mut space, 'a', 1), first);
    }

    #[test]
    fn an_export_that_claims_more_bytes_than_there_are_addresses_takes_none() {
        let mut space = ProxySpace::new();
        let first = enter(&mut space, 'a', 1);
        for length in [u64::MAX, u64::MAX - 4096, u64::MAX - 8192 - 4096] {
            let outcome = space.enter(length, |_| ('b', ()));
            assert_eq!(outcome, Err(ProxyError::Full { length }));
        }
        let second = enter(&mut space, 'c', 1);
        assert_eq!(second.get(), first.get() + 8192);
        assert_eq!(space.resolve(second, 1), Ok((&'c', 0)));
    }
}
