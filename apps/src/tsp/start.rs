//! The initial tour of a search: nearest neighbour, then 2-opt.

use super::instance::Distances;

/// A tour from city 0, decent but not the shortest. Deterministic.
pub(super) fn start_tour(distances: &Distances, cities: usize) -> Vec<u8> {
    let mut tour = nearest_neighbour(distances, cities);
    while improve(distances, &mut tour) {}
    tour
}

fn nearest_neighbour(distances: &Distances, cities: usize) -> Vec<u8> {
    let mut tour = vec![0u8];
    let mut left: Vec<u8> = (1..cities as u8).collect();
    while let Some(at) = (0..left.len()).min_by_key(|&at| {
        let last = tour[tour.len() - 1];
        distances.between(last.into(), left[at].into())
    }) {
        // `remove` keeps the order, so that ties are always broken alike.
        tour.push(left.remove(at));
    }
    tour
}

/// Reverses the first stretch whose reversal shortens the tour. False if there is none.
fn improve(distances: &Distances, tour: &mut [u8]) -> bool {
    let n = tour.len();
    let between = |a: u8, b: u8| distances.between(a.into(), b.into());
    for i in 1..n - 1 {
        for j in i + 1..n {
            let (before, after) = (tour[i - 1], tour[(j + 1) % n]);
            let now = between(before, tour[i]) + between(tour[j], after);
            let turned = between(before, tour[j]) + between(tour[i], after);
            if turned < now {
                tour[i..=j].reverse();
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_visits_every_city_once_and_no_turn_shortens_it(
            points in prop::collection::vec((0i32..1000, 0i32..1000), 3..30)
        ) {
            let distances = Distances::new(points.len(), |a, b| {
                let (dx, dy) = (points[a].0 - points[b].0, points[a].1 - points[b].1);
                f64::from(dx * dx + dy * dy).sqrt() as u32
            });
            let mut tour = start_tour(&distances, points.len());
            prop_assert_eq!(tour[0], 0);
            prop_assert!(!improve(&distances, &mut tour));
            tour.sort_unstable();
            prop_assert!(tour.iter().map(|&city| usize::from(city)).eq(0..points.len()));
        }
    }
}
