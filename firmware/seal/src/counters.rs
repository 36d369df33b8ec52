//! Counts of rejected datagrams, by cause.

mapwire_wire::codes! {
    /// Why a datagram was rejected.
    #[derive(PartialOrd, Ord)]
    pub enum Cause: u8 {
        /// Not an envelope: unknown type, wrong length, or an illegal value in a field.
        Malformed = 0 => "malformed",
        /// Plain where only sealed datagrams are accepted, or the reverse.
        Mode = 1 => "wrong mode",
        /// The code by the job's secret is wrong: an outsider made it.
        Code = 2 => "wrong code",
        /// Of another job, for another node, or from a node outside the job.
        Misdirected = 3 => "misdirected",
        /// An initiate without a good cookie. It was answered with one.
        NoCookie = 4 => "no cookie",
        /// From a node whose key is not known here.
        UnknownPeer = 5 => "unknown peer",
        /// A handshake that does not prove the peer's key.
        Handshake = 6 => "failed handshake",
        /// A cookie or a respond that answers no request.
        Unasked = 7 => "unasked",
        /// An initiate that crossed one of this node, which takes precedence.
        Crossed = 8 => "crossed",
        /// An initiate no newer than the one accepted last: a retransmission or a replay.
        Repeated = 9 => "repeated",
        /// A peer sent too many messages that cost computations.
        Limited = 10 => "limited",
        /// Sealed for a session that does not exist, or no longer.
        UnknownSession = 11 => "unknown session",
        /// The tag is wrong.
        Tag = 12 => "wrong tag",
        /// It was received before, or is too old to tell.
        Replay = 13 => "replay",
    }
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
