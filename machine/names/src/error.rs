//! Errors between a client and its store.

use std::io;
use std::path::PathBuf;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// An address that makes no sense.
    #[error(
        "`{given}` is not the address of a store of names: expected mapwire://HOST:PORT or etcd://HOST:PORT,HOST:PORT…"
    )]
    Address { given: String },
    /// This build lacks a feature.
    #[error(
        "this program was built without the feature `{feature}` of mapwire, which {what}: cargo add mapwire --features {feature}"
    )]
    NotBuilt { what: &'static str, feature: &'static str },
    #[error(
        "there is no secret at {}; copy it from a host that has it, as in `scp -p HOST:{} {}`, or make the first by `mapwire serve --new-secret`",
        path.display(), path.display(), path.display()
    )]
    NoSecret { path: PathBuf },
    /// The file of the secret must not be used.
    #[error("the secret {}: {why}", path.display())]
    Secret {
        path: PathBuf,
        /// What is wrong with it, and how to fix it.
        why: String,
    },
    /// The store does not answer.
    #[error(
        "nothing answers at {address}: {why}; is it right, and does `mapwire serve` or etcd run there and listen on an address that this host reaches?"
    )]
    Unreachable { address: String, why: String },
    /// The two sides have different secrets.
    #[error(
        "{address} has another secret; copy its file to this host: the server's user has it at ~/.config/mapwire/secret, or where --secret-file says"
    )]
    WrongSecret { address: String },
    /// The two sides speak different versions.
    #[error("the server at {address} is of mapwire {theirs}, and this is mapwire {ours}: use the same release")]
    Version { address: String, theirs: String, ours: String },
    /// Malformed answer of the store.
    #[error("{address} does not answer as a store of names does: {what}")]
    Protocol {
        address: String,
        /// What is wrong with it.
        what: String,
    },
    #[error("the lease at {address} has ended: the server was restarted, or did not hear from this host for 3 s")]
    NoLease { address: String },
    /// The store has no room.
    #[error("{address} takes no more: {what}")]
    Full { address: String, what: String },
    #[error("{call} failed")]
    Os { call: &'static str, source: io::Error },
}
