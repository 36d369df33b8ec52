//! The travelling salesman's problem by branch and bound, tours taken from a shared queue.
//!
//! The first worker extends all promising paths until `level` cities remain to each (Millipage Table 1 calls it the recursion
//! level) and puts them, the most promising first, into a queue in shared memory. Workers take paths from its head under a lock and
//! search each depth first, cutting by the best tour that any of them has found. That length is a shared word that each
//! reads at every step: over mapwire a load from a local copy of its minipage, until some rank finds a better tour.

mod bound;
mod geography;
mod instance;
mod search;
mod start;
mod zones;

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::cli::Problem;
use crate::crew::{Crew, Worker};
use crate::error::{Failure, ensure};
use crate::phase::{Blocks, Words};
use crate::program::Program;
use bound::{Bound, Edges, Tree};
use instance::{Instance, MAX_CITIES, MIN_CITIES};
use search::{Nearest, Search};

/// The system's time-zone table.
const ZONE_TABLE: &str = "/usr/share/zoneinfo/zone1970.tab";
const DEFAULT_LEVEL: usize = 15;
/// Least number of cities of a path from the queue, so that there are tasks for all workers.
const FIRST_CITIES: usize = 4;
/// Most tasks in the queue.
const QUEUE_TASKS: usize = 4096;
/// Most cities for which the cheap bound is the default.
const CHEAP_BOUND_CITIES: usize = 20;

/// Which cities, and how to search.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// How many cities to take from the zone table
    #[arg(long, default_value_t = 19, value_name = "N")]
    pub cities: usize,
    /// The time-zone table to take cities from
    #[arg(long, default_value = ZONE_TABLE, value_name = "FILE")]
    pub zone_table: PathBuf,
    /// The part of the zone table to take cities from, as its zones are named
    #[arg(long, default_value = "Europe", value_name = "NAME")]
    pub region: String,
    /// Recursion level: how many cities remain to a path that is taken from the queue; by default 15, or 4 fewer than all
    #[arg(long, value_name = "L")]
    pub level: Option<usize>,
    /// What to cut by: edges (cheap, weak), tree (dear, strong), or auto: edges up to 20 cities
    #[arg(long, value_enum, default_value = "auto")]
    pub bound: BoundChoice,
}

/// The lower bound that a search cuts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BoundChoice {
    /// By the number of cities.
    Auto,
    /// Half the shortest edges of every city.
    Edges,
    /// A minimum spanning tree with potentials.
    Tree,
}

/// A problem, ready to be searched.
pub struct Tsp {
    instance: Instance,
    source: PathBuf,
    level: usize,
    cutting: Cutting,
    nearest: Nearest,
    start: Vec<u8>,
}

enum Cutting {
    Edges(Box<Edges>),
    Tree(Box<Tree>),
}

/// A tour from city 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    tour: Vec<u8>,
    length: u32,
    /// Paths examined by all workers.
    nodes: u64,
}

/// Shared memory of the workers.
pub struct Memory<'c> {
    /// Word group 0: the number of the next task, and which worker took the last, plus one. Group 1: the best tour's length, then its cities, eight to a word.
    /// Group 2 + w: the number of paths that worker w has examined.
    words: Words<'c>,
    /// One block: the number of tasks, then each as its length and its cities, eight to a word.
    queue: Blocks<'c, u64>,
}

const NEXT: usize = 0;
const BEST: usize = 1;
const NODES: usize = 2;

const QUEUE_LOCK: u32 = 0;
const BEST_LOCK: u32 = 1;

impl Problem for Arguments {
    type Program = Tsp;

    /// Reads the cities and prepares the search.
    fn program(self) -> Result<Tsp, Failure> {
        if self.level == Some(0) {
            return Err(Failure::Input("--level 0: a path taken from the queue must have a city to come".to_string()));
        }
        if !(MIN_CITIES..=MAX_CITIES).contains(&self.cities) {
            let message = format!("--cities {}: tsp solves {MIN_CITIES} to {MAX_CITIES} cities", self.cities);
            return Err(Failure::Input(message));
        }
        let source = &self.zone_table;
        let text = std::fs::read_to_string(source).map_err(|error| {
            let mend = "give a time-zone table (--zone-table) that exists";
            Failure::Input(format!("{}: cannot be read: {error}; {mend}", source.display()))
        })?;
        let instance = zones::instance(&text, &self.region, self.cities)
            .map_err(|error| Failure::Input(format!("{}: {error}", source.display())))?;
        let short = instance.cities.len().saturating_sub(FIRST_CITIES).max(1);
        let level = self.level.unwrap_or(DEFAULT_LEVEL.min(short));
        Ok(Tsp::new(instance, source.clone(), level, self.bound))
    }
}

impl Tsp {
    fn new(instance: Instance, source: PathBuf, level: usize, choice: BoundChoice) -> Self {
        let (distances, cities) = (&instance.distances, instance.cities.len());
        let start = start::start_tour(distances, cities);
        let edges = match choice {
            BoundChoice::Auto => cities <= CHEAP_BOUND_CITIES,
            BoundChoice::Edges => true,
            BoundChoice::Tree => false,
        };
        let cutting = if edges {
            Cutting::Edges(Box::new(Edges::new(distances, cities)))
        } else {
            let best = distances.tour_length(&start);
            Cutting::Tree(Box::new(Tree::new(distances, cities, best)))
        };
        Self { nearest: Nearest::new(distances, cities), instance, source, level, cutting, start }
    }

    fn cities(&self) -> usize {
        self.instance.cities.len()
    }

    /// Words of a task in the queue: one for its length, and one for each eight of its cities.
    fn task_words(&self) -> usize {
        let longest = self.cities().saturating_sub(self.level).max(1);
        1 + longest.div_ceil(8)
    }

    fn fill_queue<B: Bound>(&self, bound: &B, memory: &Memory<'_>) {
        let best = memory.words[BEST][0].load(Relaxed) as u32;
        let tasks = search::tasks(bound, &self.instance.distances, &self.nearest, best, self.level, QUEUE_TASKS);
        let mut queue = memory.queue[0].write();
        let (count, slots) = queue.split_at_mut(1);
        count[0] = tasks.len() as u64;
        for (slot, task) in slots.chunks_exact_mut(self.task_words()).zip(&tasks) {
            slot[0] = task.len() as u64;
            for (word, cities) in slot[1..].iter_mut().zip(task.chunks(8)) {
                *word = pack(cities);
            }
        }
    }

    fn search_tasks<B: Bound>(&self, bound: &B, worker: &Worker<'_>, memory: &Memory<'_>) -> Result<(), Failure> {
        let queue = memory.queue[0].read();
        let count = queue[0];
        let best = &memory.words[BEST];
        let mut search = Search {
            bound,
            distances: &self.instance.distances,
            nearest: &self.nearest,
            best: &best[0],
            nodes: 0,
            found: |tour: &[u8], length: u32| {
                worker.locked(BEST_LOCK, || {
                    if u64::from(length) < best[0].load(Relaxed) {
                        store_tour(best, tour, length);
                        // All others read the length.
                        worker.note_must_move(8 * (worker.count() as u64 - 1));
                    }
                })
            },
        };
        loop {
            let next = &memory.words[NEXT][0];
            let (me, last) = (worker.id() as u64 + 1, &memory.words[NEXT][1]);
            let first = worker.locked(QUEUE_LOCK, || {
                if last.load(Relaxed) != me {
                    worker.note_must_move(16);
                    last.store(me, Relaxed);
                }
                let first = next.load(Relaxed);
                next.store(first + run_length(first), Relaxed);
                first
            })?;
            if first >= count {
                break;
            }
            for number in first..count.min(first + run_length(first)) {
                let words = self.task_words();
                if worker.id() != 0 {
                    worker.note_must_move(8 * words as u64);
                }
                let task = &queue[1 + number as usize * words..][..words];
                let mut cities = [0; MAX_CITIES];
                unpack(&task[1..], &mut cities);
                search.search(&cities[..task[0] as usize])?;
            }
        }
        memory.words[NODES + worker.id()][0].store(search.nodes, Relaxed);
        Ok(())
    }
}

/// How many tasks a worker takes at once when `first` is the next: one at the head of the queue, where the long tasks are, more and more
/// of the many short ones behind, so that the lock is taken hundreds rather than thousands of times.
fn run_length(first: u64) -> u64 {
    1 + first / 32
}

/// Up to eight cities as one word.
fn pack(cities: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..cities.len()].copy_from_slice(cities);
    u64::from_le_bytes(bytes)
}

fn unpack(words: &[u64], cities: &mut [u8; MAX_CITIES]) {
    for (bytes, word) in cities.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

fn store_tour(best: &[std::sync::atomic::AtomicU64], tour: &[u8], length: u32) {
    for (word, cities) in best[1..].iter().zip(tour.chunks(8)) {
        word.store(pack(cities), Relaxed);
    }
    best[0].store(length.into(), Relaxed);
}

impl Program for Tsp {
    type Memory<'c> = Memory<'c>;
    type Outcome = Route;

    fn name(&self) -> &'static str {
        "tsp"
    }

    fn problem(&self) -> String {
        format!(
            "the shortest tour of {} ({}), recursion level {}, cut by {}",
            self.instance.title,
            self.source.display(),
            self.level,
            self.bound_name()
        )
    }

    fn fields(&self) -> Value {
        let source = self.source.display().to_string();
        json!({"cities": self.cities(), "source": source, "level": self.level, "bound": self.bound_name()})
    }

    fn shared_bytes(&self, workers: usize) -> u64 {
        8 * (1 + QUEUE_TASKS * self.task_words() + 16 * (2 + workers)) as u64
    }

    fn layout<'c>(&self, crew: &'c Crew) -> Result<Memory<'c>, Failure> {
        let shared = [(2, 0), (1 + MAX_CITIES / 8, 0)];
        let own = (0..crew.workers()).map(|worker| (1, worker));
        Ok(Memory {
            words: crew.words(shared.into_iter().chain(own))?,
            queue: crew.blocks([(1 + QUEUE_TASKS * self.task_words(), 0)])?,
        })
    }

    fn prepare(&self, worker: &Worker<'_>, memory: &Memory<'_>) -> Result<(), Failure> {
        if worker.id() == 0 {
            memory.words[NEXT][0].store(0, Relaxed);
            memory.words[NEXT][1].store(1, Relaxed);
            let length = self.instance.distances.tour_length(&self.start);
            store_tour(&memory.words[BEST], &self.start, length);
        }
        memory.words[NODES + worker.id()][0].store(0, Relaxed);
        Ok(())
    }

    fn work(&self, worker: &Worker<'_>, memory: &Memory<'_>) -> Result<(), Failure> {
        if worker.id() == 0 {
            match &self.cutting {
                Cutting::Edges(edges) => self.fill_queue(&**edges, memory),
                Cutting::Tree(tree) => self.fill_queue(&**tree, memory),
            }
        }
        worker.barrier()?;
        match &self.cutting {
            Cutting::Edges(edges) => self.search_tasks(&**edges, worker, memory),
            Cutting::Tree(tree) => self.search_tasks(&**tree, worker, memory),
        }
    }

    fn collect(&self, memory: &Memory<'_>) -> Route {
        let best = &memory.words[BEST];
        let words: Vec<_> = best[1..].iter().map(|word| word.load(Relaxed)).collect();
        let mut cities = [0; MAX_CITIES];
        unpack(&words, &mut cities);
        let nodes = |group| memory.words[group][0].load(Relaxed);
        Route {
            tour: cities[..self.cities()].to_vec(),
            length: best[0].load(Relaxed) as u32,
            nodes: (NODES..memory.words.count()).map(nodes).sum(),
        }
    }

    fn verify(&self, route: &Route) -> Result<(), Failure> {
        let mut sorted = route.tour.clone();
        sorted.sort_unstable();
        ensure(sorted.iter().map(|&c| usize::from(c)).eq(0..self.cities()), || {
            format!("{:?} is not a tour: it must have each city once", route.tour)
        })?;
        let length = self.instance.distances.tour_length(&route.tour);
        ensure(length == route.length, || format!("the tour is {length} long, not {} as found", route.length))
    }

    fn compare(&self, route: &Route, sequential: &Route) -> Result<(), Failure> {
        ensure(route.length == sequential.length, || {
            format!(
                "the tour found is {} long, that of the sequential run {}",
                self.instance.show_length(route.length),
                self.instance.show_length(sequential.length)
            )
        })
    }

    fn describe(&self, route: &Route) -> Vec<String> {
        vec![
            format!("tour: {}", self.instance.show_tour(&route.tour)),
            format!("length: {}, {} paths looked at", self.instance.show_length(route.length), route.nodes),
        ]
    }

    fn outcome_fields(&self, route: &Route) -> Value {
        json!({"length_metres": route.length, "nodes": route.nodes})
    }
}

impl Tsp {
    fn bound_name(&self) -> &'static str {
        match self.cutting {
            Cutting::Edges(_) => "edges",
            Cutting::Tree(_) => "tree",
        }
    }
}

#[cfg(test)]
mod tests;
