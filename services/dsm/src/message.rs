//! Messages between ranks.

use crate::{Access, Barrier, Key, Lock, Minipage, Rank, Thread, Units};

/// A message between two ranks. `key` names a minipage; `thread` is the requester's thread on whose behalf it travels; in messages about a
/// minipage, a number beyond the last thread denotes a prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Requester → manager: a thread faulted.
    Request {
        thread: Thread,
        /// The minipage, or the page of the access if the requester does not know the minipage.
        key: Key,
        access: Access,
    },
    /// Manager → requester: no minipage is there.
    Refuse {
        thread: Thread,
        /// From the request.
        key: Key,
    },
    /// Manager → owner: send the requester a copy; for a write, drop your own.
    Forward {
        minipage: Minipage,
        requester: Rank,
        thread: Thread,
        access: Access,
        /// Number of ranks that drop a copy; the requester must await their acknowledgements.
        acks: u16,
    },
    /// Owner or manager → requester: the right, after the data if `data`.
    Grant {
        minipage: Minipage,
        thread: Thread,
        access: Access,
        /// Number of ranks that must acknowledge dropping a copy before the right is used.
        acks: u16,
        /// Whether the bytes were stored before this message; otherwise the requester's copy is valid.
        data: bool,
        /// Whether the manager awaits [`Message::Done`].
        done: bool,
    },
    /// Manager → holder of a copy: drop it and tell the requester.
    Invalidate {
        key: Key,
        /// Rank that wants to write.
        requester: Rank,
        thread: Thread,
    },
    /// Holder of a copy → requester: it is gone.
    InvalidateAck { thread: Thread, key: Key },
    /// Requester → manager: the right is in use, serve the next request.
    Done { thread: Thread, key: Key },
    /// Allocating rank → manager (or everybody, if longer than a page): a new minipage, which I own.
    Register { minipage: Minipage, thread: Thread },
    /// Allocating rank → everybody: new minipages of one allocation, which I own.
    RegisterUnits { units: Units, thread: Thread },
    /// Any rank → rank: you will read these bytes. A hint.
    Push { run: Minipage },
    /// The answer to `Register`, `RegisterUnits` and `RegisterAt`.
    Registered { thread: Thread },
    /// Any rank → rank 0: requests pages to allocate from.
    ChunkRequest {
        thread: Thread,
        /// Least number of pages.
        need_pages: u32,
        /// Preferred number of pages.
        want_pages: u32,
    },
    /// Rank 0 → rank: grants pages.
    ChunkGrant {
        thread: Thread,
        first_page: u32,
        /// Number of pages, at least what was needed.
        pages: u32,
    },
    /// Rank 0 → rank: too few pages are left.
    ChunkRefuse {
        thread: Thread,
        /// Number of pages left.
        left_pages: u32,
    },
    /// Rank → lock manager: enqueue me. Carries a payload.
    LockRequest { lock: Lock },
    /// Lock manager → last in the queue: pass the token to that rank. Carries a payload.
    LockForward {
        lock: Lock,
        /// Rank that follows the receiver in the queue.
        successor: Rank,
    },
    /// Last holder → next holder: the lock is yours. Carries a payload.
    LockToken { lock: Lock },
    /// Rank → barrier manager: all my participants have arrived. Carries a payload.
    BarrierArrive { round: Round },
    /// Barrier manager → rank: everybody else has arrived. Carries a payload.
    BarrierRelease { round: Round },
    /// Any rank → rank: write notices, ahead of a message whose payload does not hold them all. Carries a payload.
    Notices,
    /// Allocating rank → manager (or everybody, if longer than a page): new pages, whose home is that rank.
    RegisterAt { minipage: Minipage, thread: Thread, home: Rank },
    /// Rank → manager of a page: who is its home? The first to ask becomes it.
    HomeRequest { page: u32 },
    /// Manager → rank: the answer to `HomeRequest`.
    Home {
        page: u32,
        /// Rank that keeps the page.
        home: Rank,
    },
    /// Manager → rank: nothing is allocated there.
    HomeRefuse { page: u32 },
    /// Writer → home, behind the bytes that it has changed.
    Diff { page: u32 },
    /// Writer → home, if races are looked for, behind a diff: which bytes it changed. Carries a payload.
    Changed {
        page: u32,
        /// The writer's interval.
        interval: u64,
    },
    /// Home → writer: bytes that it changed were changed by another rank's interval before.
    Overlap {
        page: u32,
        /// The other writer.
        other: Rank,
        /// The other's interval.
        interval: u64,
        /// Offset of the first byte in the page.
        start: u16,
        /// Number of bytes.
        length: u16,
    },
    /// Writer → home: acknowledge all diffs so far.
    Fence { number: u32 },
    /// The answer to `Fence`, with its number.
    FenceAck { number: u32 },
    /// Home → manager: let that rank be the home, which alone changes the page.
    HomeMove {
        page: u32,
        /// The home to be.
        to: Rank,
    },
    /// Manager → rank that knows the home: it moves; ask anew.
    HomeClose { page: u32 },
    /// The answer to `HomeClose`: nothing of mine is under way to the former home.
    HomeClosed { page: u32 },
    /// Manager → home to be: fetch the page from its former home.
    HomeTake {
        page: u32,
        /// The former home.
        from: Rank,
    },
    /// The answer to `HomeTake`: I am the home.
    HomeTaken { page: u32 },
}

/// One passing of a barrier by all ranks, or one broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Number of the barrier; the number of barriers denotes the broadcast.
    pub barrier: Barrier,
    /// How often this barrier was passed before, modulo 2³².
    pub epoch: u32,
    /// The root of a broadcast; 0 in a barrier.
    pub root: Rank,
    /// The root's value; 0 from others, and to a root that has not arrived.
    pub value: u64,
}
