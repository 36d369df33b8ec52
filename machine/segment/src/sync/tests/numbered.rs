//! Locks and barriers by number, and the broadcast.

use core::time::Duration;
use std::thread;

use super::*;
use crate::sync::{BARRIERS, LOCKS, SyncError};

/// Where a test's own words lie.
const DATA: u64 = 9 << 20;

#[test]
fn numbered_locks_exclude_threads_of_all_ranks() {
    let segment = segment();
    let ranks = ranks(&segment, 3, 1);
    let (a, b) = (segment.word64(DATA).unwrap(), segment.word64(DATA + 8).unwrap());
    thread::scope(|scope| {
        for rank in ranks.iter().chain(&ranks) {
            scope.spawn(move || {
                for _ in 0..2_000 {
                    rank.lock(LOCKS - 1).unwrap();
                    // Not one addition: two steps that another could come between.
                    let (x, y) = (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
                    assert_eq!(x, y);
                    a.store(x + 1, Ordering::Relaxed);
                    b.store(y + 1, Ordering::Relaxed);
                    rank.unlock(LOCKS - 1).unwrap();
                }
            });
        }
    });
    assert_eq!(a.load(Ordering::Relaxed), 12_000);
}

#[test]
fn misuse_of_a_numbered_lock_is_named() {
    let rank = alone();
    let text = |result: Result<(), SyncError>| result.unwrap_err().to_string();
    assert!(text(rank.lock(LOCKS)).contains("lock 4096 is beyond the 4096 locks"));
    assert!(text(rank.unlock(7)).contains("does not hold lock 7: nobody does"));
    rank.lock(7).unwrap();
    assert!(text(rank.lock(7)).contains("already holds lock 7"));
    let tid = rustix::thread::gettid().as_raw_nonzero();
    let stranger = thread::scope(|scope| scope.spawn(|| text(rank.unlock(7))).join().unwrap());
    assert!(stranger.contains(&format!("thread {tid} of rank 0 (process {}) does", std::process::id())), "{stranger}");
    rank.unlock(7).unwrap();
    rank.lock(8).unwrap();
    rank.unlock(8).unwrap();
}

#[test]
fn a_lock_whose_thread_has_ended_is_an_error_that_names_it_for_all_from_then_on() {
    let rank = alone();
    let tid = thread::scope(|scope| {
        let lock = || {
            rank.lock(3).unwrap();
            rustix::thread::gettid().as_raw_nonzero()
        };
        scope.spawn(lock).join().unwrap()
    });
    for _ in 0..2 {
        let error = rank.lock(3).unwrap_err();
        assert!(matches!(error, SyncError::HolderEnded { .. }), "{error}");
        assert!(error.to_string().contains(&format!("lock 3 is held by thread {tid} of rank 0")), "{error}");
    }
}

#[test]
fn barriers_count_the_participants_of_each_rank() {
    let segment = segment();
    let all = ranks(&segment, 2, 1);
    all[1].set_participants(3).unwrap();
    let passed = segment.word32(DATA).unwrap();
    let begun = segment.word32(DATA + 64).unwrap();
    thread::scope(|scope| {
        for rank in [&all[0], &all[1], &all[1], &all[1]] {
            scope.spawn(move || {
                for round in 0..500 {
                    begun.fetch_add(1, Ordering::Relaxed);
                    rank.barrier(round % BARRIERS).unwrap();
                    assert!(begun.load(Ordering::Relaxed) >= 4 * (round + 1));
                    passed.fetch_add(1, Ordering::Relaxed);
                    rank.barrier(0).unwrap();
                    assert!(passed.load(Ordering::Relaxed) >= 4 * (round + 1));
                }
            });
        }
    });
    assert!(all[0].waited_barriers().is_empty());
    let error = all[0].barrier(BARRIERS).unwrap_err();
    assert!(error.to_string().contains("barrier 256 is beyond the 256 barriers"), "{error}");
}

#[test]
fn a_barrier_that_is_waited_for_says_who_is_missing_and_lets_no_more_threads_in() {
    let all = ranks(&segment(), 3, 1);
    all[1].set_participants(2).unwrap();
    thread::scope(|scope| {
        let early: Vec<_> = all[..2].iter().map(|rank| scope.spawn(|| rank.barrier(5))).collect();
        let waited = loop {
            let mut waited = all[2].waited_barriers();
            if waited.iter().any(|waited| waited.ranks == [(1, 1), (1, 2), (0, 1)]) {
                break waited.remove(0);
            }
            thread::yield_now();
        };
        assert_eq!(waited.barrier, Some(5));
        assert_eq!(waited.to_string(), "barrier 5: 1 of 3 ranks have come, not 1 (1 of 2 threads) 2");
        let error = all[0].barrier(5).unwrap_err();
        assert!(error.to_string().contains("barrier 5 already waits with all 1 participants of rank 0"), "{error}");
        let error = all[1].set_participants(1).unwrap_err();
        assert!(matches!(error, SyncError::BadParticipants { participants: 1, .. }), "{error}");
        all[2].set_participants(1).unwrap();
        assert!(all[2].set_participants(0).is_err());
        let last = scope.spawn(|| all[2].barrier(5));
        all[1].barrier(5).unwrap();
        assert!(last.join().unwrap().is_ok() && early.into_iter().all(|early| early.join().unwrap().is_ok()));
    });
    all[1].set_participants(1).unwrap();
}

#[test]
fn a_broadcast_gives_the_value_of_its_root_to_all() {
    let segment = segment();
    let all = ranks(&segment, 4, 2);
    thread::scope(|scope| {
        for (number, rank) in all.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..300_u64 {
                    let root = (round % 4) as u32;
                    let value = rank.broadcast(root, round * 10 + number as u64).unwrap();
                    assert_eq!(value, round * 10 + u64::from(root));
                }
            });
        }
    });
    assert!(matches!(all[0].broadcast(4, 0), Err(SyncError::UnknownRank { rank: 4, ranks: 4 })));
}

#[test]
fn a_broadcast_refuses_another_root_and_another_thread() {
    let vigil = Word::default();
    let all = ranks(&segment_of(vigil.clone()), 3, 1);
    thread::scope(|scope| {
        let first = scope.spawn(|| all[0].broadcast(0, 1));
        while all[1].waited_barriers().is_empty() {
            thread::yield_now();
        }
        assert!(all[1].waited_barriers()[0].to_string().starts_with("a broadcast: 1 of 3 ranks have come, not 1 2"));
        assert!(matches!(all[1].broadcast(1, 1), Err(SyncError::OtherRoot { root: 1, others: 0 })));
        assert!(matches!(all[0].broadcast(0, 1), Err(SyncError::BroadcastBusy)));
        vigil.0.store(3, Ordering::Relaxed);
        let error = first.join().unwrap().unwrap_err();
        assert!(matches!(error, SyncError::Segment(SegmentError::RankGone(2))), "{error}");
    });
}

#[test]
fn forked_children_lock_and_unlock_and_exclude_each_other() {
    let segment = segment();
    let rank = &ranks(&segment, 1, 1)[0];
    let word = segment.word64(DATA).unwrap();
    // A number of the parent, which the children must not use.
    rank.lock(1).unwrap();
    let work = || {
        for _ in 0..3_000 {
            if rank.lock(2).is_err() {
                return 1;
            }
            let seen = word.load(Ordering::Relaxed);
            core::hint::spin_loop();
            word.store(seen + 1, Ordering::Relaxed);
            if rank.unlock(2).is_err() {
                return 2;
            }
        }
        if matches!(rank.unlock(1), Err(SyncError::NotHeld { holder: Some(_), .. })) { 0 } else { 3 }
    };
    let mut children: Vec<_> = (0..3).map(|_| Child::start(work)).collect();
    rank.unlock(1).unwrap();
    rank.lock(1).unwrap();
    let codes: Vec<_> = children.iter_mut().map(Child::code).collect();
    assert_eq!(codes, [0, 0, 0]);
    assert_eq!(word.load(Ordering::Relaxed), 9_000);
    rank.unlock(1).unwrap();
}

#[test]
fn waiters_of_a_lock_whose_process_is_killed_get_an_error_that_names_it() {
    let segment = segment();
    let rank = &ranks(&segment, 1, 1)[0];
    let locked = segment.word32(DATA).unwrap();
    let child = Child::start(|| {
        rank.lock(9).unwrap();
        locked.store(1, Ordering::Release);
        thread::sleep(Duration::from_secs(100));
        0
    });
    while locked.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| rank.lock(9))).collect();
        while rank.waiting_threads().len() < 3 {
            thread::yield_now();
        }
        child.kill();
        for waiter in waiters {
            let error = waiter.join().unwrap().unwrap_err().to_string();
            assert!(error.contains(&format!("of rank 0 (process {}), which has ended", child.pid())), "{error}");
        }
    });
}
