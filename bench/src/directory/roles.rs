//! What all ranks of the job know.

use std::time::Duration;

/// The ranks by their roles, besides rank 0, which asks.
pub(super) const OWNER: u16 = 1;
pub(super) const STORING: u16 = 2;

/// Pages that are stored and listed at the owner.
pub(super) const PAGES: u32 = 2048;

/// How long anything may take but a measurement.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
