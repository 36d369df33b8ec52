//! What the protocol asks of its driver, and the queue in which it waits.

use crate::{Access, Address, Counters, Error, Message, Minipage, Protection, Rank, Thread};
use alloc::collections::VecDeque;

/// Something the driver must do, before it looks at the next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send `message` to rank `to`, never this rank itself.
    Send {
        /// The receiver.
        to: Rank,
        /// What to send.
        message: Message,
    },
    /// Store the minipage's bytes from this rank's privileged view into `to`'s privileged view at the same
    /// offset, then send `message`, so that the bytes are there when the message is handled.
    SendMinipage {
        /// The receiver.
        to: Rank,
        /// The bytes to store.
        minipage: Minipage,
        /// What to send after them.
        message: Message,
    },
    /// Give the application this protection on all pages of the minipage, in the minipage's own view.
    Protect {
        /// Whose pages.
        minipage: Minipage,
        /// What the application may do from now on.
        protection: Protection,
    },
    /// Let the thread go on: what it waited for has happened, or has failed.
    Resume {
        /// Which thread.
        thread: Thread,
        /// With what result.
        outcome: Outcome,
    },
}

/// How an operation of a thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The access that faulted may be tried again.
    Served(Access),
    /// The lock is held.
    Locked,
    /// Everybody reached the barrier.
    Passed,
    /// The value that the root gave to [`broadcast`](crate::Dsm::broadcast).
    Value(u64),
    /// The new memory, all zero, writable here.
    Allocated(Address),
    /// The operation failed; a fault with [`Error::NotShared`] is a wild access.
    Failed(Error),
}

/// Whether an operation is over when the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// It is over and succeeded; no [`Action::Resume`] follows. Other actions may still wait to be polled.
    Done,
    /// An [`Action::Resume`] for the thread follows, perhaps among the actions that wait already.
    Pending,
}

/// Actions in the order in which they must be executed, and the counts of what is sent.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: VecDeque<Action>,
    pub(crate) counters: Counters,
}

impl Outbox {
    /// A queue that does not allocate while it holds no more than `capacity` actions.
    pub(crate) fn new(capacity: usize) -> Self {
        Outbox {
            queue: VecDeque::with_capacity(capacity),
            counters: Counters::default(),
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Action> {
        let action = self.queue.pop_front();
        if action.is_none() {
            // The next ones take the memory that is in the processor's cache.
            self.queue.clear();
        }
        action
    }

    pub(crate) fn send(&mut self, to: Rank, message: Message) {
        self.counters.messages_sent += 1;
        self.queue.push_back(Action::Send { to, message });
    }

    pub(crate) fn send_minipage(&mut self, to: Rank, minipage: Minipage, message: Message) {
        self.counters.messages_sent += 1;
        self.counters.minipages_sent += 1;
        self.counters.bytes_sent += minipage.length_bytes;
        self.queue.push_back(Action::SendMinipage {
            to,
            minipage,
            message,
        });
    }

    pub(crate) fn protect(&mut self, minipage: Minipage, protection: Protection) {
        self.queue.push_back(Action::Protect {
            minipage,
            protection,
        });
    }

    pub(crate) fn resume(&mut self, thread: Thread, outcome: Outcome) {
        self.queue.push_back(Action::Resume { thread, outcome });
    }
}
