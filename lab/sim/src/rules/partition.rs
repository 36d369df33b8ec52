//! Partition: two groups of nodes hear nothing of each other until it ends.

use mapwire_wire::NodeId;

use super::{Fault, Harm, Shape, Window, some};
use crate::random::{Random, mix};

#[derive(Debug)]
struct Partition {
    window: Window,
    seed: u64,
}

impl Partition {
    fn group(&self, node: NodeId) -> bool {
        mix(self.seed ^ u64::from(node.0)) & 1 == 0
    }
}

impl Fault for Partition {
    fn rule(&self) -> &'static str {
        "partition"
    }

    fn window(&self) -> Window {
        self.window
    }

    fn delay_ns(&self, now_ns: u64, from: NodeId, to: NodeId, _random: &mut Random) -> u64 {
        if self.group(from) == self.group(to) { 0 } else { self.window.end_ns.saturating_sub(now_ns) }
    }

    fn harm(&self, from: NodeId, to: NodeId, _path: u8, _random: &mut Random) -> Option<Harm> {
        (self.group(from) != self.group(to)).then_some(Harm::Lose)
    }
}

pub(super) fn draw(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 2, |random| Partition { window: shape.window(random, shape.heal_ns / 2), seed: random.next() })
}
