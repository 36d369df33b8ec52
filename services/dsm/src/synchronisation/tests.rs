//! Payloads on locks and barriers: a protocol whose ranks learn of each other's writes only when they synchronise.

use super::{Barriers, Locks};
use crate::coherence::{Coherence, Release};
use crate::context::Context;
use crate::{Action, Barrier, Config, MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES, Message, Outcome, Rank, Round, Violation};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Number of writes of each rank known to this one: a vector time, two bytes a rank.
#[derive(Debug)]
struct VectorTime {
    writes: Vec<u8>,
    /// Whether what was written takes time to get into place.
    is_slow: bool,
    /// Releases that wait for that.
    waiting: VecDeque<Release>,
}

impl VectorTime {
    fn of(&self, rank: Rank) -> u16 {
        let at = 2 * usize::from(rank);
        u16::from_le_bytes([self.writes[at], self.writes[at + 1]])
    }

    fn write(&mut self, rank: Rank) {
        let (at, next) = (2 * usize::from(rank), self.of(rank) + 1);
        self.writes[at..at + 2].copy_from_slice(&next.to_le_bytes());
    }
}

impl Coherence for VectorTime {
    fn release(&mut self, release: Release) -> bool {
        if self.is_slow {
            self.waiting.push_back(release);
        }
        !self.is_slow
    }

    fn releases_early(&self) -> bool {
        true
    }

    fn arrive(&mut self, _: Barrier) {}
    fn pass(&mut self, _: Barrier) {}

    fn payload(&mut self, _: Rank, message: &Message, bytes: &mut [u8]) -> usize {
        if !message.releases() {
            return 0;
        }
        bytes[..self.writes.len()].copy_from_slice(&self.writes);
        self.writes.len()
    }

    fn note_request(&mut self, _: Rank, _: Rank, payload: &[u8]) -> Result<(), Violation> {
        if payload.is_empty() { Ok(()) } else { Err(Violation::Payload) }
    }

    fn acquire(&mut self, _: &mut Context, _: Rank, payload: &[u8]) -> Result<(), Violation> {
        if payload.len() != self.writes.len() {
            return Err(Violation::Payload);
        }
        for (mine, theirs) in self.writes.chunks_exact_mut(2).zip(payload.chunks_exact(2)) {
            let newer = u16::from_le_bytes([mine[0], mine[1]]).max(u16::from_le_bytes([theirs[0], theirs[1]]));
            mine.copy_from_slice(&newer.to_le_bytes());
        }
        Ok(())
    }
}

struct Synchronised {
    context: Context,
    time: VectorTime,
    locks: Locks,
    barriers: Barriers,
}

impl Synchronised {
    fn handle(&mut self, from: Rank, message: Message, payload: &[u8]) -> Result<(), Violation> {
        let (context, time) = (&mut self.context, &mut self.time);
        match message {
            Message::LockRequest { lock } => self.locks.handle_request(context, time, from, lock, payload),
            Message::LockForward { lock, successor } => {
                self.locks.handle_forward(context, time, from, lock, successor, payload)
            }
            Message::LockToken { lock } => self.locks.handle_token(context, time, from, lock, payload),
            Message::BarrierArrive { round } => self.barriers.handle_arrival(context, time, from, round, payload),
            Message::BarrierRelease { round } => self.barriers.handle_release(context, time, from, round, payload),
            other => panic!("{other:?}"),
        }
    }
}

struct Job {
    ranks: Vec<Synchronised>,
    /// Bytes of the longest message.
    longest: usize,
    /// Threads' outcomes, by rank.
    resumed: Vec<(Rank, Outcome)>,
}

impl Job {
    fn new(ranks: u16) -> Self {
        let rank = |rank| {
            let config = Config::new(rank, ranks, 1, 1, 1);
            Synchronised {
                context: Context::new(config),
                time: VectorTime { writes: vec![0; 2 * usize::from(ranks)], is_slow: false, waiting: VecDeque::new() },
                locks: Locks::new(&config),
                barriers: Barriers::new(&config).unwrap(),
            }
        };
        Job { ranks: (0..ranks).map(rank).collect(), longest: 0, resumed: Vec::new() }
    }

    /// Delivers all messages, encoded.
    fn settle(&mut self) {
        let mut under_way = Vec::new();
        loop {
            for from in 0..self.ranks.len() {
                while let Some(action) = self.ranks[from].context.poll_action() {
                    match action {
                        Action::Send { to, message } => {
                            let mut bytes = [0; MAX_MESSAGE_BYTES];
                            let length = message.encode(&mut bytes);
                            let mut bytes = Vec::from(&bytes[..length]);
                            let mut payload = [0; MAX_PAYLOAD_BYTES];
                            let length = self.ranks[from].time.payload(to, &message, &mut payload);
                            bytes.extend(&payload[..length]);
                            self.longest = self.longest.max(bytes.len());
                            under_way.push((from as Rank, to, bytes));
                        }
                        Action::Resume { outcome, .. } => {
                            self.resumed.push((from as Rank, outcome));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            if under_way.is_empty() {
                return;
            }
            let (from, to, bytes) = under_way.remove(0);
            let (message, payload) = Message::parse(&bytes).unwrap();
            self.ranks[usize::from(to)].handle(from, message, payload).unwrap();
        }
    }

    fn rank(&mut self, rank: Rank) -> &mut Synchronised {
        &mut self.ranks[usize::from(rank)]
    }

    fn lock(&mut self, rank: Rank) {
        let rank = self.rank(rank);
        let _ = rank.locks.lock(&mut rank.context, 0, 0).unwrap();
        self.settle();
    }

    fn unlock(&mut self, rank: Rank) {
        let rank = self.rank(rank);
        rank.locks.unlock(&mut rank.context, &mut rank.time, 0, 0).unwrap();
        self.settle();
    }
}

#[test]
fn who_gets_a_lock_knows_what_its_last_holders_wrote_and_nobody_else_does() {
    let mut job = Job::new(200);
    for (turn, rank) in [7, 199, 0, 64, 7, 130].into_iter().enumerate() {
        job.lock(rank);
        let time = &mut job.rank(rank).time;
        let known: u16 = (0..200).map(|of| time.of(of)).sum();
        assert_eq!(usize::from(known), turn);
        time.write(rank);
        job.unlock(rank);
    }
    assert!((0..200).all(|of| job.ranks[3].time.of(of) == 0));
    assert_eq!(job.longest, 5 + 400, "a token and its payload");
}

#[test]
fn a_lock_that_is_waited_for_carries_the_writes_too() {
    let mut job = Job::new(3);
    job.lock(1);
    job.lock(2);
    job.rank(1).time.write(1);
    assert_eq!(job.ranks[2].time.of(1), 0);
    job.unlock(1);
    assert_eq!(job.resumed, [(1, Outcome::Locked), (2, Outcome::Locked)]);
    assert_eq!(job.ranks[2].time.of(1), 1);
}

#[test]
fn who_passes_a_barrier_knows_what_everybody_wrote_before_it() {
    for ranks in [1, 2, 3, 70] {
        for last in [0, 1 % ranks, ranks - 1] {
            let mut job = Job::new(ranks);
            for round in 1..4 {
                let others = (0..ranks).filter(|&rank| rank != last);
                for arriving in others.chain([last]) {
                    let rank = job.rank(arriving);
                    rank.time.write(arriving);
                    rank.context.begin(0).unwrap();
                    rank.barriers.arrive(&mut rank.context, &mut rank.time, 0, 1).unwrap();
                    if arriving != last {
                        job.settle();
                    }
                }
                // The last missing rank passes before any more messages.
                let known_by = |rank: Rank| (0..ranks).all(|of| job.ranks[usize::from(rank)].time.of(of) == round);
                assert!(known_by(last));
                job.settle();
                assert_eq!(job.resumed.len(), usize::from(ranks * round));
                for rank in 0..ranks {
                    assert!((0..ranks).all(|of| job.ranks[usize::from(rank)].time.of(of) == round));
                }
            }
        }
    }
}

#[test]
fn a_payload_that_is_refused_leaves_lock_and_barrier_as_they_were() {
    let mut job = Job::new(3);
    let waiting = job.rank(1);
    let _ = waiting.locks.lock(&mut waiting.context, 0, 0).unwrap();
    let token = Message::LockToken { lock: 0 };
    assert_eq!(waiting.handle(0, token, &[1]), Err(Violation::Payload));
    assert_eq!(waiting.handle(0, token, &[0; 6]), Ok(()));

    let round = Round { barrier: 0, epoch: 0, root: 0, value: 0 };
    let manager = job.rank(0);
    let arrive = Message::BarrierArrive { round };
    assert_eq!(manager.handle(2, arrive, &[1]), Err(Violation::Payload));
    assert_eq!(manager.handle(2, arrive, &[0; 6]), Ok(()));
    assert_eq!(manager.handle(2, arrive, &[0; 6]), Err(Violation::Repeated));

    let early = job.rank(2);
    let release = Message::BarrierRelease { round };
    assert_eq!(early.handle(0, release, &[1]), Err(Violation::Payload));
    assert_eq!(early.handle(0, release, &[0; 6]), Ok(()));
}

#[test]
fn who_waits_for_a_barrier_knows_who_has_come_or_who_counts_them() {
    let mut job = Job::new(4);
    for (rank, barrier) in [(1, 1), (2, 1), (3, 2)] {
        let of = job.rank(rank);
        let (context, time) = (&mut of.context, &mut of.time);
        of.barriers.arrive(context, time, 0, barrier).unwrap();
        job.settle();
    }
    let said = |rank: usize| -> Vec<_> {
        let of = &job.ranks[rank];
        let waited = of.barriers.waited_for(&of.context);
        waited.iter().map(alloc::string::ToString::to_string).collect()
    };
    assert_eq!(said(0), [""; 0]);
    assert_eq!(said(1), ["barrier 1: ranks 1 2 have come, ranks 0 3 have not"]);
    assert_eq!(said(2), ["barrier 1, which rank 1 counts", "barrier 2: rank 3 has come, ranks 0 1 2 have not"]);
    assert_eq!(said(3), ["barrier 2, which rank 2 counts"]);
}

#[test]
fn a_token_or_arrival_waits_for_what_its_rank_has_written_and_nobody_passes_before() {
    let mut job = Job::new(2);
    job.lock(1);
    job.rank(1).time.is_slow = true;
    job.unlock(1);
    job.lock(0);
    assert_eq!(job.resumed, [(1, Outcome::Locked)], "the token waits");
    assert_eq!(job.ranks[1].time.waiting, [Release::Token { lock: 0, to: 0 }]);
    let last = job.rank(1);
    last.locks.send_token(&mut last.context, 0, 0);
    job.settle();
    assert_eq!(job.resumed.pop(), Some((0, Outcome::Locked)));

    job.resumed.clear();
    // Of barrier 0, which rank 0 manages, rank 1 is released ahead of its arrival, which waits.
    for at in [1, 0] {
        let rank = job.rank(at);
        rank.context.begin(0).unwrap();
        rank.barriers.arrive(&mut rank.context, &mut rank.time, 0, 0).unwrap();
        job.settle();
    }
    assert_eq!(job.resumed, []);
    let last = job.rank(1);
    assert_eq!(last.time.waiting.pop_back(), Some(Release::Arrival { barrier: 0 }));
    last.barriers.report(&mut last.context, &mut last.time, 0);
    job.settle();
    assert_eq!(job.resumed, [(1, Outcome::Passed), (0, Outcome::Passed)]);
}
