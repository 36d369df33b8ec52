//! What can go wrong with far memory.

use std::path::PathBuf;

use mapwire_host::page::PAGE_BYTES;
use mapwire_pager::PagerError;

/// Least bytes in RAM that far memory works with.
pub(super) const LEAST_BYTES: u64 = 16 * PAGE_BYTES as u64;

/// Why far memory could not be opened, or memory could not be had from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FarError {
    /// No limit was given, or one that is too low.
    #[error("{local_bytes} bytes in RAM are too few for far memory: give `local` at least {LEAST_BYTES}")]
    Local {
        /// Bytes given, 0 if none were.
        local_bytes: u64,
    },
    /// The file that holds what is not in RAM cannot be made.
    #[error(
        "cannot keep far memory in {folder}: {cause}; choose a folder that may be written to, on a file system with unnamed files (O_TMPFILE)",
        folder = folder.display()
    )]
    Disk {
        /// The folder.
        folder: PathBuf,
        /// The kernel's reason.
        cause: std::io::Error,
    },
    /// The pager.
    #[error(transparent)]
    Pager(#[from] PagerError),
}
