//! Types of Rust as types of XDR.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Decoder, Encoder, XdrError, padding};

/// A value with a form in XDR.
pub trait Xdr: Sized {
    /// Bytes that a value takes at least.
    const LEAST_BYTES: usize;

    /// Bytes that this value takes.
    fn encoded_bytes(&self) -> usize;

    /// Writes it.
    ///
    /// # Errors
    /// [`XdrError::Full`], [`XdrError::Sink`]; a list of more than 2^32 - 1 elements.
    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError>;

    /// Reads one.
    ///
    /// # Errors
    /// The bytes are no such value.
    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError>;
}

macro_rules! words {
    ($($type:ty),*) => {$(
        impl Xdr for $type {
            const LEAST_BYTES: usize = 4;

            #[inline]
            fn encoded_bytes(&self) -> usize {
                4
            }

            #[inline]
            fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
                to.word(u32::from_ne_bytes(self.to_ne_bytes()))
            }

            #[inline]
            fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
                Ok(Self::from_ne_bytes(from.word()?.to_ne_bytes()))
            }
        }
    )*};
}

macro_rules! hypers {
    ($($type:ty),*) => {$(
        impl Xdr for $type {
            const LEAST_BYTES: usize = 8;

            #[inline]
            fn encoded_bytes(&self) -> usize {
                8
            }

            #[inline]
            fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
                to.hyper(u64::from_ne_bytes(self.to_ne_bytes()))
            }

            #[inline]
            fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
                Ok(Self::from_ne_bytes(from.hyper()?.to_ne_bytes()))
            }
        }
    )*};
}

words!(u32, i32, f32);
hypers!(u64, i64, f64);

/// `void`.
impl Xdr for () {
    const LEAST_BYTES: usize = 0;

    fn encoded_bytes(&self) -> usize {
        0
    }

    fn encode(&self, _: &mut Encoder<'_>) -> Result<(), XdrError> {
        Ok(())
    }

    fn decode(_: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(())
    }
}

impl Xdr for bool {
    const LEAST_BYTES: usize = 4;

    fn encoded_bytes(&self) -> usize {
        4
    }

    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        to.word((*self).into())
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match from.word()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(XdrError::NotBoolean(other)),
        }
    }
}

/// `string<>`, in UTF-8.
impl Xdr for String {
    const LEAST_BYTES: usize = 4;

    fn encoded_bytes(&self) -> usize {
        4 + self.len() + padding(self.len())
    }

    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        to.opaque(self.as_bytes())
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Self::from_utf8(from.opaque(usize::MAX)?).map_err(|_| XdrError::NotText)
    }
}

/// `opaque<>`: bytes, which a `Vec<u8>` cannot stand for, since XDR has no integers of one byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opaque(pub Vec<u8>);

impl Xdr for Opaque {
    const LEAST_BYTES: usize = 4;

    fn encoded_bytes(&self) -> usize {
        4 + self.0.len() + padding(self.0.len())
    }

    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        to.opaque(&self.0)
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        from.opaque(usize::MAX).map(Self)
    }
}

/// `opaque[N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedOpaque<const N: usize>(pub [u8; N]);

impl<const N: usize> Xdr for FixedOpaque<N> {
    const LEAST_BYTES: usize = N + padding(N);

    fn encoded_bytes(&self) -> usize {
        Self::LEAST_BYTES
    }

    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        to.fixed_opaque(&self.0)
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let mut bytes = [0; N];
        from.fixed_opaque(&mut bytes)?;
        Ok(Self(bytes))
    }
}

/// `T<>`.
impl<T: Xdr> Xdr for Vec<T> {
    const LEAST_BYTES: usize = 4;

    fn encoded_bytes(&self) -> usize {
        4 + self.iter().map(Xdr::encoded_bytes).sum::<usize>()
    }

    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        to.length(self.len())?;
        self.iter().try_for_each(|value| value.encode(to))
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        // Elements of no bytes would let a short record ask for any amount of memory.
        let count = from.length(usize::MAX, T::LEAST_BYTES.max(1))?;
        // Elements may take more memory than bytes: memory grows with what is really there.
        let mut values = Self::with_capacity(count.min(1024));
        for _ in 0..count {
            values.push(T::decode(from)?);
        }
        Ok(values)
    }
}

/// `T[N]`.
impl<T: Xdr, const N: usize> Xdr for [T; N] {
    const LEAST_BYTES: usize = N * T::LEAST_BYTES;

    fn encoded_bytes(&self) -> usize {
        self.iter().map(Xdr::encoded_bytes).sum()
    }

    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        self.iter().try_for_each(|value| value.encode(to))
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let values: Vec<T> = (0..N).map(|_| T::decode(from)).collect::<Result<_, _>>()?;
        // As many were read.
        values.try_into().map_err(|_| XdrError::Sink)
    }
}

/// `T *`.
impl<T: Xdr> Xdr for Option<T> {
    const LEAST_BYTES: usize = 4;

    fn encoded_bytes(&self) -> usize {
        4 + self.as_ref().map_or(0, Xdr::encoded_bytes)
    }

    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        to.word(self.is_some().into())?;
        self.as_ref().map_or(Ok(()), |value| value.encode(to))
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        from.value::<bool>()?.then(|| T::decode(from)).transpose()
    }
}

impl<T: Xdr> Xdr for Box<T> {
    const LEAST_BYTES: usize = T::LEAST_BYTES;

    fn encoded_bytes(&self) -> usize {
        (**self).encoded_bytes()
    }

    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        (**self).encode(to)
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        from.nested(T::decode).map(Self::new)
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*);)*) => {$(
        impl<$($name: Xdr),*> Xdr for ($($name,)*) {
            const LEAST_BYTES: usize = 0 $(+ $name::LEAST_BYTES)*;

            fn encoded_bytes(&self) -> usize {
                0 $(+ self.$index.encoded_bytes())*
            }

            fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
                $(self.$index.encode(to)?;)*
                Ok(())
            }

            fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
                Ok(($($name::decode(from)?,)*))
            }
        }
    )*};
}

tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
}
