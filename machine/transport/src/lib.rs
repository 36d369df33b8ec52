//! Moves packets between nodes.
//!
//! * [`transport`]: the trait that every transport implements, and the payload types it uses;
//! * [`shm`]: between processes of one host, through rings in shared memory;
//! * `conformance`: the tests that every transport must pass (feature `conformance`);
//! * [`board`]: who polls, who sleeps, who is alive;
//! * [`fabric`]: what a process has besides packets, and [`local`]: that of one host;
//! * [`rendezvous`]: how ranks of one host find one another and exchange memory.

#![deny(unsafe_code)]

pub mod bells;
pub mod board;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod fabric;
pub mod local;
#[allow(unsafe_code)]
pub mod payload;
pub mod rendezvous;
pub mod shm;
pub mod transport;
