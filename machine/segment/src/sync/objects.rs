//! The handle to a segment's objects.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use mapwire_host::waiting::{coarse_now_ns, futex_wake, now_ns};

use crate::error::SegmentError;
use crate::layout::MAX_RANKS;
use crate::segment::Segment;
use crate::sync::error::{SyncError, Who};
use crate::sync::threads::Threads;
use crate::sync::words::{Look, Waits};
use crate::waiting::{NAP, Waited};

/// The synchronisation objects of a segment, for all threads of a process and its forked children.
#[derive(Debug)]
pub struct Objects {
    threads: Threads,
    rank: u32,
    ranks: u32,
    /// When a thread that does not wait last looked whether a holder lives.
    looked_ns: AtomicU64,
}

impl Objects {
    /// For `rank` of `ranks`, of which `participants` threads take part in numbered barriers.
    ///
    /// # Errors
    /// Ranks or participants that cannot be; no memory.
    pub fn new(segment: Arc<Segment>, rank: u32, ranks: u32, participants: u32) -> Result<Self, SyncError> {
        if rank >= ranks || ranks as usize > MAX_RANKS {
            return Err(SegmentError::Ranks(ranks as usize).into());
        }
        let threads = Threads::new(segment, rank)?;
        let objects = Self { threads, rank, ranks, looked_ns: AtomicU64::new(0) };
        objects.announce(participants)?;
        Ok(objects)
    }

    /// The segment.
    #[inline]
    pub fn segment(&self) -> &Arc<Segment> {
        self.threads.segment()
    }

    /// Whether waits still have a point.
    ///
    /// # Errors
    /// [`SegmentError::RankGone`].
    pub fn check(&self) -> Result<(), SyncError> {
        Ok(self.segment().check()?)
    }

    /// The offset of an address, for the functions that make handles: they refuse one outside of the segment.
    #[inline]
    pub fn offset(&self, address: usize) -> u64 {
        address.wrapping_sub(self.segment().base()) as u64
    }

    #[inline]
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    #[inline]
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    #[inline]
    pub(crate) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Threads that wait for an object now, and its address, for messages.
    #[must_use]
    pub fn waiting_threads(&self) -> Vec<(Who, usize)> {
        self.threads.waiting()
    }

    /// A word of what is known to be in use, such as the segment's own tables.
    #[inline]
    pub(crate) fn table_word(&self, at: u64) -> &AtomicU32 {
        self.segment().word32(at).expect("what is in use stays in use")
    }

    /// As [`table_word`](Self::table_word).
    #[inline]
    pub(crate) fn table_word64(&self, at: u64) -> &AtomicU64 {
        self.segment().word64(at).expect("what is in use stays in use")
    }

    /// Whether it is time to look again, without a wait, if a holder lives.
    pub(crate) fn looks(&self) -> bool {
        let now_ns = coarse_now_ns();
        let is_time = now_ns.saturating_sub(self.looked_ns.load(Ordering::Relaxed)) >= NAP.as_nanos() as u64;
        if is_time {
            self.looked_ns.store(now_ns, Ordering::Relaxed);
        }
        is_time
    }
}

impl Waits for Objects {
    type Word = AtomicU32;

    #[inline]
    fn spin(&self, is_true: impl FnMut() -> bool) -> bool {
        self.segment().spin_until(is_true)
    }

    fn sleep(
        &self,
        word: &AtomicU32,
        unchanged: u32,
        deadline_ns: Option<u64>,
        look: Look<'_>,
    ) -> Result<Waited, SyncError> {
        let me = self.threads.me()?;
        self.threads.show_wait(me, core::ptr::from_ref(word).addr());
        let waited = self.segment().sleep_while(word, unchanged, deadline_ns, look);
        self.threads.show_wait(me, 0);
        waited
    }

    fn wake(&self, word: &AtomicU32, sleepers: u32) {
        futex_wake(word, sleepers);
    }

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn check(&self) -> Result<(), SyncError> {
        Objects::check(self)
    }

    fn ended(&self, thread: u32) -> Option<Who> {
        self.threads.ended(thread)
    }

    fn who(&self, thread: u32) -> Who {
        self.threads.who(thread)
    }
}
