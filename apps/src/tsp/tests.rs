//! Tests of the whole search: against all tours, every bound, any number of workers.

use proptest::prelude::*;

use super::instance::Distances;
use super::*;
use crate::run::solve;

fn tsp(instance: &Instance, level: usize, bound: BoundChoice) -> Tsp {
    Tsp::new(instance.clone(), PathBuf::from("test"), level, bound)
}

fn run(tsp: &Tsp, workers: usize) -> Route {
    let route = solve(tsp, &Crew::plain(workers)).unwrap();
    tsp.verify(&route).unwrap();
    route
}

/// The length of a shortest tour.
pub(super) fn shortest(instance: &Instance) -> u32 {
    run(&tsp(instance, 10, BoundChoice::Tree), 1).length
}

fn random_instance(cities: usize, weights: &[u32]) -> Instance {
    let mut next = weights.iter().copied().cycle();
    Instance {
        title: "random".into(),
        cities: (0..cities).map(|city| city.to_string()).collect(),
        distances: Distances::new(cities, |_, _| next.next().unwrap()),
    }
}

/// The length of a shortest tour, by dynamic programming over all sets of cities (Held and Karp).
fn oracle(instance: &Instance) -> u32 {
    let n = instance.cities.len() - 1;
    let between = |a: usize, b: usize| instance.distances.between(a, b);
    let mut least = vec![vec![u32::MAX; n]; 1 << n];
    for city in 0..n {
        least[1 << city][city] = between(0, city + 1);
    }
    for set in 1..1usize << n {
        for last in (0..n).filter(|last| set >> last & 1 == 1) {
            let length = least[set][last];
            for next in (0..n).filter(|next| set >> next & 1 == 0) {
                let longer = length + between(last + 1, next + 1);
                let slot = &mut least[set | 1 << next][next];
                *slot = longer.min(*slot);
            }
        }
    }
    let all = &least[(1 << n) - 1];
    (0..n).map(|last| all[last] + between(last + 1, 0)).min().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_bound_level_and_crew_finds_a_shortest_tour(
        cities in 3usize..10,
        weights in prop::collection::vec(0u32..50, 40),
        level in 1usize..12,
        workers in 1usize..4,
    ) {
        let instance = random_instance(cities, &weights);
        let expected = oracle(&instance);
        for bound in [BoundChoice::Edges, BoundChoice::Tree, BoundChoice::Auto] {
            prop_assert_eq!(run(&tsp(&instance, level, bound), workers).length, expected);
        }
    }
}

#[test]
fn the_oracle_agrees_with_a_square() {
    // 0-1-2-3 around a square of side 3, diagonals of 5.
    let instance = random_instance(4, &[3, 5, 3, 3, 5, 3]);
    assert_eq!(oracle(&instance), 12);
    assert_eq!(shortest(&instance), 12);
}

#[test]
fn a_single_task_and_a_full_queue_both_find_it() {
    let weights: Vec<_> = (0..66u32).map(|k| k * 7919 % 1009).collect();
    let instance = random_instance(12, &weights);
    let expected = oracle(&instance);
    for level in [1, 5, 11, 12, 100] {
        assert_eq!(run(&tsp(&instance, level, BoundChoice::Edges), 2).length, expected);
    }
}

#[test]
fn sixty_four_cities_fit() {
    // On a ring the nearest neighbour's tour is the shortest, and the strong bound proves it at once.
    let instance = Instance {
        distances: Distances::new(64, |a, b| {
            let apart = a.abs_diff(b);
            apart.min(64 - apart) as u32 * 100
        }),
        ..random_instance(64, &[1])
    };
    assert_eq!(run(&tsp(&instance, 15, BoundChoice::Auto), 2).length, 6400);
}

#[test]
fn packed_cities_come_back() {
    let cities: Vec<u8> = (0..64).collect();
    let words: Vec<_> = cities.chunks(8).map(pack).collect();
    let mut back = [0; MAX_CITIES];
    unpack(&words, &mut back);
    assert_eq!(back[..], cities[..]);
    unpack(&[pack(&[5, 6])], &mut back);
    assert_eq!(back[..3], [5, 6, 0]);
}

#[test]
fn a_wrong_route_is_found_and_named() {
    let instance = random_instance(5, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let tsp = tsp(&instance, 2, BoundChoice::Edges);
    let right = run(&tsp, 1);
    let mut twice = right.clone();
    twice.tour[1] = twice.tour[2];
    assert!(tsp.verify(&twice).unwrap_err().to_string().contains("each city once"));
    let mut longer = right.clone();
    longer.length += 1;
    assert!(tsp.verify(&longer).is_err());
    assert!(tsp.compare(&longer, &right).is_err());
}

fn arguments() -> Arguments {
    Arguments {
        cities: 19,
        zone_table: ZONE_TABLE.into(),
        region: "Europe".into(),
        level: None,
        bound: BoundChoice::Auto,
    }
}

fn refusal(arguments: Arguments) -> String {
    let failure = arguments.program().map(|_| ()).unwrap_err();
    assert_eq!(failure.exit_code(), 2);
    failure.to_string()
}

#[test]
fn problems_that_cannot_be_are_refused() {
    for cities in [0, 2, 65] {
        let message = refusal(Arguments { cities, ..arguments() });
        assert!(message.starts_with(&format!("--cities {cities}: tsp solves 3 to 64")));
    }
    let message = refusal(Arguments { zone_table: "/no/such/table".into(), ..arguments() });
    assert!(message.starts_with("/no/such/table: cannot be read"));
    refusal(Arguments { level: Some(0), ..arguments() });
}
