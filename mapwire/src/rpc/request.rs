//! Calls of others, to be answered.

use std::sync::Arc;

use mapwire_rpc::xdr::{Encoder, Xdr, XdrError};
use mapwire_rpc::{Body, Credential, Draft, Incoming, PeerCredentials, Placed, ReplyStatus};

use super::error::Error;
use super::inner::Inner;
use super::record::Record;
use super::writer::{Patience, Writer, Written};

/// A call of another rank. It may be answered at any time, in any order and from any thread. Dropped without an answer, it fails at its
/// caller.
#[derive(Debug)]
pub struct Request {
    inner: Arc<Inner>,
    /// Its body is in `arguments`.
    call: Box<Incoming>,
    /// `None`: it is answered.
    arguments: Option<Record>,
    is_answered: bool,
    is_garbage: bool,
}

impl Request {
    pub(super) fn new(inner: &Arc<Inner>, mut call: Box<Incoming>) -> Option<Self> {
        let body = core::mem::replace(&mut call.body, Body::EMPTY);
        let arguments = Record::new(inner, call.id.peer, body).ok()?;
        Some(Self {
            inner: Arc::clone(inner),
            is_answered: call.id.is_one_way,
            call,
            arguments: Some(arguments),
            is_garbage: false,
        })
    }

    /// Who calls.
    #[must_use]
    pub fn rank(&self) -> usize {
        usize::from(self.call.id.peer.0)
    }

    /// Which program.
    #[must_use]
    pub const fn program(&self) -> u32 {
        self.call.program
    }

    /// Which version of it.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.call.version
    }

    /// Which procedure.
    #[must_use]
    pub const fn procedure(&self) -> u32 {
        self.call.procedure
    }

    /// The call's number at its caller.
    #[must_use]
    pub const fn xid(&self) -> u32 {
        self.call.id.xid
    }

    /// Nobody waits for an answer.
    #[must_use]
    pub const fn is_one_way(&self) -> bool {
        self.call.id.is_one_way
    }

    /// Who the caller says it is. Where the [kernel's word](Self::peer) is known, user and group are as it says, unless that is the
    /// superuser.
    #[must_use]
    pub const fn credential(&self) -> &Credential {
        &self.call.credential
    }

    /// What the kernel says of the calling process, where that is known.
    #[must_use]
    pub const fn peer(&self) -> Option<PeerCredentials> {
        self.call.peer
    }

    /// Reads all arguments as one value.
    ///
    /// # Errors
    /// The bytes are no such value: the call then fails at its caller as one of unreadable arguments, unless it is answered all the same.
    pub fn arguments<T: Xdr>(&mut self) -> Result<T, Error> {
        let value = self.record().map(Record::value);
        self.note(value)
    }

    /// Lets `decode` read the arguments where they lie.
    ///
    /// # Errors
    /// As [`arguments`](Self::arguments).
    pub fn decode<R>(
        &mut self,
        decode: impl FnOnce(&mut mapwire_rpc::xdr::Decoder<'_>) -> Result<R, XdrError>,
    ) -> Result<R, Error> {
        let value = self.record().map(|record| record.decode(decode));
        self.note(value)
    }

    fn note<T>(&mut self, value: Option<Result<T, XdrError>>) -> Result<T, Error> {
        let nothing = XdrError::Short { wanted: 0, left: 0 };
        let value = value.unwrap_or(Err(nothing));
        self.is_garbage = value.is_err();
        Ok(value?)
    }

    /// The arguments; `None` once it is answered.
    #[must_use]
    pub const fn record(&self) -> Option<&Record> {
        self.arguments.as_ref()
    }

    /// Answers with a result. Never waits: a long result for which the caller has no room goes when there is some, as long as a server of this
    /// rank waits for calls.
    ///
    /// # Errors
    /// A caller that is gone, or that waits for no answer; a result that is longer than the caller takes, or one too many that waits for room:
    /// the call then fails there.
    pub fn reply(&mut self, result: &impl Xdr) -> Result<(), Error> {
        let bytes = result.encoded_bytes();
        self.reply_with(Some(bytes), |to| result.encode(to))
    }

    /// As [`reply`](Self::reply), with a result that `encode` writes: `bytes` of it, if that is known.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn reply_with(
        &mut self,
        bytes: Option<usize>,
        encode: impl FnOnce(&mut Encoder<'_>) -> Result<(), XdrError>,
    ) -> Result<(), Error> {
        self.answer(bytes, |writer| writer.encode(encode))
    }

    /// As [`reply`](Self::reply), with a result that `write` writes to an address with so many bytes of room: see
    /// [`Caller::call_raw`](super::Caller::call_raw).
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn reply_raw(&mut self, write: impl FnMut(*mut u8, usize) -> Option<usize>) -> Result<(), Error> {
        self.answer(None, |writer| writer.write_raw(write))
    }

    fn answer(
        &mut self,
        bytes: Option<usize>,
        write: impl FnOnce(Writer<'_>) -> Result<Written, Error>,
    ) -> Result<(), Error> {
        self.check()?;
        let pair = self.inner.pair(self.call.id.peer).ok_or(mapwire_rpc::Refusal::NotAwaited(self.call.id.xid))?;
        self.inner.announce(&pair, bytes);
        let draft = Draft::reply(self.call.id.xid, ReplyStatus::Success, Vec::with_capacity(256));
        let inner = Arc::clone(&self.inner);
        let writer = Writer::new(&inner, &pair, draft, bytes, Patience::Later);
        match write(writer)? {
            Written::Ready(draft, placed) => self.send(draft, placed),
            Written::Waiting(body) => {
                self.is_answered = true;
                drop(self.arguments.take());
                self.inner.reply_later(self.call.id, body)
            }
        }
    }

    /// Refuses the call: `procedure unavailable` and its like.
    ///
    /// # Errors
    /// A caller that is gone, or that waits for no answer.
    pub fn reply_error(&mut self, status: ReplyStatus) -> Result<(), Error> {
        self.check()?;
        let draft = Draft::reply(self.call.id.xid, status, Vec::with_capacity(64));
        self.send(draft, None)
    }

    fn check(&self) -> Result<(), Error> {
        self.inner.node.check_process()?;
        if self.is_answered { Err(mapwire_rpc::Refusal::NotAwaited(self.call.id.xid).into()) } else { Ok(()) }
    }

    fn send(&mut self, draft: Draft, placed: Option<Placed>) -> Result<(), Error> {
        self.is_answered = true;
        // The reply tells that the arguments are done with.
        let (lent, spare) = match self.arguments.take() {
            None => (None, Vec::new()),
            Some(record) => record.into_parts(),
        };
        let id = self.call.id;
        let sent = self.inner.call(|service| {
            if let Some(lent) = &lent {
                service.release(id.peer, lent);
            }
            service.give_spare(spare);
            let sent = service.reply(&id, draft, placed);
            if let (Err(_), Some(placed)) = (&sent, placed) {
                service.cancel(id.peer, placed.room);
            }
            sent
        })?;
        Ok(sent?)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_answered {
            let status = if self.is_garbage { ReplyStatus::GarbageArguments } else { ReplyStatus::SystemError };
            // The caller may be gone.
            let _ = self.reply_error(status);
        }
    }
}
