//! The page-fault handler may have interrupted `malloc`: it must not call it.

use std::sync::atomic::{AtomicBool, Ordering};

use mapwire::{Rights, Shared};

use crate::harness::{Rank, pattern};
use crate::sharing::{on_both, on_both_over, one_each};
use crate::signals::word;
use counting::calls;

#[path = "../../../tests/allocations.rs"]
mod counting;

#[test]
fn a_page_fault_neither_allocates_nor_frees_whatever_comes_meanwhile() {
    on_both(2, fault_and_count);
}

#[test]
fn nor_does_one_that_takes_and_sends_datagrams() {
    on_both_over("udp", 2, fault_and_count);
}

fn fault_and_count(rank: &Rank, shared: &Shared) {
    const TURNS: u64 = 300;
    let node = shared.node();
    let shared_word = one_each(rank, shared, 1)[0];
    let next = (rank.number + 1) % rank.size;
    let memory = node.alloc(1 << 16).unwrap();
    let inbox = node.export_buffer(&memory).ring_only().rights(Rights::ALL);
    let _inbox = inbox.on_notify(|_| {}).name("inbox").start().unwrap();
    // Each is taken in a fault of the peer, if it faults then: requests of imports, stores of one packet and of many,
    // fetches, their answers, notifications.
    let is_over = AtomicBool::new(false);
    let disturb = || {
        let mut found = [0; 3000];
        while !is_over.load(Ordering::Relaxed) {
            let import = node.import(next, "inbox").rights(Rights::ALL);
            let import = import.start().unwrap();
            import.send(&pattern(1, 100), 0).unwrap();
            import.send(&pattern(2, 30_000), 0).unwrap();
            import.fetch(0, &mut found).unwrap();
            import.send_notify(&pattern(3, 100), 0).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(disturb);
        let at = word(&shared_word);
        for turn in 0..TURNS {
            let mut is_mine = false;
            while !is_mine {
                std::thread::yield_now();
                let before = calls();
                // SAFETY: a word of shared memory that is open.
                unsafe {
                    is_mine = (*at).load(Ordering::Relaxed) % rank.size as u64 == rank.number as u64;
                    (*at).fetch_add(u64::from(is_mine), Ordering::Relaxed);
                }
                assert_eq!(calls() - before, 0, "turn {turn}");
            }
        }
        // The peer may wait for answers until it is over there as well.
        rank.meet("accessed");
        is_over.store(true, Ordering::Relaxed);
    });
    shared.barrier().unwrap();
    assert_eq!(shared_word.get(0), TURNS * rank.size as u64);
    let counters = shared.counters();
    let faults = counters.read_faults + counters.write_faults;
    assert!(faults >= TURNS, "{counters:?}");
    shared.barrier().unwrap();
}
