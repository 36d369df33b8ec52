//! What this computer provides to mapwire: memory that other processes can map, pages that stay in place, several views of the same
//! memory, page faults, and ways of waiting.
//!
//! | module | gives |
//! |---|---|
//! | [`memory`] | buffers that a peer of the same host can map, and raw copies into memory |
//! | [`mapping`] | ranges of address space, and words in them |
//! | [`pinning`] | pages made usable by the NIC and released, under the limits of this computer |
//! | [`views`] | one memory at several addresses (MultiView), each with a protection of its own |
//! | [`faults`] | the protection of those views, and the handler that their page faults reach |
//! | [`descriptors`] | descriptors above the standard streams |
//! | [`barrier`] | a fence between processes that one side pays for both |
//! | [`masking`] | blocking the program's signal handlers in a thread for a while |
//! | [`waiting`] | polling, sleeping, or first the one and then the other |
//! | [`scheduling`] | how soon a woken thread runs |
//! | [`private_folder`] | a folder that no other user can reach into, and the files in it |
//! | [`processes`] | parents of processes, and owners of objects across forks |
//! | [`own_words`] | words that a forked child finds zero |
//! | [`log_limit`] | limits log lines that others can cause without end |
//! | [`exiting`] | actions when the process exits |
//! | [`stderr`] | lines on standard error, which may have no reader |
//! | [`choice`] | settings that are one of a few words |
//! | [`limits`] | what this computer allows, for `mapwire doctor` and for error messages |
//!
//! Linux only, on x86_64 and aarch64. Nothing here needs privileges, but some things need limits or settings; an error names the one in
//! the way and how to change it.
//!
//! `unsafe` is denied except in the modules that talk to the kernel or touch shared memory.
#![deny(unsafe_code)]

pub mod barrier;
pub mod choice;
pub mod descriptors;
#[allow(unsafe_code)]
pub mod exiting;
pub mod faults;
pub mod limits;
pub mod log_limit;
#[allow(unsafe_code)]
pub mod mapping;
#[allow(unsafe_code)]
pub mod masking;
pub mod memory;
#[allow(unsafe_code)]
pub mod own_words;
pub mod page;
pub mod pinning;
pub mod private_folder;
pub mod processes;
#[allow(unsafe_code)]
pub mod scheduling;
pub mod stderr;
pub mod views;
pub mod waiting;

mod errno;
mod maps;
#[allow(unsafe_code)]
mod procmap;

#[cfg(test)]
mod tests;
#[cfg(test)]
use tests::testing;
