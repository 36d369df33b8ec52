//! Branch and bound over paths from city 0: breadth first to make tasks, then depth first within each.
//!
//! A tour and its reverse are the same: only tours that visit city 1 before city 2 are searched.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bound::Bound;
use super::instance::{Distances, MAX_CITIES};
use crate::error::Failure;

/// For each city, the others in the order of search: nearest first.
pub(super) struct Nearest {
    lists: Vec<Vec<u8>>,
}

impl Nearest {
    /// Orders all cities but city 0 by their distance from each city.
    pub(super) fn new(distances: &Distances, cities: usize) -> Self {
        let lists = (0..cities)
            .map(|from| {
                let mut list: Vec<u8> = (1..cities as u8).filter(|&to| usize::from(to) != from).collect();
                list.sort_by_key(|&to| distances.between(from, to.into()));
                list
            })
            .collect();
        Self { lists }
    }
}

/// Whether `next` may follow on a path with `unvisited` before it: only once, and city 2 only after city 1.
#[inline]
fn may_follow(next: usize, unvisited: u64) -> bool {
    let early = next == 2 && unvisited & 0b10 != 0;
    unvisited >> (next % MAX_CITIES) & 1 == 1 && !early
}

/// All cities but city 0, as a set.
fn all_but_first(cities: usize) -> u64 {
    u64::MAX >> (MAX_CITIES - cities) & !1
}

/// The initial paths of a search, the most promising first. Paths are extended together, city by city, until `level` cities remain to each
/// or one step more would make more than `most`.
pub(super) fn tasks<B: Bound>(
    bound: &B,
    distances: &Distances,
    nearest: &Nearest,
    best: u32,
    level: usize,
    most: usize,
) -> Vec<Vec<u8>> {
    struct Path<S> {
        cities: Vec<u8>,
        state: S,
        unvisited: u64,
        length: u32,
        promise: i64,
    }
    let cities = nearest.lists.len();
    let mut paths =
        vec![Path { cities: vec![0], state: bound.root(), unvisited: all_but_first(cities), length: 0, promise: 0 }];
    // One city must remain for a bound.
    for _ in level.max(1)..cities - 1 {
        let mut longer = Vec::new();
        for path in &paths {
            let last = usize::from(path.cities[path.cities.len() - 1]);
            for &next in &nearest.lists[last] {
                let city = usize::from(next);
                if !may_follow(city, path.unvisited) {
                    continue;
                }
                let state = bound.step(path.state, last, city);
                let unvisited = path.unvisited & !(1 << city);
                let length = path.length + distances.between(last, city);
                if let Some(promise) = bound.promise(state, city, unvisited, length, best) {
                    let cities = path.cities.iter().copied().chain([next]).collect();
                    longer.push(Path { cities, state, unvisited, length, promise });
                }
            }
        }
        if longer.len() > most {
            break;
        }
        paths = longer;
    }
    // Stable, so that the order is the same in every run.
    paths.sort_by_key(|path| path.promise);
    paths.into_iter().map(|path| path.cities).collect()
}

/// A depth-first search. `B` decides what to cut, `F` takes each tour better than the best known.
pub(super) struct Search<'a, B: Bound, F> {
    pub(super) bound: &'a B,
    pub(super) distances: &'a Distances,
    pub(super) nearest: &'a Nearest,
    /// Length of the best tour that any worker knows.
    pub(super) best: &'a AtomicU64,
    /// Called with every tour, and its length, that was shorter than the best when it was found.
    pub(super) found: F,
    /// Number of paths examined so far.
    pub(super) nodes: u64,
}

/// State of a search: the path's last city and what follows from the path.
#[derive(Clone, Copy)]
struct Stand<S> {
    last: usize,
    state: S,
    unvisited: u64,
    length: u32,
}

impl<B: Bound, F: FnMut(&[u8], u32) -> Result<(), Failure>> Search<'_, B, F> {
    /// Searches all tours that begin with `task`.
    pub(super) fn search(&mut self, task: &[u8]) -> Result<(), Failure> {
        let mut path = [0; MAX_CITIES];
        path[..task.len()].copy_from_slice(task);
        let mut stand =
            Stand { last: 0, state: self.bound.root(), unvisited: all_but_first(self.nearest.lists.len()), length: 0 };
        for &next in &task[1..] {
            stand = self.step(stand, next.into());
        }
        if self.can_win(&stand) {
            self.descend(&mut path, task.len(), stand)?;
        }
        Ok(())
    }

    #[inline]
    fn best(&self) -> u32 {
        self.best.load(Ordering::Relaxed) as u32
    }

    #[inline]
    fn step(&self, stand: Stand<B::Partial>, next: usize) -> Stand<B::Partial> {
        Stand {
            last: next,
            state: self.bound.step(stand.state, stand.last, next),
            unvisited: stand.unvisited & !(1 << (next % MAX_CITIES)),
            length: stand.length + self.distances.between(stand.last, next),
        }
    }

    #[inline]
    fn can_win(&self, stand: &Stand<B::Partial>) -> bool {
        if stand.unvisited == 0 {
            return stand.length + self.distances.between(stand.last, 0) < self.best();
        }
        self.bound.promise(stand.state, stand.last, stand.unvisited, stand.length, self.best()).is_some()
    }

    fn descend(&mut self, path: &mut [u8; MAX_CITIES], depth: usize, stand: Stand<B::Partial>) -> Result<(), Failure> {
        self.nodes += 1;
        if stand.unvisited == 0 {
            let length = stand.length + self.distances.between(stand.last, 0);
            return (self.found)(&path[..depth], length);
        }
        let nearest = self.nearest;
        for &next in &nearest.lists[stand.last] {
            let city = usize::from(next);
            if !may_follow(city, stand.unvisited) {
                continue;
            }
            let further = self.step(stand, city);
            if self.can_win(&further) {
                path[depth % MAX_CITIES] = next;
                self.descend(path, depth + 1, further)?;
            }
        }
        Ok(())
    }
}
