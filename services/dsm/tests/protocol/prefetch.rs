//! Minipages requested before any access.

use crate::net::Net;
use mapwire_dsm::{
    Access, Action, Config, Error, MAX_PREFETCHES, Message, Minipage, Outcome, PAGE_BYTES, Progress, Protection, Rank,
    Unit,
};

fn net(ranks: Rank) -> Net {
    Net::new(Config { chunk_pages: 1, ..Config::new(0, ranks, 2, 512, 4) })
}

/// Requests without delivering anything.
fn ask(net: &mut Net, rank: Rank, minipage: Minipage, access: Access) -> bool {
    let now_ns = net.now_ns;
    let page = minipage.first_page();
    let has_room = net.rank(rank).prefetch(now_ns, 0, minipage.view, page, access);
    net.drain(rank);
    has_room.unwrap()
}

fn protection(net: &mut Net, rank: Rank, minipage: Minipage) -> Protection {
    let found = net.rank(rank).minipage_at(minipage.view, minipage.first_page());
    found.map_or(Protection::None, |(_, protection)| protection)
}

fn is_resume(action: &Action) -> bool {
    matches!(action, Action::Resume { .. })
}

#[test]
fn what_was_asked_for_comes_with_the_messages_of_a_fault_and_resumes_nobody() {
    for access in [Access::Read, Access::Write] {
        let mut net = net(3);
        let page = net.page_of(0, 1);
        net.clear();
        assert!(ask(&mut net, 2, page, access));
        net.settle();
        assert_eq!(net.delivered, 4, "request, forward, grant, done");
        assert!(protection(&mut net, 2, page).allows(access));
        assert!(!net.actions(2).iter().any(is_resume));
        assert_eq!(net.fault(2, page, access), (0, 0));
        assert_eq!(net.ranks[2].counters().prefetches, 1);
    }
}

#[test]
fn a_thread_that_faults_meanwhile_waits_for_the_same_request() {
    let mut net = net(2);
    let page = net.page_of(1, 1);
    net.clear();
    ask(&mut net, 0, page, Access::Read);
    ask(&mut net, 0, page, Access::Read);
    assert_eq!(net.start(0, 0, page, Access::Read), Progress::Pending);
    assert_eq!(net.start(0, 1, page, Access::Write), Progress::Pending);
    net.settle();
    assert_eq!(net.delivered, 4, "two for the copy and two for the right to write");
    assert_eq!(net.outcome(0, 0), Some((Outcome::Served(Access::Read), 2)));
    assert_eq!(net.outcome(0, 1), Some((Outcome::Served(Access::Write), 4)));
}

#[test]
fn a_copy_becomes_writable_ahead_of_the_store() {
    let mut net = net(2);
    let page = net.page_of(1, 1);
    net.fault(0, page, Access::Read);
    let bytes_before = net.ranks[1].counters().bytes_sent;
    ask(&mut net, 0, page, Access::Write);
    net.settle();
    assert_eq!(protection(&mut net, 0, page), Protection::Write);
    assert_eq!(protection(&mut net, 1, page), Protection::None);
    assert_eq!(net.ranks[1].counters().bytes_sent, bytes_before);
}

#[test]
fn nothing_comes_where_nothing_is_allocated_and_outside_is_refused() {
    let mut net = net(2);
    let nowhere = Minipage { view: 3, offset_bytes: 300 * 4096, length_bytes: 4096 };
    for rank in 0..2 {
        net.clear();
        assert!(ask(&mut net, rank, nowhere, Access::Write));
        net.settle();
        assert!(!net.actions(rank).iter().any(is_resume));
        assert_eq!(protection(&mut net, rank, nowhere), Protection::None);
    }
    let refused = net.rank(0).prefetch(0, 0, 4, 1, Access::Read);
    assert_eq!(refused, Err(Error::NotShared { view: 4, page: 1 }));
}

#[test]
fn a_refusal_that_is_older_than_an_allocation_fails_no_thread() {
    let mut net = net(3);
    let page = net.page_of(1, 0);
    // This rank's answer for a page where nothing is allocated yet.
    let now_ns = net.now_ns;
    ask(&mut net, 2, page, Access::Read);
    let asked = net.actions(2).into_iter().rev().find_map(|action| match action {
        Action::Send { message: Message::Request { thread, key, .. }, .. } => Some((thread, key)),
        _ => None,
    });
    let (thread, key) = asked.unwrap();
    assert_eq!(net.start(2, 0, page, Access::Read), Progress::Pending);
    let refusal = Message::Refuse { thread, key };
    net.forget();
    net.rank(2).handle_message(now_ns, 0, refusal, &[]).unwrap();
    net.settle();
    assert_eq!(net.outcome(2, 0).unwrap().0, Outcome::Served(Access::Read));
}

#[test]
fn no_more_are_on_their_way_than_the_limit_and_then_there_is_room_again() {
    let mut net = net(2);
    let pages: Vec<_> = (0..=MAX_PREFETCHES).map(|_| net.page_of(1, 1)).collect();
    net.clear();
    let (last, first) = pages.split_last().unwrap();
    for &page in first {
        assert!(ask(&mut net, 0, page, Access::Read));
    }
    assert!(!ask(&mut net, 0, *last, Access::Read));
    net.settle();
    assert_eq!(protection(&mut net, 0, first[0]), Protection::Read);
    assert_eq!(protection(&mut net, 0, *last), Protection::None);
    assert!(ask(&mut net, 0, *last, Access::Read));
    net.settle();
    assert_eq!(protection(&mut net, 0, *last), Protection::Read);
}

#[test]
fn others_need_not_wait_until_what_was_asked_for_is_used() {
    let mut net = net(2);
    let page = net.page_of(1, 1);
    ask(&mut net, 0, page, Access::Write);
    net.settle();
    assert_eq!(net.fault(1, page, Access::Read), (2, 2));
}

#[test]
fn a_grant_that_nobody_has_asked_for_is_refused_whatever_its_number() {
    let mut net = net(2);
    let page = net.page_of(1, 1);
    for thread in [0, 2, 2 + MAX_PREFETCHES - 1, 2 + MAX_PREFETCHES, u16::MAX] {
        let grant = Message::Grant { minipage: page, thread, access: Access::Read, acks: 0, data: true, done: false };
        assert!(net.rank(0).handle_message(0, 1, grant, &[]).is_err());
    }
    assert_eq!(protection(&mut net, 0, page), Protection::None);
}

#[test]
fn what_a_rank_pushes_another_fetches_before_it_reads() {
    let mut net = Net::new(Config { hold_ns: 0, ..Config::new(0, 3, 2, 512, 4) });
    let array = net.array(1, 40 * PAGE_BYTES, Unit::Auto);
    let unit = |number| array.unit(number, 4).unwrap();
    for number in 0..40 {
        net.fault(1, unit(number), Access::Write);
    }
    let run = Minipage { length_bytes: 3 * PAGE_BYTES, ..unit(5) };
    net.clear();
    net.rank(1).push(0, 0, 2, run).unwrap();
    net.settle();
    for number in 0..40 {
        let right = if (5..8).contains(&number) { Protection::Read } else { Protection::None };
        assert_eq!(net.rank(2).minipage_at(0, unit(number).first_page()).unwrap().1, right);
    }
    assert_eq!(net.ranks[2].counters().read_faults, 0);
    // More than can be under way at a time is a hint that is not taken.
    let all = Minipage { length_bytes: array.length_bytes, ..unit(0) };
    net.rank(1).push(0, 0, 0, all).unwrap();
    net.settle();
    assert_eq!(net.ranks[0].counters().prefetches, u64::from(MAX_PREFETCHES));
}

#[test]
fn a_push_to_nobody_to_oneself_or_of_what_is_outside_is_refused_and_one_of_nothing_does_nothing() {
    let mut net = Net::new(Config::new(0, 3, 2, 512, 4));
    let page = net.alloc(1, 4096);
    assert_eq!(net.rank(1).push(0, 0, 3, page), Err(Error::UnknownRank { rank: 3, ranks: 3 }));
    assert_eq!(net.rank(1).push(0, 0, 1, page), Err(Error::OwnRank { rank: 1 }));
    for run in [
        Minipage { view: 4, ..page },
        Minipage { length_bytes: 0, ..page },
        Minipage { length_bytes: u64::MAX, ..page },
        Minipage { offset_bytes: 512 * 4096, ..page },
    ] {
        assert!(matches!(net.rank(1).push(0, 0, 2, run), Err(Error::NotShared { .. })));
        let error = net.rank(2).handle_message(0, 1, Message::Push { run }, &[]).unwrap_err();
        assert_eq!(error.violation, mapwire_dsm::Violation::OutOfRange);
    }
    // Nothing is allocated there.
    net.rank(1).push(0, 0, 2, Minipage { view: 2, offset_bytes: 4096 * 300, length_bytes: 100 * 4096 }).unwrap();
    net.settle();
    net.fault(2, page, Access::Read);
}
