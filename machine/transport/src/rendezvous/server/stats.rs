//! What a broker has seen.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerStats {
    pub joined: u64,
    /// Connections of processes of another user.
    pub refused_user: u64,
    /// Hellos with a wrong token.
    pub refused_token: u64,
    /// Hellos of a process that was not started for the rank, nor descends from one that was.
    pub refused_process: u64,
    /// Hellos of another version, for no rank of the job, or for a rank that is taken.
    pub refused_other: u64,
    /// Connections closed because they broke the protocol.
    pub broken: u64,
    /// Connections closed because they said nothing for too long, or were the oldest of too many that did.
    pub silent: u64,
    pub channels: u64,
    pub cards: u64,
    pub passed: u64,
    /// Descriptors that could not be handed on.
    pub pass_lost: u64,
}
