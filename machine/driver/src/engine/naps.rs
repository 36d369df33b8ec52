//! Naps: sleeps of a thread that nobody may wake, since a peer can store to the memory it waits for without a call.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use mapwire_host::memory::SharedBuffer;
use mapwire_transport::board::NAP;

use super::deadline::as_ns;

/// How long a thread sleeps at least, and at most, that waits for memory which a peer may store into without a call.
const SHORTEST_MEMORY_NAP: Duration = Duration::from_micros(200);
const LONGEST_MEMORY_NAP: Duration = Duration::from_millis(10);

/// Who will wake whoever waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Importers that store from now on are sure to see that they are asked, or have stored before.
    Sure,
    /// They may not see it.
    Unsure,
    /// Nobody was asked.
    Nobody,
}

/// Memory whose importers can be asked to wake this process after a store to it.
pub trait AskForWake {
    /// Begins to ask.
    fn ask(&self) -> Asked;
    fn end(&self);
}

impl AskForWake for Mutex<SharedBuffer> {
    fn ask(&self) -> Asked {
        let buffer = self.lock().unwrap_or_else(PoisonError::into_inner);
        match buffer.ask_for_wake() {
            true => Asked::Sure,
            false => Asked::Unsure,
        }
    }

    fn end(&self) {
        let buffer = self.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.end_asking();
    }
}

/// The first nap of a thread that waits for memory. It is short while naps find what peers store by mere pointers, and twice as
/// long after each wait that a wake-up ends.
#[derive(Debug)]
pub(super) struct MemoryNap(AtomicU64);

impl Default for MemoryNap {
    fn default() -> Self {
        Self(AtomicU64::new(as_ns(SHORTEST_MEMORY_NAP)))
    }
}

impl MemoryNap {
    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn learn(&self, by_nap: bool) {
        let next = match by_nap {
            true => SHORTEST_MEMORY_NAP,
            false => (self.get() * 2).min(LONGEST_MEMORY_NAP),
        };
        self.0.store(as_ns(next), Ordering::Relaxed);
    }
}

/// How long a thread sleeps at a time, without being woken. Asks importers to wake it for as long as this lives.
pub(super) struct Naps<'a> {
    direct: Option<&'a dyn AskForWake>,
    /// What this wait teaches.
    first: Option<&'a MemoryNap>,
    next: Duration,
    longest: Duration,
    /// The last sleep ended by itself.
    pub(super) was_napping: bool,
}

impl<'a> Naps<'a> {
    pub(super) fn new(direct: Option<&'a dyn AskForWake>, first: &'a MemoryNap) -> Self {
        let asked = direct.map(|direct| direct.ask());
        let (next, longest) = match asked {
            None => (NAP, NAP),
            Some(Asked::Sure) => (first.get(), LONGEST_MEMORY_NAP),
            Some(Asked::Unsure) => (SHORTEST_MEMORY_NAP, SHORTEST_MEMORY_NAP),
            Some(Asked::Nobody) => (SHORTEST_MEMORY_NAP, LONGEST_MEMORY_NAP),
        };
        Self { direct, first: (asked == Some(Asked::Sure)).then_some(first), next, longest, was_napping: false }
    }

    pub(super) fn next(&mut self) -> Duration {
        let next = self.next;
        self.next = (next * 2).min(self.longest);
        next
    }

    /// What was waited for is there.
    pub(super) fn learn(&self) {
        if let Some(first) = self.first {
            first.learn(self.was_napping);
        }
    }
}

impl Drop for Naps<'_> {
    fn drop(&mut self) {
        if let Some(direct) = self.direct {
            direct.end();
        }
    }
}
