//! Columns of numbers, as [`format`](crate::format) describes them.

pub(crate) mod decode;
mod dictionary;
pub(crate) mod encode;
mod fit;
mod packing;

pub(crate) const GROUP: usize = 1024;
/// Most values of a dictionary: as many as stay in a first-level cache.
pub(crate) const MAX_DICTIONARY: usize = 4096;

pub(crate) const CONSTANT: u8 = 0;
pub(crate) const PACKED: u8 = 1;
pub(crate) const BYTES: u8 = 2;
pub(crate) const DICTIONARY: u8 = 3;

/// The bytes are no column, or not one of that many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

pub(crate) fn take<'a, const N: usize>(bytes: &mut &'a [u8], what: &'static str) -> Result<&'a [u8; N], Malformed> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(Malformed(what))?;
    *bytes = rest;
    Ok(first)
}

#[cfg(test)]
mod tests;
