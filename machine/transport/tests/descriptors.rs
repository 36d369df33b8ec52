//! What happens when a rank or the broker has no free descriptor: it is told as such, and parts no two honest ranks. One test
//! after another, since they use up the descriptors of this process.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mapwire_transport::board::RankState;
use mapwire_transport::rendezvous::{Broker, Client, Event, ToRank};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LONG: Duration = Duration::from_secs(20);

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(100);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    turn
}

fn memory() -> OwnedFd {
    rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap()
}

/// All descriptors that this process may still have.
fn use_up() -> Vec<OwnedFd> {
    let any = memory();
    let mut all: Vec<OwnedFd> = std::iter::from_fn(|| rustix::io::dup(&any).ok()).collect();
    all.push(any);
    all
}

fn broker() -> Broker {
    Broker::new(&[0, 0], Box::new(|_, _| Ok(rustix::fs::memfd_create("channel", MemfdFlags::CLOEXEC)?))).unwrap()
}

fn join(broker: &mut Broker, rank: u32) -> Client {
    let address = broker.address().clone();
    let joining = std::thread::spawn(move || Client::join(&address, rank, LONG).unwrap());
    while !joining.is_finished() {
        broker.handle_ready(Instant::now());
    }
    joining.join().unwrap()
}

/// Lets the broker work until the client has news.
fn next(broker: &mut Broker, client: &mut Client) -> Event {
    let end = Instant::now() + LONG;
    loop {
        broker.handle_ready(Instant::now());
        if let Some(event) = client.poll() {
            return event;
        }
        assert!(Instant::now() < end, "nothing comes");
    }
}

fn both_are_there(broker: &Broker) {
    for rank in 0..2 {
        assert_eq!(broker.board().state(rank), RankState::Joined);
    }
    assert_eq!(broker.stats().broken, 0);
}

#[test]
fn a_rank_without_descriptors_is_told_of_what_it_lost_and_goes_on() {
    let _turn = one_at_a_time();
    let mut broker = broker();
    let (mut zero, mut one) = (join(&mut broker, 0), join(&mut broker, 1));
    let gift = memory();
    zero.pass(1, 5, gift.as_fd()).unwrap();
    zero.connect(1).unwrap();
    while one.board().mail(1) < 2 {
        broker.handle_ready(Instant::now());
    }
    let all = use_up();
    let lost = next(&mut broker, &mut one);
    assert!(matches!(lost, Event::Message(ToRank::Passed { from: 0, tag: 5 }, None)), "{lost:?}");
    let lost = next(&mut broker, &mut one);
    assert!(matches!(lost, Event::Message(ToRank::Channel { peer: 0 }, None)), "{lost:?}");
    drop(all);
    let channel = next(&mut broker, &mut zero);
    assert!(matches!(channel, Event::Message(ToRank::Channel { peer: 1 }, Some(_))), "{channel:?}");
    zero.pass(1, 6, gift.as_fd()).unwrap();
    let passed = next(&mut broker, &mut one);
    assert!(matches!(passed, Event::Message(ToRank::Passed { from: 0, tag: 6 }, Some(_))), "{passed:?}");
    both_are_there(&broker);
}

#[test]
fn a_broker_without_descriptors_asks_again_for_what_was_passed_and_parts_with_nobody() {
    let _turn = one_at_a_time();
    let mut broker = broker();
    let (mut zero, mut one) = (join(&mut broker, 0), join(&mut broker, 1));
    let gift = memory();
    let all = use_up();
    zero.pass(1, 5, gift.as_fd()).unwrap();
    // A channel is made when there is a descriptor for it.
    one.connect(0).unwrap();
    for _ in 0..100 {
        broker.handle_ready(Instant::now());
    }
    assert!(one.poll().is_none() && zero.poll().is_none());
    drop(all);
    let made = next(&mut broker, &mut one);
    assert!(matches!(made, Event::Message(ToRank::Channel { peer: 0 }, Some(_))), "{made:?}");
    let (mut is_made, mut is_asked) = (false, false);
    while !(is_made && is_asked) {
        match next(&mut broker, &mut zero) {
            Event::Message(ToRank::Channel { peer: 1 }, Some(_)) => is_made = true,
            Event::Message(ToRank::PassAgain { to: 1, tag: 5 }, _) => is_asked = true,
            other => panic!("{other:?}"),
        }
    }
    zero.pass(1, 5, gift.as_fd()).unwrap();
    let passed = next(&mut broker, &mut one);
    assert!(matches!(passed, Event::Message(ToRank::Passed { from: 0, tag: 5 }, Some(_))), "{passed:?}");
    both_are_there(&broker);
}

#[test]
fn a_broker_without_descriptors_does_not_turn_round_and_round_over_a_connection_that_waits() {
    let _turn = one_at_a_time();
    let mut broker = broker();
    let waiting = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let all = use_up();
    let name = format!("mapwire-{}", &broker.address().to_string()[..32]);
    let place = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&waiting, &place).unwrap();
    broker.handle_ready(Instant::now());
    let soon = Duration::from_millis(1).try_into().ok();
    let ready = poll(&mut [PollFd::new(&broker, PollFlags::IN)], soon.as_ref());
    assert_eq!(ready, Ok(0), "the launcher would spin");
    let now = Instant::now();
    let again = broker.poll_at(now).unwrap();
    assert!(again > now && again < now + Duration::from_secs(1));
    drop(all);
    std::thread::sleep(again.saturating_duration_since(now));
    broker.handle_ready(Instant::now());
    broker.handle_ready(Instant::now());
    assert_eq!(broker.connected(), 1);
}
