//! A walk over an uneven tree that is known only as it is walked, with work stealing.
//!
//! A node is a number, from which the number of its children and theirs follow: a binomial tree, as in Olivier et al., "UTS: An Unbalanced
//! Tree Search Benchmark", LCPC 2006. A worker walks depth first on a stack of its own and moves the oldest nodes of a long one into
//! its deque in shared memory, under that deque's lock; a worker without nodes takes them back from there, then from others' deques.
//! The walk is over when all workers are idle: a worker stops being idle before it looks for nodes to steal, and starts when its own
//! stack and deque are empty.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use clap::Args;
use serde_json::{Value, json};

use crate::crew::{Crew, Worker};
use crate::error::{Failure, ensure};
use crate::phase::Words;
use crate::program::Program;
use crate::random::mix;

/// Nodes that move between a stack and a deque at once.
const CHUNK: usize = 64;
/// Most chunks of a deque.
const CHUNKS: usize = 16;
/// Children of a node that has any.
const CHILDREN: u64 = 8;
/// How many of 2^16 nodes have children: a node has 0.998 on average, so that a small tree hangs on one root and a huge one on another.
const FERTILE: u64 = (0.998 * 65536.0) as u64 / CHILDREN;

/// The tree.
#[derive(Args, Clone, Debug)]
pub struct Tasks {
    /// Subtrees at the root; each has 500 nodes on average, some a million
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub roots: usize,
    /// Which of many trees
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub seed: u64,
}

/// All nodes, as their count and the sum of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    nodes: u64,
    sum: u64,
}

/// Group 0: how many workers are idle, and which was the last to change that, plus one. Group 1 + w: what worker w has walked. Then
/// the head of each worker's deque: its length, and who changed it last, plus one. Then its chunks, a group each: a thief needs one alone.
pub struct Memory<'c>(Words<'c>);

const IDLE_LOCK: u32 = 0;
/// Words of the head of a deque.
const HEAD: usize = 2;
const MAX_ROOTS: usize = 1 << 30;

/// The children of a node.
fn children(node: u64) -> impl Iterator<Item = u64> {
    let count = if node >> 48 < FERTILE { CHILDREN } else { 0 };
    (1..=count).map(move |child| mix(node ^ child))
}

impl Tasks {
    fn root(&self, root: usize) -> u64 {
        mix(mix(self.seed) ^ root as u64)
    }
}

/// One worker's view of the memory.
struct Walk<'w> {
    worker: &'w Worker<'w>,
    words: &'w Words<'w>,
}

impl Walk<'_> {
    /// Changes the number of idle workers; gives the number then.
    fn idle(&self, by: i64) -> Result<u64, Failure> {
        self.worker.locked(IDLE_LOCK, || {
            let idle = &self.words[0];
            if by != 0 {
                self.note_last(&idle[1], 16);
            }
            idle[0].store(idle[0].load(Relaxed).wrapping_add_signed(by), Relaxed);
            idle[0].load(Relaxed)
        })
    }

    /// Counts `bytes`, unless this worker wrote what it read itself, and writes it now.
    fn note_last(&self, last: &AtomicU64, bytes: u64) {
        let me = self.worker.id() as u64 + 1;
        if last.load(Relaxed) != me {
            self.worker.note_must_move(bytes);
            last.store(me, Relaxed);
        }
    }

    /// Runs `with` on the head of the deque of worker `owner`, under its lock.
    fn deque<R>(&self, owner: usize, with: impl FnOnce(&[AtomicU64]) -> R) -> Result<R, Failure> {
        let head = &self.words[1 + self.worker.count() + owner];
        self.worker.locked(1 + owner as u32, || with(head))
    }

    /// The chunk of that deque which begins behind so many nodes.
    fn chunk(&self, owner: usize, length: usize) -> &[AtomicU64] {
        &self.words[1 + 2 * self.worker.count() + owner * CHUNKS + length / CHUNK]
    }

    /// Moves the oldest nodes of a stack to this worker's deque, if it has room.
    fn give(&self, stack: &mut VecDeque<u64>) -> Result<(), Failure> {
        let me = self.worker.id();
        self.deque(me, |deque| {
            let length = deque[0].load(Relaxed) as usize;
            if length == CHUNKS * CHUNK {
                return;
            }
            self.note_last(&deque[1], 16);
            for (slot, node) in self.chunk(me, length).iter().zip(stack.drain(..CHUNK)) {
                slot.store(node, Relaxed);
            }
            deque[0].store((length + CHUNK) as u64, Relaxed);
        })
    }

    /// Moves a chunk of the deque of `owner`, the last put there, to a stack. False: it is empty.
    fn take(&self, owner: usize, stack: &mut VecDeque<u64>) -> Result<bool, Failure> {
        self.deque(owner, |deque| {
            let Some(length) = (deque[0].load(Relaxed) as usize).checked_sub(CHUNK) else { return false };
            let nodes = if owner == self.worker.id() { 0 } else { CHUNK };
            self.note_last(&deque[1], 16);
            self.worker.note_must_move(8 * nodes as u64);
            stack.extend(self.chunk(owner, length).iter().map(|node| node.load(Relaxed)));
            deque[0].store(length as u64, Relaxed);
            true
        })
    }

    /// Takes nodes from any deque. False: the walk is over.
    fn steal(&self, stack: &mut VecDeque<u64>) -> Result<bool, Failure> {
        let (me, count) = (self.worker.id(), self.worker.count());
        if self.take(me, stack)? {
            return Ok(true);
        }
        let mut idle = self.idle(1)?;
        while idle < count as u64 {
            for victim in (me + 1..me + count).map(|other| other % count) {
                if self.deque(victim, |deque| deque[0].load(Relaxed))? > 0 {
                    self.idle(-1)?;
                    if self.take(victim, stack)? {
                        return Ok(true);
                    }
                    self.idle(1)?;
                }
            }
            std::thread::yield_now();
            idle = self.idle(0)?;
        }
        Ok(false)
    }
}

impl Program for Tasks {
    type Memory<'c> = Memory<'c>;
    type Outcome = Walked;

    fn name(&self) -> &'static str {
        "tasks"
    }

    fn check(&self) -> Result<(), Failure> {
        let roots = self.roots;
        match roots {
            1..=MAX_ROOTS => Ok(()),
            _ => Err(Failure::Input(format!("--roots {roots}: must be between 1 and {MAX_ROOTS}"))),
        }
    }

    fn problem(&self) -> String {
        format!("every node of {} uneven trees, seed {}", self.roots, self.seed)
    }

    fn fields(&self) -> Value {
        json!({"roots": self.roots, "seed": self.seed})
    }

    fn shared_bytes(&self, workers: usize) -> u64 {
        (8 * workers * (HEAD + CHUNKS * CHUNK)) as u64
    }

    fn layout<'c>(&self, crew: &'c Crew) -> Result<Memory<'c>, Failure> {
        let own = |length| (0..crew.workers()).map(move |worker| (length, worker));
        let chunks = (0..crew.workers() * CHUNKS).map(|chunk| (CHUNK, chunk / CHUNKS));
        Ok(Memory(crew.words([(2, 0)].into_iter().chain(own(2)).chain(own(HEAD)).chain(chunks))?))
    }

    fn prepare(&self, worker: &Worker<'_>, Memory(words): &Memory<'_>) -> Result<(), Failure> {
        let clear = |group: usize| words[group][..2].iter().for_each(|word| word.store(0, Relaxed));
        if worker.id() == 0 {
            clear(0);
        }
        clear(1 + worker.count() + worker.id());
        Ok(())
    }

    fn work(&self, worker: &Worker<'_>, Memory(words): &Memory<'_>) -> Result<(), Failure> {
        let walk = Walk { worker, words };
        let mut stack = VecDeque::new();
        if worker.id() == 0 {
            stack.extend((0..self.roots).map(|root| self.root(root)));
        }
        let mut walked = Walked::default();
        loop {
            while let Some(node) = stack.pop_back() {
                walked = Walked { nodes: walked.nodes + 1, sum: walked.sum.wrapping_add(node) };
                let before = stack.len() / CHUNK;
                stack.extend(children(node));
                // Not at each node that comes while the deque is full.
                if stack.len() / CHUNK > before.max(1) {
                    walk.give(&mut stack)?;
                }
            }
            if !walk.steal(&mut stack)? {
                break;
            }
        }
        let mine = &words[1 + worker.id()];
        mine[0].store(walked.nodes, Relaxed);
        mine[1].store(walked.sum, Relaxed);
        Ok(())
    }

    fn collect(&self, Memory(words): &Memory<'_>) -> Walked {
        let workers = (words.count() - 1) / (2 + CHUNKS);
        (1..=workers).fold(Walked::default(), |all, group| {
            let [nodes, sum] = [0, 1].map(|at| words[group][at].load(Relaxed));
            Walked { nodes: all.nodes + nodes, sum: all.sum.wrapping_add(sum) }
        })
    }

    fn verify(&self, walked: &Walked) -> Result<(), Failure> {
        ensure(walked.nodes >= self.roots as u64, || format!("{} nodes are fewer than the roots", walked.nodes))
    }

    fn compare(&self, walked: &Walked, sequential: &Walked) -> Result<(), Failure> {
        ensure(walked == sequential, || format!("walked {walked:?}, the sequential run {sequential:?}"))
    }

    fn describe(&self, walked: &Walked) -> Vec<String> {
        vec![format!("{} nodes", walked.nodes)]
    }

    fn outcome_fields(&self, walked: &Walked) -> Value {
        json!({"nodes": walked.nodes})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::solve;

    #[test]
    fn any_number_of_workers_walks_every_node_once() {
        for (roots, seed) in [(1, 1), (300, 2), (2000, 3)] {
            let tasks = Tasks { roots, seed };
            let mut expected = Walked::default();
            let mut left: Vec<u64> = (0..roots).map(|root| tasks.root(root)).collect();
            while let Some(node) = left.pop() {
                expected = Walked { nodes: expected.nodes + 1, sum: expected.sum.wrapping_add(node) };
                left.extend(children(node));
            }
            for workers in [1, 2, 4, 7] {
                let walked = solve(&tasks, &Crew::plain(workers)).unwrap();
                tasks.verify(&walked).unwrap();
                tasks.compare(&walked, &expected).unwrap();
            }
        }
    }

    #[test]
    fn trees_are_uneven() {
        let sizes: Vec<u64> =
            (0..50).map(|seed| solve(&Tasks { roots: 1, seed }, &Crew::plain(1)).unwrap().nodes).collect();
        assert!(sizes.contains(&1) && sizes.iter().any(|&nodes| nodes > 100), "{sizes:?}");
    }

    #[test]
    fn work_that_is_stolen_must_move() {
        let crew = Crew::plain(2);
        let walked = solve(&Tasks { roots: 20_000, seed: 1 }, &crew).unwrap();
        assert!(walked.nodes > 20_000);
        let bytes = crew.traffic().must_move_bytes;
        // The last worker to become idle learns of it from the other.
        assert!(bytes > 0 && bytes < 8 * walked.nodes, "{bytes}");
    }

    #[test]
    fn no_root_is_refused_and_a_lost_node_found() {
        assert_eq!(Tasks { roots: 0, seed: 1 }.check().unwrap_err().exit_code(), 2);
        let tasks = Tasks { roots: 10, seed: 1 };
        let right = solve(&tasks, &Crew::plain(1)).unwrap();
        let lost = Walked { nodes: right.nodes - 1, ..right };
        assert!(tasks.compare(&lost, &right).is_err());
        assert!(tasks.verify(&Walked { nodes: 9, sum: 0 }).is_err());
    }
}
