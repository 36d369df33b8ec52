//! Pages pinned on demand, within a limit, least recently used first (UTLB §3), by either pinner.

use std::alloc::{Layout, alloc_zeroed, dealloc};

use mapwire::{Node, TranslationCounters};

use crate::harness::{job, pattern, refused};

const PAGE: usize = 4096;
const PINNERS: [&str; 2] = ["mlock", "io_uring"];

/// Private memory of whole pages.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(pages: usize) -> Self {
        // SAFETY: the layout has a size above 0.
        Self(unsafe { alloc_zeroed(Self::layout(pages)) }, pages)
    }

    fn layout(pages: usize) -> Layout {
        Layout::from_size_align(pages * PAGE, PAGE).unwrap()
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: memory of this value alone, of that length, and borrowed with it.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1 * PAGE) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: what `new` got, with the same layout.
        unsafe { dealloc(self.0, Self::layout(self.1)) };
    }
}

fn counts(node: &Node, before: TranslationCounters) -> TranslationCounters {
    node.translation_counters() - before
}

#[test]
fn a_limit_on_pinned_pages_unpins_the_least_recently_used() {
    // 16 pages at a time. Each send has 6 pages of its own; two fit, a third takes the place of the older.
    for pinner in PINNERS {
        job(2)
            .called(pinner)
            .option("--pinner", pinner)
            .option("--pin-limit", "64K")
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let buffer = node.alloc(6 * PAGE).unwrap();
                    let export = node.export_buffer(&buffer).ring_only().name("ring");
                    let _export = export.start().unwrap();
                    rank.meet("end");
                    return;
                }
                let ring = node.import(0, "ring").start().unwrap();
                let mut sources: Vec<Pages> = (0..3).map(|_| Pages::new(6)).collect();
                for (seed, source) in (1..).zip(&mut sources) {
                    source.bytes().copy_from_slice(&pattern(seed, 6 * PAGE));
                }
                // Which source; pages pinned and unpinned for it.
                let turns = [
                    (0, 6, 0),
                    (1, 6, 0),
                    (0, 0, 0),
                    // 18 pages would be 2 too many: two pages of the second go.
                    (2, 6, 2),
                    (0, 0, 0),
                    (2, 0, 0),
                    // The second has 4 pages left of 6, and room for 2 is made at the cost of the first.
                    (1, 2, 2),
                ];
                for (turn, (source, pins, unpins)) in turns.into_iter().enumerate() {
                    let before = node.translation_counters();
                    ring.send(sources[source].bytes(), 0).unwrap();
                    let change = counts(&node, before);
                    assert_eq!((change.pins, change.unpins), (pins, unpins), "turn {turn}");
                    assert_eq!(change.check_misses, pins, "turn {turn}");
                    assert_eq!(change.lookups, 6, "turn {turn}");
                    let all = node.translation_counters();
                    assert_eq!(all.pins - all.unpins, all.pinned_pages);
                    assert!(all.pinned_pages <= 16, "{all}");
                }
                // A transfer that can never fit is refused, and changes nothing.
                let before = node.translation_counters();
                let mut large = Pages::new(17);
                refused(ring.send(&large.bytes()[..6 * PAGE + 1], 0), &["pass the end"]);
                let mut back = vec![0; 6 * PAGE];
                drop(ring);
                let ring = node.import(0, "ring").rights(mapwire::Rights::ALL).start().unwrap();
                ring.fetch(0, &mut back).unwrap();
                assert!(back == sources[1].bytes());
                assert!(counts(&node, before).pinned_pages <= 16);
                rank.meet("end");
            })
            .succeeds();
    }
}

#[test]
fn a_transfer_or_export_beyond_the_limit_is_refused_and_names_it() {
    for pinner in PINNERS {
        job(2)
            .called(pinner)
            .option("--pinner", pinner)
            .option("--pin-limit", "64K")
            .run(|rank| {
                let node = rank.node();
                let buffer = node.alloc(64 * PAGE).unwrap();
                if rank.number == 0 {
                    // On the direct path nothing is pinned.
                    let other = node.alloc(64 * PAGE).unwrap();
                    let direct = node.export_buffer(&other).name("direct").start().unwrap();
                    let outcome = node.export_buffer(&buffer).ring_only().name("ring").start();
                    refused(outcome, &["64 pages", "16 pages may be pinned", "raise the limit"]);
                    // Nothing of it is left: the name is free, and so are the pages.
                    let small = node.export_buffer(&buffer).range(0, 16 * PAGE as u64).unwrap();
                    let small = small.name("ring").start().unwrap();
                    rank.meet("end");
                    let mut found = vec![0; 100];
                    small.read(0, &mut found).unwrap();
                    assert!(found.iter().all(|byte| *byte == 0), "nothing was stored");
                    drop(direct);
                } else {
                    let ring = node.import(0, "ring").rights(mapwire::Rights::ALL).start().unwrap();
                    let mut own = Pages::new(17);
                    let data = &own.bytes()[..16 * PAGE];
                    ring.send(data, 0).unwrap();
                    let parts = ["17 pages", "16 pages may be pinned", "send less at once"];
                    // The same length, but across one more page.
                    let shifted = &own.bytes()[1..=16 * PAGE];
                    refused(ring.send(shifted, 0), &parts);
                    refused(ring.fetch(0, &mut own.bytes()[1..=16 * PAGE]), &parts);
                    // The direct path pins nothing.
                    let direct = node.import(0, "direct").start().unwrap();
                    direct.send(&vec![1; 60 * PAGE], 0).unwrap();
                    rank.meet("end");
                }
            })
            .succeeds();
    }
}

#[test]
fn pages_stay_pinned_between_sends_and_every_counter_adds_up() {
    for pinner in PINNERS {
        job(2)
            .called(pinner)
            .option("--pinner", pinner)
            // A cache smaller than what is sent from, so that the NIC misses.
            .option("--translation", "hierarchical,entries=16")
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let buffer = node.alloc(32 * PAGE).unwrap();
                    let export = node.export_buffer(&buffer).ring_only().name("ring");
                    let export = export.start().unwrap();
                    assert_eq!(node.translation_counters().pins, 32, "exports are pinned at once");
                    rank.meet("end");
                    drop(export);
                    return;
                }
                let ring = node.import(0, "ring").start().unwrap();
                let mut source = Pages::new(32);
                source.bytes().copy_from_slice(&pattern(1, 32 * PAGE));
                let before = node.translation_counters();
                for turn in 0..5 {
                    ring.send(source.bytes(), 0).unwrap();
                    let now = counts(&node, before);
                    assert_eq!((now.pins, now.unpins, now.check_misses), (32, 0, 32));
                    assert_eq!(now.lookups, 32 * (turn + 1));
                    // Each pass over twice the cache's entries finds none of them.
                    assert_eq!(now.nic_misses, 32 * (turn + 1));
                }
                // Short sends travel in the command and pin nothing.
                let before = node.translation_counters();
                ring.send(&[1; 128], 0).unwrap();
                assert_eq!(counts(&node, before).lookups, 0);
                ring.send(&source.bytes()[..129], 0).unwrap();
                assert_eq!(counts(&node, before).lookups, 1);
                rank.meet("end");
            })
            .succeeds();
    }
}
