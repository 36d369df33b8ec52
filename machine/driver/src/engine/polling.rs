//! Which threads poll: peers ring nobody while one does.

use core::cell::Cell;

use mapwire_transport::fabric::{Doorbells, Fabric};

use super::Engine;

thread_local! {
    /// How often the calling thread has begun to poll and not ended it: a wait within a wait, or within what a program polls.
    static POLLS: Cell<u32> = const { Cell::new(0) };
    /// The engine that was told of the first of these, by its address: a process may have more than one.
    static POLLS_AT: Cell<usize> = const { Cell::new(0) };
}

/// Whether the calling thread polls.
pub(super) fn is_polling_here() -> bool {
    POLLS.get() > 0
}

impl<F: Fabric> Engine<F> {
    /// Counts the calling thread as one that polls, until [`leave_polling`](Self::leave_polling): peers then ring nobody, but
    /// while it sleeps.
    pub fn enter_polling(&self) {
        if !self.is_here() {
            return;
        }
        let _mask = self.mask();
        self.begin_polling();
    }

    /// Ends [`enter_polling`](Self::enter_polling), and looks once more at what came meanwhile.
    pub fn leave_polling(&self) {
        if !self.is_here() {
            return;
        }
        {
            let _mask = self.mask();
            self.end_polling();
        }
        self.look(true);
        self.wake_sleepers();
        if self.lock().needs_attention() {
            self.bells.ring(self.me);
        }
    }

    /// Counts the calling thread, which no signal handler interrupts here, as one that polls.
    #[inline]
    pub(super) fn begin_polling(&self) {
        let polls = POLLS.get();
        POLLS.set(polls + 1);
        if polls == 0 {
            POLLS_AT.set(core::ptr::from_ref(self).addr());
            self.bells.enter_polling();
        }
    }

    /// Something has come while the calling thread polls: see [`Doorbells::keep_polling`].
    #[inline]
    pub(super) fn keep_polling(&self) {
        if self.was_told() {
            self.bells.keep_polling();
        }
    }

    /// Whether this is the engine that was told that the calling thread polls.
    #[inline]
    fn was_told(&self) -> bool {
        POLLS_AT.get() == core::ptr::from_ref(self).addr()
    }

    /// Ends [`begin_polling`](Self::begin_polling). Whether this contained a full fence.
    #[inline]
    pub(super) fn end_polling(&self) -> bool {
        let polls = POLLS.get() - 1;
        POLLS.set(polls);
        polls == 0 && self.bells.leave_polling()
    }
}

/// Who sleeps does not poll, also where a wait around this one does, or the program. Polls again once this is dropped.
pub(super) struct Asleep<'a, F: Fabric> {
    engine: &'a Engine<F>,
    pub(super) polls: u32,
    polls_at: usize,
}

impl<'a, F: Fabric> Asleep<'a, F> {
    pub(super) fn begin(engine: &'a Engine<F>) -> Self {
        let (polls, polls_at) = (POLLS.replace(0), POLLS_AT.get());
        if polls != 0 && engine.was_told() {
            engine.bells.leave_polling();
        }
        Self { engine, polls, polls_at }
    }
}

impl<F: Fabric> Drop for Asleep<'_, F> {
    fn drop(&mut self) {
        POLLS.set(self.polls);
        POLLS_AT.set(self.polls_at);
        if self.polls != 0 && self.engine.was_told() {
            self.engine.bells.enter_polling();
        }
    }
}
