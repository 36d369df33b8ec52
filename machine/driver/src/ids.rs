//! Ids and keys that a driver gives.

use mapwire_wire::{HandlerId, Key, ProcessId};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::DriverError;

/// The process of a NIC that serves one.
pub(crate) const PROCESS: ProcessId = ProcessId(0);

/// Handler of the shared memory's messages.
pub(crate) const SHARED_HANDLER: HandlerId = HandlerId(1);

/// The first handler id that programs may give to services of their own.
pub(crate) const FIRST_FREE_HANDLER: u32 = 16;

/// A key from the operating system's entropy.
pub(crate) fn job_key() -> Result<Key, DriverError> {
    let mut key = Key::ZERO;
    // Up to 256 bytes come whole.
    let filled = retry_on_intr(|| getrandom(&mut key.0, GetRandomFlags::empty()));
    filled.map_err(|errno| DriverError::Entropy(errno.into()))?;
    Ok(key)
}
