//! Faults that compose: each rule draws faults of its kind, and each fault is in force for a time.
//!
//! All faults end by [`Shape::heal_ns`]; only a crash stays. A rule that is not named does nothing. Some need a transport that may lose
//! packets.

mod delay;
mod nodes;
mod partition;
mod path;
mod share;

use core::fmt::Debug;

use mapwire_wire::NodeId;
use thiserror::Error;

use crate::random::Random;

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub nodes: u16,
    /// When the last fault ends, in nanoseconds from the start.
    pub heal_ns: u64,
}

impl Shape {
    /// A node of the cluster.
    fn node(&self, random: &mut Random) -> NodeId {
        NodeId(random.below(self.nodes.into()) as u16)
    }

    /// A time and another that is `longest_ns` later at most.
    fn window(&self, random: &mut Random, longest_ns: u64) -> Window {
        let begin_ns = random.below(self.heal_ns);
        let end_ns = begin_ns + random.spread(1_000, longest_ns.max(1_000));
        Window { begin_ns, end_ns: end_ns.min(self.heal_ns) }
    }
}

/// When a fault is in force.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// First nanosecond, counted from the start.
    pub begin_ns: u64,
    /// The nanosecond behind the last.
    pub end_ns: u64,
}

/// What a fault changes as it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Packets are [delayed](Fault::delay_ns) as long as it is in force.
    Packets,
    Pause(NodeId),
    /// The node is so many times slower.
    Slow(NodeId, u64),
    /// The node's pinner refuses so many calls: every so-manieth.
    RefusePins(NodeId, u32, u32),
    /// Programs of the node make forged packets.
    Forge(NodeId),
    /// The node stops for good.
    Crash(NodeId),
    /// The node stops, and starts anew when the fault ends.
    Restart(NodeId),
}

/// What a transport that may lose packets does to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Lose,
    Repeat,
    /// It arrives so much later, and others overtake it.
    Late(u64),
    /// A bit of it changes.
    Damage,
}

/// Something that goes wrong for a time.
pub trait Fault: Debug {
    /// The name of its rule.
    fn rule(&self) -> &'static str;
    /// When it is in force.
    fn window(&self) -> Window;
    fn begin(&self) -> Effect {
        Effect::Packets
    }
    /// How much later a packet arrives that is sent while it is in force.
    fn delay_ns(&self, _now_ns: u64, _from: NodeId, _to: NodeId, _random: &mut Random) -> u64 {
        0
    }
    /// What happens to a datagram that is sent on path `path` while it is in force, where datagrams can be lost. Then it is not
    /// delayed besides.
    fn harm(&self, _from: NodeId, _to: NodeId, _path: u8, _random: &mut Random) -> Option<Harm> {
        None
    }
}

#[derive(Clone, Copy)]
pub struct Rule {
    /// Its name on the command line.
    pub name: &'static str,
    pub about: &'static str,
    /// Whether it needs a transport that may lose packets.
    pub is_lossy: bool,
    pub draw: fn(&mut Random, &Shape) -> Vec<Box<dyn Fault>>,
}

impl Debug for Rule {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! rules {
    ($($name:literal $is_lossy:literal $draw:expr => $about:literal;)*) => {
        pub const RULES: &[Rule] = &[$(Rule { name: $name, about: $about, is_lossy: $is_lossy, draw: $draw }),*];
    };
}

rules! {
    "delay" false delay::draw => "packets arrive later, each by another time; those of different pairs overtake each other";
    "partition" false partition::draw => "two groups of nodes hear nothing of each other until the partition ends: what they send is late, or lost where it can be";
    "path" false path::draw => "all packets from one node to another take much longer; where packets can be lost, one of their paths carries nothing";
    "pause" false nodes::pause => "a node does nothing for a time";
    "slow" false nodes::slow => "a node's processor is up to 100 times slower";
    "refuse-pins" false nodes::refuse => "a node's pinner refuses calls, all or every few";
    "crash" false nodes::crash => "a node stops for good, and the others learn of it later";
    "drop" true |random, shape| share::draw(random, shape, Harm::Lose) => "datagrams are lost";
    "duplicate" true |random, shape| share::draw(random, shape, Harm::Repeat) => "datagrams arrive twice, and those that greeted a peer once more after a restart";
    "reorder" true |random, shape| share::draw(random, shape, Harm::Late(0)) => "datagrams are overtaken by later ones";
    "corrupt" true |random, shape| share::draw(random, shape, Harm::Damage) => "a bit of a datagram changes, which the transport's checksum finds";
    "restart" true nodes::restart => "a node stops, forgets all, and starts anew";
    "forge" false nodes::forge => "a node sends packets whose keys are wrong, stale or another's, or that ask for what it was not granted";
}

/// A rule that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    #[error("unknown rule `{name}`: expected all, none or some of {known}")]
    Unknown { name: String, known: String },
}

/// The rules that a list names: `all`, `none`, or names with commas between them.
pub fn parse_rules(text: &str) -> Result<Vec<Rule>, RuleError> {
    match text.trim() {
        "all" => return Ok(RULES.to_vec()),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let mut chosen: Vec<Rule> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
            let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
            return Err(RuleError::Unknown { name: name.into(), known: names.join(", ") });
        };
        if chosen.iter().all(|other| other.name != rule.name) {
            chosen.push(*rule);
        }
    }
    Ok(chosen)
}

/// The names of rules, with commas between them; `none` if there are none.
pub(crate) fn names(rules: &[Rule]) -> String {
    let names: Vec<&str> = rules.iter().map(|rule| rule.name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// A few faults: up to `most`, each made by `make`.
fn some<F: Fault + 'static>(
    random: &mut Random,
    most: u64,
    mut make: impl FnMut(&mut Random) -> F,
) -> Vec<Box<dyn Fault>> {
    let count = random.within(1, most);
    let boxed = |_| -> Box<dyn Fault> { Box::new(make(random)) };
    (0..count).map(boxed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_found_by_name_and_what_is_none_is_named() {
        let names = |text| {
            let rules = parse_rules(text).unwrap();
            rules.iter().map(|rule| rule.name).collect::<Vec<_>>()
        };
        assert_eq!(names("pause, delay,pause"), ["pause", "delay"]);
        assert_eq!(names("none"), [""; 0]);
        assert_eq!(names("all").len(), RULES.len());
        let error = parse_rules("delay,flood").unwrap_err().to_string();
        assert!(error.starts_with("unknown rule `flood`"), "{error}");
        assert!(parse_rules("").is_err());
    }

    #[test]
    fn every_fault_ends_before_the_cluster_heals() {
        let shape = Shape { nodes: 5, heal_ns: 1_000_000 };
        for seed in 0..200 {
            let mut random = Random::new(seed);
            for rule in RULES {
                for fault in (rule.draw)(&mut random, &shape) {
                    let Window { begin_ns, end_ns } = fault.window();
                    assert!(begin_ns <= end_ns && end_ns <= shape.heal_ns, "{fault:?}");
                }
            }
        }
    }
}
