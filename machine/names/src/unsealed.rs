//! Replaces the secret in builds without the feature `sealing`: nobody has one, so nobody reaches a store.

use std::convert::Infallible;
use std::path::Path;

pub use crate::usual::usual_path;
use crate::{NamesError, Store, StoreAddress};

/// Cannot be constructed.
#[derive(Clone, Debug)]
pub struct SharedSecret(Infallible);

/// Cannot be constructed.
#[derive(Clone, Debug)]
pub struct SigningKey(Infallible);

impl SharedSecret {
    /// Always fails.
    ///
    /// # Errors
    /// [`NamesError::NotBuilt`].
    pub fn read(_: &Path) -> Result<Self, NamesError> {
        Err(NamesError::NotBuilt { what: "jobs and servers that meet by a name take", feature: "sealing" })
    }

    #[must_use]
    pub fn derive(&self, _: &str, _: &[&[u8]]) -> [u8; 32] {
        match self.0 {}
    }

    #[must_use]
    pub fn signing_key(&self, _: &str, _: &[&[u8]]) -> SigningKey {
        match self.0 {}
    }
}

impl SigningKey {
    #[must_use]
    pub fn code(&self, _: &[&[u8]]) -> [u8; 32] {
        match self.0 {}
    }

    #[must_use]
    pub fn verifies(&self, _: &[&[u8]], _: &[u8; 32]) -> bool {
        match self.0 {}
    }
}

/// Never called.
///
/// # Errors
/// None.
pub fn open(_: &StoreAddress, secret: &SharedSecret) -> Result<Box<dyn Store>, NamesError> {
    match secret.0 {}
}
