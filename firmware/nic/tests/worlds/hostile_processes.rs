//! Processes that write whatever they like into their command queues.

use crate::world::random::{Random, for_seeds};
use crate::world::{PAGE, World, fetch, long_send, short_send, words};
use mapwire_nic::{CommandError, Completion, Import, Rejection};
use mapwire_wire::{
    Atomic, AtomicOp, COMMAND_BYTES, CommandHeader, CommandRepr, Endpoint, ExportId, HandlerId, ImportId, Key, NodeId,
    ProcessId, Rights, Signal, Width,
};

const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x40_0010;
const LENGTH: u64 = 2 * PAGE + 40;

/// Node 1 exports part of its memory; a process is open on node 0.
fn world(seed: u64) -> (World, ExportId, Key) {
    let mut world = World::new(3, seed);
    world.open(0, 0);
    world.pin(0, 0, HERE, 4 * PAGE);
    world.open(1, 0);
    world.pin(1, 0, THERE, LENGTH);
    let (export, key) = world.export(1, 0, THERE, LENGTH);
    (world, export, key)
}

#[test]
fn random_commands_never_panic_and_reach_nothing_that_was_not_imported() {
    for_seeds(20, |seed| {
        let (mut world, export, good) = world(seed);
        let own = world.import(0, 0, 1, (export, good), LENGTH);
        world.open(0, 1);
        let mut random = Random::new(seed);
        for _ in 0..3000 {
            let bytes: [u8; COMMAND_BYTES] = core::array::from_fn(|_| random.next() as u8);
            let mut header: CommandHeader = zerocopy::transmute!(bytes);
            header.version = 1;
            header.kind = random.below(6) as u8;
            header.flags.set(random.below(8) as u16);
            header.reserved.set(0);
            if random.chance(80) {
                header.handler.set(0);
                header.length.set(random.below(300));
                header.target.set(if random.chance(50) { own.0 } else { random.below(4) as u32 });
            }
            if random.chance(50) {
                header.address.set(0);
                header.completion.set(0);
                header.offset.set(random.below(2 * LENGTH));
            }
            let inline: Vec<u8> = (0..random.below(160)).map(|_| random.next() as u8).collect();
            // Process 1 has imported nothing: its commands yield only messages to handlers.
            let process = ProcessId(random.below(3) as u16);
            let sent = world.nic(0).counters().packets_sent;
            if world.nic(0).accepts_command(process) {
                world.nic(0).handle_command(process, &header, &inline);
            } else if process == ProcessId(2) {
                world.nic(0).handle_command(process, &header, &inline);
                let told = world.nic(0).poll_completion();
                let Some(Completion::Failed { error, .. }) = told else {
                    panic!("{told:?}");
                };
                assert!(matches!(error, CommandError::NotOpen(ProcessId(2)) | CommandError::Malformed(_)));
            }
            while world.transmit(0) {}
            let handler = header.kind == 4;
            if process != ProcessId(0) && !handler {
                assert_eq!(world.nic(0).counters().packets_sent, sent);
            }
            while world.receive(0, 1) || world.receive(0, 2) || world.receive(0, 0) {}
            while world.transmit(1) || world.transmit(0) {}
            while world.receive(1, 0) {}
            world.collect(0);
            let told = world.take_told(1);
            assert!(
                told.iter().all(|told| matches!(
                    told,
                    Completion::Notification { .. } | Completion::Rejected { reason: Rejection::UnknownHandler(_), .. }
                )),
                "an honest NIC sends nothing that is refused: {told:?}"
            );
            world.take_told(0);
        }
    });
}

#[test]
fn commands_that_may_not_be_are_refused_with_what_is_wrong() {
    let (mut world, export, good) = world(6);
    let import = world.import(0, 0, 1, (export, good), LENGTH);
    world.open(0, 1);
    let others = world.import(0, 1, 1, (export, good), LENGTH);
    let entry = Import {
        process: ProcessId(0),
        node: NodeId(1),
        export,
        key: good,
        length: LENGTH,
        rights: Rights::STORE,
        revoked: false,
        refused: Default::default(),
    };
    let store_only = world.nic(0).import(entry).unwrap();
    let out_of_range = |offset, length| CommandError::OutOfRange { offset, length, import_bytes: LENGTH };
    let outside = Some(Signal::set(LENGTH & !7, 0));
    let atomic = |import, offset, completion| CommandRepr::Atomic {
        import,
        offset,
        address: HERE,
        atomic: Atomic { op: AtomicOp::Swap, width: Width::Eight, operand: 4 },
        completion,
    };
    let message = |to| CommandRepr::Handler { to: Endpoint::first_of(NodeId(to)), handler: HandlerId(1), length: 0 };
    let cases = [
        (long_send(others, 0, HERE, 8, 1), CommandError::UnknownImport(others)),
        (long_send(ImportId(99), 0, HERE, 8, 1), CommandError::UnknownImport(ImportId(99))),
        (long_send(import, LENGTH - 7, HERE, 8, 1), out_of_range(LENGTH - 7, 8)),
        (long_send(import, 0, HERE, u64::MAX - HERE, 1), out_of_range(0, u64::MAX - HERE)),
        (fetch(import, LENGTH, HERE, 1, 1), out_of_range(LENGTH, 1)),
        (fetch(store_only, 0, HERE, 1, 1), CommandError::NoRight { needs: Rights::FETCH, has: Rights::STORE }),
        (atomic(store_only, 0, 1), CommandError::NoRight { needs: Rights::ALL, has: Rights::STORE }),
        (atomic(import, (LENGTH + 7) & !7, 1), out_of_range((LENGTH + 7) & !7, 8)),
        (atomic(others, 0, 1), CommandError::UnknownImport(others)),
        (short_send(import, LENGTH + 1, &[], false, None), out_of_range(LENGTH + 1, 0)),
        (short_send(import, 0, &[], false, outside), out_of_range(LENGTH & !7, 8)),
        (message(3), CommandError::UnknownNode(NodeId(3))),
    ];
    for (command, expected) in cases {
        world.submit(0, 0, &command, &[]);
        world.serve(0, 0);
        world.collect(0);
        let told = world.take_told(0);
        let [Completion::Failed { process: ProcessId(0), completion, error, sent_bytes: 0 }] = told[..] else {
            panic!("{command}: {told:?}");
        };
        assert_eq!(error, expected, "{command}");
        let has_word =
            matches!(command, CommandRepr::LongSend { .. } | CommandRepr::Fetch { .. } | CommandRepr::Atomic { .. });
        assert_eq!(completion, has_word.then_some(1), "{command}");
    }
    assert!(!world.transmit(0), "nothing was sent");
    assert_eq!(world.nic(0).counters().failed_commands, 12);
}

#[test]
fn a_malformed_long_command_still_tells_its_word() {
    let (mut world, _, _) = world(7);
    let mut header = CommandHeader::ZERO;
    header.version = 1;
    header.kind = 2;
    header.completion.set(44);
    world.nic(0).handle_command(ProcessId(0), &header, &[]);
    world.collect(0);
    assert_eq!(words(&world.take_told(0)), (vec![], vec![44]));
}

#[test]
fn a_command_of_the_drivers_own_thread_is_checked_and_carried_out_like_one_of_the_queue() {
    let (mut world, export, good) = world(8);
    let import = world.import(0, 0, 1, (export, good), LENGTH);
    let signal = Signal::set(8, 6);
    let command = short_send(import, 64, &[7; 5], false, Some(signal));
    let inline = [[7; 5].as_slice(), &signal.to_bytes()].concat();
    let nic = world.nic(0);
    for wrong in [&inline[..20], &[0; 22], &[]] {
        nic.handle_own_command(ProcessId(0), &command, wrong);
        let told = nic.poll_completion();
        let malformed =
            matches!(told, Some(Completion::Failed { completion: None, error: CommandError::Malformed(_), .. }));
        assert!(malformed, "{told:?}");
    }
    let outside = long_send(import, 0, HERE, LENGTH + 1, 4);
    nic.handle_own_command(ProcessId(0), &outside, &[]);
    nic.handle_own_command(ProcessId(0), &command, &inline);
    world.collect(0);
    assert_eq!(words(&world.take_told(0)), (vec![], vec![4]));
    world.settle();
    assert_eq!(world.peek(1, 0, THERE + 64, 5), [7; 5]);
    assert_eq!(world.peek(1, 0, THERE + 8, 8), 6u64.to_le_bytes());
}
