//! Bodies of records on their way: into the message first, and into memory that the peer lends once they are too long for that.

use core::time::Duration;
use std::sync::Arc;

use mapwire_rpc::xdr::{Encoder, Sink, XdrError};
use mapwire_rpc::{Draft, Placed, Refusal, Room};

use super::error::Error;
use super::inner::Inner;
use super::pair::Pair;

/// What to do while there is no room in the peer's memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Wait, for so long at most.
    For(Option<Duration>),
    /// Write into memory of this process, and find room later. So do records for memory that is not imported yet.
    Later,
}

#[derive(Debug)]
enum Place {
    Inline,
    Room { room: Room, used: u64 },
    Heap { body: Vec<u8>, limit: u64 },
}

#[derive(Debug)]
pub(super) struct Writer<'a> {
    inner: &'a Inner,
    pair: &'a Arc<Pair>,
    /// There until it is [finished](Self::finish).
    draft: Option<Draft>,
    place: Place,
    inline_bytes: usize,
    /// Bytes of the body, if they are known.
    hint: Option<usize>,
    patience: Patience,
    error: Option<Error>,
}

#[derive(Debug)]
pub(super) enum Written {
    /// To be sent, its body in the message or in the peer's memory.
    Ready(Draft, Option<Placed>),
    /// Its body waits for room.
    Waiting(Vec<u8>),
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        inner: &'a Inner,
        pair: &'a Arc<Pair>,
        draft: Draft,
        hint: Option<usize>,
        patience: Patience,
    ) -> Self {
        Self {
            inner,
            pair,
            draft: Some(draft),
            place: Place::Inline,
            inline_bytes: inner.inline_bytes(pair),
            hint,
            patience,
            error: None,
        }
    }

    pub(super) fn encode(
        mut self,
        encode: impl FnOnce(&mut Encoder<'_>) -> Result<(), XdrError>,
    ) -> Result<Written, Error> {
        let outcome = encode(&mut Encoder::new(&mut self));
        self.finish(outcome)
    }

    /// Lets `write` write the body to an address with so many bytes of room, and say how many it has written; `None` if they do not
    /// suffice. It is called with some hundred bytes of room, then with what a message has, and then with that of the longest record.
    pub(super) fn write_raw(
        mut self,
        mut write: impl FnMut(*mut u8, usize) -> Option<usize>,
    ) -> Result<Written, Error> {
        if self.hint.is_none_or(|hint| hint <= self.inline_bytes)
            && let Some(draft) = &mut self.draft
        {
            let body = draft.body();
            let at = body.len();
            // Most records fit behind their header, without memory that would have to be cleared first.
            let first = self.inline_bytes.min(body.capacity() - at);
            let rooms = [first, self.inline_bytes];
            for &room in &rooms[usize::from(first == self.inline_bytes)..] {
                body.resize(at + room, 0);
                let written = write(body[at..].as_mut_ptr(), room).filter(|&bytes| bytes <= room);
                body.truncate(at + written.unwrap_or(0));
                if written.is_some() {
                    return self.finish(Ok(()));
                }
            }
        }
        let longest = self.longest();
        let outcome = self.leave_message(self.hint.map_or(longest, |hint| hint as u64)).and_then(|()| {
            let (to, bytes) = match &mut self.place {
                Place::Inline => return Err(XdrError::Sink),
                Place::Room { room, .. } => {
                    let to = self.pair.pointer(room.at, room.bytes);
                    (to.ok_or(XdrError::Sink)?, room.bytes as usize)
                }
                Place::Heap { body, limit } => {
                    body.resize(*limit as usize, 0);
                    (body.as_mut_ptr(), body.len())
                }
            };
            let written = write(to, bytes).filter(|&written| written <= bytes);
            let written = written.ok_or(XdrError::Full { bytes: bytes as u64 + 1, limit: bytes as u64 })?;
            match &mut self.place {
                Place::Inline => {}
                Place::Room { used, .. } => *used = written as u64,
                Place::Heap { body, .. } => body.truncate(written),
            }
            Ok(())
        });
        self.finish(outcome)
    }

    /// Bytes of the longest body that the peer takes.
    fn longest(&self) -> u64 {
        let limits = self.inner.call(|service| {
            let theirs = service.connection(self.pair.peer).theirs;
            theirs.map(|theirs| theirs.max_record_bytes.min(theirs.area_bytes))
        });
        limits.ok().flatten().unwrap_or(0)
    }

    /// The body goes on in the peer's memory, with `bytes` in all at most.
    #[cold]
    fn leave_message(&mut self, bytes: u64) -> Result<(), XdrError> {
        match self.find_room(bytes) {
            Ok(place) => self.place = place,
            Err(error) => {
                self.error = Some(error);
                return Err(XdrError::Sink);
            }
        }
        let Some(mut draft) = self.draft.take() else { return Err(XdrError::Sink) };
        let outcome = self.put_on(draft.written());
        draft.clear_body();
        self.draft = Some(draft);
        outcome
    }

    fn find_room(&self, bytes: u64) -> Result<Place, Error> {
        let peer = self.pair.peer;
        let must_wait = self.inner.deferred.are_any() || !self.pair.is_ready();
        if matches!(self.patience, Patience::Later) && must_wait {
            return Ok(Place::Heap { body: Vec::new(), limit: bytes });
        }
        let reserved = self.inner.call(|service| service.reserve(peer, bytes))?;
        let later = Place::Heap { body: Vec::new(), limit: bytes };
        let room = match (reserved, self.patience) {
            // A peer may call before its memory is imported here.
            (Ok(room), Patience::Later) if !self.pair.is_ready() => {
                self.inner.call(|service| service.cancel(peer, room))?;
                return Ok(later);
            }
            (Ok(room), _) => room,
            (Err(Refusal::NoRoom(_)), Patience::Later) => return Ok(later),
            (Err(Refusal::NoRoom(_)), Patience::For(timeout)) => {
                let waited = self.inner.wait(timeout, |service| match service.reserve(peer, bytes) {
                    Err(Refusal::NoRoom(_)) => None,
                    other => Some(other),
                })?;
                waited.ok_or(Refusal::NoRoom(peer))??
            }
            (Err(other), _) => return Err(other.into()),
        };
        Ok(Place::Room { room, used: 0 })
    }

    /// Appends to a body that is not in the message.
    #[inline]
    fn put_on(&mut self, bytes: &[u8]) -> Result<(), XdrError> {
        let more = bytes.len() as u64;
        let full = |used: u64, limit| XdrError::Full { bytes: used.saturating_add(more), limit };
        match &mut self.place {
            Place::Inline => Err(XdrError::Sink),
            Place::Room { room, used } => {
                if more > room.bytes - *used {
                    return Err(full(*used, room.bytes));
                }
                if !self.pair.put(room.at + *used, bytes) {
                    return Err(XdrError::Sink);
                }
                *used += more;
                Ok(())
            }
            Place::Heap { body, limit } => {
                let used = body.len() as u64;
                if more > *limit - used {
                    return Err(full(used, *limit));
                }
                body.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Ends the record, and gives its room back if it failed.
    fn finish(mut self, outcome: Result<(), XdrError>) -> Result<Written, Error> {
        let place = core::mem::replace(&mut self.place, Place::Inline);
        if let Err(error) = outcome {
            if let Place::Room { room, .. } = place {
                self.inner.call(|service| service.cancel(self.pair.peer, room))?;
            }
            return Err(self.error.take().unwrap_or(error.into()));
        }
        let draft = self.draft.take().ok_or(Error::Closed)?;
        Ok(match place {
            Place::Inline => Written::Ready(draft, None),
            Place::Room { room, used } => {
                let moves = self.pair.moves() && used > 0;
                let bytes = used;
                Written::Ready(draft, Some(Placed { room, bytes, moves }))
            }
            Place::Heap { body, .. } => Written::Waiting(body),
        })
    }
}

impl Sink for Writer<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), XdrError> {
        if !matches!(self.place, Place::Inline) {
            return self.put_on(bytes);
        }
        let hint = self.hint;
        if let Some(draft) = &mut self.draft {
            let whole = (draft.body_bytes() + bytes.len()).max(hint.unwrap_or(0));
            if whole <= self.inline_bytes {
                draft.body().extend_from_slice(bytes);
                return Ok(());
            }
        }
        let bytes_in_all = hint.map_or_else(|| self.longest(), |hint| hint as u64);
        self.leave_message(bytes_in_all)?;
        self.put_on(bytes)
    }
}
