//! A rank that puts pages at donors, and gets them back.

use core::time::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mapwire_gms::{FRAME_BYTES, GetPage, Gms, Outcome, PageName, Place, PutPage};
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

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The page lies in the frame.
    Got { version: u32 },
    /// Donors store it.
    Put(Stored),
    /// It is not there, or nobody took it.
    Not,
}

/// A page that donors store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// How many do.
    pub(super) copies: u8,
    /// Where one of the copies lies.
    pub(super) place: Place,
}

/// What a frame of the session is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    /// An operation uses it.
    Waits,
    Done(Ended),
    /// An operation uses it, whose end nobody waits for.
    Abandoned,
}

/// Pages of one process at donors. The number of the frame that an operation uses is its tag.
#[derive(Debug)]
pub(super) struct Session {
    memory: GlobalMemory,
    uses: Mutex<Vec<Use>>,
    freed: Condvar,
}

/// A page to be put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put<'a> {
    pub(super) name: PageName,
    pub(super) version: u32,
    pub(super) bytes: &'a [u8],
}

/// A page to be got.
#[derive(Debug)]
pub(super) struct Get<'a> {
    pub(super) name: PageName,
    pub(super) version: u32,
    pub(super) bytes: &'a mut [u8],
    /// The donors' copy is not kept.
    pub(super) takes: bool,
    /// How long to wait; `None`: until it comes or cannot come any more.
    pub(super) patience: Option<Duration>,
}

impl Session {
    /// Meets the donors of a job, which have `pages` pages together, as its rank 0.
    ///
    /// # Errors
    /// One does not come; no memory.
    pub(super) fn meet(job: &NamedJob, timeout: Duration, pages: u64, directory: DirectoryPlacement) -> Result<Self> {
        let config = NodeConfig { directory, ..NodeConfig::default() };
        Ok(Self {
            memory: GlobalMemory::join(config, job, timeout, 2 * FRAMES, 0, pages)?,
            uses: Mutex::new(vec![Use::Free; 2 * FRAMES as usize]),
            freed: Condvar::new(),
        })
    }

    /// Donors at the beginning.
    pub(super) fn donors(&self) -> usize {
        self.memory.size() - 1
    }

    /// Whether no donor is left.
    pub(super) fn is_over(&self) -> bool {
        self.memory.is_deserted()
    }

    /// Donors that are members now.
    pub(super) fn living(&self) -> usize {
        let count = |gms: &mut Gms, _| gms.map().members().len();
        self.memory.call(count).unwrap_or(1).saturating_sub(1)
    }

    fn uses(&self) -> MutexGuard<'_, Vec<Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to `most` frames of one half: one at least, but none where others keep them for so long.
    fn take_frames(&self, first: u32, most: usize, patience: Option<Duration>) -> Vec<u32> {
        let begun = Instant::now();
        let mut uses = self.uses();
        loop {
            let half = first..first + FRAMES;
            let free = half.filter(|&frame| uses[frame as usize] == Use::Free);
            let taken: Vec<u32> = free.take(most).collect();
            if !taken.is_empty() || patience.is_some_and(|patience| begun.elapsed() >= patience) {
                for &frame in &taken {
                    uses[frame as usize] = Use::Waits;
                }
                return taken;
            }
            // Another thread gives some back, or this one finds that operations have ended.
            let waited = self.freed.wait_timeout(uses, LOOK);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            let _ = self.memory.call(|gms, _| self.note(gms));
            uses = self.uses();
        }
    }

    fn free(&self, frames: impl IntoIterator<Item = u32>) {
        let mut uses = self.uses();
        for frame in frames {
            uses[frame as usize] = Use::Free;
        }
        drop(uses);
        self.freed.notify_all();
    }

    /// Notes how operations ended.
    fn note(&self, gms: &mut Gms) {
        if !gms.has_outcomes() {
            return;
        }
        let mut uses = self.uses();
        while let Some(outcome) = gms.poll_outcome() {
            let (tag, ended) = match outcome {
                Outcome::Page { tag, version, .. } => (tag, Ended::Got { version }),
                Outcome::Stored { tag, copies, place } => (tag, Ended::Put(Stored { copies, place })),
                Outcome::Absent { tag } | Outcome::Refused { tag, .. } | Outcome::Dropped { tag } => (tag, Ended::Not),
                // This node donates nothing, and neither joins nor leaves.
                _ => continue,
            };
            if let Some(slot) = uses.get_mut(tag as usize) {
                *slot = match slot {
                    Use::Abandoned => Use::Free,
                    _ => Use::Done(ended),
                };
            }
        }
    }

    /// Waits until the operations of all these frames have ended, or the time is over; how each did. Frames of those that have not are
    /// free when they do.
    fn wait(&self, frames: &[u32], patience: Option<Duration>) -> Vec<Option<Ended>> {
        let begun = Instant::now();
        let are_done = |uses: &[Use]| {
            let mut frames = frames.iter();
            frames.all(|&frame| matches!(uses[frame as usize], Use::Done(_)))
        };
        loop {
            let waited = self.memory.wait(LOOK, |gms| {
                self.note(gms);
                are_done(&self.uses()).then_some(())
            });
            let is_late = patience.is_some_and(|patience| begun.elapsed() >= patience);
            if waited.is_ok() || is_late {
                break;
            }
        }
        let mut uses = self.uses();
        let ended = frames.iter().map(|&frame| {
            let slot = &mut uses[frame as usize];
            match *slot {
                Use::Done(ended) => Some(ended),
                _ => {
                    *slot = Use::Abandoned;
                    None
                }
            }
        });
        ended.collect()
    }

    /// Puts pages, each at `copies` donors, and does something else `meanwhile`; where each is that any of them took, and whether all has ended within `patience`. A put that has not may still
    /// end.
    pub(super) fn put(
        &self,
        pages: &[Put<'_>],
        copies: u8,
        on_disk: bool,
        patience: Duration,
        meanwhile: impl FnOnce(),
    ) -> (Vec<Option<Stored>>, bool) {
        let mut meanwhile = Some(meanwhile);
        let mut stored = Vec::with_capacity(pages.len());
        let mut rest = pages;
        while !rest.is_empty() {
            let frames = self.take_frames(0, rest.len(), Some(patience));
            let (now, later) = rest.split_at(frames.len());
            rest = later;
            let begun = self.begin_puts(&frames, now, copies, on_disk);
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile();
            }
            let ended = self.wait(&begun, Some(patience));
            let is_late = frames.is_empty() || ended.contains(&None);
            let mut ended = begun.iter().zip(ended).peekable();
            let mut done = Vec::with_capacity(begun.len());
            for frame in &frames {
                let its = ended.next_if(|(of, _)| *of == frame);
                done.extend(its.and_then(|(&frame, ended)| ended.map(|_| frame)));
                stored.push(match its {
                    Some((_, Some(Ended::Put(at)))) => Some(at),
                    _ => None,
                });
            }
            self.free(done);
            if is_late {
                stored.resize(pages.len(), None);
                return (stored, false);
            }
        }
        (stored, true)
    }

    /// Begins puts from these frames; frames of those that have begun. Others are free.
    fn begin_puts(&self, frames: &[u32], pages: &[Put<'_>], copies: u8, on_disk: bool) -> Vec<u32> {
        let parts = frames.chunks(AT_ONCE).zip(pages.chunks(AT_ONCE));
        let begun = parts.flat_map(|(frames, pages)| self.begin(frames, pages, copies, on_disk));
        begun.collect()
    }

    /// As [`begin_puts`](Self::begin_puts): the messages leave together.
    fn begin(&self, frames: &[u32], pages: &[Put<'_>], copies: u8, on_disk: bool) -> Vec<u32> {
        for (&frame, page) in frames.iter().zip(pages) {
            let offset = frame as usize * FRAME_BYTES as usize;
            // The frames are this session's, and have a page's length.
            let written = self.memory.buffer().write(offset, page.bytes);
            debug_assert!(written.is_ok(), "{written:?}");
        }
        let begun = self.memory.call(|gms, now_ns| {
            let pages = frames.iter().zip(pages);
            let begun = pages.filter(|(frame, page)| {
                let put = PutPage {
                    name: page.name,
                    version: page.version,
                    frame: **frame,
                    tag: u64::from(**frame),
                    // The pager has a checksum of its own, which it does not give away.
                    checksum: 0,
                    age_ms: 0,
                    on_disk,
                    copies,
                    to: None,
                };
                gms.put(now_ns, put).is_ok()
            });
            begun.map(|(&frame, _)| frame).collect::<Vec<u32>>()
        });
        let begun = begun.unwrap_or_default();
        let others = frames.iter().filter(|frame| !begun.contains(frame));
        self.free(others.copied().collect::<Vec<_>>());
        begun
    }

    /// Gets pages; which of them came, with the version that was asked for, and whether all has ended within their patience.
    pub(super) fn get(&self, pages: &mut [Get<'_>]) -> (Vec<bool>, bool) {
        let count = pages.len();
        let mut came = Vec::with_capacity(count);
        let mut rest = pages;
        let mut since = None;
        while !rest.is_empty() {
            let patience = rest.iter().map(|page| page.patience);
            let patience = patience.collect::<Option<Vec<_>>>();
            let patience = patience.and_then(|all| all.into_iter().max());
            let since = *since.get_or_insert_with(Instant::now);
            let mut frames = self.take_frames(FRAMES, rest.len(), patience);
            let begun = self.memory.call(|gms, now_ns| {
                let mut begun = Vec::with_capacity(frames.len());
                for (&frame, page) in frames.iter().zip(&*rest) {
                    let get = GetPage { name: page.name, frame, tag: u64::from(frame), keep: !page.takes };
                    match gms.get(now_ns, get) {
                        // Other requests are under way, such as discards: that is no answer.
                        Err(mapwire_gms::Error::Busy { .. }) => break,
                        asked => begun.push(asked.is_ok()),
                    }
                }
                begun
            });
            let begun = begun.unwrap_or_else(|_| vec![false; frames.len()]);
            self.free(frames.split_off(begun.len()));
            let is_refused = begun.is_empty();
            if is_refused && patience.is_none_or(|patience| since.elapsed() < patience) {
                let _ = self.memory.wait(BUSY, |gms| {
                    self.note(gms);
                    None::<()>
                });
                continue;
            }
            let (now, later) = rest.split_at_mut(frames.len());
            rest = later;
            let both = frames.iter().zip(&begun);
            let waits: Vec<u32> = both.filter_map(|(&frame, &begun)| begun.then_some(frame)).collect();
            let ended = self.wait(&waits, patience);
            let is_late = frames.is_empty() || ended.contains(&None);
            let mut ended = ended.into_iter();
            let mut free = Vec::with_capacity(frames.len());
            for ((&frame, page), begun) in frames.iter().zip(now).zip(begun) {
                let ended = match begun {
                    true => ended.next().flatten(),
                    false => Some(Ended::Not),
                };
                let version = page.version;
                let is_it = ended == Some(Ended::Got { version });
                let offset = frame as usize * FRAME_BYTES as usize;
                came.push(is_it && self.memory.buffer().read(offset, page.bytes).is_ok());
                free.extend(ended.map(|_| frame));
            }
            self.free(free);
            if is_late {
                came.resize(count, false);
                return (came, false);
            }
        }
        (came, true)
    }

    /// Reads a page where it lay when it was put, without asking the donor: it may be another by now. False where it must be asked for.
    pub(super) fn load(&self, place: Place, bytes: &mut [u8]) -> bool {
        self.memory.load(place, bytes)
    }

    /// Whether pages that somebody stopped waiting for may still come: a donor answers late.
    pub(super) fn are_gets_late(&self) -> bool {
        let _ = self.memory.call(|gms, _| self.note(gms));
        self.uses()[FRAMES as usize..].contains(&Use::Abandoned)
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
