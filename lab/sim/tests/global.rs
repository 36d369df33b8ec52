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
    let mut sum = mapwire_sim::global::Seen::default();
    for seed in first..first + n {
        let outcome = run(seed, &rules, None);
        if let Some(v) = &outcome.violation {
            bad += 1;
            println!("seed {seed}: {v:?}");
        }
        if n == 1 {
            let wanted = GlobalWanted {
                rules: parse_rules(&rules).unwrap(),
                ..GlobalWanted::default()
            };
            println!("{}", GlobalScenario::draw(seed, &wanted));
            println!("{outcome:?}");
        }
        sum.add(&outcome.seen);
    }
    println!("bad {bad} {sum:?}");
}

#[test]
fn canaries() {
    for (name, canary) in GlobalCanary::ALL {
        for rules in ["none", "delay,pause", "all"] {
            let mut found = vec![];
            for seed in 0..100 {
                if let Some((_, v)) = run(seed, rules, Some(canary)).violation {
                    found.push((seed, v.check));
                }
            }
            println!(
                "{name} {rules}: {} {:?}",
                found.len(),
                found.iter().take(6).collect::<Vec<_>>()
            );
        }
    }
}
