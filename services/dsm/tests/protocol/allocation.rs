//! Cost, placement and failure of allocations.

use crate::net::Net;
use mapwire_dsm::{Access, Action, AllocOptions, Config, Error, Minipage, Outcome, Protection, Protocol};

fn net(ranks: u16, pages: u32, chunk_pages: u32) -> Net {
    Net::new(Config { chunk_pages, ..Config::new(0, ranks, 3, pages, 4) })
}

#[test]
fn pages_come_from_rank_0_a_chunk_at_a_time() {
    let mut net = net(2, 64, 4);
    net.alloc(1, 4096);
    assert!(net.delivered == 2 || net.delivered == 4, "pages, and perhaps a manager");
    for _ in 0..3 {
        net.alloc(1, 4096);
        assert!(net.delivered == 0 || net.delivered == 2, "perhaps a manager");
    }
}

#[test]
fn a_small_minipage_is_told_to_its_manager_only_and_a_long_one_to_everybody() {
    let mut net = net(4, 64, 16);
    net.alloc(0, 1);
    for _ in 0..20 {
        let small = net.alloc(0, 100);
        let manager = net.ranks[0].manager(small.first_page()).unwrap();
        assert_eq!(net.delivered, if manager == 0 { 0 } else { 2 });
    }
    let long = net.alloc(0, 4097);
    assert_eq!(net.delivered, 6);
    for rank in 1..4 {
        let known = net.rank(rank).minipage_at(long.view, long.first_page() + 1);
        assert_eq!(known, Some((long, Protection::None)));
    }
}

#[test]
fn threads_that_allocate_at_once_share_the_request_for_pages() {
    let mut net = net(2, 64, 4);
    for thread in 0..3 {
        net.rank(1).alloc(thread, 100).unwrap();
    }
    net.settle();
    let mut places: Vec<_> = (0..3).map(|thread| net.outcome(1, thread).unwrap().0).collect();
    places.dedup();
    assert_eq!(places.len(), 3);
    assert!(net.delivered <= 2 + 6);
}

#[test]
fn memory_that_is_not_there_is_refused_with_what_was_asked_and_what_is_left() {
    for rank in [0, 1] {
        let mut net = net(2, 8, 2);
        net.alloc(rank, 4096);
        for asked_bytes in [7 * 4096 + 1, 1 << 40, u64::MAX] {
            net.clear();
            net.rank(rank).alloc(0, asked_bytes).unwrap();
            net.settle();
            let error = Error::OutOfMemory { asked_bytes, left_bytes: 7 * 4096 };
            assert_eq!(net.outcome(rank, 0).unwrap().0, Outcome::Failed(error));
        }
        net.alloc(rank, 4096 * 6);
        net.alloc(rank, 4096);
    }
}

#[test]
fn a_refused_thread_does_not_take_the_others_with_it() {
    let mut net = net(2, 8, 2);
    net.rank(1).alloc(0, 1 << 30).unwrap();
    net.rank(1).alloc(1, 100).unwrap();
    net.settle();
    assert!(matches!(net.outcome(1, 0).unwrap().0, Outcome::Failed(Error::OutOfMemory { .. })));
    assert!(matches!(net.outcome(1, 1).unwrap().0, Outcome::Allocated(_)));
}

#[test]
fn no_bytes_are_no_allocation() {
    let mut net = net(1, 8, 2);
    assert_eq!(net.rank(0).alloc(0, 0), Err(Error::ZeroBytes));
}

#[test]
fn the_last_page_of_the_segment_can_be_allocated() {
    let mut net = net(3, 8, 1);
    let all: Vec<Minipage> = (0..8).map(|i| net.alloc(i % 3, 4096)).collect();
    assert_eq!(all.last().unwrap().first_page(), 7);
}

#[test]
fn a_sequential_allocation_beside_lazy_ones_moves_between_ranks_as_it_would_alone() {
    let mut net = Net::new(Config { protocol: Protocol::Hlrc, hold_ns: 0, ..Config::new(0, 3, 1, 64, 4) });
    let lazy = net.alloc(0, 100);
    let options = AllocOptions { protocol: Some(Protocol::Minipages), ..AllocOptions::default() };
    let mut sequential = Vec::new();
    for bytes in [100, 200, 9000] {
        net.clear();
        net.rank(0).alloc_with(0, bytes, options).unwrap();
        net.settle();
        let Some((Outcome::Allocated(address), _)) = net.outcome(0, 0) else { panic!() };
        assert!(address.view > 0 && address.offset_bytes / 4096 != lazy.first_page());
        sequential.push(Minipage { view: address.view, offset_bytes: address.offset_bytes, length_bytes: bytes });
    }
    assert_ne!(sequential[0].view, sequential[1].view);
    for &minipage in &sequential {
        for (rank, access) in [(1, Access::Read), (2, Access::Write), (1, Access::Write), (0, Access::Read)] {
            net.fault(rank, minipage, access);
            let sent = net.log.iter().any(|did| matches!(did.action, Action::SendMinipage { .. }));
            assert!(sent, "rank {rank} gets {minipage:?}");
        }
    }
    net.fault(1, lazy, Access::Write);
    let of_lazy = |action| matches!(action, Action::SendMinipage { .. });
    assert!(!net.log.iter().any(|did| of_lazy(did.action)));
}
