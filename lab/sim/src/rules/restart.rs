//! Restart: a node stops, forgets all, and starts anew.

use mapwire_wire::NodeId;

use super::{Effect, Fault, Shape, Window, some};
use crate::random::Random;

#[derive(Debug)]
struct Restart {
    window: Window,
    node: NodeId,
}

impl Fault for Restart {
    fn rule(&self) -> &'static str {
        "restart"
    }

    fn window(&self) -> Window {
        self.window
    }

    fn begin(&self) -> Effect {
        Effect::Restart(self.node)
    }
}

pub(super) fn draw(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 3, |random| Restart { window: shape.window(random, shape.heal_ns), node: shape.node(random) })
}
