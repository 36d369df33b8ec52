//! Ids and keys that a driver gives.

use mapwire_wire::{Key, ProcessId};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::DriverError;

/// The process of a NIC that serves one.
pub(crate) const PROCESS: ProcessId = ProcessId(0);

/// A key from the operating system's entropy.
pub(crate) fn job_key() -> Result<Key, DriverError> {
    let mut key = Key::ZERO;
    // Up to 256 bytes come whole.
    let filled = retry_on_intr(|| getrandom(&mut key.0, GetRandomFlags::empty()));
    filled.map_err(|errno| DriverError::Entropy(errno.into()))?;
    Ok(key)
}
