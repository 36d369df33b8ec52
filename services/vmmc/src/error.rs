//! Errors of the model.

use alloc::string::String;

use mapwire_wire::{Endpoint, MAX_NAME_BYTES, Refusal, WireError};
use thiserror::Error;

/// Why an offer or an import is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VmmcError {
    /// The name is not one.
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
        /// The exporter.
        peer: Endpoint,
        /// What was asked for.
        name: String,
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// The exporter refused.
    #[error("{peer} refused the import of `{name}`: {reason}")]
    Refused {
        /// The exporter.
        peer: Endpoint,
        /// What was asked for.
        name: String,
        /// Why.
        reason: Refusal,
    },
    /// The exporter is gone.
    #[error("{peer} is gone; `{name}` cannot be imported from it")]
    PeerGone {
        /// The exporter.
        peer: Endpoint,
        /// What was asked for.
        name: String,
    },
    /// A control message that is none, or answers nothing.
    #[error("{from} sent a control message that is not valid: {error}")]
    Malformed {
        /// Who.
        from: Endpoint,
        /// What is wrong with it.
        error: WireError,
    },
}
