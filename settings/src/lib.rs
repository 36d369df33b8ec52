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

pub use design::{DesignText, ParseDesignError, parse_design};
