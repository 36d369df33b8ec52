//! Destination proxy space: a numbering of all imported bytes, backed by no memory (VMMC §2, §4.4). Each import takes whole
//! proxy pages, with an empty page behind it, so that no run of addresses leads from one import into the next.

use alloc::collections::BTreeMap;
use core::fmt;

use mapwire_translation::PAGE_BYTES;
use mapwire_wire::ImportId;

use crate::error::VmmcError;

/// Names a byte of an import. It is a destination and nothing else: it has no arithmetic but [`ProxyAddress::offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProxyAddress(u64);

impl ProxyAddress {
    /// The address as a number, for languages without this type. Never 0.
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

/// The proxy space of a process.
#[derive(Clone, Debug)]
pub struct ProxySpace {
    /// Imports by first address, with their length.
    imports: BTreeMap<u64, (ImportId, u64)>,
    next: u64,
}

impl Default for ProxySpace {
    fn default() -> Self {
        Self::new()
    }
}

impl ProxySpace {
    /// An empty space.
    #[must_use]
    pub const fn new() -> Self {
        // The first page stays empty, so that no valid proxy address is zero.
        Self {
            imports: BTreeMap::new(),
            next: PAGE_BYTES as u64,
        }
    }

    /// Gives an import its addresses. Addresses are never given twice.
    pub fn enter(&mut self, import: ImportId, length: u64) -> ProxyAddress {
        let address = self.next;
        self.imports.insert(address, (import, length));
        // 2^64 bytes of proxy space outlast 2^16 imports of 2^47 bytes each.
        self.next = address.saturating_add(
            length.div_ceil(PAGE_BYTES as u64).saturating_add(1) * PAGE_BYTES as u64,
        );
        ProxyAddress(address)
    }

    /// Takes an import out.
    pub fn leave(&mut self, address: ProxyAddress) -> Option<ImportId> {
        self.imports.remove(&address.0).map(|(import, _)| import)
    }

    /// The import that holds `length` bytes at `address`, and the offset within it.
    ///
    /// # Errors
    /// [`VmmcError::BadProxyAddress`] when they are not all within one import.
    pub fn resolve(
        &self,
        address: ProxyAddress,
        length: u64,
    ) -> Result<(ImportId, u64), VmmcError> {
        let found = self.imports.range(..=address.0).next_back();
        match found {
            Some((&start, &(import, bytes)))
                if (address.0 - start)
                    .checked_add(length)
                    .is_some_and(|end| end <= bytes) =>
            {
                Ok((import, address.0 - start))
            }
            _ => Err(VmmcError::BadProxyAddress {
                address: address.0,
                length,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_resolves_within_its_import_and_nowhere_else() {
        let mut space = ProxySpace::new();
        let first = space.enter(ImportId(1), 100);
        let second = space.enter(ImportId(2), 5000);
        assert_eq!(space.resolve(first, 100), Ok((ImportId(1), 0)));
        assert!(space.resolve(first, 101).is_err());
        assert_eq!(
            space.resolve(second.offset(4096).unwrap(), 904),
            Ok((ImportId(2), 4096))
        );
        assert!(space.resolve(second.offset(4096).unwrap(), 905).is_err());
        assert!(space.resolve(first.offset(100).unwrap(), 1).is_err());
        assert!(space.resolve(second, u64::MAX).is_err());
        assert_eq!(space.leave(first), Some(ImportId(1)));
        assert!(space.resolve(first, 1).is_err());
    }

    #[test]
    fn addresses_are_never_given_twice() {
        let mut space = ProxySpace::new();
        let first = space.enter(ImportId(1), 1);
        space.leave(first);
        assert_ne!(space.enter(ImportId(1), 1), first);
    }
}
