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
        /// What was being read.
        field: &'static str,
        /// How many bytes it takes.
        needed_bytes: u64,
        /// How many there were.
        found_bytes: u64,
    },
    /// There are more, or other, bytes than the length says.
    #[error("{field} is {found_bytes} bytes but must be {expected_bytes}: length and content must agree")]
    Length {
        /// What was being read.
        field: &'static str,
        /// How many bytes it must have.
        expected_bytes: u64,
        /// How many it has.
        found_bytes: u64,
    },
    /// The peer speaks another version of the format.
    #[error("{field} is {found} but this build speaks {spoken}: run the same mapwire on both sides")]
    Version {
        /// Which version field.
        field: &'static str,
        /// What it says.
        found: u8,
        /// What this build speaks.
        spoken: u8,
    },
    /// A code that this version does not define.
    #[error("{field} is {value}, which this version does not define: the sender is newer or broken")]
    Unknown {
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// Bits or bytes that must be zero are not.
    #[error("{field} is {value:#x} where it must be zero: clear what this kind does not use")]
    Reserved {
        /// Which field.
        field: &'static str,
        /// The offending bits.
        value: u64,
    },
    /// More than the format carries.
    #[error("{field} is {value}, at most {limit} is allowed: cut it into smaller pieces")]
    TooLarge {
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// The largest legal value.
        limit: u64,
    },
    /// Empty where something must be.
    #[error("{field} is empty: it must hold at least one")]
    Empty {
        /// Which field.
        field: &'static str,
    },
    /// A place that is not a multiple of what it must be.
    #[error("{field} is {value:#x}, which is not a multiple of {align}")]
    Unaligned {
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// What it must be a multiple of.
        align: u64,
    },
    /// Start plus length does not fit in 64 bits.
    #[error("{field} {value:#x} plus {length} bytes passes the end of the address space")]
    Overflow {
        /// Which field.
        field: &'static str,
        /// Where the range starts.
        value: u64,
        /// How long it is.
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
        /// Which field.
        field: &'static str,
        /// How many leading bytes are good.
        valid_bytes: u64,
    },
}

/// Demands that a field this kind does not use is zero.
#[inline]
pub(crate) const fn must_be_zero(field: &'static str, value: u64) -> Result<(), WireError> {
    if value == 0 { Ok(()) } else { Err(WireError::Reserved { field, value }) }
}

/// Demands that `start + length` is an address.
#[inline]
pub(crate) const fn must_not_overflow(field: &'static str, value: u64, length: u64) -> Result<(), WireError> {
    match value.checked_add(length) {
        Some(_) => Ok(()),
        None => Err(WireError::Overflow { field, value, length }),
    }
}

/// Demands that there is something.
#[inline]
pub(crate) const fn must_not_be_empty(field: &'static str, length: u64) -> Result<(), WireError> {
    if length == 0 { Err(WireError::Empty { field }) } else { Ok(()) }
}

/// Demands `value <= limit`.
#[inline]
pub(crate) const fn must_fit(field: &'static str, value: u64, limit: u64) -> Result<(), WireError> {
    if value <= limit { Ok(()) } else { Err(WireError::TooLarge { field, value, limit }) }
}
