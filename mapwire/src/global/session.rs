//! A rank that puts pages at donors, and gets them back.

use core::ops::Range;
use core::time::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mapwire_gms::{Ended, FRAME_BYTES, Frames, GetPage, Gms, PageName, Place, PutPage};
use mapwire_launch::NamedJob;

use super::memory::{GlobalMemory, REQUESTS};
use super::placement::DirectoryPlacement;
use crate::config::NodeConfig;
use crate::error::Result;

/// Frames for pages that are put, and as many for pages that are got: fewer than may be under way.
const FRAMES: u32 = REQUESTS as u32 / 4;

/// Puts that begin together: donors take these while the next begin.
const AT_ONCE: usize = 8;

/// How long a wait looks for outcomes before it looks whether the donors are alive.
const LOOK: Duration = Duration::from_millis(100);

/// How long to wait where too many requests are under way.
const BUSY: Duration = Duration::from_micros(200);

/// Pages of one process at donors.
#[derive(Debug)]
pub(super) struct Session {
    memory: GlobalMemory,
    frames: Mutex<Frames>,
    freed: Condvar,
}

fn offset_of(frame: u32) -> usize {
    frame as usize * FRAME_BYTES as usize
}

/// A page on its way to donors, from `bytes`, or back to them.
#[derive(Debug)]
pub(super) struct DonorPage<B> {
    pub(super) name: PageName,
    pub(super) version: u32,
    pub(super) bytes: B,
    /// How long to wait; `None`: until it comes or cannot come any more.
    pub(super) patience: Option<Duration>,
    /// How it ended, if it has.
    pub(super) ended: Option<Ended>,
}

impl<B> DonorPage<B> {
    /// Whether the version that was asked for is in `bytes`.
    pub(super) fn has_come(&self) -> bool {
        matches!(self.ended, Some(Ended::Got { .. }))
    }
}

impl Session {
    /// Meets the donors of a job, which have `pages` pages together, as its rank 0.
    pub(super) fn meet(job: &NamedJob, timeout: Duration, pages: u64, directory: DirectoryPlacement) -> Result<Self> {
        let config = NodeConfig { directory, ..NodeConfig::default() };
        Ok(Self {
            memory: GlobalMemory::join(config, job, timeout, 2 * FRAMES, 0, pages)?,
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

    /// Donors that are members now.
    pub(super) fn living(&self) -> usize {
        let count = |gms: &mut Gms, _| gms.map().members().len();
        self.memory.call(count).unwrap_or(1).saturating_sub(1)
    }

    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to `most` frames of a half: one at least, but none where others keep them for so long.
    fn take_frames(&self, half: &Range<u32>, most: usize, patience: Option<Duration>) -> Vec<u32> {
        let begun = Instant::now();
        let mut frames = self.frames();
        loop {
            let taken = frames.take(half.clone(), most);
            if !taken.is_empty() || patience.is_some_and(|patience| begun.elapsed() >= patience) {
                return taken;
            }
            // Another thread gives some back, or this one finds that operations have ended.
            drop(self.freed.wait_timeout(frames, LOOK).unwrap_or_else(PoisonError::into_inner));
            let _ = self.memory.call(|gms, _| self.note(gms));
            frames = self.frames();
        }
    }

    fn free(&self, frames: &[u32]) {
        self.frames().free(frames);
        self.freed.notify_all();
    }

    fn note(&self, gms: &mut Gms) {
        if gms.has_outcomes() {
            self.frames().note(gms);
        }
    }

    /// Waits until the operations of all these frames have ended, or the time is over; how each did. Those that have not are abandoned.
    fn wait(&self, frames: &[u32], patience: Option<Duration>) -> Vec<Option<Ended>> {
        let begun = Instant::now();
        loop {
            let waited = self.memory.wait(LOOK, |gms| {
                self.note(gms);
                self.frames().are_done(frames).then_some(())
            });
            if waited.is_ok() || patience.is_some_and(|patience| begun.elapsed() >= patience) {
                break;
            }
        }
        let mut all = self.frames();
        frames.iter().map(|&frame| all.outcome(frame)).collect()
    }

    /// Carries out operations on pages: takes frames of a half, has `begin` say of each, from the first on, whether its operation has begun, and
    /// has `end` look at the outcomes. Fewer answers than frames: the rest is to wait. Whether all has ended within its patience.
    fn run<B>(
        &self,
        half: Range<u32>,
        mut rest: &mut [DonorPage<B>],
        mut begin: impl FnMut(&[DonorPage<B>], &[u32]) -> Vec<bool>,
        end: impl Fn(&mut DonorPage<B>, u32, Ended) -> Ended,
    ) -> bool {
        let since = Instant::now();
        while !rest.is_empty() {
            let all: Option<Vec<Duration>> = rest.iter().map(|page| page.patience).collect();
            let patience = all.and_then(|all| all.into_iter().max());
            let mut frames = self.take_frames(&half, rest.len(), patience);
            let begun = begin(rest, &frames);
            self.free(&frames.split_off(begun.len()));
            if begun.is_empty() && patience.is_none_or(|patience| since.elapsed() < patience) {
                let _ = self.memory.wait(BUSY, |gms| {
                    self.note(gms);
                    None::<()>
                });
                continue;
            }
            let under_way = frames.iter().zip(&begun).filter(|(_, begun)| **begun);
            let ended = self.wait(&under_way.map(|(&frame, _)| frame).collect::<Vec<_>>(), patience);
            let is_late = frames.is_empty() || ended.contains(&None);
            let (now, later) = rest.split_at_mut(frames.len());
            rest = later;
            let mut ended = ended.into_iter();
            let mut free = Vec::with_capacity(frames.len());
            for ((&frame, page), begun) in frames.iter().zip(now).zip(begun) {
                if let Some(ended) = if begun { ended.next().flatten() } else { Some(Ended::Not) } {
                    page.ended = Some(end(page, frame, ended));
                    free.push(frame);
                }
            }
            self.free(&free);
            if is_late {
                return false;
            }
        }
        true
    }

    /// Puts pages, each at `copies` donors, and does something else `meanwhile`. Whether all has ended within their patience. A put that has
    /// not may still end.
    pub(super) fn put(
        &self,
        pages: &mut [DonorPage<&[u8]>],
        copies: u8,
        on_disk: bool,
        meanwhile: impl FnOnce(),
    ) -> bool {
        let mut meanwhile = Some(meanwhile);
        let begin = |pages: &[DonorPage<&[u8]>], frames: &[u32]| {
            let parts = frames.chunks(AT_ONCE).zip(pages.chunks(AT_ONCE));
            let begun = parts.flat_map(|(frames, pages)| self.begin_puts(frames, pages, copies, on_disk)).collect();
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile();
            }
            begun
        };
        self.run(0..FRAMES, pages, begin, |_, _, ended| ended)
    }

    /// Begins puts whose messages leave together.
    fn begin_puts(&self, frames: &[u32], pages: &[DonorPage<&[u8]>], copies: u8, on_disk: bool) -> Vec<bool> {
        for (&frame, page) in frames.iter().zip(pages) {
            // The frames are this session's, and have a page's length.
            let written = self.memory.buffer().write(offset_of(frame), page.bytes);
            debug_assert!(written.is_ok(), "{written:?}");
        }
        let begun = self.memory.call(|gms, now_ns| {
            let put = |(&frame, page): (&u32, &DonorPage<&[u8]>)| {
                let put = PutPage {
                    name: page.name,
                    version: page.version,
                    frame,
                    tag: u64::from(frame),
                    // The pager has a checksum of its own, which it does not give away.
                    checksum: 0,
                    age_ms: 0,
                    on_disk,
                    copies,
                    to: None,
                };
                gms.put(now_ns, put).is_ok()
            };
            frames.iter().zip(pages).map(put).collect()
        });
        begun.unwrap_or_else(|_| vec![false; frames.len()])
    }

    /// Gets pages; with `takes` the donors do not keep them. Whether all has ended within their patience.
    pub(super) fn get(&self, pages: &mut [DonorPage<&mut [u8]>], takes: bool) -> bool {
        let begin = |pages: &[DonorPage<&mut [u8]>], frames: &[u32]| {
            let begun = self.memory.call(|gms, now_ns| {
                let mut begun = Vec::with_capacity(frames.len());
                for (&frame, page) in frames.iter().zip(pages) {
                    let get = GetPage { name: page.name, frame, tag: u64::from(frame), keep: !takes };
                    match gms.get(now_ns, get) {
                        // Other requests are under way, such as discards: that is no answer.
                        Err(mapwire_gms::Error::Busy { .. }) => break,
                        asked => begun.push(asked.is_ok()),
                    }
                }
                begun
            });
            begun.unwrap_or_else(|_| vec![false; frames.len()])
        };
        let end = |page: &mut DonorPage<&mut [u8]>, frame, ended| {
            let version = page.version;
            let is_it = ended == Ended::Got { version };
            if is_it && self.memory.buffer().read(offset_of(frame), page.bytes).is_ok() { ended } else { Ended::Not }
        };
        self.run(FRAMES..2 * FRAMES, pages, begin, end)
    }

    /// Reads a page where it lay when it was put, without asking the donor: it may be another by now. False where it must be asked for.
    pub(super) fn load(&self, place: Place, bytes: &mut [u8]) -> bool {
        self.memory.load(place, bytes)
    }

    /// Whether pages that somebody stopped waiting for may still come: a donor answers late.
    pub(super) fn are_gets_late(&self) -> bool {
        let _ = self.memory.call(|gms, _| self.note(gms));
        self.frames().are_late(FRAMES..2 * FRAMES)
    }

    /// Tells that a page up to a version is wanted no more. False: too much is under way, try again later. Pages that are asked for have half
    /// of all requests to themselves.
    pub(super) fn discard(&self, name: PageName, version: u32) -> bool {
        let told = self.memory.call(|gms, now_ns| {
            self.note(gms);
            let is_busy = gms.requests() >= usize::from(REQUESTS / 2);
            (!is_busy).then(|| gms.discard(now_ns, name, version))
        });
        !matches!(told, Ok(None | Some(Err(mapwire_gms::Error::Busy { .. }))))
    }
}
