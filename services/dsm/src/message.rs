//! What ranks say to each other.

use crate::{Access, Barrier, Key, Lock, Minipage, Rank, Thread};

/// A message between two ranks. `key` names a minipage; `thread` is the requester's thread on whose behalf it travels; in messages about a minipage, a number beyond the last thread stands for a
/// request ahead of any access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Requester → manager: a thread faulted.
    Request {
        /// The faulting thread.
        thread: Thread,
        /// The minipage; the page of the access if the requester has not met the minipage.
        key: Key,
        /// What the thread wants.
        access: Access,
    },
    /// Manager → requester: no minipage is there.
    Refuse {
        /// The faulting thread.
        thread: Thread,
        /// As in the request.
        key: Key,
    },
    /// Manager → owner: give the requester a copy, or for a write all you have.
    Forward {
        /// What is wanted.
        minipage: Minipage,
        /// By whom.
        requester: Rank,
        /// The faulting thread.
        thread: Thread,
        /// What the thread wants.
        access: Access,
        /// How many ranks drop a copy; the requester must await their acknowledgements.
        acks: u16,
    },
    /// Owner or manager → requester: the right, after the data if `data`.
    Grant {
        /// What is granted.
        minipage: Minipage,
        /// The faulting thread.
        thread: Thread,
        /// The right.
        access: Access,
        /// How many ranks must acknowledge that they dropped a copy before the right is used.
        acks: u16,
        /// Whether the bytes were stored before this message; otherwise the requester's copy is valid.
        data: bool,
        /// Whether the manager awaits [`Message::Done`].
        done: bool,
    },
    /// Manager → holder of a copy: drop it and tell the requester.
    Invalidate {
        /// Which minipage.
        key: Key,
        /// Who wants to write.
        requester: Rank,
        /// Its faulting thread.
        thread: Thread,
    },
    /// Holder of a copy → requester: it is gone.
    InvalidateAck {
        /// The faulting thread.
        thread: Thread,
        /// Which minipage.
        key: Key,
    },
    /// Requester → manager: the right is in use, serve the next.
    Done {
        /// The thread that had faulted.
        thread: Thread,
        /// Which minipage.
        key: Key,
    },
    /// Allocating rank → manager (or everybody, if longer than a page): here is a minipage, I own it.
    Register {
        /// The new minipage.
        minipage: Minipage,
        /// The allocating thread.
        thread: Thread,
    },
    /// The answer to `Register`.
    Registered {
        /// The allocating thread.
        thread: Thread,
    },
    /// Any rank → rank 0: pages to allocate from.
    ChunkRequest {
        /// The allocating thread.
        thread: Thread,
        /// Pages that are needed.
        need_pages: u32,
        /// Pages that would be welcome.
        want_pages: u32,
    },
    /// Rank 0 → rank: these pages are yours.
    ChunkGrant {
        /// The allocating thread.
        thread: Thread,
        /// The first of them.
        first_page: u32,
        /// How many, at least what was needed.
        pages: u32,
    },
    /// Rank 0 → rank: there are not so many.
    ChunkRefuse {
        /// The allocating thread.
        thread: Thread,
        /// How many are left.
        left_pages: u32,
    },
    /// Rank → lock manager: queue me.
    LockRequest {
        /// Which lock.
        lock: Lock,
    },
    /// Lock manager → last in the queue: pass the token on to that rank.
    LockForward {
        /// Which lock.
        lock: Lock,
        /// Who comes after the receiver.
        successor: Rank,
    },
    /// Last holder → next holder: the lock is yours. Carries a payload.
    LockToken {
        /// Which lock.
        lock: Lock,
    },
    /// Rank → barrier manager: all of mine are here. Carries a payload.
    BarrierArrive {
        /// Of which barrier.
        round: Round,
    },
    /// Barrier manager → rank: everybody else is here. Carries a payload.
    BarrierRelease {
        /// Of which barrier.
        round: Round,
    },
}

/// One passing of a barrier by all ranks, or one broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Which barrier; the number of barriers stands for the broadcast.
    pub barrier: Barrier,
    /// How many times this barrier was passed before, modulo 2³².
    pub epoch: u32,
    /// The root of a broadcast; 0 in a barrier.
    pub root: Rank,
    /// The root's value; 0 from others, and to a root that has not arrived.
    pub value: u64,
}
