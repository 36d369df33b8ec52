//! Why bytes are not a packet, a control message or a command.

/// The first thing found wrong, with the field's name and its value.
///
/// A value that comes from a key is cut to its first two bytes, so errors may be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end before the field does.
    #[error("{field} needs {needed_bytes} bytes but only {found_bytes} are there: pass the whole of what arrived")]
    Truncated {
        /// Field that was being read.
        field: &'static str,
        /// Bytes that the field takes.
        needed_bytes: u64,
        /// Bytes that were there.
        found_bytes: u64,
    },
    /// The number of bytes differs from what the length says.
    #[error("{field} is {found_bytes} bytes but must be {expected_bytes}: length and content must agree")]
    Length {
        /// What was being read.
        field: &'static str,
        /// Bytes that it must have.
        expected_bytes: u64,
        /// Bytes that it has.
        found_bytes: u64,
    },
    /// The peer speaks another version of the format.
    #[error("{field} is {found} but this build speaks {spoken}: run the same mapwire on both sides")]
    Version {
        /// Version field.
        field: &'static str,
        /// Version that it holds.
        found: u8,
        /// Version that this build speaks.
        spoken: u8,
    },
    /// A code that this version does not define.
    #[error("{field} is {value}, which this version does not define: the sender is newer or broken")]
    Unknown {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// Bits or bytes that must be zero are not.
    #[error("{field} is {value:#x} where it must be zero: clear what this kind does not use")]
    Reserved {
        /// Name of the field.
        field: &'static str,
        /// The offending bits.
        value: u64,
    },
    /// A value exceeds what the format carries.
    #[error("{field} is {value}, at most {limit} is allowed: cut it into smaller pieces")]
    TooLarge {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
        /// The largest legal value.
        limit: u64,
    },
    /// A field that must not be empty is.
    #[error("{field} is empty: it must hold at least one")]
    Empty {
        /// Name of the field.
        field: &'static str,
    },
    /// An offset or address is not aligned.
    #[error("{field} is {value:#x}, which is not a multiple of {align}")]
    Unaligned {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
        /// Required alignment, in bytes.
        align: u64,
    },
    /// Start plus length does not fit in 64 bits.
    #[error("{field} {value:#x} plus {length} bytes passes the end of the address space")]
    Overflow {
        /// Name of the field.
        field: &'static str,
        /// Start of the range.
        value: u64,
        /// Length of the range, in bytes.
        length: u64,
    },
    /// A flag that belongs to the last packet of a message is on an earlier one.
    #[error("flags are {flags:#06x}: notify and signal belong to the last packet of a message only")]
    NotLast {
        /// The flags found.
        flags: u16,
    },
    /// A name is not UTF-8.
    #[error("{field} stops being UTF-8 after byte {valid_bytes}: names are UTF-8")]
    NotUtf8 {
        /// Name of the field.
        field: &'static str,
        /// Number of leading bytes that are valid UTF-8.
        valid_bytes: u64,
    },
}

/// What a code stands for, if this version defines it.
#[inline]
pub(crate) fn known<T>(field: &'static str, value: u64, found: Option<T>) -> Result<T, WireError> {
    found.ok_or(WireError::Unknown { field, value })
}

/// Checks that a field this kind does not use is zero.
#[inline]
pub(crate) const fn must_be_zero(field: &'static str, value: u64) -> Result<(), WireError> {
    if value == 0 { Ok(()) } else { Err(WireError::Reserved { field, value }) }
}

/// Checks that `start + length` does not overflow.
#[inline]
pub(crate) const fn must_not_overflow(field: &'static str, value: u64, length: u64) -> Result<(), WireError> {
    match value.checked_add(length) {
        Some(_) => Ok(()),
        None => Err(WireError::Overflow { field, value, length }),
    }
}

/// Checks that a length is not 0.
#[inline]
pub(crate) const fn must_not_be_empty(field: &'static str, length: u64) -> Result<(), WireError> {
    if length == 0 { Err(WireError::Empty { field }) } else { Ok(()) }
}

/// Checks `value <= limit`.
#[inline]
pub(crate) const fn must_fit(field: &'static str, value: u64, limit: u64) -> Result<(), WireError> {
    if value <= limit { Ok(()) } else { Err(WireError::TooLarge { field, value, limit }) }
}
