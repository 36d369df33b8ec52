//! Faults that are injected.

use super::*;

/// What of 20,000 numbered datagrams comes through, in order.
fn through(faults: Faults, seed: u64) -> (Vec<Vec<u8>>, Struck) {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    let destination = towards(address(&to));
    let mut lossy = Lossy::new(faults, seed);
    let mut come = Vec::new();
    for hundred in 0..200_u32 {
        let mut batch = from.batch();
        for number in hundred * 100..(hundred + 1) * 100 {
            batch.push(&destination, &number.to_le_bytes(), Payload::EMPTY, &[]);
        }
        assert_eq!(batch.finish(), only_sent(100));
        // More empty looks than faults, and than held datagrams wait for.
        for _ in 0..500 {
            come.extend(lossy.receive(&mut to).map(|one| one.bytes.to_vec()));
        }
    }
    (come, lossy.struck())
}

#[test]
fn injected_faults_strike_as_often_as_asked_and_the_same_ones_for_a_seed() {
    let in_order: Vec<_> = (0..20_000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    assert_eq!(through(Faults::default(), 1).0, in_order);
    let faults = Faults { drop: 20_000, duplicate: 10_000, reorder: 10_000, corrupt: 5_000 };
    let (come, struck) = through(faults, 7);
    let near = |count: u64, expected: u64| count > expected / 2 && count < expected * 2;
    assert!(near(struck.dropped, 400) && near(struck.duplicated, 200), "{struck:?}");
    assert!(near(struck.reordered, 200) && near(struck.corrupted, 100), "{struck:?}");
    let expected = 20_000 - struck.dropped + struck.duplicated;
    assert_eq!(come.len() as u64, expected);
    assert_eq!(through(faults, 7), (come.clone(), struck));
    assert_ne!(through(faults, 8).0, come);
}
