//! Faults that are injected.

use super::*;

/// What of 20,000 numbered datagrams comes through, as it comes.
fn through(faults: Faults, seed: u64) -> Vec<Vec<u8>> {
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
    come
}

#[test]
fn injected_faults_strike_as_often_as_asked_and_the_same_ones_for_a_seed() {
    let in_order: Vec<_> = (0..20_000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    assert_eq!(through(Faults::default(), 1), in_order);
    let near = |count: usize, expected: usize| assert!(count > expected / 2 && count < expected * 2, "{count}");
    let none = Faults::default();
    near(20_000 - through(Faults { drop: 20_000, ..none }, 7).len(), 400);
    near(through(Faults { duplicate: 10_000, ..none }, 7).len() - 20_000, 200);
    let damaged = through(Faults { corrupt: 5_000, ..none }, 7);
    near(damaged.iter().zip(&in_order).filter(|(came, sent)| came != sent).count(), 100);
    let late = through(Faults { reorder: 10_000, ..none }, 7);
    let number = |bytes: &Vec<u8>| u32::from_le_bytes(bytes[..].try_into().unwrap());
    near(late.windows(2).filter(|two| number(&two[0]) > number(&two[1])).count(), 200);
    let faults = Faults { drop: 20_000, duplicate: 10_000, reorder: 10_000, corrupt: 5_000 };
    let come = through(faults, 7);
    assert_eq!(through(faults, 7), come);
    assert_ne!(through(faults, 8), come);
}
