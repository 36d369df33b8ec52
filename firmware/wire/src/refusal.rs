//! Reasons for which a peer refuses a request.

use core::fmt;

use crate::error::WireError;

/// Reason why a store, fetch or import was refused. Travels as [`Refusal::code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Refusal {
    /// No export has this number.
    UnknownExport = 1,
    /// The key does not open the export.
    WrongKey = 2,
    /// The exporter took the export back.
    Revoked = 3,
    /// The range passes the end of the export.
    OutOfRange = 4,
    /// The import was not granted this right.
    NoRight = 5,
    /// The export does not admit this importer.
    NotPermitted = 6,
    /// More bytes than the receiver accepts at once.
    TooLong = 7,
    /// Nobody exports under this name.
    NoSuchName = 8,
    /// No room now; the same request may succeed later.
    Busy = 9,
}

impl Refusal {
    /// Every reason, in the order of the codes.
    pub const ALL: [Refusal; 9] = [
        Refusal::UnknownExport,
        Refusal::WrongKey,
        Refusal::Revoked,
        Refusal::OutOfRange,
        Refusal::NoRight,
        Refusal::NotPermitted,
        Refusal::TooLong,
        Refusal::NoSuchName,
        Refusal::Busy,
    ];

    /// The code on the wire.
    #[inline]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The reason behind a code from the wire.
    pub const fn from_code(code: u64) -> Result<Refusal, WireError> {
        if code >= 1 && code <= Refusal::ALL.len() as u64 {
            Ok(Refusal::ALL[code as usize - 1])
        } else {
            Err(WireError::Unknown { field: "refusal", value: code })
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownExport => "no such export",
            Refusal::WrongKey => "the key does not open the export",
            Refusal::Revoked => "the export was revoked",
            Refusal::OutOfRange => "the range passes the end of the export",
            Refusal::NoRight => "the import was not granted this right",
            Refusal::NotPermitted => "the exporter does not let this importer in",
            Refusal::TooLong => "longer than the receiver takes at once",
            Refusal::NoSuchName => "nothing is exported under this name",
            Refusal::Busy => "the receiver has no room now",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_reasons_map_both_ways() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_code(u64::from(refusal.code())), Ok(refusal));
        }
        for code in [0, 10, u64::from(u32::MAX), u64::MAX, 1 << 32 | 1] {
            let unknown = WireError::Unknown { field: "refusal", value: code };
            assert_eq!(Refusal::from_code(code), Err(unknown));
        }
    }
}
