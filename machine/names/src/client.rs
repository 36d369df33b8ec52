//! A client of `mapwire serve`.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use mapwire_host::descriptors::above_stdio;

use crate::channel::{Channel, ChannelKey};
use crate::protocol::{
    Limit, MAX_RESPONSE_BYTES, Release, Request, Response, VERSION, Verdict, WELCOME_BYTES, Welcome,
};
use crate::store::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use crate::{LeaseId, NamesError, SharedSecret, Store, StoreAddress};

/// Longest time of a call.
const PATIENCE: Duration = Duration::from_secs(4);
/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

/// One connection, replaced when it breaks.
#[derive(Debug)]
pub(crate) struct Client {
    address: StoreAddress,
    key: ChannelKey,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    channel: Channel,
}

/// Why a connection is useless.
enum CallError {
    /// It broke; another may succeed.
    Broken(io::Error),
    /// Another would fail too.
    Final(NamesError),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl Client {
    pub(crate) fn new(address: StoreAddress, secret: &SharedSecret) -> Self {
        Self { address, key: ChannelKey::new(secret), connection: None }
    }

    fn protocol(&self, what: &str) -> NamesError {
        NamesError::Protocol { address: self.address.to_string(), what: what.into() }
    }

    /// Sends a request, once more over another connection if an established one breaks: every request may be repeated.
    fn ask(&mut self, request: &Request) -> Result<Response, NamesError> {
        let ends = Instant::now() + PATIENCE;
        loop {
            let outcome = match self.connection.take() {
                Some(connection) => Ok(connection),
                None => self.connect(ends),
            };
            let outcome = outcome.and_then(|mut connection| {
                let response = connection.ask(request, ends)?;
                self.connection = Some(connection);
                Ok(response)
            });
            match outcome {
                Ok(bytes) => {
                    return Response::parse(&bytes).map_err(|_| self.protocol("malformed answer"));
                }
                Err(CallError::Final(error)) => return Err(error),
                // A server that drops connections may accept the next one.
                Err(CallError::Broken(error)) if Instant::now() + PAUSE < ends && is_passing(&error) => {
                    std::thread::sleep(PAUSE);
                }
                Err(CallError::Broken(error)) => {
                    return Err(NamesError::Unreachable { address: self.address.to_string(), why: why(&error) });
                }
            }
        }
    }

    fn connect(&self, ends: Instant) -> Result<Connection, CallError> {
        let StoreAddress::Server(server) = &self.address else {
            return Err(CallError::Final(self.protocol("it is not a server of mapwire serve")));
        };
        let mut failure = io::Error::other("the host has no address");
        for address in (server.host.as_str(), server.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left(ends)?) {
                Ok(stream) => {
                    let stream = above_stdio(OwnedFd::from(stream)).map_err(io::Error::from)?;
                    return self.introduce(stream.into(), ends);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure.into())
    }

    fn introduce(&self, mut stream: TcpStream, ends: Instant) -> Result<Connection, CallError> {
        stream.set_nodelay(true)?;
        let unfit = || CallError::Final(self.protocol("no handshake can be made"));
        let (hello, begun) = self.key.hello().ok_or_else(unfit)?;
        stream.set_write_timeout(Some(left(ends)?))?;
        stream.write_all(&hello.emit())?;
        let mut bytes = [0; WELCOME_BYTES];
        let mut got = 0;
        while got < bytes.len() {
            stream.set_read_timeout(Some(left(ends)?))?;
            match read(&mut stream, &mut bytes[got..])? {
                0 => return Err(CallError::Broken(io::ErrorKind::UnexpectedEof.into())),
                count => got += count,
            }
        }
        let welcome = Welcome::parse(&bytes)
            .map_err(|_| CallError::Final(self.protocol("it is not `mapwire serve`, or is older")))?;
        let address = self.address.to_string();
        match welcome.verdict {
            Verdict::Welcome(answer) => match begun.finish(&answer) {
                Some(channel) => Ok(Connection { stream, channel }),
                None => Err(CallError::Final(NamesError::WrongSecret { address })),
            },
            Verdict::Secret => Err(CallError::Final(NamesError::WrongSecret { address })),
            Verdict::Version => Err(CallError::Final(NamesError::Version {
                address,
                theirs: welcome.release.as_str().into(),
                ours: format!("{} (protocol {VERSION})", Release::own().as_str()),
            })),
            Verdict::Room => {
                Err(CallError::Broken(io::Error::new(io::ErrorKind::ConnectionReset, "it has too many connections")))
            }
        }
    }

    fn unexpected<T>(&self, response: &Response) -> Result<T, NamesError> {
        let address = self.address.to_string();
        Err(match response {
            Response::NoLease => NamesError::NoLease { address },
            Response::Full(limit) => NamesError::Full {
                address,
                what: match limit {
                    Limit::ClientLeases => "one connection has too many leases",
                    Limit::Leases => "there are too many leases; end some jobs",
                    Limit::Lease => "a job has put too many values",
                    Limit::Bytes => "all jobs together have put too much; end some",
                }
                .into(),
            },
            _ => self.protocol("it answers something else"),
        })
    }
}

/// Whether another attempt may succeed: the server was there, and did not answer this time.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&error.kind())
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("no answer within {} s", PATIENCE.as_secs())
        }
        io::ErrorKind::UnexpectedEof => "the connection was closed".into(),
        _ => error.to_string(),
    }
}

/// Reads some bytes, and retries after the process was stopped and continued.
fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn left(ends: Instant) -> io::Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

impl Connection {
    fn ask(&mut self, request: &Request, ends: Instant) -> Result<Vec<u8>, CallError> {
        let broken = |_| CallError::Broken(io::ErrorKind::ConnectionReset.into());
        let mut out = Vec::new();
        self.channel.seal(&request.emit(), &mut out).map_err(broken)?;
        self.stream.set_write_timeout(Some(left(ends)?))?;
        self.stream.write_all(&out)?;
        let mut bytes = [0; 16 << 10];
        loop {
            if let Some(message) = self.channel.open(MAX_RESPONSE_BYTES).map_err(broken)? {
                return Ok(message);
            }
            self.stream.set_read_timeout(Some(left(ends)?))?;
            match read(&mut self.stream, &mut bytes)? {
                0 => return Err(CallError::Broken(io::ErrorKind::UnexpectedEof.into())),
                count => self.channel.feed(&bytes[..count]),
            }
        }
    }
}

/// Asks, and takes what is expected out of the response.
macro_rules! expect {
    ($client:ident, $request:expr, $expected:pat => $value:expr) => {
        match $client.ask(&$request)? {
            $expected => Ok($value),
            other => $client.unexpected(&other),
        }
    };
}

impl Store for Client {
    fn address(&self) -> &StoreAddress {
        &self.address
    }

    fn grant(&mut self) -> Result<LeaseId, NamesError> {
        expect!(self, Request::Grant, Response::Granted(lease) => lease)
    }

    fn keep(&mut self, lease: LeaseId) -> Result<bool, NamesError> {
        expect!(self, Request::Keep(lease), Response::Done(is_there) => is_there)
    }

    fn revoke(&mut self, lease: LeaseId) -> Result<(), NamesError> {
        expect!(self, Request::Revoke(lease), Response::Done(_) => ())
    }

    fn create(&mut self, key: &str, value: &[u8], lease: LeaseId) -> Result<bool, NamesError> {
        if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
            return Err(NamesError::Full {
                address: self.address.to_string(),
                what: format!("the value of {key} has {} bytes", value.len()),
            });
        }
        let (key, value) = (key.to_owned(), value.to_owned());
        expect!(self, Request::Create { lease, key, value }, Response::Done(done) => done)
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, NamesError> {
        expect!(self, Request::Get(key.into()), Response::Value(value) => value)
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, NamesError> {
        let mut all: Vec<(String, Vec<u8>)> = Vec::new();
        loop {
            let after = all.last().map_or_else(String::new, |(key, _)| key.clone());
            let request = Request::List { prefix: prefix.to_owned(), after };
            let (entries, more) = expect!(self, request, Response::Entries { entries, more } => (entries, more))?;
            let came = entries.len();
            all.extend(entries);
            if !more || came == 0 {
                return Ok(all);
            }
        }
    }

    fn count(&mut self, prefix: &str) -> Result<u64, NamesError> {
        expect!(self, Request::Count(prefix.into()), Response::Count(count) => count)
    }
}
