//! Nodes joined by a wire that loses nothing: what they promise to programs, to services and to each other.

#[path = "../../../../tests/allocations.rs"]
mod allocations;

mod confined;
mod counter;
mod lazy;
mod processes;
mod quotas;
mod sets;
mod sharing;
mod world;
