//! Model checks: every interleaving that the memory model allows, of how threads share slabs.
//!
//! Run with `scripts/test.sh loom`. The operations are the very code that runs over
//! shared memory; only the words are loom's. Loom knows the sequential consistency of fences alone, so these stand beside each access.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

use super::sharing::{self, FULL, Given, HELD, LISTED, ListWords, SlabWords};
use super::units::slab_entry;

/// A unit that is a slab of two blocks at first, and a list of up to three slabs.
struct Model {
    entry: AtomicU32,
    /// A word of the unit's memory, which the slab does not use.
    data: AtomicU32,
    /// The state lies in that word, beside the bits: what must not be.
    is_within: bool,
    bits: AtomicU64,
    head: AtomicU64,
    next: [AtomicU32; 3],
}

const ALL: u64 = 3;
/// Class of the slab, and another.
const CLASS: usize = 4;
const OTHER: usize = 5;

/// The entry of the slab in a state.
fn entry(state: u32) -> u32 {
    slab_entry(CLASS, 0, state)
}

impl Model {
    fn new(state: u32, bits: u64) -> Arc<Self> {
        Self::placed(state, bits, false)
    }

    fn placed(state: u32, bits: u64, is_within: bool) -> Arc<Self> {
        let next = [(); 3].map(|()| AtomicU32::new(0));
        let words = [(); 2].map(|()| AtomicU32::new(entry(state)));
        let [entry, data] = words;
        Arc::new(Self { entry, data, is_within, bits: AtomicU64::new(bits), head: AtomicU64::new(0), next })
    }

    fn state_word(&self) -> &AtomicU32 {
        if self.is_within { &self.data } else { &self.entry }
    }

    /// Takes the slab from the list if it is empty, and uses its unit anew: the entry and the first words are then as `reuse` says.
    fn dissolve(&self, reuse: Reuse) -> bool {
        let is_held = sharing::pop(self) == Some(1) && sharing::change_state(self, LISTED, HELD);
        if !is_held || !sharing::is_empty(self) {
            return false;
        }
        self.entry.store(0, SeqCst);
        self.data.store(reuse.data, SeqCst);
        self.bits.store(reuse.bits, SeqCst);
        self.entry.store(reuse.entry, SeqCst);
        fence(SeqCst);
        true
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

/// What becomes of the unit of an empty slab.
#[derive(Clone, Copy)]
struct Reuse {
    entry: u32,
    data: u32,
    bits: u64,
}

impl Reuse {
    /// A run, or units that are free; the program has written something that looks like a full slab, or one with room.
    const RUN: Self = Self { entry: 0x1ff, data: slab_entry(CLASS, 0, FULL), bits: 1 };
    /// A slab of another class, which is full.
    const OTHER: Self = Self { entry: slab_entry(OTHER, 0, FULL), data: 7, bits: ALL };

    fn check(self, model: &Model) {
        let [entry, data] = [&model.entry, &model.data].map(|word| word.load(Relaxed));
        assert_eq!((entry, data, model.bits.load(Relaxed)), (self.entry, self.data, self.bits));
        assert_eq!(model.listed(), []);
    }
}

impl SlabWords for Model {
    fn words(&self) -> u32 {
        1
    }
    fn all_bits(&self, _: u32) -> u64 {
        ALL
    }
    fn class(&self) -> usize {
        CLASS
    }
    fn load_entry(&self) -> u32 {
        fence(SeqCst);
        self.state_word().load(SeqCst)
    }
    fn change_entry(&self, from: u32, to: u32) -> bool {
        let is_changed = self.state_word().compare_exchange(from, to, SeqCst, SeqCst).is_ok();
        fence(SeqCst);
        is_changed
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
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
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
        let (state, listed) = (slab.entry.load(Relaxed), slab.listed());
        if is_left {
            assert_eq!((state, listed), (entry(LISTED), vec![1]));
        } else {
            assert_eq!((state, listed), (entry(HELD), vec![]));
        }
        assert_ne!(state, entry(FULL));
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

/// The last block of a listed slab comes back, while another thread takes the slab from the list and uses its unit anew.
fn give_back_as_the_unit_is_reused(reuse: Reuse, is_within: bool) {
    loom::model(move || {
        let slab = Model::placed(LISTED, 1, is_within);
        assert!(sharing::push(&*slab, 1));
        let giver = {
            let slab = Arc::clone(&slab);
            thread::spawn(move || slab.give(1))
        };
        let is_reused = slab.dissolve(reuse);
        giver.join().unwrap();
        if is_reused {
            reuse.check(&slab);
        }
    });
}

/// A holder leaves its slab as full, while all blocks come back and the unit is used anew.
fn leave_as_the_unit_is_reused(reuse: Reuse, is_within: bool) {
    loom::model(move || {
        let slab = Model::placed(HELD, ALL, is_within);
        let holder = {
            let slab = Arc::clone(&slab);
            thread::spawn(move || sharing::leave_full(&*slab))
        };
        slab.give(ALL);
        let is_reused = slab.dissolve(reuse);
        let is_left = holder.join().unwrap();
        if is_reused {
            assert!(is_left);
            reuse.check(&slab);
        }
    });
}

#[test]
fn loom_a_unit_that_is_used_anew_is_not_changed_by_who_gave_its_last_block_back() {
    for reuse in [Reuse::RUN, Reuse::OTHER] {
        give_back_as_the_unit_is_reused(reuse, false);
    }
}

#[test]
fn loom_a_unit_that_is_used_anew_is_not_changed_by_who_left_it_full() {
    for reuse in [Reuse::RUN, Reuse::OTHER] {
        leave_as_the_unit_is_reused(reuse, false);
    }
}

#[test]
fn loom_a_slab_of_the_same_class_in_a_unit_used_anew_is_held_or_listed_once() {
    loom::model(|| {
        let slab = Model::new(LISTED, 1);
        assert!(sharing::push(&*slab, 1));
        let giver = {
            let slab = Arc::clone(&slab);
            thread::spawn(move || slab.give(1))
        };
        // All blocks of the new slab are taken, and stay so.
        let is_reused = slab.dissolve(Reuse { entry: entry(HELD), data: 0, bits: ALL });
        let is_left = is_reused && sharing::leave_full(&*slab);
        giver.join().unwrap();
        if is_reused {
            assert!(is_left);
            let (state, listed) = (slab.entry.load(Relaxed), slab.listed());
            assert!((state, &*listed) == (entry(FULL), &[]) || (state, &*listed) == (entry(LISTED), &[1]));
            assert_eq!(slab.bits.load(Relaxed), ALL);
        }
    });
}

#[test]
#[should_panic = "assertion"]
fn loom_a_state_within_the_slab_is_changed_after_its_last_block_came_back() {
    give_back_as_the_unit_is_reused(Reuse::RUN, true);
}

#[test]
#[should_panic = "assertion"]
fn loom_a_state_within_the_slab_is_changed_after_it_was_left_full() {
    leave_as_the_unit_is_reused(Reuse::RUN, true);
}
