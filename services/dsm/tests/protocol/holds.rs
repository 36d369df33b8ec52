//! How long a thread keeps what it was granted.

use crate::net::Net;
use mapwire_dsm::{Access, Config, Minipage, Outcome, Protection};

/// At time 100, rank 1 is granted `access` to a page that rank `manager` manages.
fn just_granted(manager: u16, access: Access) -> (Net, Minipage) {
    let mut net = Net::new(Config { chunk_pages: 1, hold_ns: 1000, ..Config::new(0, 3, 3, 512, 4) });
    let page = net.page_of(0, manager);
    net.now_ns = 100;
    net.fault(1, page, access);
    net.clear();
    (net, page)
}

fn protection(net: &mut Net, page: Minipage) -> Protection {
    net.rank(1).minipage_at(page.view, page.first_page()).unwrap().1
}

#[test]
fn a_minipage_just_granted_stays_until_its_thread_does_something_else() {
    for manager in 0..3 {
        let (mut net, page) = just_granted(manager, Access::Write);
        let _ = net.start(2, 0, page, Access::Read);
        net.settle();
        assert_eq!(net.outcome(2, 0), None);
        assert_eq!(protection(&mut net, page), Protection::Write);
        assert_eq!(net.ranks[1].counters().held_back, 1);
        net.rank(1).lock(0, 1).map(drop).unwrap();
        net.settle();
        assert_eq!(net.outcome(2, 0).unwrap().0, Outcome::Served(Access::Read));
        assert_eq!(protection(&mut net, page), Protection::Read);
    }
}

#[test]
fn a_minipage_just_granted_stays_for_the_time_configured_and_no_longer() {
    for manager in 0..3 {
        let (mut net, page) = just_granted(manager, Access::Write);
        assert_eq!(net.rank(1).poll_hold(), None, "nobody waits");
        let _ = net.start(2, 0, page, Access::Write);
        net.settle();
        assert_eq!(net.rank(1).poll_hold(), Some(1100));
        net.rank(1).release_holds(1099);
        net.settle();
        assert_eq!(net.outcome(2, 0), None);
        net.rank(1).release_holds(1100);
        net.settle();
        assert_eq!(net.outcome(2, 0).unwrap().0, Outcome::Served(Access::Write));
        assert_eq!(net.rank(1).poll_hold(), None);
    }
}

#[test]
fn a_reader_keeps_nobody_from_reading() {
    for manager in 0..3 {
        let (mut net, page) = just_granted(manager, Access::Read);
        net.fault(2, page, Access::Read);
        let _ = net.start(0, 0, page, Access::Write);
        net.settle();
        assert_eq!(net.outcome(0, 0), None, "but from writing");
    }
}

#[test]
fn a_message_after_the_time_finds_the_hold_over() {
    let (mut net, page) = just_granted(0, Access::Write);
    net.now_ns = 1100;
    net.fault(2, page, Access::Write);
    assert_eq!(net.ranks[1].counters().held_back, 0);
}

#[test]
fn several_threads_hold_until_the_last_of_them_is_done() {
    let (mut net, page) = just_granted(2, Access::Write);
    net.now_ns = 1100;
    net.fault(0, page, Access::Write);
    for thread in 0..2 {
        let _ = net.start(1, thread, page, Access::Read);
    }
    net.now_ns = 2100;
    net.settle();
    net.clear();
    let _ = net.start(0, 0, page, Access::Write);
    net.settle();
    assert!(net.rank(1).unlock(0, 0).is_err(), "an input that fails is an input too");
    net.settle();
    assert_eq!(net.outcome(0, 0), None);
    assert!(net.rank(1).unlock(1, 0).is_err());
    net.settle();
    assert_eq!(net.outcome(0, 0).unwrap().0, Outcome::Served(Access::Write));
}
