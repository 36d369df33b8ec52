//! Faults, locks, barriers and broadcasts run in signal handlers, so they must not allocate after set-up.

#[path = "../../../tests/allocations.rs"]
mod allocations;
#[allow(dead_code)]
#[path = "protocol/net.rs"]
mod net;

use mapwire_dsm::{Access, Config, Counters, Dsm, Message, Protocol, Unit, Units};
use net::Net;

#[test]
fn faults_locks_and_barriers_allocate_nothing() {
    exercise(4, 50);
}

#[test]
fn nor_does_lazy_consistency() {
    let config = Config { protocol: Protocol::Hlrc, twins: 8, notices: 300, ..Config::new(0, 4, 3, 512, 8) };
    let mut net = Net::new(Config { participants: 1, ..config });
    let pages: Vec<_> = (0..40).map(|i| net.alloc(i % 4, if i % 5 == 0 { 9000 } else { 200 })).collect();
    let before = allocations::calls();
    for round in 0..40 {
        for (at, &minipage) in pages.iter().enumerate() {
            net.clear();
            for rank in 0..4 {
                for thread in 0..3 {
                    let write = (at + usize::from(rank) + usize::from(thread)) % 3 == 0;
                    let _ = net.start(rank, thread, minipage, if write { Access::Write } else { Access::Read });
                }
            }
            net.settle();
        }
        for rank in 0..4 {
            net.clear();
            let _ = net.rank(rank).lock(1, round % 7).unwrap();
            net.settle();
            net.rank(rank).unlock(1, round % 7).unwrap();
            net.rank(rank).barrier(0, round % 5).unwrap();
        }
        net.settle();
    }
    assert_eq!(allocations::calls() - before, 0);
    let sum = net.ranks.iter().map(Dsm::counters).reduce(|a, b| a + b).unwrap();
    assert!(sum.diffs > 40 && sum.pages_fetched > 40 && sum.intervals > 40 && sum.notices > 40, "{sum:?}");
}

#[test]
fn nor_do_they_in_a_job_whose_ranks_take_two_words() {
    exercise(70, 4);
}

/// Runs `rounds` rounds of everything, and counts allocations.
fn exercise(ranks: u16, rounds: u32) {
    let mut net = Net::new(Config { hold_ns: 1000, participants: 2, ..Config::new(0, ranks, 3, 512, 8) });
    let minipages: Vec<_> = (0..40).map(|i| net.alloc(i % ranks, if i % 5 == 0 { 9000 } else { 200 })).collect();

    let mut minipages = minipages;
    for units in [net.array(1, 40_000, Unit::Auto), net.rows(2, 40, 100), net.rows(3, 3, 9000)] {
        minipages.extend((0..units.count()).map(|number| units.unit(number, 8).unwrap()).step_by(7));
    }
    let others = Units { view: 0, first_page: 490, length_bytes: 10 * 4096, unit_bytes: 4096 };
    let before = allocations::calls();
    net.rank(0).handle_message(0, 1, Message::RegisterUnits { units: others, thread: 0 }, &[]).unwrap();
    net.rank(0).poll_action().unwrap();
    for round in 0..rounds {
        for (at, &minipage) in minipages.iter().enumerate() {
            net.clear();
            for rank in 0..ranks {
                for thread in 0..3 {
                    let write = (at + usize::from(rank) + usize::from(thread)) % 3 == 0;
                    let access = if write { Access::Write } else { Access::Read };
                    let (now_ns, page) = (net.now_ns, minipage.first_page());
                    let ahead = net.rank(rank);
                    // A thread that waits for an earlier request cannot make another.
                    let _ = ahead.prefetch(now_ns, thread, minipage.view, page, access);
                    let _ = net.start(rank, thread, minipage, access);
                }
            }
            net.settle();
            // Delayed requests are served when the holds end.
            for _ in 0..5 * ranks {
                net.now_ns += 5000;
                let now_ns = net.now_ns;
                for rank in 0..ranks {
                    net.rank(rank).release_holds(now_ns);
                }
                net.settle();
            }
        }
        for rank in 0..ranks {
            for access in [Access::Read, Access::Write] {
                net.now_ns += 5000;
                net.fault(rank, minipages[0], access);
            }
        }
        net.clear();
        for thread in 0..3 {
            for rank in 0..ranks {
                let _ = net.rank(rank).lock(thread, round % 7).unwrap();
            }
        }
        net.settle();
        for _ in 0..3 * ranks {
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

    let counters: Vec<_> = net.ranks.iter().map(|dsm| dsm.counters()).collect();
    let exercised: [fn(&Counters) -> u64; 10] = [
        |did| did.read_faults,
        |did| did.write_faults,
        |did| did.prefetches,
        |did| did.upgrades,
        |did| did.invalidations,
        |did| did.downgrades,
        |did| did.held_back,
        |did| did.lock_acquires_local,
        |did| did.lock_acquires_remote,
        |did| did.barriers,
    ];
    for count in exercised {
        let sum: u64 = counters.iter().map(count).sum();
        assert!(sum > 40, "too little was exercised: {:?}", counters[0]);
    }
}
