//! libfabric as C sees it: the few structures and calls that mapwire needs, declared by hand, and safe types over them.
//!
//! The library is loaded when it is first asked for, so mapwire builds and starts without it. `ofi-libfabric-sys` would need clang and
//! the library's headers at build time. Its programming interface is mostly inline functions that call through tables, which a loaded
//! library has no symbols for: [`abi`] declares those tables.
//!
//! Structures that grew in later versions grew at their end, and are allocated by the library itself, so these prefixes fit all
//! versions from 1.9 on, the version that is asked for.

mod abi;
mod domain;
mod endpoint;
mod info;
mod library;
mod pinner;
mod region;
mod regions;

pub(super) use endpoint::{BufferId, Endpoint, Event, FabricAddress, OPERATIONS, PostError};
pub(super) use info::{InfoList, Needs, Wanted};
pub(super) use library::Library;
pub use pinner::OfiPinner;
pub use region::{Region, Registrar};
