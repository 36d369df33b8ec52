//! The records that travel between a rank and the broker.
//!
//! Each is [`BYTES`] long, little-endian: magic `u32`, version `u16`, kind `u16`, rank `u32`,
//! number `u32`, tag `u64`, token 16 bytes, zero `u64`. Fields that a kind does not use are zero, and
//! the parser insists on it, so that there is one encoding a message. Kinds that carry a
//! descriptor carry exactly one.

/// Length of every record.
pub const BYTES: usize = 48;
/// Version of the records; a broker refuses another one by name.
pub const VERSION: u16 = 2;

const MAGIC: u32 = u32::from_le_bytes(*b"MWRV");

/// A record on the socket.
pub type Record = [u8; BYTES];

/// What a rank says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToBroker {
    /// The first record of a connection. The board shows the process id that the kernel tells, not
    /// this one, which may stem from another pid namespace.
    Hello {
        /// The sender's rank.
        rank: u32,
        /// The sender's process id as it sees it.
        pid: u32,
        /// The job's token.
        token: [u8; 16],
    },
    /// Asks for the channel to `peer`.
    Connect {
        /// The other end.
        peer: u32,
    },
    /// Carries a descriptor for `to`.
    Pass {
        /// Who shall get it.
        to: u32,
        /// Names it; the meaning is the ranks' own.
        tag: u64,
    },
    /// The rank is done; nothing of it follows.
    Leave,
}

/// What the broker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToRank {
    /// Carries the news of the board, which the broker writes. [`ToRank::Bells`] follows.
    Welcome {
        /// The receiver's rank.
        rank: u32,
        /// Ranks in the job.
        size: u32,
    },
    /// Carries the bells of the board, which all ranks write.
    Bells,
    /// The answer to a `Hello` that is not admitted; the connection ends.
    Refused(Refusal),
    /// Carries the memory of the channel to `peer`.
    Channel {
        /// The other end.
        peer: u32,
    },
    /// There will be no channel to `peer`: it left or died.
    PeerGone {
        /// The other end.
        peer: u32,
    },
    /// Carries a descriptor that `from` passed.
    Passed {
        /// Who passed it.
        from: u32,
        /// Its name.
        tag: u64,
    },
    /// A descriptor could not be handed on: `to` left or died, too many wait for it, or the broker has no free one.
    PassLost {
        /// Who should have got it.
        to: u32,
        /// Its name.
        tag: u64,
    },
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
    /// No such rank.
    #[error("the job has no rank of this number; MAPWIRE_RANK must be below MAPWIRE_SIZE")]
    Rank = 3,
    /// The rank is taken, or was taken and has left.
    #[error(
        "this rank has joined before; a rank is one process, which joins once (does it start another mapwire program?)"
    )]
    Taken = 4,
    /// Another process was started for the rank.
    #[error(
        "the launcher started another process for this rank; join from that process or from one that descends from it"
    )]
    Process = 5,
}

/// Why bytes are no message.
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

/// Kind, rank, number, tag and token.
type Fields = (u16, u32, u32, u64, [u8; 16]);

/// The token of messages that have none.
const NONE: [u8; 16] = [0; 16];

fn encode((kind, rank, number, tag, token): Fields) -> Record {
    let mut record = [0; BYTES];
    record[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    record[4..6].copy_from_slice(&VERSION.to_le_bytes());
    record[6..8].copy_from_slice(&kind.to_le_bytes());
    record[8..12].copy_from_slice(&rank.to_le_bytes());
    record[12..16].copy_from_slice(&number.to_le_bytes());
    record[16..24].copy_from_slice(&tag.to_le_bytes());
    record[24..40].copy_from_slice(&token);
    record
}

fn array<const N: usize>(record: &Record, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

fn decode(bytes: &[u8]) -> Result<Fields, ParseError> {
    let record: &Record = bytes.try_into().map_err(|_| ParseError::Malformed)?;
    if u32::from_le_bytes(array(record, 0)) != MAGIC {
        return Err(ParseError::Malformed);
    }
    match u16::from_le_bytes(array(record, 4)) {
        VERSION => {}
        other => return Err(ParseError::Version(other)),
    }
    if record[40..] != [0; 8] {
        return Err(ParseError::Malformed);
    }
    Ok((
        u16::from_le_bytes(array(record, 6)),
        u32::from_le_bytes(array(record, 8)),
        u32::from_le_bytes(array(record, 12)),
        u64::from_le_bytes(array(record, 16)),
        array(record, 24),
    ))
}

impl ToBroker {
    /// Whether the record carries a descriptor.
    #[must_use]
    pub fn carries_fd(&self) -> bool {
        matches!(self, Self::Pass { .. })
    }

    /// The record.
    #[must_use]
    pub fn encode(&self) -> Record {
        encode(match *self {
            Self::Hello { rank, pid, token } => (1, rank, pid, 0, token),
            Self::Connect { peer } => (2, peer, 0, 0, NONE),
            Self::Pass { to, tag } => (3, to, 0, tag, NONE),
            Self::Leave => (4, 0, 0, 0, NONE),
        })
    }

    /// Reads a record that arrived with `fds` descriptors.
    ///
    /// # Errors
    /// Anything but the one encoding of a message.
    pub fn parse(bytes: &[u8], fds: usize) -> Result<Self, ParseError> {
        let (kind, rank, number, tag, token) = decode(bytes)?;
        let message = match kind {
            1 => Self::Hello {
                rank,
                pid: number,
                token,
            },
            2 => Self::Connect { peer: rank },
            3 => Self::Pass { to: rank, tag },
            4 => Self::Leave,
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
        matches!(
            self,
            Self::Welcome { .. } | Self::Bells | Self::Channel { .. } | Self::Passed { .. }
        )
    }

    /// The record.
    #[must_use]
    pub fn encode(&self) -> Record {
        encode(match *self {
            Self::Welcome { rank, size } => (101, rank, size, 0, NONE),
            Self::Refused(why) => (102, 0, why as u32, 0, NONE),
            Self::Channel { peer } => (103, peer, 0, 0, NONE),
            Self::PeerGone { peer } => (104, peer, 0, 0, NONE),
            Self::Passed { from, tag } => (105, from, 0, tag, NONE),
            Self::PassLost { to, tag } => (106, to, 0, tag, NONE),
            Self::Bells => (107, 0, 0, 0, NONE),
        })
    }

    /// Reads a record that arrived with `fds` descriptors.
    ///
    /// # Errors
    /// Anything but the one encoding of a message.
    pub fn parse(bytes: &[u8], fds: usize) -> Result<Self, ParseError> {
        let (kind, rank, number, tag, _) = decode(bytes)?;
        let message = match kind {
            101 => Self::Welcome { rank, size: number },
            102 => Self::Refused(Refusal::from_number(number).ok_or(ParseError::Malformed)?),
            103 => Self::Channel { peer: rank },
            104 => Self::PeerGone { peer: rank },
            105 => Self::Passed { from: rank, tag },
            106 => Self::PassLost { to: rank, tag },
            107 => Self::Bells,
            _ => return Err(ParseError::Malformed),
        };
        check(bytes, &message.encode(), fds, message.carries_fd())?;
        Ok(message)
    }
}

/// One encoding a message: whatever does not encode back to the same bytes is malformed.
fn check(bytes: &[u8], again: &Record, fds: usize, carries: bool) -> Result<(), ParseError> {
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
        [
            Self::Token,
            Self::Version,
            Self::Rank,
            Self::Taken,
            Self::Process,
        ]
        .into_iter()
        .find(|&why| why as u32 == number)
    }
}
