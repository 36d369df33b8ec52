//! Reasons for which a peer refuses a request.

use crate::error::{WireError, known};

codes! {
    /// Reason why a store, fetch or import was refused. Travels as [`Refusal::code`].
    #[non_exhaustive]
    pub enum Refusal: u32 {
        /// No export has this number.
        UnknownExport = 1 => "no such export",
        /// The key does not open the export.
        WrongKey = 2 => "the key does not open the export",
        /// The exporter took the export back.
        Revoked = 3 => "the export was revoked",
        /// The range passes the end of the export.
        OutOfRange = 4 => "the range passes the end of the export",
        /// The import was not granted this right.
        NoRight = 5 => "the import was not granted this right",
        /// The export does not admit this importer.
        NotPermitted = 6 => "the exporter does not let this importer in",
        /// More bytes than the receiver accepts at once.
        TooLong = 7 => "longer than the receiver takes at once",
        /// Nobody exports under this name.
        NoSuchName = 8 => "nothing is exported under this name",
        /// No room now; the same request may succeed later.
        Busy = 9 => "the receiver has no room now",
    }
}

impl Refusal {
    /// The code on the wire.
    #[inline]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The reason behind a code from the wire.
    pub(crate) fn read(code: u64) -> Result<Refusal, WireError> {
        known("refusal", code, u32::try_from(code).ok().and_then(Refusal::from_code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_reasons_map_both_ways() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::read(u64::from(refusal.code())), Ok(refusal));
        }
        for code in [0, 10, u64::from(u32::MAX), u64::MAX, 1 << 32 | 1] {
            let unknown = WireError::Unknown { field: "refusal", value: code };
            assert_eq!(Refusal::read(code), Err(unknown));
        }
    }
}
