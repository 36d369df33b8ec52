//! Authenticates the nodes of a job, and seals what they send to each other.
//!
//! [`Sessions`] is one state machine for a whole node. It has no clock, socket or entropy: [`Sessions::handle`] takes datagrams and
//! [`Sessions::seal`] makes them, [`Sessions::poll_transmit`] gives those of handshakes. Datagrams are encrypted by an [`Aead`].
//! [`Envelope`] is the same for jobs that want no sealing.
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
//! Each datagram is sent again until it is answered. If both sides begin, the node with the smaller number goes first. The shape is
//! that of WireGuard (Donenfeld, NDSS 2017, §5), with a cookie in every handshake in place of time stamps.
//!
//! The layout of datagrams stands in `wire.rs`, the threats in `docs/security.md`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod address;
mod aead;
mod cookie;
mod counters;
mod envelope;
mod identity;
mod indexes;
mod keys;
mod mac;
mod noise;
mod peer;
mod plain;
mod repeat;
mod replay;
mod session;
mod sessions;
mod transmit;
mod wire;

pub use address::{Address, MAX_ADDRESS_BYTES};
pub use aead::{Aead, KEY_BYTES, NONCE_BYTES, TAG_BYTES};
pub use counters::{Cause, Counters};
pub use envelope::Envelope;
pub use identity::Config;
pub use keys::{JobSecret, PublicKey, StaticKey};
pub use plain::Plain;
pub use replay::WINDOW;
pub use session::Rotation;
pub use sessions::{NotReady, Opened, Sessions};
pub use transmit::{Destination, MAX_HANDSHAKE_BYTES, Transmit};
pub use wire::{
    COOKIE_DATAGRAM_BYTES, INITIATE_BYTES, PLAIN_FRONT_BYTES, RESPOND_BYTES, SEALED_BACK_BYTES,
    SEALED_FRONT_BYTES, VERSION, first_length,
};
