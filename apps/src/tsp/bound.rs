//! Lower bounds for branch and bound, on the tours that begin with a given path.
//!
//! Both are sound: no tour that begins with the path is shorter than the bound. [`Edges`] costs a few additions and cuts little;
//! [`Tree`] costs a minimum spanning tree and cuts deep.

use super::instance::{Distances, MAX_CITIES};

/// A bound that is updated step by step along a path from city 0.
pub(super) trait Bound: Sync {
    /// State of a path's bound.
    type Partial: Copy;

    /// State of the path that is city 0 alone.
    fn root(&self) -> Self::Partial;

    /// State of the path that ends in `last`, with `next` added.
    fn step(&self, state: Self::Partial, last: usize, next: usize) -> Self::Partial;

    /// A lower bound on tours shorter than `best` that begin with this path, as a number to sort paths by; `None` if there is no such
    /// tour. `unvisited` is the set of the remaining cities and is not empty; `length` is the path's own.
    fn promise(&self, state: Self::Partial, last: usize, unvisited: u64, length: u32, best: u32) -> Option<i64>;
}

/// Half the sum, over all cities, of the shortest tour edges that each could still have: its two shortest for a city to come,
/// its shortest for either end of the path.
pub(super) struct Edges {
    shortest: [u32; MAX_CITIES],
    two_shortest: [u32; MAX_CITIES],
    total: u32,
}

impl Edges {
    /// For these cities.
    pub(super) fn new(distances: &Distances, cities: usize) -> Self {
        let mut bound = Self { shortest: [0; MAX_CITIES], two_shortest: [0; MAX_CITIES], total: 0 };
        for city in 0..cities {
            let mut all: Vec<_> =
                (0..cities).filter(|&other| other != city).map(|other| distances.between(city, other)).collect();
            all.sort_unstable();
            bound.shortest[city] = all[0];
            bound.two_shortest[city] = all[0] + all[1];
        }
        bound.total = bound.two_shortest[1..cities].iter().sum();
        bound
    }
}

impl Bound for Edges {
    /// The two shortest edges of every city to come, summed. With 64 cities and the longest distances all sums stay in 32 bits.
    type Partial = u32;

    fn root(&self) -> u32 {
        self.total
    }

    #[inline]
    fn step(&self, state: u32, _last: usize, next: usize) -> u32 {
        state - self.two_shortest[next % MAX_CITIES]
    }

    #[inline]
    fn promise(&self, state: u32, last: usize, _: u64, length: u32, best: u32) -> Option<i64> {
        let ends = self.shortest[last % MAX_CITIES] + self.shortest[0];
        let doubled = 2 * length + state + ends;
        (doubled < 2 * best).then_some(i64::from(doubled))
    }
}

/// The path, a minimum spanning tree of the cities to come, and the shortest edge from either end of the path to them, all in
/// distances that are first bent by a potential at each city (Held and Karp), which changes every tour by the same
/// amount and is chosen to make the bound high.
pub(super) struct Tree {
    bent: Box<[[i64; MAX_CITIES]; MAX_CITIES]>,
    /// How much bending lengthens every tour.
    shift: i64,
}

/// Bent distances are in units of 1/SCALE, so that potentials may be fractions.
const SCALE: i64 = 256;
/// Number of rounds of the search for potentials.
const ASCENT_ROUNDS: usize = 400;

impl Tree {
    /// For these cities; `best` is the length of some tour.
    pub(super) fn new(distances: &Distances, cities: usize, best: u32) -> Self {
        let potentials = potentials(distances, cities, best);
        let mut bent = Box::new([[0; MAX_CITIES]; MAX_CITIES]);
        for a in 0..cities {
            for b in 0..cities {
                bent[a][b] = SCALE * i64::from(distances.between(a, b)) + potentials[a] + potentials[b];
            }
        }
        let shift = 2 * potentials.iter().sum::<i64>();
        Self { bent, shift }
    }

    /// The weight of a minimum spanning tree of `members`, which must not be empty.
    fn spanning_tree(&self, members: u64) -> i64 {
        let mut nearest = [i64::MAX; MAX_CITIES];
        let mut left = members;
        let mut newest = take_first(&mut left);
        let mut weight = 0;
        while left != 0 {
            let row = &self.bent[newest];
            let (mut least, mut chosen) = (i64::MAX, 0);
            let mut rest = left;
            while rest != 0 {
                let city = take_first(&mut rest);
                nearest[city] = nearest[city].min(row[city]);
                if nearest[city] < least {
                    (least, chosen) = (nearest[city], city);
                }
            }
            weight += least;
            left &= !(1 << chosen);
            newest = chosen;
        }
        weight
    }

    fn nearest(&self, from: usize, mut members: u64) -> i64 {
        let mut least = i64::MAX;
        while members != 0 {
            least = least.min(self.bent[from][take_first(&mut members)]);
        }
        least
    }
}

/// Removes the lowest member of a set, which must not be empty.
#[inline]
fn take_first(set: &mut u64) -> usize {
    let first = set.trailing_zeros() as usize % MAX_CITIES;
    *set &= *set - 1;
    first
}

impl Bound for Tree {
    /// The path's length in bent distances.
    type Partial = i64;

    fn root(&self) -> i64 {
        0
    }

    #[inline]
    fn step(&self, state: i64, last: usize, next: usize) -> i64 {
        state + self.bent[last][next]
    }

    fn promise(&self, state: i64, last: usize, unvisited: u64, _length: u32, best: u32) -> Option<i64> {
        // Lengths are integers: a tour that beats `best` has at most `best - 1`.
        let limit = SCALE * (i64::from(best) - 1) + self.shift;
        let ends = self.nearest(last, unvisited) + self.nearest(0, unvisited);
        // No part of the sum may be judged alone: bent distances can be negative.
        let least = state + ends + self.spanning_tree(unvisited);
        (least <= limit).then_some(least)
    }
}

/// Potentials, in units of 1/SCALE, by subgradient ascent: a city with more than two edges in the 1-tree becomes dearer, one with
/// fewer cheaper. Any integers would do; good ones cut deeper.
fn potentials(distances: &Distances, cities: usize, best: u32) -> [i64; MAX_CITIES] {
    let mut now = [0.0f64; MAX_CITIES];
    let mut chosen = now;
    let mut highest = f64::NEG_INFINITY;
    for round in 0..ASCENT_ROUNDS {
        let bent = |a: usize, b: usize| f64::from(distances.between(a, b)) + now[a] + now[b];
        let (weight, degrees) = one_tree(cities, bent);
        let bound = weight - 2.0 * now.iter().sum::<f64>();
        if bound > highest {
            (highest, chosen) = (bound, now);
        }
        let norm: f64 = degrees[..cities].iter().map(|&degree| (f64::from(degree) - 2.0).powi(2)).sum();
        if norm == 0.0 {
            break;
        }
        let scale = 2.0 * (1.0 - round as f64 / ASCENT_ROUNDS as f64);
        let step = scale * (f64::from(best) - bound).max(1.0) / norm;
        for city in 0..cities {
            now[city] += step * (f64::from(degrees[city]) - 2.0);
        }
    }
    chosen.map(|potential| (potential * SCALE as f64).round() as i64)
}

/// A minimum spanning tree of all cities but the first, which joins by its two shortest edges: its weight, and each city's edges.
fn one_tree(cities: usize, distance: impl Fn(usize, usize) -> f64) -> (f64, [i32; MAX_CITIES]) {
    let mut degrees = [0; MAX_CITIES];
    let mut parent = [1usize; MAX_CITIES];
    let mut joined = 0b10u64;
    let mut weight = 0.0;
    for _ in 2..cities {
        let near = |city: usize| distance(city, parent[city]);
        let next = (2..cities)
            .filter(|&city| joined >> city & 1 == 0)
            .min_by(|&a, &b| near(a).total_cmp(&near(b)))
            .expect("a city is left in each round");
        weight += near(next);
        degrees[next] += 1;
        degrees[parent[next]] += 1;
        joined |= 1 << next;
        for (city, parent) in parent.iter_mut().enumerate().take(cities).skip(2) {
            if joined >> city & 1 == 0 && distance(city, next) < distance(city, *parent) {
                *parent = next;
            }
        }
    }
    let mut first: Vec<_> = (1..cities).collect();
    first.sort_by(|&a, &b| distance(0, a).total_cmp(&distance(0, b)));
    for &city in &first[..2] {
        weight += distance(0, city);
        degrees[0] += 1;
        degrees[city] += 1;
    }
    (weight, degrees)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The best completion of a path, by exhaustive search.
    fn best_completion(distances: &Distances, last: usize, unvisited: u64) -> u32 {
        if unvisited == 0 {
            return distances.between(last, 0);
        }
        (0..MAX_CITIES)
            .filter(|&city| unvisited >> city & 1 == 1)
            .map(|city| distances.between(last, city) + best_completion(distances, city, unvisited & !(1 << city)))
            .min()
            .unwrap()
    }

    fn is_sound(bound: &impl Bound, distances: &Distances, path: &[usize], cities: usize) {
        let mut state = bound.root();
        let mut unvisited = (1u64 << cities) - 2;
        let mut length = 0;
        for pair in path.windows(2) {
            state = bound.step(state, pair[0], pair[1]);
            unvisited &= !(1 << pair[1]);
            length += distances.between(pair[0], pair[1]);
        }
        let last = *path.last().unwrap();
        let best = length + best_completion(distances, last, unvisited);
        let promise = bound.promise(state, last, unvisited, length, best + 1);
        assert!(promise.is_some(), "a path to the optimum was cut");
    }

    proptest! {
        #[test]
        fn no_bound_cuts_a_path_that_leads_to_a_better_tour(
            weights in prop::collection::vec(0u32..10_000, 21),
            order in Just((1usize..7).collect::<Vec<_>>()).prop_shuffle(),
            steps in 0usize..5,
        ) {
            let mut next = weights.iter().copied();
            let distances = Distances::new(7, |_, _| next.next().unwrap());
            let mut path = vec![0];
            path.extend(&order[..steps]);
            is_sound(&Edges::new(&distances, 7), &distances, &path, 7);
            let tour = distances.tour_length(&[0, 1, 2, 3, 4, 5, 6]);
            is_sound(&Tree::new(&distances, 7, tour), &distances, &path, 7);
        }
    }

    /// Here the potentials make the spanning tree's weight negative, and the two ends alone weigh more than the best tour: a
    /// bound that cut by the ends before it added the tree lost the optimum.
    #[test]
    fn a_path_is_judged_by_the_whole_bound_only() {
        let mut weights =
            [302, 0, 2814, 487, 2071, 2741, 6880, 707, 3219, 0, 0, 866, 0, 0, 0, 395, 8516, 0, 241, 3487, 9927]
                .into_iter();
        let distances = Distances::new(7, |_, _| weights.next().unwrap());
        let tour = distances.tour_length(&[0, 1, 2, 3, 4, 5, 6]);
        is_sound(&Tree::new(&distances, 7, tour), &distances, &[0], 7);
    }

    #[test]
    fn the_longest_distances_do_not_overflow() {
        /// More metres than lie between any two places.
        const MAX_DISTANCE: u32 = 30_000_000;
        let distances = Distances::new(MAX_CITIES, |_, _| MAX_DISTANCE);
        let tour: Vec<u8> = (0..MAX_CITIES as u8).collect();
        let best = distances.tour_length(&tour);
        let all_but_first = u64::MAX << 1;
        let edges = Edges::new(&distances, MAX_CITIES);
        let tree = Tree::new(&distances, MAX_CITIES, best);
        assert_eq!(edges.promise(edges.root(), 0, all_but_first, 0, best), None);
        assert_eq!(tree.promise(tree.root(), 0, all_but_first, 0, best), None);
        assert!(tree.promise(tree.root(), 0, all_but_first, 0, best + 1).is_some());
    }
}
