//! A fence between processes that costs its frequent side nothing.
//!
//! Two sides each store one word and then load the other's, and one of them must see the other's store (Dekker's pattern). Both need a
//! full fence in between. If one side does this on every store to a peer's memory, and the other only before it sleeps, the sleeper makes
//! the fence for both: `membarrier` has the kernel run one on every processor that runs a registered process.

use core::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// Whether [`heavy`] reaches this process.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Lets [`heavy`] of other processes reach this one. Without it, or if the kernel refuses, [`light`] is a full fence.
pub fn register() {
    if membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok() {
        REGISTERED.store(true, Ordering::Relaxed);
    }
}

/// The frequent side's fence.
#[inline(always)]
pub fn light() {
    if REGISTERED.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The rare side's fence, which takes microseconds. False if it may not have reached processes that only make light ones.
pub fn heavy() -> bool {
    fence(Ordering::SeqCst);
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn of_a_light_and_a_heavy_fence_one_side_sees_the_other() {
        register();
        let words = [(); 2].map(|()| AtomicU32::new(0));
        let seen = [(); 2].map(|()| AtomicU32::new(0));
        let arrived = AtomicU32::new(0);
        let meet = |number: u32| {
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < 2 * number {
                std::thread::yield_now();
            }
        };
        let side = |mine: usize, fence: fn()| {
            for turn in 1..=500 {
                meet(2 * turn - 1);
                words[mine].store(turn, Ordering::Relaxed);
                fence();
                seen[mine].store(words[1 - mine].load(Ordering::Relaxed), Ordering::Relaxed);
                meet(2 * turn);
                let both = [0, 1].map(|side| seen[side].load(Ordering::Relaxed));
                assert!(both.contains(&turn), "{both:?} in round {turn}");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| side(0, light));
            scope.spawn(|| side(1, || assert!(heavy())));
        });
    }
}
