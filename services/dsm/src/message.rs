//! Messages between ranks.

use crate::{Access, Barrier, Key, Lock, Minipage, Rank, Thread, Units, Views};

/// A message between two ranks. `key` names a minipage; `thread` is the requester's thread on whose behalf it travels; in messages about a
/// minipage, a number beyond the last thread denotes a prefetch.
///
/// A message with `views` stands for one about each of these minipages, in ascending order of their views, and means no more than these:
/// each minipage is served, refused or put off by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Requester → manager: a thread faulted.
    Request {
        thread: Thread,
        /// The minipage, or the page of the access if the requester does not know the minipage.
        key: Key,
        access: Access,
        views: Views,
    },
    /// Manager → requester: no minipage is there.
    Refuse {
        thread: Thread,
        /// From the request.
        key: Key,
        views: Views,
    },
    /// Manager → owner: send the requester a copy; for a write, drop your own.
    Forward {
        minipage: Minipage,
        requester: Rank,
        thread: Thread,
        access: Access,
        /// Number of ranks that drop a copy; the requester must await their acknowledgements.
        acks: u16,
        views: Views,
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
        views: Views,
    },
    /// Manager → holder of a copy: drop it and tell the requester.
    Invalidate {
        key: Key,
        /// Rank that wants to write.
        requester: Rank,
        thread: Thread,
        views: Views,
    },
    /// Holder of a copy → requester: it is gone.
    InvalidateAck { thread: Thread, key: Key, views: Views },
    /// Requester → manager: the right is in use, serve the next request.
    Done { thread: Thread, key: Key, views: Views },
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
    /// Rank → manager of pages: who is the home of each? The first to ask becomes it.
    HomeRequest { page: u32, views: Views },
    /// Manager → rank: the answer to `HomeRequest`. Manager → home: nobody else knows it, so nobody needs notices.
    Home {
        page: u32,
        /// Rank that keeps the pages.
        home: Rank,
        views: Views,
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
        /// The home to be; the sender itself, to be the only one that knows it.
        to: Rank,
    },
    /// Manager → rank that knows the home: it moves; ask anew. Manager → home that is alone: another rank asks for it.
    HomeClose { page: u32, views: Views },
    /// The answer to `HomeClose`: nothing of mine is under way to the former home, and I have no copy; or, of the home: it is
    /// write-protected.
    HomeClosed { page: u32, views: Views },
    /// Manager → home to be: fetch the page from its former home.
    HomeTake {
        page: u32,
        /// The former home.
        from: Rank,
    },
    /// The answer to `HomeTake`: I am the home.
    HomeTaken { page: u32 },
    /// Rank → home of an object: a call of a thread. Carries a payload.
    ObjectRequest {
        thread: Thread,
        object: u64,
        /// Codes of the object's kind and of what to do.
        kind: u8,
        verb: u8,
        argument: u64,
    },
    /// The answer to `ObjectRequest`. Carries a payload.
    ObjectAnswer {
        thread: Thread,
        /// Code of how the call ended.
        result: u8,
        value: u64,
    },
    /// Rank → home of an object: the thread waits no more; answer its call if that is not done yet.
    ObjectCancel { thread: Thread, object: u64 },
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

/// How a message names its first minipage.
enum Named<'a> {
    Key(&'a mut Key),
    Minipage(&'a mut Minipage),
    Page(&'a mut u32),
}

impl Message {
    /// Number of the request, first minipage or page, and views of a message that has views.
    fn named(&mut self) -> Option<(Option<&mut Thread>, Named<'_>, &mut Views)> {
        match self {
            Message::Request { thread, key, views, .. }
            | Message::Refuse { thread, key, views }
            | Message::Invalidate { thread, key, views, .. }
            | Message::InvalidateAck { thread, key, views }
            | Message::Done { thread, key, views } => Some((Some(thread), Named::Key(key), views)),
            Message::Forward { thread, minipage, views, .. } | Message::Grant { thread, minipage, views, .. } => {
                Some((Some(thread), Named::Minipage(minipage), views))
            }
            Message::HomeRequest { page, views }
            | Message::Home { page, views, .. }
            | Message::HomeClose { page, views }
            | Message::HomeClosed { page, views } => Some((None, Named::Page(page), views)),
            _ => None,
        }
    }

    /// The view or page that is named.
    fn first(mut self) -> Option<u32> {
        self.named().map(|(_, named, _)| match named {
            Named::Key(key) => key.view.into(),
            Named::Minipage(minipage) => minipage.view.into(),
            Named::Page(page) => *page,
        })
    }

    /// The minipages or pages that it is about, from the one that it names on.
    #[must_use]
    pub fn views(mut self) -> Views {
        self.named().map_or(Views::ONE, |(_, _, views)| *views)
    }

    /// The message about that minipage or page alone which is `at` views or pages after the first. Numbers that are too large stay so.
    #[must_use]
    pub fn about(mut self, at: u16) -> Message {
        if let Some((thread, named, views)) = self.named() {
            *views = Views::ONE;
            if let Some(thread) = thread {
                *thread = thread.saturating_add(at);
            }
            match named {
                Named::Key(key) => key.view = key.view.saturating_add(at),
                Named::Minipage(minipage) => *minipage = minipage.after(at),
                Named::Page(page) => *page = page.saturating_add(at.into()),
            }
        }
        self
    }

    /// Makes it stand for `next` too, a message about one minipage or page; false if it cannot.
    pub(crate) fn absorb(&mut self, next: Message) -> bool {
        let (Some(first), Some(other)) = (self.first(), next.first()) else { return false };
        let after = other.checked_sub(first).and_then(|at| u16::try_from(at).ok());
        let Some(at) = after.filter(|&at| at > 0) else { return false };
        self.about(at) == next && self.named().is_some_and(|(_, _, views)| views.insert(at))
    }
}
