//! Cost, placement and failure of allocations.

use crate::net::Net;
use mapwire_dsm::{
    Access, Action, AllocOptions, Config, Error, Minipage, Outcome, PAGE_BYTES, Progress, Protection, Protocol, Unit,
    Units,
};

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

#[test]
fn an_array_is_a_minipage_a_page_which_all_ranks_learn_with_one_message_each() {
    let mut net = Net::new(Config { hold_ns: 0, ..Config::new(0, 4, 3, 1 << 20, 4) });
    let array = net.array(2, (3 << 30) + 5, Unit::Auto);
    assert_eq!(net.delivered, 2 + 2 * 3);
    assert_eq!((array.count(), array.pages(4)), ((3 << 18) + 1, (3 << 18) + 1));
    for number in [0, 1, 1000, 100_000, array.count() - 1] {
        let unit = array.unit(number, 4).unwrap();
        for rank in 0..4 {
            let right = if rank == 2 { Protection::Write } else { Protection::None };
            assert_eq!(net.rank(rank).minipage_at(unit.view, unit.first_page()), Some((unit, right)));
        }
        net.fault(1, unit, Access::Write);
        let sent = net.log.iter().filter(|did| matches!(did.action, Action::SendMinipage { .. })).count();
        assert_eq!(sent, 1);
        assert_eq!(net.rank(2).minipage_at(unit.view, unit.first_page()), Some((unit, Protection::None)));
        assert_eq!(net.rank(1).minipage_at(unit.view, unit.first_page()), Some((unit, Protection::Write)));
        net.fault(3, unit, Access::Read);
        net.fault(2, unit, Access::Write);
        assert_eq!(net.rank(1).minipage_at(unit.view, unit.first_page()), Some((unit, Protection::None)));
    }
    let beyond = u64::from(array.first_page) + array.pages(4);
    assert_eq!(net.rank(3).minipage_at(array.view, beyond), None);
}

#[test]
fn a_unit_that_does_not_divide_the_array_leaves_a_shorter_one_at_its_end() {
    let mut net = net(3, 64, 4);
    let array = net.array(1, 5 * PAGE_BYTES + 10, Unit::Bytes(PAGE_BYTES + 1));
    let lengths: Vec<_> = (0..3).map(|number| array.unit(number, 4).unwrap().length_bytes).collect();
    assert_eq!(lengths, [2 * PAGE_BYTES, 2 * PAGE_BYTES, PAGE_BYTES + 10]);
    let last = array.unit(2, 4).unwrap();
    net.clear();
    let page = last.first_page() + 1;
    let _ = net.rank(2).handle_fault(0, 0, last.view, page, Access::Read).unwrap();
    net.settle();
    assert_eq!(net.rank(2).minipage_at(last.view, page), Some((last, Protection::Read)));
    assert_eq!(net.rank(2).minipage_at(last.view, page - 2).unwrap().1, Protection::None);
    let small = net.alloc(1, 100);
    assert_eq!((small.view, small.first_page()), (1, page), "what the array leaves of its last page is used");
    net.fault(0, small, Access::Write);
    assert_eq!(net.rank(2).minipage_at(last.view, page), Some((last, Protection::Read)));
}

#[test]
fn the_rank_that_allocates_opens_pages_as_it_touches_them_and_asks_nobody() {
    let mut net = net(3, 256, 4);
    let array = net.array(1, 200 * PAGE_BYTES, Unit::Auto);
    assert!(!net.actions(1).iter().any(|action| matches!(action, Action::Protect { .. })));
    let unit = array.unit(100, 4).unwrap();
    net.clear();
    assert_eq!(net.start(1, 0, unit, Access::Read), Progress::Done);
    let page = unit.first_page() / 16 * 16;
    let opened = Minipage { offset_bytes: page * PAGE_BYTES, length_bytes: 16 * PAGE_BYTES, ..unit };
    assert_eq!(net.actions(1), [Action::Protect { minipage: opened, protection: Protection::Write }]);
    assert_eq!(net.rank(1).counters().spurious_faults, 0);
    assert_eq!(net.start(1, 0, unit, Access::Write), Progress::Done);
    assert_eq!(net.rank(1).counters().spurious_faults, 1);
}

#[test]
fn rows_below_a_page_share_pages_in_views_of_their_own_and_move_alone() {
    let mut net = net(3, 64, 4);
    let rows = net.rows(1, 10, 300);
    assert_eq!(net.delivered, 2 + 2 * 2);
    assert_eq!((rows.per_page(4), rows.pages(4)), (4, 3));
    let all: Vec<_> = (0..10).map(|number| rows.unit(number, 4).unwrap()).collect();
    net.fault(2, all[5], Access::Write);
    for (number, &row) in all.iter().enumerate() {
        let found = net.rank(1).minipage_at(row.view, row.first_page());
        let right = if number == 5 { Protection::None } else { Protection::Write };
        assert_eq!(found, Some((row, right)));
    }
    net.alloc(1, 16);
    let after = net.alloc(1, 16);
    assert!(after.first_page() >= u64::from(rows.first_page) + 3, "no others lie among them");
}

#[test]
fn rows_above_a_page_take_whole_pages_and_are_adjacent_if_they_are_whole_pages() {
    let mut net = net(2, 64, 4);
    let rows = net.rows(0, 3, 5000);
    let starts: Vec<_> = (0..3).map(|number| rows.unit(number, 4).unwrap().first_page() % 64).collect();
    assert_eq!(starts, [0, 2, 4]);
    let rows = net.rows(0, 3, 2 * PAGE_BYTES);
    assert_eq!(rows.pages(4), 6);
    net.fault(1, rows.unit(1, 4).unwrap(), Access::Write);
    assert_eq!(net.rank(0).minipage_at(0, u64::from(rows.first_page) + 1).unwrap().1, Protection::Write);
}

/// What programs that fetch several minipages at once may rely on.
#[test]
fn allocations_of_one_size_that_a_rank_makes_one_after_the_other_are_adjacent() {
    for (bytes, stride, on_a_page) in [(16, 16, 4), (100, 128, 4), (1500, 1536, 2), (3000, 0, 1), (4096, 0, 1)] {
        let mut net = net(3, 512, 256);
        net.alloc(0, 5 * PAGE_BYTES);
        let all: Vec<Minipage> = (0..40).map(|_| net.alloc(1, bytes)).collect();
        for (number, pair) in all.windows(2).enumerate() {
            let (before, after) = (pair[0], pair[1]);
            if (number + 1) % on_a_page == 0 {
                assert_eq!((after.view, after.offset_bytes), (0, (before.first_page() + 1) * PAGE_BYTES));
            } else {
                assert_eq!((after.view, after.offset_bytes), (before.view + 1, before.offset_bytes + stride));
            }
        }
    }
}

#[test]
fn units_and_rows_of_nothing_or_longer_than_all_are_refused_by_name() {
    let mut net = net(2, 8, 2);
    let with = |unit| AllocOptions { unit, ..AllocOptions::default() };
    for unit_bytes in [0, 9001, u64::MAX] {
        let error = net.rank(1).alloc_with(0, 9000, with(Unit::Bytes(unit_bytes))).unwrap_err();
        assert_eq!(error, Error::Unit { unit_bytes, length_bytes: 9000 });
        assert!(error.to_string().contains(&unit_bytes.to_string()) && error.to_string().contains("9000"), "{error}");
    }
    for (rows, row_bytes) in [(0, 10), (10, 0), (0, 0)] {
        let error = net.rank(1).alloc_rows(0, rows, row_bytes, with(Unit::Auto)).unwrap_err();
        assert_eq!(error, Error::NoRows { rows, row_bytes });
    }
    for unit in [Unit::Whole, Unit::Bytes(10)] {
        let error = net.rank(1).alloc_rows(0, 5, 10, with(unit)).unwrap_err();
        assert_eq!(error, Error::UnitOfRows { row_bytes: 10 });
    }
    for (rows, row_bytes) in [(u64::MAX, u64::MAX), (1 << 40, 100), (3, 1 << 40), (9, 4095), (u64::MAX, 1)] {
        net.clear();
        net.rank(1).alloc_rows(0, rows, row_bytes, with(Unit::Auto)).unwrap();
        net.settle();
        let error = net.outcome(1, 0).unwrap().0;
        assert!(matches!(error, Outcome::Failed(Error::OutOfMemory { .. })), "{rows} {row_bytes}: {error:?}");
    }
    net.rows(1, 8, 4095);
}

#[test]
fn units_that_lie_on_those_of_another_rank_are_refused() {
    let mut net = net(3, 64, 4);
    let array = net.array(1, 5 * PAGE_BYTES, Unit::Auto);
    let small = net.alloc(1, 100);
    let page = small.first_page() as u32;
    let is_managed = net.ranks[2].manager(page.into()) == Some(2);
    let mut register = |units: Units| {
        let message = mapwire_dsm::Message::RegisterUnits { units, thread: 0 };
        net.rank(2).handle_message(0, 0, message, &[]).is_ok()
    };
    let units = |view, first_page, pages: u64| Units {
        view,
        first_page,
        length_bytes: pages * PAGE_BYTES,
        unit_bytes: PAGE_BYTES,
    };
    assert!(!register(units(0, array.first_page, 2)) && !register(units(3, array.first_page + 4, 2)));
    assert!(!register(units(4, 40, 2)) && !register(units(0, 63, 2)) && !register(units(0, u32::MAX, 2)));
    assert!(!register(Units { length_bytes: 1000, unit_bytes: 300, ..units(0, 40, 2) }));
    assert!(!register(Units { length_bytes: u64::MAX, unit_bytes: 1, ..units(0, 40, 2) }));
    assert!(!register(Units { length_bytes: 0, unit_bytes: 0, ..units(0, 40, 2) }));
    assert_eq!(register(Units { length_bytes: 400, unit_bytes: 100, ..units(0, page, 1) }), !is_managed);
    assert!(register(units(0, 40, 2)) && !register(units(1, 39, 3)));
}
