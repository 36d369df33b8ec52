//! A crew: the workers of one run, and their shared memory, barrier and locks.
//!
//! The same program runs over either kind. In a *plain* crew the workers are threads of one process (one thread: the sequential run). In a
//! *joined* crew they are the threads of every rank of a mapwire job. Workers are numbered through all ranks: those of rank 0 first.

mod barrier;
mod joined;
mod plain;
mod traffic;

use joined::Joined;
use plain::Plain;
pub use traffic::Traffic;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mapwire::{Node, WaitStrategy};

use crate::error::{Failure, show_bytes, while_doing};
use crate::phase::{BlockShape, Blocks, Element, Words};

/// The workers of one run and their shared state.
pub struct Crew {
    rank: usize,
    ranks: usize,
    threads: usize,
    /// Whether waiting workers sleep at once, because `MAPWIRE_WAIT=event`.
    sleeps: bool,
    must_move_bytes: AtomicU64,
    kind: Kind,
}

/// What carries the workers.
enum Kind {
    /// Threads of this process.
    Plain(Plain),
    /// Threads of all ranks of a mapwire job.
    Joined(Joined),
}

impl Crew {
    /// Threads of this process, 1 for the sequential run, that spin in barriers while each can have a processor.
    pub fn plain(threads: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::of_threads(threads, threads <= processors)
    }

    /// As [`plain`](Self::plain), with workers that sleep at once in barriers (by futexes).
    pub fn sleeping(threads: usize) -> Self {
        Self::of_threads(threads, false)
    }

    fn of_threads(threads: usize, spins: bool) -> Self {
        Self {
            rank: 0,
            ranks: 1,
            threads,
            sleeps: false,
            must_move_bytes: AtomicU64::new(0),
            kind: Kind::Plain(Plain::new(threads, spins)),
        }
    }

    /// The crew of this process's job, with `threads` workers in each rank. Collective.
    pub fn join(threads: usize) -> Result<Self, Failure> {
        let node = Node::join().map_err(while_doing("joining the job"))?;
        Ok(Self {
            rank: node.rank(),
            ranks: node.size(),
            threads,
            sleeps: node.config().driver.wait == WaitStrategy::Event,
            must_move_bytes: AtomicU64::new(0),
            kind: Kind::Joined(Joined::new(&node, threads)?),
        })
    }

    /// Refuses a problem that takes more than the shared memory of the job, `bytes` in total.
    pub fn ensure_room(&self, bytes: u64) -> Result<(), Failure> {
        let room = match &self.kind {
            Kind::Plain(_) => return Ok(()),
            Kind::Joined(joined) => joined.room(),
        };
        if bytes <= room {
            return Ok(());
        }
        Err(Failure::Input(format!(
            "the problem takes {} of shared memory and the job has {}: make it smaller, or the memory larger \
             (MAPWIRE_SHARED, or mapwire run --shared)",
            show_bytes(bytes),
            show_bytes(room)
        )))
    }

    /// Ends the crew; a job's ranks wait for each other.
    pub fn leave(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Plain(_) => Ok(()),
            Kind::Joined(joined) => joined.leave(),
        }
    }

    /// Kind of the crew: `sequential`, `threads` or `mapwire`.
    pub fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Plain(_) if self.threads == 1 => "sequential",
            Kind::Plain(_) => "threads",
            Kind::Joined(_) => "mapwire",
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Whether waiting workers sleep at once.
    pub fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// Number of workers in each rank.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Number of workers in all ranks.
    pub fn workers(&self) -> usize {
        self.ranks * self.threads
    }

    /// The rank in which worker `worker` runs.
    pub fn rank_of(&self, worker: usize) -> usize {
        worker / self.threads
    }

    /// Zeroed blocks; block `i` has `lengths[i]` elements and begins in the rank of worker `owners[i]`. Every rank calls it, with
    /// the same shapes in the same order, before its workers run.
    pub fn blocks<T: Element>(
        &self,
        shapes: impl IntoIterator<Item = (usize, usize)>,
    ) -> Result<Blocks<'_, T>, Failure> {
        let shapes: Vec<_> =
            shapes.into_iter().map(|(length, worker)| BlockShape { length, owner: self.rank_of(worker) }).collect();
        match &self.kind {
            Kind::Plain(_) => Ok(Blocks::plain(&shapes)),
            Kind::Joined(joined) => {
                Blocks::shared(joined.shared(), &shapes).map_err(while_doing("laying out shared memory"))
            }
        }
    }

    /// Zeroed blocks of `lengths` elements that lie one after another: neighbours share pages and cache lines. Otherwise as
    /// [`Crew::blocks`].
    pub fn adjacent<T: Element>(&self, lengths: &[usize]) -> Result<Blocks<'_, T>, Failure> {
        match &self.kind {
            Kind::Plain(_) => Ok(Blocks::plain_adjacent(lengths)),
            Kind::Joined(joined) => {
                Blocks::shared_adjacent(joined.shared(), lengths).map_err(while_doing("laying out shared memory"))
            }
        }
    }

    /// As [`Crew::blocks`], of words that are shared at all times.
    pub fn words(&self, shapes: impl IntoIterator<Item = (usize, usize)>) -> Result<Words<'_>, Failure> {
        Ok(Words::from(self.blocks::<u64>(shapes)?))
    }

    /// Runs `work` in every worker of this rank and waits for them all. The first failure is returned.
    pub fn run<F>(&self, work: F) -> Result<(), Failure>
    where
        F: Fn(&Worker<'_>) -> Result<(), Failure> + Sync,
    {
        let first = self.rank * self.threads;
        let work = &work;
        let run = |id: usize| {
            let _guard = EndOfWork { crew: self };
            work(&Worker { id, crew: self })
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (first + 1..first + self.threads).map(|id| scope.spawn(move || run(id))).collect();
            let mut result = run(first);
            for other in others {
                match other.join() {
                    Ok(theirs) => result = result.and(theirs),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            result
        })
    }

    /// Runs `alone` in rank 0 while the workers of the other ranks sleep; they return `None`.
    pub fn alone<R>(&self, alone: impl FnOnce() -> Result<R, Failure>) -> Result<Option<R>, Failure> {
        match &self.kind {
            Kind::Plain(_) => alone().map(Some),
            Kind::Joined(joined) => joined.alone(alone),
        }
    }

    /// Traffic of this rank so far.
    pub fn traffic(&self) -> Traffic {
        let moved = match &self.kind {
            Kind::Plain(_) => Traffic::default(),
            Kind::Joined(joined) => joined.traffic(),
        };
        Traffic { must_move_bytes: self.must_move_bytes.load(Ordering::Relaxed), ..moved }
    }

    /// Gathers each rank's `mine` in rank 0, by rank; the other ranks get nothing.
    pub fn gather(&self, mine: Traffic) -> Result<Vec<Traffic>, Failure> {
        match &self.kind {
            Kind::Plain(_) => Ok(vec![mine]),
            Kind::Joined(joined) => joined.gather(mine),
        }
    }
}

/// Exit code of a panic in a main thread.
const PANIC_EXIT_CODE: i32 = 101;

/// Informs the others when a worker unwinds, so that none waits for it for ever.
struct EndOfWork<'c> {
    crew: &'c Crew,
}

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            match &self.crew.kind {
                Kind::Plain(plain) => plain.give_up(),
                // Threads of this rank may wait in a barrier of the job, which only its end can break.
                Kind::Joined(_) => std::process::exit(PANIC_EXIT_CODE),
            }
        }
    }
}

/// A worker's view of its crew.
pub struct Worker<'c> {
    id: usize,
    crew: &'c Crew,
}

impl Worker<'_> {
    /// Its number, from 0, through all ranks.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Number of workers in the crew.
    pub fn count(&self) -> usize {
        self.crew.workers()
    }

    /// Whether it is the first worker of its rank.
    pub fn leads_its_rank(&self) -> bool {
        self.id.is_multiple_of(self.crew.threads)
    }

    /// Returns when every worker of the crew has called it; what each wrote before, all see after.
    pub fn barrier(&self) -> Result<(), Failure> {
        match &self.crew.kind {
            Kind::Plain(plain) => {
                plain.barrier();
                Ok(())
            }
            Kind::Joined(joined) => joined.barrier(),
        }
    }

    /// Runs `critical` while no other worker of the crew runs one under lock `id`.
    pub fn locked<R>(&self, id: u32, critical: impl FnOnce() -> R) -> Result<R, Failure> {
        match &self.crew.kind {
            Kind::Plain(plain) => {
                let _held = plain.lock(id);
                Ok(critical())
            }
            Kind::Joined(joined) => {
                let _held = joined.lock(id)?;
                Ok(critical())
            }
        }
    }

    /// Counts bytes that this worker reads, or lets others read, and that were written by another than the reader.
    pub fn note_must_move(&self, bytes: u64) {
        if bytes > 0 {
            self.crew.must_move_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// This worker's part of `0..total`, cut into runs whose lengths differ by at most one.
    pub fn share_of(&self, total: usize) -> std::ops::Range<usize> {
        share_of(total, self.id, self.count())
    }
}

/// The part of `0..total` that belongs to worker `worker` of `count`: runs in order, lengths differing by at most one.
pub fn share_of(total: usize, worker: usize, count: usize) -> std::ops::Range<usize> {
    total * worker / count..total * (worker + 1) / count
}

/// The worker of `count` whose share of `total` contains `item`.
pub fn sharer_of(item: usize, total: usize, count: usize) -> usize {
    ((item + 1) * count - 1) / total
}

/// A moment, with the traffic so far.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: Instant,
    traffic: Traffic,
}

impl Mark {
    pub fn now(crew: &Crew) -> Self {
        Self { at: Instant::now(), traffic: crew.traffic() }
    }

    /// Seconds and traffic from `self` to `later`.
    pub fn until(self, later: Self) -> (f64, Traffic) {
        (later.at.duration_since(self.at).as_secs_f64(), later.traffic.since(self.traffic))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_cover_all_in_order_and_differ_by_at_most_one(total in 1usize..5000, count in 1usize..70) {
            let mut next = 0;
            for worker in 0..count {
                let share = share_of(total, worker, count);
                prop_assert_eq!(share.start, next);
                prop_assert!(share.len() >= total / count && share.len() <= total.div_ceil(count));
                for item in share.clone() {
                    prop_assert_eq!(sharer_of(item, total, count), worker);
                }
                next = share.end;
            }
            prop_assert_eq!(next, total);
        }
    }

    #[test]
    fn a_lock_admits_one_worker_at_a_time() {
        let crew = Crew::plain(4);
        let words = crew.words([(1, 0)]).unwrap();
        crew.run(|worker| {
            for _ in 0..500 {
                worker.locked(3, || {
                    let seen = words[0][0].load(Relaxed);
                    std::hint::black_box(());
                    words[0][0].store(seen + 1, Relaxed);
                })?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(words[0][0].load(Relaxed), 2000);
    }

    #[test]
    fn writes_before_a_barrier_are_seen_after_it() {
        let crew = Crew::plain(3);
        let blocks = crew.blocks::<u32>((0..3).map(|w| (5, w))).unwrap();
        crew.run(|worker| {
            for round in 1..200u32 {
                blocks[worker.id()].write().fill(round);
                worker.barrier()?;
                let next = (worker.id() + 1) % 3;
                assert_eq!(&blocks[next].read()[..], [round; 5]);
                worker.barrier()?;
            }
            Ok(())
        })
        .unwrap();
    }

    #[test]
    #[should_panic]
    fn a_panic_in_one_worker_ends_the_others_too() {
        let crew = Crew::plain(3);
        let _ = crew.run(|worker| {
            assert_ne!(worker.id(), 1, "this worker fails");
            worker.barrier()
        });
    }

    #[test]
    fn the_first_failure_of_any_worker_is_returned() {
        let crew = Crew::plain(2);
        let result = crew.run(|worker| match worker.id() {
            1 => Err(Failure::Differs("worker 1".into())),
            _ => Ok(()),
        });
        assert!(matches!(result, Err(Failure::Differs(_))));
    }
}
