//! A hit allocates nothing, in any design; nor does a check that finds everything pinned.

extern crate alloc;

use counting::calls;
use mapwire_translation::{
    AnyDesign, HandleLookup, Hosts, Lookup, Page, PageRange, PinLimit, PinRules, Policy, Process, SimulatedPinner,
    TranslationDesign,
};

#[path = "../../../tests/allocations.rs"]
mod counting;
#[path = "../src/tests/words.rs"]
mod words;

/// Number of allocations and frees in `work`.
fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = calls();
    work();
    calls() - before
}

const PROCESSES: u16 = 3;
const RANGE: PageRange = PageRange { first: Page(100), count: 40 };

fn prepared(design: &str, rules: PinRules) -> (AnyDesign, Hosts, SimulatedPinner) {
    let mut nic = AnyDesign::new(&words::parse_design(design).unwrap()).unwrap();
    let (mut hosts, mut pinner) = (Hosts::new(), SimulatedPinner::default());
    for process in (0..PROCESSES).map(Process) {
        hosts.open(&mut nic, process, rules).unwrap();
        let side = hosts.side_mut(process).unwrap();
        side.prepare(&mut nic, &mut pinner, RANGE).unwrap();
        side.prepare_receive(&mut nic, &mut pinner, RANGE).unwrap();
        side.hold_receive(RANGE).unwrap();
        for page in RANGE {
            hosts.translate(&mut nic, &mut pinner, process, page).unwrap();
            hosts.translate_receive(&mut nic, &mut pinner, process, page).unwrap();
        }
        nic.fill_buffer(process, 5);
        nic.fill_process(process);
    }
    (nic, hosts, pinner)
}

#[test]
fn hits_allocate_nothing() {
    for design in [
        "hierarchical",
        "hierarchical,ways=4",
        "hierarchical,line=16,ways=2,prefetch=8,tables=4",
        "shared-cache",
        "shared-cache,line=16,ways=2",
        "per-process",
        "interrupt",
        "interrupt,variant=vmmc",
        "dynamic-handle",
    ] {
        let (mut nic, _, _) = prepared(design, PinRules::default());
        let allocations = allocations_of(|| {
            for process in (0..PROCESSES).map(Process) {
                for page in RANGE {
                    assert!(matches!(nic.lookup(process, page), Lookup::Hit(_)), "{design}");
                    assert!(matches!(nic.lookup_receive(process, page), Lookup::Hit(_)), "{design}");
                }
                assert_eq!(nic.lookup_buffer(process, 5), HandleLookup::Hit);
                assert_eq!(nic.lookup_process(process), HandleLookup::Hit);
            }
        });
        assert_eq!(allocations, 0, "{design}");
    }
}

#[test]
fn a_transfer_of_pinned_pages_allocates_nothing() {
    for policy in Policy::PREDEFINED {
        for limit in [PinLimit::Unlimited, PinLimit::Pages(60)] {
            let rules = PinRules::default().with_policy(policy).with_limit(limit);
            for design in ["hierarchical", "interrupt", "dynamic-handle"] {
                let (mut nic, mut hosts, mut pinner) = prepared(design, rules);
                let mut transfer = || {
                    for first in RANGE.iter().step_by(7) {
                        let range = PageRange { first, count: 3 };
                        let side = hosts.side_mut(Process(1)).unwrap();
                        side.prepare(&mut nic, &mut pinner, range).unwrap();
                        side.hold(range).unwrap();
                        side.release(range).unwrap();
                    }
                };
                // A bucket is allocated when its number of uses first occurs.
                (0..3).for_each(|_| transfer());
                assert_eq!(allocations_of(transfer), 0, "{design} with {policy}, {limit}");
            }
        }
    }
}
