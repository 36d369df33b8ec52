//! The records that travel between a rank and the broker.
//!
//! Each begins with 48 bytes, little-endian: magic `u32`, version `u16`, kind `u16`, rank `u32`,
//! number `u32`, tag `u64`, token 16 bytes, zero `u64`. The body follows: a [`Card`], a [`Secret`] or nothing. Fields that a
//! kind does not use are zero, and the parser insists on it, so that there is one encoding a message. Kinds that carry a
//! descriptor carry exactly one.

use core::fmt;
use core::ops::{Deref, DerefMut};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a record without its body.
pub const HEAD_BYTES: usize = 48;
/// Length of the longest record.
pub const MAX_BYTES: usize = HEAD_BYTES + MAX_CARD_BYTES;
/// Length of the longest [`Card`].
pub const MAX_CARD_BYTES: usize = 448;
/// Version of the records; a broker refuses another one by name.
pub const VERSION: u16 = 5;

const MAGIC: u32 = u32::from_le_bytes(*b"MWRV");

/// A record on the socket: its bytes by `Deref`.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl Record {
    /// The record of these bytes; `None` when no record has as many.
    #[must_use]
    pub fn from_bytes(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        let length = from.len();
        (length >= HEAD_BYTES).then_some(Self { bytes, length })
    }
}

impl Deref for Record {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for Record {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its body may be a secret.
        write!(f, "Record({} B)", self.length)
    }
}

/// How peers on other hosts reach a rank: bytes that only ranks read, at most [`MAX_CARD_BYTES`].
#[derive(Clone, PartialEq, Eq)]
pub struct Card(Box<[u8]>);

impl Card {
    /// A card of these bytes; `None` when they are too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= MAX_CARD_BYTES).then(|| Self(bytes.into()))
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Card({} B)", self.0.len())
    }
}

/// The secret of a job, known to its ranks alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToBroker {
    /// The first record of a connection. The board shows the process id that the kernel tells, not
    /// this one, which may stem from another pid namespace.
    Hello {
        rank: u32,
        /// The sender's process id as it sees it.
        pid: u32,
        token: [u8; 16],
    },
    /// Asks for the channel to `peer`.
    Connect { peer: u32 },
    /// Carries a descriptor for `to`.
    Pass {
        to: u32,
        /// Names it; the meaning is the ranks' own.
        tag: u64,
    },
    /// The rank is done; nothing of it follows.
    Leave,
    /// How peers on other hosts reach the rank.
    Publish {
        /// What they need to know.
        card: Card,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToRank {
    /// Carries the news of the board, which the broker writes. [`ToRank::Bells`] follows.
    Welcome { rank: u32, size: u32, secret: Secret },
    /// Carries the bells of the board, which all ranks write. [`ToRank::Segment`] follows.
    Bells,
    /// Carries the file of the memory that the ranks of this host share.
    Segment,
    /// The answer to a `Hello` that is not admitted; the connection ends.
    Refused(Refusal),
    /// Carries the memory of the channel to `peer`.
    Channel { peer: u32 },
    /// There will be no channel to `peer`: it left or died.
    PeerGone { peer: u32 },
    /// Carries a descriptor that `from` passed.
    Passed { from: u32, tag: u64 },
    /// A descriptor could not be handed on: `to` left or died, or too many wait for it.
    PassLost {
        /// Its receiver.
        to: u32,
        tag: u64,
    },
    /// A descriptor could not be handed on when it was passed. Now it can be: pass it again.
    PassAgain { to: u32, tag: u64 },
    /// How to reach `peer`, which is on another host.
    Card { peer: u32, card: Card },
}

/// Why a rank was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The token is not the job's.
    #[error("the token in MAPWIRE_JOB is not this job's")]
    Token = 1,
    /// The broker speaks another version.
    #[error(
        "launcher and program come from different mapwire releases; use the `mapwire` and the library of one release"
    )]
    Version = 2,
    #[error("the job has no rank of this number; MAPWIRE_RANK must be below MAPWIRE_SIZE")]
    Rank = 3,
    /// The rank is taken, or was taken and has left.
    #[error(
        "this rank has joined before; a rank is one process, which joins once (does it start another mapwire program?)"
    )]
    Taken = 4,
    #[error(
        "the launcher started another process for this rank; join from that process or from one that descends from it"
    )]
    Process = 5,
    /// The process belongs to no rank.
    #[error(
        "this process is not part of the job, and no process of the job started it: start it with `mapwire run`, or unset MAPWIRE_JOB"
    )]
    Stranger = 6,
    /// The process belongs to another user.
    #[error("this process's user is not the job's: run it as the user who started the job, or unset MAPWIRE_JOB")]
    User = 7,
    /// It did not introduce itself in time.
    #[error(
        "it did not hear this process in time, since the computer is busy or many processes connect and say nothing: try again"
    )]
    Silent = 8,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Wrong length, magic, kind, or a field that must be zero is not.
    #[error("not a rendezvous record")]
    Malformed,
    /// A record of another version.
    #[error("a rendezvous record of version {0}, not {VERSION}")]
    Version(u16),
    /// A descriptor is missing, or one too many is there.
    #[error("a rendezvous record with the wrong number of descriptors")]
    Descriptors,
}

/// Kind, rank, number, tag, token and body.
type Fields<'a> = (u16, u32, u32, u64, [u8; 16], &'a [u8]);

/// The token of messages that have none.
const NONE: [u8; 16] = [0; 16];

/// See [the module](self).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    magic: U32,
    version: U16,
    kind: U16,
    rank: U32,
    number: U32,
    tag: U64,
    token: [u8; 16],
    zero: U64,
}

const _: () = assert!(size_of::<Head>() == HEAD_BYTES);

fn encode((kind, rank, number, tag, token, body): Fields<'_>) -> Record {
    let head = Head {
        magic: MAGIC.into(),
        version: VERSION.into(),
        kind: kind.into(),
        rank: rank.into(),
        number: number.into(),
        tag: tag.into(),
        token,
        zero: U64::ZERO,
    };
    let mut record = Record { bytes: [0; MAX_BYTES], length: HEAD_BYTES + body.len() };
    record[..HEAD_BYTES].copy_from_slice(head.as_bytes());
    record[HEAD_BYTES..].copy_from_slice(body);
    record
}

fn decode(record: &[u8]) -> Result<Fields<'_>, ParseError> {
    let (head, body) = Head::ref_from_prefix(record).map_err(|_| ParseError::Malformed)?;
    if head.magic != MAGIC || record.len() > MAX_BYTES {
        return Err(ParseError::Malformed);
    }
    if head.version != VERSION {
        return Err(ParseError::Version(head.version.get()));
    }
    if head.zero != 0 {
        return Err(ParseError::Malformed);
    }
    Ok((head.kind.get(), head.rank.get(), head.number.get(), head.tag.get(), head.token, body))
}

impl ToBroker {
    /// Whether the record carries a descriptor.
    #[must_use]
    pub fn carries_fd(&self) -> bool {
        matches!(self, Self::Pass { .. })
    }

    #[must_use]
    pub fn encode(&self) -> Record {
        encode(match self {
            Self::Hello { rank, pid, token } => (1, *rank, *pid, 0, *token, &[]),
            Self::Connect { peer } => (2, *peer, 0, 0, NONE, &[]),
            Self::Pass { to, tag } => (3, *to, 0, *tag, NONE, &[]),
            Self::Leave => (4, 0, 0, 0, NONE, &[]),
            Self::Publish { card } => (5, 0, 0, 0, NONE, card.bytes()),
        })
    }

    /// Reads a record that arrived with `fds` descriptors.
    ///
    /// # Errors
    /// Anything but the one encoding of a message.
    pub fn parse(bytes: &[u8], fds: usize) -> Result<Self, ParseError> {
        let (kind, rank, number, tag, token, body) = decode(bytes)?;
        let message = match kind {
            1 => Self::Hello { rank, pid: number, token },
            2 => Self::Connect { peer: rank },
            3 => Self::Pass { to: rank, tag },
            4 => Self::Leave,
            5 => Self::Publish { card: Card::new(body).ok_or(ParseError::Malformed)? },
            _ => return Err(ParseError::Malformed),
        };
        check(bytes, &message.encode(), fds, message.carries_fd())?;
        Ok(message)
    }
}

impl ToRank {
    /// Whether the record carries a descriptor.
    #[must_use]
    pub fn carries_fd(&self) -> bool {
        matches!(self, Self::Welcome { .. } | Self::Bells | Self::Segment | Self::Channel { .. } | Self::Passed { .. })
    }

    #[must_use]
    pub fn encode(&self) -> Record {
        encode(match self {
            Self::Welcome { rank, size, secret } => (101, *rank, *size, 0, NONE, &secret.0),
            Self::Refused(why) => (102, 0, *why as u32, 0, NONE, &[]),
            Self::Channel { peer } => (103, *peer, 0, 0, NONE, &[]),
            Self::PeerGone { peer } => (104, *peer, 0, 0, NONE, &[]),
            Self::Passed { from, tag } => (105, *from, 0, *tag, NONE, &[]),
            Self::PassLost { to, tag } => (106, *to, 0, *tag, NONE, &[]),
            Self::PassAgain { to, tag } => (109, *to, 0, *tag, NONE, &[]),
            Self::Bells => (107, 0, 0, 0, NONE, &[]),
            Self::Segment => (110, 0, 0, 0, NONE, &[]),
            Self::Card { peer, card } => (108, *peer, 0, 0, NONE, card.bytes()),
        })
    }

    /// Reads a record that arrived with `fds` descriptors.
    ///
    /// # Errors
    /// Anything but the one encoding of a message.
    pub fn parse(bytes: &[u8], fds: usize) -> Result<Self, ParseError> {
        let (kind, rank, number, tag, _, body) = decode(bytes)?;
        let message = match kind {
            101 => Self::Welcome {
                rank,
                size: number,
                secret: Secret(body.try_into().map_err(|_| ParseError::Malformed)?),
            },
            102 => Self::Refused(Refusal::from_number(number).ok_or(ParseError::Malformed)?),
            103 => Self::Channel { peer: rank },
            104 => Self::PeerGone { peer: rank },
            105 => Self::Passed { from: rank, tag },
            106 => Self::PassLost { to: rank, tag },
            107 => Self::Bells,
            110 => Self::Segment,
            109 => Self::PassAgain { to: rank, tag },
            108 => Self::Card { peer: rank, card: Card::new(body).ok_or(ParseError::Malformed)? },
            _ => return Err(ParseError::Malformed),
        };
        check(bytes, &message.encode(), fds, message.carries_fd())?;
        Ok(message)
    }
}

/// One encoding a message: whatever does not encode back to the same bytes is malformed.
fn check(bytes: &[u8], again: &[u8], fds: usize, carries: bool) -> Result<(), ParseError> {
    if bytes != again {
        return Err(ParseError::Malformed);
    }
    if fds != usize::from(carries) {
        return Err(ParseError::Descriptors);
    }
    Ok(())
}

impl Refusal {
    fn from_number(number: u32) -> Option<Self> {
        [Self::Token, Self::Version, Self::Rank, Self::Taken, Self::Process, Self::Stranger, Self::User, Self::Silent]
            .into_iter()
            .find(|&why| why as u32 == number)
    }
}
