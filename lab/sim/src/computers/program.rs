//! What programs can do.

use core::fmt;

use mapwire_wire::{Endpoint, ImportId};

use crate::hardware::Ps;
use crate::hardware::processors::ThreadId;

/// A send from an address to an offset of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    pub import: ImportId,
    pub offset: u64,
    pub address: u64,
    pub bytes: u64,
}

/// A step of a program, which goes on when that is over. A program is a sequence of steps.
///
/// ```
/// use mapwire_sim::computers::Do;
/// let program = (0..3).flat_map(|round| [Do::Mark(round), Do::Compute(1_000_000, "computes")]);
/// fn takes(_: impl Iterator<Item = Do>) {}
/// takes(program);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do {
    /// Posts a send. Over when the command is in the NIC's memory.
    Send(Send),
    /// Spins until no more than so many of the sends that it has posted are incomplete. Short ones are complete when they are posted.
    Await(usize),
    /// Spins until the eight bytes at an address, little-endian, are at least so much.
    Watch {
        address: u64,
        least: u64,
    },
    Compute(Ps, &'static str),
    Copy {
        from: u64,
        to: u64,
        bytes: u64,
    },
    /// Writes eight bytes to an address, little-endian, at no cost.
    Write(u64, u64),
    /// Notes the time under a number, at no cost.
    Mark(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub at_ps: Ps,
    pub of: Endpoint,
    pub number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// It runs, or waits for a processor.
    Nothing,
    Word(u32),
    Watch {
        address: u64,
        least: u64,
    },
    Ended,
}

/// What happens when the step in progress is over.
#[derive(Debug)]
pub(super) enum After {
    Nothing,
    /// The command gets into the NIC's memory.
    Post(super::nic::Posted),
    Copy {
        from: u64,
        to: u64,
        bytes: u64,
    },
}

/// A program and how far it is.
pub(super) struct Runner {
    pub(super) of: Endpoint,
    pub(super) thread: ThreadId,
    pub(super) program: Box<dyn Iterator<Item = Do>>,
    /// A step that is not over yet.
    pub(super) again: Option<Do>,
    pub(super) wait: Wait,
    /// What it has a processor for, and since when it has wanted one.
    pub(super) step: (&'static str, Ps),
    pub(super) after: After,
    /// Completion words of the sends that it has not awaited, in order.
    pub(super) posted: Vec<u32>,
    /// Completion words that a command has.
    pub(super) taken: Vec<bool>,
    /// Of those, the complete ones.
    pub(super) complete: Vec<bool>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("of", &self.of).field("wait", &self.wait).finish_non_exhaustive()
    }
}
