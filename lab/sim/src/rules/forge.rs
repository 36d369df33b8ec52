//! Forge: a hostile or mistaken node shows keys that are wrong, stale or another's, and asks for what it was not granted.

use mapwire_wire::NodeId;

use super::{Effect, Fault, Shape, Window, some};
use crate::random::Random;

#[derive(Debug)]
struct Forge {
    window: Window,
    node: NodeId,
}

impl Fault for Forge {
    fn rule(&self) -> &'static str {
        "forge"
    }

    fn window(&self) -> Window {
        self.window
    }

    fn begin(&self) -> Effect {
        Effect::Forge(self.node)
    }
}

pub(super) fn draw(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    // It takes a while until it has anything to forge.
    some(random, 3, |random| Forge {
        window: Window { begin_ns: random.below(shape.heal_ns / 2), end_ns: shape.heal_ns },
        node: shape.node(random),
    })
}
