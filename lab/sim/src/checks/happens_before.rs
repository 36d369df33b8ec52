//! What a load may give under release consistency: per byte, the last store before it in the order of synchronisation, or one that is not
//! ordered with it.

use std::collections::BTreeSet;

/// The stores of each thread that another knows of: joined when it synchronises with one that knows them.
pub type Clock = Vec<u64>;

pub fn join(clock: &mut Clock, other: &Clock) {
    clock.iter_mut().zip(other).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
}

#[derive(Debug, Clone)]
struct Store {
    value: u8,
    by: usize,
    clock: Clock,
}

impl Store {
    fn is_before(&self, clock: &Clock) -> bool {
        clock[self.by] >= self.clock[self.by]
    }
}

/// The stores to each byte; all were zero before.
#[derive(Debug)]
pub struct Oracle {
    stores: Vec<Vec<Store>>,
    /// Bytes stored by two threads, and nothing orders these stores.
    races: BTreeSet<(usize, usize, usize)>,
    pub clocks: Vec<Clock>,
}

impl Oracle {
    /// No store yet.
    pub fn new(bytes: usize, threads: usize) -> Self {
        Oracle { stores: vec![Vec::new(); bytes], races: BTreeSet::new(), clocks: vec![vec![0; threads]; threads] }
    }

    /// A thread stores a byte.
    pub fn store(&mut self, by: usize, at: usize, value: u8) {
        self.clocks[by][by] += 1;
        let clock = self.clocks[by].clone();
        // Nobody may see a store that is before one that all know of.
        let known = self.clocks.iter().all(|clock| self.stores[at].last().is_some_and(|last| last.is_before(clock)));
        if known && let Some(last) = self.stores[at].pop() {
            self.stores[at].retain(|store| !store.is_before(&last.clock));
            self.stores[at].push(last);
        }
        let unordered = self.stores[at].iter().filter(|store| store.by != by && !store.is_before(&clock));
        self.races.extend(unordered.map(|store| (at, store.by.min(by), store.by.max(by))));
        self.stores[at].push(Store { value, by, clock });
    }

    /// Whether two of these threads stored that byte, and nothing orders these stores.
    pub fn has_race(&self, at: usize, mut between: impl FnMut(usize, usize) -> bool) -> bool {
        self.races.range((at, 0, 0)..(at + 1, 0, 0)).any(|&(_, a, b)| between(a, b))
    }

    /// Values that a thread may load from a byte.
    pub fn allowed(&self, by: usize, at: usize) -> Vec<u8> {
        let (stores, clock) = (&self.stores[at], &self.clocks[by]);
        let is_hidden = |store: &Store| {
            stores
                .iter()
                .any(|later| later.clock != store.clock && later.is_before(clock) && store.is_before(&later.clock))
        };
        let mut allowed: Vec<u8> = stores.iter().filter(|store| !is_hidden(store)).map(|store| store.value).collect();
        if !stores.iter().any(|store| store.is_before(clock)) {
            allowed.push(0);
        }
        allowed
    }
}
