//! Random phases between barriers, in each of which a page is overwritten as a whole by one rank, written by all in parts, or only read:
//! with pages fetched ahead, locks between, and homes that move and are alone.

use std::collections::VecDeque;

use mapwire_dsm::{Access, AllocOptions, Config, Counters, Outcome, Progress, Protocol};

use crate::random::Random;
use crate::world::{PAGE, World};

const PARTS: usize = 4;

#[derive(Debug, Clone, Copy)]
enum Step {
    Overwrite(usize),
    Store { at: usize, count: usize, value: u8 },
    Check(usize),
    Prefetch(usize, Access),
    Lock(u32),
    Unlock(u32),
    Barrier,
}

struct Job {
    world: World,
    /// Steps of each rank, and whether it waits.
    ranks: Vec<(VecDeque<Step>, bool)>,
    pages: Vec<usize>,
    /// What the memory holds.
    expected: Vec<u8>,
}

impl Job {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let ranks = 2 + random.below(4) as u16;
        let config = Config {
            protocol: Protocol::Hlrc,
            locks: 2,
            barriers: 2,
            chunk_pages: 1,
            twins: 4 + [0, 20][random.below(2) as usize],
            notices: 128 + 4 * u32::from(ranks) + [0, 500][random.below(2) as usize],
            home_moves_after: random.below(4) as u16,
            ..Config::new(0, ranks, 1, 64, 1)
        };
        let delay_ns = [100, 20_000][random.below(2) as usize];
        let mut world = World::new(config, delay_ns, random);
        let mut pages = Vec::new();
        for _ in 0..1 + world.random.below(6) {
            let (rank, count) = (world.random.below(ranks.into()) as u16, 1 + world.random.below(4));
            let home = world.random.chance(25).then(|| world.random.below(ranks.into()) as u16);
            let options = AllocOptions { home, ..AllocOptions::default() };
            world.rank(rank).dsm.alloc_with(0, count * PAGE as u64, options).unwrap();
            world.settle();
            let Some(Outcome::Allocated(address)) = world.outcome(rank, 0) else { panic!("nothing allocated") };
            pages.extend((0..count).map(|page| address.offset_bytes as usize / PAGE + page as usize));
        }
        let ranks = vec![(VecDeque::new(), false); usize::from(ranks)];
        Job { expected: vec![0; 64 * PAGE], ranks, pages, world }
    }

    /// Decides what all do in a phase, and what the memory holds after it.
    fn plan(&mut self, value: u8) {
        let count = self.ranks.len();
        let mut plans: Vec<Vec<Vec<Step>>> = vec![Vec::new(); count];
        let random = &mut self.world.random;
        for &page in &self.pages {
            let (start, part) = (page * PAGE, PAGE / PARTS);
            let whole = (0..PARTS).map(|at| Step::Store { at: start + at * part, count: part, value });
            match random.below(4) {
                0 => {
                    let mut steps: Vec<Step> = whole.collect();
                    if random.chance(70) {
                        steps.insert(0, Step::Overwrite(page));
                    }
                    plans[random.below(count as u64) as usize].push(steps);
                    self.expected[start..start + PAGE].fill(value);
                }
                1 => {
                    for (rank, plan) in plans.iter_mut().enumerate() {
                        if random.chance(60) {
                            let at = start + 100 * rank;
                            plan.push(vec![Step::Store { at, count: 60, value }]);
                            self.expected[at..at + 60].fill(value);
                        }
                    }
                }
                _ => {
                    let readers = plans.iter_mut().filter(|_| random.chance(50)).collect::<Vec<_>>();
                    readers.into_iter().for_each(|plan| plan.push(vec![Step::Check(page)]));
                }
            }
        }
        for (plan, (steps, _)) in plans.iter_mut().zip(&mut self.ranks) {
            for _ in 0..random.below(5) {
                let page = self.pages[random.below(self.pages.len() as u64) as usize];
                let access = if random.chance(50) { Access::Read } else { Access::Write };
                plan.push(vec![Step::Prefetch(page, access)]);
            }
            for _ in 0..random.below(3) {
                let lock = random.below(2) as u32;
                plan.push(vec![Step::Lock(lock), Step::Unlock(lock)]);
            }
            while !plan.is_empty() {
                steps.extend(plan.swap_remove(random.below(plan.len() as u64) as usize));
            }
            steps.push_back(Step::Barrier);
        }
    }

    /// A step of a rank; it is done again if it must wait for a page.
    fn step(&mut self, rank: usize) {
        let Some(&step) = self.ranks[rank].0.front() else { return };
        let now_ns = self.world.now_ns;
        let machine = &mut self.world.ranks[rank];
        let dsm = &mut machine.dsm;
        let touched = match step {
            Step::Store { at, .. } => Some((at / PAGE, Access::Write)),
            Step::Check(page) => Some((page, Access::Read)),
            _ => None,
        };
        let waits = match (touched, step) {
            (Some((page, access)), _) if !machine.protections[page].allows(access) => {
                self.ranks[rank].1 = dsm.handle_fault(now_ns, 0, 0, page as u64, access).unwrap() == Progress::Pending;
                return self.world.drain(rank as u16);
            }
            (_, Step::Store { at, count, value }) => {
                machine.memory[at..at + count].fill(value);
                false
            }
            (_, Step::Check(page)) => {
                let bytes = page * PAGE..(page + 1) * PAGE;
                let wrong = bytes.clone().find(|&at| machine.memory[at] != self.expected[at]);
                assert_eq!(wrong.map(|at| (at, machine.memory[at], self.expected[at])), None, "rank {rank}");
                false
            }
            (_, Step::Overwrite(page)) => {
                dsm.overwrite(now_ns, 0, 0, page as u64).unwrap();
                false
            }
            (_, Step::Prefetch(page, access)) => {
                dsm.prefetch(now_ns, 0, 0, page as u64, access).unwrap();
                false
            }
            (_, Step::Lock(lock)) => dsm.lock(0, lock).unwrap() == Progress::Pending,
            (_, Step::Unlock(lock)) => {
                dsm.unlock(0, lock).unwrap();
                false
            }
            (_, Step::Barrier) => {
                dsm.barrier(0, 1).unwrap();
                true
            }
        };
        self.ranks[rank].0.pop_front();
        self.ranks[rank].1 = waits;
        self.world.drain(rank as u16);
    }

    fn run_phase(&mut self) {
        for _ in 0..2_000_000 {
            let goes_on = |rank: &(VecDeque<Step>, bool)| !rank.1 && !rank.0.is_empty();
            let ready: Vec<usize> = (0..self.ranks.len()).filter(|&rank| goes_on(&self.ranks[rank])).collect();
            let is_stepping = !ready.is_empty() && self.world.random.chance(40);
            if is_stepping {
                let number = self.world.random.below(ready.len() as u64) as usize;
                self.step(ready[number]);
            } else if self.world.next().is_none() && ready.is_empty() {
                assert!(self.ranks.iter().all(|(steps, waits)| steps.is_empty() && !waits), "some wait for ever");
                return;
            }
            while let Some((rank, _, outcome)) = self.world.resumed.pop_front() {
                assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
                self.ranks[usize::from(rank)].1 = false;
            }
        }
        panic!("no end");
    }
}

#[test]
fn after_a_barrier_all_read_what_was_stored_before_also_to_pages_that_were_overwritten() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("MAPWIRE_DSM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MAPWIRE_DSM_SEEDS").unwrap_or(100),
    };
    println!("seeds {seeds:?}; MAPWIRE_DSM_SEED=n repeats one");
    let mut all = Counters::default();
    for seed in seeds.clone() {
        let _seed = Named(seed);
        let mut job = Job::new(seed);
        for phase in 1..12 {
            job.plan(phase);
            job.run_phase();
        }
        all = job.world.ranks.iter().fold(all, |sum, rank| sum + rank.dsm.counters());
    }
    if seeds.count() >= 100 {
        assert!(all.home_moves > 0 && all.diffs > 0 && all.prefetches > 0, "too little happened: {all:?}");
    }
}

/// Says which seed failed.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}
