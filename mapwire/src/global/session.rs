//! A rank that puts pages at donors, and gets them back.

use core::ops::Range;
use core::time::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mapwire_gms::{FRAME_BYTES, Frames, Gms, Member, PageName, Place, SpaceId};
use mapwire_host::waiting::now_ns;
use mapwire_launch::NamedJob;
use mapwire_pager::PageId;

use super::memory::{GlobalMemory, REQUESTS};
use super::placement::DirectoryPlacement;
use crate::config::NodeConfig;
use crate::error::Result;

/// Frames for pages that are put, and as many for pages that are got: fewer than may be under way.
const FRAMES: u32 = REQUESTS as u32 / 4;

/// How long a wait looks for outcomes before it looks whether the donors are alive.
const LOOK: Duration = Duration::from_millis(100);

/// Pages of one process at donors.
#[derive(Debug)]
pub(super) struct Session {
    memory: GlobalMemory,
    /// Tells its pages from those of others.
    incarnation: u64,
    frames: Mutex<Frames>,
    freed: Condvar,
}

fn offset_of(frame: u32) -> usize {
    frame as usize * FRAME_BYTES as usize
}

impl Session {
    /// Meets the donors of a job, which have `pages` pages together, as its rank 0.
    pub(super) fn meet(job: &NamedJob, timeout: Duration, pages: u64, directory: DirectoryPlacement) -> Result<Self> {
        let config = NodeConfig { directory, ..NodeConfig::default() };
        Ok(Self {
            memory: GlobalMemory::join(config, job, timeout, 2 * FRAMES, 0, pages)?,
            incarnation: now_ns(),
            frames: Mutex::new(Frames::new(2 * FRAMES)),
            freed: Condvar::new(),
        })
    }

    pub(super) fn donors(&self) -> usize {
        self.memory.size() - 1
    }

    pub(super) fn is_over(&self) -> bool {
        self.memory.is_deserted()
    }

    fn lock(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member for Session {
    type Id = PageId;

    fn name(&self, id: PageId) -> PageName {
        let space = SpaceId::Anonymous { node: 0, incarnation: self.incarnation, region: id.region };
        PageName::new(&space, id.page)
    }

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn call<R>(&self, call: impl FnOnce(&mut Gms, u64) -> R) -> Option<R> {
        self.memory.call(call).ok()
    }

    fn wait(&self, ns: u64, mut check: impl FnMut(&mut Gms) -> bool) -> bool {
        let time = Duration::from_nanos(ns).min(LOOK);
        self.memory.wait(time, |gms| check(gms).then_some(())).is_ok()
    }

    fn frames<R>(&self, look: impl FnOnce(&mut Frames) -> R) -> R {
        look(&mut self.lock())
    }

    fn take_frames(&self, of: Range<u32>, most: usize, patience_ns: Option<u64>) -> Vec<u32> {
        let begun = Instant::now();
        let mut frames = self.lock();
        loop {
            let taken = frames.take(of.clone(), most);
            let is_over = patience_ns.is_some_and(|ns| begun.elapsed() >= Duration::from_nanos(ns));
            if !taken.is_empty() || is_over {
                return taken;
            }
            // Another thread gives some back, or this one finds that operations have ended.
            drop(self.freed.wait_timeout(frames, LOOK).unwrap_or_else(PoisonError::into_inner));
            let _ = self.memory.call(|gms, _| self.lock().note(gms));
            frames = self.lock();
        }
    }

    fn free(&self, frames: &[u32]) {
        self.lock().free(frames);
        self.freed.notify_all();
    }

    fn write(&self, frame: u32, bytes: &[u8]) {
        // The frames are this session's, and have a page's length.
        let written = self.memory.buffer().write(offset_of(frame), bytes);
        debug_assert!(written.is_ok(), "{written:?}");
    }

    fn read(&self, frame: u32, bytes: &mut [u8]) -> bool {
        self.memory.buffer().read(offset_of(frame), bytes).is_ok()
    }

    fn load(&self, place: Place, bytes: &mut [u8]) -> bool {
        self.memory.load(place, bytes)
    }
}
