//! Several minipages of a page in one message.

use crate::net::Net;
use mapwire_dsm::{Access, Action, Config, Message, Minipage, Outcome, Protection, Rank, Views, Violation};

/// Minipages of these lengths on one page, which `owner` owns and `manager` manages.
fn page_of(net: &mut Net, lengths: &[u64], owner: Rank, manager: Rank) -> Vec<Minipage> {
    loop {
        // A page of their own.
        net.alloc(owner, 4096);
        let units: Vec<_> = lengths.iter().map(|&bytes| net.alloc(owner, bytes)).collect();
        assert!(units.iter().all(|unit| unit.first_page() == units[0].first_page()));
        if net.ranks[0].manager(units[0].first_page()) == Some(manager) {
            net.clear();
            return units;
        }
    }
}

/// A page of 64 minipages.
fn page(net: &mut Net, owner: Rank, manager: Rank) -> Vec<Minipage> {
    page_of(net, &[64; 64], owner, manager)
}

fn net(ranks: Rank) -> Net {
    Net::new(Config { chunk_pages: 1, hold_ns: 0, read_ahead: false, ..Config::new(0, ranks, 2, 512, 64) })
}

fn ask(net: &mut Net, rank: Rank, units: &[Minipage], access: Access) {
    for unit in units {
        let asked = net.rank(rank).prefetch(0, 0, unit.view, unit.first_page(), access);
        assert_eq!(asked, Ok(true));
    }
    net.drain(rank);
}

fn protections(net: &Net, rank: Rank, units: &[Minipage]) -> Vec<Protection> {
    let dsm = &net.ranks[usize::from(rank)];
    let at = |unit: &Minipage| dsm.minipage_at(unit.view, unit.first_page()).map_or(Protection::None, |found| found.1);
    units.iter().map(at).collect()
}

/// What ranks sent, without bytes: from whom, and about which views after the first.
fn sent(net: &Net) -> Vec<(Rank, Message)> {
    let messages = net.log.iter().filter_map(|happened| match happened.action {
        Action::Send { message, .. } | Action::SendMinipage { message, .. } => Some((happened.rank, message)),
        _ => None,
    });
    messages.collect()
}

#[test]
fn all_minipages_of_a_page_come_with_the_messages_of_one() {
    for access in [Access::Read, Access::Write] {
        for (owner, manager, messages) in [(1, 1, 2), (1, 2, 2), (1, 0, 4)] {
            let mut net = net(3);
            let units = page(&mut net, owner, manager);
            ask(&mut net, 2, &units, access);
            net.settle();
            assert_eq!(net.delivered, messages, "owner {owner}, manager {manager}");
            let views = |(_, message): &(Rank, Message)| message.views();
            assert!(sent(&net).iter().map(views).all(|views| views == Views::new(u64::MAX).unwrap()));
            assert_eq!(protections(&net, 2, &units), [Protection::from(access); 64]);
            let left = if access == Access::Read { Protection::Read } else { Protection::None };
            assert_eq!(protections(&net, owner, &units), [left; 64]);
            assert_eq!(net.ranks[usize::from(owner)].counters().minipages_sent, 64);
        }
    }
}

#[test]
fn every_copy_is_closed_before_its_bytes_leave_and_opened_after_they_came() {
    let mut net = net(2);
    let units = page(&mut net, 1, 1);
    ask(&mut net, 0, &units[3..9], Access::Write);
    net.settle();
    let of_owner = net.actions(1);
    assert!(matches!(of_owner[..6], [Action::Protect { protection: Protection::None, .. }, ..]));
    assert!(matches!(of_owner[6..], [Action::SendMinipage { to: 0, minipage, message }]
        if minipage == units[3] && message.views().iter().eq(0..6)));
}

#[test]
fn what_is_here_already_is_not_asked_for_again() {
    let mut net = net(2);
    let units = page(&mut net, 1, 1);
    for at in [2, 3, 7] {
        net.fault(0, units[at], Access::Read);
    }
    net.clear();
    ask(&mut net, 0, &units[..10], Access::Read);
    net.settle();
    let left = Views::new(0b11_0111_0011).unwrap();
    assert_eq!(sent(&net).iter().map(|sent| sent.1.views()).collect::<Vec<_>>(), [left, left]);
    assert_eq!(net.ranks[1].counters().minipages_sent, 10);
}

#[test]
fn one_that_is_busy_waits_alone_and_the_others_come() {
    let mut net = net(4);
    let units = page(&mut net, 1, 0);
    let _ = net.start(2, 0, units[5], Access::Write);
    net.step();
    // The manager has forwarded the request of rank 2, which has not said yet that it is served.
    ask(&mut net, 3, &units, Access::Read);
    net.settle();
    assert_eq!(net.outcome(2, 0).unwrap().0, Outcome::Served(Access::Write));
    assert_eq!(protections(&net, 3, &units), [Protection::Read; 64]);
    let others = Views::new(!(1 << 5)).unwrap();
    let forwarded = |sent: &(Rank, Message)| match sent.1 {
        Message::Forward { requester: 3, views, minipage, .. } => Some((minipage, views)),
        _ => None,
    };
    let forwarded: Vec<_> = sent(&net).iter().filter_map(forwarded).collect();
    assert_eq!(forwarded, [(units[0], others), (units[5], Views::ONE)]);
}

#[test]
fn where_nothing_is_allocated_all_are_refused_at_once() {
    let mut net = net(2);
    let page = (500..512).find(|&page| net.ranks[0].manager(page) == Some(1)).unwrap();
    for view in 10..20 {
        net.rank(0).prefetch(0, 0, view, page, Access::Read).unwrap();
    }
    net.settle();
    assert_eq!(net.delivered, 2);
    assert!(matches!(sent(&net)[1], (1, Message::Refuse { views, .. }) if views.iter().eq(0..10)));
}

#[test]
fn minipages_of_other_lengths_share_the_request_and_come_by_themselves() {
    let mut net = net(2);
    let units = page_of(&mut net, &[64, 64, 100, 64, 64], 1, 1);
    ask(&mut net, 0, &units, Access::Read);
    net.settle();
    let views = |at: &[u16]| {
        let mask = at.iter().fold(0, |mask, at| mask | 1 << at);
        Views::new(mask).unwrap()
    };
    let found: Vec<_> = sent(&net).iter().map(|sent| (sent.0, sent.1.views())).collect();
    let asked = (0, views(&[0, 1, 2, 3, 4]));
    assert!(found.contains(&asked), "{found:?}");
    assert_eq!(
        found.iter().filter(|(from, _)| *from == 1).map(|sent| sent.1).collect::<Vec<_>>(),
        [views(&[0, 1]), views(&[0]), views(&[0, 1])]
    );
    assert_eq!(protections(&net, 0, &units), [Protection::Read; 5]);
}

#[test]
fn a_set_that_reaches_beyond_views_numbers_or_what_is_there_is_refused() {
    let mut net = net(3);
    let units = page(&mut net, 1, 0);
    let (key, far) = (units[60].key(), Views::new(1 | 1 << 4).unwrap());
    let near = Views::new(0b11).unwrap();
    let beyond = Minipage { offset_bytes: u64::MAX - 64, ..units[0] };
    let long = Minipage { length_bytes: 1 << 63, ..units[0] };
    let (access, acks, requester) = (Access::Read, 0, 2);
    let grant = |minipage, views| Message::Grant { minipage, thread: 2, access, acks, data: true, done: true, views };
    let forward = |minipage, views| Message::Forward { minipage, requester, thread: 2, access, acks, views };
    // To whom, from whom, what, and how many of its minipages are served before it is refused.
    let cases = [
        (0, 2, Message::Request { thread: 2, key, access, views: far }, Violation::OutOfRange, 1),
        (0, 2, Message::Request { thread: u16::MAX, key, access, views: near }, Violation::OutOfRange, 0),
        (
            0,
            2,
            Message::Request { thread: 2 + 16 * 64 - 1, key: units[0].key(), access, views: near },
            Violation::OutOfRange,
            1,
        ),
        (1, 2, Message::Request { thread: 2, key, access, views: near }, Violation::NotManager, 0),
        (2, 1, grant(units[0], near), Violation::Unasked, 0),
        (2, 1, grant(units[63], near), Violation::Unasked, 0),
        (2, 1, grant(beyond, near), Violation::OutOfRange, 0),
        (2, 1, grant(long, near), Violation::OutOfRange, 0),
        (2, 0, forward(units[0], near), Violation::Minipage, 0),
        (1, 0, forward(units[63], near), Violation::OutOfRange, 1),
        (1, 0, forward(Minipage { length_bytes: 32, ..units[0] }, near), Violation::Minipage, 0),
        (1, 2, forward(units[0], near), Violation::NotManager, 0),
        (0, 2, Message::Done { thread: 2, key, views: far }, Violation::Unasked, 0),
        (2, 0, Message::Refuse { thread: 2, key, views: near }, Violation::Unasked, 0),
        (
            1,
            0,
            Message::Invalidate { key: units[63].key(), requester, thread: 2, views: near },
            Violation::OutOfRange,
            1,
        ),
        (2, 0, Message::InvalidateAck { thread: 2, key, views: near }, Violation::Unasked, 0),
    ];
    for (to, from, message, violation, served) in cases {
        let mut net = self::net(3);
        page(&mut net, 1, 0);
        let refused = net.rank(to).handle_message(0, from, message, &[]);
        assert_eq!(refused, Err(mapwire_dsm::PeerError { from, violation }), "{message:?}");
        net.drain(to);
        let answers: usize = sent(&net).iter().map(|(_, message)| message.views().iter().count()).sum();
        assert_eq!(answers, served, "{message:?}: {:?}", net.log);
    }
}

#[test]
fn a_grant_for_one_that_was_put_off_or_refused_is_no_right() {
    let mut net = net(3);
    let units = page(&mut net, 1, 0);
    ask(&mut net, 2, &units[..4], Access::Read);
    let asked = sent(&net).pop().unwrap().1;
    let Message::Request { thread, .. } = asked else { panic!("{asked:?}") };
    // Of the five only four were asked for.
    let views = Views::new(0b11111).unwrap();
    let grant =
        Message::Grant { minipage: units[0], thread, access: Access::Read, acks: 0, data: true, done: true, views };
    let refused = net.rank(2).handle_message(0, 1, grant, &[]);
    assert_eq!(refused, Err(mapwire_dsm::PeerError { from: 1, violation: Violation::Unasked }));
    assert_eq!(protections(&net, 2, &units[4..]), [Protection::None; 60]);
    // What was granted is granted once.
    let refused = net.rank(2).handle_message(0, 1, grant.about(0), &[]);
    assert_eq!(refused, Err(mapwire_dsm::PeerError { from: 1, violation: Violation::Unasked }));
}
