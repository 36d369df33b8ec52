//! What ranks say to each other.

use crate::{Access, Barrier, Lock, Minipage, Rank, Thread};

/// A message between two ranks. `view` and `page` name a minipage by its view and first page; `thread` is the
/// requester's thread on whose behalf it travels; in messages about a minipage, a number beyond the last thread stands for a
/// request ahead of any access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Requester → manager: a thread faulted.
    Request {
        /// The faulting thread.
        thread: Thread,
        /// View of the minipage.
        view: u16,
        /// First page of the minipage; the page of the access if the requester has not met the minipage.
        page: u32,
        /// What the thread wants.
        access: Access,
    },
    /// Manager → requester: no minipage is there.
    Refuse {
        /// The faulting thread.
        thread: Thread,
        /// As in the request.
        view: u16,
        /// As in the request.
        page: u32,
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
        /// View of the minipage.
        view: u16,
        /// First page of the minipage.
        page: u32,
        /// Who wants to write.
        requester: Rank,
        /// Its faulting thread.
        thread: Thread,
    },
    /// Holder of a copy → requester: it is gone.
    InvalidateAck {
        /// The faulting thread.
        thread: Thread,
        /// View of the minipage.
        view: u16,
        /// First page of the minipage.
        page: u32,
    },
    /// Requester → manager: the right is in use, serve the next.
    Done {
        /// The thread that had faulted.
        thread: Thread,
        /// View of the minipage.
        view: u16,
        /// First page of the minipage.
        page: u32,
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
        /// Which barrier; the number of barriers stands for the broadcast.
        barrier: Barrier,
        /// How many times this barrier was passed before, modulo 2³².
        epoch: u32,
        /// The root of a broadcast; 0 in a barrier.
        root: Rank,
        /// The root's value; 0 from others.
        value: u64,
    },
    /// Barrier manager → rank: everybody else is here. Carries a payload.
    BarrierRelease {
        /// Which barrier.
        barrier: Barrier,
        /// As in `BarrierArrive`.
        epoch: u32,
        /// The root of a broadcast; 0 in a barrier.
        root: Rank,
        /// The root's value; 0 to the root if it has not arrived.
        value: u64,
    },
}
