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
    /// Offset of the next chunk in the export.
    pub offset: u64,
    /// Address of the next chunk.
    pub address: u64,
    /// Bytes not yet cut.
    pub remaining: u64,
    /// Bytes of the whole send.
    pub length: u64,
    /// Frame of the page of `address`, if the lookup of the last chunk found it.
    pub ahead: Option<Frame>,
    /// Whether a chunk has been cut: the receiver knows of the message and must learn of its end.
    pub begun: bool,
    pub notify: bool,
    pub signal: Option<Signal>,
    pub completion: u32,
}

/// A fetch that must wait because too many are under way.
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
    /// Operation, if the bytes are a word to update.
    pub atomic: Option<Atomic>,
    pub completion: u32,
}

/// A command that takes a while. The process's next command waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Long {
    Send(Sending),
    Fetch(Asking),
}

impl Long {
    pub(crate) const fn peer(&self) -> NodeId {
        match self {
            Self::Send(sending) => sending.to,
            Self::Fetch(asking) => asking.from,
        }
    }

    pub(crate) const fn import(&self) -> (ImportId, ExportId) {
        match self {
            Self::Send(sending) => (sending.import, sending.export),
            Self::Fetch(asking) => (asking.import, asking.export),
        }
    }

    /// Bytes of a send that have been cut: the receiver may have stored them.
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
    /// Destination of its last command: while that queue is full, the process's next command waits.
    last_to: Option<NodeId>,
}

impl Process {
    #[inline]
    pub(crate) fn long(&self) -> Option<&Long> {
        self.long.as_ref()
    }

    #[inline]
    pub(crate) fn long_mut(&mut self) -> Option<&mut Long> {
        self.long.as_mut()
    }

    /// Destination of its last command, if that may hold up the next.
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

    pub(crate) fn close(&mut self, process: ProcessId) -> Option<Process> {
        let closed = self.entries.get_mut(usize::from(process.0))?.take()?;
        self.long.remove(usize::from(process.0));
        self.open -= 1;
        Some(closed)
    }

    pub(crate) fn count(&self) -> usize {
        self.open
    }

    pub(crate) fn begin(&mut self, process: ProcessId, long: Long) {
        if let Some(entry) = self.get_mut(process) {
            entry.long = Some(long);
            self.long.insert(usize::from(process.0));
        }
    }

    /// Ends the long command of `process`.
    pub(crate) fn end(&mut self, process: ProcessId) -> Option<Long> {
        self.long.remove(usize::from(process.0));
        self.get_mut(process)?.long.take()
    }

    /// Whether some process has a long command and is not stalled.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        !self.long.is_empty()
    }

    /// Ends the turn of `process`.
    #[inline]
    pub(crate) fn served(&mut self, process: ProcessId) {
        self.long.served(usize::from(process.0));
    }

    /// Suspends the long command of `process`, which waits for the host, until [`resume`](Self::resume).
    pub(crate) fn stall(&mut self, process: ProcessId) {
        self.long.remove(usize::from(process.0));
    }

    /// Resumes the long command of `process`, if it has one.
    pub(crate) fn resume(&mut self, process: ProcessId) {
        if self.get(process).is_some_and(|state| state.long.is_some()) {
            self.long.insert(usize::from(process.0));
        }
    }

    /// Processes with a long command for which `pick` is true, also those that wait for the host.
    pub(crate) fn with_long(&self, mut pick: impl FnMut(&Long) -> bool) -> impl Iterator<Item = ProcessId> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(move |(index, entry)| {
            let long = entry.as_ref()?.long.as_ref()?;
            pick(long).then_some(ProcessId(index as u16))
        })
    }

    /// The first process in turn with a long command for which `ready` is true.
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
