//! What simulated computers are made of, and what that costs: each machine of this crate is put together from these parts.
//!
//! | module | |
//! |---|---|
//! | `profile` | costs: a table of constants, each with its origin and source |
//! | `agenda` | events in order of time |
//! | `memory` | frames, pages of processes, and who is pinned where |
//! | `processors` | threads on the processors of a host |
//! | `nic` | the processor of a NIC, slowed by DMA |
//! | `node` | nodes whose processes are open, with their queues of commands |
//! | `packets` | what a node sends and takes: packets, and datagrams of links |
//! | `wires` | messages between services that run without a node |
//! | `timeline` | what each part did, and when |

pub(crate) mod agenda;
pub(crate) mod memory;
mod nic;
pub(crate) mod node;
pub(crate) mod packets;
pub(crate) mod processors;
pub mod profile;
mod timeline;
pub(crate) mod wires;

pub(crate) use agenda::Agenda;
pub(crate) use nic::{NicProcessor, Rates};
pub(crate) use profile::constants;
pub use profile::{Constant, Cost, NS, Origin, Profile, Ps, US, Unit};
pub use timeline::{Lane, Span, Timeline};
