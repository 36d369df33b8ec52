//! Peers that send whatever they like.

use std::collections::BTreeMap;

use crate::world::random::{Random, for_seeds};
use crate::world::{PAGE, Sent, World, fetch, key, notifying_send, short_send, words};
use mapwire_nic::{Completion, Export, Rejection};
use mapwire_wire::{
    Atomic, AtomicOp, CommandRepr, ExportId, FetchId, HEADER_BYTES, Header, INLINE_BYTES, Key, MessageId, NodeId,
    ProcessId, Refusal, Repr, Rights, Signal, Width,
};

const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x40_0010;
const LENGTH: u64 = 2 * PAGE + 40;

/// Node 1 exports; its exported pages have neighbours, and are themselves exported in part.
fn victim(seed: u64) -> (World, ExportId, Key) {
    let mut world = World::new(3, seed);
    world.open(0, 0);
    world.pin(0, 0, HERE, 4 * PAGE);
    world.open(1, 0);
    world.open(1, 1);
    world.pin(1, 0, THERE - PAGE, LENGTH + 2 * PAGE);
    world.pin(1, 1, THERE, PAGE);
    let (export, key) = world.export(1, 0, THERE, LENGTH);
    (world, export, key)
}

/// A packet that takes its turn on the link from node 0 to node 1.
fn inject(world: &mut World, repr: &Repr, payload: &[u8]) {
    let sequence = world.nodes[1].due.get(&0).copied().unwrap_or(0);
    let (header, own) = repr.emit(sequence);
    let payload = if own.is_empty() { payload } else { &own };
    assert_eq!(payload.len(), header.payload_bytes() as usize);
    let payload = payload.to_vec();
    world.inject(0, 1, &Sent { header, payload, of: None, datagram: Vec::new() });
}

fn store(key: Key, export: ExportId, offset: u64, length: u32) -> Repr {
    Repr::Store { key, export, message: MessageId(9), offset, length, last: true, notify: false, signal: false }
}

/// Addresses of process 0 whose bytes changed; any other change is an error.
fn assert_changes_are_exported(world: &World, before: &BTreeMap<u64, Vec<u8>>, frames: &[(u64, u64)]) {
    for (frame, bytes) in world.snapshot(1) {
        let Some((_, page)) = frames.iter().find(|(of_page, _)| *of_page == frame) else {
            assert!(bytes == before[&frame], "a frame of another process changed");
            continue;
        };
        for (at, (old, new)) in (page * PAGE..).zip(before[&frame].iter().zip(&bytes)) {
            assert!(
                old == new || (THERE..THERE + LENGTH).contains(&at),
                "the byte at {at:#x} is not exported and changed"
            );
        }
    }
}

fn frames_of_victim(world: &World) -> Vec<(u64, u64)> {
    let start = THERE - PAGE;
    let frames = world.frames(1, 0, start, LENGTH + 2 * PAGE);
    frames.iter().map(|frame| frame.0).zip(start / PAGE..).collect()
}

#[test]
fn nothing_is_stored_without_the_key_the_right_and_the_range() {
    let (mut world, export, good) = victim(1);
    let before = world.snapshot(1);
    let gone = world.export(1, 0, THERE, LENGTH);
    world.nic(1).revoke(gone.0).unwrap();
    let for_fetch_only = Export {
        process: ProcessId(0),
        key: key(5),
        address: THERE,
        length: LENGTH,
        rights: Rights::FETCH,
        landing: None,
    };
    let for_fetch_only = world.nic(1).export(for_fetch_only).unwrap();
    let cases = [
        (store(key(1), export, 0, 8), Refusal::WrongKey),
        (store(Key::ZERO, export, 0, 8), Refusal::WrongKey),
        (store(good, ExportId(0xffff_0000), 0, 8), Refusal::UnknownExport),
        (store(good, ExportId(77), 0, 8), Refusal::UnknownExport),
        (store(gone.1, gone.0, 0, 8), Refusal::Revoked),
        (store(key(5), for_fetch_only, 0, 8), Refusal::NoRight),
        (store(good, export, LENGTH - 7, 8), Refusal::OutOfRange),
        (store(good, export, LENGTH + 1, 0), Refusal::OutOfRange),
        (store(good, export, u64::MAX - 8, 8), Refusal::OutOfRange),
    ];
    for (repr, reason) in cases {
        inject(&mut world, &repr, &[0xAA; 8][..repr_length(&repr)]);
        let rejected = Completion::Rejected { from: NodeId(0), reason: Rejection::Refused(reason) };
        assert_eq!(world.take_told(1), [rejected], "{repr}");
    }
    assert_eq!(world.snapshot(1), before);
    inject(&mut world, &store(good, export, LENGTH - 8, 8), &[0xAA; 8]);
    assert_eq!(world.peek(1, 0, THERE + LENGTH - 8, 8), [0xAA; 8], "the last bytes are fair");
}

#[test]
fn the_key_of_an_export_is_of_use_only_to_nodes_that_were_granted_it_and_as_they_were() {
    let (mut world, export, good) = victim(3);
    let refused = |world: &mut World, reason| {
        inject(world, &store(good, export, 0, 8), &[0xAA; 8]);
        let rejected = Completion::Rejected { from: NodeId(0), reason: Rejection::Refused(reason) };
        assert_eq!(world.take_told(1), [rejected]);
    };
    let before = world.snapshot(1);
    // Another node has been granted it: node 0 shows a key that was not meant for it.
    world.nic(1).grant(export, NodeId(1), Rights::ALL).unwrap();
    refused(&mut world, Refusal::NotPermitted);
    world.nic(1).grant(export, NodeId(0), Rights::FETCH).unwrap();
    refused(&mut world, Refusal::NotPermitted);
    assert_eq!(world.snapshot(1), before);
    world.nic(1).grant(export, NodeId(0), Rights::STORE).unwrap();
    inject(&mut world, &store(good, export, 0, 8), &[0xAA; 8]);
    assert_eq!(world.peek(1, 0, THERE, 8), [0xAA; 8]);
    // The next export in its slot was granted nothing.
    world.nic(1).revoke(export).unwrap();
    let unknown = world.nic(1).grant(export, NodeId(0), Rights::ALL);
    assert_eq!(unknown, Err(mapwire_nic::NicError::UnknownExport(export.0)));
    let far = world.nic(1).grant(export, NodeId(999), Rights::ALL);
    assert!(matches!(far, Err(mapwire_nic::NicError::UnknownNode(..))));
}

fn repr_length(repr: &Repr) -> usize {
    match repr {
        Repr::Store { length, .. } => *length as usize,
        _ => 0,
    }
}

#[test]
fn a_signal_outside_the_export_or_across_words_takes_its_data_with_it() {
    let (mut world, export, good) = victim(2);
    let before = world.snapshot(1);
    // The last three bits of the offset are an operation, of which there are three.
    for place in [LENGTH, LENGTH | 4, 3, 4, u64::MAX - 8, THERE] {
        let repr = Repr::Store {
            key: good,
            export,
            message: MessageId(1),
            offset: 0,
            length: 8,
            last: true,
            notify: true,
            signal: true,
        };
        let payload = [[0xAA; 8], place.to_le_bytes(), [7; 8]].concat();
        inject(&mut world, &repr, &payload);
        let told = world.take_told(1);
        assert!(matches!(told[..], [Completion::Rejected { .. }]), "{place}: {told:?}");
    }
    assert_eq!(world.snapshot(1), before);
}

#[test]
fn an_atomic_without_key_right_or_word_changes_nothing_and_is_answered_with_the_reason() {
    let (mut world, export, good) = victim(2);
    let before = world.snapshot(1);
    let atomic = |width| Atomic { op: AtomicOp::Add, width, operand: 1 };
    let reply_key = Key([5; 16]);
    let mut ask = |key, export, offset, width| {
        let repr = Repr::Atomic { key, export, fetch: FetchId(1), offset, atomic: atomic(width), reply_key };
        let (_, payload) = repr.emit(0);
        inject(&mut world, &repr, &payload);
        let told = world.take_told(1);
        let [Completion::Rejected { reason: Rejection::Refused(reason), .. }] = told[..] else {
            panic!("{told:?}");
        };
        reason
    };
    let past = (LENGTH + 7) & !7;
    assert_eq!(ask(Key([9; 16]), export, 0, Width::Eight), Refusal::WrongKey);
    assert_eq!(ask(good, ExportId(77), 0, Width::Eight), Refusal::UnknownExport);
    assert_eq!(ask(good, export, past, Width::Four), Refusal::OutOfRange);
    assert_eq!(ask(good, export, !7, Width::Four), Refusal::OutOfRange);
    assert_eq!(world.snapshot(1), before);
}

#[test]
fn a_packet_that_is_no_packet_does_not_take_those_behind_it_along() {
    let (mut world, export, good) = victim(3);
    let (mut header, _) = store(good, export, 0, 8).emit(0);
    header.flags.set(0x8000);
    world.inject(0, 1, &Sent { header, payload: vec![1; 8], of: None, datagram: Vec::new() });
    // One that claims more payload than it has.
    let (header, _) = store(good, export, 0, 8).emit(1);
    world.inject(0, 1, &Sent { header, payload: vec![1; 7], of: None, datagram: Vec::new() });
    let malformed = Completion::Rejected { from: NodeId(0), reason: Rejection::Malformed };
    assert_eq!(world.take_told(1), [malformed, malformed]);
    inject(&mut world, &store(good, export, 0, 8), &[3; 8]);
    assert_eq!(world.take_told(1), []);
    assert_eq!(world.peek(1, 0, THERE, 8), [3; 8]);
}

#[test]
fn a_packet_sent_twice_is_applied_once_and_one_that_is_missing_stops_the_link() {
    let (mut world, export, good) = victim(4);
    let at = |sequence, byte| {
        let (header, _) = store(good, export, 0, 1).emit(sequence);
        Sent { header, payload: vec![byte], of: None, datagram: Vec::new() }
    };
    world.inject(0, 1, &at(0, 1));
    world.inject(0, 1, &at(0, 2));
    assert_eq!(world.peek(1, 0, THERE, 1), [1]);
    world.inject(0, 1, &at(1, 3));
    assert_eq!(world.peek(1, 0, THERE, 1), [3]);
    world.inject(0, 1, &at(3, 4));
    world.inject(0, 1, &at(4, 5));
    assert_eq!(world.peek(1, 0, THERE, 1), [3], "the order of a link is never broken");
    let reason =
        |expected, got| Completion::Rejected { from: NodeId(0), reason: Rejection::OutOfOrder { expected, got } };
    assert_eq!(world.take_told(1), [reason(1, 0), reason(2, 3), reason(2, 4)]);
    world.inject(0, 1, &at(2, 6));
    assert_eq!(world.peek(1, 0, THERE, 1), [6]);
    let (header, _) = store(good, export, 0, 1).emit(0);
    world.inject(2, 1, &Sent { header, payload: vec![7], of: None, datagram: Vec::new() });
    assert_eq!(world.peek(1, 0, THERE, 1), [7], "each node has numbers of its own");
    assert_eq!(world.nic(1).counters().rejected.out_of_order, 3);
}

#[test]
fn nobody_answers_a_fetch_but_who_was_asked() {
    let (mut world, export, good) = victim(5);
    let import = world.import(0, 0, 1, (export, good), LENGTH);
    world.submit(0, 0, &fetch(import, 0, HERE, 64, 3), &[]);
    world.serve(0, 0);
    world.transmit(0);
    let request = world.wires.get_mut(&(0, 1)).unwrap().pop_front().unwrap();
    let id = FetchId(request.header.message.get());
    let right_key = Key(*request.payload.last_chunk().unwrap());
    let reply = |reply_key, fetch, offset, length, last| Repr::FetchReply { reply_key, fetch, offset, length, last };
    let wrong = [
        (1, reply(key(1), id, 0, 64, true)),
        (1, reply(right_key, FetchId(id.0 + 1), 0, 64, true)),
        (2, reply(right_key, id, 0, 64, true)),
        (1, reply(right_key, id, 8, 56, true)),
        (1, reply(right_key, id, 0, 65, true)),
        (1, reply(right_key, id, 0, 64, false)),
        (1, reply(right_key, id, 0, 63, true)),
        (2, Repr::FetchRefused { reply_key: right_key, fetch: id, reason: Refusal::Busy }),
    ];
    let before = world.snapshot(0);
    for (from, repr) in wrong {
        let sequence = world.nodes[0].due.get(&from).copied().unwrap_or(0);
        let (header, _) = repr.emit(sequence);
        let payload = vec![0xAA; header.payload_bytes() as usize];
        world.inject(from, 0, &Sent { header, payload, of: None, datagram: Vec::new() });
        let told = world.take_told(0);
        assert!(
            matches!(told[..], [Completion::Rejected { reason: Rejection::UnknownFetch(_), .. }]),
            "{repr}: {told:?}"
        );
    }
    assert_eq!(world.snapshot(0), before);
    let sequence = world.nodes[0].due[&1];
    let (header, _) = reply(right_key, id, 0, 64, true).emit(sequence);
    world.inject(1, 0, &Sent { header, payload: vec![5; 64], of: None, datagram: Vec::new() });
    assert_eq!(words(&world.take_told(0)), (vec![3], vec![]));
    assert_eq!(world.peek(0, 0, HERE, 64), [5; 64]);
}

#[test]
fn random_packets_never_panic_and_write_nothing() {
    for_seeds(20, |seed| {
        let (mut world, _, _) = victim(seed);
        let before = world.snapshot(1);
        let mut random = Random::new(seed);
        for _ in 0..3000 {
            let bytes: [u8; HEADER_BYTES] = core::array::from_fn(|_| random.next() as u8);
            let mut header: Header = zerocopy::transmute!(bytes);
            header.version = 1;
            header.kind = random.below(10) as u8;
            if random.chance(90) {
                header.flags.set(random.below(8) as u16);
                header.length.set(random.below(200) as u32);
            }
            if random.chance(50) {
                header.key = Key::ZERO;
                header.export.set(random.below(2) as u32 | 0x1_0000);
                header.message.set(random.below(4) as u32);
                header.offset.set(random.below(12));
            }
            header.sequence.set(world.nodes[1].due.get(&0).copied().unwrap_or(0));
            let length = header.payload_bytes().min(5000) as usize;
            let payload = (0..length).map(|_| random.next() as u8).collect();
            world.inject(0, 1, &Sent { header, payload, of: None, datagram: Vec::new() });
            assert!(world.nodes[1].told.len() < 4);
            world.take_told(1);
        }
        assert_eq!(world.snapshot(1), before, "no key was right");
        // A peer that asks and takes nothing is owed a bounded answer.
        let mut owed = 0;
        while world.transmit(1) {
            owed += 1;
        }
        assert!(owed <= 48, "{owed} packets wait for a peer that never took one");
    });
}

#[test]
fn mutated_packets_of_an_honest_peer_write_nothing_outside_the_export() {
    for_seeds(20, |seed| {
        let (mut world, export, good) = victim(seed);
        let import = world.import(0, 0, 1, (export, good), LENGTH);
        let frames = frames_of_victim(&world);
        let mut random = Random::new(seed);
        for word in 0..150 {
            let length = random.within(1, LENGTH);
            let signal = random.chance(50).then(|| Signal::set(8 * random.below(4), 5));
            let command = match random.below(3) {
                0 => CommandRepr::LongSend {
                    import,
                    offset: LENGTH - length,
                    address: HERE,
                    length,
                    notify: random.chance(50),
                    signal,
                    completion: word,
                },
                1 => short_send(import, random.below(64), &[1; 40], true, signal),
                _ => fetch(import, LENGTH - length, HERE, length, word),
            };
            let data = [1; 40];
            let data = if let CommandRepr::ShortSend { .. } = command { &data[..] } else { &[] };
            world.submit(0, 0, &command, data);
            world.serve(0, 0);
            while world.transmit(0) {}
            for mut sent in core::mem::take(world.wires.entry((0, 1)).or_default()) {
                let before = world.snapshot(1);
                let mut bytes: [u8; HEADER_BYTES] = zerocopy::transmute!(sent.header);
                let mut key_hit = false;
                for _ in 0..random.below(4) {
                    let bit = random.below(8 * HEADER_BYTES as u64) as usize;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    key_hit |= (16..32).contains(&(bit / 8));
                }
                for byte in &mut sent.payload {
                    if random.chance(3) {
                        *byte ^= random.next() as u8;
                    }
                }
                sent.header = zerocopy::transmute!(bytes);
                key_hit &= sent.header.key != good;
                let claimed = sent.header.payload_bytes() as usize;
                if claimed != sent.payload.len() {
                    // The transport checks that.
                    sent.payload.resize(claimed.min(5000), 0);
                    sent.header.length.set(sent.payload.len() as u32);
                }
                sent.header.sequence.set(world.nodes[1].due.get(&0).copied().unwrap_or(0));
                world.inject(0, 1, &sent);
                assert_changes_are_exported(&world, &before, &frames);
                if key_hit {
                    assert_eq!(world.snapshot(1), before, "the key was wrong");
                }
            }
            // Node 1's answers do not matter here; they go out, so that they do not bound the rest.
            while world.transmit(1) {}
            world.wires.clear();
            world.take_told(0);
            world.take_told(1);
            if !world.nic(0).accepts_command(ProcessId(0)) {
                // As many fetches as possible are under way, and nobody answers them.
                return;
            }
        }
    });
}

#[test]
fn a_peer_that_never_ends_its_messages_or_is_always_refused_costs_a_bounded_memory() {
    let (mut world, export, good) = victim(8);
    let part = |message, key| Repr::Store {
        key,
        export,
        message: MessageId(message),
        offset: 0,
        length: 4,
        last: false,
        notify: false,
        signal: false,
    };
    let fetch = |fetch| Repr::FetchRequest {
        key: good,
        export,
        fetch: FetchId(fetch),
        offset: 0,
        want_bytes: LENGTH,
        reply_key: key(3),
    };
    let mut used = 0;
    for round in 0..2000 {
        inject(&mut world, &part(round, good), &[1; 4]);
        inject(&mut world, &part(round, key(2)), &[1; 4]);
        inject(&mut world, &fetch(round), &[]);
        world.take_told(1);
        if round == 100 {
            used = world.nic(1).memory().used_bytes();
        }
    }
    assert_eq!(world.nic(1).memory().used_bytes(), used);
    assert_eq!(world.nic(1).counters().untold_refusals, 0, "refusals of one export are told together");
    // Other peers are not affected.
    world.open(2, 0);
    world.pin(2, 0, HERE, 4 * PAGE);
    let import = world.import(2, 0, 1, (export, good), LENGTH);
    world.submit(2, 0, &notifying_send(import, 0, HERE, LENGTH, 1), &[]);
    world.submit(2, 0, &crate::world::fetch(import, 0, HERE, LENGTH, 2), &[]);
    world.settle();
    assert_eq!(words(&world.take_told(2)), (vec![1, 2], vec![]));
}

#[test]
fn a_payload_that_ends_before_the_page_does_is_all_that_inline_bytes_hold() {
    // The largest inline payload and the smallest that is not.
    let (mut world, export, good) = victim(9);
    for length in [INLINE_BYTES as u32, INLINE_BYTES as u32 + 1] {
        inject(&mut world, &store(good, export, 0, length), &vec![length as u8; length as usize]);
        assert_eq!(world.peek(1, 0, THERE, length.into()), vec![length as u8; length as usize]);
    }
}
