//! Cost of a fault in messages, and order of events.

use crate::net::Net;
use mapwire_dsm::{
    Access, Action, Config, Error, MAX_RANKS, Message, Outcome, PeerError, Progress, Protection, Views, Violation,
};

fn config(ranks: u16) -> Config {
    Config { chunk_pages: 1, hold_ns: 0, read_ahead: false, ..Config::new(0, ranks, 3, 8192, 4) }
}

fn net(ranks: u16) -> Net {
    Net::new(config(ranks))
}

#[test]
fn a_read_fault_whose_manager_owns_costs_a_request_and_a_grant() {
    let mut net = net(4);
    let page = net.page_of(1, 1);
    assert_eq!(net.fault(2, page, Access::Read), (2, 2));
    assert_eq!(net.fault(3, page, Access::Read), (2, 2));
    assert_eq!(net.fault(0, page, Access::Read), (2, 2));
}

#[test]
fn a_read_fault_whose_requester_manages_costs_a_forward_and_a_grant() {
    let mut net = net(4);
    let page = net.page_of(1, 2);
    assert_eq!(net.fault(2, page, Access::Read), (2, 2));
}

#[test]
fn a_read_fault_among_three_ranks_takes_three_messages_and_one_behind() {
    let mut net = net(4);
    let page = net.page_of(1, 2);
    assert_eq!(net.fault(3, page, Access::Read), (3, 4));
}

#[test]
fn a_manager_with_a_copy_serves_the_data_itself() {
    let mut net = net(4);
    let page = net.page_of(1, 2);
    net.fault(2, page, Access::Read);
    assert_eq!(net.fault(3, page, Access::Read), (2, 2));
    assert_eq!(net.fault(0, page, Access::Write), (6, 7), "two copies besides its own to drop");
}

#[test]
fn a_write_fault_of_two_ranks_costs_two_messages_whoever_manages() {
    let mut net = net(2);
    for manager in [0, 1] {
        let page = net.page_of(0, manager);
        assert_eq!(net.fault(1, page, Access::Write), (2, 2));
        assert_eq!(net.fault(0, page, Access::Write), (2, 2));
    }
}

#[test]
fn a_write_fault_among_three_ranks_takes_three_messages_and_one_behind() {
    let mut net = net(3);
    let page = net.page_of(0, 1);
    assert_eq!(net.fault(2, page, Access::Write), (3, 4));
    assert_eq!(net.rank(0).minipage_at(page.view, page.first_page()), Some((page, Protection::None)));
    assert_eq!(net.rank(2).minipage_at(page.view, page.first_page()), Some((page, Protection::Write)));
}

#[test]
fn a_write_upgrade_of_two_ranks_costs_two_messages_and_moves_no_data() {
    let mut net = net(2);
    for (owner, manager, writer) in [(0, 0, 1), (0, 1, 1), (1, 1, 0), (1, 0, 0), (0, 0, 0), (0, 1, 0)] {
        let page = net.page_of(owner, manager);
        net.fault(1 - owner, page, Access::Read);
        let before = net.ranks[usize::from(1 - writer)].counters().bytes_sent;
        let upgrades = net.ranks[usize::from(writer)].counters().upgrades;
        assert_eq!(net.fault(writer, page, Access::Write), (2, 2), "{owner} {manager} {writer}");
        assert_eq!(net.ranks[usize::from(1 - writer)].counters().bytes_sent, before);
        assert_eq!(net.ranks[usize::from(writer)].counters().upgrades, upgrades + 1);
    }
}

#[test]
fn holders_of_copies_acknowledge_to_the_requester_directly() {
    let mut net = net(4);
    let page = net.page_of(1, 1);
    for reader in [0, 2, 3] {
        net.fault(reader, page, Access::Read);
    }
    // Request; invalidate to 0 and 2, grant; their acks; done. No ack from the manager, which dropped its copy.
    assert_eq!(net.fault(3, page, Access::Write), (6, 7));
    let acks = net
        .log
        .iter()
        .filter(|happened| matches!(happened.action, Action::Send { to: 3, message: Message::InvalidateAck { .. } }));
    assert_eq!(acks.count(), 2);
    for other in [0, 1, 2] {
        let (_, protection) = net.ranks[other].minipage_at(page.view, page.first_page()).unwrap();
        assert_eq!(protection, Protection::None);
    }
}

#[test]
fn the_largest_job_reads_and_writes_with_the_messages_of_a_small_one() {
    let ranks = MAX_RANKS;
    let mut net = Net::new(Config { locks: 1, barriers: 1, ..config(ranks) });
    let page = net.page_of(700, 1023);
    for reader in 0..ranks {
        net.fault(reader, page, Access::Read);
    }
    let others = u64::from(ranks) - 1;
    // Request; invalidate to all but the manager and the writer, their acks, and the grant; done.
    let until_served = 1 + 2 * (others - 1) + 1;
    assert_eq!(net.fault(64, page, Access::Write), (until_served, until_served + 1));
    for other in 0..ranks {
        let (_, protection) = net.ranks[usize::from(other)].minipage_at(page.view, page.first_page()).unwrap();
        let expected = if other == 64 { Protection::Write } else { Protection::None };
        assert_eq!(protection, expected);
    }
}

#[test]
fn an_acknowledgement_counts_once_and_only_as_many_as_were_asked_for() {
    let mut net = net(4);
    let page = net.page_of(1, 1);
    net.fault(0, page, Access::Read);
    let _ = net.start(3, 0, page, Access::Write);
    net.forget();
    let ack = Message::InvalidateAck { thread: 0, key: page.key(), views: Views::ONE };
    let violation = |from, violation| Err(PeerError { from, violation });
    let dsm = net.rank(3);
    assert_eq!(dsm.handle_message(0, 0, ack, &[]), Ok(()));
    assert_eq!(dsm.handle_message(0, 0, ack, &[]), violation(0, Violation::Repeated));
    assert_eq!(dsm.handle_message(0, 2, ack, &[]), Ok(()));
    let grant = |acks| Message::Grant {
        minipage: page,
        thread: 0,
        access: Access::Write,
        acks,
        data: true,
        done: true,
        views: Views::ONE,
    };
    assert_eq!(dsm.handle_message(0, 1, grant(1), &[]), violation(1, Violation::Unasked));
    assert_eq!(dsm.handle_message(0, 1, grant(4), &[]), violation(1, Violation::OutOfRange));
    assert_eq!(dsm.handle_message(0, 1, grant(3), &[]), Ok(()));
    net.settle();
    assert_eq!(net.outcome(3, 0), None, "one is missing");
    let dsm = net.rank(3);
    assert_eq!(dsm.handle_message(0, 1, ack, &[]), Ok(()));
    net.drain(3);
    assert_eq!(net.outcome(3, 0).unwrap().0, Outcome::Served(Access::Write));
}

#[test]
fn the_allocating_rank_reads_and_writes_without_a_fault() {
    let mut net = net(2);
    let page = net.page_of(0, 1);
    assert_eq!(net.start(0, 0, page, Access::Write), Progress::Done);
    assert_eq!(net.ranks[0].counters().spurious_faults, 1);
    assert_eq!(net.log, []);
}

#[test]
fn an_owner_closes_its_pages_before_the_data_leaves_and_a_requester_opens_them_after_it_came() {
    let mut net = net(2);
    let page = net.page_of(0, 0);
    net.fault(1, page, Access::Read);
    let protect = |protection| Action::Protect { minipage: page, protection };
    let grant = |access, data| Message::Grant {
        minipage: page,
        thread: 0,
        access,
        acks: 0,
        data,
        done: false,
        views: Views::ONE,
    };
    let give = |access| Action::SendMinipage { to: 1, minipage: page, message: grant(access, true) };
    let served = |access| Action::Resume { thread: 0, outcome: Outcome::Served(access) };
    assert_eq!(net.actions(0), [protect(Protection::Read), give(Access::Read)]);
    assert_eq!(net.actions(1)[1..], [protect(Protection::Read), served(Access::Read)]);

    net.fault(1, page, Access::Write);
    let upgrade = Action::Send { to: 1, message: grant(Access::Write, false) };
    assert_eq!(net.actions(0), [protect(Protection::None), upgrade]);
    assert_eq!(net.actions(1)[1..], [protect(Protection::Write), served(Access::Write)]);
}

#[test]
fn a_copy_is_closed_before_its_end_is_acknowledged() {
    let mut net = net(2);
    let page = net.page_of(0, 0);
    net.fault(1, page, Access::Read);
    net.fault(0, page, Access::Write);
    let ack = Message::InvalidateAck { thread: 0, key: page.key(), views: Views::ONE };
    assert_eq!(
        net.actions(1),
        [Action::Protect { minipage: page, protection: Protection::None }, Action::Send { to: 0, message: ack }]
    );
}

#[test]
fn threads_of_a_rank_that_want_the_same_minipage_share_a_request() {
    let mut net = net(2);
    let page = net.page_of(0, 0);
    for thread in 0..3 {
        assert_eq!(net.start(1, thread, page, Access::Read), Progress::Pending);
    }
    net.settle();
    assert_eq!(net.delivered, 2);
    for thread in 0..3 {
        assert_eq!(net.outcome(1, thread), Some((Outcome::Served(Access::Read), 2)));
    }
}

#[test]
fn a_writer_behind_a_reader_of_its_rank_asks_again_and_is_served() {
    let mut net = net(2);
    let page = net.page_of(0, 0);
    let _ = net.start(1, 0, page, Access::Read);
    let _ = net.start(1, 1, page, Access::Write);
    net.settle();
    assert_eq!(net.outcome(1, 0), Some((Outcome::Served(Access::Read), 2)));
    assert_eq!(net.outcome(1, 1), Some((Outcome::Served(Access::Write), 4)));
}

#[test]
fn a_reader_behind_a_writer_of_its_rank_is_served_with_it() {
    let mut net = net(2);
    let page = net.page_of(0, 0);
    let _ = net.start(1, 0, page, Access::Write);
    let _ = net.start(1, 1, page, Access::Read);
    net.settle();
    assert_eq!(net.delivered, 2);
    assert_eq!(net.outcome(1, 1), Some((Outcome::Served(Access::Read), 2)));
}

#[test]
fn a_fault_where_nothing_is_allocated_fails_and_names_the_place() {
    let mut net = net(2);
    for page in 100..102 {
        let progress = net.rank(1).handle_fault(0, 2, 3, page, Access::Read);
        assert_eq!(progress, Ok(Progress::Pending));
        net.settle();
        let error = Error::NotShared { view: 3, page };
        assert_eq!(net.outcome(1, 2).unwrap().0, Outcome::Failed(error));
    }
    assert_eq!(net.delivered, 2, "one of the pages is managed by the rank itself");
    let error = Error::NotShared { view: 4, page: 0 };
    assert_eq!(net.rank(1).handle_fault(0, 2, 4, 0, Access::Read), Err(error));
    let error = Error::NotShared { view: 0, page: u64::MAX };
    assert_eq!(net.rank(1).handle_fault(0, 2, 0, u64::MAX, Access::Read), Err(error));
}

#[test]
fn a_thread_does_one_thing_at_a_time() {
    let mut net = net(2);
    let page = net.page_of(0, 0);
    let _ = net.start(1, 0, page, Access::Read);
    assert_eq!(net.rank(1).lock(0, 0), Err(Error::ThreadBusy { thread: 0 }));
    assert_eq!(net.rank(1).alloc(3, 1), Err(Error::UnknownThread { thread: 3, threads: 3 }));
}

#[test]
fn a_fault_in_the_middle_of_a_long_minipage_moves_all_of_it() {
    let mut net = net(4);
    let long = net.alloc(2, 5 * 4096 + 7);
    net.clear();
    let first = long.first_page();
    let _ = net.rank(3).handle_fault(0, 0, long.view, first + 5, Access::Write);
    net.settle();
    assert_eq!(net.rank(3).minipage_at(long.view, first + 2), Some((long, Protection::Write)));
    assert_eq!(net.rank(2).minipage_at(long.view, first + 4), Some((long, Protection::None)));
    assert_eq!(net.ranks[2].counters().bytes_sent, long.length_bytes);
}
