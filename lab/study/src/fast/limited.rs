//! Caches under a limit on pinned pages. What is unpinned leaves the cache, so a cache with fewer ways is no part of one with
//! more, and each shape is run for itself.

use super::keys::{Keys, class};
use super::lanes::{Eight, Four, One, Sets};
use super::levels::Shape;
use super::pins::UNPIN;
use crate::counts::PathMisses;
use crate::decode::{PAGE_ID, RECEIVE};

/// One cache with lines of one page, for entries of [`Pins::run`](super::Pins::run).
#[derive(Clone, Debug)]
pub struct Limited {
    state: State,
    misses: [u64; 2],
}

#[derive(Clone, Debug)]
enum State {
    One(One),
    Four(Four),
    Eight(Eight),
}

impl Limited {
    /// An empty cache of the shape, which [`Shape::is_taken`].
    pub fn new(shape: Shape) -> Self {
        Limited {
            state: match shape.ways {
                1 => State::One(One::new(shape.sets)),
                2..=4 => State::Four(Four::new(shape.sets, shape.ways)),
                _ => State::Eight(Eight::new(shape.sets)),
            },
            misses: [0; 2],
        }
    }

    /// Looks up and forgets what the entries say.
    pub fn run(&mut self, entries: &[u32], keys: &Keys) {
        match &mut self.state {
            State::One(sets) => run(sets, entries, keys, &mut self.misses),
            State::Four(sets) => run(sets, entries, keys, &mut self.misses),
            State::Eight(sets) => run(sets, entries, keys, &mut self.misses),
        }
    }

    /// Misses so far, by path.
    pub fn misses(&self) -> PathMisses {
        PathMisses {
            send_other: self.misses[0],
            receive_other: self.misses[1],
            ..PathMisses::default()
        }
    }
}

fn run(sets: &mut impl Sets, entries: &[u32], keys: &Keys, misses: &mut [u64; 2]) {
    for entry in entries {
        one_entry(sets, *entry, keys, misses);
    }
}

/// What [`Limited::run`] does with one entry.
#[inline(always)]
pub fn one_entry(sets: &mut impl Sets, entry: u32, keys: &Keys, misses: &mut [u64; 2]) {
    let key = keys.key(entry & PAGE_ID);
    if entry & UNPIN != 0 {
        sets.remove(key);
    } else {
        misses[class(entry & RECEIVE) / 2] += u64::from(!sets.touch(key));
    }
}
