//! Pinned pages of the processes of a node, each in a frame of its own that no other page ever has.

use std::collections::BTreeMap;

use mapwire_nic::Piece;
use mapwire_translation::{Frame, PAGE_BYTES, PageRange, PinPages, Process};
use mapwire_wire::ProcessId;

/// The pinner refused, as the test wants it.
#[derive(Debug, thiserror::Error)]
#[error("refused")]
pub(crate) struct Refused;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Process and page of each frame.
    frames: BTreeMap<u64, (u16, u64)>,
    next: u64,
    /// Owners of frames that were unpinned while nothing said that they are in use.
    former: BTreeMap<u64, (u16, u64)>,
    /// Calls to refuse.
    pub(crate) refusals: u64,
}

impl Memory {
    /// Pages of a process that are pinned.
    pub(crate) fn pinned(&self, process: ProcessId) -> u64 {
        let frames = self.frames.values();
        frames.filter(|owner| owner.0 == process.0).count() as u64
    }

    /// Unpins all pages of a process that is gone.
    pub(crate) fn give_back(&mut self, process: ProcessId) {
        self.frames.retain(|_, owner| owner.0 != process.0);
        self.former.retain(|_, owner| owner.0 != process.0);
    }

    /// The parts of a process's memory that a piece covers, by address and bytes; none for the garbage frame. All are pinned for it, or
    /// were so and are its own if it does not `hold` what its commands use.
    pub(crate) fn parts(&self, process: ProcessId, piece: &Piece, holds: bool) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let (mut at, end) = (u64::from(piece.offset), u64::from(piece.offset + piece.length));
        while at < end && !piece.frame.is_garbage() {
            let page_bytes = PAGE_BYTES as u64;
            let (frame, within) = (piece.frame.0 + at / page_bytes, at % page_bytes);
            let bytes = (end - at).min(page_bytes - within);
            let former = self.former.get(&frame).filter(|_| !holds);
            let owner = self.frames.get(&frame).or(former);
            assert!(
                owner.is_some_and(|owner| owner.0 == process.0),
                "frame {frame} was used for {process}; it belongs to {owner:?}"
            );
            parts.extend(owner.map(|owner| (owner.1 * page_bytes + within, bytes)));
            at += bytes;
        }
        parts
    }
}

impl PinPages for Memory {
    type Error = Refused;

    fn pin(&mut self, process: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), Refused> {
        if self.refusals > 0 {
            self.refusals -= 1;
            return Err(Refused);
        }
        for (page, frame) in run.into_iter().zip(frames) {
            let owner = (process.0, page.0);
            let is_pinned = self.frames.values().any(|other| *other == owner);
            assert!(!is_pinned, "{owner:?} was pinned twice");
            *frame = Frame(self.next);
            self.frames.insert(self.next, owner);
            // A hole at times: frames of neighbours need not be neighbours.
            self.next += 1 + u64::from(self.next.is_multiple_of(5));
        }
        Ok(())
    }

    fn unpin(&mut self, process: Process, run: PageRange, frames: &[Frame]) -> Result<(), Refused> {
        for (page, frame) in run.into_iter().zip(frames) {
            let owner = self.frames.remove(&frame.0);
            assert_eq!(owner, Some((process.0, page.0)), "unpinned {frame:?}");
            self.former.insert(frame.0, (process.0, page.0));
        }
        Ok(())
    }
}
