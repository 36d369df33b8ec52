//! A store whose values are signed: behind the code of a value, which binds it to its key, stands the value.

use mapwire_names::{LeaseId, SigningKey, Store};

use crate::LaunchError;

const CODE_BYTES: usize = 32;

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

/// The value of `key`, if it is signed.
///
/// # Errors
/// [`LaunchError::Forged`].
pub(super) fn get(store: &mut dyn Store, signing: &SigningKey, key: &str) -> Result<Option<Vec<u8>>, LaunchError> {
    match store.get(key)? {
        None => Ok(None),
        Some(signed) => open(store, signing, key, &signed).map(|value| Some(value.to_vec())),
    }
}

/// The keys below `prefix`, without it, and their values, if all are signed.
///
/// # Errors
/// [`LaunchError::Forged`].
pub(super) fn list(
    store: &mut dyn Store,
    signing: &SigningKey,
    prefix: &str,
) -> Result<Vec<(String, Vec<u8>)>, LaunchError> {
    let found = store.list(prefix)?;
    let opened = found.into_iter().map(|(key, signed)| {
        let value = open(store, signing, &key, &signed)?.to_vec();
        Ok((key.strip_prefix(prefix).unwrap_or(&key).to_owned(), value))
    });
    opened.collect()
}

fn open<'a>(store: &dyn Store, signing: &SigningKey, key: &str, signed: &'a [u8]) -> Result<&'a [u8], LaunchError> {
    match signed.split_first_chunk::<CODE_BYTES>() {
        Some((code, value)) if signing.verifies(&[key.as_bytes(), value], code) => Ok(value),
        _ => Err(LaunchError::Forged { address: store.address().to_string(), key: key.into() }),
    }
}
