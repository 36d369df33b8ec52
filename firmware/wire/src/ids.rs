//! Identifiers as they travel: numbers without arithmetic, keys and rights.
//!
//! An id received from a peer is a claim: it names something only if the owner's table says so.

use core::fmt;
use core::hint::black_box;
use core::ops::BitOr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::WireError;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $word:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    };
}

id!(
    /// A node of the job, numbered from 0: an instance with a NIC.
    NodeId(u16), "node"
);
id!(
    /// A process on its node's NIC, numbered by that NIC.
    ProcessId(u16), "process"
);
id!(
    /// An export, numbered by the exporting node.
    ExportId(u32), "export"
);
id!(
    /// An import, numbered by the importing process.
    ImportId(u32), "import"
);
id!(
    /// One send, numbered by its sender: all packets of a send carry it.
    MessageId(u32), "message"
);
id!(
    /// One fetch, numbered by the node that asked.
    FetchId(u32), "fetch"
);
id!(
    /// A row of the receiver's handler dispatch table.
    HandlerId(u32), "handler"
);

impl HandlerId {
    /// Takes [`ControlMessage`](crate::ControlMessage)s.
    pub const CONTROL: Self = Self(0);
}

/// A process of a node, as sender or receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Node of the process.
    pub node: NodeId,
    /// Number of the process on that node.
    pub process: ProcessId,
}

impl Endpoint {
    /// The first process of a node: the only one where each process has a NIC of its own.
    #[must_use]
    pub const fn first_of(node: NodeId) -> Self {
        Self { node, process: ProcessId(0) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            // With one process a NIC, the node's number says it all.
            ProcessId(0) => self.node.fmt(f),
            process => write!(f, "{process} of {}", self.node),
        }
    }
}

/// Proves the right to use an export, or to answer a fetch: 16 unguessable bytes.
///
/// Comparison takes the same time for equal and unequal keys; there is no order and no hash.
/// Printing shows the first two bytes only.
#[derive(Clone, Copy, FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// Key of packets that need none. A table must never give it to an export.
    pub const ZERO: Key = Key([0; 16]);

    /// The first two bytes, which may be printed.
    #[inline]
    pub(crate) const fn shown(self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }

    /// Checks that a packet that uses no key has [`Key::ZERO`].
    #[inline]
    pub(crate) fn must_be_zero(self, field: &'static str) -> Result<(), WireError> {
        if self == Key::ZERO { Ok(()) } else { Err(WireError::Reserved { field, value: u64::from(self.shown()) }) }
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Key) -> bool {
        let difference = u128::from_ne_bytes(self.0) ^ u128::from_ne_bytes(other.0);
        // Both halves are folded before the one decision, so timing does not reveal where keys differ.
        black_box((difference as u64) | ((difference >> 64) as u64)) == 0
    }
}

impl Eq for Key {}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}…", self.shown())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// What an importer may do with an export: a set of [`Rights::STORE`] and [`Rights::FETCH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rights(u32);

impl Rights {
    /// No right at all.
    pub const NONE: Rights = Rights(0);
    /// May store into the export.
    pub const STORE: Rights = Rights(1);
    /// May fetch from the export.
    pub const FETCH: Rights = Rights(2);
    /// Every right there is.
    pub const ALL: Rights = Rights(3);

    /// The set as bits, for the wire.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Decodes bits from the wire; a bit that this version does not know is an error.
    pub const fn from_bits(bits: u32) -> Result<Rights, WireError> {
        if bits & !Rights::ALL.0 == 0 {
            Ok(Rights(bits))
        } else {
            Err(WireError::Unknown { field: "rights", value: bits as u64 })
        }
    }

    /// Whether every right in `other` is here too. True of an empty `other`.
    #[inline]
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights in either set.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// Whether nothing is allowed.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        self.union(other)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.contains(Rights::STORE), self.contains(Rights::FETCH)) {
            (true, true) => "store+fetch",
            (true, false) => "store",
            (false, true) => "fetch",
            (false, false) => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn ids_say_what_they_name() {
        assert_eq!(format!("{}, {}", NodeId(3), ExportId(9)), "node 3, export 9");
        assert_eq!(format!("{:?}", MessageId(4)), "MessageId(4)");
    }

    #[test]
    fn a_key_shows_two_bytes_and_no_more() {
        let key = Key([0xab, 0x01, 0xff, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(format!("{key}"), "ab01…");
        assert_eq!(format!("{key:?}"), "Key(ab01…)");
    }

    #[test]
    fn keys_that_differ_in_any_one_bit_are_unequal() {
        let key = Key([0x5a; 16]);
        assert_eq!(key, Key([0x5a; 16]));
        for bit in 0..128 {
            let mut other = key;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(key, other, "bit {bit}");
        }
    }

    #[test]
    fn rights_are_a_set() {
        let both = Rights::STORE | Rights::FETCH;
        assert_eq!(both, Rights::ALL);
        assert!(both.contains(Rights::FETCH) && both.contains(Rights::NONE));
        assert!(!Rights::STORE.contains(both));
        assert!(Rights::NONE.is_empty() && !Rights::FETCH.is_empty());
        assert_eq!(
            format!("{both} {} {} {}", Rights::STORE, Rights::FETCH, Rights::NONE),
            "store+fetch store fetch none"
        );
    }

    #[test]
    fn a_right_of_a_later_version_is_refused() {
        assert_eq!(Rights::from_bits(3), Ok(Rights::ALL));
        assert_eq!(Rights::from_bits(4), Err(WireError::Unknown { field: "rights", value: 4 }));
    }
}
