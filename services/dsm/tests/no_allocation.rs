//! Faults, locks, barriers and broadcasts run in signal handlers, so they must not allocate once all is set up.

#[path = "../../../tests/allocations.rs"]
mod allocations;
#[allow(dead_code)]
#[path = "protocol/net.rs"]
mod net;

use mapwire_dsm::{Access, Config};
use net::Net;

#[test]
fn faults_locks_and_barriers_allocate_nothing() {
    let ranks = 4;
    let mut net = Net::new(Config {
        hold_ns: 1000,
        participants: 2,
        ..Config::new(0, ranks, 3, 512, 8)
    });
    let minipages: Vec<_> = (0..40)
        .map(|i| net.alloc(i % ranks, if i % 5 == 0 { 9000 } else { 200 }))
        .collect();

    let before = allocations::calls();
    for round in 0..50u32 {
        net.clear();
        for (at, &minipage) in minipages.iter().enumerate() {
            for rank in 0..ranks {
                for thread in 0..3 {
                    let write = (at + usize::from(rank) + usize::from(thread)) % 3 == 0;
                    let access = if write { Access::Write } else { Access::Read };
                    let (now_ns, page) = (net.now_ns, minipage.first_page());
                    let ahead = net.rank(rank);
                    // A thread that waits for what it asked for before cannot ask.
                    let _ = ahead.prefetch(now_ns, thread, minipage.view, page, access);
                    let _ = net.start(rank, thread, minipage, access);
                }
            }
            net.settle();
            // What was held back comes when the holds are over.
            for _ in 0..20 {
                net.now_ns += 5000;
                let now_ns = net.now_ns;
                for rank in 0..ranks {
                    net.rank(rank).release_holds(now_ns);
                }
                net.settle();
            }
        }
        net.clear();
        for thread in 0..3 {
            for rank in 0..ranks {
                let _ = net.rank(rank).lock(thread, round % 7).unwrap();
            }
        }
        net.settle();
        for _ in 0..12 {
            for rank in 0..ranks {
                for thread in 0..3 {
                    if net.rank(rank).unlock(thread, round % 7).is_ok() {
                        net.settle();
                    }
                }
            }
        }
        for rank in 0..ranks {
            for thread in 0..2 {
                net.rank(rank).barrier(thread, round % 5).unwrap();
            }
            net.rank(rank).broadcast(2, 1, 7).unwrap();
        }
        net.settle();
    }
    assert_eq!(allocations::calls() - before, 0);

    let counters = net.ranks[0].counters();
    for count in [
        counters.read_faults,
        counters.write_faults,
        counters.prefetches,
        counters.upgrades,
        counters.invalidations,
        counters.downgrades,
        counters.held_back,
        counters.lock_acquires_local,
        counters.lock_acquires_remote,
        counters.barriers,
    ] {
        assert!(count > 40, "too little was exercised: {counters:?}");
    }
}
