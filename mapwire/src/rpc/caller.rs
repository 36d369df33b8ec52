//! Calls of procedures of one program at one rank, and those under way.

use core::time::Duration;
use std::sync::Arc;

use mapwire_rpc::xdr::{Decoder, Encoder, Xdr, XdrError};
use mapwire_rpc::{CallError, CallHeader, Credential, Draft, Placed, Refusal, Xid};

use super::error::Error;
use super::inner::Inner;
use super::pair::Pair;
use super::record::Record;
use super::writer::{Patience, Writer, Written};

/// The way to a version of a program at a rank. Threads may share one, and any number of calls may be under way.
///
/// Results come in whatever order the server gives them. When the server's end closes or its process dies, calls end with
/// [`CallError::Closed`] or [`CallError::Gone`]; a new caller connects anew.
#[derive(Clone, Debug)]
pub struct Caller {
    inner: Arc<Inner>,
    pair: Arc<Pair>,
    program: u32,
    version: u32,
    credential: Credential,
    timeout: Option<Duration>,
    /// What stands before arguments.
    template: Arc<Draft>,
}

/// What is sent to begin a call.
type Prepared = (Draft, Option<Placed>);

/// What the calling thread does once a call has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Something else: the call goes out at once.
    GoOn,
    /// It waits, and sends the call with its first look. The server is not woken before this thread is about to sleep.
    Wait,
}

impl Caller {
    pub(super) fn connect(inner: &Arc<Inner>, rank: usize, program: u32, version: u32) -> Result<Self, Error> {
        let peer = inner.node_of(rank)?;
        if rank == inner.node.rank() {
            return Err(Error::Itself(rank));
        }
        let pair = inner.connect(peer)?;
        let credential = Credential::None;
        Ok(Self {
            template: Arc::new(template(program, version, &credential)),
            inner: Arc::clone(inner),
            pair,
            program,
            version,
            credential,
            timeout: Some(inner.timeout),
        })
    }

    /// The server's rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        usize::from(self.pair.peer.0)
    }

    /// Whether the connection still stands that this was made for.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let connection = self.inner.call(|service| service.connection(self.pair.peer));
        connection.is_ok_and(|now| now.is_open && now.is_of(self.pair.session))
    }

    /// Says who calls, from here on.
    ///
    /// # Errors
    /// [`Error::BadCredential`].
    pub fn set_credential(&mut self, credential: Credential) -> Result<(), Error> {
        if !credential.is_legal() {
            return Err(Error::BadCredential);
        }
        self.template = Arc::new(template(self.program, self.version, &credential));
        self.credential = credential;
        Ok(())
    }

    /// Who calls.
    #[must_use]
    pub const fn credential(&self) -> &Credential {
        &self.credential
    }

    /// How long calls wait from here on at most, each time: for room, until the server takes more calls, and for their replies. `None`: as
    /// long as the server lives.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// How long calls wait.
    #[must_use]
    pub const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Calls a procedure, and waits for its result.
    ///
    /// # Errors
    /// [`Error::Call`] says what became of the call; [`Error::Xdr`]: the result is no `R`, or the arguments are longer than the server takes.
    pub fn call<R: Xdr>(&self, procedure: u32, arguments: &impl Xdr) -> Result<R, Error> {
        let bytes = Some(arguments.encoded_bytes());
        let pending = self.start(procedure, bytes, Then::Wait, |writer| writer.encode(|to| arguments.encode(to)))?;
        Ok(pending.wait()?.value()?)
    }

    /// As [`call`](Self::call), with arguments that `encode` writes and a result that `decode` reads, each where it lies.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_with<R>(
        &self,
        procedure: u32,
        encode: impl FnOnce(&mut Encoder<'_>) -> Result<(), XdrError>,
        decode: impl FnOnce(&mut Decoder<'_>) -> Result<R, XdrError>,
    ) -> Result<R, Error> {
        let pending = self.start(procedure, None, Then::Wait, |writer| writer.encode(encode))?;
        Ok(pending.wait()?.decode(decode)?)
    }

    /// As [`call`](Self::call), with arguments that `write` writes to an address with so many bytes of room: it says how many it has written,
    /// or `None` if they do not suffice. It is called with some hundred bytes of room first, then with that of a message, and then with that
    /// of the longest record.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_raw(
        &self,
        procedure: u32,
        write: impl FnMut(*mut u8, usize) -> Option<usize>,
    ) -> Result<Record, Error> {
        self.start(procedure, None, Then::Wait, |writer| writer.write_raw(write))?.wait()
    }

    /// Begins a call, whose result is waited for later. Waits only for room, where there is none for the call.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn begin(&self, procedure: u32, arguments: &impl Xdr) -> Result<Pending<'_>, Error> {
        let bytes = arguments.encoded_bytes();
        self.begin_with(procedure, Some(bytes), |to| arguments.encode(to))
    }

    /// As [`begin`](Self::begin), with arguments that `encode` writes: `bytes` of them, if that is known. If it is not, a long call has the
    /// room of the longest record while it is written.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn begin_with(
        &self,
        procedure: u32,
        bytes: Option<usize>,
        encode: impl FnOnce(&mut Encoder<'_>) -> Result<(), XdrError>,
    ) -> Result<Pending<'_>, Error> {
        self.start(procedure, bytes, Then::GoOn, |writer| writer.encode(encode))
    }

    /// As [`begin`](Self::begin), with arguments as for [`call_raw`](Self::call_raw).
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn begin_raw(
        &self,
        procedure: u32,
        write: impl FnMut(*mut u8, usize) -> Option<usize>,
    ) -> Result<Pending<'_>, Error> {
        self.start(procedure, None, Then::GoOn, |writer| writer.write_raw(write))
    }

    fn start(
        &self,
        procedure: u32,
        bytes: Option<usize>,
        then: Then,
        write: impl FnOnce(Writer<'_>) -> Result<Written, Error>,
    ) -> Result<Pending<'_>, Error> {
        self.inner.node.check_process()?;
        if then == Then::Wait {
            self.inner.announce(&self.pair, bytes);
        }
        let (draft, placed) = ready(write(self.writer(procedure, bytes)))?;
        let (mut draft, peer) = (Some(draft), self.pair.peer);
        let begun = self.post(procedure, placed, then, |service| service.begin(peer, &mut draft, placed, None))?;
        Ok(Pending::new(self, procedure, begun))
    }

    /// Makes a call that nobody answers. Returns once it is on its way; whether it was carried out is not said.
    ///
    /// # Errors
    /// As [`call`](Self::call), as far as they are known here.
    pub fn one_way(&self, procedure: u32, arguments: &impl Xdr) -> Result<(), Error> {
        let bytes = Some(arguments.encoded_bytes());
        self.send_one_way(procedure, bytes, |writer| writer.encode(|to| arguments.encode(to)))
    }

    /// As [`one_way`](Self::one_way), with arguments as for [`call_raw`](Self::call_raw).
    ///
    /// # Errors
    /// As [`one_way`](Self::one_way).
    pub fn one_way_raw(&self, procedure: u32, write: impl FnMut(*mut u8, usize) -> Option<usize>) -> Result<(), Error> {
        self.send_one_way(procedure, None, |writer| writer.write_raw(write))
    }

    fn send_one_way(
        &self,
        procedure: u32,
        bytes: Option<usize>,
        write: impl FnOnce(Writer<'_>) -> Result<Written, Error>,
    ) -> Result<(), Error> {
        self.inner.node.check_process()?;
        let (draft, placed) = ready(write(self.writer(procedure, bytes)))?;
        let (mut draft, peer) = (Some(draft), self.pair.peer);
        self.post(procedure, placed, Then::GoOn, |service| service.one_way(peer, &mut draft, placed))
    }

    fn writer(&self, procedure: u32, bytes: Option<usize>) -> Writer<'_> {
        let draft = self.template.repeated(procedure, Vec::with_capacity(256));
        let patience = Patience::For(self.timeout);
        Writer::new(&self.inner, &self.pair, draft, bytes, patience)
    }

    /// Sends as soon as the server takes more.
    fn post<T>(
        &self,
        procedure: u32,
        placed: Option<Placed>,
        then: Then,
        mut begin: impl FnMut(&mut mapwire_rpc::Rpc) -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        let begun = match then {
            Then::GoOn => self.inner.call(&mut begin),
            Then::Wait => self.inner.ask(&mut begin),
        };
        let begun = match begun? {
            Err(Refusal::NoWindow(_)) => {
                let waited = self.inner.wait(self.timeout, |service| match begin(service) {
                    Err(Refusal::NoWindow(_)) => None,
                    other => Some(other),
                })?;
                waited.unwrap_or(Err(Refusal::NoWindow(self.pair.peer)))
            }
            begun => begun,
        };
        begun.or_else(|refusal| {
            if let Some(placed) = placed {
                self.inner.call(|service| service.cancel(self.pair.peer, placed.room))?;
            }
            let error = match refusal {
                Refusal::NotOpen(_) => CallError::Closed,
                Refusal::NoWindow(_) => CallError::TimedOut,
                other => return Err(other.into()),
            };
            Err(self.failed(procedure, error))
        })
    }

    fn failed(&self, procedure: u32, error: CallError) -> Error {
        Error::Call { rank: self.rank(), program: self.program, version: self.version, procedure, error }
    }

    fn outcome(&self, procedure: u32, outcome: mapwire_rpc::Outcome) -> Result<Record, Error> {
        match outcome {
            Err(error) => Err(self.failed(procedure, error)),
            Ok(body) => {
                Record::new(&self.inner, self.pair.peer, body).map_err(|_| self.failed(procedure, CallError::Closed))
            }
        }
    }

    fn abandon(&self, xid: Xid) {
        // The service may be closed.
        let _ = self.inner.call(|service| service.abandon(xid));
    }
}

/// A call under way. Dropped without being waited for, its reply is dropped when it comes; the call is not taken back.
#[must_use = "its reply is dropped unless it is waited for"]
#[derive(Debug)]
pub struct Pending<'a> {
    caller: &'a Caller,
    procedure: u32,
    /// `None`: it is over.
    xid: Option<Xid>,
}

impl<'a> Pending<'a> {
    const fn new(caller: &'a Caller, procedure: u32, xid: Xid) -> Self {
        Self { caller, procedure, xid: Some(xid) }
    }

    /// Waits for the result, as long as the caller's [timeout](Caller::set_timeout) says.
    ///
    /// # Errors
    /// [`Error::Call`]; with [`CallError::TimedOut`] the call is given up.
    pub fn wait(mut self) -> Result<Record, Error> {
        match self.wait_for(self.caller.timeout()) {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(self.caller.failed(self.procedure, CallError::TimedOut)),
            Err(error) => Err(error),
        }
    }

    /// Waits for the result, for `timeout` at most: `None` when that is over, and the call goes on.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); a result that was given out.
    pub fn wait_for(&mut self, timeout: Option<Duration>) -> Result<Option<Record>, Error> {
        let xid = self.xid.ok_or(Refusal::NotAwaited(0))?;
        let Some(outcome) = self.caller.inner.wait(timeout, |service| service.take_outcome(xid))? else {
            return Ok(None);
        };
        self.xid = None;
        self.caller.outcome(self.procedure, outcome).map(Some)
    }

    /// The result, if it has come.
    ///
    /// # Errors
    /// As [`wait_for`](Self::wait_for).
    pub fn poll(&mut self) -> Result<Option<Record>, Error> {
        let xid = self.xid.ok_or(Refusal::NotAwaited(0))?;
        let inner = &self.caller.inner;
        inner.node.poll();
        let Some(outcome) = inner.call(|service| service.take_outcome(xid))? else { return Ok(None) };
        self.xid = None;
        self.caller.outcome(self.procedure, outcome).map(Some)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(xid) = self.xid {
            self.caller.abandon(xid);
        }
    }
}

fn template(program: u32, version: u32, credential: &Credential) -> Draft {
    let header = CallHeader { xid: 0, program, version, procedure: 0, credential: credential.clone() };
    Draft::call(&header, Vec::new())
}

/// Calls wait for room rather than being put off.
fn ready(written: Result<Written, Error>) -> Result<Prepared, Error> {
    match written? {
        Written::Ready(draft, placed) => Ok((draft, placed)),
        Written::Waiting(body) => Err(XdrError::Full { bytes: body.len() as u64, limit: 0 }.into()),
    }
}
