//! A peer that asks for everything without end and takes no answer: its share of the node's memory is bounded, what exceeds it is
//! counted, and others are served as before.

use mapwire_wire::{
    Atomic, AtomicOp, ControlMessage, ExportId, FetchId, HandlerId, Key, MessageId, NodeId, ProcessId, Repr, Rights,
    Width,
};

use crate::allocations;
use crate::counter::{COUNTER, Counter};
use crate::processes::{HERE, export, import, send};
use crate::world::{World, at, key};

const VICTIM: NodeId = NodeId(0);
const HOSTILE: NodeId = NodeId(1);
/// What it asks for, each so often.
const TIMES: u32 = 100_000;
/// Bytes of memory that all of one kind may take.
const SHARE_BYTES: i64 = 4 << 20;

/// The `number`th packet of a kind that the hostile peer sends: what it is, and its payload if that does not follow.
type Kind = fn(ExportId, Key, u32) -> (Repr, Vec<u8>);

fn message(handler: HandlerId, bytes: Vec<u8>) -> (Repr, Vec<u8>) {
    let message = Repr::Handler { handler, from: ProcessId(0), to: ProcessId(0), length: bytes.len() as u32 };
    (message, bytes)
}

fn control(message_of: &ControlMessage<'_>) -> (Repr, Vec<u8>) {
    message(HandlerId::CONTROL, message_of.to_vec().unwrap())
}

fn ask(name: &str, request: u32) -> (Repr, Vec<u8>) {
    control(&ControlMessage::ImportRequest { request, name, rights: Rights::ALL, token: None })
}

fn store(export: ExportId, key: Key, number: u32, offset: u64, last: bool) -> (Repr, Vec<u8>) {
    let store =
        Repr::Store { key, export, message: MessageId(number), offset, length: 8, last, notify: last, signal: false };
    (store, vec![7; 8])
}

fn fetch(export: ExportId, key: Key, number: u32, want_bytes: u64) -> (Repr, Vec<u8>) {
    let fetch =
        Repr::FetchRequest { key, export, fetch: FetchId(number), offset: 0, want_bytes, reply_key: Key([3; 16]) };
    let payload = fetch.emit(0).1;
    (fetch, payload.to_vec())
}

const KINDS: [(&str, Kind); 13] = [
    ("imports of what is not there", |_, _, number| ask("none", number)),
    ("names that are not there", |_, _, number| ask(&format!("name {number}"), number)),
    ("imports of what is there", |_, _, number| ask("box", number)),
    ("grants that nobody asked for", |export, key, number| {
        control(&ControlMessage::ImportGranted {
            request: number,
            export,
            key,
            length: 64,
            rights: Rights::ALL,
            direct: None,
        })
    }),
    ("revocations", |_, _, number| control(&ControlMessage::Revoked { export: ExportId(number) })),
    ("fetches", |export, key, number| fetch(export, key, number, 10_000)),
    ("flushes", |export, key, number| fetch(export, key, number, 0)),
    ("fetches that are refused", |export, key, number| fetch(export, key, number, 20_000)),
    ("updates of words", |export, key, number| {
        let update = Repr::Atomic {
            key,
            export,
            fetch: FetchId(number),
            offset: 0,
            atomic: Atomic { op: AtomicOp::Add, width: Width::Eight, operand: 1 },
            reply_key: Key([3; 16]),
        };
        let payload = update.emit(0).1;
        (update, payload.to_vec())
    }),
    ("stores that are refused", |export, key, number| store(export, key, number, 9_999, true)),
    ("messages that never end", |export, key, number| store(export, key, number, 0, false)),
    ("notifications", |export, key, number| store(export, key, number, 0, true)),
    ("questions to a service", |_, _, number| {
        let mut bytes = vec![0; 9];
        bytes[1..5].copy_from_slice(&number.to_le_bytes());
        message(COUNTER, bytes)
    }),
];

/// The honest node asks the victim once more, and is answered.
fn ask_honestly(world: &mut World, asked: usize) {
    let honest = at(2, 0);
    let add = |counter: &mut Counter| counter.add(at(0, 0), 1);
    world.nodes[2].call(honest.process, COUNTER, add).unwrap();
    world.settle();
    let answers = |counter: &mut Counter| counter.answers().len();
    let answered = world.nodes[2].call(honest.process, COUNTER, answers);
    assert_eq!(answered, Some(asked));
}

#[test]
fn a_peer_that_asks_for_everything_without_end_has_a_bounded_share_and_others_are_served() {
    for (name, kind) in KINDS {
        let mut world = World::new(3, 1);
        for node in [0, 2] {
            let counter = Box::new(Counter::default());
            world.nodes[node].register(ProcessId(0), COUNTER, counter).unwrap();
        }
        let exported = export(&mut world, at(0, 0), "box");
        // Its only fair packet; from here on it takes nothing.
        import(&mut world, at(1, 0), at(0, 0), "box").unwrap();
        world.deaf = Some(HOSTILE);
        let (before, mut most) = (allocations::bytes(), 0);
        for number in 0..TIMES {
            let (repr, payload) = kind(exported, key(0, 100), number);
            let (header, _) = repr.emit(1 + number);
            world.give(VICTIM, HOSTILE, &header, &payload);
            world.told[0].clear();
            world.asked[0].clear();
            if number % 1000 == 999 {
                ask_honestly(&mut world, (number / 1000 + 1) as usize);
                most = most.max(allocations::bytes() - before);
            }
        }
        let counters = world.nodes[0].nic().counters();
        let is_broken = world.nodes[0].is_gone(HOSTILE);
        let all = u64::from(TIMES);
        assert!(is_broken || counters.packets_received >= all, "{name}");
        println!("{name}: {most} bytes");
        assert!(most < SHARE_BYTES, "{name}: {most} bytes");
        // The honest one imports and stores as ever.
        let (import, grant) = import(&mut world, at(2, 0), at(0, 0), "box").unwrap();
        assert_eq!(grant.length, 10_000, "{name}");
        send(&mut world, at(2, 0), import, 16, b"as ever");
        assert_eq!(world.read(at(0, 0), HERE + 16, 7), b"as ever", "{name}");
    }
}
