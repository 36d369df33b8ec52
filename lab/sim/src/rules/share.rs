//! Drop, duplicate, reorder, corrupt: a share of all datagrams meets with harm.

use mapwire_wire::NodeId;

use super::{Fault, Harm, Shape, Window, some};
use crate::random::Random;

#[derive(Debug)]
struct Share {
    window: Window,
    percent: u64,
    /// Of a datagram that is late, at most.
    most_ns: u64,
    harm: Harm,
}

impl Fault for Share {
    fn rule(&self) -> &'static str {
        match self.harm {
            Harm::Lose => "drop",
            Harm::Repeat => "duplicate",
            Harm::Late(_) => "reorder",
            Harm::Damage => "corrupt",
        }
    }

    fn window(&self) -> Window {
        self.window
    }

    fn harm(&self, _from: NodeId, _to: NodeId, _path: u8, random: &mut Random) -> Option<Harm> {
        let is_hit = random.chance(self.percent);
        is_hit.then(|| match self.harm {
            Harm::Late(_) => Harm::Late(random.below(self.most_ns)),
            harm => harm,
        })
    }
}

pub(super) fn draw(random: &mut Random, shape: &Shape, harm: Harm) -> Vec<Box<dyn Fault>> {
    some(random, 3, |random| Share {
        window: shape.window(random, shape.heal_ns),
        percent: random.spread(1, 50),
        most_ns: random.spread(1_000, 5_000_000),
        harm,
    })
}
