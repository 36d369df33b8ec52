//! What can go wrong with libfabric.

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
    NotInstalled {
        /// What the loader says.
        reason: String,
    },
    /// No provider of this name has what a transport needs.
    #[error(
        "libfabric has no provider `{provider}` with reliable, ordered endpoints{}; there are: {}",
        source_address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default(),
        if found.is_empty() { "none".to_owned() } else { found.join(", ") }
    )]
    NoProvider {
        /// The name asked for.
        provider: String,
        /// The address of this host asked for.
        source_address: Option<String>,
        /// Providers that there are.
        found: Vec<String>,
    },
    /// The provider's messages are too short.
    #[error("provider `{provider}` sends {max_bytes} bytes at most; {needed_bytes} are needed")]
    ShortMessages {
        /// The provider.
        provider: String,
        /// Its longest message.
        max_bytes: usize,
        /// The longest that a transport sends.
        needed_bytes: usize,
    },
    /// A call failed.
    #[error("{call}: {text} (error {code})")]
    Call {
        /// The call.
        call: &'static str,
        /// The library's number.
        code: c_int,
        /// What it means.
        text: String,
    },
    /// What a peer says of itself is no name of an endpoint that this one can reach.
    #[error("bad name of a libfabric endpoint: {0}")]
    BadName(&'static str),
}

impl OfiError {
    #[cold]
    pub(super) fn call(library: &Library, call: &'static str, code: c_int) -> Self {
        Self::Call { call, code, text: library.error_text(code) }
    }
}
