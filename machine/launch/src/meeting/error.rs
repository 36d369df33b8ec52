//! What can go wrong when processes meet.

use std::time::Duration;

use mapwire_transport::board::BoardError;
use rustix::io::Errno;

/// Why a door cannot be opened, or a client is not admitted.
#[derive(Debug, thiserror::Error)]
pub enum MeetingError {
    /// A name that no door can have.
    #[error("`{0}` is not the name of a door: expected 1 to 64 ASCII letters, digits, `.`, `-` and `_`")]
    Name(String),
    /// Another process has the door.
    #[error("{door} is open already, by {holder}; end that process, or serve something else")]
    Taken {
        /// The door.
        door: String,
        /// Who has it, as far as that can be told.
        holder: String,
    },
    /// Nobody serves what the client asks for.
    #[error("nobody serves {name} on this host for user {user}; is the server running?")]
    Nobody {
        /// What was asked for.
        name: String,
        /// The client's user.
        user: u32,
    },
    /// The door's socket is listened at by a user who should not.
    #[error("{door} is held by user {holder}, who is not its owner: not entered; end that user's process")]
    Squatter {
        /// The door.
        door: String,
        /// Whose process listens.
        holder: u32,
    },
    /// The server does not take the client.
    #[error("the server of {name} refused this process: {why}")]
    Refused {
        /// What was asked for.
        name: String,
        /// Its reason.
        why: String,
    },
    /// The server's answer makes no sense.
    #[error("the server of {name} broke the protocol of doors; is it of another release of mapwire?")]
    Protocol {
        /// What was asked for.
        name: String,
    },
    /// The server ended before it had answered.
    #[error("the server of {name} ended before it had answered")]
    Ended {
        /// What was asked for.
        name: String,
    },
    /// The time is over.
    #[error("the server of {name} did not answer within {} s; is it stopped?", .after.as_secs_f32())]
    Timeout {
        /// What was asked for.
        name: String,
        /// The timeout.
        after: Duration,
    },
    /// No job for the guests.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// The kernel refused.
    #[error("{call} at a door failed: {errno}")]
    Os {
        /// The system call.
        call: &'static str,
        /// What it answered.
        errno: Errno,
    },
}

pub(super) fn os(call: &'static str) -> impl Fn(Errno) -> MeetingError {
    move |errno| MeetingError::Os { call, errno }
}
