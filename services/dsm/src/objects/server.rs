//! The home's part: the state of its objects, and the queues of threads that wait for them.
//!
//! Calls are served in the order of their arrival. One that cannot be granted queues, and whoever comes later queues behind it, so nobody
//! starves. Threads are numbered through all ranks.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::call::{Answer, ObjectCall, ObjectKind, Problem, SEMAPHORE_MAX, Verb};
use super::table::{Entry, NOBODY, Slab, Table};
use crate::{Config, Rank, Thread, tables};

/// A thread in a queue.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    call: ObjectCall,
    next: u32,
    state: WaiterState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaiterState {
    /// It is owed an answer.
    Waiting,
    /// It has entered a condition's queue, and does not wait yet.
    Enlisted,
    /// It has been woken before it waited.
    Woken,
}

/// States of a once, in its value.
const BEGUN: u64 = 1;
const DONE: u64 = 2;

/// A granted call without a value.
const GRANTED: Answer = Answer::Granted(0);

#[derive(Debug)]
pub(super) struct Server {
    table: Table,
    waiters: Slab<Waiter>,
    /// For each thread of all ranks, its number among the waiters, and 1; or 0.
    places: Vec<u32>,
    threads: u32,
    /// Threads that go on, and how.
    pub(super) answers: VecDeque<(Rank, Thread, Answer)>,
}

impl Server {
    /// `None` if the machine refuses memory.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let threads = u32::from(config.threads);
        let all = u32::from(config.ranks) * threads;
        let mut answers = VecDeque::new();
        // One call answers each thread at most.
        answers.try_reserve_exact(all as usize + 1).ok()?;
        Some(Self {
            table: Table::new(config.objects)?,
            waiters: Slab::new(all)?,
            places: tables::zeroes(all as usize)?,
            threads,
            answers,
        })
    }

    fn number(&self, rank: Rank, thread: Thread) -> u32 {
        u32::from(rank) * self.threads + u32::from(thread)
    }

    fn who(&self, number: u32) -> (Rank, Thread) {
        ((number / self.threads) as Rank, (number % self.threads) as Thread)
    }

    fn answer(&mut self, who: u32, answer: Answer) {
        let (rank, thread) = self.who(who);
        self.answers.push_back((rank, thread, answer));
    }

    fn waiter(&mut self, who: u32) -> Option<&mut Waiter> {
        let at = self.places.get(who as usize)?.checked_sub(1)?;
        Some(&mut self.waiters[at])
    }

    /// Whether a thread waits for an answer.
    pub(super) fn is_waiting(&self, rank: Rank, thread: Thread) -> bool {
        let at = self.places[self.number(rank, thread) as usize].checked_sub(1);
        at.is_some_and(|at| self.waiters[at].state == WaiterState::Waiting)
    }

    /// Serves a legal call of a thread that does not wait.
    pub(super) fn serve(&mut self, rank: Rank, thread: Thread, call: ObjectCall) {
        let who = self.number(rank, thread);
        let found = self.table.find(call.object, NOBODY);
        let answer = match found.map(|at| (at, self.table[at].kind)) {
            Some((at, _)) if call.verb == Verb::Init => {
                self.empty(at);
                self.table.remove(at);
                self.init(call)
            }
            _ if call.verb == Verb::Init => self.init(call),
            Some((_, None)) => Some(Answer::Failed(Problem::Destroyed)),
            Some((_, Some(kind))) if kind != call.kind => Some(Answer::Failed(Problem::OtherKind(kind))),
            Some((at, Some(_))) => self.apply(at, who, call),
            None => match self.table.insert(Entry::new(call.object, NOBODY, call.kind)) {
                Some(at) => self.apply(at, who, call),
                None => Some(self.full()),
            },
        };
        if let Some(answer) = answer {
            self.answer(who, answer);
        }
    }

    /// Gives up a call that still waits. Who meets others has been counted, and goes on waiting.
    pub(super) fn cancel(&mut self, rank: Rank, thread: Thread, object: u64) {
        let who = self.number(rank, thread);
        let Some(&mut Waiter { call, state: WaiterState::Waiting, .. }) = self.waiter(who) else { return };
        let meets = matches!(call.kind, ObjectKind::Barrier | ObjectKind::Reduction);
        if call.object == object && !meets {
            let left = self.leave(who);
            self.answer(who, Answer::NotNow);
            if let Some(at) = left {
                self.advance(at);
                self.table.tidy(at);
            }
        }
    }

    /// Objects that a rank holds.
    pub(super) fn held_by(&self, rank: Rank) -> impl Iterator<Item = (u64, ObjectKind)> + '_ {
        let is_of = move |who: u32| who != NOBODY && self.who(who).0 == rank;
        self.table
            .iter()
            .filter(move |(_, entry)| is_of(entry.holder) || is_of(entry.reader))
            .filter_map(|(_, entry)| Some((entry.object, entry.kind?)))
    }

    fn full(&self) -> Answer {
        Answer::Failed(Problem::TooMany { objects: self.table.most() })
    }

    fn init(&mut self, call: ObjectCall) -> Option<Answer> {
        let mut entry = Entry::new(call.object, NOBODY, call.kind);
        match call.kind {
            ObjectKind::Semaphore if call.argument > SEMAPHORE_MAX => return Some(Answer::Failed(Problem::TooHigh)),
            ObjectKind::Semaphore => entry.value = call.argument,
            ObjectKind::Barrier | ObjectKind::Reduction => entry.parties = call.argument as u32,
            _ => {}
        }
        Some(match self.table.insert(entry) {
            Some(at) => {
                self.table.tidy(at);
                GRANTED
            }
            None => self.full(),
        })
    }

    /// Carries out a call of an object of its kind. `None`: it waits.
    fn apply(&mut self, at: u32, who: u32, call: ObjectCall) -> Option<Answer> {
        let answer = self.carry_out(at, who, call);
        self.advance(at);
        self.table.tidy(at);
        answer
    }

    fn carry_out(&mut self, at: u32, who: u32, call: ObjectCall) -> Option<Answer> {
        let ObjectCall { kind, verb, argument, .. } = call;
        let entry = &mut self.table[at];
        let before = entry.value;
        Some(match (kind, verb) {
            (_, Verb::Destroy) => {
                let is_lock = matches!(kind, ObjectKind::Mutex | ObjectKind::RwLock | ObjectKind::Queue);
                if is_lock && (entry.holder != NOBODY || entry.count > 0 || entry.first != NOBODY) {
                    return Some(Answer::Failed(Problem::InUse));
                }
                self.empty(at);
                let object = call.object;
                self.table[at] = Entry { kind: None, ..Entry::new(object, NOBODY, kind) };
                GRANTED
            }
            (ObjectKind::Once, Verb::Read) => Answer::Granted((before == DONE).into()),
            (_, Verb::Read) => Answer::Granted(before),
            (_, Verb::Set) => {
                entry.value = argument;
                Answer::Granted(before)
            }
            (ObjectKind::Condition, _) => return self.carry_out_condition(at, who, call),
            (ObjectKind::Barrier | ObjectKind::Reduction, _) => return self.meet(at, who, call),
            (ObjectKind::Flag, Verb::Give) => {
                entry.value = before.wrapping_add(argument);
                Answer::Granted(before)
            }
            (ObjectKind::Semaphore, Verb::Give) => match before.checked_add(argument) {
                Some(value) if value <= SEMAPHORE_MAX => {
                    entry.value = value;
                    GRANTED
                }
                _ => Answer::Failed(Problem::TooHigh),
            },
            (_, Verb::Give) => self.unlock(at, who, argument),
            _ => return self.take(at, who, call),
        })
    }

    /// Ends what one thread holds alone, or a lock that it reads.
    fn unlock(&mut self, at: u32, who: u32, is_done: u64) -> Answer {
        let entry = &mut self.table[at];
        let (object, holder) = (entry.object, entry.holder);
        if holder == who {
            entry.holder = NOBODY;
            if entry.kind == Some(ObjectKind::Once) {
                entry.value = if is_done == 0 { 0 } else { DONE };
            }
            return GRANTED;
        }
        let Some(reads) = self.table.find(object, who) else {
            let holder = (holder != NOBODY).then(|| self.who(holder));
            return Answer::Failed(Problem::NotHeld { holder });
        };
        self.table[at].count -= 1;
        self.table[reads].count -= 1;
        if self.table[reads].count == 0 {
            self.table.remove(reads);
        }
        GRANTED
    }

    /// Takes what is free, or queues.
    fn take(&mut self, at: u32, who: u32, call: ObjectCall) -> Option<Answer> {
        let Entry { object, holder, first, .. } = self.table[at];
        // Who waits for a flag's higher value is in nobody's way.
        let is_free = first == NOBODY || call.kind == ObjectKind::Flag;
        let is_mine = holder == who
            || self.table.find(object, who).is_some()
                && !(is_free && matches!(call.verb, Verb::Share | Verb::TryShare));
        let granted = if is_free && !is_mine { self.grant(at, who, call) } else { None };
        match call.verb {
            _ if granted.is_some() => granted,
            Verb::Try | Verb::TryShare => Some(Answer::NotNow),
            _ if is_mine => Some(Answer::Failed(Problem::Held)),
            _ => {
                self.enqueue(at, who, call, WaiterState::Waiting);
                None
            }
        }
    }

    /// Gives a thread what it wants, if that can be now.
    fn grant(&mut self, at: u32, who: u32, call: ObjectCall) -> Option<Answer> {
        let entry = &mut self.table[at];
        let is_share = matches!(call.verb, Verb::Share | Verb::TryShare);
        match call.kind {
            ObjectKind::Flag => (entry.value >= call.argument).then_some(Answer::Granted(entry.value)),
            ObjectKind::Semaphore => {
                entry.value = entry.value.checked_sub(1)?;
                Some(GRANTED)
            }
            ObjectKind::Once if entry.value == DONE => Some(GRANTED),
            _ if entry.holder != NOBODY => None,
            ObjectKind::RwLock if is_share => Some(self.read(at, who)),
            ObjectKind::RwLock if entry.count > 0 => None,
            kind => {
                entry.holder = who;
                let is_once = kind == ObjectKind::Once;
                entry.value = if is_once { BEGUN } else { 0 };
                Some(Answer::Granted(is_once.into()))
            }
        }
    }

    /// A thread reads a lock, perhaps once more.
    fn read(&mut self, at: u32, who: u32) -> Answer {
        let object = self.table[at].object;
        let reads = self.table.find(object, who);
        let Some(reads) = reads.or_else(|| self.table.insert(Entry::new(object, who, ObjectKind::RwLock))) else {
            return self.full();
        };
        self.table[reads].count += 1;
        self.table[at].count += 1;
        GRANTED
    }

    fn carry_out_condition(&mut self, at: u32, who: u32, call: ObjectCall) -> Option<Answer> {
        match call.verb {
            Verb::Enlist => self.enqueue(at, who, call, WaiterState::Enlisted),
            Verb::Give => self.wake(at, call.argument),
            _ => match self.waiter(who).filter(|waiter| waiter.call.object == call.object) {
                Some(waiter) if call.verb == Verb::Take && waiter.state == WaiterState::Enlisted => {
                    waiter.state = WaiterState::Waiting;
                    return None;
                }
                // It leaves; a wake that it does not use is another's.
                Some(waiter) => {
                    let is_unused = waiter.state == WaiterState::Woken && call.verb == Verb::Leave;
                    self.leave(who);
                    self.wake(at, is_unused.into());
                }
                None => {}
            },
        }
        Some(GRANTED)
    }

    /// Wakes so many threads that wait on a condition or have enlisted.
    fn wake(&mut self, at: u32, count: u64) {
        for _ in 0..count {
            let Some(who) = self.dequeue(at) else { return };
            self.go_on(who, GRANTED);
        }
    }

    /// A thread that was taken from a queue goes on.
    fn go_on(&mut self, who: u32, answer: Answer) {
        match self.waiter(who) {
            Some(waiter) if waiter.state == WaiterState::Enlisted => waiter.state = WaiterState::Woken,
            _ => {
                self.forget(who);
                self.answer(who, answer);
            }
        }
    }

    /// A thread arrives at a barrier or reduction.
    fn meet(&mut self, at: u32, who: u32, call: ObjectCall) -> Option<Answer> {
        let entry = &mut self.table[at];
        if entry.parties == 0 {
            return Some(Answer::Failed(Problem::Uninitialised));
        }
        if let Verb::Reduce(combine) = call.verb {
            if entry.count > 0 && entry.how != combine.code() {
                return Some(Answer::Failed(Problem::OtherReduction));
            }
            entry.how = combine.code();
            entry.value = if entry.count == 0 { call.argument } else { combine.of(entry.value, call.argument) };
        }
        entry.count += 1;
        if entry.count < entry.parties {
            self.enqueue(at, who, call, WaiterState::Waiting);
            return None;
        }
        entry.count = 0;
        let value = core::mem::take(&mut entry.value);
        while let Some(other) = self.dequeue(at) {
            self.go_on(other, Answer::Granted(value));
        }
        Some(Answer::Granted(if call.kind == ObjectKind::Barrier { 1 } else { value }))
    }

    /// Grants what can be granted now to those that wait, in their order.
    fn advance(&mut self, at: u32) {
        let Entry { kind, .. } = self.table[at];
        if !kind.is_some_and(is_taken) {
            return;
        }
        let mut before = NOBODY;
        loop {
            let who = if before == NOBODY { self.table[at].first } else { self.next(before) };
            if who == NOBODY {
                return;
            }
            let Some(&mut Waiter { call, .. }) = self.waiter(who) else { return };
            match self.grant(at, who, call) {
                Some(answer) => {
                    self.unlink(at, before, who);
                    self.go_on(who, answer);
                }
                // Others may wait for less.
                None if kind == Some(ObjectKind::Flag) => before = who,
                None => return,
            }
        }
    }

    /// Takes all state from an object: those that wait for it learn that it is destroyed.
    fn empty(&mut self, at: u32) {
        while let Some(who) = self.dequeue(at) {
            self.go_on(who, Answer::Failed(Problem::Destroyed));
        }
        let Entry { object, kind, count, .. } = self.table[at];
        let mut left = if kind == Some(ObjectKind::RwLock) { count } else { 0 };
        while left > 0 {
            let reads = self.table.iter().find(|(_, entry)| entry.object == object && entry.reader != NOBODY);
            let Some((reads, count)) = reads.map(|(at, entry)| (at, entry.count)) else { return };
            self.table.remove(reads);
            left = left.saturating_sub(count);
        }
    }

    fn next(&mut self, who: u32) -> u32 {
        self.waiter(who).map_or(NOBODY, |waiter| waiter.next)
    }

    fn enqueue(&mut self, at: u32, who: u32, call: ObjectCall, state: WaiterState) {
        // It may have enlisted for a condition before.
        if let Some(left) = self.leave(who).filter(|&left| left != at) {
            self.table.tidy(left);
        }
        let Some(place) = self.waiters.insert(Waiter { call, next: NOBODY, state }) else { return };
        self.places[who as usize] = place + 1;
        let last = core::mem::replace(&mut self.table[at].last, who);
        match self.waiter(last) {
            Some(last) => last.next = who,
            None => self.table[at].first = who,
        }
    }

    /// Takes the first thread from a queue.
    fn dequeue(&mut self, at: u32) -> Option<u32> {
        let first = Some(self.table[at].first).filter(|&first| first != NOBODY)?;
        self.unlink(at, NOBODY, first);
        Some(first)
    }

    /// Takes a thread from a queue, where it follows another or is the first.
    fn unlink(&mut self, at: u32, before: u32, who: u32) {
        let next = self.next(who);
        match self.waiter(before) {
            Some(before) => before.next = next,
            None => self.table[at].first = next,
        }
        if next == NOBODY {
            self.table[at].last = before;
        }
    }

    /// Takes a thread from the queue that it is in, if it is in one, and returns the object.
    fn leave(&mut self, who: u32) -> Option<u32> {
        let &mut Waiter { call, state, .. } = self.waiter(who)?;
        let is_queued = state != WaiterState::Woken;
        let left = if is_queued { self.table.find(call.object, NOBODY) } else { None };
        if let Some(at) = left {
            let (mut before, mut next) = (NOBODY, self.table[at].first);
            while next != who && next != NOBODY {
                before = next;
                next = self.next(next);
            }
            if next == who {
                self.unlink(at, before, who);
            }
        }
        self.forget(who);
        left
    }

    /// Forgets a thread that is in no queue.
    fn forget(&mut self, who: u32) {
        if let Some(place) = core::mem::take(&mut self.places[who as usize]).checked_sub(1) {
            self.waiters.remove(place);
        }
    }
}

/// Whether threads wait until they can take something, each for itself.
fn is_taken(kind: ObjectKind) -> bool {
    !matches!(kind, ObjectKind::Condition | ObjectKind::Barrier | ObjectKind::Reduction)
}
