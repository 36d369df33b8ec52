//! Pause: a node does nothing for a time.

use mapwire_wire::NodeId;

use super::{Effect, Fault, Shape, Window, some};
use crate::random::Random;

#[derive(Debug)]
struct Pause {
    window: Window,
    node: NodeId,
}

impl Fault for Pause {
    fn rule(&self) -> &'static str {
        "pause"
    }

    fn window(&self) -> Window {
        self.window
    }

    fn begin(&self) -> Effect {
        Effect::Pause(self.node)
    }
}

pub(super) fn draw(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 3, |random| Pause { window: shape.window(random, shape.heal_ns / 2), node: shape.node(random) })
}
