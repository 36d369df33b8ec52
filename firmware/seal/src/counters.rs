//! Counts of rejected datagrams, by cause.

use core::fmt;

/// Why a datagram was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cause {
    /// Not an envelope: unknown type, wrong length, or an illegal value in a field.
    Malformed,
    /// Plain where only sealed datagrams are accepted, or the reverse.
    Mode,
    /// The code by the job's secret is wrong: an outsider made it.
    Code,
    /// Of another job, for another node, or from a node outside the job.
    Misdirected,
    /// An initiate without a good cookie. It was answered with one.
    NoCookie,
    /// From a node whose key is not known here.
    UnknownPeer,
    /// A handshake that does not prove the peer's key.
    Handshake,
    /// A cookie or a respond that answers no request.
    Unasked,
    /// An initiate that crossed one of this node, which takes precedence.
    Crossed,
    /// An initiate no newer than the one accepted last: a retransmission or a replay.
    Repeated,
    /// A peer sent too many messages that cost computations.
    Limited,
    /// Sealed for a session that does not exist, or no longer.
    UnknownSession,
    /// The tag is wrong.
    Tag,
    /// It was received before, or is too old to tell.
    Replay,
}

impl Cause {
    /// All causes, in the order of their counters.
    pub const ALL: [Self; 14] = [
        Self::Malformed,
        Self::Mode,
        Self::Code,
        Self::Misdirected,
        Self::NoCookie,
        Self::UnknownPeer,
        Self::Handshake,
        Self::Unasked,
        Self::Crossed,
        Self::Repeated,
        Self::Limited,
        Self::UnknownSession,
        Self::Tag,
        Self::Replay,
    ];
}

impl Cause {
    /// Whether such rejections occur while two honest nodes meet: the first initiate has no cookie yet, or precedes the peer's key; two
    /// may cross; a retransmission may be answered twice, or arrive after its session; and each path brings one, at the same time.
    #[must_use]
    pub const fn is_usual(self) -> bool {
        matches!(
            self,
            Self::NoCookie | Self::UnknownPeer | Self::Unasked | Self::Crossed | Self::Repeated | Self::Limited
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed",
            Self::Mode => "wrong mode",
            Self::Code => "wrong code",
            Self::Misdirected => "misdirected",
            Self::NoCookie => "no cookie",
            Self::UnknownPeer => "unknown peer",
            Self::Handshake => "failed handshake",
            Self::Unasked => "unasked",
            Self::Crossed => "crossed",
            Self::Repeated => "repeated",
            Self::Limited => "limited",
            Self::UnknownSession => "unknown session",
            Self::Tag => "wrong tag",
            Self::Replay => "replay",
        })
    }
}

/// Counters since the sessions were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    rejected: [u64; Cause::ALL.len()],
    handshakes: u64,
}

impl Counters {
    /// Datagrams rejected for `cause`.
    #[must_use]
    pub const fn rejected(&self, cause: Cause) -> u64 {
        self.rejected[cause as usize]
    }

    /// Datagrams rejected, without [usual](Cause::is_usual) ones.
    #[must_use]
    pub fn rejections(&self) -> u64 {
        let causes = Cause::ALL.into_iter().filter(|cause| !cause.is_usual());
        causes.map(|cause| self.rejected(cause)).sum()
    }

    /// Handshakes whose session became current.
    #[must_use]
    pub const fn handshakes(&self) -> u64 {
        self.handshakes
    }

    pub(crate) const fn reject(&mut self, cause: Cause) {
        self.rejected[cause as usize] += 1;
    }

    pub(crate) const fn finish_handshake(&mut self) {
        self.handshakes += 1;
    }
}
