//! Names for jobs that come and go: a small store of keys and values, each of which lasts as long as its lease.
//!
//! A [`Store`] is opened by its [`StoreAddress`]: `mapwire://host:port` is a server of `mapwire serve` (`server`), and `etcd://host:port`
//! is etcd, by the JSON gateway that it has since version 3.4. All users of one store share the file [`SharedSecret`]. Clients and the
//! server prove it to each other and seal their messages; with etcd, jobs sign their values by it.
//!
//! Without the feature `sealing` there are only the types: no secret is read, so no store is reached. etcd also needs the feature `etcd`.
//!
//! | module | holds |
//! |---|---|
//! | [`store`] | the interface of a store |
//! | [`address`] | its address |
//! | [`secret`] | the shared secret: its file, and the keys made from it |
//! | `protocol` | messages between clients and server |
//! | `channel` | the handshake, and sealed messages |
//! | `client`, `etcd` | the two implementations of [`Store`] |
//! | `server` | the server |

#![forbid(unsafe_code)]

pub mod address;
#[cfg(feature = "sealing")]
mod channel;
#[cfg(feature = "sealing")]
mod client;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "sealing")]
mod open;
#[cfg(feature = "sealing")]
pub mod protocol;
#[cfg_attr(not(feature = "sealing"), path = "unsealed.rs")]
pub mod secret;
#[cfg(feature = "sealing")]
pub mod server;
pub mod store;
mod usual;

pub use address::StoreAddress;
pub use error::NamesError;
#[cfg(feature = "sealing")]
pub use open::open;
#[cfg(not(feature = "sealing"))]
pub use secret::open;
pub use secret::{SharedSecret, SigningKey};
pub use store::{LEASE, LeaseId, Store};

/// Fills `bytes` from the operating system's entropy.
#[cfg(feature = "sealing")]
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), NamesError> {
    let os = |errno: rustix::io::Errno| NamesError::Os { call: "getrandom", source: errno.into() };
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags).map_err(os)?;
    }
    Ok(())
}
