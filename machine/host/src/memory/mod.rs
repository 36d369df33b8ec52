//! Memory that a process shares with its peers on the same host, and raw access to memory.
//!
//! [`SharedBuffer`] is the exporter's side: memory behind a memfd, so nothing is left on disk or in `/dev/shm` whatever happens to the
//! processes. [`MappedBuffer`] is an importer's mapping of it. Each sees the other's stores without any call.
//!
//! Existing memory of the program can become such a buffer ([`SharedBuffer::adopt`]): its pages move onto a memfd in place, and back when
//! the buffer is dropped.
//!
//! # Two memfds
//! One holds whole pages of data, the other one page whose first word is the [`Status`]. Both are
//! sealed in length and against further seals, and an importer maps only what
//! [`memfd::verify`] approves: no exporter can make an importer's loads fault.
//!
//! # Revocation (VMMC §4)
//! [`SharedBuffer::revoke`] moves the exporter onto fresh memory with the same contents at the same address. Importers keep the old
//! memory, an orphan that nobody reads: their stores stay harmless and need no check; [`MappedBuffer::revoked`] reports it.
//!
//! # Who may write
//! Seals enforce it. Only the exporter writes the status, and also the data if the buffer is shared for loads only ([`Writers::Present`]):
//! its own mapping is older than the seal, and nobody gets another writable one, not even through `/proc/self/fd`.
//!
//! ```
//! use mapwire_host::memory::{MappedBuffer, SharedBuffer, Writers};
//!
//! let mut export = SharedBuffer::allocate("inbox", 10_000)?;
//! export.share(Writers::All)?;
//! let (memory, status) = export.descriptors().expect("it is shared");
//! // A peer gets both descriptors over a Unix socket, and maps them.
//! let import = MappedBuffer::map(memory, status, 0..10_000, true)?;
//! import.write(64, &b"hello"[..])?;
//!
//! let mut bytes = [0; 5];
//! export.read(64, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//!
//! export.revoke()?;
//! assert!(import.revoked());
//! # Ok::<(), mapwire_host::memory::MemoryError>(())
//! ```

#[allow(unsafe_code)]
mod adoption;
mod buffer;
pub mod changes;
pub(crate) mod error;
#[allow(unsafe_code)]
mod forks;
pub mod memfd;
#[allow(unsafe_code)]
pub mod raw;
mod revocation;
mod status;
#[cfg(test)]
mod tests;
pub mod words;

pub use buffer::{MappedBuffer, SharedBuffer};
pub use error::MemoryError;
pub use memfd::Writers;
pub use raw::memory_is_mapped;
pub use status::{Status, flags};

pub use crate::errno::{CallError, Errno};
pub use crate::maps::{ClosedPart, check_memory, closed_parts, first_within, is_plain_memory};
