//! A rank that sends packets of its own making: wrong keys, ranges and rights; then what no NIC ever sends.

use std::time::{Duration, Instant};

use mapwire::{Key, Rights};
use mapwire_transport::rendezvous::{Event, ToRank};
use mapwire_wire::{
    Atomic, AtomicOp, ControlMessage, ExportId, FetchId, HandlerId, Header, MappedPart, MessageId, ProcessId, Refusal,
    Repr, Signal, SignalOp, Width,
};

use crate::harness::hostile::{Dice, Grant, Outlaw, RawChannel, message_for};
use crate::harness::{job, refused};

const LENGTH: u64 = 5000;
const OWN: u8 = 0xa5;
/// Random packets that a rank sends.
const PACKETS: u64 = 20_000;

fn store(grant: &Grant, offset: u64, length: u32) -> Repr {
    Repr::Store {
        key: grant.key,
        export: grant.export,
        message: MessageId(1),
        offset,
        length,
        last: true,
        notify: false,
        signal: false,
    }
}

fn fetch(grant: &Grant, offset: u64, want_bytes: u64) -> Repr {
    Repr::FetchRequest {
        key: grant.key,
        export: grant.export,
        fetch: FetchId(5),
        offset,
        want_bytes,
        reply_key: Key([1; 16]),
    }
}

/// The victim's answer to a packet that it must refuse.
fn answer(channel: &mut RawChannel) -> Refusal {
    let (header, payload) = channel.receive();
    match Repr::parse(&header, &payload) {
        Ok(Repr::StoreRefused { reason, .. } | Repr::FetchRefused { reason, .. }) => reason,
        other => panic!("not refused: {other:?} {:?}", ControlMessage::parse(&payload)),
    }
}

/// Whether a packet has all that a fetch of so many bytes asked for.
fn is_fetched((header, payload): &(Header, Vec<u8>), bytes: u32) -> bool {
    matches!(
        Repr::parse(header, payload),
        Ok(Repr::FetchReply { length, last: true, .. }) if length == bytes
    )
}

#[test]
fn a_packet_without_the_right_to_what_it_asks_is_refused_and_changes_nothing() {
    job(2)
        .run(|rank| {
            if rank.number == 0 {
                let node = rank.node();
                let mut heap = vec![OWN; LENGTH as usize + 2 * 4096];
                let start = heap.as_mut_ptr().wrapping_add(4096);
                let builder = |name: &str| {
                    // SAFETY: the memory outlives the exports and is read when they are over.
                    let export = unsafe { node.export_range(start, LENGTH as usize) };
                    export.ring_only().name(name)
                };
                let all = builder("all").start().unwrap();
                let stores = builder("stores").rights(Rights::STORE).start().unwrap();
                let fetches = builder("fetches").rights(Rights::FETCH).start().unwrap();
                let gone = builder("gone").start().unwrap();
                rank.meet("imported");
                gone.revoke().unwrap();
                rank.meet("revoked");
                all.wait_signal_for(104 - all.len() % 8, 1, Some(Duration::ZERO)).unwrap();
                rank.read("refused");
                let rejected = node.nic_counters().rejected;
                rank.read("legal");
                drop((all, stores, fetches));
                assert_eq!(&heap[4096 + 7..4096 + 10], [1, 2, 3], "the packet that was legal");
                heap[4096 + 7..4096 + 10].fill(OWN);
                assert!(heap.iter().all(|byte| *byte == OWN));
                assert!(rejected.refused >= 20, "{rejected:?}");
                return;
            }
            let mut outlaw = Outlaw::join(rank);
            let mut channel = outlaw.channel(0);
            let all = channel.import("all", Rights::ALL);
            assert_eq!(all.length, LENGTH);
            let stores = channel.import("stores", Rights::STORE);
            let fetches = channel.import("fetches", Rights::FETCH);
            let gone = channel.import("gone", Rights::ALL);
            rank.meet("imported");
            rank.meet("revoked");
            // The news of the revocation.
            channel.receive();

            let with = |key: Key, grant: &Grant| Grant { key, ..*grant };
            let mut almost = all.key;
            almost.0[15] ^= 1;
            let at = |id: u32, grant: &Grant| Grant { export: ExportId(id), ..*grant };
            use Refusal::{NoRight, OutOfRange, Revoked, UnknownExport, WrongKey};
            let cases = [
                (with(Key([0; 16]), &all), WrongKey),
                (with(Key([0xff; 16]), &all), WrongKey),
                (with(almost, &all), WrongKey),
                (with(stores.key, &all), WrongKey),
                (with(gone.key, &all), WrongKey),
                (gone, Revoked),
                (with(all.key, &gone), Revoked),
                (at(u32::MAX, &all), UnknownExport),
                (at(0x00ff_0000, &all), UnknownExport),
                (at(5000, &all), UnknownExport),
            ];
            for (grant, reason) in cases {
                channel.send(&store(&grant, 16, 3), &[9; 3]);
                assert_eq!(answer(&mut channel), reason, "{grant:?}");
                channel.send(&store(&grant, 16, 300), &[9; 300]);
                assert_eq!(answer(&mut channel), reason, "{grant:?}");
                channel.send(&fetch(&grant, 16, 300), &[]);
                assert_eq!(answer(&mut channel), reason, "{grant:?}");
            }
            channel.send(&store(&fetches, 0, 1), &[9]);
            assert_eq!(answer(&mut channel), NoRight);
            channel.send(&fetch(&stores, 0, 1), &[]);
            assert_eq!(answer(&mut channel), NoRight);
            for (offset, length) in
                [(LENGTH, 1), (LENGTH - 1, 2), (LENGTH - 4095, 4096), (u64::MAX - 4, 4), (1 << 47, 8)]
            {
                channel.send(&store(&all, offset, length), &vec![9; length as usize]);
                assert_eq!(answer(&mut channel), OutOfRange, "{length} at {offset}");
                channel.send(&fetch(&all, offset, u64::from(length)), &[]);
                assert_eq!(answer(&mut channel), OutOfRange, "{length} at {offset}");
            }
            channel.send(&fetch(&all, 1, u64::MAX - 1), &[]);
            assert_eq!(answer(&mut channel), OutOfRange);
            channel.send(&fetch(&all, 0, LENGTH + 1), &[]);
            assert_eq!(answer(&mut channel), OutOfRange);

            // Signals: across the end, and outside.
            for signal in [LENGTH.next_multiple_of(8), 1 << 40, u64::MAX - 15] {
                let signal = Signal::set(signal, 9);
                let repr = match store(&all, 16, 3) {
                    Repr::Store { key, export, message, offset, length, .. } => {
                        let (last, notify) = (true, false);
                        Repr::Store { key, export, message, offset, length, last, notify, signal: true }
                    }
                    other => other,
                };
                let mut payload = vec![9; 3];
                payload.extend(signal.to_bytes());
                channel.send(&repr, &payload);
                assert_eq!(answer(&mut channel), OutOfRange, "{signal:?}");
            }

            // What answers nothing that was asked, and control messages about other people's business: passed over.
            channel.send(
                &Repr::FetchReply { reply_key: Key([2; 16]), fetch: FetchId(0), offset: 0, length: 4, last: true },
                &[9; 4],
            );
            channel.send(&Repr::FetchRefused { reply_key: Key([2; 16]), fetch: FetchId(0), reason: WrongKey }, &[]);
            channel.send(
                &Repr::StoreRefused {
                    message: MessageId(0),
                    export: ExportId(0),
                    reason: WrongKey,
                    offset: 0,
                    length: 4,
                    count: 1,
                },
                &[],
            );
            channel.send(&message_for(HandlerId(9), 4), &[9; 4]);
            // A message of the shared memory, which is not open; a notice without the export's key.
            channel.send(&message_for(HandlerId(1), 4), &[9; 4]);
            channel.send(&message_for(HandlerId(2), 36), &[9; 36]);
            channel.control(&ControlMessage::ImportCancel { request: 99 });
            channel.control(&ControlMessage::ImportGranted {
                request: 99,
                export: ExportId(3),
                key: Key([3; 16]),
                length: u64::MAX,
                rights: Rights::ALL,
                direct: Some(MappedPart { offset: 0, bytes: u64::MAX }),
            });
            channel.control(&ControlMessage::ImportRefused { request: 99, reason: WrongKey });
            channel.control(&ControlMessage::Revoked { export: ExportId(0) });
            channel.control(&ControlMessage::Released { export: all.export, key: Key([3; 16]) });
            rank.note("refused", "");

            // After all that, a legal packet is as good as ever.
            channel.send(&store(&all, 7, 3), &[1, 2, 3]);
            channel.send(&fetch(&all, 6, 5), &[]);
            let mut packet = channel.receive();
            while !is_fetched(&packet, 5) {
                packet = channel.receive();
            }
            assert_eq!(packet.1, [OWN, 1, 2, 3, OWN]);
            rank.note("legal", "");
        })
        .succeeds();
}

#[test]
fn a_rank_that_gives_its_import_back_and_keeps_the_memory_gains_nothing() {
    job(2)
        .run(|rank| {
            if rank.number == 0 {
                let node = rank.node();
                let buffer = node.alloc(4096).unwrap();
                let export = node.export_buffer(&buffer).name("direct").start().unwrap();
                rank.meet("kept");
                export.revoke().unwrap();
                buffer.write(0, &[OWN; 4096]).unwrap();
                rank.meet("revoked");
                rank.meet("stored");
                let mut now = vec![0; 4096];
                buffer.read(0, &mut now).unwrap();
                assert!(now.iter().all(|byte| *byte == OWN), "a store reached a revoked export");
            } else {
                let mut outlaw = Outlaw::join(rank);
                let mut channel = outlaw.channel(0);
                let grant = channel.import("direct", Rights::ALL);
                // The tag's lower half is the request; its highest bit is set for the status.
                let memory = outlaw.wait_for(|event| match event {
                    Event::Message(ToRank::Passed { from: 0, tag }, Some(fd)) if tag as i64 >= 0 && tag as u32 == 7 => {
                        Some(fd)
                    }
                    _ => None,
                });
                let memory = crate::harness::hostile::Scratch::map(memory);
                channel.control(&ControlMessage::Released { export: grant.export, key: grant.key });
                // Once more, for an import that it never had.
                channel.control(&ControlMessage::Released { export: grant.export, key: grant.key });
                channel.send(&fetch(&grant, 0, 8), &[]);
                channel.receive();
                rank.meet("kept");
                rank.meet("revoked");
                for at in (0..4096).step_by(8) {
                    memory.store(at, 7);
                }
                rank.meet("stored");
            }
        })
        .succeeds();
}

/// An offset or length: mostly near the export, at times anywhere.
fn near(dice: &mut Dice) -> u64 {
    match dice.below(4) {
        0 => dice.below(2 * LENGTH),
        1 => LENGTH - 8 + dice.below(16),
        2 => dice.below(LENGTH),
        _ => dice.roll() >> 1,
    }
}

/// A packet that a NIC may send, about things that may not exist; `None` when it would break the format.
fn legal(dice: &mut Dice, grant: &Grant) -> Option<(Repr, Vec<u8>)> {
    let key = if dice.below(8) == 0 { Key([4; 16]) } else { grant.key };
    let export = ExportId(if dice.below(8) == 0 { dice.roll() as u32 } else { grant.export.0 });
    let (message, id) = (MessageId(dice.below(4) as u32), dice.below(4) as u32);
    let (offset, length) = (near(dice), dice.below(4097) as u32);
    let (last, notify, signal) = (dice.below(2) == 0, dice.below(4) == 0, dice.below(3) == 0);
    let reason = Refusal::from_code(1 + dice.below(4) as u32)?;
    let mut payload: Vec<u8> = (0..length).map(|_| dice.roll() as u8).collect();
    let repr = match dice.below(8) {
        0..=2 => {
            if signal {
                let signal = Signal {
                    offset: near(dice) & !7,
                    value: dice.roll(),
                    op: [SignalOp::Set, SignalOp::Add, SignalOp::Or][dice.below(3) as usize],
                };
                payload.extend(signal.to_bytes());
            }
            Repr::Store { key, export, message, offset, length, last, notify, signal }
        }
        3 => Repr::FetchRequest {
            key,
            export,
            fetch: FetchId(id),
            offset,
            want_bytes: near(dice),
            reply_key: Key([9; 16]),
        },
        4 => Repr::FetchReply { reply_key: key, fetch: FetchId(id), offset, length, last },
        5 => {
            payload.clear();
            Repr::StoreRefused { message, export, reason, offset, length: u64::from(length), count: u64::from(id) }
        }
        6 => {
            payload.clear();
            let (operand, expected) = (dice.roll(), dice.below(2));
            let width = [Width::Four, Width::Eight][dice.below(2) as usize];
            let op = match dice.below(3) {
                0 => AtomicOp::Add,
                1 => AtomicOp::Swap,
                _ => AtomicOp::CompareSwap { expected },
            };
            Repr::Atomic {
                key,
                export,
                fetch: FetchId(id),
                offset: offset & !3,
                atomic: Atomic { op, width, operand },
                reply_key: Key([9; 16]),
            }
        }
        _ => Repr::Handler {
            // A control message by chance is a breach, and others test those.
            handler: HandlerId(id.max(1)),
            from: ProcessId(offset as u16),
            to: ProcessId((offset >> 16) as u16),
            length,
        },
    };
    repr.check().is_ok().then_some((repr, payload))
}

/// A packet of which each part is right by chance only.
fn wild(dice: &mut Dice, grant: &Grant, sequence: u32) -> (Header, Vec<u8>) {
    let mut payload = vec![0; dice.below(4112) as usize];
    payload.fill_with(|| dice.roll() as u8);
    let mut header = Header::ZERO;
    header.version = mapwire_wire::VERSION + u8::from(dice.below(50) == 0);
    header.kind = 1 + dice.below(11) as u8;
    header.flags = (dice.below(8) as u16).into();
    header.length = (payload.len() as u32 + u32::from(dice.below(50) == 0)).into();
    header.sequence = (sequence + u32::from(dice.below(50) == 0)).into();
    header.key = grant.key;
    header.export = grant.export.0.into();
    header.message = (dice.below(4) as u32).into();
    header.offset = near(dice).into();
    (header, payload)
}

#[test]
fn random_packets_with_the_right_key_change_nothing_outside_the_export() {
    // Rank 0 is the victim. Rank 1 sends what a NIC may send, the others anything, until they are found out.
    job(8)
        .run(|rank| {
            if rank.number == 0 {
                let node = rank.node();
                let mut heap = vec![OWN; LENGTH as usize + 2 * 4096];
                let start = heap.as_mut_ptr().wrapping_add(4096);
                // SAFETY: the memory outlives the export and is read when that is over.
                let all = unsafe { node.export_range(start, LENGTH as usize) };
                let all = all.ring_only().name("all").on_notify(|_| {});
                let all = all.start().unwrap();
                for other in 1..rank.size {
                    rank.read(&format!("end-{other}"));
                }
                let counters = node.nic_counters();
                drop(all);
                let behind = 4096 + LENGTH as usize;
                assert!(heap[..4096].iter().all(|byte| *byte == OWN));
                assert!(heap[behind..].iter().all(|byte| *byte == OWN));
                assert!(heap[4096..behind].iter().any(|byte| *byte != OWN));
                assert!(counters.packets_received >= PACKETS, "{counters:?}");
                return;
            }
            let mut dice = Dice::of(rank);
            let mut outlaw = Outlaw::join(rank);
            let mut channel = outlaw.channel(0);
            let grant = channel.import("all", Rights::ALL);
            let mut sent = 0;
            while sent < PACKETS && !channel.is_closed() {
                channel.drain();
                if rank.number > 1 {
                    let (header, payload) = wild(&mut dice, &grant, channel.sequence);
                    channel.send_raw(header, &payload);
                    channel.sequence += 1;
                    sent += 1;
                } else if let Some((repr, payload)) = legal(&mut dice, &grant) {
                    channel.send(&repr, &payload);
                    sent += 1;
                }
            }
            if rank.number == 1 {
                // Answered when all before it has been taken.
                channel.send(&fetch(&grant, 0, 5), &[]);
                while !is_fetched(&channel.receive(), 5) {}
            }
            rank.note(&format!("end-{}", rank.number), "");
        })
        .succeeds();
}

#[test]
fn a_peer_that_breaks_the_link_is_reported_as_broken_and_the_others_go_on() {
    // Rank 0 is the victim, rank 1 honest, each other rank breaks the link in a way of its own.
    job(6)
        .run(|rank| match rank.number {
            0 => {
                let node = rank.node();
                let buffer = node.alloc(4096).unwrap();
                let export = node.export_buffer(&buffer).name("inbox").ring_only();
                let export = export.start().unwrap();
                rank.meet("start");
                for outlaw in 2..rank.size {
                    let start = Instant::now();
                    let import = node.import(outlaw, "never").timeout(Duration::from_secs(100));
                    let error = crate::harness::refusal(import.start().map(drop));
                    println!("rank {outlaw}: {error}");
                    assert!(error.contains(&format!("{outlaw}")), "{error}");
                    assert!(start.elapsed() < Duration::from_secs(50), "rank {outlaw}: {error}");
                    refused(node.import(outlaw, "again").start().map(drop), &[&outlaw.to_string()]);
                }
                rank.note("broken", "");
                export.wait_signal(0, 5).unwrap();
                rank.meet("end");
            }
            1 => {
                let node = rank.node();
                let inbox = node.import(0, "inbox").start().unwrap();
                rank.meet("start");
                rank.read("broken");
                inbox.put_signal(&[], 0, 0, 5).unwrap();
                rank.meet("end");
            }
            outlaw => {
                let mut client = Outlaw::join(rank);
                let mut channel = client.channel(0);
                rank.meet("start");
                // The victim's request.
                channel.receive();
                let mut header = Header::ZERO;
                header.version = mapwire_wire::VERSION;
                header.kind = 8;
                match outlaw {
                    // Another length than the ring's.
                    2 => header.length = 77.into(),
                    3 => header.kind = 99,
                    4 => header.version = 99,
                    _ => header.sequence = 1234.into(),
                }
                channel.send_raw(header, &[]);
                rank.meet("end");
            }
        })
        .succeeds();
}
