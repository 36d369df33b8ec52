//! What can go wrong between a client and its store.

use std::io;
use std::path::PathBuf;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// An address that makes no sense.
    #[error(
        "`{given}` is not the address of a store of names: expected mapwire://HOST:PORT or etcd://HOST:PORT,HOST:PORT…"
    )]
    Address {
        /// What was given.
        given: String,
    },
    /// This build cannot do it.
    #[error(
        "this program was built without the feature `{feature}` of mapwire, which {what}: cargo add mapwire --features {feature}"
    )]
    NotBuilt {
        /// What was wanted.
        what: &'static str,
        /// The feature.
        feature: &'static str,
    },
    /// There is no secret.
    #[error(
        "there is no secret at {}; copy it from a host that has it, as in `scp -p HOST:{} {}`, or make the first by `mapwire serve --new-secret`",
        path.display(), path.display(), path.display()
    )]
    NoSecret {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file of the secret must not be used.
    #[error("the secret {}: {why}", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and how to mend it.
        why: String,
    },
    /// Nothing answers.
    #[error(
        "nothing answers at {address}: {why}; is it right, and does `mapwire serve` or etcd run there and listen on an address that this host reaches?"
    )]
    Unreachable {
        /// The store.
        address: String,
        /// What happened.
        why: String,
    },
    /// The two sides have different secrets.
    #[error(
        "{address} has another secret; copy its file to this host: the server's user has it at ~/.config/mapwire/secret, or where --secret-file says"
    )]
    WrongSecret {
        /// The store.
        address: String,
    },
    /// The two sides speak different versions.
    #[error("the server at {address} is of mapwire {theirs}, and this is mapwire {ours}: use the same release")]
    Version {
        /// The store.
        address: String,
        /// The server's release.
        theirs: String,
        /// This release.
        ours: String,
    },
    /// What the store answers makes no sense.
    #[error("{address} does not answer as a store of names does: {what}")]
    Protocol {
        /// The store.
        address: String,
        /// What was wrong.
        what: String,
    },
    /// The lease has ended.
    #[error("the lease at {address} has ended: the server was restarted, or did not hear from this host for 3 s")]
    NoLease {
        /// The store.
        address: String,
    },
    /// The store has no room.
    #[error("{address} takes no more: {what}")]
    Full {
        /// The store.
        address: String,
        /// Which limit is reached.
        what: String,
    },
    /// The kernel refused.
    #[error("{call} failed")]
    Os {
        /// The system call.
        call: &'static str,
        /// What it answered.
        source: io::Error,
    },
}
