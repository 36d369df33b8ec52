//! Each completion word of a command is told once, and none that was not submitted.

use mapwire_wire::{Endpoint, ImportId};

use super::forgery::{self, Misuse};
use super::{Violation, violation};

/// What a command with a completion word does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Send,
    /// A fetch of bytes that its export keeps as they are.
    Fetch {
        /// First byte, counted from the start of the export.
        offset: u64,
        length: u64,
        received: u64,
    },
    /// A flush of all that was sent to the node before: so many messages.
    Flush {
        sent: u64,
    },
    /// An addition to the export's word.
    Add,
    /// A forged fetch, addition or long send, and the export that it names, by the workload's number.
    Forged {
        kind: forgery::Kind,
        target: usize,
    },
    Misused(Misuse),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) work: Work,
    pub(crate) import: ImportId,
    /// The export behind it, by the workload's number.
    pub(crate) instance: usize,
    /// The buffer's address and bytes; no bytes for a flush.
    pub(crate) address: u64,
    pub(crate) length: u64,
}

/// The completion words of a process.
#[derive(Clone, Debug)]
pub(crate) struct Words(Vec<Option<Pending>>);

impl Words {
    pub(crate) fn new(count: u32) -> Self {
        Self(vec![None; count as usize])
    }

    /// A word that no command has.
    pub(crate) fn free(&self) -> Option<u32> {
        let at = self.0.iter().position(Option::is_none)?;
        Some(at as u32)
    }

    pub(crate) fn submit(&mut self, word: u32, pending: Pending) {
        self.0[word as usize] = Some(pending);
    }

    pub(crate) fn get_mut(&mut self, word: u32) -> Option<&mut Pending> {
        self.0.get_mut(word as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Pending)> {
        (0..).zip(&self.0).filter_map(|(word, pending)| Some((word, pending.as_ref()?)))
    }

    pub(crate) fn over(&mut self, of: Endpoint, word: u32) -> Result<Pending, Violation> {
        let pending = self.0.get_mut(word as usize).and_then(Option::take);
        pending.ok_or_else(|| {
            let Endpoint { node, process } = of;
            let text = format!("{node}, {process}: completion {word} was told, and none is due");
            violation("completions", text)
        })
    }
}
