//! Pages on their way to donors, and back.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::frames::{Ended, Frames};
use crate::config::{Error, GetPage, PutPage};
use crate::gms::Gms;
use crate::name::PageName;
use crate::outcome::Place;

/// Puts that begin together: donors take these while the next begin.
const AT_ONCE: usize = 8;

/// How long to wait where too many requests are under way.
const BUSY_NS: u64 = 200_000;

/// What a client needs of its node, the threads that wait for it, and its memory.
pub trait Member {
    /// A page of the program.
    type Id: Copy;

    /// The name of a page: no other session has the same.
    fn name(&self, id: Self::Id) -> PageName;

    /// The time, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Calls the service, with the time. `None`: it has been taken away.
    fn call<R>(&self, call: impl FnOnce(&mut Gms, u64) -> R) -> Option<R>;

    /// Waits until `check` holds, for about so long at most, or less; whether it does.
    fn wait(&self, ns: u64, check: impl FnMut(&mut Gms) -> bool) -> bool;

    /// What the frames are used for, under a lock.
    fn frames<R>(&self, look: impl FnOnce(&mut Frames) -> R) -> R;

    /// Takes up to `most` frames of a range: one at least, but none where others keep them for so long.
    fn take_frames(&self, of: Range<u32>, most: usize, patience_ns: Option<u64>) -> Vec<u32>;

    /// Gives frames back, for which others may wait.
    fn free(&self, frames: &[u32]);

    /// Writes a page into a frame.
    fn write(&self, frame: u32, bytes: &[u8]);

    /// Reads the page in a frame. Whether it could.
    fn read(&self, frame: u32, bytes: &mut [u8]) -> bool;

    /// Reads a page where it lay when it was put, without asking the donor: it may be another by now. False where it must be asked for.
    fn load(&self, place: Place, bytes: &mut [u8]) -> bool;
}

/// A page on its way to donors, from `bytes`, or back to them.
#[derive(Debug)]
pub(super) struct DonorPage<I, B> {
    pub(super) id: I,
    pub(super) version: u32,
    pub(super) bytes: B,
    /// How long to wait; `None`: until it comes or cannot come any more.
    pub(super) patience_ns: Option<u64>,
    /// How it ended, if it has.
    pub(super) ended: Option<Ended>,
}

impl<I, B> DonorPage<I, B> {
    pub(super) const fn new(id: I, version: u32, bytes: B, patience_ns: Option<u64>) -> Self {
        Self { id, version, bytes, patience_ns, ended: None }
    }

    /// Whether the version that was asked for is in `bytes`.
    pub(super) fn has_come(&self) -> bool {
        matches!(self.ended, Some(Ended::Got { .. }))
    }
}

/// Takes note of operations that have ended.
fn note<M: Member>(member: &M, gms: &mut Gms) {
    if gms.has_outcomes() {
        member.frames(|frames| frames.note(gms));
    }
}

/// Waits until the operations of all these frames have ended, or the time is over; how each did. Those that have not are abandoned.
fn wait<M: Member>(member: &M, used: &[u32], patience_ns: Option<u64>) -> Vec<Option<Ended>> {
    let begun_ns = member.now_ns();
    loop {
        let left_ns = patience_ns.map(|patience_ns| (begun_ns + patience_ns).saturating_sub(member.now_ns()));
        let are_done = member.wait(left_ns.unwrap_or(u64::MAX), |gms| {
            note(member, gms);
            member.frames(|frames| frames.are_done(used))
        });
        if are_done || left_ns == Some(0) {
            break;
        }
    }
    member.frames(|frames| used.iter().map(|&frame| frames.outcome(frame)).collect())
}

/// Carries out operations on pages: takes frames of a half, has `begin` say of each, from the first on, whether its operation has begun, and
/// has `end` look at the outcomes. Fewer answers than frames: the rest is to wait. Whether all has ended within its patience.
fn run<M: Member, B>(
    member: &M,
    half: &Range<u32>,
    mut rest: &mut [DonorPage<M::Id, B>],
    mut begin: impl FnMut(&[DonorPage<M::Id, B>], &[u32]) -> Vec<bool>,
    end: impl Fn(&mut DonorPage<M::Id, B>, u32, Ended) -> Ended,
) -> bool {
    let since_ns = member.now_ns();
    while !rest.is_empty() {
        let all: Option<Vec<u64>> = rest.iter().map(|page| page.patience_ns).collect();
        let patience_ns = all.and_then(|all| all.into_iter().max());
        let mut frames = member.take_frames(half.clone(), rest.len(), patience_ns);
        let begun = begin(rest, &frames);
        member.free(&frames.split_off(begun.len()));
        if begun.is_empty() && patience_ns.is_none_or(|patience_ns| member.now_ns() - since_ns < patience_ns) {
            member.wait(BUSY_NS, |gms| {
                note(member, gms);
                false
            });
            continue;
        }
        let under_way: Vec<u32> =
            frames.iter().zip(&begun).filter(|(_, begun)| **begun).map(|(&frame, _)| frame).collect();
        let ended = wait(member, &under_way, patience_ns);
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
        member.free(&free);
        if is_late {
            return false;
        }
    }
    true
}

/// Puts pages, each at `copies` donors, and does something else `meanwhile`. Whether all has ended within their patience. A put that has
/// not may still end.
pub(super) fn put<M: Member>(
    member: &M,
    pages: &mut [DonorPage<M::Id, &[u8]>],
    copies: u8,
    on_disk: bool,
    meanwhile: impl FnOnce(),
) -> bool {
    let mut meanwhile = Some(meanwhile);
    let begin = |pages: &[DonorPage<M::Id, &[u8]>], frames: &[u32]| {
        let parts = frames.chunks(AT_ONCE).zip(pages.chunks(AT_ONCE));
        let begun = parts.flat_map(|(frames, pages)| begin_puts(member, frames, pages, copies, on_disk)).collect();
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
        begun
    };
    let half = member.frames(|frames| frames.for_puts());
    run(member, &half, pages, begin, |_, _, ended| ended)
}

/// Begins puts whose messages leave together.
fn begin_puts<M: Member>(
    member: &M,
    frames: &[u32],
    pages: &[DonorPage<M::Id, &[u8]>],
    copies: u8,
    on_disk: bool,
) -> Vec<bool> {
    for (&frame, page) in frames.iter().zip(pages) {
        member.write(frame, page.bytes);
    }
    let begun = member.call(|gms, now_ns| {
        let put = |(&frame, page): (&u32, &DonorPage<M::Id, &[u8]>)| {
            let put = PutPage {
                name: member.name(page.id),
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
    begun.unwrap_or_else(|| vec![false; frames.len()])
}

/// Gets pages; with `takes` the donors do not keep them. Whether all has ended within their patience.
pub(super) fn get<M: Member>(member: &M, pages: &mut [DonorPage<M::Id, &mut [u8]>], takes: bool) -> bool {
    let begin = |pages: &[DonorPage<M::Id, &mut [u8]>], frames: &[u32]| {
        let begun = member.call(|gms, now_ns| {
            let mut begun = Vec::with_capacity(frames.len());
            for (&frame, page) in frames.iter().zip(pages) {
                let get = GetPage { name: member.name(page.id), frame, tag: u64::from(frame), keep: !takes };
                match gms.get(now_ns, get) {
                    // Other requests are under way, such as discards: that is no answer.
                    Err(Error::Busy { .. }) => break,
                    asked => begun.push(asked.is_ok()),
                }
            }
            begun
        });
        begun.unwrap_or_else(|| vec![false; frames.len()])
    };
    let end = |page: &mut DonorPage<M::Id, &mut [u8]>, frame, ended| {
        let is_it = ended == Ended::Got { version: page.version };
        if is_it && member.read(frame, page.bytes) { ended } else { Ended::Not }
    };
    let half = member.frames(|frames| frames.for_gets());
    run(member, &half, pages, begin, end)
}

/// Whether pages that somebody stopped waiting for may still come: a donor answers late.
pub(super) fn are_gets_late<M: Member>(member: &M) -> bool {
    member.call(|gms, _| note(member, gms));
    member.frames(|frames| frames.are_late(frames.for_gets()))
}

/// Discards a page up to a version. False: too much is under way, try again later. Pages that are asked for have half
/// of all requests to themselves.
pub(super) fn discard<M: Member>(member: &M, name: PageName, version: u32) -> bool {
    let told = member.call(|gms, now_ns| {
        note(member, gms);
        let is_busy = gms.requests() >= usize::from(gms.config().requests / 2);
        (!is_busy).then(|| gms.discard(now_ns, name, version))
    });
    !matches!(told, Some(None | Some(Err(Error::Busy { .. }))))
}
