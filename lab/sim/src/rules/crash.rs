//! Crash: a node stops for good.

use mapwire_wire::NodeId;

use super::{Effect, Fault, Shape, Window};
use crate::random::Random;

#[derive(Debug)]
struct Crash {
    at_ns: u64,
    node: NodeId,
}

impl Fault for Crash {
    fn rule(&self) -> &'static str {
        "crash"
    }

    fn window(&self) -> Window {
        Window { begin_ns: self.at_ns, end_ns: self.at_ns }
    }

    fn begin(&self) -> Effect {
        Effect::Crash(self.node)
    }
}

/// Up to a third of the nodes.
pub(super) fn draw(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    let crashes = random.below(u64::from(shape.nodes) / 3 + 1);
    let crash =
        |_| -> Box<dyn Fault> { Box::new(Crash { at_ns: random.below(shape.heal_ns), node: shape.node(random) }) };
    (0..crashes).map(crash).collect()
}
