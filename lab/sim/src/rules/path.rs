//! Path: all packets from one node to another take much longer; where packets can be lost, one path carries nothing.

use mapwire_wire::NodeId;

use super::{Fault, Harm, Shape, Window, some};
use crate::random::Random;

#[derive(Debug)]
struct Path {
    window: Window,
    from: NodeId,
    to: NodeId,
    extra_ns: u64,
    path: u8,
}

impl Fault for Path {
    fn rule(&self) -> &'static str {
        "path"
    }

    fn window(&self) -> Window {
        self.window
    }

    fn delay_ns(&self, _now_ns: u64, from: NodeId, to: NodeId, _random: &mut Random) -> u64 {
        if (from, to) == (self.from, self.to) { self.extra_ns } else { 0 }
    }

    fn harm(&self, from: NodeId, to: NodeId, path: u8, _random: &mut Random) -> Option<Harm> {
        let is_hit = (from, to, path) == (self.from, self.to, self.path);
        is_hit.then_some(Harm::Lose)
    }
}

pub(super) fn draw(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 4, |random| Path {
        window: shape.window(random, shape.heal_ns),
        from: shape.node(random),
        to: shape.node(random),
        extra_ns: random.spread(1_000, 5_000_000),
        path: random.below(3) as u8,
    })
}
