//! External data representation (RFC 4506): values as big-endian words of four bytes.

use alloc::vec::Vec;

use thiserror::Error;

mod values;

pub use values::{FixedOpaque, Opaque, Xdr};

/// Why bytes are no value, or a value cannot be written.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum XdrError {
    /// The bytes end within a value.
    #[error("a value of {wanted} B does not fit the {left} B that are left")]
    Short { wanted: u64, left: u64 },
    /// The record would be longer than allowed.
    #[error("the record would take {bytes} B, and {limit} B are allowed: send less in one call")]
    Full { bytes: u64, limit: u64 },
    /// A list or text is longer than its type allows.
    #[error("{count} elements where {limit} are allowed")]
    TooMany { count: u64, limit: u64 },
    /// A boolean that is neither 0 nor 1.
    #[error("{0} is not a boolean: expected 0 or 1")]
    NotBoolean(u32),
    /// An enumeration's value that the type does not have.
    #[error("the enumeration has no value {0}")]
    NotInEnumeration(u32),
    /// A string that is not UTF-8.
    #[error("the string is not UTF-8")]
    NotText,
    /// Pointers lead to pointers, more often than any value that is meant.
    #[error("pointers lie {0} deep, and no deeper ones are read")]
    TooDeep(u32),
    /// Bytes are left where the value ends.
    #[error("{0} B are left behind the value")]
    Left(u64),
    /// The sink has failed for a reason of its own.
    #[error("the record cannot be written")]
    Sink,
}

/// Where encoded bytes go.
pub trait Sink {
    /// Appends bytes.
    ///
    /// # Errors
    /// No room, or a reason of the sink's own.
    fn put(&mut self, bytes: &[u8]) -> Result<(), XdrError>;
}

/// Where encoded bytes come from. Each byte is read once.
pub trait Source {
    /// Copies out the next bytes.
    ///
    /// # Errors
    /// [`XdrError::Short`]; nothing is taken then.
    fn take(&mut self, to: &mut [u8]) -> Result<(), XdrError>;

    /// Passes over bytes.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn skip(&mut self, bytes: usize) -> Result<(), XdrError>;

    /// Bytes that are left.
    fn left(&self) -> usize;
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), XdrError> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

impl Source for &[u8] {
    #[inline]
    fn take(&mut self, to: &mut [u8]) -> Result<(), XdrError> {
        let (taken, rest) = self
            .split_at_checked(to.len())
            .ok_or(XdrError::Short { wanted: to.len() as u64, left: self.len() as u64 })?;
        to.copy_from_slice(taken);
        *self = rest;
        Ok(())
    }

    #[inline]
    fn skip(&mut self, bytes: usize) -> Result<(), XdrError> {
        let (_, rest) =
            self.split_at_checked(bytes).ok_or(XdrError::Short { wanted: bytes as u64, left: self.len() as u64 })?;
        *self = rest;
        Ok(())
    }

    #[inline]
    fn left(&self) -> usize {
        self.len()
    }
}

/// Bytes that fill `length` up to a whole word.
#[must_use]
pub const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// Writes values to a [`Sink`].
pub struct Encoder<'a> {
    sink: &'a mut dyn Sink,
}

impl core::fmt::Debug for Encoder<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Encoder")
    }
}

impl<'a> Encoder<'a> {
    /// Writes to `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        Self { sink }
    }

    /// Writes a value.
    ///
    /// # Errors
    /// [`XdrError::Full`], [`XdrError::Sink`].
    #[inline]
    pub fn value(&mut self, value: &impl Xdr) -> Result<(), XdrError> {
        value.encode(self)
    }

    /// Writes a word.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    #[inline]
    pub fn word(&mut self, word: u32) -> Result<(), XdrError> {
        self.sink.put(&word.to_be_bytes())
    }

    /// Writes some words.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    #[inline]
    pub fn words<const N: usize>(&mut self, words: [u32; N]) -> Result<(), XdrError> {
        self.sink.put(words.map(u32::to_be_bytes).as_flattened())
    }

    /// Writes a hyper integer.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    #[inline]
    pub fn hyper(&mut self, hyper: u64) -> Result<(), XdrError> {
        self.sink.put(&hyper.to_be_bytes())
    }

    /// Writes opaque data of a length that the reader knows, padded to whole words.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    #[inline]
    pub fn fixed_opaque(&mut self, bytes: &[u8]) -> Result<(), XdrError> {
        self.sink.put(bytes)?;
        match padding(bytes.len()) {
            0 => Ok(()),
            pad => self.sink.put(&[0; 3][..pad]),
        }
    }

    /// Writes opaque data behind its length, padded to whole words.
    ///
    /// # Errors
    /// As [`value`](Self::value); more than 2^32 - 1 bytes.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) -> Result<(), XdrError> {
        self.length(bytes.len())?;
        self.fixed_opaque(bytes)
    }

    /// Writes the length of a list.
    ///
    /// # Errors
    /// As [`value`](Self::value); more than 2^32 - 1.
    #[inline]
    pub fn length(&mut self, length: usize) -> Result<(), XdrError> {
        let length =
            u32::try_from(length).map_err(|_| XdrError::TooMany { count: length as u64, limit: u32::MAX.into() })?;
        self.word(length)
    }
}

/// Reads values from a [`Source`].
pub struct Decoder<'a> {
    source: &'a mut dyn Source,
    depth: u32,
}

/// How deep boxed values may lie within each other: each takes a frame of the stack.
const MOST_DEEP: u32 = 512;

impl core::fmt::Debug for Decoder<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Decoder of {} B", self.left())
    }
}

impl<'a> Decoder<'a> {
    /// Reads from `source`.
    pub fn new(source: &'a mut dyn Source) -> Self {
        Self { source, depth: 0 }
    }

    /// Reads a value that lies within another of its type, perhaps.
    ///
    /// # Errors
    /// [`XdrError::TooDeep`], and those of `read`.
    pub fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, XdrError>) -> Result<T, XdrError> {
        if self.depth == MOST_DEEP {
            return Err(XdrError::TooDeep(MOST_DEEP));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Reads a value.
    ///
    /// # Errors
    /// The bytes are no such value.
    #[inline]
    pub fn value<T: Xdr>(&mut self) -> Result<T, XdrError> {
        T::decode(self)
    }

    /// Reads a word.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn word(&mut self) -> Result<u32, XdrError> {
        let mut bytes = [0; 4];
        self.source.take(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// Reads some words: all of them, or none.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn words<const N: usize>(&mut self) -> Result<[u32; N], XdrError> {
        let mut bytes = [[0; 4]; N];
        self.source.take(bytes.as_flattened_mut())?;
        Ok(bytes.map(u32::from_be_bytes))
    }

    /// Reads a hyper integer.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn hyper(&mut self) -> Result<u64, XdrError> {
        let mut bytes = [0; 8];
        self.source.take(&mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// Reads opaque data into `to`, whose length it has, and passes over its padding, whatever that holds.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn fixed_opaque(&mut self, to: &mut [u8]) -> Result<(), XdrError> {
        self.source.take(to)?;
        match padding(to.len()) {
            0 => Ok(()),
            pad => self.source.skip(pad),
        }
    }

    /// Reads opaque data of at most `limit` bytes behind its length. Takes no more memory than there are bytes left.
    ///
    /// # Errors
    /// [`XdrError::Short`], [`XdrError::TooMany`].
    pub fn opaque(&mut self, limit: usize) -> Result<Vec<u8>, XdrError> {
        let length = self.length(limit, 1)?;
        let mut bytes = alloc::vec![0; length];
        if length > 0 {
            self.fixed_opaque(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Reads the length of a list of at most `limit` elements, each of which takes at least `least_bytes`: what cannot be there is refused
    /// before memory is taken for it.
    ///
    /// # Errors
    /// [`XdrError::Short`], [`XdrError::TooMany`].
    pub fn length(&mut self, limit: usize, least_bytes: usize) -> Result<usize, XdrError> {
        let count = self.word()?;
        if count as usize > limit {
            return Err(XdrError::TooMany { count: count.into(), limit: limit as u64 });
        }
        let wanted = u64::from(count).saturating_mul(least_bytes as u64);
        if wanted > self.left() as u64 {
            return Err(XdrError::Short { wanted, left: self.left() as u64 });
        }
        Ok(count as usize)
    }

    /// Passes over bytes, padding not included.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    pub fn skip(&mut self, bytes: usize) -> Result<(), XdrError> {
        self.source.skip(bytes)
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.source.left()
    }

    /// Ends the record.
    ///
    /// # Errors
    /// [`XdrError::Left`].
    pub fn finish(&self) -> Result<(), XdrError> {
        match self.left() {
            0 => Ok(()),
            left => Err(XdrError::Left(left as u64)),
        }
    }
}
