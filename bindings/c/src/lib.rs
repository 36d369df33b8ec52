//! The C library of mapwire. `include/mapwire.h` is made from the items here, documentation included (`tests/header.rs`).
//!
//! | file | for C programs |
//! |---|---|
//! | `node.rs` | join the job; rank, size; run the driver |
//! | `polling.rs` | threads that poll |
//! | `collective.rs` | calls of all ranks together |
//! | `victims.rs` | choose pages to unpin |
//! | `buffer.rs` | memory that importers can map |
//! | `export.rs`, `notify.rs` | export memory; notifications of deliveries |
//! | `waiting.rs` | wait for any of several signals |
//! | `import.rs` | store into another rank's memory, fetch from it |
//! | `parts.rs` | transfers of many parts |
//! | `atomics.rs` | atomic operations, signals that add up |
//! | `requests.rs` | sends and fetches under way |
//! | `events.rs` | descriptors for event loops |
//! | `shared.rs`, `allocation.rs`, `heap.rs` | memory that all ranks share, options of allocations, and `malloc` in it |
//! | `sync.rs`, `counted.rs` | mutexes, conditions, semaphores, queues and the like in shared memory |
//! | `far.rs` | memory that may be larger than RAM |
//! | `counters.rs` | counters |
//! | `version.rs`, `status.rs`, `failure.rs` | versions; codes; messages |
//!
//! Everything in the public header keeps these rules:
//!
//! * A function returns a code (only `status.rs` maps errors to codes); its last arguments point to its results. Nothing is written there
//!   if it fails, except that a pointer to an object becomes `NULL`.
//! * No panic leaves a function (`failure::call` turns it into `MW_ERR_INTERNAL`).
//! * Pointers that must not be `NULL`, enumerations, flags, sizes and text are checked (`arguments.rs`).
//! * Structures that may grow begin with their size (`growing.rs`).
//!
//! Pointers to objects arrive as `Option<&T>` and, where they end, as `Option<Box<T>>`, which have the form of C's pointers; so `unsafe`
//! is only needed for what C describes by address and length.
#![deny(unsafe_code)]
// C's names for C's things.
#![allow(non_camel_case_types)]

// The header's order is that of the modules, so they are not sorted.
//
// `unsafe(no_mangle)` counts as unsafe code, since a name could clash with one of the program's: all begin with `mw_`.

#[allow(unsafe_code)]
pub mod version;

#[allow(unsafe_code)]
pub mod status;

#[allow(unsafe_code)]
pub mod failure;

#[allow(unsafe_code)]
pub mod node;

#[allow(unsafe_code)]
pub mod polling;

#[allow(unsafe_code)]
pub mod collective;

#[allow(unsafe_code)]
pub mod victims;

#[allow(unsafe_code)]
pub mod atomics;
#[allow(unsafe_code)]
pub mod buffer;

#[allow(unsafe_code)]
pub mod export;

#[allow(unsafe_code)]
pub mod notify;

#[allow(unsafe_code)]
pub mod waiting;

#[allow(unsafe_code)]
pub mod import;

#[allow(unsafe_code)]
pub mod parts;

#[allow(unsafe_code)]
pub mod requests;

#[allow(unsafe_code)]
pub mod events;

#[allow(unsafe_code)]
pub mod shared;

#[allow(unsafe_code)]
pub mod allocation;

#[allow(unsafe_code)]
pub mod heap;

#[allow(unsafe_code)]
pub mod sync;

#[allow(unsafe_code)]
pub mod counted;

#[allow(unsafe_code)]
pub mod files;

#[allow(unsafe_code)]
pub mod far;

#[allow(unsafe_code)]
pub mod counters;

mod arguments;
#[allow(unsafe_code)]
mod growing;
mod log;
#[allow(unsafe_code)]
mod memory;
