//! Sessions between two nodes: handshakes, sealed datagrams, and the effects of outsiders, liars and bad networks.

mod attacks;
mod data;
mod golden;
mod handshakes;
mod networks;
mod world;
