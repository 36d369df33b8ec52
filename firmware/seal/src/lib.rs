//! Authenticates the nodes of a job, and seals what they send to each other.
//!
//! [`Sessions`] is one state machine for a whole node. It has no clock, socket or entropy: [`Sessions::handle`] takes datagrams,
//! [`Sessions::seal`] makes them, [`Sessions::poll_transmit`] returns those of handshakes. Datagrams are encrypted by an [`Aead`].
//! [`Envelope`] is the same for jobs without sealing.
//!
//! A handshake (Noise `KKpsk0`) proves that a peer has the job's secret and the secret of its own key:
//!
//! ```text
//! initiator                        responder
//!     initiate ------------------------>     checks the code by the job's secret, and keeps nothing
//!     <-------------------------- cookie     proves the initiator's address, and how fresh the initiate is
//!     initiate with the cookie -------->     proves the initiator's key; a session is offered
//!     <------------------------- respond     proves the responder's key; the initiator may seal
//!     sealed datagram ----------------->     proves that the initiate was not a replay; the responder may seal
//! ```
//!
//! Each datagram is repeated until it is answered. If both sides begin, the node with the smaller number takes precedence. The shape is
//! that of WireGuard (Donenfeld, NDSS 2017, §5), with a cookie in every handshake in place of time stamps.
//!
//! The default feature `sealing` enables all of this; without it there are only envelopes that seal nothing.
//!
//! `wire.rs` has the layout of datagrams, `docs/security.md` the threat model.

#![no_std]
#![forbid(unsafe_code)]
// Used only with sealing.
#![cfg_attr(not(feature = "sealing"), allow(dead_code, unused_imports, unused_variables))]

extern crate alloc;

mod address;
mod aead;
#[cfg(feature = "sealing")]
mod cookie;
mod counters;
mod envelope;
#[cfg(feature = "sealing")]
mod identity;
#[cfg(feature = "sealing")]
mod indexes;
mod keys;
mod mac;
#[cfg(feature = "sealing")]
mod noise;
mod outcome;
#[cfg(feature = "sealing")]
mod peer;
mod plain;
#[cfg(feature = "sealing")]
mod repeat;
#[cfg(feature = "sealing")]
mod replay;
#[cfg(feature = "sealing")]
mod session;
#[cfg(feature = "sealing")]
mod sessions;
mod transmit;
mod wire;

pub use address::{Address, MAX_ADDRESS_BYTES};
#[cfg(feature = "sealing")]
pub use aead::Aead;
pub use aead::{KEY_BYTES, NONCE_BYTES, TAG_BYTES};
pub use counters::{Cause, Counters};
pub use envelope::Envelope;
#[cfg(feature = "sealing")]
pub use identity::Config;
#[cfg(feature = "sealing")]
pub use keys::StaticKey;
pub use keys::{JobSecret, PublicKey};
pub use outcome::{NotReady, Opened};
pub use plain::Plain;
#[cfg(feature = "sealing")]
pub use replay::WINDOW;
#[cfg(feature = "sealing")]
pub use session::Rotation;
#[cfg(feature = "sealing")]
pub use sessions::Sessions;
pub use transmit::{Destination, MAX_HANDSHAKE_BYTES, Transmit};
pub use wire::{
    COOKIE_DATAGRAM_BYTES, INITIATE_BYTES, PLAIN_FRONT_BYTES, RESPOND_BYTES, SEALED_BACK_BYTES, SEALED_FRONT_BYTES,
    VERSION, first_length,
};
