//! Failures in the form of C programs: `clnt_stat`, and the other fields of `struct rpc_err`.

use mapwire::meeting::MeetingError;
use mapwire::rpc::{CallError, Error, Refusal};

use crate::abi::{RpcError, Status};

/// Why a client cannot be made, or a call has no results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    status: Status,
    words: [u32; 2],
}

impl Failure {
    /// `errno` is 0 if there is none.
    pub(crate) fn of(status: Status, errno: i32) -> Self {
        Self { status, words: [errno.cast_unsigned(), 0] }
    }

    pub(crate) fn status(&self) -> Status {
        self.status
    }

    pub(crate) fn error(&self) -> RpcError {
        RpcError { status: self.status, words: self.words }
    }

    /// Whether nobody serves the program.
    pub(crate) fn is_nobody(&self) -> bool {
        self.status == Status::PROG_NOT_REGISTERED
    }

    /// For a client that cannot meet its server.
    pub(crate) fn of_meeting(error: &mapwire::Error) -> Self {
        let (status, errno) = match error {
            mapwire::Error::Meeting(MeetingError::Nobody { .. }) => {
                return Self::of(Status::PROG_NOT_REGISTERED, 0);
            }
            mapwire::Error::Meeting(MeetingError::Timeout { .. }) => {
                return Self::of(Status::TIMED_OUT, 0);
            }
            mapwire::Error::Meeting(MeetingError::Refused { .. } | MeetingError::Squatter { .. }) => {
                (Status::SYSTEM_ERROR, libc::EACCES)
            }
            mapwire::Error::Meeting(MeetingError::Os { errno, .. }) => (Status::SYSTEM_ERROR, errno.raw_os_error()),
            _ => (Status::SYSTEM_ERROR, libc::ECONNREFUSED),
        };
        // `clnt_pcreateerror()` only has a number.
        crate::log::warn(&error.to_string());
        Self::of(status, errno)
    }

    pub(crate) fn of_call(error: &Error) -> Self {
        match error {
            Error::Call { error, .. } => Self::of_outcome(*error),
            Error::Xdr(_) | Error::Refused(Refusal::TooLong { .. }) => {
                Self::of(Status::CANT_ENCODE_ARGS, libc::EMSGSIZE)
            }
            Error::Refused(Refusal::NoRoom(_) | Refusal::NoWindow(_)) | Error::NoAnswer { .. } => {
                Self::of(Status::TIMED_OUT, 0)
            }
            Error::Gone(_) | Error::Closed | Error::Refused(Refusal::NotOpen(_)) => {
                Self::of(Status::CANT_SEND, libc::ECONNRESET)
            }
            Error::Refused(Refusal::TooMany(_)) => Self::of(Status::CANT_SEND, libc::EAGAIN),
            Error::BadCredential => Self { status: Status::AUTH_ERROR, words: [1, 0] },
            _ => Self::of(Status::CANT_SEND, libc::EIO),
        }
    }

    fn of_outcome(error: CallError) -> Self {
        match error {
            CallError::TimedOut => Self::of(Status::TIMED_OUT, 0),
            CallError::Gone | CallError::Closed | CallError::Lost => Self::of(Status::CANT_RECV, libc::ECONNRESET),
            CallError::ProgramUnavailable => Self::of(Status::PROG_UNAVAIL, 0),
            CallError::ProgramMismatch { low, high } => Self { status: Status::PROG_VERS_MISMATCH, words: [low, high] },
            CallError::ProcedureUnavailable => Self::of(Status::PROC_UNAVAIL, 0),
            CallError::GarbageArguments => Self::of(Status::CANT_DECODE_ARGS, 0),
            CallError::RpcMismatch { low, high } => Self { status: Status::VERS_MISMATCH, words: [low, high] },
            CallError::AuthError(why) => Self { status: Status::AUTH_ERROR, words: [why as u32, 0] },
            _ => Self::of(Status::SYSTEM_ERROR, 0),
        }
    }
}
