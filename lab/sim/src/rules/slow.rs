//! Slow: a node's processor is many times slower than others.

use mapwire_wire::NodeId;

use super::{Effect, Fault, Shape, Window, some};
use crate::random::Random;

#[derive(Debug)]
struct Slow {
    window: Window,
    node: NodeId,
    factor: u64,
}

impl Fault for Slow {
    fn rule(&self) -> &'static str {
        "slow"
    }

    fn window(&self) -> Window {
        self.window
    }

    fn begin(&self) -> Effect {
        Effect::Slow(self.node, self.factor)
    }
}

pub(super) fn draw(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 2, |random| Slow {
        window: shape.window(random, shape.heal_ns),
        node: shape.node(random),
        factor: random.spread(2, 100),
    })
}
