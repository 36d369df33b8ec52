//! Atomic operations on words that several processes share, for both paths.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mapwire_wire::{Atomic, AtomicOp, SignalOp};

/// Sets, adds to or sets bits of a signal, after every earlier store.
#[inline(always)]
pub fn signal(word: &AtomicU64, op: SignalOp, value: u64) {
    match op {
        SignalOp::Set => word.store(value, Ordering::Release),
        SignalOp::Add => _ = word.fetch_add(value, Ordering::Release),
        SignalOp::Or => _ = word.fetch_or(value, Ordering::Release),
    }
}

/// Defines an update of a word.
macro_rules! update {
    ($name:ident, $word:ty, $value:ty) => {
        /// Updates a word, and returns its old value: after every earlier access, and before every later one.
        #[inline(always)]
        pub fn $name(word: &$word, atomic: Atomic) -> u64 {
            // A legal operation has values that fit.
            let operand = atomic.operand as $value;
            let old = match atomic.op {
                AtomicOp::Add => word.fetch_add(operand, Ordering::SeqCst),
                AtomicOp::Swap => word.swap(operand, Ordering::SeqCst),
                AtomicOp::CompareSwap { expected } => {
                    let expected = expected as $value;
                    let swapped = word.compare_exchange(expected, operand, Ordering::SeqCst, Ordering::SeqCst);
                    swapped.unwrap_or_else(|found| found)
                }
            };
            old.into()
        }
    };
}
update!(update_u32, AtomicU32, u32);
update!(update_u64, AtomicU64, u64);

#[cfg(test)]
mod tests {
    use mapwire_wire::Width;

    use super::*;

    #[test]
    fn a_word_holds_afterwards_what_the_operation_says() {
        let values = [0, 1, 7, u64::from(u32::MAX), u64::MAX];
        for width in [Width::Four, Width::Eight] {
            let cut = |value: u64| match width {
                Width::Four => u64::from(value as u32),
                Width::Eight => value,
            };
            for (old, operand, expected) in values
                .iter()
                .flat_map(|a| values.iter().map(move |b| (a, b)))
                .flat_map(|(a, b)| values.iter().map(move |c| (cut(*a), cut(*b), cut(*c))))
            {
                for op in [AtomicOp::Add, AtomicOp::Swap, AtomicOp::CompareSwap { expected }] {
                    let atomic = Atomic { op, width, operand };
                    let (four, eight) = (AtomicU32::new(old as u32), AtomicU64::new(old));
                    let (found, now) = match width {
                        Width::Four => (update_u32(&four, atomic), u64::from(four.into_inner())),
                        Width::Eight => (update_u64(&eight, atomic), eight.into_inner()),
                    };
                    assert_eq!((found, now), (old, atomic.result(old)), "{atomic}");
                }
            }
        }
    }

    #[test]
    fn a_signal_is_set_added_or_has_bits_set() {
        let word = AtomicU64::new(6);
        signal(&word, SignalOp::Add, 3);
        assert_eq!(word.load(Ordering::Relaxed), 9);
        signal(&word, SignalOp::Or, 6);
        assert_eq!(word.load(Ordering::Relaxed), 15);
        signal(&word, SignalOp::Set, 2);
        assert_eq!(word.load(Ordering::Relaxed), 2);
    }
}
