//! Locks, barriers and broadcasts: order, cost and misuse.

use crate::net::Net;
use mapwire_dsm::{Config, Dsm, Error, Message, Outcome, PeerError, Progress, Round, Violation};

fn net(ranks: u16) -> Net {
    Net::new(Config { lock_local_passes: 1, ..Config::new(0, ranks, 3, 64, 4) })
}

fn locked(net: &Net, rank: u16, thread: u16) -> bool {
    net.outcome(rank, thread).is_some_and(|(outcome, _)| outcome == Outcome::Locked)
}

/// Locks and delivers; returns the number of messages.
fn lock(net: &mut Net, rank: u16, lock: u32) -> u64 {
    net.clear();
    if net.rank(rank).lock(0, lock) != Ok(Progress::Done) {
        net.settle();
        assert!(locked(net, rank, 0));
    }
    net.delivered
}

fn unlock(net: &mut Net, rank: u16, lock: u32) {
    net.rank(rank).unlock(0, lock).unwrap();
    net.settle();
}

#[test]
fn a_lock_stays_where_it_was_last_used_and_costs_nothing_there() {
    let mut net = net(3);
    assert_eq!(lock(&mut net, 1, 1), 0, "its manager starts with it");
    unlock(&mut net, 1, 1);
    assert_eq!(lock(&mut net, 2, 1), 2, "request and token");
    unlock(&mut net, 2, 1);
    assert_eq!(lock(&mut net, 2, 1), 0);
    unlock(&mut net, 2, 1);
    assert_eq!(lock(&mut net, 0, 1), 3, "request, forward and token");
    unlock(&mut net, 0, 1);
    assert_eq!(lock(&mut net, 1, 1), 2, "its manager knows whom to ask");
    assert_eq!(net.ranks[2].counters().lock_acquires_local, 1);
    assert_eq!(net.ranks[2].counters().lock_acquires_remote, 1);
}

#[test]
fn ranks_get_a_lock_in_the_order_they_asked_and_each_unlock_is_one_message() {
    let mut net = net(4);
    lock(&mut net, 3, 0);
    for rank in [1, 0, 2] {
        assert_eq!(net.rank(rank).lock(0, 0), Ok(Progress::Pending));
        net.settle();
    }
    let mut holder = 3;
    for next in [1, 0, 2] {
        net.clear();
        unlock(&mut net, holder, 0);
        assert!(locked(&net, next, 0));
        assert_eq!(net.delivered, 1);
        holder = next;
    }
}

#[test]
fn threads_of_a_rank_prefer_each_other_only_for_a_while() {
    let mut net = net(2);
    assert_eq!(net.rank(0).lock(0, 0), Ok(Progress::Done));
    for thread in [1, 2] {
        assert_eq!(net.rank(0).lock(thread, 0), Ok(Progress::Pending));
    }
    assert_eq!(net.rank(1).lock(0, 0), Ok(Progress::Pending));
    net.settle();
    net.rank(0).unlock(0, 0).unwrap();
    net.settle();
    assert!(locked(&net, 0, 1), "the one local pass that is configured");
    net.rank(0).unlock(1, 0).unwrap();
    net.settle();
    assert!(!locked(&net, 0, 2));
    assert!(locked(&net, 1, 0));
    unlock(&mut net, 1, 0);
    assert!(locked(&net, 0, 2), "the rank queued again");
}

#[test]
fn threads_of_a_rank_get_a_lock_in_their_order_without_messages() {
    let mut net = net(2);
    assert_eq!(net.rank(0).lock(2, 0), Ok(Progress::Done));
    for thread in [1, 0] {
        assert_eq!(net.rank(0).lock(thread, 0), Ok(Progress::Pending));
    }
    for (holder, next) in [(2, 1), (1, 0)] {
        net.rank(0).unlock(holder, 0).unwrap();
        net.settle();
        assert!(locked(&net, 0, next));
    }
    assert_eq!(net.delivered, 0);
}

#[test]
fn misuse_of_a_lock_is_an_error_that_changes_nothing() {
    let mut net = net(2);
    let dsm = net.rank(0);
    assert_eq!(dsm.unlock(0, 0), Err(Error::LockNotHeld { lock: 0, thread: 0 }));
    assert_eq!(dsm.lock(0, 0), Ok(Progress::Done));
    assert_eq!(dsm.lock(0, 0), Err(Error::LockHeld { lock: 0, thread: 0 }));
    assert_eq!(dsm.unlock(1, 0), Err(Error::LockNotHeld { lock: 0, thread: 1 }));
    assert_eq!(dsm.lock(0, 4096), Err(Error::UnknownLock { lock: 4096, locks: 4096 }));
    assert_eq!(dsm.unlock(0, u32::MAX), Err(Error::UnknownLock { lock: u32::MAX, locks: 4096 }));
    assert_eq!(dsm.unlock(0, 0), Ok(()));
}

fn barrier(net: &mut Net, ranks: u16, barrier: u32) -> u64 {
    net.clear();
    for rank in 0..ranks {
        assert_eq!(net.outcome(rank, 0), None, "nobody passes before everybody came");
        net.rank(rank).barrier(0, barrier).unwrap();
        net.settle();
    }
    for rank in 0..ranks {
        assert_eq!(net.outcome(rank, 0).unwrap().0, Outcome::Passed);
    }
    net.delivered
}

#[test]
fn a_barrier_costs_two_messages_for_each_other_rank_and_can_be_used_again_at_once() {
    for (ranks, messages) in [(1, 0), (2, 2), (4, 6), (64, 126), (65, 128), (200, 398)] {
        let mut net = net(ranks);
        for round in 0..3 {
            assert_eq!(barrier(&mut net, ranks, 5), messages);
            assert_eq!(barrier(&mut net, ranks, 255), messages);
            assert_eq!(net.ranks[0].counters().barriers, 2 * round + 2);
        }
    }
}

#[test]
fn the_last_rank_to_arrive_passes_without_waiting_for_a_message() {
    for ranks in [2, 3, 5] {
        for last in 0..ranks {
            let mut net = net(ranks);
            for number in [0, 1, 6] {
                for rank in (0..ranks).filter(|&rank| rank != last) {
                    net.rank(rank).barrier(0, number).unwrap();
                    net.settle();
                }
                net.clear();
                net.rank(last).barrier(0, number).unwrap();
                net.drain(last);
                assert_eq!(net.outcome(last, 0), Some((Outcome::Passed, 0)), "everybody else was there");
                net.settle();
                assert!((0..ranks).all(|rank| net.outcome(rank, 0).is_some()));
            }
        }
    }
}

#[test]
fn a_release_ahead_of_arrival_comes_once_and_for_the_round_that_is_due() {
    // Rank 0 manages barrier 3 of three ranks.
    let release = |epoch, root| Message::BarrierRelease { round: Round { barrier: 3, epoch, root, value: 9 } };
    let mut dsm = Dsm::new(Config::new(1, 3, 1, 64, 4)).unwrap();
    let violation = |from, violation| Err(PeerError { from, violation });
    assert_eq!(dsm.handle_message(0, 2, release(0, 0), &[]), violation(2, Violation::NotManager));
    assert_eq!(dsm.handle_message(0, 0, release(1, 0), &[]), violation(0, Violation::Epoch));
    assert_eq!(dsm.handle_message(0, 0, release(0, 3), &[]), violation(0, Violation::OutOfRange));
    assert_eq!(dsm.handle_message(0, 0, release(0, 0), &[]), Ok(()));
    assert_eq!(dsm.handle_message(0, 0, release(0, 0), &[]), violation(0, Violation::Repeated));
    dsm.barrier(0, 3).unwrap();
    assert_eq!(dsm.counters().barriers, 1);
}

#[test]
fn a_rank_that_names_another_root_than_the_others_learns_it_before_it_takes_part() {
    let mut net = net(3);
    let manager = 256 % 3;
    let (other, last) = ((manager + 1) % 3, (manager + 2) % 3);
    net.rank(manager).broadcast(0, other, 0).unwrap();
    net.rank(other).broadcast(0, other, 7).unwrap();
    net.settle();
    assert_eq!(net.rank(last).broadcast(0, last, 8), Err(Error::OtherRoot { root: last, others: other }));
    net.rank(last).broadcast(0, other, 8).unwrap();
    net.settle();
    for rank in 0..3 {
        assert_eq!(net.outcome(rank, 0).unwrap().0, Outcome::Value(7));
    }
}

#[test]
fn a_rank_arrives_when_all_its_participants_have() {
    let mut net = Net::new(Config { participants: 2, ..Config::new(0, 2, 3, 64, 4) });
    for (rank, thread) in [(0, 0), (0, 2), (1, 1)] {
        net.rank(rank).barrier(thread, 0).unwrap();
        net.settle();
    }
    assert_eq!(net.outcome(0, 0), None);
    assert_eq!(net.rank(0).barrier(1, 0), Err(Error::BarrierFull { barrier: 0, participants: 2 }));
    assert!(net.rank(0).set_participants(1).is_err(), "some wait");
    net.rank(1).barrier(0, 0).unwrap();
    net.settle();
    for (rank, thread) in [(0, 0), (0, 2), (1, 1), (1, 0)] {
        assert_eq!(net.outcome(rank, thread).unwrap().0, Outcome::Passed);
    }
    assert_eq!(net.rank(0).set_participants(3), Ok(()));
    assert_eq!(net.rank(0).set_participants(4), Err(Error::BadParticipants { participants: 4, threads: 3 }));
}

#[test]
fn a_broadcast_hands_the_value_of_its_root_to_everybody() {
    let mut net = net(3);
    for root in 0..3 {
        net.clear();
        for rank in 0..3 {
            net.rank(rank).broadcast(0, root, 100 + u64::from(rank)).unwrap();
            net.settle();
        }
        for rank in 0..3 {
            assert_eq!(net.outcome(rank, 0).unwrap().0, Outcome::Value(100 + u64::from(root)));
        }
        assert_eq!(net.delivered, 4);
    }
}

#[test]
fn misuse_of_barriers_and_broadcasts_is_an_error() {
    let mut net = net(2);
    assert_eq!(net.rank(0).barrier(0, 256), Err(Error::UnknownBarrier { barrier: 256, barriers: 256 }));
    assert_eq!(net.rank(0).broadcast(0, 2, 1), Err(Error::UnknownRank { rank: 2, ranks: 2 }));
    net.rank(1).broadcast(0, 1, 1).unwrap();
    assert_eq!(net.rank(1).broadcast(1, 1, 1), Err(Error::BroadcastBusy));
    net.settle();
    assert_eq!(net.rank(0).broadcast(0, 0, 1), Err(Error::OtherRoot { root: 0, others: 1 }));
    net.rank(0).broadcast(0, 1, 1).unwrap();
    net.settle();
    assert_eq!(net.outcome(0, 0).unwrap().0, Outcome::Value(1));
}
