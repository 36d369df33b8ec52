//! Errors of the calls of programs.

use mapwire_nic::NicError;
use mapwire_translation::{HostError, PinError, PinPages, RangeError};
use mapwire_vmmc::VmmcError;
use thiserror::Error;

/// Why pages cannot be used by the NIC, with what the pinner `P` says.
pub type HostErrorOf<P> = HostError<<P as PinPages>::Error, NicError>;

/// Why memory is not exported, or an export not redirected; `E` is the pinner's error. Nothing has changed.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ExportError<E: core::error::Error + 'static> {
    /// Export of no bytes.
    #[error("an export of 0 bytes has nothing to store into; give at least 1 byte")]
    Empty,
    /// Export without rights.
    #[error("an export without rights is of no use to anybody: allow store, fetch or both")]
    NoRights,
    /// A range that no address space holds.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Its pages cannot be used by the NIC.
    #[error(transparent)]
    Pages(#[from] HostError<E, NicError>),
    /// A table of the NIC.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// Its name.
    #[error(transparent)]
    Vmmc(#[from] VmmcError),
    /// The redirection of an export that importers have mapped.
    #[error(
        "the export is mapped by its importers (the direct path), so what they store cannot be led elsewhere; export it with the ring path only"
    )]
    RedirectsDirect,
    /// A redirection to a buffer that is too short.
    #[error(
        "a buffer of {landing_bytes} B cannot stand for an export of {export_bytes} B: redirect to one at least as long"
    )]
    ShortLanding { landing_bytes: u64, export_bytes: u64 },
}

impl<E: core::error::Error + 'static> From<PinError> for ExportError<E> {
    fn from(error: PinError) -> Self {
        Self::Pages(HostError::Limit(error))
    }
}
