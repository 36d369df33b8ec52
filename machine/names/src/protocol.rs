//! Messages between clients and the server, before and after sealing.
//!
//! Two fixed records open a connection, both in the clear:
//!
//! | [`Hello`], of the client: bytes | field |
//! |---|---|
//! | 0–6 | `mwnames` |
//! | 7 | version of the protocol, 1 |
//! | 8–31 | release of mapwire, as text; filled up with zeros |
//! | 32–79 | first message of the handshake |
//!
//! | [`Welcome`], of the server: bytes | field |
//! |---|---|
//! | 0 | 0: welcome, 1: another version, 2: the first message does not prove the secret, 3: no room |
//! | 1–24 | release of mapwire |
//! | 25–72 | second message of the handshake; zeros unless welcome |
//!
//! Sealed messages follow: a [`Request`] each, answered by one [`Response`], in order. Their numbers are little-endian.

use crate::LeaseId;
use crate::store::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

pub const VERSION: u8 = 1;

pub const HELLO_BYTES: usize = 80;

pub const WELCOME_BYTES: usize = 1 + RELEASE_BYTES + HANDSHAKE_BYTES;

/// Bytes of each message of the handshake: an ephemeral key and a tag.
pub(crate) const HANDSHAKE_BYTES: usize = 48;

const MAGIC: &[u8; 7] = b"mwnames";
const RELEASE_BYTES: usize = 24;

/// Longest request, in bytes.
pub const MAX_REQUEST_BYTES: usize = MAX_KEY_BYTES + MAX_VALUE_BYTES + 64;

/// Bytes of entries after which a page of a list ends.
pub(crate) const PAGE_BYTES: usize = 1 << 16;

/// Longest response, in bytes: a page, and one more entry.
pub const MAX_RESPONSE_BYTES: usize = PAGE_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES + 64;

/// Malformed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message")]
pub struct Malformed;

/// A release of mapwire, such as `0.1.0`, which both sides send first: up to 24 printable ASCII characters, filled up with zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release([u8; RELEASE_BYTES]);

const _: () = assert!(env!("CARGO_PKG_VERSION").len() <= RELEASE_BYTES);

impl Release {
    #[must_use]
    pub fn own() -> Self {
        Self::of(env!("CARGO_PKG_VERSION")).expect("a short version")
    }

    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let mut bytes = [0; RELEASE_BYTES];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Self::parse(bytes).ok()
    }

    /// The release as printable text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default().trim_end_matches('\0')
    }

    fn parse(bytes: [u8; RELEASE_BYTES]) -> Result<Self, Malformed> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(RELEASE_BYTES);
        let (text, rest) = bytes.split_at(end);
        let is_clean = text.iter().all(u8::is_ascii_graphic) && rest.iter().all(|byte| *byte == 0);
        (is_clean && end > 0).then_some(Self(bytes)).ok_or(Malformed)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub version: u8,
    pub release: Release,
    /// First message of the handshake.
    pub handshake: [u8; HANDSHAKE_BYTES],
}

impl Hello {
    #[must_use]
    pub fn emit(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..7].copy_from_slice(MAGIC);
        bytes[7] = self.version;
        bytes[8..32].copy_from_slice(&self.release.0);
        bytes[32..].copy_from_slice(&self.handshake);
        bytes
    }

    /// Parses a record of any version.
    ///
    /// # Errors
    /// It does not begin as a hello.
    pub fn parse(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        if reader.array::<7>()? != *MAGIC {
            return Err(Malformed);
        }
        Ok(Self { version: reader.byte()?, release: Release::parse(reader.array()?)?, handshake: reader.array()? })
    }
}

/// The server's answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    pub release: Release,
    pub verdict: Verdict,
}

/// The server's decision about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted; the second message of the handshake.
    Welcome([u8; HANDSHAKE_BYTES]),
    /// The client speaks another version.
    Version,
    /// The client does not prove the secret.
    Secret,
    /// There are too many connections.
    Room,
}

impl Welcome {
    #[must_use]
    pub fn emit(&self) -> [u8; WELCOME_BYTES] {
        let (tag, handshake) = match self.verdict {
            Verdict::Welcome(handshake) => (0, handshake),
            Verdict::Version => (1, [0; HANDSHAKE_BYTES]),
            Verdict::Secret => (2, [0; HANDSHAKE_BYTES]),
            Verdict::Room => (3, [0; HANDSHAKE_BYTES]),
        };
        let mut bytes = [0; WELCOME_BYTES];
        bytes[0] = tag;
        bytes[1..=RELEASE_BYTES].copy_from_slice(&self.release.0);
        bytes[1 + RELEASE_BYTES..].copy_from_slice(&handshake);
        bytes
    }

    /// Parses a record.
    ///
    /// # Errors
    /// It is malformed.
    pub fn parse(bytes: &[u8; WELCOME_BYTES]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let tag = reader.byte()?;
        let release = Release::parse(reader.array()?)?;
        let handshake = reader.array()?;
        let verdict = match tag {
            0 => Verdict::Welcome(handshake),
            _ if handshake != [0; HANDSHAKE_BYTES] => return Err(Malformed),
            1 => Verdict::Version,
            2 => Verdict::Secret,
            3 => Verdict::Room,
            _ => return Err(Malformed),
        };
        Ok(Self { release, verdict })
    }
}

/// A client's request: a method of [`Store`](crate::Store).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Grant,
    Keep(LeaseId),
    Revoke(LeaseId),
    /// Creates a key that is absent.
    Create {
        /// Lease to which the key is attached.
        lease: LeaseId,
        key: String,
        value: Vec<u8>,
    },
    Get(String),
    List {
        prefix: String,
        /// Only keys behind this one.
        after: String,
    },
    Count(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Answers [`Request::Grant`].
    Granted(LeaseId),
    /// Answers [`Request::Keep`]: whether the lease exists; [`Request::Revoke`]: `true`; [`Request::Create`]: whether the key has the
    /// value.
    Done(bool),
    /// Answers [`Request::Get`].
    Value(Option<Vec<u8>>),
    /// Answers [`Request::List`].
    Entries {
        /// A page of entries, ascending.
        entries: Vec<(String, Vec<u8>)>,
        more: bool,
    },
    /// Answers [`Request::Count`].
    Count(u64),
    /// Answers [`Request::Create`]: the lease does not exist.
    NoLease,
    Full(Limit),
}

/// A limit of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    ClientLeases,
    Leases,
    /// Values of this lease, by number or bytes.
    Lease,
    /// Keys and values of all leases, in bytes.
    Bytes,
}

impl Limit {
    const ALL: [Self; 4] = [Self::ClientLeases, Self::Leases, Self::Lease, Self::Bytes];
}

impl Request {
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Grant => out.byte(1),
            Self::Keep(lease) => out.byte(2).number(lease.0),
            Self::Revoke(lease) => out.byte(3).number(lease.0),
            Self::Create { lease, key, value } => out.byte(4).number(lease.0).bytes(key.as_bytes()).bytes(value),
            Self::Get(key) => out.byte(5).bytes(key.as_bytes()),
            Self::List { prefix, after } => out.byte(6).bytes(prefix.as_bytes()).bytes(after.as_bytes()),
            Self::Count(prefix) => out.byte(7).bytes(prefix.as_bytes()),
        };
        out.0
    }

    /// Parses a message that another process has written.
    ///
    /// # Errors
    /// It is malformed, or too long.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let request = match reader.byte()? {
            1 => Self::Grant,
            2 => Self::Keep(reader.lease()?),
            3 => Self::Revoke(reader.lease()?),
            4 => Self::Create {
                lease: reader.lease()?,
                key: reader.key()?,
                value: reader.bytes(MAX_VALUE_BYTES)?.into(),
            },
            5 => Self::Get(reader.key()?),
            6 => Self::List { prefix: reader.key()?, after: reader.key()? },
            7 => Self::Count(reader.key()?),
            _ => return Err(Malformed),
        };
        reader.end(request)
    }
}

impl Response {
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Granted(lease) => out.byte(1).number(lease.0),
            Self::Done(done) => out.byte(2).byte((*done).into()),
            Self::Value(None) => out.byte(3).byte(0),
            Self::Value(Some(value)) => out.byte(3).byte(1).bytes(value),
            Self::Entries { entries, more } => {
                out.byte(4).byte((*more).into()).number(entries.len() as u64);
                for (key, value) in entries {
                    out.bytes(key.as_bytes()).bytes(value);
                }
                &mut out
            }
            Self::Count(count) => out.byte(5).number(*count),
            Self::NoLease => out.byte(6),
            Self::Full(limit) => {
                let code = Limit::ALL.iter().position(|known| known == limit);
                out.byte(7).byte(code.unwrap_or_default() as u8)
            }
        };
        out.0
    }

    /// Parses a message that another process has written.
    ///
    /// # Errors
    /// It is malformed, or too long.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let response = match reader.byte()? {
            1 => Self::Granted(reader.lease()?),
            2 => Self::Done(reader.flag()?),
            3 => Self::Value(match reader.flag()? {
                true => Some(reader.bytes(MAX_VALUE_BYTES)?.into()),
                false => None,
            }),
            4 => {
                let more = reader.flag()?;
                let count = u64::from_le_bytes(reader.array()?);
                let mut entries = Vec::new();
                for _ in 0..count {
                    entries.push((reader.key()?, reader.bytes(MAX_VALUE_BYTES)?.into()));
                }
                Self::Entries { entries, more }
            }
            5 => Self::Count(u64::from_le_bytes(reader.array()?)),
            6 => Self::NoLease,
            7 => {
                let code = reader.byte()?;
                Self::Full(*Limit::ALL.get(usize::from(code)).ok_or(Malformed)?)
            }
            _ => return Err(Malformed),
        };
        reader.end(response)
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend((bytes.len() as u32).to_le_bytes());
        self.0.extend(bytes);
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn lease(&mut self) -> Result<LeaseId, Malformed> {
        Ok(LeaseId(u64::from_le_bytes(self.array()?)))
    }

    fn bytes(&mut self, most: usize) -> Result<&'a [u8], Malformed> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        if length > most {
            return Err(Malformed);
        }
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn key(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes(MAX_KEY_BYTES)?;
        // Keys are printed.
        if !bytes.iter().all(u8::is_ascii_graphic) {
            return Err(Malformed);
        }
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn end<T>(&self, read: T) -> Result<T, Malformed> {
        if self.0.is_empty() { Ok(read) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = String> {
        "[!-~]{0,40}"
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..100)
    }

    fn lease() -> impl Strategy<Value = LeaseId> {
        any::<u64>().prop_map(LeaseId)
    }

    fn request() -> impl Strategy<Value = Request> {
        prop_oneof![
            Just(Request::Grant),
            lease().prop_map(Request::Keep),
            lease().prop_map(Request::Revoke),
            (lease(), key(), value()).prop_map(|(lease, key, value)| Request::Create { lease, key, value }),
            key().prop_map(Request::Get),
            (key(), key()).prop_map(|(prefix, after)| Request::List { prefix, after }),
            key().prop_map(Request::Count),
        ]
    }

    fn response() -> impl Strategy<Value = Response> {
        prop_oneof![
            lease().prop_map(Response::Granted),
            any::<bool>().prop_map(Response::Done),
            prop::option::of(value()).prop_map(Response::Value),
            (prop::collection::vec((key(), value()), 0..5), any::<bool>())
                .prop_map(|(entries, more)| Response::Entries { entries, more }),
            any::<u64>().prop_map(Response::Count),
            Just(Response::NoLease),
            prop::sample::select(&Limit::ALL[..]).prop_map(Response::Full),
        ]
    }

    proptest! {
        #[test]
        fn messages_read_back_as_they_were_written(request in request(), response in response()) {
            prop_assert_eq!(Request::parse(&request.emit()), Ok(request));
            prop_assert_eq!(Response::parse(&response.emit()), Ok(response));
        }

        #[test]
        fn a_message_that_was_cut_or_has_grown_is_none(request in request(), response in response(), at in any::<prop::sample::Index>()) {
            for mut bytes in [request.emit(), response.emit()] {
                bytes.push(0);
                prop_assert_eq!(Request::parse(&bytes).ok().filter(|read| *read == request), None);
                prop_assert_eq!(Response::parse(&bytes).ok().filter(|read| *read == response), None);
            }
            let bytes = request.emit();
            prop_assert!(Request::parse(&bytes[..at.index(bytes.len())]).is_err());
        }

        #[test]
        fn random_bytes_are_refused_or_are_the_message_that_writes_them(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = Request::parse(&bytes) {
                prop_assert_eq!(request.emit(), bytes.clone());
            }
            if let Ok(response) = Response::parse(&bytes) {
                prop_assert_eq!(response.emit(), bytes.clone());
            }
            if let Some(hello) = bytes.first_chunk().and_then(|bytes| Hello::parse(bytes).ok()) {
                prop_assert_eq!(&hello.emit()[..], &bytes[..HELLO_BYTES]);
            }
            if let Some(welcome) = bytes.first_chunk().and_then(|bytes| Welcome::parse(bytes).ok()) {
                prop_assert_eq!(&welcome.emit()[..], &bytes[..WELCOME_BYTES]);
            }
        }
    }

    #[test]
    fn a_hello_and_a_welcome_read_back_as_they_were_written() {
        let hello = Hello { version: 9, release: Release::own(), handshake: [7; HANDSHAKE_BYTES] };
        let mut bytes = hello.emit();
        assert_eq!(Hello::parse(&bytes), Ok(hello));
        bytes[9] = 0x1b;
        assert_eq!(Hello::parse(&bytes), Err(Malformed), "not to be printed");
        let handshake = [7; HANDSHAKE_BYTES];
        for verdict in [Verdict::Welcome(handshake), Verdict::Version, Verdict::Secret, Verdict::Room] {
            let release = Release::own();
            let welcome = Welcome { release, verdict };
            assert_eq!(Welcome::parse(&welcome.emit()), Ok(welcome));
        }
    }

    #[test]
    fn a_count_of_entries_that_do_not_follow_allocates_nothing() {
        let mut bytes = Response::Entries { entries: Vec::new(), more: false }.emit();
        bytes[2..10].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Response::parse(&bytes), Err(Malformed));
    }

    #[test]
    fn values_and_keys_of_the_greatest_length_fit_and_longer_ones_do_not() {
        let create = |key: usize, value: usize| Request::Create {
            lease: LeaseId(1),
            key: "k".repeat(key),
            value: vec![0; value],
        };
        let longest = create(MAX_KEY_BYTES, MAX_VALUE_BYTES);
        assert!(longest.emit().len() <= MAX_REQUEST_BYTES);
        assert_eq!(Request::parse(&longest.emit()), Ok(longest));
        for long in [create(MAX_KEY_BYTES + 1, 0), create(1, MAX_VALUE_BYTES + 1)] {
            assert_eq!(Request::parse(&long.emit()), Err(Malformed));
        }
    }
}
