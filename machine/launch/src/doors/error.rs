//! What can go wrong when processes meet.

use std::time::Duration;

use mapwire_transport::board::BoardError;
use mapwire_transport::local::Failure;
use rustix::io::Errno;

/// Why a door cannot be opened, or a client is not admitted.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each case and field is")]
pub enum MeetingError {
    #[error("`{0}` is not the name of a door: expected 1 to 64 ASCII letters, digits, `.`, `-` and `_`")]
    Name(String),
    #[error("{door} is open already, by {holder}; end that process, or serve something else")]
    Taken { door: String, holder: String },
    #[error("nobody serves {name} on this host for user {user}; is the server running?")]
    Nobody { name: String, user: u32 },
    #[error("{door} is held by user {holder}, who is not its owner: not entered; end that user's process")]
    Squatter { door: String, holder: u32 },
    #[error("the server of {name} refused this process: {why}")]
    Refused { name: String, why: String },
    #[error("the server of {name} broke the protocol of doors; is it of another release of mapwire?")]
    Protocol { name: String },
    #[error("the server of {name} ended before it had answered")]
    Ended { name: String },
    #[error("the server of {name} did not answer within {} s; is it stopped?", .after.as_secs_f32())]
    Timeout { name: String, after: Duration },
    #[error(transparent)]
    Board(#[from] BoardError),
    #[error("{call} at a door failed: {errno}")]
    Os { call: &'static str, errno: Errno },
}

impl From<Failure> for MeetingError {
    fn from((call, errno): Failure) -> Self {
        Self::Os { call, errno }
    }
}
