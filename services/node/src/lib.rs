//! A node without its machine: one network interface, joined with the services of its processes.
//!
//! [`Node`] owns a [`Nic`](mapwire_nic::Nic) and the state of each process behind it: its exports and imports
//! ([`mapwire_vmmc`]), its pinned pages ([`mapwire_translation::HostSide`]) and its [services](mapwire_vmmc::service::Service). It sees no
//! clock, thread, file or memory. Whoever runs it, a computer or a simulator, gives it what happens (`handle_*`, and the calls of
//! programs) and does what it asks for (`poll_*`).
//!
//! `conformance` (feature `conformance`) states what nodes promise each other over any transport, as tests.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod act;
mod confinement;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod host_queue;
mod node;
mod pages;
mod payload;
mod peers;
mod process;
mod registry;
mod shared_memory;
mod told;
mod tracing;

pub use act::Act;
pub use error::{ExportError, HostErrorOf};
pub use node::{Ask, NOTICE_BYTES, NOTICE_HANDLER, Node, NodeConfig, notice};
pub use payload::{NoPayload, Payload};
pub use peers::Breach;
pub use process::{ExportRequest, Granted, ImportError};
pub use registry::RegisterError;
pub use shared_memory::{SharedEnd, SharedMemory, Watcher};
pub use told::{Backlog, Told};
pub use tracing::Event;
