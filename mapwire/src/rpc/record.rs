//! Arguments and results that came.

use std::sync::Arc;

use mapwire_rpc::xdr::{Decoder, Source, Xdr, XdrError};
use mapwire_rpc::{Body, Lent};
use mapwire_wire::NodeId;

use super::error::Error;
use super::inner::Inner;
use super::pair::Pair;

/// Arguments or results, where they lie: in memory that the peer can store to, if they are long. They stay there until this is dropped.
///
/// A peer that breaks the rules may change them meanwhile. So they are read through copies: each byte once, what was checked is the copy.
#[derive(Debug)]
pub struct Record {
    place: Place,
}

#[derive(Debug)]
enum Place {
    Inline { bytes: Vec<u8>, at: usize },
    Lent { inner: Arc<Inner>, pair: Arc<Pair>, lent: Lent },
}

impl Record {
    /// The record of a body that came from `peer`. A connection that is over has taken its memory with it.
    pub(super) fn new(inner: &Arc<Inner>, peer: NodeId, body: Body) -> Result<Self, Error> {
        let place = match body {
            Body::Inline { record, at } => Place::Inline { bytes: record, at },
            Body::Lent(lent) => {
                let pair = inner.pair(peer);
                let pair = pair.filter(|pair| pair.session == lent.session);
                Place::Lent { inner: Arc::clone(inner), pair: pair.ok_or(mapwire_rpc::Refusal::NotOpen(peer))?, lent }
            }
        };
        Ok(Self { place })
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.place {
            Place::Inline { bytes, at } => bytes.len() - at,
            Place::Lent { lent, .. } => lent.bytes as usize,
        }
    }

    /// Whether there are none: `void`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they lie in memory that the peer can store to, rather than in memory of this process alone.
    #[must_use]
    pub const fn is_lent(&self) -> bool {
        matches!(self.place, Place::Lent { .. })
    }

    /// Reads all of it as one value.
    ///
    /// # Errors
    /// The bytes are no such value, or more than that.
    pub fn value<T: Xdr>(&self) -> Result<T, XdrError> {
        self.decode(|from| {
            let value = from.value()?;
            from.finish()?;
            Ok(value)
        })
    }

    /// Lets `decode` read it from its begin.
    ///
    /// # Errors
    /// Those of `decode`.
    pub fn decode<R>(&self, decode: impl FnOnce(&mut Decoder<'_>) -> Result<R, XdrError>) -> Result<R, XdrError> {
        match &self.place {
            Place::Inline { bytes, at } => decode(&mut Decoder::new(&mut &bytes[*at..])),
            Place::Lent { pair, lent, .. } => {
                decode(&mut Decoder::new(&mut LentBytes { pair, at: lent.at, left: lent.bytes as usize }))
            }
        }
    }

    /// Copies bytes out, from byte `offset` on: a view of the record without any decoding. What is read twice may differ if the record
    /// [is lent](Self::is_lent).
    ///
    /// # Errors
    /// [`XdrError::Short`].
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), XdrError> {
        let wanted = to.len();
        let short = XdrError::Short { wanted: wanted as u64, left: self.len().saturating_sub(offset) as u64 };
        if offset > self.len() || wanted > self.len() - offset {
            return Err(short);
        }
        match &self.place {
            Place::Inline { bytes, at } => {
                to.copy_from_slice(&bytes[at + offset..][..wanted]);
                Ok(())
            }
            Place::Lent { pair, lent, .. } => {
                let read = pair.own.read(lent.at as usize + offset, to);
                read.map_err(|_| short)
            }
        }
    }

    /// The first byte. The [`len`](Self::len) bytes are mapped for loads while this lives. If the record [is lent](Self::is_lent), the peer
    /// may change them: never make a slice of them.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        match &self.place {
            Place::Inline { bytes, at } => bytes[*at..].as_ptr(),
            Place::Lent { pair, lent, .. } => pair.own.as_ptr().wrapping_add(lent.at as usize).cast_const(),
        }
    }

    /// Where it lies, to be given back together with a reply; memory of this process is given to `spare`.
    pub(super) fn into_parts(mut self) -> (Option<Lent>, Vec<u8>) {
        let nothing = Place::Inline { bytes: Vec::new(), at: 0 };
        match core::mem::replace(&mut self.place, nothing) {
            Place::Inline { bytes, .. } => (None, bytes),
            Place::Lent { lent, .. } => (Some(lent), Vec::new()),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Place::Lent { inner, pair, lent } = &self.place {
            // The connection may be over, and the service closed.
            let _ = inner.call(|service| service.release(pair.peer, lent));
        }
    }
}

/// Bytes in memory that the peer can store to: each is read once.
struct LentBytes<'a> {
    pair: &'a Pair,
    at: u64,
    left: usize,
}

impl LentBytes<'_> {
    fn pass(&mut self, bytes: usize) -> Result<usize, XdrError> {
        if bytes > self.left {
            return Err(XdrError::Short { wanted: bytes as u64, left: self.left as u64 });
        }
        let at = self.at as usize;
        self.left -= bytes;
        self.at += bytes as u64;
        Ok(at)
    }
}

impl Source for LentBytes<'_> {
    #[inline]
    fn take(&mut self, to: &mut [u8]) -> Result<(), XdrError> {
        let wanted = to.len() as u64;
        let at = self.pass(to.len())?;
        // The service has checked that all of the record lies in the buffer.
        let read = self.pair.own.read(at, to);
        read.map_err(|_| XdrError::Short { wanted, left: 0 })
    }

    fn skip(&mut self, bytes: usize) -> Result<(), XdrError> {
        self.pass(bytes).map(|_| ())
    }

    fn left(&self) -> usize {
        self.left
    }
}
