//! Atomic operations on one word of an export: no other access comes between the read and the write.

use core::fmt;

use crate::error::{WireError, must_be_zero, must_not_overflow};

/// Bytes of an [`Atomic`] on the wire and in a command: three words.
pub const ATOMIC_BYTES: usize = 24;

/// What an atomic operation stores; its answer is the old value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// Old value plus operand, wrapping.
    Add,
    /// The operand.
    Swap,
    /// The operand if the old value is `expected`, else the old value.
    CompareSwap {
        /// Value that the word must have for the operand to be stored.
        expected: u64,
    },
}

/// Width of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// 32 bits.
    Four = 4,
    /// 64 bits.
    Eight = 8,
}

impl Width {
    /// Width in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self as u64
    }

    /// Whether a word of this width may lie at `address`: at a multiple of it, so that it crosses no page.
    #[inline]
    pub const fn fits(self, address: u64) -> bool {
        address.is_multiple_of(self.bytes())
    }

    /// Whether `value` fits in a word of this width.
    #[inline]
    const fn holds(self, value: u64) -> bool {
        matches!(self, Self::Eight) || value <= u32::MAX as u64
    }
}

/// An atomic operation on one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// Operation.
    pub op: AtomicOp,
    /// Width of the word. Operand and expected value fit in it.
    pub width: Width,
    /// Value to add or store.
    pub operand: u64,
}

impl Atomic {
    /// Decodes and checks the three words.
    pub(crate) fn from_words(words: [u64; 3]) -> Result<Atomic, WireError> {
        let [code, operand, compare] = words;
        let width = match code & 0xff {
            4 => Width::Four,
            8 => Width::Eight,
            value => {
                return Err(WireError::Unknown { field: "atomic width", value });
            }
        };
        let op = match code >> 8 {
            1 => AtomicOp::Add,
            2 => AtomicOp::Swap,
            3 => AtomicOp::CompareSwap { expected: compare },
            value => {
                return Err(WireError::Unknown { field: "atomic operation", value });
            }
        };
        if !matches!(op, AtomicOp::CompareSwap { .. }) {
            must_be_zero("expected value", compare)?;
        }
        let atomic = Atomic { op, width, operand };
        atomic.check()?;
        Ok(atomic)
    }

    pub(crate) const fn to_words(self) -> [u64; 3] {
        let (code, compare) = match self.op {
            AtomicOp::Add => (1, 0),
            AtomicOp::Swap => (2, 0),
            AtomicOp::CompareSwap { expected } => (3, expected),
        };
        [code << 8 | self.width.bytes(), self.operand, compare]
    }

    /// Decodes the operation at the front of `inline`.
    pub fn from_bytes(inline: &[u8]) -> Result<Atomic, WireError> {
        match inline.as_chunks::<8>().0 {
            [first, second, third, ..] => Atomic::from_words([*first, *second, *third].map(u64::from_le_bytes)),
            _ => Err(WireError::Truncated {
                field: "atomic operation",
                needed_bytes: ATOMIC_BYTES as u64,
                found_bytes: inline.len() as u64,
            }),
        }
    }

    /// Encodes the operation as three words.
    pub fn to_bytes(self) -> [u8; ATOMIC_BYTES] {
        let mut bytes = [0; ATOMIC_BYTES];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.to_words()) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// Whether its values fit in the word.
    pub(crate) const fn check(self) -> Result<(), WireError> {
        let compare = match self.op {
            AtomicOp::CompareSwap { expected } => expected,
            _ => 0,
        };
        let value = if self.width.holds(self.operand) { compare } else { self.operand };
        if self.width.holds(value) {
            return Ok(());
        }
        Err(WireError::TooLarge { field: "value of a word of 4 bytes", value, limit: u32::MAX as u64 })
    }

    /// New value of a word that held `old`, which must fit in it.
    #[must_use]
    pub const fn result(self, old: u64) -> u64 {
        let new = match self.op {
            AtomicOp::Add => old.wrapping_add(self.operand),
            AtomicOp::Swap => self.operand,
            AtomicOp::CompareSwap { expected } if old == expected => self.operand,
            AtomicOp::CompareSwap { .. } => old,
        };
        match self.width {
            Width::Four => new & u32::MAX as u64,
            Width::Eight => new,
        }
    }
}

impl fmt::Display for Atomic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, operand) = (self.width.bytes(), self.operand);
        match self.op {
            AtomicOp::Add => write!(f, "add {operand:#x} to {bytes} bytes"),
            AtomicOp::Swap => write!(f, "swap {bytes} bytes for {operand:#x}"),
            AtomicOp::CompareSwap { expected } => {
                write!(f, "swap {bytes} bytes for {operand:#x} if they are {expected:#x}")
            }
        }
    }
}

/// Checks that a word for `atomic` may lie at `offset`, and that its values fit.
pub(crate) fn check_word(field: &'static str, offset: u64, atomic: Atomic) -> Result<(), WireError> {
    atomic.check()?;
    if !atomic.width.fits(offset) {
        return Err(WireError::Unaligned { field, value: offset, align: atomic.width.bytes() });
    }
    must_not_overflow(field, offset, atomic.width.bytes())
}
