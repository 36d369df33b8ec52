//! Where an address lives.
//!
//! A transfer names memory by virtual address; the NIC's DMA needs frames of pinned pages. This crate
//! holds both halves of the way from one to the other, as the UTLB paper divides them:
//!
//! * **Library side** ([`UserTable`]): which pages of this process are pinned ([`PinMap`]), and under a limit
//!   which of them to give up first ([`PinnedPages`]). It plans; the driver pins and unpins.
//! * **NIC side** ([`TranslationDesign`]): the full map of every process ([`TranslationTable`]) behind one bounded
//!   [`SharedCache`]. [`Hierarchical`] is the design of UTLB §3.3.
//!
//! Order of one send: [`UserTable::prepare`] → (driver pins, [`TranslationDesign::install`],
//! [`UserTable::commit_pinned`]) → [`UserTable::hold`] → [`TranslationDesign::lookup`] page by page →
//! [`UserTable::release`] once the transfer has completed.
//!
//! Nothing here calls an operating system, and a hit on either side allocates nothing.
//!
//! ```
//! use mapwire_translation::*;
//!
//! let mut user = UserTable::new(PinLimit::Unlimited);
//! let mut nic = Hierarchical::new(CacheConfig::default())?;
//! let process = Process(1);
//! nic.open(process)?;
//!
//! let range = PageRange::covering(0x7000_0000, 6000)?;
//! let mut plan = PinPlan::new();
//! assert_eq!(user.prepare(range, &mut plan)?, Prepared::MustPin);
//! for run in &plan.to_pin {
//!     // The driver pins the run here, and learns its frames.
//!     for page in *run {
//!         nic.install(process, page, Frame(page.0 + 100))?;
//!     }
//!     user.commit_pinned(*run)?;
//! }
//! user.hold(range)?;
//! assert_eq!(nic.lookup(process, range.first), Lookup::Miss(Frame(range.first.0 + 100)));
//! user.release(range)?;
//! assert_eq!(user.prepare(range, &mut plan)?, Prepared::AllPinned);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod any;
pub mod cache;
pub mod choice;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod counters;
pub mod design;
pub mod dynamic_handle;
#[cfg(test)]
mod golden;
pub mod hierarchical;
pub mod host;
pub mod hosts;
pub mod indexed;
pub mod interrupt;
mod leaves;
pub mod limit;
#[cfg(test)]
mod models;
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
mod testing;
pub mod user;
mod waiting;

pub use any::AnyDesign;
pub use cache::{CacheConfig, CacheError, SharedCache};
pub use choice::{DesignConfig, ParseDesignError};
pub use counters::{Counters, HandleCounters};
pub use design::{
    HandleLookup, HostRequest, Lookup, NicSide, Pinning, TranslationDesign, TranslationError,
};
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
pub use policy::{Candidates, ChooseVictims, ParsePolicyError, Policy};
pub use table::TranslationTable;
pub use user::{PinPlan, Prepared, UserTable};
