//! How the ranks of a job find each other: the launcher is the *broker*, every rank its client.
//!
//! The broker listens on an abstract Unix socket (SOCK_SEQPACKET, random 128-bit name, so nothing is
//! left on disk). A rank joins with the job's token and gets the [board](crate::board); it asks for
//! a channel to a peer, and both sides get the descriptor of the same memory, or each other's cards where
//! they are on different hosts; it passes descriptors
//! of its own memory to peers. Nothing else travels here: data goes through channels and mapped
//! memory, and the broker sleeps.
//!
//! * [`JobAddress`]: socket name and token, as `MAPWIRE_JOB` carries them.
//! * [`Client`]: a rank's side. One socket, no thread.
//! * [`Broker`]: the launcher's side, a state machine over one pollable descriptor.
//! * [`message`]: the records, and their strict parser.
//!
//! Who may talk: the peer's user id as the kernel tells it must be ours, or that of the one user whom both sides name
//! ([`Broker::admit_user`], [`JobAddress::of_user`]), and the token must match.
//! Both refusals are counted ([`BrokerStats`]). A client that breaks the protocol is disconnected.

mod address;
mod client;
mod error;
pub mod message;
mod server;
mod socket;

pub use address::{JobAddress, JobAddressError, hex, unhex};
pub use client::{Client, Event};
pub use error::RendezvousError;
pub use message::{Card, Secret, ToRank};
pub use server::{Broker, BrokerStats, MakeChannel, NotElsewhere, Word};

#[cfg(test)]
mod tests;
