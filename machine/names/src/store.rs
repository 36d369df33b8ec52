//! The interface of a store of names.

use std::fmt;
use std::time::Duration;

use crate::{NamesError, StoreAddress};

/// Lifetime of a lease after it was granted or kept.
pub const LEASE: Duration = Duration::from_secs(3);

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// Longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = (1 << 16) + 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// Keys and values, each attached to a lease. A value never changes: it is created, and ends with its lease.
///
/// A call takes a few seconds at most; it then fails with [`NamesError::Unreachable`].
pub trait Store: fmt::Debug + Send {
    /// Address of the store, for messages.
    fn address(&self) -> &StoreAddress;

    /// Grants a lease for [`LEASE`].
    ///
    /// # Errors
    /// The store cannot be reached, or has no room.
    fn grant(&mut self) -> Result<LeaseId, NamesError>;

    /// Extends a lease to [`LEASE`] from now. `false`: it does not exist, or no longer.
    ///
    /// # Errors
    /// The store cannot be reached.
    fn keep(&mut self, lease: LeaseId) -> Result<bool, NamesError>;

    /// Ends a lease, and removes all its keys at once. A lease that has ended already is not an error.
    ///
    /// # Errors
    /// The store cannot be reached.
    fn revoke(&mut self, lease: LeaseId) -> Result<(), NamesError>;

    /// Creates `key` with `value` under `lease`, if it is absent. Returns whether `key` now has this value, so a call that is repeated
    /// because its answer was lost succeeds.
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

    /// Number of keys that begin with `prefix`.
    ///
    /// # Errors
    /// The store cannot be reached.
    fn count(&mut self, prefix: &str) -> Result<u64, NamesError>;
}
