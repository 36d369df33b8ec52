//! The duty cycle: joins the firmware ([`mapwire_nic`]), the models above it, a transport and this computer's memory.
//!
//! | module | does |
//! |---|---|
//! | [`engine`] | who runs the cycle: the caller's thread while it waits, else a service thread that sleeps until rung |
//! | [`driver`] | one turn of the cycle: the loop between the node and the three that follow |
//! | `paths` | carries packets: rings, libfabric, datagrams with their links; bells; who is gone |
//! | `memories` | owns what peers may reach, and carries out the node's moves, stores and protections |
//! | `outcomes` | says what is over: completion words, notifications, events, the log, the trace |
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
mod ids;
pub mod imports;
mod local;
mod log;
#[cfg(all(test, loom))]
#[path = "tests/loom.rs"]
mod loom_tests;
mod memories;
pub mod metrics;
#[allow(unsafe_code)]
mod mover;
pub mod notices;
mod outcomes;
pub mod pages;
mod paths;
mod peer_words;
pub mod profile;
pub mod rma;
pub mod service_memory;
#[allow(unsafe_code)]
mod spin;
mod sync;
pub mod threads;
mod views;

pub use config::{DriverConfig, DriverMode};
pub use driver::Driver;
pub use engine::Engine;
pub use error::DriverError;
