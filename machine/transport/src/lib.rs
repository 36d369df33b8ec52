//! Moves packets between nodes.
//!
//! * [`transport`]: the trait that every transport implements, and the payload types it uses;
//! * [`shm`]: between processes of one host, through rings in shared memory;
//! * `tests/conformance.rs`: the tests that every transport must pass;
//! * [`board`]: who polls, who sleeps, who is alive;
//! * [`net`]: between hosts, by datagrams;
//! * [`udp`]: the sockets that datagrams go through;
//! * [`ofi`]: through libfabric;
//! * [`fabric`]: what a process has besides packets, and [`job`]: that of a job;
//! * [`local`]: the sockets by which processes of one host meet;
//! * [`rendezvous`]: how ranks of one host find one another and exchange memory.

// Without sealing, an envelope is plain.
#![cfg_attr(not(feature = "sealing"), allow(irrefutable_let_patterns))]
#![deny(unsafe_code)]

pub mod bells;
pub mod board;
pub mod fabric;
pub mod job;
pub mod local;
pub mod net;
pub mod ofi;
#[allow(unsafe_code)]
pub mod payload;
mod peers;
pub mod rendezvous;
mod rousing;
pub mod shm;
#[cfg(test)]
mod tests;
pub mod transport;
pub mod udp;
