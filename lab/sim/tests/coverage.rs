//! Whatever is checked also happens: each rule fires and each condition of a check holds in the first runs.

use mapwire_sim::vopr::{Kind, Wants, never, of_turn};
use mapwire_sim::{Coverage, Interrupt, Scenario, Wanted, Workload, parse_rules};

fn mixture() -> [Wants; 6] {
    let rules = parse_rules("all").unwrap();
    Kind::ALL.map(|kind| (kind, Wanted { rules: rules.clone(), litmus: kind == Kind::Litmus, ..Wanted::default() }))
}

#[test]
fn every_rule_fires_and_every_condition_holds_within_720_seeds() {
    let mixture = mixture();
    let mut sum = Coverage::default();
    for seed in 0..720 {
        let (kind, wanted) = of_turn(&mixture, seed);
        let ran = kind.run(wanted, seed, &Interrupt::default()).unwrap();
        assert!(ran.violation.is_none() && ran.is_whole, "seed {seed}: {ran:?}");
        sum.add(&ran.coverage);
        if seed > 200 && never(&mixture, &sum).is_empty() {
            return;
        }
    }
    let missed = never(&mixture, &sum);
    assert!(missed.is_empty(), "never happened: {missed:#?}");
}

#[test]
fn without_faults_no_condition_that_needs_them_holds() {
    let wanted = Wanted::default();
    let mut sum = Coverage::default();
    for seed in 0..20 {
        sum.add(&Kind::Calls.run(&wanted, seed, &Interrupt::default()).unwrap().coverage);
    }
    let never = never(&[(Kind::Calls, wanted)], &sum);
    assert!(never.iter().any(|what| what.contains("a wrong key")), "{never:?}");
}

#[test]
fn an_interrupt_ends_a_run_on_its_way() {
    let scenario = Scenario::draw(3, &Wanted::default()).unwrap();
    let whole = scenario.run().unwrap();
    let ended = scenario.run_until(&Interrupt::new(|| true)).unwrap();
    assert!(whole.is_whole && !ended.is_whole && ended.violation.is_none());
    assert!(ended.events < 1024 && ended.events < whole.events);
}
