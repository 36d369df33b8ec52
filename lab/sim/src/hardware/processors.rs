//! The processors of a host and its threads: the ready thread of the highest priority runs, those of one priority take turns.
//!
//! A thread is given *work*: so much processor time, or polling, which never ends of itself. Nothing is drawn: threads of one priority run
//! in the order in which they became ready.

use std::collections::VecDeque;

use super::Ps;

/// A thread of a host, by number.
pub(crate) type ThreadId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It waits for something else than a processor.
    Asleep,
    /// It waits for a processor.
    Ready,
    Running(usize),
}

#[derive(Debug)]
struct Thread {
    priority: u8,
    /// The priority that it has for now.
    current: u8,
    turn: Turn,
    /// Processor time that its work still takes; `None`: it polls.
    left_ps: Option<Ps>,
    used_ps: Ps,
}

#[derive(Clone, Copy, Debug, Default)]
struct Processor {
    running: Option<ThreadId>,
    /// Who ran before: another pays for the switch.
    last: Option<ThreadId>,
    /// Since when its thread's time has not been accounted for. Ahead of the time while it switches.
    since_ps: Ps,
    turn_ends_ps: Ps,
    /// Counts changes: an event of an earlier one is void.
    change: u64,
}

/// What has come about at a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// Nothing, or only a turn was over.
    Nothing,
    /// The thread's work is done. It goes on running, and must be given something or put to sleep.
    Done(ThreadId),
}

/// The processors of a host.
#[derive(Debug)]
pub(crate) struct Processors {
    threads: Vec<Thread>,
    processors: Vec<Processor>,
    /// By priority, the lowest first; each in the order of becoming ready.
    ready: Vec<VecDeque<ThreadId>>,
    switch_ps: Ps,
    turn_ps: Ps,
    /// Processors whose next event is another than was told.
    changed: Vec<usize>,
    /// Threads that poll and run since now.
    polling: Vec<ThreadId>,
}

const PRIORITIES: usize = 32;

impl Processors {
    /// So many processors; a switch of threads takes `switch_ps`, and threads of one priority run for `turn_ps` at a time.
    pub(crate) fn new(processors: u16, switch_ps: Ps, turn_ps: Ps) -> Self {
        Self {
            threads: Vec::new(),
            processors: vec![Processor::default(); usize::from(processors.max(1))],
            ready: vec![VecDeque::new(); PRIORITIES],
            switch_ps,
            turn_ps: turn_ps.max(1),
            changed: Vec::new(),
            polling: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, priority: u8) -> ThreadId {
        let priority = priority.min(PRIORITIES as u8 - 1);
        self.threads.push(Thread { priority, current: priority, turn: Turn::Asleep, left_ps: Some(0), used_ps: 0 });
        self.threads.len() - 1
    }

    /// Processor time that a thread has used up to now.
    pub(crate) fn used_ps(&self, now_ps: Ps, thread: ThreadId) -> Ps {
        let thread = &self.threads[thread];
        let running = match thread.turn {
            Turn::Running(at) => now_ps.saturating_sub(self.processors[at].since_ps),
            _ => 0,
        };
        thread.used_ps + running
    }

    /// Whether a thread waits for a processor.
    pub(crate) fn is_crowded(&self) -> bool {
        self.ready.iter().any(|queue| !queue.is_empty())
    }

    pub(crate) fn is_running(&self, thread: ThreadId) -> bool {
        matches!(self.threads[thread].turn, Turn::Running(_))
    }

    /// Whether a thread polls, and has a processor to do so.
    pub(crate) fn is_polling(&self, thread: ThreadId) -> bool {
        self.is_running(thread) && self.threads[thread].left_ps.is_none()
    }

    pub(crate) fn is_asleep(&self, thread: ThreadId) -> bool {
        self.threads[thread].turn == Turn::Asleep
    }

    /// Gives a thread work that takes so much processor time.
    pub(crate) fn work(&mut self, now_ps: Ps, thread: ThreadId, work_ps: Ps) {
        self.set(now_ps, thread, Some(work_ps));
    }

    /// Has a thread poll until it is given something else.
    pub(crate) fn poll(&mut self, now_ps: Ps, thread: ThreadId) {
        self.set(now_ps, thread, None);
    }

    fn set(&mut self, now_ps: Ps, thread: ThreadId, left_ps: Option<Ps>) {
        match self.threads[thread].turn {
            Turn::Running(at) => {
                self.account(now_ps, at);
                self.threads[thread].left_ps = left_ps;
                self.change(at);
                if left_ps.is_none() {
                    self.polling.push(thread);
                }
            }
            Turn::Ready => self.threads[thread].left_ps = left_ps,
            Turn::Asleep => {
                self.threads[thread].left_ps = left_ps;
                self.make_ready(now_ps, thread, false);
                self.dispatch(now_ps);
            }
        }
    }

    /// Puts a thread to sleep.
    pub(crate) fn sleep(&mut self, now_ps: Ps, thread: ThreadId) {
        match self.threads[thread].turn {
            Turn::Asleep => return,
            Turn::Ready => self.unready(thread),
            Turn::Running(at) => {
                self.account(now_ps, at);
                self.take_off(at);
            }
        }
        self.threads[thread].turn = Turn::Asleep;
        self.dispatch(now_ps);
    }

    /// Gives a thread another priority for now; `None` its own.
    pub(crate) fn boost(&mut self, now_ps: Ps, thread: ThreadId, priority: Option<u8>) {
        let to = priority.unwrap_or(self.threads[thread].priority);
        if self.threads[thread].current == to {
            return;
        }
        match self.threads[thread].turn {
            Turn::Ready => {
                self.unready(thread);
                self.threads[thread].current = to;
                self.make_ready(now_ps, thread, false);
            }
            Turn::Running(at) => {
                self.threads[thread].current = to;
                self.change(at);
            }
            Turn::Asleep => self.threads[thread].current = to,
        }
        self.dispatch(now_ps);
    }

    /// A processor that has another next event than before, with that event's time and change; to be asked until there is none.
    pub(crate) fn poll_changed(&mut self) -> Option<(usize, Ps, u64)> {
        while let Some(at) = self.changed.pop() {
            let processor = &self.processors[at];
            let Some(thread) = processor.running else { continue };
            let done_ps = self.threads[thread].left_ps.map(|left_ps| processor.since_ps.saturating_add(left_ps));
            let others = &self.ready[usize::from(self.threads[thread].current)];
            let turn_ps = (!others.is_empty()).then_some(processor.turn_ends_ps);
            let next_ps = match (done_ps, turn_ps) {
                (Some(done_ps), Some(turn_ps)) => done_ps.min(turn_ps),
                (Some(one_ps), None) | (None, Some(one_ps)) => one_ps,
                (None, None) => continue,
            };
            return Some((at, next_ps, processor.change));
        }
        None
    }

    /// A thread that polls and has come onto a processor, or polls anew; to be asked until there is none.
    pub(crate) fn poll_polling(&mut self) -> Option<ThreadId> {
        while let Some(thread) = self.polling.pop() {
            if self.is_polling(thread) {
                return Some(thread);
            }
        }
        None
    }

    /// The time of an event that [`poll_changed`](Self::poll_changed) gave has come.
    pub(crate) fn handle(&mut self, now_ps: Ps, at: usize, change: u64) -> Happened {
        if self.processors[at].change != change {
            return Happened::Nothing;
        }
        let Some(thread) = self.processors[at].running else { return Happened::Nothing };
        self.account(now_ps, at);
        if self.threads[thread].left_ps == Some(0) {
            return Happened::Done(thread);
        }
        // Its turn is over.
        let priority = usize::from(self.threads[thread].current);
        if self.ready[priority].is_empty() {
            self.change(at);
        } else {
            self.take_off(at);
            self.make_ready(now_ps, thread, false);
            self.dispatch(now_ps);
        }
        Happened::Nothing
    }

    fn change(&mut self, at: usize) {
        self.processors[at].change += 1;
        self.changed.push(at);
    }

    /// Accounts for what the thread of a processor has done up to now.
    fn account(&mut self, now_ps: Ps, at: usize) {
        let processor = &mut self.processors[at];
        let done_ps = now_ps.saturating_sub(processor.since_ps);
        processor.since_ps = processor.since_ps.max(now_ps);
        if let Some(thread) = processor.running {
            let thread = &mut self.threads[thread];
            thread.used_ps += done_ps;
            if let Some(left_ps) = &mut thread.left_ps {
                *left_ps = left_ps.saturating_sub(done_ps);
            }
        }
    }

    fn take_off(&mut self, at: usize) {
        self.processors[at].last = self.processors[at].running.take();
        self.change(at);
    }

    fn make_ready(&mut self, now_ps: Ps, thread: ThreadId, first: bool) {
        self.threads[thread].turn = Turn::Ready;
        let queue = &mut self.ready[usize::from(self.threads[thread].current)];
        if first {
            queue.push_front(thread)
        } else {
            queue.push_back(thread)
        }
        // Others of its priority have turns from now on.
        for at in 0..self.processors.len() {
            let ends_ps = self.processors[at].turn_ends_ps;
            if ends_ps <= now_ps {
                // It has had whole turns, one after the other, since nobody else wanted one.
                let over_ps = (now_ps - ends_ps) % self.turn_ps;
                self.processors[at].turn_ends_ps = now_ps + self.turn_ps - over_ps;
            }
            self.change(at);
        }
    }

    fn unready(&mut self, thread: ThreadId) {
        for queue in &mut self.ready {
            queue.retain(|other| *other != thread);
        }
    }

    /// Puts ready threads onto processors that are idle, or that run a thread of a lower priority.
    fn dispatch(&mut self, now_ps: Ps) {
        while let Some(thread) = self.ready.iter().rev().find_map(|queue| queue.front().copied()) {
            let wanted = self.threads[thread].current;
            let rank = |at: &usize| {
                let running = self.processors[*at].running;
                running.map_or(-1, |running| i16::from(self.threads[running].current))
            };
            // Where it ran last, if there is a choice.
            let prefers = |at: &usize| (rank(at), self.processors[*at].last != Some(thread));
            let Some(at) = (0..self.processors.len()).min_by_key(prefers) else { return };
            if rank(&at) >= i16::from(wanted) {
                return;
            }
            if let Some(running) = self.processors[at].running {
                self.account(now_ps, at);
                self.take_off(at);
                // It goes on before others of its priority.
                self.make_ready(now_ps, running, true);
            }
            self.ready[usize::from(wanted)].pop_front();
            let processor = &mut self.processors[at];
            let switch_ps = if processor.last == Some(thread) { 0 } else { self.switch_ps };
            processor.running = Some(thread);
            processor.since_ps = now_ps + switch_ps;
            processor.turn_ends_ps = processor.since_ps + self.turn_ps;
            self.threads[thread].turn = Turn::Running(at);
            self.change(at);
            if self.threads[thread].left_ps.is_none() {
                self.polling.push(thread);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs until nothing happens any more; gives what was done when.
    fn run(processors: &mut Processors) -> Vec<(Ps, ThreadId)> {
        let mut events = Vec::new();
        let mut done = Vec::new();
        loop {
            while let Some((at, time_ps, change)) = processors.poll_changed() {
                events.push((time_ps, at, change));
            }
            events.sort_by_key(|&(time_ps, ..)| std::cmp::Reverse(time_ps));
            let Some((time_ps, at, change)) = events.pop() else { return done };
            if let Happened::Done(thread) = processors.handle(time_ps, at, change) {
                done.push((time_ps, thread));
                processors.sleep(time_ps, thread);
            }
        }
    }

    #[test]
    fn a_higher_priority_interrupts_and_the_interrupted_goes_on_with_what_is_left() {
        let mut processors = Processors::new(1, 10, 1000);
        let (low, high) = (processors.add(1), processors.add(2));
        processors.work(0, low, 100);
        processors.work(50, high, 30);
        // Low: a switch, 40 up to 50; high: a switch and 30, up to 90; low: a switch and 60.
        assert_eq!(run(&mut processors), [(90, high), (160, low)]);
        assert_eq!(processors.used_ps(160, low), 100);
    }

    #[test]
    fn threads_of_one_priority_take_turns() {
        let mut processors = Processors::new(1, 0, 100);
        let (one, other) = (processors.add(5), processors.add(5));
        processors.work(0, one, 250);
        processors.work(0, other, 150);
        // 0-100 one, 100-200 other, 200-300 one, 300-350 other, 350-400 one.
        assert_eq!(run(&mut processors), [(350, other), (400, one)]);
    }

    #[test]
    fn two_processors_run_two_threads_at_once_and_a_third_waits_for_a_turn() {
        let mut processors = Processors::new(2, 0, 1000);
        let threads: Vec<_> = (0..3).map(|_| processors.add(5)).collect();
        for &thread in &threads {
            processors.work(0, thread, 100);
        }
        assert!(processors.is_crowded());
        let done = run(&mut processors);
        assert_eq!(done, [(100, 0), (100, 1), (200, 2)]);
    }

    #[test]
    fn a_thread_that_polls_runs_only_while_no_higher_one_wants_to() {
        let mut processors = Processors::new(1, 5, 100);
        let (poller, other) = (processors.add(1), processors.add(8));
        processors.poll(0, poller);
        assert_eq!(processors.poll_polling(), Some(poller));
        processors.work(20, other, 100);
        assert!(!processors.is_polling(poller));
        assert_eq!(run(&mut processors), [(125, other)]);
        assert_eq!(processors.poll_polling(), Some(poller));
        // 15 before it was interrupted.
        assert_eq!(processors.used_ps(125, poller), 15);
    }

    #[test]
    fn a_boost_keeps_others_away_until_it_ends() {
        let mut processors = Processors::new(1, 0, 100);
        let (poller, other) = (processors.add(1), processors.add(8));
        processors.work(0, poller, 50);
        processors.boost(0, poller, Some(15));
        processors.work(10, other, 20);
        assert_eq!(run(&mut processors), [(50, poller), (70, other)]);
    }
}
