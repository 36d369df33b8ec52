//! Refused pins: the system lets a node pin nothing for a while, or only some of what it asks for, as at a limit on locked memory.

use mapwire_wire::NodeId;

use super::{Effect, Fault, Shape, Window, some};
use crate::random::Random;

#[derive(Debug)]
struct Refuse {
    window: Window,
    node: NodeId,
    calls: u32,
    every: u32,
}

impl Fault for Refuse {
    fn rule(&self) -> &'static str {
        "refuse-pins"
    }

    fn window(&self) -> Window {
        self.window
    }

    fn begin(&self) -> Effect {
        Effect::RefusePins(self.node, self.calls, self.every)
    }
}

pub(super) fn draw(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 3, |random| Refuse {
        window: match random.chance(50) {
            true => shape.window(random, shape.heal_ns),
            false => Window { begin_ns: random.below(shape.heal_ns), end_ns: shape.heal_ns },
        },
        node: shape.node(random),
        calls: random.spread(1, 20) as u32,
        every: random.spread(1, 4) as u32,
    })
}
