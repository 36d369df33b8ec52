//! The frames of a client, and the operations that use them.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::gms::Gms;
use crate::outcome::{Outcome, Place};

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The page lies in the frame.
    Got {
        /// The version that was put.
        version: u32,
    },
    /// Donors store it.
    Put(Stored),
    /// It is not there, or nobody took it.
    Not,
}

/// A page that donors store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Donors that store it.
    pub copies: u8,
    /// One of the copies.
    pub place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    UnderWay,
    Done(Ended),
    /// An operation uses it, whose end nobody waits for.
    Abandoned,
}

/// The frames of a client: the lower half for pages that are put, the upper for those that are got. The number of the frame that an operation
/// uses is its tag.
#[derive(Debug)]
pub struct Frames(Vec<Use>);

impl Frames {
    /// So many free frames.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self(vec![Use::Free; count as usize])
    }

    /// Those for pages that are put.
    #[must_use]
    pub fn for_puts(&self) -> Range<u32> {
        0..self.0.len() as u32 / 2
    }

    /// Those for pages that are got.
    #[must_use]
    pub fn for_gets(&self) -> Range<u32> {
        self.0.len() as u32 / 2..self.0.len() as u32
    }

    /// Takes up to `most` free frames of a range.
    pub fn take(&mut self, of: Range<u32>, most: usize) -> Vec<u32> {
        let taken: Vec<u32> = of.filter(|&frame| self.0[frame as usize] == Use::Free).take(most).collect();
        for &frame in &taken {
            self.0[frame as usize] = Use::UnderWay;
        }
        taken
    }

    /// Gives frames back that no operation uses.
    pub fn free(&mut self, frames: &[u32]) {
        for &frame in frames {
            self.0[frame as usize] = Use::Free;
        }
    }

    /// Takes note of the operations that have ended.
    pub fn note(&mut self, gms: &mut Gms) {
        while let Some(outcome) = gms.poll_outcome() {
            let (tag, ended) = match outcome {
                Outcome::Page { tag, version, .. } => (tag, Ended::Got { version }),
                Outcome::Stored { tag, copies, place } => (tag, Ended::Put(Stored { copies, place })),
                Outcome::Absent { tag } | Outcome::Refused { tag, .. } | Outcome::Dropped { tag } => (tag, Ended::Not),
                // A client donates nothing, and neither joins nor leaves.
                _ => continue,
            };
            self.end(tag as u32, ended);
        }
    }

    fn end(&mut self, frame: u32, ended: Ended) {
        if let Some(used) = self.0.get_mut(frame as usize) {
            *used = if *used == Use::Abandoned { Use::Free } else { Use::Done(ended) };
        }
    }

    /// Whether the operations of all these frames have ended.
    #[must_use]
    pub fn are_done(&self, frames: &[u32]) -> bool {
        frames.iter().all(|&frame| matches!(self.0[frame as usize], Use::Done(_)))
    }

    /// How the operation of a frame ended. One that has not is abandoned: its frame is free when it ends.
    pub fn outcome(&mut self, frame: u32) -> Option<Ended> {
        match self.0[frame as usize] {
            Use::Done(ended) => Some(ended),
            _ => {
                self.0[frame as usize] = Use::Abandoned;
                None
            }
        }
    }

    /// Whether abandoned operations may still end in a range of frames.
    #[must_use]
    pub fn are_late(&self, of: Range<u32>) -> bool {
        self.0[of.start as usize..of.end as usize].contains(&Use::Abandoned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_free_again_once_its_operation_has_ended_however_late() {
        let mut frames = Frames::new(4);
        assert_eq!(frames.take(2..4, 8), [2, 3]);
        assert_eq!(frames.take(2..4, 8), []);
        frames.end(2, Ended::Got { version: 7 });
        assert!(frames.are_done(&[2]) && !frames.are_done(&[2, 3]));
        assert_eq!(frames.outcome(2), Some(Ended::Got { version: 7 }));
        assert_eq!(frames.outcome(3), None);
        assert!(frames.are_late(2..4) && !frames.are_late(0..2));
        frames.free(&[2]);
        assert_eq!(frames.take(0..4, 8), [0, 1, 2]);
        frames.end(3, Ended::Not);
        assert!(!frames.are_late(2..4));
        assert_eq!(frames.take(2..4, 8), [3]);
        // A tag that no frame has.
        frames.end(9, Ended::Not);
    }
}
