//! Caches under a limit on pinned pages. What is unpinned leaves the cache, so a cache with fewer ways is no part of one with
//! more, and each shape is run for itself.

use super::lanes::{Eight, EightBytes, Four, One, Sets};
use super::levels::Shape;
use super::pins::Step;
use crate::counts::PathMisses;
use crate::decode::RECEIVE;

/// One cache with lines of one page, for what [`Pins::run`](super::Pins::run) hands on.
#[derive(Clone, Debug)]
pub struct Limited {
    state: State,
    misses: [u64; 2],
}

#[derive(Clone, Debug)]
enum State {
    One(One),
    Four(Four),
    EightBytes(EightBytes),
    Eight(Eight),
}

impl Limited {
    /// An empty cache of the shape, which [`Shape::is_taken`].
    pub fn new(shape: Shape) -> Self {
        Limited {
            state: match shape.ways {
                1 => State::One(One::new(shape.sets)),
                2..=4 => State::Four(Four::new(shape.sets, shape.ways)),
                _ => State::EightBytes(EightBytes::new(shape.sets)),
            },
            misses: [0; 2],
        }
    }

    /// Does the steps, whose keys have no larger slot than `most_slot`.
    pub fn run(&mut self, steps: &[Step], most_slot: u32) {
        if let State::EightBytes(bytes) = &self.state
            && most_slot > u32::from(u8::MAX)
        {
            self.state = State::Eight(bytes.widened());
        }
        let [send, receive] = match &mut self.state {
            State::One(sets) => run(sets, steps),
            State::Four(sets) => run(sets, steps),
            State::EightBytes(sets) => run(sets, steps),
            State::Eight(sets) => run(sets, steps),
        };
        self.misses[0] += send;
        self.misses[1] += receive;
    }

    /// Misses so far, by path.
    pub fn misses(&self) -> PathMisses {
        PathMisses { send_other: self.misses[0], receive_other: self.misses[1], ..PathMisses::default() }
    }
}

/// Misses of the steps, by path.
fn run(sets: &mut impl Sets, steps: &[Step]) -> [u64; 2] {
    let (mut misses, mut receive_misses) = (0, 0);
    for step in steps {
        sets.remove(step.unpinned);
        let missed = u64::from(!sets.touch(step.looked_up));
        misses += missed;
        receive_misses += missed & u64::from(step.looked_up >> RECEIVE.trailing_zeros());
    }
    [misses - receive_misses, receive_misses]
}
