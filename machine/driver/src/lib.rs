//! The duty cycle: joins the firmware ([`mapwire_nic`]), the models above it, a transport and this computer's memory.
//!
//! | module | does |
//! |---|---|
//! | [`driver`] | one turn of the cycle: commands in, packets out and in, memory moved, completions told |
//! | [`engine`] | who runs the cycle: the caller's thread while it waits, else a service thread that sleeps until rung |
//! | [`pages`] | pins pages on demand and keeps the translations that the NIC uses (UTLB §3) |
//! | [`exports`], [`imports`] | what the VMMC model asks of the machine: memory pinned, passed, mapped, revoked |
//! | [`capture`] | what this process communicates, written down for a trace |
//! | [`host_bell`] | how a thread of the host learns that messages of a service wait for it |
//! | [`service_memory`] | memory that a service of the program shares between ranks |
//! | [`shared`] | the DSM model's port to views, page protections and peers' memory (Millipage §2) |
//!
//! The firmware and the models are pure; every effect is here. One lock guards them all ([`engine::Engine::lock`]): whoever
//! wants progress takes it, and code that holds it never touches application memory that could fault.
#![deny(unsafe_code)]

pub mod breach;
pub mod capture;
mod commands;
pub mod completions;
pub mod config;
pub mod driver;
pub mod engine;
pub mod error;
pub mod events;
pub mod exports;
pub mod host_bell;
pub mod imports;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod metrics;
#[allow(unsafe_code)]
mod mover;
pub mod notices;
pub mod pages;
pub mod rma;
pub mod service_memory;
pub mod shared;
#[allow(unsafe_code)]
mod spin;
mod sync;
mod threads;

pub use config::{DriverConfig, DriverMode};
pub use driver::Driver;
pub use engine::Engine;
pub use error::DriverError;
