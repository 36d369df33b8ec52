use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::message::{MAX_CARD_BYTES, ParseError, Refusal, ToBroker, ToRank};
use super::server::HELLO_TIMEOUT;
use super::socket::{self, Received};
use super::*;
use crate::board::RankState;

mod elsewhere;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

type Order = Box<dyn FnOnce(&mut Broker) + Send>;

/// A broker in a thread of its own, as the launcher would run it.
struct Hall {
    address: JobAddress,
    orders: mpsc::Sender<Order>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    made: Arc<Mutex<Vec<(u32, u32)>>>,
}

fn memory(text: &str) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    File::from(fd.try_clone().unwrap()).write_all(text.as_bytes()).unwrap();
    fd
}

fn text_of(fd: OwnedFd) -> String {
    let mut file = File::from(fd);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

impl Hall {
    fn open(ranks: u32) -> Self {
        Self::over(vec![0; ranks as usize])
    }

    fn over(hosts: Vec<u32>) -> Self {
        let made = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (orders, inbox) = mpsc::channel::<Order>();
        let (tell, told) = mpsc::channel();
        let thread = {
            let (made, stop) = (made.clone(), stop.clone());
            std::thread::spawn(move || {
                let make = Box::new(move |low, high| {
                    made.lock().unwrap().push((low, high));
                    Ok(memory(&format!("channel {low} {high}")))
                });
                let mut broker = Broker::new(&hosts, make).unwrap();
                tell.send(broker.address().clone()).unwrap();
                while !stop.load(Ordering::Acquire) {
                    for order in inbox.try_iter() {
                        order(&mut broker);
                    }
                    let limit = Duration::from_millis(2).try_into().ok();
                    let _ = poll(&mut [PollFd::new(&broker, PollFlags::IN)], limit.as_ref());
                    broker.handle_ready(Instant::now());
                }
            })
        };
        let address = told.recv().unwrap();
        Self { address, orders, stop, thread: Some(thread), made }
    }

    fn join(&self, rank: u32) -> Client {
        Client::join(&self.address, rank, LONG).unwrap()
    }

    fn ask<T: Send + 'static>(&self, f: impl FnOnce(&mut Broker) -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        self.orders.send(Box::new(move |b| drop(tell.send(f(b))))).unwrap();
        told.recv_timeout(LONG).unwrap()
    }

    fn close(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Hall {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A bare connection, to say what no `Client` would.
fn stranger(hall: &Hall) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let name = SocketAddrUnix::new_abstract_name(hall.address.socket().as_bytes()).unwrap();
    rustix::net::connect(&socket, &name).unwrap();
    socket
}

fn hears(socket: &OwnedFd) -> Received {
    let mut heard = Received::Empty;
    eventually("an answer", || {
        heard = socket::receive(socket);
        !matches!(heard, Received::Empty)
    });
    heard
}

/// Why the broker turns this connection away.
fn refusal(socket: &OwnedFd) -> Refusal {
    let Received::Record { record, fds: 0, .. } = hears(socket) else {
        panic!("no answer");
    };
    match ToRank::parse(&record, 0) {
        Ok(ToRank::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// What `wanted` takes of the next event that it takes anything of; drops those before.
fn next<T>(client: &mut Client, wanted: impl Fn(Event) -> Option<T>) -> T {
    loop {
        if let Some(found) = wanted(client.wait(LONG).unwrap()) {
            return found;
        }
    }
}

fn channel(client: &mut Client, peer: u32) -> OwnedFd {
    client.connect(peer).unwrap();
    next(client, |event| match event {
        Event::Message(ToRank::Channel { peer: found }, Some(fd)) => (found == peer).then_some(fd),
        _ => None,
    })
}

fn passed(client: &mut Client, by: u32, under: u64) -> OwnedFd {
    next(client, |event| match event {
        Event::Message(ToRank::Passed { from, tag }, Some(fd)) => ((from, tag) == (by, under)).then_some(fd),
        _ => None,
    })
}

fn card(client: &mut Client, of: u32) -> Vec<u8> {
    next(client, |event| match event {
        Event::Message(ToRank::Card { peer, card }, _) => (peer == of).then(|| card.bytes().to_vec()),
        Event::Message(ToRank::Channel { .. }, Some(_)) => panic!("a channel between hosts"),
        _ => None,
    })
}

#[test]
fn ranks_of_different_hosts_get_each_others_cards_and_no_channel() {
    let hall = Hall::over(vec![0, 0, 7]);
    let mut clients: Vec<Client> = (0..3).map(|rank| hall.join(rank)).collect();
    let [first, second, far] = &mut clients[..] else { unreachable!() };
    assert_eq!([0, 1, 2].map(|rank| far.board().host(rank)), [0, 0, 7]);
    assert_eq!(first.secret(), far.secret());
    assert_ne!(first.secret().0, [0; 32]);
    let publish = |client: &Client, text: &[u8]| client.publish(Card::new(text).unwrap()).unwrap();
    publish(far, b"far");
    first.connect(2).unwrap();
    assert_eq!(card(first, 2), b"far");
    // Not before it is there; and to both.
    publish(first, b"first");
    assert_eq!(card(far, 0), b"first");
    assert_eq!(text_of(channel(second, 0)), "channel 0 1");
    second.connect(2).unwrap();
    assert_eq!(card(second, 2), b"far");
    // Whose card is awaited may die without one.
    hall.ask(|broker| broker.handle_rank_exited(1, false, Instant::now()));
    next(far, |event| matches!(event, Event::Message(ToRank::PeerGone { peer: 1 }, _)).then_some(()));
}

#[test]
fn a_rank_that_publishes_two_cards_is_disconnected() {
    let hall = Hall::over(vec![0, 1]);
    let mut client = hall.join(0);
    for _ in 0..2 {
        client.publish(Card::new(b"one").unwrap()).unwrap();
    }
    assert!(matches!(client.wait(LONG), Ok(Event::JobEnded)));
    assert_eq!(hall.ask(|broker| broker.stats().broken), 1);
}

#[test]
fn a_rank_joins_and_sees_the_board() {
    let hall = Hall::open(3);
    let client = hall.join(1);
    assert_eq!((client.rank(), client.size()), (1, 3));
    assert_eq!(client.board().state(1), RankState::Joined);
    assert_eq!(client.board().state(0), RankState::Absent);
    assert_eq!(client.board().pid(1), std::process::id());
    assert_eq!(hall.ask(|b| b.stats().joined), 1);
}

#[test]
fn both_sides_of_a_channel_get_the_same_memory_whoever_asks() {
    let hall = Hall::open(2);
    let mut zero = hall.join(0);
    let mut one = hall.join(1);
    let mine = channel(&mut one, 0);
    let theirs = match zero.wait(LONG).unwrap() {
        Event::Message(ToRank::Channel { peer: 1 }, Some(fd)) => fd,
        other => panic!("{other:?}"),
    };
    let (a, b) = (rustix::fs::fstat(&mine).unwrap(), rustix::fs::fstat(&theirs).unwrap());
    assert_eq!(a.st_ino, b.st_ino);
    assert_eq!(text_of(mine), "channel 0 1");
    zero.connect(1).unwrap();
    one.connect(0).unwrap();
    hall.ask(|_| ());
    std::thread::sleep(Duration::from_millis(20));
    assert!(zero.poll_socket().is_none(), "a channel is told once");
    assert_eq!(hall.made.lock().unwrap().len(), 1);
}

#[test]
fn poll_makes_no_system_call_until_the_board_counts_mail() {
    let hall = Hall::open(2);
    let mut zero = hall.join(0);
    assert!(!zero.has_news());
    let one = hall.join(1);
    one.pass(0, 9, memory("x").as_fd()).unwrap();
    eventually("mail is counted", || zero.has_news());
    assert!(matches!(zero.poll(), Some(Event::Message(ToRank::Passed { from: 1, tag: 9 }, Some(_)))));
    assert!(zero.poll().is_none());
    assert!(!zero.has_news());
}

#[test]
fn what_is_meant_for_an_absent_rank_is_asked_for_again_when_it_joins() {
    let hall = Hall::open(2);
    let mut zero = hall.join(0);
    let _mine = channel(&mut zero, 1);
    for tag in 0..20 {
        zero.pass(1, tag, memory("too early").as_fd()).unwrap();
    }
    let mut one = hall.join(1);
    assert!(matches!(one.wait(LONG).unwrap(), Event::Message(ToRank::Channel { peer: 0 }, Some(_))));
    for tag in 0..20 {
        match zero.wait(LONG).unwrap() {
            Event::Message(ToRank::PassAgain { to: 1, tag: again }, _) => assert_eq!(again, tag),
            other => panic!("{other:?}"),
        }
        zero.pass(1, tag, memory(&format!("gift {tag}")).as_fd()).unwrap();
        assert_eq!(text_of(passed(&mut one, 0, tag)), format!("gift {tag}"));
    }
}

#[test]
fn a_rank_may_pass_to_itself() {
    let hall = Hall::open(1);
    let mut zero = hall.join(0);
    zero.pass(0, 5, memory("me").as_fd()).unwrap();
    assert_eq!(text_of(passed(&mut zero, 0, 5)), "me");
}

#[test]
fn descriptors_for_a_rank_that_does_not_read_wait_with_who_passed_them_and_all_arrive() {
    let hall = Hall::open(3);
    let (mut zero, mut one, mut two) = (hall.join(0), hall.join(1), hall.join(2));
    let gift = memory("gift");
    for tag in 0..600 {
        zero.pass(1, tag, gift.as_fd()).unwrap();
    }
    two.pass(1, 1000, gift.as_fd()).unwrap();
    let mut missing: BTreeSet<u64> = (0..600).chain([1000]).collect();
    eventually("all arrive", || {
        for passer in [&mut zero, &mut two] {
            while let Some(event) = passer.poll_socket() {
                match event {
                    Event::Message(ToRank::PassAgain { to: 1, tag }, _) => passer.pass(1, tag, gift.as_fd()).unwrap(),
                    other => panic!("{other:?}"),
                }
            }
        }
        while let Some(event) = one.poll_socket() {
            match event {
                Event::Message(ToRank::Passed { tag, .. }, Some(_)) => {
                    assert!(missing.remove(&tag), "{tag} came twice")
                }
                other => panic!("{other:?}"),
            }
        }
        missing.is_empty()
    });
    let stats = hall.ask(|b| b.stats());
    assert_eq!((stats.passed, stats.pass_lost), (601, 0));
}

#[test]
fn a_rank_that_passes_without_end_to_one_that_does_not_read_is_told_of_what_is_lost() {
    let hall = Hall::open(3);
    let (mut zero, one, mut two) = (hall.join(0), hall.join(1), hall.join(2));
    let gift = memory("gift");
    for tag in 0..2000 {
        zero.pass(1, tag, gift.as_fd()).unwrap();
    }
    match zero.wait(LONG).unwrap() {
        Event::Message(ToRank::PassLost { to: 1, .. }, _) => {}
        other => panic!("{other:?}"),
    }
    // What another rank passes is not what the first one's are too many for.
    two.pass(1, 7, gift.as_fd()).unwrap();
    eventually("all are dealt with", || hall.ask(|b| b.stats().passed + b.stats().pass_lost) >= 2000 - 1024);
    assert!(two.poll_socket().is_none(), "nothing of its own was lost");
    drop(one);
}

#[test]
fn a_rank_that_reads_nothing_keeps_no_channel_from_the_others() {
    let hall = Hall::open(400);
    hall.ask(|b| b.set_most_channels(64));
    let mut clients: Vec<Client> = (0..100).map(|rank| hall.join(rank)).collect();
    // It asks for all, and reads none; those that it asks for read.
    for peer in 1..400 {
        clients[0].connect(peer).unwrap();
    }
    let mut last = clients.pop().unwrap();
    let mut other = clients.pop().unwrap();
    last.connect(other.rank()).unwrap();
    let met = |client: &mut Client, of: u32| match client.wait(LONG).unwrap() {
        Event::Message(ToRank::Channel { peer }, Some(_)) => peer == of,
        other => panic!("{other:?}"),
    };
    while !met(&mut last, other.rank()) {}
    while !met(&mut other, last.rank()) {}
}

#[test]
fn a_rank_that_reads_late_gets_all_channels_that_waited_for_it() {
    let hall = Hall::open(100);
    hall.ask(|b| b.set_most_channels(64));
    let mut clients: Vec<Client> = (0..100).map(|rank| hall.join(rank)).collect();
    // Rank 0 reads nothing until all have asked.
    for client in &clients[1..] {
        client.connect(0).unwrap();
    }
    hall.ask(|_| ());
    let mut missing: BTreeSet<u32> = (1..100).collect();
    while !missing.is_empty() {
        match clients[0].wait(LONG).unwrap() {
            Event::Message(ToRank::Channel { peer }, Some(_)) => assert!(missing.remove(&peer), "{peer} came twice"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_waits_for_the_channel_to_a_rank_that_goes_hears_of_it_and_gets_none() {
    let hall = Hall::open(3);
    hall.ask(|b| b.set_most_channels(2));
    let mut last = hall.join(2);
    // The memory that waits for rank 0 is all that may wait.
    channel(&mut last, 0);
    last.connect(1).unwrap();
    hall.ask(|b| {
        for rank in [1, 0] {
            b.handle_rank_exited(rank, false, Instant::now());
        }
    });
    match last.wait(LONG).unwrap() {
        Event::Message(ToRank::PeerGone { peer: 1 }, _) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rank_that_leaves_is_left_and_one_that_vanishes_is_dead() {
    let hall = Hall::open(3);
    let mut zero = hall.join(0);
    hall.join(1).leave().unwrap();
    drop(hall.join(2));
    let board = zero.board().clone();
    eventually("rank 1 left", || board.state(1) == RankState::Left);
    eventually("rank 2 is dead", || board.state(2) == RankState::Dead);
    assert_eq!(board.events(), 2);
    for peer in [1, 2] {
        zero.connect(peer).unwrap();
        match zero.wait(LONG).unwrap() {
            Event::Message(ToRank::PeerGone { peer: found }, _) => assert_eq!(found, peer),
            other => panic!("{other:?}"),
        }
        zero.pass(peer, 3, memory("x").as_fd()).unwrap();
        match zero.wait(LONG).unwrap() {
            Event::Message(ToRank::PassLost { to, tag: 3 }, _) => assert_eq!(to, peer),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(hall.ask(|b| b.stats().pass_lost), 2);
}

#[test]
fn what_a_rank_passed_before_it_left_still_arrives() {
    let hall = Hall::open(2);
    let mut zero = hall.join(0);
    for round in 0..20 {
        zero.pass(0, round, memory("x").as_fd()).unwrap();
    }
    let one = hall.join(1);
    one.pass(0, 100, memory("last words").as_fd()).unwrap();
    zero.connect(1).unwrap();
    one.leave().unwrap();
    assert_eq!(text_of(passed(&mut zero, 1, 100)), "last words");
    eventually("rank 1 left", || zero.board().state(1) == RankState::Left);
}

#[test]
fn the_launcher_tells_an_exit_from_a_death() {
    let hall = Hall::open(4);
    let clients: Vec<Client> = (0..3).map(|r| hall.join(r)).collect();
    hall.ask(|b| {
        b.handle_rank_exited(1, true, Instant::now());
        b.handle_rank_exited(2, false, Instant::now());
        b.handle_rank_exited(3, true, Instant::now());
    });
    let board = clients[0].board();
    assert_eq!(board.state(1), RankState::Left);
    assert_eq!(board.state(2), RankState::Dead);
    assert_eq!(board.state(3), RankState::Left, "also a rank that never joined");
    hall.ask(|b| b.handle_rank_stopped(0));
    assert_eq!(board.state(0), RankState::Stopped);
    hall.ask(|b| b.handle_rank_continued(0));
    assert_eq!(board.state(0), RankState::Joined);
    match Client::join(&hall.address, 3, LONG) {
        Err(RendezvousError::Refused { rank: 3, why: Refusal::Taken }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_end_of_the_broker_reaches_every_client_once() {
    let mut hall = Hall::open(2);
    let mut zero = hall.join(0);
    let mut one = hall.join(1);
    hall.close();
    assert!(matches!(zero.poll_socket(), Some(Event::JobEnded)));
    assert!(zero.poll_socket().is_none());
    assert!(matches!(one.wait(LONG), Ok(Event::JobEnded)));
    assert!(matches!(one.wait(LONG), Err(RendezvousError::JobEnded)));
    assert!(matches!(one.connect(0), Err(RendezvousError::JobEnded)));
    assert!(matches!(Client::join(&hall.address, 0, LONG), Err(RendezvousError::Unreachable(_))));
}

#[test]
fn a_wrong_token_rank_or_second_joiner_is_refused_and_counted() {
    let hall = Hall::open(1);
    let token = "0".repeat(32);
    let text = hall.address.to_string();
    let forged: JobAddress = format!("{}:{token}", &text[..32]).parse().unwrap();
    let refused = |address: &JobAddress, rank| match Client::join(address, rank, LONG) {
        Err(RendezvousError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&forged, 0), Refusal::Token);
    assert_eq!(refused(&hall.address, 1), Refusal::Rank);
    let _zero = hall.join(0);
    assert_eq!(refused(&hall.address, 0), Refusal::Taken);
    let stats = hall.ask(|b| b.stats());
    assert_eq!((stats.refused_token, stats.refused_other, stats.joined), (1, 2, 1));
}

#[test]
fn an_own_mistake_is_an_error_and_not_a_disconnection() {
    let hall = Hall::open(2);
    let zero = hall.join(0);
    assert!(matches!(zero.connect(0), Err(RendezvousError::NoSuchPeer { peer: 0, .. })));
    assert!(matches!(zero.connect(2), Err(RendezvousError::NoSuchPeer { peer: 2, .. })));
    assert!(zero.pass(7, 0, memory("x").as_fd()).is_err());
    zero.pass(0, 0, memory("x").as_fd()).unwrap();
}

#[test]
fn a_hostile_connection_is_closed_and_counted_and_harms_nobody() {
    let hall = Hall::open(2);
    let mut zero = hall.join(0);
    let fd = memory("x");
    let hello = ToBroker::Hello { rank: 1, pid: 1, token: *hall.address.token() }.encode();

    let before_hello = stranger(&hall);
    socket::send(&before_hello, &ToBroker::Connect { peer: 0 }.encode(), None).unwrap();
    assert!(matches!(hears(&before_hello), Received::Closed));

    let with_fd = stranger(&hall);
    socket::send(&with_fd, &hello, Some(fd.as_fd())).unwrap();
    assert!(matches!(hears(&with_fd), Received::Closed));

    let short = stranger(&hall);
    rustix::net::send(&short, b"hi", rustix::net::SendFlags::empty()).unwrap();
    assert!(matches!(hears(&short), Received::Closed));

    let other_version = stranger(&hall);
    let mut old = hello.clone();
    old[4] = 77;
    socket::send(&other_version, &old, None).unwrap();
    assert_eq!(refusal(&other_version), Refusal::Version);

    let joined = stranger(&hall);
    socket::send(&joined, &hello, None).unwrap();
    for _ in 0..3 {
        assert!(matches!(hears(&joined), Received::Record { fds: 1, .. }));
    }
    socket::send(&joined, &ToBroker::Connect { peer: 1 }.encode(), None).unwrap();
    assert!(matches!(hears(&joined), Received::Closed));
    eventually("the violator is dead", || zero.board().state(1) == RankState::Dead);

    assert_eq!(hall.ask(|b| b.stats().broken), 4);
    zero.pass(0, 1, fd.as_fd()).unwrap();
    passed(&mut zero, 0, 1);
}

#[test]
fn idle_connections_keep_no_late_rank_out_and_are_closed_in_the_end() {
    let hall = Hall::open(1);
    let crowd: Vec<OwnedFd> = (0..200).map(|_| stranger(&hall)).collect();
    let _zero = hall.join(0);
    let silent = hall.ask(|b| b.stats().silent);
    assert!((200 - 64..200).contains(&silent), "{silent}");
    hall.ask(|b| b.handle_ready(Instant::now() + HELLO_TIMEOUT));
    for idle in &crowd {
        assert_eq!(refusal(idle), Refusal::Silent);
        assert!(matches!(hears(idle), Received::Closed));
    }
    assert_eq!(hall.ask(|b| b.stats().silent), 200);
    assert_eq!(hall.ask(|b| b.stats().broken), 0);
}

#[test]
fn a_hello_that_came_while_the_broker_did_not_look_is_heard_however_late_it_is() {
    let mut broker = Broker::new(&[0; 200], Box::new(|_, _| unreachable!("no channel"))).unwrap();
    let place = SocketAddrUnix::new_abstract_name(broker.address().socket().as_bytes()).unwrap();
    let token = *broker.address().token();
    let connect = |_| {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::connect(&socket, &place).unwrap();
        socket
    };
    // As many as may be silent, so that none is pushed out.
    let ranks: Vec<OwnedFd> = (0..63).map(connect).collect();
    let now = Instant::now();
    broker.handle_ready(now);
    assert_eq!(broker.connected(), 63);
    for (rank, socket) in (0..).zip(&ranks) {
        let pid = std::process::id();
        let hello = ToBroker::Hello { rank, pid, token };
        socket::send(socket, &hello.encode(), None).unwrap();
    }
    // More than one look brings wait, and the broker has not run for long.
    let crowd: Vec<OwnedFd> = (0..60).map(connect).collect();
    broker.handle_ready(now + 2 * HELLO_TIMEOUT);
    assert!((0..63).all(|rank| broker.has_joined(rank)));
    assert_eq!(broker.stats().silent, 0);
    drop(crowd);
}

#[test]
fn a_rank_is_joined_only_by_the_process_that_was_started_for_it_or_a_descendant() {
    let mut other = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let (me, parent) = (std::process::id(), std::os::unix::process::parent_id());
    let hall = Hall::open(3);
    let other_id = other.id();
    hall.ask(move |b| {
        b.set_process(0, me);
        b.set_process(1, other_id);
    });
    let _zero = hall.join(0);
    match Client::join(&hall.address, 1, LONG) {
        Err(RendezvousError::Refused { rank: 1, why: Refusal::Process }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(hall.ask(|b| b.stats().refused_process), 1);
    assert!(!hall.ask(|b| b.has_joined(1)));
    // As if this process had been started by nobody of the job: whatever has become of the rank.
    hall.ask(move |b| b.set_process(0, other_id));
    for rank in 0..2 {
        match Client::join(&hall.address, rank, LONG) {
            Err(RendezvousError::Refused { why, .. }) => assert_eq!(why, Refusal::Stranger),
            other => panic!("{other:?}"),
        }
    }
    // As if this process had been started by a shell that was started for rank 2.
    hall.ask(move |b| b.set_process(2, parent));
    let _two = hall.join(2);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn idle_connections_of_one_ranks_processes_push_out_one_another_and_nobody_else() {
    let hall = Hall::open(2);
    let late = stranger(&hall);
    eventually("it is accepted", || hall.ask(|b| b.connected()) == 1);
    let me = std::process::id();
    hall.ask(move |b| b.set_process(1, me));
    let crowd: Vec<OwnedFd> = (0..100).map(|_| stranger(&hall)).collect();
    eventually("the crowd is cut", || hall.ask(|b| b.stats().silent) == 96);
    assert_eq!(hall.ask(|b| b.connected()), 5);
    assert!(matches!(socket::receive(&late), Received::Empty));
    drop(crowd);
}

#[test]
fn idle_connections_of_guests_are_fewer_as_they_take_descriptors_of_a_server() {
    let hall = Hall::open(3);
    let own = rustix::process::geteuid().as_raw();
    let mut other = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let other_id = other.id();
    hall.ask(move |b| {
        b.admit_user(own);
        b.set_process(1, other_id);
    });
    let unknown: Vec<OwnedFd> = (0..100).map(|_| stranger(&hall)).collect();
    eventually("the unknown are cut", || hall.ask(|b| b.stats().silent) == 92);
    let me = std::process::id();
    hall.ask(move |b| b.set_process(2, me));
    let known: Vec<OwnedFd> = (0..100).map(|_| stranger(&hall)).collect();
    eventually("the known are cut", || hall.ask(|b| b.stats().silent) >= 92 + 99);
    let _two = hall.join(2);
    drop((unknown, known));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn an_address_reads_back_and_hides_its_token_in_debug_output() {
    let address = JobAddress::random().unwrap();
    let text = address.to_string();
    assert_eq!(text.parse::<JobAddress>().unwrap(), address);
    assert!(!format!("{address:?}").contains(&text[33..]));
    for bad in ["", ":", "x", &text[1..], &text[..64], &format!("{text}0"), &text.replace(':', "-")] {
        assert_eq!(bad.parse::<JobAddress>(), Err(JobAddressError), "{bad:?}");
    }
    assert!(format!("{}:{}", "+f".repeat(16), "0".repeat(32)).parse::<JobAddress>().is_err());
}

fn any_card() -> impl Strategy<Value = Card> {
    prop::collection::vec(any::<u8>(), 0..=MAX_CARD_BYTES).prop_map(|bytes| Card::new(&bytes).unwrap())
}

fn to_broker() -> impl Strategy<Value = ToBroker> {
    prop_oneof![
        (any::<u32>(), any::<u32>(), any::<[u8; 16]>()).prop_map(|(rank, pid, token)| ToBroker::Hello {
            rank,
            pid,
            token
        }),
        any::<u32>().prop_map(|peer| ToBroker::Connect { peer }),
        (any::<u32>(), any::<u64>()).prop_map(|(to, tag)| ToBroker::Pass { to, tag }),
        Just(ToBroker::Leave),
        any_card().prop_map(|card| ToBroker::Publish { card }),
    ]
}

proptest! {
    #[test]
    fn a_message_reads_back_and_any_changed_byte_is_seen(
        message in to_broker(), at in any::<prop::sample::Index>(), flip in 1..=255_u8,
    ) {
        let fds = usize::from(message.carries_fd());
        let mut record = message.encode();
        prop_assert_eq!(ToBroker::parse(&record, fds), Ok(message.clone()));
        prop_assert_eq!(ToBroker::parse(&record, fds + 1), Err(ParseError::Descriptors));
        let at = at.index(record.len());
        record[at] ^= flip;
        prop_assert_ne!(ToBroker::parse(&record, fds), Ok(message));
    }

    #[test]
    fn random_bytes_never_panic_the_parsers(bytes in prop::collection::vec(any::<u8>(), 0..600), fds in 0..3_usize) {
        let _ = ToBroker::parse(&bytes, fds);
        let _ = ToRank::parse(&bytes, fds);
    }

    #[test]
    fn what_the_broker_says_reads_back(
        rank in any::<u32>(), number in any::<u32>(), tag in any::<u64>(), secret in any::<[u8; 32]>(), card in any_card(),
    ) {
        for message in [
            ToRank::Welcome { rank, size: number, secret: Secret(secret) },
            ToRank::Card { peer: rank, card },
            ToRank::Bells,
            ToRank::Channel { peer: rank },
            ToRank::PeerGone { peer: rank },
            ToRank::Passed { from: rank, tag },
            ToRank::PassLost { to: rank, tag },
            ToRank::PassAgain { to: rank, tag },
            ToRank::Refused(Refusal::Taken),
            ToRank::Refused(Refusal::Process),
            ToRank::Refused(Refusal::Stranger),
            ToRank::Refused(Refusal::User),
            ToRank::Refused(Refusal::Silent),
        ] {
            let fds = usize::from(message.carries_fd());
            prop_assert_eq!(ToRank::parse(&message.encode(), fds), Ok(message.clone()));
        }
    }
}
