//! What can go wrong with calls.

use core::time::Duration;

use mapwire_driver::DriverError;
use mapwire_rpc::xdr::XdrError;
use mapwire_rpc::{CallError, Refusal};
use thiserror::Error as ThisError;

use crate::error::ErrorKind;

/// What can go wrong with calls.
#[derive(Debug, ThisError)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    /// The call has no results.
    #[error("procedure {procedure} of program {program:#x} version {version} at rank {rank}: {error}")]
    Call { rank: usize, program: u32, version: u32, procedure: u32, error: CallError },
    /// Something that cannot be done, or not now.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Values that cannot be written or read.
    #[error(transparent)]
    Xdr(#[from] XdrError),
    /// A server that does not answer.
    #[error("rank {rank} has not answered within {after:?}: has it opened its end of the calls?")]
    NoAnswer { rank: usize, after: Duration },
    /// The server is gone.
    #[error("rank {0} is gone, and serves no calls any more")]
    Gone(usize),
    /// A rank that would call itself.
    #[error("rank {0} cannot call itself: call the procedure as a function")]
    Itself(usize),
    /// This end was closed.
    #[error("the calls of this rank were closed")]
    Closed,
    /// A version of a program that is served already.
    #[error("this rank serves version {version} of program {program:#x} already")]
    Served { program: u32, version: u32 },
    /// A credential that RFC 5531 does not allow.
    #[error("a SYS credential has a machine name of at most 255 bytes and at most 16 groups")]
    BadCredential,
    /// Settings that do not fit each other.
    #[error("an area of {area_bytes} B does not hold a record of {max_record_bytes} B: make it longer")]
    ShortArea { area_bytes: u64, max_record_bytes: u64 },
    /// The node.
    #[error(transparent)]
    Node(#[from] crate::Error),
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::NoService(_) => Self::Closed,
            other => Self::Node(other.into()),
        }
    }
}

impl Error {
    /// Why the call has no results, if it was made.
    #[must_use]
    pub const fn call(&self) -> Option<CallError> {
        match self {
            Self::Call { error, .. } => Some(*error),
            _ => None,
        }
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Call { error, .. } => match error {
                CallError::TimedOut => ErrorKind::Timeout,
                CallError::Gone | CallError::Closed | CallError::Lost => ErrorKind::Gone,
                CallError::AuthError(_) => ErrorKind::Refused,
                _ => ErrorKind::State,
            },
            Self::Refused(Refusal::TooLong { .. }) | Self::ShortArea { .. } => ErrorKind::Range,
            Self::Refused(Refusal::NotOpen(_)) | Self::Gone(_) | Self::Closed => ErrorKind::Gone,
            Self::Refused(Refusal::NotAwaited(_)) => ErrorKind::State,
            Self::Refused(_) => ErrorKind::Limit,
            Self::Xdr(_) | Self::BadCredential | Self::Itself(_) => ErrorKind::Argument,
            Self::NoAnswer { .. } => ErrorKind::Timeout,
            Self::Served { .. } => ErrorKind::Exists,
            Self::Node(error) => error.kind(),
        }
    }
}
