//! The broker's log lines about ranks and strangers. Anybody can cause them without end, so their number is limited.

use std::fmt;
use std::time::Instant;

use mapwire_host::log_limit::LeftOut;

use super::{Broker, Cause};

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(Some(rank)) => write!(f, "connections that broke the rendezvous protocol, of rank {rank}"),
            Self::Broken(None) => {
                f.write_str("connections that broke the rendezvous protocol, of processes of no rank")
            }
            Self::Short => f.write_str("times without a file descriptor"),
            Self::NoChannel(rank) => write!(f, "channels that could not be made, of rank {rank}"),
        }
    }
}

fn tell(left_out: &LeftOut<Cause>) {
    tracing::warn!("{left_out}");
}

impl Broker {
    /// Whether a line about this may be logged now.
    pub(super) fn may_say(&mut self, cause: Cause, now: Instant) -> bool {
        self.sparing.admit(cause, now)
    }

    /// Logs that a connection was closed because it broke the protocol.
    pub(super) fn say_broken(&mut self, at: usize, now: Instant) {
        let rank = self.rank_behind(at);
        if self.may_say(Cause::Broken(rank), now) {
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

    /// Logs how many lines were left out, when that is due.
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
