//! Caches under a limit on pinned pages. What is unpinned leaves the cache, so a cache with fewer ways is no part of one with
//! more, and each shape is run for itself.

use super::lanes::{Lanes, Sets, of_any_width, remove, touch};
use super::levels::Shape;
use super::pins::Step;
use crate::counts::PathMisses;
use crate::decode::RECEIVE;

/// One cache with lines of one page, for what [`Pins::run`](super::Pins::run) hands on.
#[derive(Clone, Debug)]
pub struct Limited {
    sets: Sets,
    ways: usize,
    misses: [u64; 2],
}

impl Limited {
    /// An empty cache of the shape, which [`Shape::is_taken`].
    pub fn new(shape: Shape) -> Self {
        Limited { sets: Sets::new(shape.sets, shape.ways), ways: shape.ways, misses: [0; 2] }
    }

    /// Does the steps, whose keys have no larger slot than `most_slot`.
    pub fn run(&mut self, steps: &[Step], most_slot: u32) {
        self.sets.widen(most_slot);
        let [send, receive] = of_any_width!(&mut self.sets, sets => run(sets, self.ways, steps));
        self.misses[0] += send;
        self.misses[1] += receive;
    }

    pub fn misses(&self) -> PathMisses {
        PathMisses { send_other: self.misses[0], receive_other: self.misses[1], ..PathMisses::default() }
    }
}

fn run<L: Lanes>(sets: &mut [L], ways: usize, steps: &[Step]) -> [u64; 2] {
    let (mut misses, mut receive_misses) = (0, 0);
    for step in steps {
        remove(sets, step.unpinned);
        let missed = u64::from(!touch(sets, ways, step.looked_up));
        misses += missed;
        receive_misses += missed & u64::from(step.looked_up >> RECEIVE.trailing_zeros());
    }
    [misses - receive_misses, receive_misses]
}
