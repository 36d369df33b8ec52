//! Random programs, checked at each load.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mapwire_dsm::{Access, Config, Counters, ObjectCall, ObjectKind, Outcome, Progress, Protocol, Verb};

use crate::oracle::{Oracle, join};
use crate::random::Random;
use crate::world::{Event, PAGE, World};

/// Parameters that a seed decides.
#[derive(Debug, Clone, Copy)]
struct Shape {
    config: Config,
    delay_ns: u64,
    think_ns: u64,
    variables: usize,
    phases: u32,
    steps: u32,
    /// Percentage of accesses that are made under the variable's lock.
    locked_percent: u64,
    write_percent: u64,
    /// Locks and barriers are objects of these kinds; `None`: numbered ones.
    lock: Option<ObjectKind>,
    barrier: Option<ObjectKind>,
}

impl Shape {
    fn draw(random: &mut Random) -> Self {
        let (ranks, threads) = (2 + random.below(6) as u16, 1 + random.below(3) as u16);
        let config = Config {
            protocol: Protocol::Hlrc,
            locks: 1 + random.below(4) as u32,
            barriers: 3,
            participants: threads,
            chunk_pages: 1,
            lock_local_passes: random.below(4) as u8,
            twins: 2 * u32::from(threads) + 2 + [0, 0, 20][random.below(3) as usize],
            notices: 128 + 4 * u32::from(ranks) + [0, 500][random.below(2) as usize],
            home_moves_after: random.below(4) as u16,
            finds_races: random.chance(30),
            ..Config::new(0, ranks, threads, 96, 1)
        };
        Shape {
            config,
            delay_ns: [100, 2_000, 20_000][random.below(3) as usize],
            think_ns: [50, 500, 3_000][random.below(3) as usize],
            variables: 1 + random.below(24) as usize,
            phases: 1 + random.below(4) as u32,
            steps: 5 + random.below(60) as u32,
            locked_percent: [0, 50, 100][random.below(3) as usize],
            write_percent: [10, 50, 90][random.below(3) as usize],
            lock: [None, Some(ObjectKind::Mutex), Some(ObjectKind::RwLock), Some(ObjectKind::Once)]
                [random.below(4) as usize],
            barrier: [None, Some(ObjectKind::Flag)][random.below(2) as usize],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Choosing,
    /// Accesses so many variables under that lock; then frees it.
    Locking(u32),
    Locked {
        lock: u32,
        left: u32,
    },
    Touching {
        at: usize,
        store: Option<u8>,
        then: Option<(u32, u32)>,
    },
    Waiting,
    /// It tells a flag that it has arrived; then it waits.
    Arriving,
    /// Its call lets others go on.
    Giving,
    Finished,
}

#[derive(Debug)]
struct Program {
    doing: Doing,
    phase: u32,
    steps_left: u32,
    /// At the end it reads all there is.
    to_read: usize,
}

struct Job {
    shape: Shape,
    world: World,
    oracle: Oracle,
    programs: Vec<Program>,
    /// Where the bytes lie that programs access.
    variables: Vec<usize>,
    /// What the last holder of each lock knew.
    lock_clocks: Vec<Vec<u64>>,
    holders: Vec<Option<usize>>,
    /// For each phase, how many have come to its end, and what they knew.
    arrived: Vec<(usize, Vec<u64>)>,
    loads: u64,
    races: u64,
}

impl Job {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let shape = Shape::draw(&mut random);
        Job::of(shape, random)
    }

    fn of(shape: Shape, random: Random) -> Self {
        let count = usize::from(shape.config.ranks) * usize::from(shape.config.threads);
        let mut world = World::new(shape.config, shape.delay_ns, random);
        let mut variables = Vec::new();
        while variables.len() < shape.variables {
            let rank = world.random.below(shape.config.ranks.into()) as u16;
            let bytes = [1, 3, 100, PAGE as u64, 3 * PAGE as u64][world.random.below(5) as usize];
            let at = world.alloc(rank, bytes);
            // Neighbours, and the last byte.
            variables.extend([at, at + (bytes / 2) as usize, at + bytes as usize - 1]);
        }
        variables.sort_unstable();
        variables.dedup();
        let program = |_| Program { doing: Doing::Choosing, phase: 0, steps_left: shape.steps, to_read: 0 };
        Job {
            oracle: Oracle::new(shape.config.pages as usize * PAGE, count),
            programs: (0..count).map(program).collect(),
            variables,
            lock_clocks: vec![vec![0; count]; shape.config.locks as usize],
            holders: vec![None; shape.config.locks as usize],
            arrived: vec![(0, vec![0; count]); shape.phases as usize + 1],
            loads: 0,
            races: 0,
            world,
            shape,
        }
    }

    fn place(&self, who: usize) -> (u16, u16) {
        let threads = usize::from(self.shape.config.threads);
        ((who / threads) as u16, (who % threads) as u16)
    }

    fn again(&mut self, who: usize) {
        let (rank, thread) = self.place(who);
        self.world.later(self.shape.think_ns, Event::Step { rank, thread });
    }

    fn run(&mut self) -> Counters {
        for who in 0..self.programs.len() {
            self.again(who);
        }
        let mut events = 0;
        while let Some(event) = self.world.next() {
            events += 1;
            assert!(events < 3_000_000, "no end: {:?}", self.programs);
            if let Event::Step { rank, thread } = event {
                let who = usize::from(rank) * usize::from(self.shape.config.threads) + usize::from(thread);
                self.step(who);
                self.world.drain(rank);
            }
            if events % 64 == 0 {
                self.check_races();
            }
            while let Some((rank, thread, outcome)) = self.world.resumed.pop_front() {
                let who = usize::from(rank) * usize::from(self.shape.config.threads) + usize::from(thread);
                self.resumed(who, outcome);
                if self.programs[who].doing != Doing::Waiting {
                    self.again(who);
                }
            }
        }
        self.check_races();
        for (who, program) in self.programs.iter().enumerate() {
            assert_eq!(program.doing, Doing::Finished, "thread {who} waits for ever");
        }
        let counters = self.world.ranks.iter().map(|rank| rank.dsm.counters());
        counters.reduce(|a, b| a + b).unwrap()
    }

    /// What is reported as a race is one.
    fn check_races(&mut self) {
        let threads = usize::from(self.shape.config.threads);
        for rank in &mut self.world.ranks {
            while let Some(race) = rank.dsm.poll_race() {
                self.races += 1;
                let [a, b] = race.ranks.map(usize::from);
                let between = |one: usize, other: usize| {
                    let ranks = (one / threads, other / threads);
                    ranks == (a, b) || ranks == (b, a)
                };
                for at in race.offset_bytes..race.offset_bytes + race.length_bytes {
                    assert!(self.oracle.has_race(at as usize, between), "{race:?} is none at {at:#x}");
                }
            }
        }
    }

    fn resumed(&mut self, who: usize, outcome: Outcome) {
        match (outcome, self.programs[who].doing) {
            (Outcome::Served(_), Doing::Touching { .. }) => {}
            (Outcome::Locked | Outcome::Value(_), Doing::Locking(lock)) => self.locked(who, lock),
            (Outcome::Value(_), Doing::Giving) => self.programs[who].doing = Doing::Choosing,
            (Outcome::Value(_), Doing::Arriving) => {
                // The others have arrived when the flag has counted them in each phase.
                let all = u64::from(self.programs[who].phase) * self.programs.len() as u64;
                self.call(who, ObjectCall { object: 8, kind: ObjectKind::Flag, verb: Verb::Take, argument: all });
                self.programs[who].doing = Doing::Waiting;
            }
            (Outcome::Passed | Outcome::Value(_), Doing::Waiting) => {
                let (arrived, clock) = &self.arrived[self.programs[who].phase as usize];
                assert_eq!(*arrived, self.programs.len(), "barrier opened early");
                join(&mut self.oracle.clocks[who], clock);
                self.programs[who].doing = Doing::Choosing;
            }
            (outcome, doing) => panic!("thread {who} is at {doing:?} and gets {outcome:?}"),
        }
    }

    /// Calls an object with a thread.
    fn call(&mut self, who: usize, call: ObjectCall) {
        let (rank, thread) = self.place(who);
        self.world.rank(rank).dsm.call_object(thread, call).unwrap();
        self.world.drain(rank);
    }

    fn locked(&mut self, who: usize, lock: u32) {
        let holder = self.holders[lock as usize].replace(who);
        assert_eq!(holder, None, "lock {lock} has two holders");
        let clock = self.lock_clocks[lock as usize].clone();
        join(&mut self.oracle.clocks[who], &clock);
        let left = 1 + self.world.random.below(4) as u32;
        self.programs[who].doing = Doing::Locked { lock, left };
    }

    fn choose(&mut self, who: usize, variable: usize, then: Option<(u32, u32)>) {
        let store = self.world.random.chance(self.shape.write_percent).then(|| self.world.random.byte());
        self.programs[who].doing = Doing::Touching { at: self.variables[variable], store, then };
    }

    fn step(&mut self, who: usize) {
        let (rank, thread) = self.place(who);
        let (now_ns, locks) = (self.world.now_ns, self.shape.config.locks);
        let count = self.variables.len();
        if self.programs[who].doing == Doing::Choosing && self.world.random.chance(10) {
            let first = self.variables[self.world.random.below(count as u64) as usize] / PAGE;
            let access = if self.world.random.chance(50) { Access::Read } else { Access::Write };
            for page in first..first + 1 + self.world.random.below(4) as usize {
                let asked = self.world.rank(rank).dsm.prefetch(now_ns, thread, 0, page as u64, access);
                assert!(asked.is_ok() || page >= 96, "{asked:?}");
            }
        }
        match self.programs[who].doing {
            Doing::Choosing if self.programs[who].steps_left > 0 => {
                self.programs[who].steps_left -= 1;
                let variable = self.world.random.below(count as u64) as usize;
                if self.world.random.chance(self.shape.locked_percent) {
                    let lock = self.world.random.below(locks.into()) as u32;
                    self.programs[who].doing = Doing::Locking(lock);
                    if let Some(kind) = self.shape.lock {
                        let object = 4096 + 8 * u64::from(lock);
                        return self.call(who, ObjectCall { object, kind, verb: Verb::Take, argument: 0 });
                    }
                    if self.world.rank(rank).dsm.lock(thread, lock).unwrap() == Progress::Done {
                        self.world.drain(rank);
                        self.locked(who, lock);
                        self.again(who);
                    }
                    return;
                }
                self.choose(who, variable, None);
            }
            Doing::Choosing if self.programs[who].phase < self.shape.phases => {
                let program = &mut self.programs[who];
                program.phase += 1;
                program.steps_left = self.shape.steps;
                if program.phase == self.shape.phases {
                    program.steps_left = 0;
                }
                let barrier = program.phase % 3;
                program.doing = Doing::Waiting;
                let (arrived, clock) = &mut self.arrived[program.phase as usize];
                *arrived += 1;
                join(clock, &self.oracle.clocks[who]);
                if let Some(kind) = self.shape.barrier {
                    program.doing = Doing::Arriving;
                    return self.call(who, ObjectCall { object: 8, kind, verb: Verb::Give, argument: 1 });
                }
                return self.world.rank(rank).dsm.barrier(thread, barrier).unwrap();
            }
            Doing::Choosing if self.programs[who].to_read < count => {
                let at = self.variables[self.programs[who].to_read];
                self.programs[who].to_read += 1;
                self.programs[who].doing = Doing::Touching { at, store: None, then: None };
            }
            Doing::Choosing => {
                self.programs[who].doing = Doing::Finished;
                return;
            }
            Doing::Locked { lock, left: 0 } => {
                self.holders[lock as usize] = None;
                self.lock_clocks[lock as usize] = self.oracle.clocks[who].clone();
                if let Some(kind) = self.shape.lock {
                    self.programs[who].doing = Doing::Giving;
                    let object = 4096 + 8 * u64::from(lock);
                    // What is done once may be done again, if it was not.
                    return self.call(who, ObjectCall { object, kind, verb: Verb::Give, argument: 0 });
                }
                self.programs[who].doing = Doing::Choosing;
                self.world.rank(rank).dsm.unlock(thread, lock).unwrap();
            }
            Doing::Locked { lock, left } => {
                // Mostly what the lock guards.
                let guarded = self.world.random.below(count as u64) as usize / locks as usize * locks as usize;
                let variable = (guarded + lock as usize) % count;
                self.choose(who, variable, Some((lock, left - 1)));
            }
            Doing::Touching { at, store, then } => {
                let access = if store.is_some() { Access::Write } else { Access::Read };
                let machine = self.world.rank(rank);
                if !machine.protections[at / PAGE].allows(access) {
                    let page = (at / PAGE) as u64;
                    if machine.dsm.handle_fault(now_ns, thread, 0, page, access).unwrap() == Progress::Done {
                        self.world.drain(rank);
                        self.again(who);
                    }
                    return;
                }
                match store {
                    Some(value) => {
                        machine.memory[at] = value;
                        self.oracle.store(who, at, value);
                    }
                    None => {
                        let found = machine.memory[at];
                        let allowed = self.oracle.allowed(who, at);
                        self.loads += 1;
                        assert!(
                            allowed.contains(&found),
                            "thread {who} loads {found} at {at:#x}; the stores allow {allowed:?}"
                        );
                    }
                }
                self.programs[who].doing = match then {
                    None => Doing::Choosing,
                    Some((lock, left)) => Doing::Locked { lock, left },
                };
            }
            doing => panic!("thread {who} takes a step at {doing:?}"),
        }
        self.again(who);
    }
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn each_load_gives_the_last_store_before_it_or_one_that_is_not_ordered_with_it() {
    let seeds = match number("MAPWIRE_DSM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MAPWIRE_DSM_SEEDS").unwrap_or(120),
    };
    println!("seeds {seeds:?}; MAPWIRE_DSM_SEED=n repeats one");
    let (mut sum, mut condensed, mut loads, mut races, mut kinds) = (Counters::default(), 0, 0, 0, [0; 43]);
    for seed in seeds.clone() {
        let mut job = Job::new(seed);
        match catch_unwind(AssertUnwindSafe(|| job.run())) {
            Ok(counters) => sum = sum + counters,
            Err(panic) => {
                eprintln!("seed {seed} fails at {} ns: {:?}", job.world.now_ns, job.shape);
                resume_unwind(panic);
            }
        }
        condensed += job.world.ranks.iter().map(|rank| rank.dsm.condensed_notices()).sum::<u64>();
        loads += job.loads;
        races += job.races;
        kinds.iter_mut().zip(job.world.kinds).for_each(|(sum, count)| *sum += count);
    }
    println!("{loads} loads, {races} races, notices condensed {condensed} times, messages by kind {kinds:?}, {sum:?}");
    if seeds.count() >= 100 {
        assert!(sum.sets_sent > 0, "no message about several pages");
        assert!(sum.home_moves > 0 && sum.diffs > 0 && condensed > 0 && races > 0, "too little happened: {sum:?}");
        assert!((18..=36).filter(|kind| ![19, 22, 33, 34].contains(kind)).all(|kind| kinds[kind] > 0), "{kinds:?}");
    }
}

#[test]
fn jobs_of_hundreds_of_ranks_see_what_they_must_too() {
    let first = number("MAPWIRE_DSM_SEED").unwrap_or(0);
    for (seed, ranks) in (first..).zip([65, 130, 300]) {
        let mut random = Random::new(seed);
        let shape = Shape::draw(&mut random);
        let config = Config { ranks, threads: 1, participants: 1, pages: 48, twins: 8, notices: 2_000, ..shape.config };
        let (lock, barrier) =
            if ranks == 65 { (None, None) } else { (Some(ObjectKind::Mutex), Some(ObjectKind::Flag)) };
        let shape = Shape { config, phases: 2, steps: 4, locked_percent: 50, lock, barrier, ..shape };
        println!("seed {seed}: {shape:?}");
        let mut job = Job::of(shape, random);
        let sum = job.run();
        assert!(sum.diffs > u64::from(ranks) && sum.notices > u64::from(ranks), "{sum:?}");
    }
}
