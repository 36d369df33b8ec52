//! The firmware of several nodes joined in one process. One program: it is built and linked once.

mod attack;
mod chunks;
mod flushes;
mod hostile_peers;
mod hostile_processes;
mod leaving;
mod links;
mod memory;
mod misses;
mod sharing;
mod steady;
mod traffic;
mod transfers;
mod world;
