//! Figures that a rank publishes about itself, in a row of words behind the bells. They are for display only.

use std::sync::atomic::Ordering;

use super::{BELL_LINE_BYTES, Board};

/// Words of a row but the first, which is the time.
pub const FIGURES: usize = 63;
const ROW_BYTES: usize = 8 * (FIGURES + 1);

/// A rank's figures. Their writer defines their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// When they were published, in nanoseconds of the host's monotonic clock.
    pub at_ns: u64,
    pub words: [u64; FIGURES],
}

/// Where the rows begin.
fn start(ranks: u32) -> usize {
    (ranks as usize * BELL_LINE_BYTES).next_multiple_of(ROW_BYTES)
}

/// Bytes of the memory of bells and rows.
pub(super) fn bytes(ranks: u32) -> usize {
    (start(ranks) + ranks as usize * ROW_BYTES).next_multiple_of(rustix::param::page_size())
}

impl Board {
    /// Publishes the figures of `rank`, which is this process's own.
    pub fn publish(&self, rank: u32, figures: &Figures) {
        if rank >= self.ranks {
            return;
        }
        let row = start(self.ranks) + rank as usize * ROW_BYTES;
        for (at, word) in (1..).zip(figures.words) {
            self.bells.word64(row + 8 * at).store(word, Ordering::Relaxed);
        }
        self.bells.word64(row).store(figures.at_ns, Ordering::Release);
    }

    /// Figures that `rank` published last. Words may be of two publications; a hostile rank may publish anything.
    #[must_use]
    pub fn figures(&self, rank: u32) -> Option<Figures> {
        if rank >= self.ranks {
            return None;
        }
        let row = start(self.ranks) + rank as usize * ROW_BYTES;
        let at_ns = self.bells.word64(row).load(Ordering::Acquire);
        let word = |at| self.bells.word64(row + 8 * (at + 1)).load(Ordering::Relaxed);
        (at_ns != 0).then(|| Figures { at_ns, words: std::array::from_fn(word) })
    }
}
