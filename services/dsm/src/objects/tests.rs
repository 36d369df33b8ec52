//! Tests of the home: each kind against a plain model, in random order.

extern crate std;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use std::println;

use proptest::prelude::*;

use super::call::Answer;
use super::server::Server;
use super::table::home;
use super::{Combine, NumberType, ObjectCall, ObjectKind, Problem, Reduce, Verb};
use crate::{Config, Rank, Thread};

type Who = (Rank, Thread);

const OBJECT: u64 = 4096;
const GRANTED: Answer = Answer::Granted(0);
/// Kinds whose calls wait each for itself.
const ALONE: [ObjectKind; 6] = [
    ObjectKind::Mutex,
    ObjectKind::RwLock,
    ObjectKind::Condition,
    ObjectKind::Semaphore,
    ObjectKind::Flag,
    ObjectKind::Once,
];

fn call(kind: ObjectKind, verb: Verb, argument: u64) -> ObjectCall {
    ObjectCall { object: OBJECT, kind, verb, argument }
}

fn server(objects: u32) -> Server {
    Server::new(&Config { objects, ..Config::new(0, 3, 2, 64, 1) }).unwrap()
}

/// What a call and those that it lets go on are answered.
fn serve(server: &mut Server, (rank, thread): Who, call: ObjectCall) -> Vec<(Who, Answer)> {
    server.serve(rank, thread, call);
    server.answers.drain(..).map(|(rank, thread, answer)| ((rank, thread), answer)).collect()
}

/// An object as its documents say that it is.
#[derive(Debug, Default)]
struct Model {
    holder: Option<Who>,
    readers: Vec<Who>,
    value: u64,
    is_done: bool,
    queue: VecDeque<(Who, ObjectCall)>,
    /// Threads that have enlisted, and those of them that were woken.
    enlisted: Vec<Who>,
    woken: Vec<Who>,
}

impl Model {
    /// What a waiting call gets now.
    fn grant(&mut self, who: Who, call: ObjectCall) -> Option<Answer> {
        let shares = matches!(call.verb, Verb::Share | Verb::TryShare);
        let may = match call.kind {
            ObjectKind::Mutex => self.holder.is_none(),
            ObjectKind::RwLock => self.holder.is_none() && (shares || self.readers.is_empty()),
            ObjectKind::Semaphore => self.value > 0,
            ObjectKind::Flag => self.value >= call.argument,
            ObjectKind::Once => self.is_done || self.holder.is_none(),
            _ => false,
        };
        if !may {
            return None;
        }
        Some(match call.kind {
            ObjectKind::Semaphore => {
                self.value -= 1;
                GRANTED
            }
            ObjectKind::Flag => Answer::Granted(self.value),
            ObjectKind::Once if self.is_done => GRANTED,
            _ if shares => {
                self.readers.push(who);
                GRANTED
            }
            kind => {
                self.holder = Some(who);
                Answer::Granted((kind == ObjectKind::Once).into())
            }
        })
    }

    fn serve(&mut self, who: Who, call: ObjectCall) -> Vec<(Who, Answer)> {
        let holds = self.holder == Some(who) || self.readers.contains(&who);
        let mut answers = Vec::new();
        let mut answer = |answer| answers.push((who, answer));
        match (call.kind, call.verb) {
            (ObjectKind::Once, Verb::Read) => answer(Answer::Granted(self.is_done.into())),
            (_, Verb::Read) => answer(Answer::Granted(self.value)),
            (_, Verb::Set) => answer(Answer::Granted(core::mem::replace(&mut self.value, call.argument))),
            (ObjectKind::Flag, Verb::Give) => {
                answer(Answer::Granted(self.value));
                self.value += call.argument;
            }
            (ObjectKind::Semaphore, Verb::Give) => {
                answer(GRANTED);
                self.value += call.argument;
            }
            (ObjectKind::Condition, Verb::Enlist) => {
                self.enlisted.push(who);
                answer(GRANTED);
            }
            (ObjectKind::Condition, Verb::Take) => match self.woken.iter().position(|other| *other == who) {
                Some(at) => {
                    self.woken.remove(at);
                    answer(GRANTED);
                }
                None => self.queue.push_back((who, call)),
            },
            (ObjectKind::Condition, _) => {
                answer(GRANTED);
                for _ in 0..call.argument.min(self.enlisted.len() as u64) {
                    let first = self.enlisted.remove(0);
                    match self.queue.iter().position(|(other, _)| *other == first) {
                        Some(at) => {
                            self.queue.remove(at);
                            answers.push((first, GRANTED));
                        }
                        None => self.woken.push(first),
                    }
                }
            }
            (_, Verb::Give) if self.holder == Some(who) => {
                self.holder = None;
                self.is_done |= call.kind == ObjectKind::Once && call.argument != 0;
                answer(GRANTED);
            }
            (_, Verb::Give) if holds => {
                let at = self.readers.iter().position(|reader| *reader == who).unwrap();
                self.readers.remove(at);
                answer(GRANTED);
            }
            (_, Verb::Give) => answer(Answer::Failed(Problem::NotHeld { holder: self.holder })),
            (kind, verb) => {
                let tries = matches!(verb, Verb::Try | Verb::TryShare);
                let reads_on = matches!(verb, Verb::Share | Verb::TryShare) && self.readers.contains(&who);
                let is_first = self.queue.is_empty() || kind == ObjectKind::Flag;
                if holds && !(reads_on && is_first) {
                    answer(if tries { Answer::NotNow } else { Answer::Failed(Problem::Held) });
                } else if let Some(granted) = if is_first { self.grant(who, call) } else { None } {
                    answer(granted);
                } else if tries {
                    answer(Answer::NotNow);
                } else {
                    self.queue.push_back((who, call));
                }
            }
        }
        answers.extend(self.go_on());
        answers
    }

    /// Who may go on now, in the order of arrival.
    fn go_on(&mut self) -> Vec<(Who, Answer)> {
        let mut answers = Vec::new();
        let mut at = 0;
        while let Some(&(who, call)) = self.queue.get(at) {
            match self.grant(who, call) {
                Some(answer) => {
                    self.queue.remove(at);
                    answers.push((who, answer));
                }
                None if call.kind == ObjectKind::Flag => at += 1,
                None => break,
            }
        }
        answers
    }

    fn cancel(&mut self, who: Who) -> Vec<(Who, Answer)> {
        let Some(at) = self.queue.iter().position(|(other, _)| *other == who) else { return Vec::new() };
        self.queue.remove(at);
        self.enlisted.retain(|other| *other != who);
        let mut answers = vec![(who, Answer::NotNow)];
        answers.extend(self.go_on());
        answers
    }

    /// Whether the thread must not call now.
    fn is_busy(&self, who: Who) -> bool {
        self.queue.iter().any(|(other, _)| *other == who)
    }

    /// A call that a thread may make, drawn by a number.
    fn draw(&self, kind: ObjectKind, who: Who, number: u8) -> ObjectCall {
        let verbs: &[Verb] = match kind {
            ObjectKind::Mutex => &[Verb::Take, Verb::Take, Verb::Try, Verb::Give, Verb::Give],
            ObjectKind::RwLock => {
                &[Verb::Take, Verb::Try, Verb::Share, Verb::Share, Verb::TryShare, Verb::Give, Verb::Give]
            }
            ObjectKind::Semaphore => &[Verb::Take, Verb::Take, Verb::Try, Verb::Give, Verb::Read],
            ObjectKind::Flag => &[Verb::Take, Verb::Take, Verb::Set, Verb::Give, Verb::Read],
            ObjectKind::Once => &[Verb::Take, Verb::Take, Verb::Give, Verb::Read],
            _ if self.enlisted.contains(&who) || self.woken.contains(&who) => &[Verb::Take],
            _ => &[Verb::Enlist, Verb::Give],
        };
        let argument = u64::from(number) / 16 % if kind == ObjectKind::Once { 2 } else { 5 };
        call(kind, verbs[usize::from(number) % verbs.len()], argument)
    }
}

proptest! {
    #[test]
    fn every_kind_answers_as_its_model_does_in_the_same_order(
        kind in 0usize..6,
        steps in proptest::collection::vec((0u16..3, 0u16..2, any::<u8>()), 1..120),
    ) {
        let kind = ALONE[kind];
        let (mut server, mut model) = (server(20), Model::default());
        for (rank, thread, number) in steps {
            let who = (rank, thread);
            let (found, wanted) = if model.is_busy(who) {
                if number >= 60 {
                    continue;
                }
                server.cancel(rank, thread, OBJECT);
                let found = server.answers.drain(..).map(|(rank, thread, answer)| ((rank, thread), answer));
                (found.collect(), model.cancel(who))
            } else {
                let call = model.draw(kind, who, number);
                (serve(&mut server, who, call), model.serve(who, call))
            };
            // The caller learns its own outcome first or last, the others in their order.
            let sorted = |mut answers: Vec<(Who, Answer)>| {
                answers.sort_by_key(|(other, _)| *other != who);
                answers
            };
            prop_assert_eq!(sorted(found), sorted(wanted), "{:?}", model);
            let waits: Vec<Who> = (0..6).map(|n| (n / 2, n % 2)).filter(|&(r, t)| server.is_waiting(r, t)).collect();
            prop_assert!(waits.iter().all(|who| model.is_busy(*who)) && waits.len() == model.queue.len());
        }
        // When nobody has or wants anything, nothing is kept.
        let holders: Vec<Who> = model.holder.into_iter().chain(model.readers.clone()).collect();
        prop_assert_eq!((0..3).map(|rank| server.held_by(rank).count()).sum::<usize>() > 0, !holders.is_empty());
    }

    #[test]
    fn threads_that_meet_go_on_together_with_what_they_brought(
        parties in 1u64..=6,
        values in proptest::collection::vec(any::<i64>(), 6..60),
    ) {
        for kind in [ObjectKind::Barrier, ObjectKind::Reduction] {
            let mut server = server(4);
            serve(&mut server, (0, 0), call(kind, Verb::Init, parties));
            let mut come = Vec::new();
            for (at, &value) in values.iter().enumerate() {
                let who = ((at % 6 / 2) as u16, (at % 2) as u16);
                if server.is_waiting(who.0, who.1) {
                    continue;
                }
                let combine = Combine { how: Reduce::Min, of: NumberType::I64 };
                let verb = if kind == ObjectKind::Barrier { Verb::Take } else { Verb::Reduce(combine) };
                let answers = serve(&mut server, who, call(kind, verb, value as u64));
                come.push((who, value));
                if come.len() < parties as usize {
                    prop_assert_eq!(answers, []);
                    // Who has been counted does not leave.
                    server.cancel(who.0, who.1, OBJECT);
                    prop_assert!(server.answers.is_empty());
                    continue;
                }
                let least = come.iter().map(|(_, value)| *value).min().unwrap();
                prop_assert_eq!(answers.len(), come.len());
                for (other, answer) in answers {
                    prop_assert!(come.iter().any(|(who, _)| *who == other));
                    let value = if kind == ObjectKind::Barrier { u64::from(other == who) } else { least as u64 };
                    prop_assert_eq!(answer, Answer::Granted(value));
                }
                come.clear();
            }
        }
    }
}

#[test]
fn an_object_that_nobody_uses_takes_no_room() {
    let mut server = server(3);
    for number in 1..100 {
        let at = |kind, verb| ObjectCall { object: 8 * number, kind, verb, argument: 1 };
        for (kind, verbs) in [
            (ObjectKind::Mutex, [Verb::Take, Verb::Give]),
            (ObjectKind::RwLock, [Verb::Share, Verb::Give]),
            (ObjectKind::Semaphore, [Verb::Give, Verb::Take]),
            (ObjectKind::Condition, [Verb::Enlist, Verb::Leave]),
        ] {
            for verb in verbs {
                assert_eq!(serve(&mut server, (1, 0), at(kind, verb)), [((1, 0), GRANTED)], "{kind} {verb:?}");
            }
        }
    }
    let take = |object| ObjectCall { object, ..call(ObjectKind::Mutex, Verb::Take, 0) };
    for object in 1..=3 {
        assert_eq!(serve(&mut server, (0, 1), take(object)), [((0, 1), GRANTED)]);
    }
    let full = Answer::Failed(Problem::TooMany { objects: 3 });
    assert_eq!(serve(&mut server, (0, 1), take(4)), [((0, 1), full)]);
    assert_eq!(server.held_by(0).count(), 3);
}

#[test]
fn misuse_is_named() {
    let mut server = server(9);
    let mut ask = |who, kind, verb| {
        let answers = serve(&mut server, who, call(kind, verb, 0));
        println!("{who:?} {kind} {verb:?}: {answers:?}");
        answers
    };
    let (a, b) = ((0, 0), (2, 1));
    let failed = |who, problem| vec![(who, Answer::Failed(problem))];
    let mutex = ObjectKind::Mutex;
    assert_eq!(ask(a, ObjectKind::Barrier, Verb::Take), failed(a, Problem::Uninitialised));
    assert_eq!(ask(a, mutex, Verb::Give), failed(a, Problem::NotHeld { holder: None }));
    ask(a, mutex, Verb::Take);
    assert_eq!(ask(b, mutex, Verb::Give), failed(b, Problem::NotHeld { holder: Some(a) }));
    assert_eq!(ask(b, ObjectKind::Flag, Verb::Read), failed(b, Problem::OtherKind(mutex)));
    assert_eq!(ask(b, mutex, Verb::Destroy), failed(b, Problem::InUse));
    assert_eq!(ask(b, mutex, Verb::Take), []);
    // Who waits for what is made anew learns it.
    let gone = (b, Answer::Failed(Problem::Destroyed));
    assert_eq!(ask(a, mutex, Verb::Init), [gone, (a, GRANTED)]);
    ask(a, mutex, Verb::Destroy);
    assert_eq!(ask(b, mutex, Verb::Take), [gone]);
    assert_eq!(ask(b, ObjectKind::Semaphore, Verb::Init), [(b, GRANTED)]);
    assert_eq!(ask(b, ObjectKind::Semaphore, Verb::Read), [(b, GRANTED)]);
}

#[test]
fn homes_share_the_objects_evenly() {
    for (ranks, stride) in [(2, 8), (3, 64), (4, 64), (8, 4096), (64, 48)] {
        let mut counts = vec![0; usize::from(ranks)];
        (0..6_400).for_each(|at| counts[usize::from(home(0x7000_0000_0000 + at * stride, ranks))] += 1);
        let fair = 6_400 / usize::from(ranks);
        assert!(counts.iter().all(|&count| count > fair / 2 && count < 2 * fair), "{ranks} ranks: {counts:?}");
    }
}
