//! What can go wrong.

use mapwire_driver::DriverError;
use mapwire_driver::shared::SharedError;
use thiserror::Error;

use crate::config::ConfigError;

/// What can go wrong. Every message names what was wrong, with which value, and how to mend it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Communication.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Shared memory.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] mapwire_host::memory::MemoryError),
    /// A proxy address.
    #[error(transparent)]
    Proxy(#[from] mapwire_vmmc::ProxyError),
    /// A range outside a buffer, export, import or slice.
    #[error("{length} {unit} at {offset} pass the end, which is at {end}")]
    OutOfRange {
        /// First one asked for.
        offset: u64,
        /// How many.
        length: u64,
        /// How many there are.
        end: u64,
        /// Bytes, or elements.
        unit: &'static str,
    },
    /// A signal's offset.
    #[error("a signal is 8 aligned bytes; offset {0} is not a multiple of 8")]
    Unaligned(u64),
    /// A right that the import does not carry.
    #[error(
        "the import carries the right to {has}, not to {needs}: ask for it when importing, and let the exporter allow it"
    )]
    NoRight {
        /// What it would take.
        needs: mapwire_wire::Rights,
        /// What it has.
        has: mapwire_wire::Rights,
    },
    /// The export behind an import is gone.
    #[error("rank {rank} has revoked `{name}`: nothing was stored")]
    Revoked {
        /// The exporter.
        rank: u32,
        /// Its export.
        name: String,
    },
    /// A signal that cannot come.
    #[error(
        "the signal at offset {offset} of `{name}` will not come: every other rank that may import it is gone, and nobody holds an import of it ({ranks})"
    )]
    Deserted {
        /// Its offset.
        offset: u64,
        /// The export.
        name: String,
        /// The ranks by state.
        ranks: String,
    },
    /// Pages were pinned before the program said that it chooses which are unpinned.
    #[error(
        "{pages} pages are pinned already: say who chooses before anything is exported, sent or fetched"
    )]
    PinnedAlready {
        /// How many.
        pages: u64,
    },
    /// A range of shared memory where only private memory can be.
    #[error(
        "{length} B at {address:#x} lie in shared memory, which has no fixed place: export or redirect to memory of this process"
    )]
    InSharedMemory {
        /// First address.
        address: u64,
        /// Bytes.
        length: u64,
    },
}

/// Results of this crate.
pub(crate) type Result<T, E = Error> = core::result::Result<T, E>;

/// A range within `end`, or the error that says why not.
#[inline]
pub(crate) fn check_range(offset: u64, length: u64, end: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(last) if last <= end => Ok(()),
        _ => Err(Error::OutOfRange {
            offset,
            length,
            end,
            unit: "bytes",
        }),
    }
}
