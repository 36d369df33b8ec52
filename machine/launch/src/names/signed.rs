//! A store whose values are signed: each begins with a code that binds it to its key.

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

/// A signed value of this process, and the lease that it is attached to.
#[derive(Debug)]
struct Notice {
    key: String,
    value: String,
    lease: LeaseId,
}

/// Signed values of this process, which go when this is dropped or they are not [kept](Self::keep) for some seconds; and those
/// of others that have the same secret.
#[derive(Debug)]
pub(super) struct Notices {
    store: Box<dyn Store>,
    signing: SigningKey,
    posted: Vec<Notice>,
}

impl Notices {
    /// Opens the store for values of one `purpose`, which its own key signs.
    pub(super) fn open(address: &StoreAddress, shared: &SharedSecret, purpose: &str) -> Result<Self, LaunchError> {
        let store = mapwire_names::open(address, shared)?;
        Ok(Self { store, signing: shared.signing_key(purpose, &[]), posted: Vec::new() })
    }

    /// Posts keys with their values under one new lease.
    pub(super) fn post(&mut self, all: impl IntoIterator<Item = (String, String)>) -> Result<(), LaunchError> {
        let lease = self.store.grant()?;
        for (key, value) in all {
            self.posted.push(Notice { key, value, lease });
            let created = self.create(self.posted.len() - 1, lease);
            if created.is_err() {
                self.posted.pop();
                return created;
            }
        }
        Ok(())
    }

    fn create(&mut self, at: usize, lease: LeaseId) -> Result<(), LaunchError> {
        let Notice { key, value, .. } = &self.posted[at];
        create(&mut *self.store, &self.signing, key, value.as_bytes(), lease).map(drop)
    }

    /// Posts `value` under those of `keys` that are not posted, each with a lease of its own, and withdraws all others.
    pub(super) fn set(&mut self, keys: &[String], value: &str) -> Result<(), LaunchError> {
        while let Some(at) = self.posted.iter().position(|it| !keys.contains(&it.key)) {
            self.store.revoke(self.posted[at].lease)?;
            self.posted.remove(at);
        }
        for key in keys {
            if !self.posted.iter().any(|it| it.key == *key) {
                self.post([(key.clone(), value.to_owned())])?;
            }
        }
        Ok(())
    }

    /// Keeps all posted values alive, and posts again those that the store has lost.
    pub(super) fn keep(&mut self) -> Result<(), LaunchError> {
        for at in 0..self.posted.len() {
            if !self.store.keep(self.posted[at].lease)? {
                let lease = self.store.grant()?;
                self.create(at, lease)?;
                self.posted[at].lease = lease;
            }
        }
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
        let mut leases: Vec<LeaseId> = self.posted.iter().map(|it| it.lease).collect();
        leases.dedup();
        for lease in leases {
            // Else the lease ends by itself.
            let _ = self.store.revoke(lease);
        }
    }
}
