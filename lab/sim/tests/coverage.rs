//! Whatever is checked also happens: each rule fires and each condition of a check holds in the first runs.

use mapwire_sim::global::GlobalWanted;
use mapwire_sim::rpc::RpcWanted;
use mapwire_sim::scenario::Wanted;
use mapwire_sim::shared::SharedWanted;
use mapwire_sim::vopr::{Mixture, Wants, never};
use mapwire_sim::{Coverage, Interrupt, Scenario, Workload, parse_rules};

fn mixture() -> Mixture {
    let rules = parse_rules("all").unwrap();
    let shared = |litmus| Wants::Shared(SharedWanted { rules: rules.clone(), litmus, ..SharedWanted::default() });
    Mixture::new([
        Wants::Calls(Box::new(Wanted { rules: rules.clone(), ..Wanted::default() })),
        shared(false),
        shared(true),
        Wants::Global(GlobalWanted { rules: rules.clone(), ..GlobalWanted::default() }),
        Wants::Rpc(RpcWanted { rules: rules.clone(), ..RpcWanted::default() }),
    ])
}

#[test]
fn every_rule_fires_and_every_condition_holds_within_720_seeds() {
    let mixture = mixture();
    let mut sum = Coverage::default();
    for seed in 0..720 {
        let ran = mixture.of(seed).run(seed, &Interrupt::default()).unwrap();
        assert!(ran.violation.is_none() && ran.is_whole, "seed {seed}: {ran:?}");
        sum.add(&ran.coverage);
        if seed > 200 && never(mixture.kinds(), &sum).is_empty() {
            return;
        }
    }
    let missed = never(mixture.kinds(), &sum);
    assert!(missed.is_empty(), "never happened: {missed:#?}");
}

#[test]
fn without_faults_no_condition_that_needs_them_holds() {
    let wants = Wants::Calls(Box::default());
    let mut sum = Coverage::default();
    for seed in 0..20 {
        sum.add(&wants.run(seed, &Interrupt::default()).unwrap().coverage);
    }
    let never = never(&[wants], &sum);
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
