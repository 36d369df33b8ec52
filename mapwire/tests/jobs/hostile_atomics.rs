//! Ranks that ask for atomic operations against all rules, and ranks that answer them so.

use mapwire::{Key, Rights};
use mapwire_transport::rendezvous::{Event, ToRank};
use mapwire_wire::{Atomic, AtomicOp, ControlMessage, ExportId, FetchId, HandlerId, Header, Refusal, Repr, Width};

use crate::harness::hostile::{Grant, Outlaw, RawChannel};
use crate::harness::{Rank, job, refused};

const LENGTH: usize = 4099;
const OWN: u8 = 0xa5;

fn ask(grant: &Grant, offset: u64, atomic: Atomic) -> Repr {
    Repr::Atomic { key: grant.key, export: grant.export, fetch: FetchId(5), offset, atomic, reply_key: Key([1; 16]) }
}

const fn add(width: Width, operand: u64) -> Atomic {
    Atomic { op: AtomicOp::Add, width, operand }
}

/// The next packet that is no control message.
fn next(channel: &mut RawChannel) -> (Repr, Vec<u8>) {
    loop {
        let (header, payload) = channel.receive();
        match Repr::parse(&header, &payload).unwrap() {
            Repr::Handler { handler: HandlerId::CONTROL, .. } => {}
            repr => return (repr, payload),
        }
    }
}

fn answer(channel: &mut RawChannel) -> Refusal {
    match next(channel).0 {
        Repr::FetchRefused { reason, .. } => reason,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_word_that_is_not_to_be_changed_stays_whatever_a_packet_says() {
    job(2)
        .run(|rank| {
            if rank.number == 0 {
                let node = rank.node();
                let mut heap = vec![u64::from_ne_bytes([OWN; 8]); 3 * 512];
                let start = heap.as_mut_ptr().cast::<u8>().wrapping_add(4096);
                let builder = |name: &str, shift: usize| {
                    // SAFETY: the memory outlives the exports and is read when they are over.
                    let export = unsafe { node.export_range(start.wrapping_add(shift), LENGTH) };
                    export.ring_only().name(name)
                };
                let all = builder("all", 0).start().unwrap();
                let odd = builder("odd", 4).start().unwrap();
                let stores = builder("stores", 0).rights(Rights::STORE).start().unwrap();
                let fetches = builder("fetches", 0).rights(Rights::FETCH).start().unwrap();
                rank.read("refused");
                drop((all, odd, stores, fetches));
                let expected = u64::from_ne_bytes([OWN; 8]);
                assert_eq!(heap[512 + 8], expected.wrapping_add(7), "the legal one, once");
                heap[512 + 8] = expected;
                assert!(heap.iter().all(|word| *word == expected));
                return;
            }
            let mut outlaw = Outlaw::join(rank);
            let mut channel = outlaw.channel(0);
            let [all, odd, stores, fetches] = ["all", "odd", "stores", "fetches"].map(|name| {
                channel.import(
                    name,
                    if name == "stores" {
                        Rights::STORE
                    } else if name == "fetches" {
                        Rights::FETCH
                    } else {
                        Rights::ALL
                    },
                )
            });
            let (four, eight) = (add(Width::Four, 1), add(Width::Eight, 1));
            let wrong = Grant { key: Key([3; 16]), ..all };
            let unknown = Grant { export: ExportId(u32::MAX), ..all };
            let end = LENGTH as u64;
            for (grant, offset, atomic, reason) in [
                (wrong, 0, eight, Refusal::WrongKey),
                (unknown, 0, eight, Refusal::UnknownExport),
                (stores, 0, eight, Refusal::NoRight),
                (fetches, 0, eight, Refusal::NoRight),
                // Not aligned in the memory of the exporter.
                (odd, 0, eight, Refusal::OutOfRange),
                // Across the end, and behind it.
                (all, end & !7, eight, Refusal::OutOfRange),
                (all, end & !3, four, Refusal::OutOfRange),
                (all, 1 << 40, eight, Refusal::OutOfRange),
                (all, u64::MAX - 15, eight, Refusal::OutOfRange),
            ] {
                channel.send(&ask(&grant, offset, atomic), &[]);
                assert_eq!(answer(&mut channel), reason, "{atomic} at {offset}");
            }
            channel.send(&ask(&all, 64, add(Width::Eight, 7)), &[]);
            let (repr, payload) = next(&mut channel);
            assert!(matches!(repr, Repr::FetchReply { length: 8, last: true, fetch: FetchId(5), .. }));
            assert_eq!(payload, [OWN; 8]);
            rank.note("refused", "");
        })
        .succeeds();
}

#[test]
fn an_atomic_that_no_nic_asks_for_ends_the_link_and_changes_nothing() {
    // What is wrong with its 40 bytes: the width, the operation, an operand that is too long, a value that should be 0, the offset.
    type Spoil = fn(&mut Header, &mut [u8]);
    let spoils: [(&str, Spoil); 6] = [
        ("width", |_, bytes| bytes[0] = 3),
        ("operation", |_, bytes| bytes[1] = 9),
        ("operand", |_, bytes| (bytes[0], bytes[12]) = (4, 1)),
        ("expected", |_, bytes| bytes[16] = 1),
        ("offset", |header, _| header.offset.set(12)),
        ("length", |header, _| header.length.set(32)),
    ];
    for (name, spoil) in spoils {
        job(3)
            .called(name)
            .run(|rank| {
                if rank.number == 1 {
                    let mut outlaw = Outlaw::join(rank);
                    let mut channel = outlaw.channel(0);
                    let grant = channel.import("all", Rights::ALL);
                    let repr = ask(&grant, 8, add(Width::Eight, 1));
                    let (mut header, payload) = repr.emit(channel.sequence);
                    let mut payload = payload.to_vec();
                    spoil(&mut header, &mut payload);
                    payload.truncate(header.length.get() as usize);
                    assert!(channel.send_raw(header, &payload));
                    rank.note("sent", "");
                    rank.read("end");
                    return;
                }
                let node = rank.node();
                if rank.number == 0 {
                    let buffer = node.alloc(4096).unwrap();
                    let all = node.export_buffer(&buffer).ring_only().name("all");
                    let all = all.start().unwrap();
                    rank.read("sent");
                    all.wait_signal(0, 1).unwrap();
                    assert_eq!(all.signal(8).unwrap(), 0);
                    let late = node.import(1, "none").start();
                    refused(late.map(drop), &["it sent a malformed packet"]);
                    rank.note("end", "");
                    return;
                }
                // Others go on.
                let import = node.import(0, "all").rights(Rights::ALL).start().unwrap();
                rank.read("sent");
                assert_eq!(import.fetch_add_u64(0, 1).unwrap(), 0);
                rank.read("end");
            })
            .succeeds();
    }
}

/// Answers the request of an import, of which nothing is mapped.
fn grant(channel: &mut RawChannel) {
    loop {
        let (header, payload) = channel.receive();
        if let Ok(Repr::Handler { handler: HandlerId::CONTROL, .. }) = Repr::parse(&header, &payload)
            && let Ok(ControlMessage::ImportRequest { request, .. }) = ControlMessage::parse(&payload)
        {
            return channel.control(&ControlMessage::ImportGranted {
                request,
                export: ExportId(1),
                key: Key([7; 16]),
                length: 4096,
                rights: Rights::ALL,
                direct: None,
            });
        }
    }
}

fn reply(fetch: FetchId, reply_key: Key, offset: u64, length: u32, last: bool) -> Repr {
    Repr::FetchReply { reply_key, fetch, offset, length, last }
}

/// What the victim asks next.
fn asked(channel: &mut RawChannel) -> (FetchId, Key) {
    match next(channel).0 {
        Repr::Atomic { fetch, reply_key, .. } => (fetch, reply_key),
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_that_nobody_asked_for_or_that_come_twice_are_passed_over() {
    job(2).run(answered_wrongly).succeeds();
}

fn answered_wrongly(rank: &Rank) {
    if rank.number == 1 {
        let node = rank.node();
        let import = node.import(0, "all").rights(Rights::ALL).start().unwrap();
        for round in 0..50_u64 {
            assert_eq!(import.fetch_add_u64(8, 1).unwrap(), round);
            assert_eq!(import.swap_u32(4, 9).unwrap(), round as u32);
            refused(import.fetch_add_u64(16, 1), &["no room"]);
            refused(import.compare_swap_u64(16, 1, 2), &["revoked"]);
        }
        rank.note("end", "");
        refused(import.fetch_add_u64(8, 1), &["rank 0"]);
        return;
    }
    let mut outlaw = Outlaw::join(rank);
    let memory = outlaw.wait_for(|event| match event {
        Event::Message(ToRank::Channel { peer: 1 }, Some(fd)) => Some(fd),
        _ => None,
    });
    let mut channel = outlaw.channel_in(1, &memory);
    grant(&mut channel);
    for round in 0..50_u64 {
        let (fetch, key) = asked(&mut channel);
        let bytes = [0xee; 64];
        // Of another fetch, by another key, in other lengths, from another place.
        channel.send(&reply(FetchId(fetch.0 ^ 1), key, 0, 8, true), &bytes[..8]);
        channel.send(&reply(fetch, Key([9; 16]), 0, 8, true), &bytes[..8]);
        channel.send(&reply(fetch, key, 0, 4, true), &bytes[..4]);
        channel.send(&reply(fetch, key, 0, 8, false), &bytes[..8]);
        channel.send(&reply(fetch, key, 0, 64, true), &bytes);
        channel.send(&reply(fetch, key, 4, 4, true), &bytes[..4]);
        // In two pieces, of which the second comes once more.
        let word = round.to_le_bytes();
        channel.send(&reply(fetch, key, 0, 3, false), &word[..3]);
        channel.send(&reply(fetch, key, 0, 3, false), &bytes[..3]);
        channel.send(&reply(fetch, key, 3, 5, true), &word[3..]);
        channel.send(&reply(fetch, key, 3, 5, true), &bytes[..5]);
        channel.send(&reply(fetch, key, 0, 8, true), &bytes[..8]);

        let (fetch, key) = asked(&mut channel);
        channel.send(&reply(fetch, key, 0, 8, true), &bytes[..8]);
        channel.send(&reply(fetch, key, 0, 4, true), &(round as u32).to_le_bytes());

        for reason in [Refusal::Busy, Refusal::Revoked] {
            let (fetch, reply_key) = asked(&mut channel);
            let refusal = Repr::FetchRefused { reply_key, fetch, reason };
            channel.send(&refusal, &[]);
            // The memory of the one that asked may be another's by now.
            channel.send(&reply(fetch, reply_key, 0, 8, true), &bytes[..8]);
            channel.send(&refusal, &[]);
        }
    }
    rank.read("end");
    // It asks, and this rank leaves without an answer.
    asked(&mut channel);
    outlaw.client.leave().unwrap();
}
