//! The processes that use this NIC, and the long command that each has under way.

use alloc::vec::Vec;

use mapwire_translation::Frame;
use mapwire_wire::{Atomic, ExportId, ImportId, Key, MessageId, NodeId, ProcessId, Signal};

use crate::turns::Turns;

/// A long send that is being cut into chunks (VMMC §4.5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub to: NodeId,
    pub import: ImportId,
    pub export: ExportId,
    pub key: Key,
    pub message: MessageId,
    /// Where the next chunk goes, from the start of the export.
    pub offset: u64,
    /// Where the next chunk comes from.
    pub address: u64,
    /// Bytes still to be cut.
    pub remaining: u64,
    /// Bytes of all of it.
    pub length: u64,
    /// Where the page of `address` is, if it was looked up with the last chunk.
    pub ahead: Option<Frame>,
    /// A chunk has been cut: the receiver knows of the message and must learn of its end.
    pub begun: bool,
    pub notify: bool,
    pub signal: Option<Signal>,
    pub completion: u32,
}

/// A fetch that may not be asked yet, since too many are under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub from: NodeId,
    pub import: ImportId,
    pub export: ExportId,
    pub key: Key,
    pub offset: u64,
    /// Local destination.
    pub address: u64,
    pub length: u64,
    /// The bytes are a word, to be updated when it has been read.
    pub atomic: Option<Atomic>,
    pub completion: u32,
}

/// A command that is not done at once. The process's next command waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Long {
    Send(Sending),
    Fetch(Asking),
}

impl Long {
    /// The other node.
    pub(crate) const fn peer(&self) -> NodeId {
        match self {
            Self::Send(sending) => sending.to,
            Self::Fetch(asking) => asking.from,
        }
    }

    /// The import that it uses.
    pub(crate) const fn import(&self) -> (ImportId, ExportId) {
        match self {
            Self::Send(sending) => (sending.import, sending.export),
            Self::Fetch(asking) => (asking.import, asking.export),
        }
    }

    /// Bytes of a send that have been cut, so that the receiver may have stored them.
    pub(crate) const fn sent_bytes(&self) -> u64 {
        match self {
            Self::Send(sending) => sending.length - sending.remaining,
            Self::Fetch(_) => 0,
        }
    }

    pub(crate) const fn completion(&self) -> u32 {
        match self {
            Self::Send(sending) => sending.completion,
            Self::Fetch(asking) => asking.completion,
        }
    }
}

/// A process with a command queue on this NIC.
#[derive(Debug, Default)]
pub(crate) struct Process {
    long: Option<Long>,
    /// Where its last command went: while that queue is full, the process's next command waits.
    last_to: Option<NodeId>,
}

impl Process {
    /// The command that is not done at once.
    #[inline]
    pub(crate) fn long(&self) -> Option<&Long> {
        self.long.as_ref()
    }

    /// As [`long`](Self::long), to be changed.
    #[inline]
    pub(crate) fn long_mut(&mut self) -> Option<&mut Long> {
        self.long.as_mut()
    }

    /// Where its last command went, if that may hold up the next.
    #[inline]
    pub(crate) fn last_to(&self) -> Option<NodeId> {
        self.last_to
    }

    #[inline]
    pub(crate) fn set_last_to(&mut self, to: NodeId) {
        self.last_to = Some(to);
    }
}

/// The processes by number: numbers are those of command queues, so they are small.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    entries: Vec<Option<Process>>,
    open: usize,
    /// Those that have a long command.
    long: Turns,
}

impl Processes {
    #[inline]
    pub(crate) fn get(&self, process: ProcessId) -> Option<&Process> {
        self.entries.get(usize::from(process.0))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, process: ProcessId) -> Option<&mut Process> {
        self.entries.get_mut(usize::from(process.0))?.as_mut()
    }

    /// Bytes by which the list grows when `process` is opened.
    pub(crate) fn growth_bytes(&self, process: ProcessId) -> usize {
        let places = usize::from(process.0) + 1;
        places.saturating_sub(self.entries.len()) * size_of::<Option<Process>>()
    }

    /// Enters a process that is not there.
    pub(crate) fn open(&mut self, process: ProcessId) {
        let index = usize::from(process.0);
        if self.entries.len() <= index {
            self.entries.reserve_exact(index + 1 - self.entries.len());
            self.entries.resize_with(index + 1, || None);
            self.long.grow(index + 1);
        }
        self.entries[index] = Some(Process::default());
        self.open += 1;
    }

    /// Takes a process out.
    pub(crate) fn close(&mut self, process: ProcessId) -> Option<Process> {
        let closed = self.entries.get_mut(usize::from(process.0))?.take()?;
        self.long.remove(usize::from(process.0));
        self.open -= 1;
        Some(closed)
    }

    /// Processes that are open.
    pub(crate) fn count(&self) -> usize {
        self.open
    }

    /// Gives `process` a long command.
    pub(crate) fn begin(&mut self, process: ProcessId, long: Long) {
        if let Some(entry) = self.get_mut(process) {
            entry.long = Some(long);
            self.long.insert(usize::from(process.0));
        }
    }

    /// Takes the long command of `process` away.
    pub(crate) fn end(&mut self, process: ProcessId) -> Option<Long> {
        self.long.remove(usize::from(process.0));
        self.get_mut(process)?.long.take()
    }

    /// Whether a process has a long command and its turn to come.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        !self.long.is_empty()
    }

    /// `process` has had its turn.
    #[inline]
    pub(crate) fn served(&mut self, process: ProcessId) {
        self.long.served(usize::from(process.0));
    }

    /// The long command of `process` waits for the host, until [`resume`](Self::resume).
    pub(crate) fn stall(&mut self, process: ProcessId) {
        self.long.remove(usize::from(process.0));
    }

    /// The long command of `process`, if it has one, waits no more.
    pub(crate) fn resume(&mut self, process: ProcessId) {
        if self.get(process).is_some_and(|state| state.long.is_some()) {
            self.long.insert(usize::from(process.0));
        }
    }

    /// The processes that have a long command that `pick` says yes to, also those that wait for the host.
    pub(crate) fn with_long(&self, mut pick: impl FnMut(&Long) -> bool) -> impl Iterator<Item = ProcessId> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(move |(index, entry)| {
            let long = entry.as_ref()?.long.as_ref()?;
            pick(long).then_some(ProcessId(index as u16))
        })
    }

    /// The first process in turn that has a long command that `ready` says yes to.
    pub(crate) fn next_long(&self, mut ready: impl FnMut(&Long) -> bool) -> Option<ProcessId> {
        let index = self.long.first_that(|index| {
            self.get(ProcessId(index as u16)).and_then(|entry| entry.long.as_ref()).is_some_and(&mut ready)
        })?;
        Some(ProcessId(index as u16))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Option<Process>>() + self.long.bytes()
    }
}
