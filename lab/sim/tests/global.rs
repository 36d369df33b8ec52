//! Global memory in simulated clusters.

use mapwire_sim::canary::GlobalCanary;
use mapwire_sim::global::{GlobalOutcome, GlobalScenario, GlobalWanted};
use mapwire_sim::parse_rules;

fn run(seed: u64, rules: &str, canary: Option<GlobalCanary>) -> GlobalOutcome {
    let wanted = GlobalWanted {
        rules: parse_rules(rules).unwrap(),
        canary,
        ..GlobalWanted::default()
    };
    GlobalScenario::draw(seed, &wanted).run().unwrap()
}

#[test]
fn every_page_read_is_the_page_last_written_under_faults() {
    let first: u64 = std::env::var("F").map_or(0, |text| text.parse().unwrap());
    let n: u64 = std::env::var("N").map_or(100, |text| text.parse().unwrap());
    let rules = std::env::var("R").unwrap_or("none".into());
    let mut bad = 0;
    for seed in first..first + n {
        let outcome = run(seed, &rules, None);
        if let Some(v) = &outcome.violation {
            bad += 1;
            println!("seed {seed}: {v:?}");
        }
        if n == 1 {
            println!("{outcome:?}");
        }
    }
    println!("bad {bad}");
}
