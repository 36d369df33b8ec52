//! What every launcher gives the ranks that it started.

use std::fmt;
use std::time::Duration;

use mapwire_transport::rendezvous::Secret;

use crate::LaunchError;

/// Longest value that a rank may put, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 16;

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 24;

/// News of other ranks that nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The rank ended abnormally: by a signal, a nonzero exit code, or an abort of its own.
    Failed(u32),
    /// The job is being ended, or the launcher is gone.
    Aborted,
}

/// A rank's connection to the launcher that started it.
///
/// Getters: [`protocol`](Self::protocol), [`rank`](Self::rank), [`size`](Self::size).
/// Exchange of values (the *modex*): [`put`](Self::put) own values, [`fence`](Self::fence) with all ranks,
/// [`get`](Self::get) those of others. [`poll_event`](Self::poll_event) never blocks. Dropping a launcher without
/// [`finish`](Self::finish) makes most launchers take the rank for failed when it exits.
///
/// What is in the modex can be read by every process that the launcher lets join, and by the launcher.
pub trait Launcher: fmt::Debug + Send {
    /// Protocol and version, for messages: "PMI-2".
    fn protocol(&self) -> &str;

    fn rank(&self) -> u32;

    /// Ranks in the job: at least 1.
    fn size(&self) -> u32;

    /// The job's secret, where all ranks know it without the exchange of values; `None` where one must put it.
    fn secret(&self) -> Option<Secret> {
        None
    }

    /// Makes `value` readable to all ranks after the next [`fence`](Self::fence), under this rank and `key`. Put
    /// a key once: what a second time does is up to the launcher. It holds 1 to [`MAX_KEY_BYTES`] ASCII letters, digits, `-` and `_`; a value has up to
    /// [`MAX_VALUE_BYTES`].
    ///
    /// # Errors
    /// [`LaunchError::Key`], [`LaunchError::TooLong`], or the launcher failed.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError>;

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    /// [`LaunchError::Timeout`], after which this connection can be used for [`abort`](Self::abort) only; or the launcher
    /// failed.
    fn fence(&mut self, timeout: Duration) -> Result<(), LaunchError>;

    /// The value that `rank` put under `key` before the last fence; `None` if it put none.
    ///
    /// # Errors
    /// [`LaunchError::NoRank`], [`LaunchError::Timeout`], or the launcher failed.
    fn get(&mut self, rank: u32, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, LaunchError>;

    /// The next event that waits. PMI-1 and PMI-2 tell only that the launcher is gone.
    fn poll_event(&mut self) -> Option<Event>;

    /// Asks the launcher to end all ranks with exit code `code`. It usually ends this process before the call returns.
    ///
    /// # Errors
    /// The launcher is gone.
    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError>;

    /// Leaves the job in order.
    ///
    /// # Errors
    /// The launcher does not answer in time, or is gone.
    fn finish(self: Box<Self>, timeout: Duration) -> Result<(), LaunchError>;
}

/// Checks a key against the rules of [`Launcher::put`].
pub(crate) fn check_key(key: &str) -> Result<(), LaunchError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if key.is_empty() || key.len() > MAX_KEY_BYTES || !key.bytes().all(is_allowed) {
        return Err(LaunchError::Key(key.chars().take(64).collect()));
    }
    Ok(())
}

pub(crate) fn check_put(key: &str, value: &[u8]) -> Result<(), LaunchError> {
    check_key(key)?;
    if value.len() > MAX_VALUE_BYTES {
        return Err(LaunchError::TooLong { key: key.into(), bytes: value.len() });
    }
    Ok(())
}

pub(crate) fn check_get(rank: u32, size: u32, key: &str) -> Result<(), LaunchError> {
    check_key(key)?;
    if rank >= size {
        return Err(LaunchError::NoRank { rank, size });
    }
    Ok(())
}
