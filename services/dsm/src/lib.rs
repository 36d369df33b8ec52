//! A shared memory: the protocol of one rank, without a machine. It is coherent by minipages (Millipage) or lazily (HLRC).
//!
//! [`Dsm`] decides which rank may read or write which *minipage* (an allocation or a [`Unit`] of one, accessed through a *view* of its own so that its
//! neighbours on the same physical page have separate rights; Millipage §2.1), and keeps the job's locks, barriers and allocator. It reads
//! no clock, starts no thread and touches no memory: a driver feeds it inputs and executes the [`Action`]s that it returns. See [`Dsm`]
//! for the order of calls.
//!
//! ```
//! use mapwire_dsm::{Access, Action, Config, Dsm, Outcome};
//!
//! let mut ranks = [0, 1].map(|rank| Dsm::new(Config::new(rank, 2, 1, 1024, 32)).unwrap());
//! // The part of a driver: here messages arrive at once, and protections and data are not carried out.
//! fn drive(ranks: &mut [Dsm; 2]) -> Option<Outcome> {
//!     let mut last = None;
//!     for at in [0, 1, 0, 1, 0, 1] {
//!         while let Some(action) = ranks[at].poll_action() {
//!             match action {
//!                 Action::Send { to, message } | Action::SendMinipage { to, message, .. } => {
//!                     ranks[usize::from(to)].handle_message(0, at as u16, message, &[]).unwrap();
//!                 }
//!                 Action::Protect { .. } => {}
//!                 // Lazy consistency asks for copies, diffs and fetches of pages.
//!                 Action::Twin { .. } | Action::SendDiff { .. } | Action::Fetch { .. } | Action::Merge { .. } => {}
//!                 Action::Resume { outcome, .. } => last = Some(outcome),
//!             }
//!         }
//!     }
//!     last
//! }
//!
//! ranks[0].alloc(0, 100).unwrap();
//! let Some(Outcome::Allocated(address)) = drive(&mut ranks) else { panic!() };
//! // Rank 1 loads from there, and faults.
//! let page = address.offset_bytes / mapwire_dsm::PAGE_BYTES;
//! let _ = ranks[1].handle_fault(0, 0, address.view, page, Access::Read).unwrap();
//! assert_eq!(drive(&mut ranks), Some(Outcome::Served(Access::Read)));
//! ```
//!
//! It relies on this: messages between two ranks arrive once, unchanged and in order, and a minipage's bytes are in place before the
//! message that follows them ([`Action::SendMinipage`]), whichever way they travel. It guarantees sequential consistency for accesses that
//! respect the page protections it requests, that every fault is served, that locks are exclusive and passed on in the order in which
//! their manager saw the requests, and that barriers are never early.
//!
//! Costs in messages until the thread continues, one after the other (the total in brackets):
//!
//! | | |
//! |---|---|
//! | read fault, the manager owns or has a copy; or the requester manages | 2 (2) |
//! | read fault, otherwise | 3 (4) |
//! | write fault or upgrade, one other copy, its holder or the requester manages | 2 (2) |
//! | write fault, one other copy, held by a third rank | 3 (4) |
//! | write with *n* copies held by ranks that are neither manager nor requester | 3 (at most 4 + 2*n*) |
//! | lock where it was last used | 0 |
//! | lock held by nobody | 2 or 3 |
//! | lock passed on by its holder | 1 |
//! | barrier, for each rank but the manager | 2 |
//! | call of an object ([`Dsm::call_object`]) that is granted at once | 2 (2), 0 at its home |
//! | … when another rank's call has come to the home | 1, 0 at its home |
//!
//! Minipages that begin on one page have one manager. Requests for up to 64 of them share a message, in consecutive views ([`Views`]), and
//! so do the answers about those that can be served at once, from one owner, if they are adjacent and of one length; the others come by
//! themselves. Sets form anew with each request, so nothing has to part what two ranks want separately.
//!
//! Read faults of a thread a constant stride apart, in pages or in the views of a page, bring what follows ahead of it, more each time: up
//! to 12 pages, or all of a page. They take no right to write. A copy that is taken away before the thread has got there ends that,
//! as does a fault elsewhere ([`Config::read_ahead`]).
//!
//! # Lazy release consistency
//!
//! Under [`Protocol::Hlrc`] the unit is a page, and what a rank writes is seen by those that synchronise with it afterwards by locks and
//! barriers (home-based lazy release consistency: Zhou, Iftode, Li 1996; the private module `lazy` says why a fetch reads nothing too
//! old). Programs without data races see what they would under sequential consistency. All allocations lie in view 0, and small ones
//! share pages. An allocation may be sequentially consistent beside them ([`AllocOptions`]). Costs, until the thread continues, in messages
//! and reads of another rank's memory one after the other (in total):
//!
//! | | messages | reads |
//! |---|---|---|
//! | first fault of a rank on a page that it does not manage | 2 (2), to learn the home | 0 at the home, else 1 |
//! | read or write fault on a page that is out of date | 0 | 1 |
//! | write fault on a valid page: a twin, or nothing at the home | 0 | 0 |
//! | write to a page of which no other rank knows the home, after the first: no fault | 0 | 0 |
//! | first fault of a second rank there, which the home must hear of first | up to 4 (4) | 1 |
//! | lock where it was last used, or passed on between threads of a rank | 0 | |
//! | lock held by nobody, its last rank wrote nothing since it released | 2 or 3 | |
//! | … and wrote *p* pages of *h* other homes | 2 or 3, and 2 for the homes (3 + *p* + 2*h*) | |
//! | unlock | 0 | |
//! | barrier, for each rank but the manager, which wrote *p* pages of *h* other homes | 4 (2 + *p* + 2*h*); 2 (2) if *p* = 0 | |
//! | call of an object that lets others go on, after *p* pages of *h* other homes were written | 4 (2 + *p* + 2*h*); 2 (2) if *p* = 0 | |
//!
//! A token or barrier message carries 64 write notices, each of up to 65,535 consecutive pages; more go in messages ahead of it. A home
//! that moves takes 2 messages for each rank that uses the page, 2 more, and a read.
//!
//! After [`Dsm::new`], faults, locks, barriers and objects allocate no memory, so all of it may run in a signal handler.
//!
//! Threads of a rank that want the same minipage share one request. A rank that dies takes what it owned with it; every operation of the
//! others then ends with an error.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
mod address;
mod allocation;
mod coherence;
mod config;
mod context;
mod counters;
mod dsm;
mod encoding;
mod error;
mod lazy;
mod message;
mod objects;
mod protocol;
mod protocols;
mod ranges;
mod ranks;
mod sequential;
mod spread;
mod synchronisation;
mod tables;
mod units;
mod views;

pub use action::{Action, Outcome, Progress};
pub use address::{Access, Address, Key, Minipage, PAGE_BYTES, Protection};
pub use allocation::{AllocOptions, Unit};
pub use config::{Config, ConfigError, MAX_PAGES, MAX_PAGES_AHEAD, MAX_PREFETCHES, MAX_RANKS, MAX_VIEWS};
pub use counters::Counters;
pub use dsm::Dsm;
pub use encoding::{MAX_FIELDS_BYTES, MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES, ParseError};
pub use error::{Error, PeerError, Violation};
pub use lazy::Race;
pub use message::{Message, Round};
pub use objects::{Combine, NumberType, ObjectCall, ObjectKind, Problem, Reduce, SEMAPHORE_MAX, Verb};
pub use protocol::{Protocol, ProtocolMismatch, UnknownProtocol};
pub use synchronisation::WaitedBarrier;
pub use units::Units;
pub use views::Views;

/// The number of a process in its job, from 0.
pub type Rank = u16;
/// The number of an application thread within its rank, from 0 to [`Config::threads`] − 1.
pub type Thread = u16;
/// The number of a lock, from 0 to [`Config::locks`] − 1; the same lock in every rank.
pub type Lock = u32;
/// The number of a barrier, from 0 to [`Config::barriers`] − 1; the same barrier in every rank.
pub type Barrier = u32;
