//! What programs can do.

use core::fmt;

use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_wire::{Endpoint, ImportId, ProcessId, Signal};

use crate::cluster::Memory;
use crate::hardware::Ps;

/// A completion word of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    pub import: ImportId,
    pub offset: u64,
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Whether the receiver is notified.
    pub notify: bool,
    /// A word of the import that is set after the data.
    pub signal: Option<Signal>,
}

impl Send {
    /// A send from an address to an offset of an import.
    pub const fn new(import: ImportId, offset: u64, address: u64, length: u64) -> Self {
        Self { import, offset, address, length, notify: false, signal: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub import: ImportId,
    pub offset: u64,
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// What is called in the middle of a run.
pub type Call = Box<dyn FnOnce(&mut Node<AnyDesign>, &mut Memory, u64)>;

/// What a program does next. It goes on when that is over.
pub enum Do {
    /// Posts a send. Over when the command is in the NIC's memory; [`Moment::posted`] is then its completion word, if it is a long one.
    Send(Send),
    /// Posts a fetch, in the same way.
    Fetch(Fetch),
    /// Spins until a command is complete.
    Await(Word),
    /// Spins until the eight bytes at an address, little-endian, are at least so much.
    Watch {
        /// The first of them.
        address: u64,
        /// The least value.
        least: u64,
    },
    Compute(Ps, &'static str),
    Copy {
        from: u64,
        to: u64,
        bytes: u64,
    },
    /// Computes for so long, then calls the node: a service, or a set-up in the middle of a run.
    Call(Ps, Call),
    End,
}

impl fmt::Debug for Do {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(send) => send.fmt(f),
            Self::Fetch(fetch) => fetch.fmt(f),
            Self::Await(word) => word.fmt(f),
            Self::Watch { address, least } => write!(f, "Watch {address:#x} >= {least}"),
            Self::Compute(ps, label) => write!(f, "Compute {label} {ps}"),
            Self::Copy { from, to, bytes } => write!(f, "Copy {bytes} {from:#x} to {to:#x}"),
            Self::Call(ps, _) => write!(f, "Call {ps}"),
            Self::End => f.write_str("End"),
        }
    }
}

/// A program of a process.
///
/// ```
/// use mapwire_sim::computers::{Do, Moment, Program};
/// let mut rounds = 3;
/// let program = move |at: &mut Moment<'_>| {
///     at.mark(rounds);
///     rounds -= 1;
///     if rounds > 0 { Do::Compute(1_000_000, "computes") } else { Do::End }
/// };
/// fn takes(_: impl Program) {}
/// takes(program);
/// ```
pub trait Program {
    /// What it does next. Looking at memory, writing to it and marking cost nothing.
    fn next(&mut self, at: &mut Moment<'_>) -> Do;
}

impl<F: FnMut(&mut Moment<'_>) -> Do> Program for F {
    fn next(&mut self, at: &mut Moment<'_>) -> Do {
        self(at)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub at_ps: Ps,
    pub of: Endpoint,
    pub number: u64,
}

/// The moment at which a program chooses what to do.
#[derive(Debug)]
pub struct Moment<'a> {
    pub(super) now_ps: Ps,
    pub(super) of: Endpoint,
    pub(super) posted: Option<Word>,
    pub(super) memory: &'a mut Memory,
    pub(super) marks: &'a mut Vec<Mark>,
}

impl Moment<'_> {
    pub fn now_ps(&self) -> Ps {
        self.now_ps
    }

    /// The completion word of the command that was just posted; none for a short send, which is complete when it is posted.
    pub fn posted(&self) -> Option<Word> {
        self.posted
    }

    /// Notes the time under a number.
    pub fn mark(&mut self, number: u64) {
        self.marks.push(Mark { at_ps: self.now_ps, of: self.of, number });
    }

    /// Writes memory of the process.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        self.memory.write(self.of.process.0, address, bytes);
    }

    /// Reads memory of the process.
    pub fn read(&mut self, address: u64, into: &mut [u8]) {
        self.memory.read(self.of.process.0, address, into);
    }

    /// The eight bytes at an address, little-endian.
    pub fn word(&mut self, address: u64) -> u64 {
        word(self.memory, self.of.process, address)
    }
}

pub(super) fn word(memory: &mut Memory, process: ProcessId, address: u64) -> u64 {
    let mut bytes = [0; 8];
    memory.read(process.0, address, &mut bytes);
    u64::from_le_bytes(bytes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing: it runs, or waits for a processor.
    Nothing,
    Word(Word),
    Watch {
        address: u64,
        least: u64,
    },
    Ended,
}

/// What happens when the step in progress is over.
pub(super) enum After {
    Nothing,
    /// The command gets into the NIC's memory.
    Post(super::nic::Command),
    Copy {
        from: u64,
        to: u64,
        bytes: u64,
    },
    Call(Call),
}

/// A program and how far it is.
pub(super) struct Runner {
    pub(super) of: Endpoint,
    pub(super) program: Box<dyn Program>,
    pub(super) wait: Wait,
    pub(super) posted: Option<Word>,
    pub(super) after: After,
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
