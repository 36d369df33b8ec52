//! Whether to rouse a peer: to wake it before something is published for it, so that it wakes while that is made.
//!
//! It does not help if the peer looks too early and sleeps again: it must then be woken twice. This happens where both share a processor, or
//! where making takes longer than waking.

use core::sync::atomic::{AtomicU32, Ordering};

/// How many chances to rouse are skipped after one that did not help.
const RESPITE: u32 = 64;

/// Whether rousing peers has helped lately. Counts of several threads may mix, which costs a wake-up or a chance.
#[derive(Debug, Default)]
pub(crate) struct Rousing {
    /// The peer that was roused last, and has not been rung since; its number and 1.
    roused: AtomicU32,
    /// Chances to be left alone.
    respite: AtomicU32,
}

impl Rousing {
    /// Whether to rouse a peer now.
    pub(crate) fn is_wise(&self) -> bool {
        let left = self.respite.load(Ordering::Relaxed);
        if left > 0 {
            self.respite.store(left - 1, Ordering::Relaxed);
        }
        left == 0
    }

    /// A thread of `peer` slept, and was woken.
    pub(crate) fn handle_roused(&self, peer: u32) {
        self.roused.store(peer + 1, Ordering::Relaxed);
    }

    /// Something was published for `peer`; `woke`: a thread had to be woken there nevertheless.
    #[inline]
    pub(crate) fn handle_rung(&self, peer: u32, woke: bool) {
        if self.roused.load(Ordering::Relaxed) == peer + 1 {
            self.roused.store(0, Ordering::Relaxed);
            if woke {
                self.respite.store(RESPITE, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_slept_again_is_left_alone_for_a_while() {
        let rousing = Rousing::default();
        assert!(rousing.is_wise());
        rousing.handle_roused(3);
        rousing.handle_rung(3, true);
        let left_alone = (0..).take_while(|_| !rousing.is_wise()).count();
        assert_eq!(left_alone, RESPITE as usize);
    }

    #[test]
    fn only_a_peer_that_was_roused_shows_whether_that_was_wise() {
        let rousing = Rousing::default();
        rousing.handle_rung(3, true);
        assert!(rousing.is_wise(), "nobody was roused");
        rousing.handle_roused(3);
        rousing.handle_rung(2, true);
        assert!(rousing.is_wise(), "another was");
        rousing.handle_rung(3, false);
        rousing.handle_rung(3, true);
        assert!(rousing.is_wise(), "it was awake when it was rung first");
    }
}
