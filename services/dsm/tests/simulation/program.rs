//! Application threads of a simulated job: a few phases of random work, separated by barriers.

use crate::cluster::Cluster;
use mapwire_dsm::{Access, AllocOptions, Error, Minipage, Outcome, PAGE_BYTES, Progress, Rank, Unit};

#[derive(Debug, Clone)]
pub(crate) struct Thread {
    rank: Rank,
    thread: u16,
    pub(crate) state: ThreadState,
    task: Task,
    phase: u32,
    steps_left: u32,
    /// A fault that was taken but not yet passed to the protocol.
    fault: Option<(u16, u64, Access)>,
}

/// What it waits for, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadState {
    Ready,
    Faulting(Access),
    Wild,
    Locking(u32),
    Allocating { bytes: u64, unit_bytes: u64 },
    Greedy(u64),
    InBarrier(u32),
    InBroadcast(u64),
    Finished,
}

/// The operation that it is carrying out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    None,
    Touch {
        minipage: Minipage,
        offset: u64,
        write: Option<u64>,
    },
    /// Increments a counter under its lock: read, then write, then unlock.
    Count {
        lock: u32,
        minipage: Minipage,
        read: Option<u64>,
    },
    Unlock {
        lock: u32,
    },
    Broadcast,
}

impl Thread {
    pub(crate) fn new(rank: Rank, thread: u16) -> Self {
        Thread { rank, thread, state: ThreadState::Ready, task: Task::None, phase: 0, steps_left: 8, fault: None }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.state == ThreadState::Finished
    }

    /// The driver resumed the thread.
    pub(crate) fn resumed(&mut self, outcome: Outcome) {
        match (self.state, outcome) {
            (ThreadState::Faulting(wanted), Outcome::Served(access)) => assert_eq!(access, wanted),
            (ThreadState::Wild, Outcome::Failed(Error::NotShared { .. }))
            | (ThreadState::Locking(_), Outcome::Locked)
            | (ThreadState::Allocating { .. }, Outcome::Allocated(_))
            | (ThreadState::InBarrier(_), Outcome::Passed) => {}
            (ThreadState::Greedy(bytes), Outcome::Failed(Error::OutOfMemory { asked_bytes, .. })) => {
                assert_eq!(asked_bytes, bytes);
            }
            (ThreadState::InBroadcast(value), Outcome::Value(got)) => assert_eq!(got, value),
            (state, outcome) => panic!("a thread that is {state:?} was resumed with {outcome:?}"),
        }
        self.state = ThreadState::Ready;
    }
}

impl Cluster {
    /// One step of a running thread.
    pub(crate) fn step(&mut self, rank: Rank, thread: u16) {
        let index = self.index(rank, thread);
        assert_eq!(self.threads[index].state, ThreadState::Ready);
        if let Some((view, page, access)) = self.threads[index].fault.take() {
            return self.handle_fault(index, view, page, access);
        }
        match self.threads[index].task {
            Task::None => self.choose(index),
            Task::Touch { minipage, offset, write } => {
                let touched = match write {
                    Some(value) => self.store(rank, minipage, offset, value),
                    None => self.load(rank, minipage, offset).map(|_| ()),
                };
                match touched {
                    Some(()) => self.finish_task(index),
                    None => self.fault(index, minipage, offset, write.is_some()),
                }
            }
            Task::Count { lock, minipage, read: None } => match self.load(rank, minipage, 0) {
                None => self.fault(index, minipage, 0, false),
                read => {
                    self.threads[index].task = Task::Count { lock, minipage, read };
                    self.again(rank, thread);
                }
            },
            Task::Count { lock, minipage, read: Some(value) } => match self.store(rank, minipage, 0, value + 1) {
                None => self.fault(index, minipage, 0, true),
                Some(()) => {
                    self.increments[lock as usize] += 1;
                    self.threads[index].task = Task::Unlock { lock };
                    self.again(rank, thread);
                }
            },
            Task::Unlock { lock } => {
                assert_eq!(self.lock_holders[lock as usize].take(), Some((rank, thread)));
                let dsm = &mut self.machines[usize::from(rank)].dsm;
                dsm.unlock(thread, lock).unwrap();
                assert_eq!(dsm.unlock(thread, lock), Err(Error::LockNotHeld { lock, thread }));
                self.execute(rank);
                self.finish_task(index);
            }
            Task::Broadcast => self.broadcast(index),
        }
    }

    fn finish_task(&mut self, index: usize) {
        let Thread { rank, thread, .. } = self.threads[index];
        self.threads[index].task = Task::None;
        self.again(rank, thread);
    }

    fn fault(&mut self, index: usize, minipage: Minipage, offset: u64, write: bool) {
        let Thread { rank, thread, .. } = self.threads[index];
        let access = if write { Access::Write } else { Access::Read };
        // An access that spans pages may fault on either.
        let page = (minipage.offset_bytes + offset + 7 * self.random.below(2)) / PAGE_BYTES;
        if self.random.chance(30) {
            // The handler waits for the driver; meanwhile another thread may obtain the same right.
            self.threads[index].fault = Some((minipage.view, page, access));
            self.again(rank, thread);
        } else {
            self.handle_fault(index, minipage.view, page, access);
        }
    }

    fn handle_fault(&mut self, index: usize, view: u16, page: u64, access: Access) {
        let Thread { rank, thread, .. } = self.threads[index];
        let now_ns = self.now_ns;
        self.threads[index].state = ThreadState::Faulting(access);
        let dsm = &mut self.machines[usize::from(rank)].dsm;
        let progress = dsm.handle_fault(now_ns, thread, view, page, access).unwrap();
        if self.done(rank, progress) {
            self.threads[index].state = ThreadState::Ready;
            self.again(rank, thread);
        }
    }

    fn choose(&mut self, index: usize) {
        let Thread { rank, thread, steps_left, .. } = self.threads[index];
        if steps_left == 0 {
            return self.barrier(index);
        }
        self.threads[index].steps_left -= 1;
        let dice = self.random.below(100);
        if self.allocations_begun < 2 || dice < 10 && self.allocations_begun < 24 {
            self.allocate(index);
        } else if self.minipages.is_empty() {
            self.again(rank, thread);
        } else if dice < 30 {
            let lock = self.random.below(u64::from(self.shape.locks)) as u32;
            self.lock(index, lock);
        } else if dice < 33 {
            let (view, page) = (self.shape.views - 1, u64::from(self.shape.pages) - 1);
            self.threads[index].state = ThreadState::Wild;
            let now_ns = self.now_ns;
            let dsm = &mut self.machines[usize::from(rank)].dsm;
            let progress = dsm.handle_fault(now_ns, thread, view, page, Access::Read).unwrap();
            assert_eq!(progress, Progress::Pending);
            self.execute(rank);
        } else if dice < 40 {
            self.prefetch(index);
        } else {
            // Some are touched more often than others.
            let few = if self.random.chance(50) { 3 } else { self.minipages.len() as u64 };
            let at = self.random.below(few.min(self.minipages.len() as u64)) as usize;
            let minipage = self.minipages[at];
            if self.counters_at.contains(&minipage) {
                return self.again(rank, thread);
            }
            let offset = self.random.below(minipage.length_bytes - 7);
            let write = self.random.chance(self.shape.write_percent).then(|| self.random.next());
            self.threads[index].task = Task::Touch { minipage, offset, write };
            self.again(rank, thread);
        }
    }

    /// Prefetches a minipage, or a page where none may exist.
    fn prefetch(&mut self, index: usize) {
        let Thread { rank, thread, .. } = self.threads[index];
        let at = self.random.below(self.minipages.len() as u64) as usize;
        let (view, page) = if self.random.chance(90) {
            (self.minipages[at].view, self.minipages[at].first_page())
        } else {
            (0, self.random.below(u64::from(self.shape.pages)))
        };
        let access = if self.random.chance(self.shape.write_percent) { Access::Write } else { Access::Read };
        let now_ns = self.now_ns;
        let dsm = &mut self.machines[usize::from(rank)].dsm;
        dsm.prefetch(now_ns, thread, view, page, access).unwrap();
        self.execute(rank);
        self.again(rank, thread);
    }

    fn allocate(&mut self, index: usize) {
        let Thread { rank, thread, .. } = self.threads[index];
        let bytes = match self.random.below(12) {
            0 | 1 => PAGE_BYTES + self.random.below(3 * PAGE_BYTES),
            2 => PAGE_BYTES,
            3 => 1 << (30 + self.random.below(34)),
            4 | 5 => return self.allocate_rows(index),
            _ => 8 + self.random.below(300),
        };
        let unit = match self.random.below(3) {
            0 => Unit::Auto,
            1 => Unit::Bytes(1 + self.random.below(bytes)),
            _ => Unit::Whole,
        };
        let greedy = bytes > 1 << 20;
        self.threads[index].state = if greedy {
            ThreadState::Greedy(bytes)
        } else {
            self.allocations_begun += 1;
            ThreadState::Allocating { bytes, unit_bytes: unit.of(bytes).unwrap() }
        };
        let dsm = &mut self.machines[usize::from(rank)].dsm;
        dsm.alloc_with(thread, bytes, AllocOptions { unit, ..AllocOptions::default() }).unwrap();
        self.execute(rank);
    }

    fn allocate_rows(&mut self, index: usize) {
        let Thread { rank, thread, .. } = self.threads[index];
        let rows = 1 + self.random.below(5);
        let unit_bytes = 8 + self.random.below(if rows < 3 { 2 * PAGE_BYTES } else { 700 });
        self.allocations_begun += 1;
        self.threads[index].state = ThreadState::Allocating { bytes: rows * unit_bytes, unit_bytes };
        let dsm = &mut self.machines[usize::from(rank)].dsm;
        dsm.alloc_rows(thread, rows, unit_bytes, AllocOptions::default()).unwrap();
        self.execute(rank);
    }

    fn lock(&mut self, index: usize, lock: u32) {
        let Thread { rank, thread, .. } = self.threads[index];
        self.threads[index].task = match self.counters_at.get(lock as usize) {
            Some(&minipage) => Task::Count { lock, minipage, read: None },
            None => Task::Unlock { lock },
        };
        self.threads[index].state = ThreadState::Locking(lock);
        let progress = self.machines[usize::from(rank)].dsm.lock(thread, lock).unwrap();
        if progress == Progress::Done {
            self.take_lock(rank, thread, lock);
            self.threads[index].state = ThreadState::Ready;
            self.again(rank, thread);
        }
        self.execute(rank);
    }

    fn barrier(&mut self, index: usize) {
        let Thread { rank, thread, phase, .. } = self.threads[index];
        if phase == self.shape.phases {
            self.threads[index].state = ThreadState::Finished;
            return;
        }
        self.arrivals[phase as usize] += 1;
        let next = &mut self.threads[index];
        next.state = ThreadState::InBarrier(phase);
        next.phase += 1;
        next.steps_left = if next.phase == self.shape.phases { 0 } else { self.shape.steps };
        next.task = if thread == 0 { Task::Broadcast } else { Task::None };
        self.machines[usize::from(rank)].dsm.barrier(thread, phase % 3).unwrap();
        self.execute(rank);
    }

    fn broadcast(&mut self, index: usize) {
        let Thread { rank, thread, phase, .. } = self.threads[index];
        let root = (phase % u32::from(self.shape.ranks)) as Rank;
        let value = u64::from(phase) << 40 | 0xFEED;
        self.threads[index].task = Task::None;
        self.threads[index].state = ThreadState::InBroadcast(value);
        let mine = if rank == root { value } else { self.random.next() };
        self.machines[usize::from(rank)].dsm.broadcast(thread, root, mine).unwrap();
        self.execute(rank);
    }
}
