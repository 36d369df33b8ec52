//! What happened in the runs of `mapwire sim vopr`: rules and conditions, and what of them never happened.

use mapwire_sim::vopr::{Wants, never};
use mapwire_sim::{Condition, Coverage, RULES};
use serde_json::json;

/// Seeds after which what never happened is worth a line of its own.
const ENOUGH: u64 = 500;

pub(super) struct Ran {
    pub(super) first: u64,
    pub(super) seeds: u64,
    pub(super) packets: u64,
    pub(super) seconds: f64,
}

fn rules(kinds: &[Wants]) -> impl Iterator<Item = &'static str> {
    let is_drawn = |name: &str| {
        let mut rules = kinds.iter().flat_map(|(_, wanted)| &wanted.rules);
        rules.any(|rule| rule.name == name)
    };
    RULES.iter().map(|rule| rule.name).filter(move |name| is_drawn(name))
}

fn conditions(kinds: &[Wants]) -> impl Iterator<Item = Condition> {
    let has = |condition: &Condition| kinds.iter().any(|(kind, _)| kind.has(*condition));
    Condition::ALL.iter().copied().filter(move |condition| has(condition))
}

pub(super) fn show(seeds: u64, kinds: &[Wants], sum: &Coverage) {
    for name in rules(kinds) {
        let of = sum.of_rule(name);
        println!("rule {name}: {} faults, which fired {} times", of.drawn, of.fired);
    }
    for condition in conditions(kinds) {
        let (check, about) = condition.about();
        println!("check {check}: {about}: {} times", sum.of(condition));
    }
    if seeds >= ENOUGH {
        for what in never(kinds, sum) {
            println!("NEVER HAPPENED: {what}");
        }
    }
}

/// For programs, an object a line.
pub(super) fn rows(ran: &Ran, kinds: &[Wants], sum: &Coverage) {
    let Ran { first, seeds, packets, seconds } = ran;
    let never: Vec<String> = never(kinds, sum);
    println!(
        "{}",
        json!({
            "kind": "vopr", "first_seed": first, "seeds": seeds, "packets": packets, "seconds": seconds,
            "violation": null, "never": never,
        })
    );
    for name in rules(kinds) {
        let of = sum.of_rule(name);
        println!("{}", json!({ "kind": "rule", "rule": name, "faults": of.drawn, "fired": of.fired }));
    }
    for condition in conditions(kinds) {
        let (check, about) = condition.about();
        let times = sum.of(condition);
        println!("{}", json!({ "kind": "condition", "check": check, "condition": about, "times": times }));
    }
}
