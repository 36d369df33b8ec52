//! Far memory: regions of address space with a limited number of pages in RAM, and the rest in a backing store.
//!
//! A [`Pager`] has one limit and one [`BackingStore`]; [`Pager::map`] makes a [`Region`], ordinary private memory for the
//! program. Page faults arrive through userfaultfd and are served by a handler thread, those of system calls too: that needs privileges,
//! the device or a sysctl.
//!
//! | module | part |
//! |---|---|
//! | `store` | where pages are that are not in RAM: the interface, and files on a disk |
//! | `replacement` | which pages leave RAM, and what of them must be stored |
//! | `faults` | the threads that serve faults, and how they bring pages in |
//! | `residency`, `table` | where each page is, under the pager's lock |
//! | `batch`, `frames`, `checksum` | pages that a thread works on, and their bytes |
//! | `region` | regions, and the files mapped into them |
//! | `freeze`, `revive` | forks |
//! | `statistics` | figures |
//!
//! # States of a page
//! ```text
//!            first touch                  sweep                   cleaned
//!   Empty ───────────────▶ Resident ◀──────────────▶ Victim ───────────────▶ Stored
//!     ▲                        ▲         rescue                                │
//!     └── discard, all zeros   └──────────────────── fetch ────────────────────┘
//! ```
//! While a thread works on a page, the page is *busy*. **The page table entry of a page changes only while the page is busy, and only by
//! the thread that made it so.** Everything else follows: two threads that fault on one page cause one fetch, and a store to a page that
//! is being evicted waits and finds the page again.
//!
//! An empty page has the contents of its *origin*: zeros, or a page of a file ([`Region::map_file`]). A page of a file becomes empty again
//! when it leaves the RAM unchanged.
//!
//! # Eviction
//! User space sees no accessed bits of private memory, so use is found out by taking pages away:
//! `UFFDIO_MOVE` (Linux 6.8) moves pages into a pool of frames, unmapped but in RAM. A page that is touched there is *rescued*
//!   without the store and gets a second chance; one that is not is written out, if the checksum says that it changed, and
//!   its frame goes back to the kernel. No other page comes into that frame: what the program has given to a pipe or a socket by
//!   reference (`vmsplice`, `MSG_ZEROCOPY`) is read from it later. Pages that a device has pinned stay where they are.
//!
//! # What it costs
//! One lock orders all faults of a pager; it is not held during system calls nor while the store works. Metadata is 16 bytes for each page
//! of 4096 (0.39 %) in a sparse array, which takes memory only where pages were touched.
//!
//! # What callers must do
//! - Tell the pager of `madvise(MADV_DONTNEED)` and `munmap` by [`Region::discard`] or by dropping the [`Region`], and move pages by
//!   [`Region::remap`]; the kernel's calls would go past the store.
//! - Call [`Pager::freeze`] before `fork()`, and after it drop [`Frozen`] in the parent and [`Frozen::revive`] in the child. The
//!   child has then a pager of its own, with the same regions as they were at the fork. Handlers of `pthread_atfork` are the place
//!   for this. Without it a forked child does not have the regions: it dies of SIGSEGV where it touches them, rather than read
//!   wrong data.
//! - A child that is forked otherwise, or that dies before it revives the pager, changes nothing for its parent.

#![deny(unsafe_code)]

mod batch;
mod checksum;
mod config;
mod core;
mod error;
mod faults;
#[allow(unsafe_code)]
mod frames;
mod freeze;
mod pager;
mod region;
mod replacement;
mod residency;
#[allow(unsafe_code)]
mod revive;
mod running;
mod sparse;
mod statistics;
mod store;
mod table;

#[cfg(test)]
mod tests;

pub use error::PagerError;
pub use freeze::Frozen;
pub use pager::Pager;
pub use region::Region;
pub use region::origin::{FileChanges, file_bytes};
pub use statistics::Statistics;
pub use statistics::latencies::Latencies;
pub use statistics::published::{FiguresError, MEMORY_NAME};
pub use store::disk::DiskStore;
pub use store::{BackingStore, IncomingPage, OutgoingPage, PageId, RemotePages, StoreError};
