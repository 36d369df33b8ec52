//! Sessions between two nodes: handshakes, sealed datagrams, and what strangers, liars and bad networks do to them.

#![allow(missing_docs)]

mod attacks;
mod data;
mod golden;
mod handshakes;
mod networks;
mod world;
