//! Errors of libfabric.

use core::ffi::c_int;

use super::sys::Library;

/// Why libfabric cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfiError {
    /// The library cannot be loaded.
    #[error(
        "libfabric is not installed here ({reason}): install it (Debian: apt-get install libfabric1 libfabric-bin) or use another transport"
    )]
    NotInstalled { reason: String },
    /// No provider of this name has what a transport needs.
    #[error(
        "libfabric has no provider `{provider}` with reliable, ordered endpoints{}; there are: {}",
        source_address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default(),
        if found.is_empty() { "none".to_owned() } else { found.join(", ") }
    )]
    NoProvider {
        provider: String,
        /// The address of this host asked for.
        source_address: Option<String>,
        found: Vec<String>,
    },
    /// The provider's messages are too short.
    #[error("provider `{provider}` sends {max_bytes} bytes at most; {needed_bytes} are needed")]
    ShortMessages {
        provider: String,
        max_bytes: usize,
        /// The longest that a transport sends.
        needed_bytes: usize,
    },
    #[error("{call}: {text} (error {code})")]
    Call { call: &'static str, code: c_int, text: String },
    /// A peer's name is malformed, or names an endpoint that this one cannot reach.
    #[error("bad name of a libfabric endpoint: {0}")]
    BadName(&'static str),
}

impl OfiError {
    #[cold]
    pub(super) fn call(library: &Library, call: &'static str, code: c_int) -> Self {
        Self::Call { call, code, text: library.error_text(code) }
    }
}
