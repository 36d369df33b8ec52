//! What a store of names does.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "sealing")]
use crate::SharedSecret;
#[cfg(feature = "sealing")]
use crate::client::Client;
#[cfg(feature = "etcd")]
use crate::etcd::Etcd;
use crate::{NamesError, StoreAddress};

/// How long a lease lasts after it was granted or kept.
pub const LEASE: Duration = Duration::from_secs(3);

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// Longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = (1 << 16) + 256;

/// Names a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// Keys and values, each attached to a lease. A value never changes: it is created, and goes with its lease.
///
/// A call takes some seconds at most; it then fails with [`NamesError::Unreachable`].
pub trait Store: fmt::Debug + Send {
    /// Where it is, for messages.
    fn address(&self) -> &StoreAddress;

    /// Grants a lease that lasts for [`LEASE`].
    ///
    /// # Errors
    /// The store cannot be reached, or has no room.
    fn grant(&mut self) -> Result<LeaseId, NamesError>;

    /// Lets a lease last for [`LEASE`] from now. `false`: there is no such lease, or no longer.
    ///
    /// # Errors
    /// The store cannot be reached.
    fn keep(&mut self, lease: LeaseId) -> Result<bool, NamesError>;

    /// Ends a lease, and removes at once all that is attached to it. One that has ended is no error.
    ///
    /// # Errors
    /// The store cannot be reached.
    fn revoke(&mut self, lease: LeaseId) -> Result<(), NamesError>;

    /// Creates `key` with `value` under `lease`, if it is absent. Whether `key` now has this value: `false` if it has another one. So
    /// a call that is repeated because its answer was lost succeeds.
    ///
    /// # Errors
    /// [`NamesError::NoLease`]; the store cannot be reached, or has no room.
    fn create(&mut self, key: &str, value: &[u8], lease: LeaseId) -> Result<bool, NamesError>;

    /// The value of `key`.
    ///
    /// # Errors
    /// The store cannot be reached.
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, NamesError>;

    /// All keys that begin with `prefix`, ascending, with their values.
    ///
    /// # Errors
    /// The store cannot be reached.
    fn list(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, NamesError>;

    /// How many keys begin with `prefix`.
    ///
    /// # Errors
    /// The store cannot be reached.
    fn count(&mut self, prefix: &str) -> Result<u64, NamesError>;
}

/// The store at `address`. Connects when it is first used.
///
/// # Errors
/// [`NamesError::NotBuilt`]: this build has no client of etcd.
#[cfg(feature = "sealing")]
pub fn open(address: &StoreAddress, secret: &SharedSecret) -> Result<Box<dyn Store>, NamesError> {
    match address {
        StoreAddress::Server(_) => Ok(Box::new(Client::new(address.clone(), secret))),
        #[cfg(feature = "etcd")]
        StoreAddress::Etcd(members) => Ok(Box::new(Etcd::new(address.clone(), members))),
        #[cfg(not(feature = "etcd"))]
        StoreAddress::Etcd(_) => Err(NamesError::NotBuilt { what: "etcd takes", feature: "etcd" }),
    }
}
