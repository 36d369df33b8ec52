//! How settings are written, on command lines, in variables and in files: sizes ([`size`]), and translation designs with their shape
//! ([`parse_design`]).
//!
//! The programs' library, the command and the laboratory read them by this crate. The firmware knows the values, and not the words.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod design;
pub mod far;
pub mod size;

/// The variable that says where a node's part of the page directory of global memory is.
pub const DIRECTORY: &str = "MAPWIRE_DIRECTORY";

/// How ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By shared memory.
    Shm,
    /// By UDP, as if each were on a host of its own.
    Udp,
    /// The same, by libfabric.
    Ofi,
}

impl Transport {
    /// The meaning of a text that is valid: `shm`, `udp`, `ofi` or `ofi:PROVIDER`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        match text {
            "udp" => Self::Udp,
            text if text.starts_with("ofi") => Self::Ofi,
            _ => Self::Shm,
        }
    }
}

pub use design::{DesignText, ParseDesignError, parse_design};
