//! What the broker says in the log of what ranks and strangers do: each can do it without end, so that lines are spared.

use std::fmt;
use std::time::Instant;

use mapwire_host::log_limit::LeftOut;

use super::Broker;

/// What lines are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// Whose doing; `None`: of a process that belongs to no rank, or of all together.
    pub(super) rank: Option<u32>,
    pub(super) what: What,
}

/// The kinds of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A connection that broke the protocol.
    Broken,
    /// Something wants a descriptor, and there is none.
    Short,
    /// A channel that cannot be made.
    NoChannel,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.what {
            What::Broken => "connections that broke the rendezvous protocol",
            What::Short => "times without a file descriptor",
            What::NoChannel => "channels that could not be made",
        })?;
        match (self.rank, self.what) {
            (Some(rank), _) => write!(f, ", of rank {rank}"),
            (None, What::Broken) => f.write_str(", of processes of no rank"),
            (None, _) => Ok(()),
        }
    }
}

fn tell(left_out: &LeftOut<Cause>) {
    tracing::warn!("{left_out}");
}

impl Broker {
    /// Whether a line about this is to be said.
    pub(super) fn may_say(&mut self, rank: Option<u32>, what: What, now: Instant) -> bool {
        self.sparing.admit(Cause { rank, what }, now)
    }

    /// Says that a connection is closed, as its process talks nonsense.
    pub(super) fn say_broken(&mut self, at: usize, now: Instant) {
        let rank = self.rank_behind(at);
        if self.may_say(rank, What::Broken, now) {
            let connection = self.connections.get(at).and_then(Option::as_ref);
            tracing::warn!(
                rank,
                pid = connection.map(|c| c.pid),
                "a connection broke the rendezvous protocol and was closed"
            );
        }
    }

    /// The rank of which a connection is, or which the process was started for that it descends from.
    fn rank_behind(&self, at: usize) -> Option<u32> {
        let connection = self.connections.get(at)?.as_ref()?;
        let of_origin = || {
            let origin = connection.origin?;
            let found = self.ranks.iter().position(|it| it.process == Some(origin));
            found.map(|rank| rank as u32)
        };
        connection.rank.or_else(of_origin)
    }

    /// Says what was not said, as far as it is time.
    pub(super) fn tell_left_out(&mut self, now: Instant) {
        while let Some(left_out) = self.sparing.poll(now) {
            tell(&left_out);
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.sparing.finish().for_each(|left_out| tell(&left_out));
    }
}
