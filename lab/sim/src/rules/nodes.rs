//! What happens to a node: it stops, starts anew, pauses, is slow, is refused pins, or forges.

use super::{Effect, Fault, Shape, Window, some};
use crate::random::Random;

#[derive(Debug)]
struct OnNode {
    rule: &'static str,
    window: Window,
    effect: Effect,
}

impl Fault for OnNode {
    fn rule(&self) -> &'static str {
        self.rule
    }

    fn window(&self) -> Window {
        self.window
    }

    fn begin(&self) -> Effect {
        self.effect
    }
}

/// Up to a third of the nodes.
pub(super) fn crash(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    let crashes = random.below(u64::from(shape.nodes) / 3 + 1);
    let crash = |_| -> Box<dyn Fault> {
        let at_ns = random.below(shape.heal_ns);
        let window = Window { begin_ns: at_ns, end_ns: at_ns };
        Box::new(OnNode { rule: "crash", window, effect: Effect::Crash(shape.node(random)) })
    };
    (0..crashes).map(crash).collect()
}

pub(super) fn restart(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 3, |random| OnNode {
        rule: "restart",
        window: shape.window(random, shape.heal_ns),
        effect: Effect::Restart(shape.node(random)),
    })
}

pub(super) fn pause(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 3, |random| OnNode {
        rule: "pause",
        window: shape.window(random, shape.heal_ns / 2),
        effect: Effect::Pause(shape.node(random)),
    })
}

pub(super) fn slow(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 2, |random| OnNode {
        rule: "slow",
        window: shape.window(random, shape.heal_ns),
        effect: Effect::Slow(shape.node(random), random.spread(2, 100)),
    })
}

/// The system lets a node pin nothing for a while, or only some of what it asks for, as at a limit on locked memory.
pub(super) fn refuse(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    some(random, 3, |random| OnNode {
        rule: "refuse-pins",
        window: if random.chance(50) {
            shape.window(random, shape.heal_ns)
        } else {
            Window { begin_ns: random.below(shape.heal_ns), end_ns: shape.heal_ns }
        },
        effect: Effect::RefusePins(shape.node(random), random.spread(1, 20) as u32, random.spread(1, 4) as u32),
    })
}

/// A hostile or mistaken node shows keys that are wrong, stale or another's, and asks for what it was not granted.
pub(super) fn forge(random: &mut Random, shape: &Shape) -> Vec<Box<dyn Fault>> {
    // It takes a while until it has anything to forge.
    some(random, 3, |random| OnNode {
        rule: "forge",
        window: Window { begin_ns: random.below(shape.heal_ns / 2), end_ns: shape.heal_ns },
        effect: Effect::Forge(shape.node(random)),
    })
}
