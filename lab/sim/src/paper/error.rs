//! Why a paper's machine cannot be run.

use thiserror::Error;

use crate::computers::ComputersError;
use crate::directory::MachineError;
use crate::hosts::{CapturedError, HostsError};

/// Why a paper's machine cannot be run.
#[derive(Debug, Error)]
pub enum PaperError {
    /// A machine that runs global memory.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Computers that run whole nodes.
    #[error(transparent)]
    Computers(#[from] ComputersError),
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// A trace of the chapter cannot be read.
    #[error(transparent)]
    Trace(#[from] mapwire_trace::ReadError),
    /// A trace of the chapter cannot be replayed.
    #[error(transparent)]
    Captured(#[from] CapturedError),
    /// A translation cache that cannot be built.
    #[error(transparent)]
    Cache(#[from] mapwire_translation::CacheError),
    #[error(
        "invalid row size for `{paper}`: its machine has no page directory; leave the row size out, or run `gms-np`"
    )]
    NoRows { paper: &'static str },
}
