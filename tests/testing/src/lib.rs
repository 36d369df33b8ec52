//! What the tests of several crates need:
//!
//! | item | for |
//! |---|---|
//! | [`skip!`] | a test that cannot run here, or leaves a part out |
//! | [`OpenFolder`] | what another user runs |
//! | [`namespaces`] | hosts that are network namespaces |
//! | [`children`] | processes with reduced rights |
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod children;
pub mod namespaces;
mod open_folder;
mod skipping;

pub use open_folder::OpenFolder;
pub use skipping::{SKIPPED_TESTS, skip};

/// Reports that the calling test leaves something out, and why, in the words of [`format!`]. The test returns by itself.
#[macro_export]
macro_rules! skip {
    ($($text:tt)*) => { $crate::skip(&format!($($text)*)) };
}
