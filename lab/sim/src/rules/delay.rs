//! Delay: packets arrive later, each by another time.

use mapwire_wire::NodeId;

use super::{Fault, Shape, Window, some};
use crate::random::Random;

#[derive(Debug)]
struct Delay {
    window: Window,
    most_ns: u64,
    percent: u64,
}

impl Fault for Delay {
    fn rule(&self) -> &'static str {
        "delay"
    }

    fn window(&self) -> Window {
        self.window
    }

    fn delay_ns(&self, _now_ns: u64, _from: NodeId, _to: NodeId, random: &mut Random) -> u64 {
        if random.chance(self.percent) { random.below(self.most_ns) } else { 0 }
    }
}

pub(super) fn draw(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 3, |random| Delay {
        window: shape.window(random, shape.heal_ns),
        most_ns: random.spread(100, 1_000_000),
        percent: random.within(1, 100),
    })
}
