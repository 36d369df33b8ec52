//! The ring through its public face: one process, two threads.

use mapwire_host::memory::MemoryError;
use mapwire_transport::payload::Piece;
use mapwire_transport::shm::channel::{Channel, ChannelError, Side};
use mapwire_transport::shm::ring::{PushError, RingConfig};
use proptest::prelude::*;
use std::collections::VecDeque;

const SMALL: RingConfig = RingConfig { slots: 8, bulk_bytes: 16 << 10, max_payload_bytes: 8 << 10 };

/// One whose payloads restart at the begin of the bulk area while the consumer keeps up.
const WIDE: RingConfig = RingConfig { slots: 16, bulk_bytes: 128 << 10, max_payload_bytes: (32 << 10) + 16 };

fn header(number: u64) -> [u8; 48] {
    let mut header = [0; 48];
    for (index, byte) in header.iter_mut().enumerate() {
        *byte = (number as usize * 7 + index) as u8;
    }
    header
}

fn bytes(number: u64, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes).map(|index| (number as usize * 31 + index * 3 + index / 256) as u8).collect()
}

fn push(channel: &mut Channel, number: u64, payload: &[u8]) -> Result<(), PushError> {
    let (first, second) = payload.split_at(payload.len() / 3);
    channel.sender.try_push(&header(number), &[first.into(), Piece::EMPTY, second.into()])
}

/// Takes the packet at the head, checks that it is `number` with `len_bytes`.
fn expect(channel: &mut Channel, number: u64, len_bytes: usize) {
    let incoming = channel.receiver.peek().unwrap().expect("a packet waits");
    assert_eq!(incoming.header, &header(number));
    assert_eq!(incoming.payload.len_bytes(), len_bytes);
    let mut copy = vec![0; len_bytes];
    incoming.payload.copy_to_slice(0, &mut copy);
    assert_eq!(copy, bytes(number, len_bytes));
    channel.receiver.release();
}

#[test]
fn every_length_up_to_the_longest_arrives_intact() {
    let config = RingConfig { max_payload_bytes: 8192, ..RingConfig::default() };
    let mut channel = Channel::loopback(&config).unwrap();
    for len_bytes in 0..=8192 {
        push(&mut channel, len_bytes as u64, &bytes(len_bytes as u64, len_bytes)).unwrap();
        expect(&mut channel, len_bytes as u64, len_bytes);
    }
    assert!(channel.receiver.peek().unwrap().is_none());
    assert!(channel.sender.drained().unwrap());
}

#[test]
fn a_payload_that_is_too_long_is_refused_and_nothing_is_sent() {
    let mut channel = Channel::loopback(&SMALL).unwrap();
    assert_eq!(push(&mut channel, 1, &vec![0; 8193]), Err(PushError::TooLong { len_bytes: 8193, max_bytes: 8192 }));
    assert!(!channel.receiver.has_packet());
}

#[test]
fn a_full_ring_takes_packets_again_once_some_are_released() {
    let mut channel = Channel::loopback(&SMALL).unwrap();
    for lap in 0..if cfg!(miri) { 10 } else { 1000 } {
        let base = lap * 8;
        for number in 0..8 {
            push(&mut channel, base + number, b"").unwrap();
        }
        assert_eq!(push(&mut channel, 99, b""), Err(PushError::Full));
        for number in 0..8 {
            let incoming = channel.receiver.peek().unwrap().unwrap();
            assert_eq!(incoming.header, &header(base + number));
            channel.receiver.release();
        }
    }
}

#[test]
fn the_longest_payload_always_fits_an_empty_ring_wherever_its_head_stands() {
    for first in (200..=8192).step_by(if cfg!(miri) { 4096 } else { 8 }) {
        let mut channel = Channel::loopback(&SMALL).unwrap();
        push(&mut channel, 1, &bytes(1, first)).unwrap();
        expect(&mut channel, 1, first);
        channel.receiver.announce();
        for number in 2..6 {
            push(&mut channel, number, &bytes(number, 8192)).unwrap();
            expect(&mut channel, number, 8192);
            channel.receiver.announce();
        }
    }
}

#[test]
fn release_without_a_peek_does_nothing() {
    let mut channel = Channel::loopback(&SMALL).unwrap();
    push(&mut channel, 1, b"one").unwrap();
    channel.receiver.release();
    channel.receiver.peek().unwrap().unwrap();
    channel.receiver.release();
    channel.receiver.release();
    push(&mut channel, 2, &bytes(2, 3)).unwrap();
    expect(&mut channel, 2, 3);
}

proptest! {
    #[test]
    fn any_sequence_of_pushes_and_pops_agrees_with_a_queue(
        config in prop_oneof![Just(SMALL), Just(WIDE)],
        operations in proptest::collection::vec((any::<bool>(), prop_oneof![0u32..300, 0..=8192u32, 0..=u32::MAX]), 1..400)
    ) {
        let mut channel = Channel::loopback(&config).unwrap();
        let mut oracle = VecDeque::new();
        let mut number = 0u64;
        for (is_push, len_bytes) in operations {
            let len_bytes = (len_bytes % (config.max_payload_bytes + 1)) as usize;
            if is_push {
                match push(&mut channel, number, &bytes(number, len_bytes)) {
                    Ok(()) => { oracle.push_back((number, len_bytes)); number += 1; }
                    Err(PushError::Full) => prop_assert!(number > 0),
                    Err(other) => return Err(TestCaseError::fail(other.to_string())),
                }
            } else if let Some((number, len_bytes)) = oracle.pop_front() {
                expect(&mut channel, number, len_bytes);
            } else {
                prop_assert!(channel.receiver.peek().unwrap().is_none());
                prop_assert!(channel.sender.drained().unwrap());
            }
        }
        for (number, len_bytes) in oracle {
            expect(&mut channel, number, len_bytes);
        }
        prop_assert!(channel.receiver.peek().unwrap().is_none());
    }
}

/// Needs no file, so Miri runs it too, and sees a race of the two threads on a slot or a payload.
#[test]
fn two_threads_exchange_packets_through_private_memory() {
    let mut channel = Channel::loopback(&SMALL).unwrap();
    let (sender, receiver) = (&mut channel.sender, &mut channel.receiver);
    let lengths = [0, 8, 9, 16, 36, 37, 136, 137, 700, 4096, 8192];
    let rounds = if cfg!(miri) { 1 } else { 200 };
    let packets = || (0..).zip(lengths.into_iter().cycle().take(rounds * lengths.len()));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (number, length) in packets() {
                let payload = bytes(number, length);
                while sender.try_push(&header(number), &[payload[..].into()]).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        for (number, length) in packets() {
            while !receiver.has_packet() {
                receiver.announce();
                std::thread::yield_now();
            }
            let incoming = receiver.peek().unwrap().unwrap();
            assert_eq!(incoming.header, &header(number));
            let mut copy = vec![0; length];
            incoming.payload.copy_to_slice(0, &mut copy);
            assert_eq!(copy, bytes(number, length));
            receiver.release();
        }
    });
}

#[test]
fn two_threads_exchange_a_hundred_thousand_packets_in_order() {
    let config = RingConfig::default();
    let fd = Channel::create(&config).unwrap();
    let mut lower = Channel::open(&fd, Side::Lower, &config).unwrap();
    let mut higher = Channel::open(&fd, Side::Higher, &config).unwrap();
    const PACKETS: u64 = 100_000;
    let len_of = |number: u64| (number.wrapping_mul(2_654_435_761) >> 7) as usize % 700;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..PACKETS {
                let payload = bytes(number, len_of(number));
                while let Err(error) = push(&mut lower, number, &payload) {
                    assert_eq!(error, PushError::Full);
                    std::thread::yield_now();
                }
            }
            while !lower.sender.drained().unwrap() {
                std::thread::yield_now();
            }
        });
        for number in 0..PACKETS {
            while !higher.receiver.has_packet() {
                higher.receiver.announce();
                std::thread::yield_now();
            }
            expect(&mut higher, number, len_of(number));
        }
        higher.receiver.announce();
    });
}

#[test]
fn a_channel_of_other_sizes_is_refused_by_name() {
    let config = RingConfig::default();
    let fd = Channel::create(&config).unwrap();
    let other = RingConfig { slots: 128, ..config };
    let error = Channel::open(&fd, Side::Lower, &other).unwrap_err();
    assert!(error.to_string().contains("length in bytes"), "{error}");
    let other = RingConfig { max_payload_bytes: 4000, ..config };
    let error = Channel::open(&fd, Side::Lower, &other).unwrap_err();
    assert!(error.to_string().contains("ring configuration"), "{error}");
}

#[test]
fn a_file_that_could_still_shrink_is_not_mapped() {
    let config = RingConfig::default();
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("unsealed", flags).unwrap();
    rustix::fs::ftruncate(&fd, Channel::layout_bytes(&config) as u64).unwrap();
    let error = Channel::open(&fd, Side::Lower, &config).unwrap_err();
    assert!(matches!(error, ChannelError::Memory(MemoryError::NotSealed(_))), "{error}");
}

#[test]
fn unusable_sizes_are_refused() {
    let good = RingConfig::default();
    for bad in [
        RingConfig { slots: 0, ..good },
        RingConfig { slots: 1, ..good },
        RingConfig { slots: 48, ..good },
        RingConfig { slots: u32::MAX, ..good },
        RingConfig { bulk_bytes: 0, ..good },
        RingConfig { bulk_bytes: 5000, ..good },
        // A payload of half of it would have the bit of one that restarts.
        RingConfig { bulk_bytes: 1 << 30, max_payload_bytes: 1 << 29, ..good },
        RingConfig { bulk_bytes: 1 << 31, ..good },
        RingConfig { max_payload_bytes: u32::MAX, ..good },
    ] {
        assert!(Channel::create(&bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_closed_side_is_seen_by_the_other() {
    let config = SMALL;
    let fd = Channel::create(&config).unwrap();
    let lower = Channel::open(&fd, Side::Lower, &config).unwrap();
    let higher = Channel::open(&fd, Side::Higher, &config).unwrap();
    assert!(!higher.sender.consumer_closed() && !higher.receiver.producer_closed());
    drop(lower);
    assert!(higher.sender.consumer_closed() && higher.receiver.producer_closed());
}
