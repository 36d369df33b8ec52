//! The C library of mapwire. `include/mapwire.h` is made from the items here, documentation included (`tests/header.rs`).
//!
//! | file | for C programs |
//! |---|---|
//! | `node.rs` | join the job; rank, size; run the driver |
//! | `polling.rs` | threads that poll |
//! | `collective.rs` | calls of all ranks together |
//! | `victims.rs` | choose what is unpinned |
//! | `buffer.rs` | memory that importers can map |
//! | `export.rs`, `notify.rs` | offer memory; be told of deliveries |
//! | `waiting.rs` | wait for any of several signals |
//! | `import.rs` | store into another rank's memory, fetch from it |
//! | `parts.rs` | transfers of many parts |
//! | `atomics.rs` | atomic operations, signals that add up |
//! | `requests.rs` | sends and fetches under way |
//! | `events.rs` | descriptors for event loops |
//! | `shared.rs` | memory that all ranks share |
//! | `far.rs` | memory that may be larger than RAM |
//! | `counters.rs` | what was done so far |
//! | `version.rs`, `status.rs`, `failure.rs` | versions; codes; messages |
//!
//! Everything of the public header keeps these rules:
//!
//! * A function gives a code (`status.rs` maps errors to codes, and is the only place that does); its results go where its
//!   last arguments point. Nothing is written there when it fails, but a pointer to an object becomes `NULL`.
//! * No panic leaves a function (`failure::call` turns it into `MW_ERR_INTERNAL`).
//! * A pointer that must not be `NULL` is checked (`arguments.rs`), as are enumerations, flags, sizes and text.
//! * Structures that may grow begin with their size (`growing.rs`).
//!
//! Pointers to objects come as `Option<&T>` and, where they end, as `Option<Box<T>>`, which have the form of C's pointers;
//! so `unsafe` is left to what C describes by address and length.
#![deny(unsafe_code)]
// C's names for C's things.
#![allow(non_camel_case_types)]

// The order of the header is that of the modules, so they are kept apart.
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
