//! Errors of the model.

use alloc::string::String;

use mapwire_wire::{Endpoint, MAX_NAME_BYTES, Refusal, WireError};
use thiserror::Error;

/// Why an offer or an import failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VmmcError {
    /// The name's length, in bytes, is illegal.
    #[error("an export's name has 1 to {MAX_NAME_BYTES} bytes; this one has {0}")]
    BadName(usize),
    /// Another export has the name.
    #[error("`{0}` is exported by this process already: choose another name, or unexport it first")]
    NameTaken(String),
    /// The exporter did not export the name in time.
    #[error(
        "{peer} has not exported `{name}` within {waited_ms} ms: is the name right, and has the exporter got that far?"
    )]
    TimedOut {
        peer: Endpoint,
        /// Name that was requested.
        name: String,
        /// Time waited, in milliseconds.
        waited_ms: u64,
    },
    /// The exporter refused the import.
    #[error("{peer} refused the import of `{name}`: {reason}")]
    Refused {
        peer: Endpoint,
        /// Name that was requested.
        name: String,
        reason: Refusal,
    },
    /// The exporter is gone.
    #[error("{peer} is gone; `{name}` cannot be imported from it")]
    PeerGone {
        peer: Endpoint,
        /// Name that was requested.
        name: String,
    },
    /// Malformed control message, or one that answers no request.
    #[error("{from} sent a control message that is not valid: {error}")]
    Malformed {
        from: Endpoint,
        /// First thing found wrong.
        error: WireError,
    },
}
