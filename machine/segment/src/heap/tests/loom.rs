//! Model checks: every interleaving that the memory model allows, of how threads share slabs.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p mapwire-segment --lib loom`. The operations are the very code that runs over
//! shared memory; only the words are loom's. Loom knows the sequential consistency of fences alone, so these stand beside each access.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

use super::sharing::{self, FULL, Given, HELD, LISTED, ListWords, SlabWords};

/// A slab of two blocks, and a list of up to three slabs.
struct Model {
    state: AtomicU32,
    bits: AtomicU64,
    head: AtomicU64,
    next: [AtomicU32; 3],
}

const ALL: u64 = 3;

impl Model {
    fn new(state: u32, bits: u64) -> Arc<Self> {
        let next = [(); 3].map(|()| AtomicU32::new(0));
        Arc::new(Self { state: AtomicU32::new(state), bits: AtomicU64::new(bits), head: AtomicU64::new(0), next })
    }

    /// As the heap does it, with this slab as number 1.
    fn give(&self, bits: u64) {
        if sharing::give(self, 0, bits) == Given::List {
            assert!(sharing::push(self, 1));
        }
    }

    /// The slabs on the list.
    fn listed(&self) -> Vec<u32> {
        core::iter::from_fn(|| sharing::pop(self)).collect()
    }
}

impl SlabWords for Model {
    fn words(&self) -> u32 {
        1
    }
    fn all_bits(&self, _: u32) -> u64 {
        ALL
    }
    fn load_state(&self) -> u32 {
        fence(SeqCst);
        self.state.load(SeqCst)
    }
    fn store_state(&self, state: u32) {
        self.state.store(state, SeqCst);
        fence(SeqCst);
    }
    fn change_state(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }
    fn load_bits(&self, _: u32) -> u64 {
        fence(SeqCst);
        self.bits.load(SeqCst)
    }
    fn set_bits(&self, _: u32) -> u64 {
        self.bits.swap(ALL, SeqCst)
    }
    fn clear_bits(&self, _: u32, bits: u64) -> u64 {
        let before = self.bits.fetch_and(!bits, SeqCst);
        fence(SeqCst);
        before
    }
}

impl ListWords for Model {
    fn load_head(&self) -> u64 {
        self.head.load(SeqCst)
    }
    fn change_head(&self, from: u64, to: u64) -> bool {
        self.head.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }
    fn load_next(&self, slab: u32) -> Option<u32> {
        Some(self.next[slab as usize - 1].load(SeqCst))
    }
    fn store_next(&self, slab: u32, next: u32) {
        self.next[slab as usize - 1].store(next, SeqCst);
    }
}

#[test]
fn loom_a_slab_that_is_left_full_while_blocks_come_back_is_held_or_listed_once() {
    loom::model(|| {
        let slab = Model::new(HELD, ALL);
        let givers = [1, 2].map(|block| {
            let slab = Arc::clone(&slab);
            thread::spawn(move || slab.give(block))
        });
        let is_left = sharing::leave_full(&*slab);
        for giver in givers {
            giver.join().unwrap();
        }
        assert_eq!(slab.bits.load(Relaxed), 0);
        let (state, listed) = (slab.state.load(Relaxed), slab.listed());
        if is_left {
            assert_eq!((state, listed), (LISTED, vec![1]));
        } else {
            assert_eq!((state, listed), (HELD, vec![]));
        }
        assert_ne!(state, FULL);
    });
}

#[test]
fn loom_a_holder_gets_each_block_once_while_others_give_blocks_back() {
    loom::model(|| {
        // The holder has block 1; another has block 0, and gives it back.
        let slab = Model::new(HELD, ALL);
        let giver = {
            let slab = Arc::clone(&slab);
            thread::spawn(move || slab.give(1))
        };
        let first = sharing::take(&*slab, 0).map_or(0, |(_, bits)| bits);
        giver.join().unwrap();
        let second = sharing::take(&*slab, 0).map_or(0, |(_, bits)| bits);
        assert_eq!((first | second, first & second), (1, 0));
    });
}

#[test]
fn loom_slabs_on_a_list_are_neither_lost_nor_given_twice() {
    loom::model(|| {
        let list = Model::new(HELD, ALL);
        assert!(sharing::push(&*list, 1) && sharing::push(&*list, 2));
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                let slab = sharing::pop(&*list).unwrap();
                assert!(sharing::push(&*list, slab));
                sharing::pop(&*list)
            })
        };
        let mine = sharing::pop(&*list);
        assert!(sharing::push(&*list, 3));
        let mut all: Vec<u32> = mine.into_iter().chain(other.join().unwrap()).collect();
        all.extend(list.listed());
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    });
}
