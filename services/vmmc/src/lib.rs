//! The model of virtual memory-mapped communication: names of exports, permission to import, and imports (VMMC §2, §4.4). It has no memory
//! and no clock: the driver gives it messages, requests and the time, and carries out the actions that it asks for.
//!
//! An export is *offered* under a name ([`Vmmc::offer`]). A process of another node asks for it ([`Vmmc::import`]); the request waits at
//! the exporter until the name is offered or the importer's timeout expires. The exporter checks the importer ([`Importers`]), and answers
//! with the key that the [`mapwire_nic`] of both sides checks on every packet.
//!
//! [`service`] is the interface of the protocols between processes that run over it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
mod error;
mod importers;
mod offers;
mod proxy;
mod requests;
pub mod service;
mod vmmc;

pub use action::{Action, Grant};
pub use error::VmmcError;
pub use importers::Importers;
pub use offers::Offer;
pub use proxy::{ProxyAddress, ProxyError, ProxySpace};
pub use requests::RequestId;
pub use vmmc::Vmmc;
