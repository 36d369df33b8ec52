//! What the strides of faults bring ahead.

use crate::net::{Happened, Net};
use mapwire_dsm::{Access, Action, Config, Message, Minipage, Outcome, Progress, Rank};

fn net(read_ahead: bool) -> Net {
    Net::new(Config { chunk_pages: 1, hold_ns: 0, read_ahead, ..Config::new(0, 3, 2, 1024, 64) })
}

/// Pages of rank 1 that follow each other.
fn pages(net: &mut Net, count: usize) -> Vec<Minipage> {
    let pages: Vec<_> = (0..count).map(|_| net.alloc(1, 4096)).collect();
    assert!(pages.windows(2).all(|pair| pair[0].first_page() + 1 == pair[1].first_page()));
    net.clear();
    pages
}

/// Reads in that order; what happened at all faults together, and their number.
fn read(net: &mut Net, minipages: &[Minipage]) -> (Vec<Happened>, usize) {
    let (mut all, mut faults) = (Vec::new(), 0);
    for &minipage in minipages {
        net.clear();
        if net.start(0, 0, minipage, Access::Read) == Progress::Pending {
            faults += 1;
            net.settle();
            assert_eq!(net.outcome(0, 0).unwrap().0, Outcome::Served(Access::Read));
        }
        all.extend(&net.log);
    }
    (all, faults)
}

fn requests(log: &[Happened]) -> impl Iterator<Item = (Rank, u16, Access)> {
    log.iter().filter_map(|happened| match happened.action {
        Action::Send { message: Message::Request { thread, access, .. }, .. } => Some((happened.rank, thread, access)),
        _ => None,
    })
}

#[test]
fn pages_in_a_row_come_ahead_and_the_request_of_the_fault_goes_first() {
    let mut net = net(true);
    let pages = pages(&mut net, 100);
    let (log, faults) = read(&mut net, &pages);
    assert!(faults < 15, "{faults} faults");
    let counters = net.ranks[0].counters();
    assert!(counters.read_ahead as usize >= 100 - faults && counters.read_ahead_lost == 0);
    assert!(requests(&log).all(|(rank, _, access)| rank == 0 && access == Access::Read));
    // The thread is 0; higher numbers are ahead of it.
    for happened in log.chunk_by(|one, next| (one.rank, one.delivered) == (next.rank, next.delivered)) {
        let mut threads = requests(happened).map(|(_, thread, _)| thread);
        if threads.any(|thread| thread == 0) {
            assert_eq!(requests(happened).next().unwrap().1, 0);
        }
    }
}

#[test]
fn minipages_that_share_pages_come_in_few_messages() {
    let mut net = net(true);
    let units: Vec<_> = (0..192).map(|_| net.alloc(1, 64)).collect();
    net.clear();
    let before = net.ranks[0].counters().messages_sent;
    let (_, faults) = read(&mut net, &units);
    assert!(faults < 12, "{faults} faults");
    // At most one besides that of the fault, and as many ends that the manager awaits.
    assert!(net.ranks[0].counters().messages_sent - before <= 4 * faults as u64);
    assert!(net.ranks[0].counters().sets_sent > 5);
}

#[test]
fn without_it_a_fault_brings_what_it_asks_for() {
    let mut net = net(false);
    let pages = pages(&mut net, 30);
    let (log, faults) = read(&mut net, &pages);
    assert_eq!(faults, 30);
    assert!(requests(&log).all(|(_, thread, _)| thread == 0));
    assert_eq!(net.ranks[0].counters().read_ahead, 0);
}

#[test]
fn copies_that_a_writer_takes_back_unread_end_it() {
    let mut net = net(true);
    let pages = pages(&mut net, 40);
    read(&mut net, &pages[..4]);
    let ahead = net.ranks[0].counters().read_ahead;
    assert!(ahead >= 2);
    net.fault(1, pages[4], Access::Write);
    assert_eq!(net.ranks[0].counters().read_ahead_lost, 1);
    read(&mut net, &pages[4..6]);
    assert_eq!(net.ranks[0].counters().read_ahead, ahead);
    // Two ranks that take pages from each other in turn soon do so one by one.
    for at in (6..40).cycle().take(1000) {
        net.fault(0, pages[at], Access::Read);
        net.fault(1, pages[(at + 1 - 6) % 34 + 6], Access::Write);
        net.fault(1, pages[at], Access::Write);
    }
    let counters = net.ranks[0].counters();
    assert!(counters.read_ahead < counters.read_faults, "{counters:?}");
}

#[test]
fn faults_in_no_order_and_stores_bring_nothing() {
    let mut net = net(true);
    let pages = pages(&mut net, 64);
    for &page in &pages[..20] {
        net.fault(0, page, Access::Write);
    }
    let others: Vec<_> = (0..40).map(|at| pages[20 + at * at % 41]).collect();
    let before = net.ranks[0].counters();
    assert_eq!(before.read_ahead, 0);
    read(&mut net, &others);
    let after = net.ranks[0].counters();
    assert!(after.read_ahead - before.read_ahead <= (after.read_faults - before.read_faults) / 2, "{after:?}");
}
