use super::*;

const SECRET: Secret = Secret([7; 32]);

/// The broker of host `here` of two, with two ranks each.
fn broker(here: u32) -> Broker {
    let make = Box::new(|low, high| Ok(memory(&format!("channel {low} {high}"))));
    Broker::of_host(&[0, 0, 1, 1], here, SECRET, make).unwrap()
}

/// Two hosts, whose brokers hear each other's words, until all clients are done.
fn with_both(clients: impl FnOnce([JobAddress; 2]) + Send) {
    let mut brokers = [broker(0), broker(1)];
    let addresses = [0, 1].map(|host: usize| brokers[host].address().clone());
    std::thread::scope(|scope| {
        let done = scope.spawn(move || clients(addresses));
        while !done.is_finished() {
            for host in 0..2 {
                brokers[host].handle_ready(Instant::now());
                while let Some(word) = brokers[host].poll_word() {
                    brokers[1 - host].handle_word(word, Instant::now()).unwrap();
                }
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    });
}

fn next(client: &mut Client) -> Event {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        if let Some(event) = client.poll() {
            return event;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("no event");
}

#[test]
fn ranks_of_two_brokers_get_each_others_cards_and_one_secret() {
    with_both(|[here, there]| {
        let mut zero = Client::join(&here, 0, LONG).unwrap();
        zero.connect(3).unwrap();
        let three = Client::join(&there, 3, LONG).unwrap();
        assert_eq!((zero.secret(), three.secret()), (SECRET, SECRET));
        three.publish(Card::new(b"three").unwrap()).unwrap();
        match next(&mut zero) {
            Event::Message(ToRank::Card { peer: 3, card }, _) => assert_eq!(card.bytes(), b"three"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn who_leaves_or_dies_behind_another_broker_is_gone_here() {
    with_both(|[here, there]| {
        let mut zero = Client::join(&here, 0, LONG).unwrap();
        let two = Client::join(&there, 2, LONG).unwrap();
        let three = Client::join(&there, 3, LONG).unwrap();
        zero.connect(2).unwrap();
        two.leave().unwrap();
        assert!(matches!(next(&mut zero), Event::Message(ToRank::PeerGone { peer: 2 }, _)));
        drop(three);
        let end = Instant::now() + LONG;
        while zero.board().state(3) != RankState::Dead {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(zero.board().state(2), RankState::Left);
    });
}

#[test]
fn a_rank_joins_at_the_broker_of_its_host_only() {
    with_both(|[_, there]| {
        let refused = Client::join(&there, 0, LONG).unwrap_err();
        assert!(matches!(refused, RendezvousError::Refused { .. }));
    });
}

#[test]
fn a_word_of_a_rank_that_another_broker_does_not_serve_is_refused() {
    let mut broker = broker(0);
    for rank in [0, 1, 4, u32::MAX] {
        let word = Word::State { rank, state: RankState::Dead };
        let outcome = broker.handle_word(word, Instant::now());
        assert_eq!(outcome, Err(NotElsewhere(rank)));
    }
    assert_eq!(broker.poll_word(), None);
}
