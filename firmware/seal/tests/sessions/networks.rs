//! Networks that lose, repeat, delay and reorder.

use mapwire_seal::Rotation;

use crate::world::{MS, Random, SECOND, World};

/// Keys change every few datagrams, and every second.
const QUICK: Rotation = Rotation { datagrams: 20, time_ns: SECOND, grace_ns: SECOND / 2, silence_ns: SECOND / 4 };

fn for_seeds(rounds: u64, test: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("MAPWIRE_SEED") {
        return test(seed);
    }
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let start = since_1970.map_or(1, |time| time.as_nanos() as u64);
    let rounds = number("MAPWIRE_ROUNDS").unwrap_or(rounds);
    for seed in start..start + rounds {
        eprintln!("MAPWIRE_SEED={seed}");
        test(seed);
    }
}

#[test]
fn whatever_happens_datagrams_are_opened_once_or_never_and_nodes_talk_in_the_end() {
    for_seeds(60, |seed| {
        let mut world = World::new(Random::new(seed), QUICK);
        for _ in 0..120 {
            world.act();
        }
        world.finish();
    });
}

#[test]
fn half_of_all_datagrams_may_be_lost() {
    for_seeds(40, |seed| {
        let mut world = World::new(Random::new(seed), Rotation::default());
        (world.loss, world.most_delay_ns) = (50, 5 * MS);
        world.converge(120 * SECOND);
    });
}

#[test]
fn both_sides_may_begin_at_once() {
    for_seeds(20, |seed| {
        let mut world = World::new(Random::new(seed), Rotation::default());
        world.send(0).unwrap_err();
        world.send(1).unwrap_err();
        world.run_for(100 * MS);
        assert!(world.is_ready(0) && world.is_ready(1));
        let made = world.nodes[0].counters().handshakes();
        assert_eq!((made, world.nodes[1].counters().handshakes()), (1, 1));
    });
}

#[test]
fn keys_change_under_traffic_and_nothing_is_lost_on_a_good_network() {
    for_seeds(10, |seed| {
        let mut world = World::new(Random::new(seed), QUICK);
        world.converge(SECOND);
        let (mut sent, opened) = (0, world.opened);
        for _ in 0..400 {
            for node in 0..2 {
                world.send(node).expect("rotation interrupts nobody");
                sent += 1;
            }
            world.run_for(MS);
        }
        world.run_for(10 * MS);
        assert_eq!(world.opened - opened, sent);
        assert!(world.nodes[0].counters().handshakes() > 10);
    });
}
