//! A store whose values are signed: behind the code of a value, which binds it to its key, stands the value.

use mapwire_names::{LeaseId, SharedSecret, SigningKey, Store, StoreAddress};

use crate::LaunchError;

const CODE_BYTES: usize = 32;

/// Keys and what stands under them.
type Listed<V> = Vec<(String, V)>;

/// Creates `key` with a signed value, as [`Store::create`].
pub(super) fn create(
    store: &mut dyn Store,
    signing: &SigningKey,
    key: &str,
    value: &[u8],
    lease: LeaseId,
) -> Result<bool, LaunchError> {
    let signed = [&signing.code(&[key.as_bytes(), value])[..], value].concat();
    Ok(store.create(key, &signed, lease)?)
}

/// The value of `key`; [`LaunchError::Forged`] if it is not signed.
pub(super) fn get(store: &mut dyn Store, signing: &SigningKey, key: &str) -> Result<Option<Vec<u8>>, LaunchError> {
    match store.get(key)? {
        None => Ok(None),
        Some(signed) => open(signing, key, &signed).map(Some).ok_or_else(|| forged(store, key)),
    }
}

/// The keys below `prefix`, without it, and their values; [`LaunchError::Forged`] if one is not signed.
pub(super) fn list(store: &mut dyn Store, signing: &SigningKey, prefix: &str) -> Result<Listed<Vec<u8>>, LaunchError> {
    let found = list_any(store, signing, prefix)?.into_iter();
    let opened = found.map(|(key, value)| match value {
        Some(value) => Ok((key, value)),
        None => Err(forged(store, &format!("{prefix}{key}"))),
    });
    opened.collect()
}

/// [`list`], with `None` for values that are not signed.
pub(super) fn list_any(
    store: &mut dyn Store,
    signing: &SigningKey,
    prefix: &str,
) -> Result<Listed<Option<Vec<u8>>>, LaunchError> {
    let found = store.list(prefix)?.into_iter();
    let opened = found.map(|(key, signed)| {
        let value = open(signing, &key, &signed);
        (key.strip_prefix(prefix).unwrap_or(&key).to_owned(), value)
    });
    Ok(opened.collect())
}

fn open(signing: &SigningKey, key: &str, signed: &[u8]) -> Option<Vec<u8>> {
    let (code, value) = signed.split_first_chunk::<CODE_BYTES>()?;
    signing.verifies(&[key.as_bytes(), value], code).then(|| value.to_vec())
}

fn forged(store: &dyn Store, key: &str) -> LaunchError {
    LaunchError::Forged { address: store.address().to_string(), key: key.into() }
}

/// Signed values of this process, which go when this is dropped or their leases are not [kept](Self::keep) for some seconds; and those
/// of others that have the same secret.
#[derive(Debug)]
pub(super) struct Notices {
    store: Box<dyn Store>,
    signing: SigningKey,
    leases: Vec<LeaseId>,
}

impl Notices {
    /// Opens the store for values of one `purpose`, which its own key signs.
    pub(super) fn open(address: &StoreAddress, shared: &SharedSecret, purpose: &str) -> Result<Self, LaunchError> {
        let store = mapwire_names::open(address, shared)?;
        Ok(Self { store, signing: shared.signing_key(purpose, &[]), leases: Vec::new() })
    }

    pub(super) fn grant(&mut self) -> Result<LeaseId, LaunchError> {
        let lease = self.store.grant()?;
        self.leases.push(lease);
        Ok(lease)
    }

    pub(super) fn post(&mut self, key: &str, value: &str, lease: LeaseId) -> Result<(), LaunchError> {
        create(&mut *self.store, &self.signing, key, value.as_bytes(), lease).map(drop)
    }

    /// Lets a lease last; `false` if the store has forgotten it and what was posted under it.
    pub(super) fn keep(&mut self, lease: LeaseId) -> Result<bool, LaunchError> {
        let is_kept = self.store.keep(lease)?;
        self.leases.retain(|it| is_kept || *it != lease);
        Ok(is_kept)
    }

    pub(super) fn withdraw(&mut self, lease: LeaseId) -> Result<(), LaunchError> {
        self.store.revoke(lease)?;
        self.leases.retain(|it| *it != lease);
        Ok(())
    }

    /// What is posted below `prefix`: keys without it, and values. Leaves out what is not signed by the secret.
    pub(super) fn list(&mut self, prefix: &str) -> Result<Listed<Vec<u8>>, LaunchError> {
        let found = list_any(&mut *self.store, &self.signing, prefix)?.into_iter();
        Ok(found.filter_map(|(key, value)| Some((key, value?))).collect())
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        for lease in std::mem::take(&mut self.leases) {
            // Else the lease ends by itself.
            let _ = self.store.revoke(lease);
        }
    }
}
