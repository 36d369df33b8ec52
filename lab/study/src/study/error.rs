//! What a study fails by, and with which engines it is tried again.

use mapwire_translation::CacheError;

use super::limit;
use crate::config::Configuration;
use crate::decode::{DecodeError, Totals};
use crate::replay::ReplayError;

/// Which fast engines may be used. What a trace does decides: one is tried, and says so if it does not suit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Sets have few enough lines that short keys tell them apart.
    pub keys: bool,
    /// Lines of several pages, of which each is pinned by an operation of its own: not if pages are exported.
    pub lines_of_pages: bool,
    /// Limits on pinned pages, where no page is held for long: not if pages are exported.
    pub limits: bool,
    /// Interrupts: not if there are receives, which go by a table of their own.
    pub interrupts: bool,
    /// Lines that the host fills whole on a miss: not if some memory is absent.
    pub whole_lines: bool,
}

impl Allowed {
    pub const ALL: Allowed =
        Allowed { keys: true, lines_of_pages: true, limits: true, interrupts: true, whole_lines: true };
    pub const NONE: Allowed =
        Allowed { keys: false, lines_of_pages: false, limits: false, interrupts: false, whole_lines: false };

    /// What a group says that needs less to be allowed.
    pub(super) fn less(mut self, change: impl FnOnce(&mut Self)) -> StudyError {
        change(&mut self);
        StudyError::Again(self)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("{configuration}: {cause}")]
    Cache { configuration: Box<Configuration>, cause: CacheError },
    #[error("{configuration} cannot be studied on node {node}: {reason}")]
    Configuration { configuration: Box<Configuration>, node: u16, reason: String },
    #[error(
        "it uses pages more than {most} times, and the optimum keeps the next use of each in memory (4 bytes); leave `optimum` out of --policy"
    )]
    TooLong { most: u64 },
    #[error("the trace needs slower engines")]
    Again(Allowed),
}

impl StudyError {
    /// What ended the replay of a configuration on a node with these totals.
    pub(super) fn replayed(configuration: Configuration, node: u16, error: &ReplayError, totals: &Totals) -> Self {
        let reason = limit::reason(&configuration, error, totals);
        StudyError::Configuration { configuration: Box::new(configuration), node, reason }
    }
}
