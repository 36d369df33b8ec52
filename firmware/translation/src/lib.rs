//! Address translation.
//!
//! A transfer names memory by virtual address; the NIC's DMA needs frames of pinned pages. This crate holds both halves of the
//! translation, for every design of UTLB and of dynamic handle lookup. Drivers and studies run the same code.
//!
//! * **NIC side** ([`TranslationDesign`]): answers lookups, in one of three ways ([`Lookup`]): it has the translation, reads it from a
//!   table in host memory, or needs the host ([`HostRequest`]).
//! * **Host side** ([`HostSide`]): pins what the transfers of a process need, before them or when the NIC asks, and unpins others to make
//!   room. The trait [`PinPages`] does the pinning.
//!
//! | design | name | where translations are | pinned |
//! |---|---|---|---|
//! | [`Hierarchical`] (UTLB §3.3) | `hierarchical` | cache in the NIC, two-level table by page in host memory | before a transfer |
//! | [`Indexed`] (UTLB §3.2) | `shared-cache` | cache in the NIC, table by index in host memory | before a transfer |
//! | [`PerProcess`] (UTLB §3.1) | `per-process` | table by index in the NIC, of fixed size | before a transfer |
//! | [`Interrupt`] (UTLB §6.2) | `interrupt` | cache in the NIC, nowhere else | on a miss; unpinned as it leaves the cache |
//! | [`DynamicHandle`] | `dynamic-handle` | cache in the NIC, tables of the host | on a miss, of sends and receives |
//!
//! [`AnyDesign`] is any of them, in the shape that a [`DesignConfig`] describes. All caches are of one kind ([`SharedCache`]), whose shape
//! ([`CacheConfig`]) also says where a translation may be.
//!
//! The parts: which pages are pinned ([`PinMap`]); which to give up first ([`PinnedPages`], by a [`Policy`] or the application's
//! own [`ChooseVictims`]); both for one process ([`UserTable`], under [`PinRules`]); a process's map ([`TranslationTable`]);
//! what is counted ([`Counters`]).
//!
//! Nothing here calls an operating system, and a hit on either side allocates nothing.
//!
//! ```
//! use mapwire_translation::*;
//!
//! let cache = CacheConfig::default().with_entries(4096).with_ways(2);
//! let mut nic = AnyDesign::new(&DesignConfig::Hierarchical(cache.into()))?;
//! let process = Process(1);
//! nic.open(process)?;
//! let rules = PinRules::default().with_limit(PinLimit::from_bytes(4 << 20)?);
//! let mut host = HostSide::new(process, rules, &nic);
//! let mut pinner = SimulatedPinner::default();
//!
//! // A send of 6000 bytes from address 0x7000_0000.
//! let range = PageRange::covering(0x7000_0000, 6000)?;
//! host.prepare(&mut nic, &mut pinner, range)?;
//! host.hold(range)?;
//! for page in range {
//!     loop {
//!         match nic.lookup(process, page) {
//!             Lookup::Hit(frame) | Lookup::Miss(frame) => break assert!(!frame.is_garbage()),
//!             // Never in this design; others are served here, or by a thread of the host.
//!             Lookup::Host(request) => host.serve(&mut nic, &mut pinner, request, &mut Vec::new())?,
//!         }
//!     }
//! }
//! host.release(range)?;
//! let counters = nic.counters() + host.counters();
//! assert_eq!((counters.lookups, counters.check_misses, counters.nic_misses, counters.pins), (2, 2, 2, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate self as mapwire_translation;
#[cfg(test)]
extern crate std;

pub mod absent;
pub mod any;
pub mod cache;
pub mod choosing;
pub mod counters;
pub mod design;
pub mod dynamic_handle;
pub mod hierarchical;
pub mod host;
pub mod hosts;
pub mod indexed;
pub mod interrupt;
mod leaves;
pub mod limit;
mod opened;
pub mod page;
pub mod per_process;
pub mod pin_map;
pub mod pinned_pages;
pub mod policy;
mod slots;
mod sparse;
pub mod table;
#[cfg(test)]
mod tests;
pub mod user;
mod waiting;

#[cfg(test)]
use tests::{conformance, testing, words};

pub use absent::AbsentRuns;
pub use any::{AnyDesign, DesignConfig};
pub use cache::{CacheConfig, CacheError, SharedCache};
pub use choosing::{Candidates, ChooseVictims};
pub use counters::{Counters, HandleCounters};
pub use design::{HandleLookup, HostRequest, Lookup, NicSide, Pinning, TranslationDesign, TranslationError};
pub use dynamic_handle::{DynamicHandle, DynamicHandleConfig};
pub use hierarchical::{Hierarchical, HierarchicalConfig};
pub use host::{HostError, HostResult, HostSide, PinPages, SimulatedPinner};
pub use hosts::{HostFailure, Hosts};
pub use indexed::{Indexed, IndexedConfig};
pub use interrupt::{Interrupt, InterruptConfig};
pub use limit::{PinError, PinLimit, PinRules};
pub use page::{Frame, PAGE_BYTES, PAGE_SHIFT, Page, PageRange, Process, RangeError};
pub use per_process::{PerProcess, PerProcessConfig};
pub use pin_map::{Check, PinMap};
pub use pinned_pages::PinnedPages;
pub use policy::{ParsePolicyError, Policy};
pub use table::TranslationTable;
pub use user::{PinPlan, Prepared, UserTable};
