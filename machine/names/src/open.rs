//! A store, by its address.

use crate::client::Client;
#[cfg(feature = "etcd")]
use crate::etcd::Etcd;
use crate::{NamesError, SharedSecret, Store, StoreAddress};

/// Opens the store at `address`. Connects on first use.
///
/// # Errors
/// [`NamesError::NotBuilt`]: this build has no etcd client.
pub fn open(address: &StoreAddress, secret: &SharedSecret) -> Result<Box<dyn Store>, NamesError> {
    match address {
        StoreAddress::Server(_) => Ok(Box::new(Client::new(address.clone(), secret))),
        #[cfg(feature = "etcd")]
        StoreAddress::Etcd(members) => Ok(Box::new(Etcd::new(address.clone(), members))),
        #[cfg(not(feature = "etcd"))]
        StoreAddress::Etcd(_) => Err(NamesError::NotBuilt { what: "etcd takes", feature: "etcd" }),
    }
}
