//! Single steps: what one rank writes and another reads after they have synchronised.

use mapwire_dsm::{Access, AllocOptions, Config, Counters, Error, Outcome, Progress, Protocol};

use crate::random::Random;
use crate::world::{PAGE, World};

fn world(ranks: u16) -> World {
    let config = Config {
        protocol: Protocol::Hlrc,
        locks: 4,
        barriers: 4,
        home_moves_after: 4,
        ..Config::new(0, ranks, 1, 64, 2)
    };
    World::new(config, 1_000, Random::new(1))
}

#[test]
fn what_was_written_under_a_lock_is_read_by_the_next_holder() {
    let mut world = world(2);
    let at = world.alloc(0, 100);
    for (turn, rank) in [0, 1, 0, 1, 1, 0].into_iter().enumerate() {
        world.lock(rank, 0);
        assert_eq!(world.load(rank, at), turn as u8);
        world.store(rank, at, turn as u8 + 1);
        world.unlock(rank, 0);
    }
    assert!(world.diff_bytes > 0 && world.diff_bytes < 6, "{} bytes", world.diff_bytes);
    let stored: u64 = world.ranks.iter().map(|rank| rank.dsm.counters().bytes_stored).sum();
    assert_eq!(stored, world.diff_bytes);
}

#[test]
fn without_synchronisation_nobody_is_disturbed() {
    let mut world = world(2);
    let at = world.alloc(0, 100);
    world.store(0, at, 1);
    assert_eq!(world.load(1, at), 1, "the first touch reads what is there");
    world.store(0, at, 2);
    world.store(1, at + 1, 3);
    assert_eq!((world.load(1, at), world.load(0, at + 1)), (1, 0));
    world.barrier(&[0, 1]);
    assert_eq!((world.load(1, at), world.load(0, at + 1)), (2, 3));
}

#[test]
fn neighbouring_bytes_of_three_writers_are_merged_at_the_barrier_and_at_a_fetch() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut world = world(3);
        let at = world.alloc(1, 100);
        for rank in order {
            world.store(rank, at + usize::from(rank), 10 + rank as u8);
        }
        // Rank 2 acquires what rank 0 has written while its own byte is in its copy alone.
        world.lock(0, 0);
        world.unlock(0, 0);
        world.lock(2, 0);
        assert_eq!((world.load(2, at), world.load(2, at + 2)), (10, 12));
        world.unlock(2, 0);
        world.barrier(&order);
        for rank in 0..3 {
            for byte in 0..3 {
                assert_eq!(world.load(rank, at + byte), 10 + byte as u8, "rank {rank}, byte {byte}");
            }
        }
    }
}

#[test]
fn a_third_rank_passes_on_what_it_has_learned() {
    let mut world = world(3);
    let (x, y) = (world.alloc(0, PAGE as u64), world.alloc(0, PAGE as u64));
    for rank in 0..3 {
        assert_eq!(world.load(rank, x), 0);
    }
    world.lock(0, 1);
    world.store(0, x, 7);
    world.unlock(0, 1);
    world.lock(1, 1);
    world.store(1, y, 8);
    world.unlock(1, 1);
    world.lock(1, 2);
    world.unlock(1, 2);
    world.lock(2, 2);
    assert_eq!((world.load(2, x), world.load(2, y)), (7, 8));
}

#[test]
fn the_home_moves_to_the_rank_that_alone_writes() {
    let mut world = world(3);
    let at = world.alloc(0, 100);
    world.store(0, at, 1);
    for turn in 0..8 {
        world.barrier(&[0, 1, 2]);
        for rank in 0..3 {
            assert_eq!(world.load(rank, at), 1 + turn);
        }
        world.barrier(&[2, 0, 1]);
        world.store(2, at, 2 + turn);
    }
    let page = (at / PAGE) as u64;
    assert_eq!(world.ranks[2].dsm.home(page), Some(2));
    assert_eq!(world.ranks.iter().map(|rank| rank.dsm.counters().home_moves).sum::<u64>(), 1);
}

fn write_faults(world: &World, rank: usize) -> u64 {
    world.ranks[rank].dsm.counters().write_faults
}

#[test]
fn a_page_that_no_other_rank_has_asked_for_faults_once_and_has_no_notices() {
    for writer in 0..3 {
        let mut world = world(3);
        let at = world.alloc(0, 100);
        for turn in 0..10 {
            world.store(writer, at, turn);
            world.barrier(&[0, 1, 2]);
        }
        assert_eq!(write_faults(&world, usize::from(writer)), 1);
        let notices: u64 = world.ranks.iter().map(|rank| rank.dsm.counters().notices).sum();
        assert_eq!(notices, 0);
        // The others see what was written before they asked, and after.
        world.store(writer, at, 20);
        for turn in 21..24 {
            for rank in 0..3 {
                assert_eq!(world.load(rank, at), turn - 1);
            }
            world.store(writer, at, turn);
            world.barrier(&[0, 1, 2]);
        }
    }
}

#[test]
fn a_home_that_writes_on_when_others_have_read_is_alone_again() {
    let mut world = world(3);
    let at = world.alloc(0, 100);
    world.store(0, at, 1);
    assert_eq!((world.load(1, at), world.load(2, at)), (1, 1));
    for turn in 0..30 {
        world.barrier(&[0, 1, 2]);
        world.store(0, at, turn);
    }
    assert!(write_faults(&world, 0) < 8, "{} faults", write_faults(&world, 0));
    assert_eq!((world.load(1, at), world.load(2, at)), (29, 29));
    world.barrier(&[0, 1, 2]);
    world.store(0, at, 30);
    world.barrier(&[0, 1, 2]);
    assert_eq!((world.load(1, at), world.load(2, at)), (30, 30));
}

#[test]
fn a_home_that_has_moved_to_the_only_rank_that_uses_the_page_is_alone() {
    let mut world = world(3);
    let at = world.alloc(0, 100);
    world.store(0, at, 1);
    for turn in 0..30 {
        world.barrier(&[0, 1, 2]);
        world.store(2, at, turn);
    }
    assert_eq!(world.ranks[2].dsm.home((at / PAGE) as u64), Some(2));
    assert!(write_faults(&world, 2) < 8, "{} faults", write_faults(&world, 2));
    world.barrier(&[0, 1, 2]);
    assert_eq!((world.load(0, at), world.load(1, at)), (29, 29));
}

#[test]
fn a_home_that_is_given_is_kept_and_a_sequential_allocation_has_a_view_of_its_own() {
    let mut world = world(3);
    let options = AllocOptions { home: Some(2), ..AllocOptions::default() };
    world.rank(0).dsm.alloc_with(0, 3 * PAGE as u64, options).unwrap();
    world.settle();
    let Some(Outcome::Allocated(address)) = world.outcome(0, 0) else { panic!() };
    let at = address.offset_bytes as usize;
    world.store(1, at + PAGE, 5);
    assert_eq!(world.ranks[1].dsm.home((at / PAGE) as u64 + 1), Some(2));
    world.barrier(&[0, 1, 2]);
    assert_eq!((world.load(0, at + PAGE), world.load(2, at + PAGE)), (5, 5));

    let options = AllocOptions { protocol: Some(Protocol::Minipages), ..AllocOptions::default() };
    world.rank(0).dsm.alloc_with(0, 100, options).unwrap();
    world.settle();
    let Some(Outcome::Allocated(address)) = world.outcome(0, 0) else { panic!() };
    assert_eq!(address.view, 1);
    let wrong = AllocOptions { home: Some(1), ..options };
    let error = world.rank(0).dsm.alloc_with(0, 100, wrong).unwrap_err().to_string();
    assert!(error.contains("only hlrc has homes"), "{error}");
}

#[test]
fn writes_to_the_same_bytes_that_nothing_orders_are_named_with_both_ranks_and_no_others() {
    let config = Config { finds_races: true, protocol: Protocol::Hlrc, ..Config::new(0, 3, 1, 64, 1) };
    let mut world = World::new(config, 1_000, Random::new(1));
    let at = world.alloc(0, 100);
    world.store(0, at, 1);
    world.barrier(&[0, 1, 2]);
    // In turns, and side by side: no race.
    for rank in [1, 2, 1] {
        world.lock(rank, 0);
        world.store(rank, at, 10 + rank as u8);
        world.unlock(rank, 0);
        world.store(rank, at + 10 + usize::from(rank), 1);
    }
    world.barrier(&[0, 1, 2]);
    let races = |world: &mut World| -> Vec<_> {
        let of_each = world.ranks.iter_mut().flat_map(|rank| std::iter::from_fn(|| rank.dsm.poll_race()));
        of_each.map(|race| (race.ranks, race.offset_bytes, race.length_bytes)).collect()
    };
    assert_eq!(races(&mut world), []);
    // Bytes 20 to 22 of rank 1, and 21 to 23 of rank 2.
    for (rank, first) in [(1, 20), (2, 21)] {
        (first..first + 3).for_each(|byte| world.store(rank, at + byte, 50 + byte as u8 + rank as u8));
    }
    world.barrier(&[0, 1, 2]);
    assert_eq!(races(&mut world), [([1, 2], at as u64 + 21, 2)]);
}

#[test]
fn a_page_that_is_overwritten_is_not_fetched_and_goes_to_its_home_as_a_whole() {
    let mut world = world(3);
    let at = world.alloc(0, PAGE as u64);
    let page = (at / PAGE) as u64;
    world.store(0, at, 1);
    for turn in 2..9 {
        assert_eq!((world.load(1, at), world.load(2, at)), (turn - 1, turn - 1));
        world.barrier(&[0, 1, 2]);
        let writer = turn as u16 % 2 + 1;
        let before = world.ranks[usize::from(writer)].dsm.counters();
        world.rank(writer).dsm.overwrite(0, 0, 0, page).unwrap();
        world.drain(writer);
        (0..PAGE).for_each(|byte| world.store(writer, at + byte, turn));
        // Notices of others do not disturb it.
        world.lock(writer, 1);
        (0..PAGE / 2).for_each(|byte| world.store(writer, at + byte, turn));
        world.unlock(writer, 1);
        world.barrier(&[2, 1, 0]);
        let after = world.ranks[usize::from(writer)].dsm.counters();
        assert_eq!((after.pages_fetched, after.twins), (before.pages_fetched, before.twins));
        assert_eq!(after.bytes_stored, before.bytes_stored + PAGE as u64);
        // What others stored before is gone, and what they store afterwards is seen.
        assert_eq!((world.load(0, at + PAGE - 1), world.load(3 - writer, at + 1)), (turn, turn));
        world.store(0, at + 5, 100 + turn);
        world.barrier(&[2, 1, 0]);
        assert_eq!((world.load(writer, at + 5), world.load(writer, at + 6)), (100 + turn, turn));
        world.barrier(&[2, 1, 0]);
    }
}

#[test]
fn a_page_whose_home_is_not_known_is_overwritten_without_a_fetch_too() {
    let mut world = world(3);
    let at = world.alloc(0, 3 * PAGE as u64);
    for byte in 0..3 * PAGE {
        world.store(0, at + byte, 1);
    }
    world.barrier(&[0, 1, 2]);
    for page in 0..4 {
        // The last is nobody's.
        world.rank(1).dsm.overwrite(0, 0, 0, (at / PAGE) as u64 + page).unwrap();
    }
    world.drain(1);
    (0..3 * PAGE).for_each(|byte| world.store(1, at + byte, 2));
    let counters = world.ranks[1].dsm.counters();
    assert_eq!((counters.pages_fetched, counters.twins), (0, 0));
    world.barrier(&[0, 1, 2]);
    for rank in 0..3 {
        assert!((0..3 * PAGE).all(|byte| world.load(rank, at + byte) == 2));
    }
}

#[test]
fn pages_fetched_ahead_come_together_also_when_their_homes_are_not_known() {
    let mut world = world(3);
    let start = world.alloc(0, 40 * PAGE as u64);
    let pages = || (0..40).map(|page| start + page * PAGE);
    let ahead = |world: &mut World, rank: u16, access| {
        for at in pages() {
            assert_eq!(world.rank(rank).dsm.prefetch(0, 0, 0, (at / PAGE) as u64, access), Ok(true));
        }
        world.settle();
    };
    let counters = |world: &World, rank: usize| world.ranks[rank].dsm.counters();
    ahead(&mut world, 0, Access::Write);
    for turn in 1..4 {
        pages().for_each(|at| world.store(0, at + 7, turn));
        if turn == 1 {
            assert_eq!(counters(&world, 0).write_faults, 0, "what nobody else has touched is open");
        }
        world.barrier(&[0, 1, 2]);
        let before = world.fetches;
        ahead(&mut world, 1, Access::Read);
        assert_eq!(world.fetches, before + 1);
        pages().for_each(|at| assert_eq!(world.load(1, at + 7), turn));
        let Counters { read_faults, pages_fetched, prefetches, .. } = counters(&world, 1);
        assert_eq!((read_faults, pages_fetched, prefetches), (0, 40 * u64::from(turn), 40 * u64::from(turn)));
        ahead(&mut world, 1, Access::Read);
        assert_eq!(world.fetches, before + 1, "nothing is out of date");
        world.barrier(&[0, 1, 2]);
    }
    assert_eq!(world.rank(2).dsm.prefetch(0, 0, 0, 63, Access::Read), Ok(true), "nothing is there");
    world.settle();
    ahead(&mut world, 2, Access::Read);
    pages().for_each(|at| assert_eq!(world.load(2, at + 7), 3));
    assert_eq!(counters(&world, 2).read_faults, 0);
}

#[test]
fn homes_of_many_pages_are_asked_for_and_answered_together_also_where_they_differ() {
    let config = Config { protocol: Protocol::Hlrc, ..Config::new(0, 3, 1, 4096, 1) };
    let mut world = World::new(config, 1_000, Random::new(1));
    let start = world.alloc(2, 512 * PAGE as u64);
    let pages = || (0..512).map(|page| start + page * PAGE);
    let ahead = |world: &mut World, rank: u16| {
        for at in pages() {
            assert_eq!(world.rank(rank).dsm.prefetch(0, 0, 0, (at / PAGE) as u64, Access::Write), Ok(true));
        }
        world.settle();
    };
    // Rank 2 is the home of some.
    let is_other = |page: usize| page.is_multiple_of(100);
    for (page, at) in pages().enumerate().filter(|&(page, _)| is_other(page)) {
        world.store(2, at, page as u8);
    }
    world.barrier(&[0, 1, 2]);
    let mut before = world.kinds;
    for (rank, closes) in [(0, true), (1, true), (2, false)] {
        ahead(&mut world, rank);
        let sent = |kind: usize| world.kinds[kind] - before[kind];
        // Of 9 or 10 runs a third is managed by the rank itself. An answer from each home, and one behind it.
        assert!(sent(20) <= 10 && sent(21) <= 10 + 2 * 6, "{} and {}", sent(20), sent(21));
        assert!(sent(27) == sent(28) && sent(28) <= 10 + 2 * 6 && (closes == (sent(27) > 0)), "{}", sent(28));
        before = world.kinds;
    }
    for (page, at) in pages().enumerate() {
        let expected = if is_other(page) { page as u8 } else { 0 };
        (0..3).for_each(|rank| assert_eq!(world.load(rank, at), expected));
        let home = if is_other(page) { 2 } else { 0 };
        assert_eq!(world.rank(1).dsm.home((at / PAGE) as u64), Some(home));
    }
}

#[test]
fn an_access_to_what_was_never_allocated_is_an_error() {
    let mut world = world(3);
    world.alloc(0, 100);
    for page in [30, 31, 32] {
        let began = world.rank(1).dsm.handle_fault(0, 0, 0, page, Access::Read);
        assert_eq!(began, Ok(Progress::Pending));
        world.settle();
        assert_eq!(world.outcome(1, 0), Some(Outcome::Failed(Error::NotShared { view: 0, page })));
    }
    let outside = world.rank(1).dsm.handle_fault(0, 0, 0, 64, Access::Read);
    assert_eq!(outside, Err(Error::NotShared { view: 0, page: 64 }));
}

#[test]
fn a_barrier_tells_of_more_pages_than_a_message_holds() {
    let config = Config { protocol: Protocol::Hlrc, notices: 2_000, twins: 4, ..Config::new(0, 3, 1, 1024, 1) };
    let mut world = World::new(config, 1_000, Random::new(1));
    let start = world.alloc(0, 1000 * PAGE as u64);
    // Every second page, so that each takes a notice; and few twins, so that the interval ends often.
    let places = || (0..200).map(|page| start + 2 * page * PAGE + page);
    for rank in 0..3 {
        places().for_each(|at| assert_eq!(world.load(rank, at), 0));
    }
    for (turn, rank) in [(1, 2), (2, 0), (3, 1)] {
        places().for_each(|at| world.store(rank, at, turn));
        world.barrier(&[1, 0, 2]);
        for reader in 0..3 {
            places().for_each(|at| assert_eq!(world.load(reader, at), turn, "rank {reader}, turn {turn}"));
        }
    }
    assert!(world.kinds[18] > 10, "notices in messages of their own: {}", world.kinds[18]);
    assert!(world.ranks.iter().all(|rank| rank.dsm.condensed_notices() == 0));
}
