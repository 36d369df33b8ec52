//! A rank among peers that send arbitrary messages: it may refuse, but must not panic, loop or answer nonsense.
//!
//! `MAPWIRE_DSM_SEED=n` repeats one seed.

#[path = "../../../tests/random.rs"]
pub(crate) mod random;

#[path = "hostile/messages.rs"]
mod messages;

use mapwire_dsm::{
    Access, Action, AllocOptions, Config, Dsm, MAX_MESSAGE_BYTES, Message, Minipage, ObjectCall, ObjectKind, Outcome,
    Protocol, Unit, Verb,
};
use messages::{PAGES, THREADS, VIEWS, answer, message, minipage, number, payload};
use random::Random;

/// Kinds of message, from 1, and one more.
const KINDS: usize = 38;

/// Bytes that may be a message.
fn bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.below(KINDS as u64 + 2) as u8];
    let length = match random.below(20) {
        0 => random.below(2 * MAX_MESSAGE_BYTES as u64),
        _ => random.below(30),
    };
    bytes.extend((0..length).map(|_| random.byte()));
    if random.chance(50) {
        bytes.iter_mut().skip(1).take(3).for_each(|flag| *flag &= 1);
    }
    bytes
}

struct Attacked {
    dsm: Dsm,
    /// The last messages it sent, and to whom.
    sent: Vec<(u16, Message)>,
    rank: u16,
    /// Minipages named in actions.
    known: Vec<Minipage>,
    waits: [bool; THREADS as usize],
    /// Pages that are being fetched.
    fetches: Vec<u32>,
    /// Counted by kind of message.
    accepted: [u64; KINDS],
}

impl Attacked {
    fn new(random: &mut Random) -> Self {
        let ranks = if random.chance(80) { 3 } else { 70 };
        let rank = random.below(u64::from(ranks)) as u16;
        let config = Config {
            locks: 3,
            barriers: 3,
            objects: 12,
            chunk_pages: 2,
            hold_ns: random.below(2) * 100,
            protocol: Protocol::ALL[random.below(2) as usize],
            twins: 6,
            notices: 500,
            home_moves_after: 2,
            finds_races: true,
            ..Config::new(rank, ranks, THREADS, PAGES, VIEWS)
        };
        let mut dsm = Dsm::new(config).unwrap();
        for page in (0..4).filter(|_| config.protocol == Protocol::Hlrc) {
            let minipage = Minipage { view: 0, offset_bytes: 4096 * page, length_bytes: 4096 };
            // Those of other managers are refused.
            let _ = dsm.handle_message(0, (rank + 1) % ranks, Message::Register { minipage, thread: 0 }, &[]);
        }
        Attacked {
            dsm,
            sent: Vec::new(),
            rank,
            known: Vec::new(),
            waits: [false; THREADS as usize],
            fetches: Vec::new(),
            accepted: [0; KINDS],
        }
    }

    fn drain(&mut self) {
        let mut count = 0;
        while let Some(action) = self.dsm.poll_action() {
            count += 1;
            assert!(count < 1000, "no end of actions");
            match action {
                Action::Send { to, message } => self.check_send(to, message),
                Action::SendMinipage { to, message, .. } => {
                    self.check_send(to, message);
                    for at in message.views().iter() {
                        let Message::Grant { minipage, data: true, .. } = message.about(at) else {
                            panic!("bytes before {message:?}")
                        };
                        self.check_minipage(minipage);
                    }
                }
                Action::Protect { minipage, .. } => self.check_minipage(minipage),
                Action::Twin { page, twin } => assert!(page < PAGES && twin < 6),
                Action::SendDiff { to, page, twin, message } => {
                    assert!(page < PAGES && twin < 6);
                    self.check_send(to, message);
                    self.dsm.handle_changes(page.into(), [(7, 9), (100, 1)].into_iter());
                }
                Action::Merge { page, twin, fetched } => {
                    assert!(page < PAGES && twin < 6 && fetched < 6 && twin != fetched);
                }
                Action::Fetch { from, page, pages, into } => {
                    assert!(from < self.dsm.config().ranks && from != self.rank && page + pages <= PAGES);
                    assert!(into.is_none_or(|twin| twin < 6));
                    self.fetches.push(page);
                }
                Action::Resume { thread, outcome } => {
                    assert!(self.waits[usize::from(thread)], "{thread} was resumed but did not wait: {outcome:?}");
                    self.waits[usize::from(thread)] = false;
                    if let Outcome::Allocated(address) = outcome {
                        assert!(address.offset_bytes < u64::from(PAGES) * 4096);
                    }
                }
            }
        }
    }

    fn check_send(&mut self, to: u16, message: Message) {
        assert!(to < self.dsm.config().ranks && to != self.rank, "a message to rank {to}");
        if self.sent.len() == 4 {
            self.sent.remove(0);
        }
        self.sent.push((to, message));
        let bytes = self.dsm.encode(to, &message);
        assert!(matches!(Message::parse(bytes), Ok((parsed, _)) if parsed == message));
    }

    /// The driver stores to and protects what it is told to: it must lie within the segment.
    fn check_minipage(&mut self, minipage: Minipage) {
        let end = minipage.offset_bytes.checked_add(minipage.length_bytes).unwrap();
        assert!(minipage.view < VIEWS && minipage.length_bytes > 0 && end <= u64::from(PAGES) * 4096);
        if !self.known.contains(&minipage) {
            self.known.push(minipage);
        }
    }

    fn input(&mut self, random: &mut Random, now_ns: u64) {
        let thread = random.below(u64::from(THREADS)) as u16;
        let lock = number(random, 3) as u32;
        let place = minipage(random, &self.known);
        let (view, page) = (place.view, place.offset_bytes / 4096);
        let access = if random.chance(50) { Access::Read } else { Access::Write };
        let pending = mapwire_dsm::Progress::Pending;
        if !self.fetches.is_empty() && random.chance(30) {
            let page = self.fetches.swap_remove(random.below(self.fetches.len() as u64) as usize);
            return self.dsm.handle_fetched(page.into());
        }
        if random.chance(7) {
            let kind = ObjectKind::ALL[random.below(9) as usize];
            let verbs =
                [Verb::Init, Verb::Take, Verb::Take, Verb::Give, Verb::Share, Verb::Try, Verb::Enlist, Verb::Read];
            let verb = verbs[random.below(8) as usize];
            let call = ObjectCall { object: number(random, 24), kind, verb, argument: random.below(3) };
            let waits = self.dsm.call_object(thread, call).is_ok();
            self.waits[usize::from(thread)] |= waits;
            if random.chance(60) {
                self.dsm.cancel_call(thread);
            }
            return;
        }
        let waits = match random.below(7) {
            0 | 1 => self.dsm.handle_fault(now_ns, thread, view, page, access) == Ok(pending),
            2 => {
                let bytes = number(random, 9000);
                let with = |unit| AllocOptions { unit, ..AllocOptions::default() };
                match random.below(6) {
                    0 => self.dsm.alloc_rows(thread, number(random, 9), bytes, with(Unit::Auto)).is_ok(),
                    1 => self.dsm.alloc(thread, bytes).is_ok(),
                    2 => self.dsm.alloc_with(thread, bytes, with(Unit::Bytes(number(random, 9000)))).is_ok(),
                    _ => self.dsm.alloc_with(thread, bytes, with(Unit::Whole)).is_ok(),
                }
            }
            3 => self.dsm.lock(thread, lock) == Ok(pending),
            4 => {
                let _ = self.dsm.unlock(thread, lock);
                return;
            }
            5 => {
                // One minipage, or all of the page.
                let views = if random.chance(50) { view..view.saturating_add(1) } else { 0..VIEWS };
                views.for_each(|view| _ = self.dsm.prefetch(now_ns, thread, view, page, access));
                return;
            }
            _ if random.chance(50) => self.dsm.barrier(thread, lock).is_ok(),
            _ => self.dsm.broadcast(thread, number(random, 3) as u16, 9).is_ok(),
        };
        self.waits[usize::from(thread)] |= waits;
    }
}

/// Runs a rank for at least `steps` steps, and until the source of `random` is exhausted. Counts accepted messages, by kind.
pub(crate) fn run(mut random: Random, steps: u64) -> [u64; KINDS] {
    let mut attacked = Attacked::new(&mut random);
    let ranks = attacked.dsm.config().ranks;
    let mut step = 0;
    while step < steps || !random.is_spent() {
        step += 1;
        let now_ns = step * 20;
        if random.chance(25) {
            attacked.input(&mut random, now_ns);
        } else if random.chance(5) {
            let bytes = bytes(&mut random);
            if let Ok((message, payload)) = Message::parse(&bytes) {
                let mut again = [0; MAX_MESSAGE_BYTES];
                let fields = message.encode(&mut again);
                assert_eq!((&again[..fields], payload), bytes.split_at(fields));
                let from = random.below(u64::from(ranks)) as u16;
                let _ = attacked.dsm.handle_message(now_ns, from, message, payload);
            }
        } else {
            let is_lazy = attacked.dsm.config().protocol == Protocol::Hlrc;
            let (from, message) = match attacked.sent.get(random.below(6) as usize) {
                // The requester may report the end of what the owner was asked to do for it.
                Some(&(_, Message::Forward { minipage, requester, thread, views, .. })) if random.chance(75) => {
                    (requester, Message::Done { thread, key: minipage.key(), views })
                }
                Some(&(to, asked)) => (to, answer(&mut random, asked, &attacked.known, ranks, is_lazy)),
                None => (
                    number(&mut random, u64::from(ranks)) as u16,
                    message(&mut random, &attacked.known, ranks, is_lazy),
                ),
            };
            let payload =
                if random.chance(if is_lazy { 60 } else { 97 }) { Vec::new() } else { payload(&mut random, ranks) };
            let answer = attacked.dsm.handle_message(now_ns, from, message, &payload);
            // Sequentially consistent memory needs no payload.
            assert!(answer.is_err() || payload.is_empty() || is_lazy);
            let mut bytes = [0; MAX_MESSAGE_BYTES];
            message.encode(&mut bytes);
            attacked.accepted[usize::from(bytes[0] & 0x7f)] += u64::from(answer.is_ok());
        }
        attacked.drain();
        let _ = attacked.dsm.poll_hold();
        for view in 0..VIEWS {
            for page in 0..u64::from(PAGES) {
                if let Some((minipage, _)) = attacked.dsm.minipage_at(view, page) {
                    let first = minipage.offset_bytes / 4096;
                    assert!(minipage.view == view && first <= page && page < first + minipage.pages());
                }
            }
        }
    }
    attacked.accepted
}

#[test]
fn no_message_of_a_peer_makes_a_rank_panic_or_act_outside_the_segment() {
    if let Ok(seed) = std::env::var("MAPWIRE_DSM_SEED") {
        let seed = seed.parse().expect("MAPWIRE_DSM_SEED is a number");
        run(Random::new(seed), 200);
        return;
    }
    let mut accepted = [0; KINDS];
    for seed in 0..8_000 {
        let one = std::panic::catch_unwind(|| run(Random::new(seed), 200)).unwrap_or_else(|panic| {
            eprintln!("MAPWIRE_DSM_SEED={seed} fails");
            std::panic::resume_unwind(panic)
        });
        for (sum, one) in accepted.iter_mut().zip(one) {
            *sum += one;
        }
    }
    let kinds = accepted.iter().enumerate().skip(1);
    for (kind, &count) in kinds {
        // A home moves only if three ranks play their parts.
        let least = if (28..=30).contains(&kind) { 5 } else { 50 };
        assert!(count > least, "too few messages of kind {kind} got past the checks: {accepted:?}");
    }
}
