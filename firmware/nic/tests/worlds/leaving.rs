//! Exports, processes and peers that go while transfers are under way.

use crate::world::random::{Random, for_seeds};
use crate::world::{PAGE, World, add, fetch, long_send, notifying_send, pattern, short_send, words};
use mapwire_nic::{BufferId, CommandError, Completion, Landing, Rejection, Verdict};
use mapwire_wire::{Flags, ImportId, MessageId, NodeId, ProcessId, Refusal};

const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x40_0000;
const LENGTH: u64 = 12 * PAGE;

/// Node 0 with two processes that import all of node 1's export, whose frames follow a page that is not exported.
fn world(seed: u64) -> (World, [ImportId; 2], mapwire_wire::ExportId) {
    forgetful(seed, 0)
}

/// The same, but `percent` of 100 lookups wait for the host.
fn forgetful(seed: u64, percent: u64) -> (World, [ImportId; 2], mapwire_wire::ExportId) {
    let mut world = World::forgetful(2, Random::new(seed), percent, false);
    world.open(1, 0);
    world.pin(1, 0, THERE, LENGTH);
    world.poke(1, 0, THERE, &pattern(1, LENGTH));
    let export = world.export(1, 0, THERE, LENGTH);
    let imports = [0, 1].map(|process| {
        world.open(0, process);
        world.pin(0, process, HERE, LENGTH);
        world.poke(0, process, HERE, &pattern(u64::from(process) + 10, LENGTH));
        world.import(0, process, 1, export, LENGTH)
    });
    (world, imports, export.0)
}

fn failure(told: &[Completion], word: u32) -> Option<CommandError> {
    told.iter().find_map(|completion| match *completion {
        Completion::Failed { completion, error, .. } if completion == Some(word) => Some(error),
        _ => None,
    })
}

#[test]
fn a_long_send_stops_when_its_export_is_revoked_and_the_sender_is_told_once() {
    let (mut world, imports, export) = world(1);
    world.submit(0, 0, &notifying_send(imports[0], 0, HERE, LENGTH, 1), &[]);
    world.serve(0, 0);
    for _ in 0..4 {
        world.transmit(0);
    }
    world.receive(0, 1);
    world.nic(1).revoke(export).unwrap();
    // Its pages can go at once.
    let before = world.peek(1, 0, THERE, LENGTH);
    world.unpin(1, 0, THERE, LENGTH);
    for _ in 0..3 {
        world.receive(0, 1);
    }
    assert_eq!(before[..PAGE as usize], pattern(10, LENGTH)[..PAGE as usize]);
    world.transmit(1);
    world.receive(1, 0);
    world.settle();
    let told = world.take_told(0);
    assert_eq!(failure(&told, 1), Some(CommandError::Refused(Refusal::Revoked)));
    let refused: Vec<_> = told.iter().filter(|told| matches!(told, Completion::StoreRefused { .. })).collect();
    let once = Completion::StoreRefused { from: NodeId(1), export, reason: Refusal::Revoked, count: 1 };
    assert_eq!(refused, [&once]);
    let told = world.take_told(1);
    assert_eq!(told, [Completion::Rejected { from: NodeId(0), reason: Rejection::Refused(Refusal::Revoked) }]);
    assert_eq!(world.nic(0).counters().packets_sent, 5, "the rest was not sent, but its end was");
}

#[test]
fn word_of_a_revocation_fails_the_commands_that_use_the_export() {
    let (mut world, imports, export) = world(2);
    world.submit(0, 0, &long_send(imports[0], 0, HERE, LENGTH, 1), &[]);
    world.serve(0, 0);
    world.transmit(0);
    // The other process has so many fetches under way that one waits.
    for word in 0..33 {
        world.submit(0, 1, &fetch(imports[1], 0, HERE, 8, word), &[]);
    }
    while world.serve(0, 1) || world.transmit(0) {
        if world.on_wire(0, 1) > 40 {
            break;
        }
    }
    world.nic(1).revoke(export).unwrap();
    let mut ids = world.nic(0).handle_revoked(NodeId(1), export);
    ids.sort_by_key(|id| id.0);
    assert_eq!(ids, imports);
    world.settle();
    let told = world.take_told(0);
    let (done, mut failed) = words(&told);
    failed.sort_unstable();
    assert_eq!(done, []);
    let mut expected: Vec<u32> = (0..33).chain([1]).collect();
    expected.sort_unstable();
    assert_eq!(failed, expected);
    world.submit(0, 0, &short_send(imports[0], 0, &[1], false, None), &[1]);
    world.settle();
    let told = world.take_told(0);
    assert!(matches!(told[..], [Completion::Failed { error: CommandError::Revoked(id), .. }] if id == imports[0]));
}

#[test]
fn a_refused_part_takes_the_notification_and_the_signal_with_it() {
    let (mut world, imports, export) = world(3);
    world.pin(1, 0, 0x80_0000, PAGE);
    world.submit(0, 0, &notifying_send(imports[0], 0, HERE, 6 * PAGE, 1), &[]);
    world.serve(0, 0);
    for _ in 0..6 {
        world.transmit(0);
    }
    world.receive(0, 1);
    // The second and third packet do not fit, the rest would.
    let landing = Landing { address: 0x80_0000, length: PAGE };
    world.nic(1).redirect(export, Some(landing)).unwrap();
    world.receive(0, 1);
    world.receive(0, 1);
    world.nic(1).redirect(export, None).unwrap();
    world.settle();
    let told = world.take_told(1);
    assert!(!told.iter().any(|told| matches!(told, Completion::Notification { .. })), "{told:?}");
    let expected = [&pattern(10, LENGTH)[..PAGE as usize], &pattern(1, LENGTH)[PAGE as usize..]].concat();
    assert!(world.peek(1, 0, THERE, LENGTH) == expected, "nothing more of it is applied");
    // The next message is accepted as usual.
    world.submit(0, 0, &notifying_send(imports[0], 5, HERE, 2 * PAGE, 2), &[]);
    world.settle();
    let told = world.take_told(1);
    assert!(matches!(told[..], [Completion::Notification { offset: 5, length, .. }] if length == 2 * PAGE));
}

#[test]
fn a_redirection_in_the_middle_of_a_message_splits_it() {
    let (mut world, imports, export) = world(4);
    world.pin(1, 0, 0x80_0000, LENGTH);
    world.submit(0, 0, &notifying_send(imports[0], 0, HERE, 4 * PAGE, 1), &[]);
    world.serve(0, 0);
    while world.transmit(0) {}
    world.receive(0, 1);
    let landing = Landing { address: 0x80_0000, length: LENGTH };
    world.nic(1).redirect(export, Some(landing)).unwrap();
    world.settle();
    let source = pattern(10, LENGTH);
    let (first, second) = (PAGE as usize, 4 * PAGE as usize);
    assert!(world.peek(1, 0, THERE, PAGE) == source[..first]);
    assert!(world.peek(1, 0, 0x80_0000 + PAGE, 3 * PAGE) == source[first..second]);
    assert!(world.peek(1, 0, THERE + PAGE, PAGE) == pattern(1, LENGTH)[first..2 * first]);
}

#[test]
fn a_revoked_export_is_not_read_for_a_fetch_that_is_under_way() {
    // Revoked at every point of the service of three fetches.
    for point in 0..30 {
        let (mut world, imports, export) = world(point);
        world.wire_packets = 3;
        for word in 0..3 {
            let length = (u64::from(word) + 1) * PAGE;
            world.submit(0, 0, &fetch(imports[0], 0, HERE, length, word), &[]);
        }
        world.serve(0, 0);
        while world.transmit(0) {
            if world.on_wire(0, 1) == 3 {
                break;
            }
        }
        while world.receive(0, 1) {}
        for turn in 0..point {
            world.nic(1).handle_transmit_ready(NodeId(0));
            world.transmit(1);
            if turn % 4 == 3 {
                world.receive(1, 0);
            }
        }
        // One is cut, and waits because the transport has no room.
        world.nic(1).handle_transmit_ready(NodeId(0));
        let _ = world.nic(1).poll_transmit();
        world.nic(1).handle_transmit_blocked(NodeId(0));
        world.nic(1).revoke(export).unwrap();
        // A read of these frames would be noticed.
        world.unpin(1, 0, THERE, LENGTH);
        world.settle();
        let (done, failed) = words(&world.take_told(0));
        let mut all = [done, failed].concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2], "revoked at {point}");
        assert_eq!(world.nic(0).counters().rejected.total(), 0);
    }
}

#[test]
fn a_fetch_that_is_refused_fails_only_when_no_move_of_it_is_under_way() {
    let (mut world, imports, export) = world(5);
    world.slow_moves = true;
    world.submit(0, 0, &fetch(imports[0], 0, HERE, 4 * PAGE, 7), &[]);
    world.serve(0, 0);
    world.transmit(0);
    world.receive(0, 1);
    world.transmit(1);
    world.transmit(1);
    world.nic(1).revoke(export).unwrap();
    while world.transmit(1) {}
    while world.receive(1, 0) {}
    assert_eq!(words(&world.take_told(0)), (vec![], vec![]), "two moves are under way");
    world.do_move(0);
    world.collect(0);
    assert_eq!(words(&world.take_told(0)), (vec![], vec![]), "one move is under way");
    world.do_move(0);
    world.collect(0);
    let told = world.take_told(0);
    assert_eq!(failure(&told, 7), Some(CommandError::Refused(Refusal::Revoked)));
}

#[test]
fn a_closed_process_leaves_nothing_behind_that_reads_or_writes_its_memory() {
    for_seeds(40, |seed| {
        let (mut world, imports, _) = world(seed);
        world.blocked_percent = 40;
        world.wire_packets = 4;
        // Node 0's process 0 is also read from and stored to.
        let (offered, key) = world.export(0, 0, HERE, LENGTH);
        let back = world.import(1, 0, 0, (offered, key), LENGTH);
        let mut random = Random::new(seed);
        for word in 0..8 {
            let length = random.within(1, LENGTH);
            let commands = [
                notifying_send(imports[0], 0, HERE, length, word),
                fetch(imports[0], 0, HERE, length, word),
                add(imports[0], 4 * PAGE, HERE, 1, word),
            ];
            world.submit(0, 0, &commands[random.below(3) as usize], &[]);
            let commands = [
                long_send(back, 0, THERE, length, word),
                fetch(back, 0, THERE, length, word),
                add(back, 8, THERE + 4 * PAGE, 1, word),
            ];
            world.submit(1, 0, &commands[random.below(3) as usize], &[]);
        }
        for _ in 0..random.below(60) {
            world.step();
        }
        let frames = world.frames(0, 0, HERE, LENGTH);
        world.nic(0).close_process(ProcessId(0));
        world.nodes[0].queues.remove(&0);
        world.drop_frames(0, &frames);
        world.take_told(0);
        // The other process goes on, and so does a new one with the same number.
        world.open(0, 0);
        world.pin(0, 0, HERE, LENGTH);
        world.submit(0, 1, &notifying_send(imports[1], 0, HERE, 3 * PAGE, 100), &[]);
        world.settle();
        assert_eq!(words(&world.take_told(0)), (vec![100], vec![]));
        let (done, failed) = words(&world.take_told(1));
        assert_eq!(done.len() + failed.len(), 8, "the peer's commands all come to an end");
        assert!(world.peek(0, 0, HERE, LENGTH).iter().all(|&byte| byte == 0));
        assert!(world.peek(1, 0, THERE, 3 * PAGE) == pattern(11, LENGTH)[..3 * PAGE as usize]);
        // The full number of fetches can still be under way.
        for word in 0..64 {
            world.submit(0, 1, &fetch(imports[1], 0, HERE, 8, word), &[]);
        }
        world.settle();
        assert_eq!(words(&world.take_told(0)).0.len(), 64);
    });
}

#[test]
fn messages_that_were_given_up_leave_room_for_others() {
    let (mut world, _, _) = world(6);
    for turn in 0..40 {
        let export = world.export(1, 0, THERE, LENGTH);
        let import = world.import(0, 0, 1, export, LENGTH);
        world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, turn), &[]);
        world.serve(0, 0);
        world.transmit(0);
        world.receive(0, 1);
        if turn % 2 == 0 {
            world.nic(0).handle_revoked(NodeId(1), export.0);
        } else {
            world.nic(1).revoke(export.0).unwrap();
        }
        world.settle();
        let (done, failed) = words(&world.take_told(0));
        assert_eq!((done, failed), (vec![], vec![turn]));
    }
    let rejected = world.take_told(1).len();
    assert_eq!(rejected, 20, "one for each message whose export went");
}

#[test]
fn when_a_peer_is_gone_all_that_waits_for_it_fails_and_nothing_is_kept_for_it() {
    for_seeds(80, |seed| {
        let (mut world, imports, _) = forgetful(seed, seed / 2 % 2 * 50);
        world.blocked_percent = 40;
        world.wire_packets = 4;
        world.slow_moves = seed % 2 == 0;
        let offered = world.export(0, 0, HERE, LENGTH);
        let back = world.import(1, 0, 0, offered, LENGTH);
        let mut random = Random::new(seed);
        for word in 0..10 {
            for process in 0..2 {
                let length = random.within(1, LENGTH);
                let import = imports[usize::from(process)];
                let commands = [
                    long_send(import, 0, HERE, length, word),
                    fetch(import, 0, HERE, length, word),
                    add(import, 8, HERE, 1, word),
                ];
                world.submit(0, process, &commands[random.below(3) as usize], &[]);
            }
            let commands = [fetch(back, 0, THERE, LENGTH, word), add(back, 8, THERE, 1, word)];
            world.submit(1, 0, &commands[random.below(2) as usize], &[]);
        }
        for _ in 0..random.below(80) {
            world.step();
        }
        world.nic(0).handle_peer_gone(NodeId(1));
        world.nic(0).handle_peer_gone(NodeId(1));
        world.wires.clear();
        // The remaining commands are refused at once.
        for process in 0..2 {
            while world.serve(0, process) {}
        }
        while world.do_move(0) {}
        world.serve_misses(0);
        world.collect(0);
        let nic = world.nic(0);
        nic.handle_transmit_ready(NodeId(1));
        assert!(nic.poll_transmit().is_none());
        assert!(nic.idle_towards(NodeId(1)));
        let gone = mapwire_wire::Endpoint::first_of(NodeId(1));
        let handler = mapwire_wire::HandlerId(1);
        assert!(!nic.send_message(ProcessId(0), gone, handler, b"hello"));
        assert!(nic.poll_transmit().is_none());
        let told = world.take_told(0);
        let mut told_words: Vec<(u16, u32)> = Vec::new();
        for completion in told {
            match completion {
                Completion::Done { process, completion } => told_words.push((process.0, completion)),
                Completion::Failed { process, completion: Some(word), error, .. } => {
                    assert_eq!(error, CommandError::PeerGone(NodeId(1)));
                    told_words.push((process.0, word));
                }
                _ => {}
            }
        }
        told_words.sort_unstable();
        let expected: Vec<_> = (0..2).flat_map(|process| (0..10).map(move |word| (process, word))).collect();
        assert_eq!(told_words, expected, "each word once");
    });
}

#[test]
fn a_send_that_waits_for_the_host_is_under_way_and_hears_of_a_revocation() {
    let (mut world, imports, export) = forgetful(1, 100);
    world.submit(0, 0, &long_send(imports[0], 0, HERE, LENGTH, 1), &[]);
    world.serve(0, 0);
    assert!(!world.transmit(0) && world.nic(0).has_misses());
    assert!(!world.nic(0).idle_towards(NodeId(1)));
    world.nic(0).handle_revoked(NodeId(1), export);
    world.collect(0);
    let told = world.take_told(0);
    assert_eq!(failure(&told, 1), Some(CommandError::Revoked(imports[0])));
    assert!(world.nic(0).idle_towards(NodeId(1)));
}

#[test]
fn an_atomic_operation_whose_process_closes_before_it_is_carried_out_is_refused() {
    let (mut world, imports, _) = world(1);
    world.submit(0, 0, &add(imports[0], 8, HERE, 1, 1), &[]);
    world.serve(0, 0);
    world.transmit(0);
    let sent = world.wires.get_mut(&(0, 1)).and_then(|wire| wire.pop_front());
    let sent = sent.unwrap();
    let nic = world.nic(1);
    let trailer = || unreachable!("it carries no signal");
    let verdict = nic.handle_packet(NodeId(0), &sent.header, &sent.payload, trailer, BufferId(0));
    assert_eq!(verdict, Verdict::Taken);
    nic.close_process(ProcessId(0));
    assert_eq!(nic.poll_dma(), None);
    world.settle();
    let told = world.take_told(0);
    let refused = CommandError::Refused(Refusal::Revoked);
    assert_eq!(failure(&told, 1), Some(refused));
}

#[test]
fn packets_of_a_node_that_is_gone_are_dropped() {
    let (mut world, imports, _) = world(7);
    world.submit(0, 0, &short_send(imports[0], 0, &[1, 2], true, None), &[1, 2]);
    world.serve(0, 0);
    world.transmit(0);
    world.nic(1).handle_peer_gone(NodeId(0));
    world.receive(0, 1);
    let rejected = Completion::Rejected { from: NodeId(0), reason: Rejection::UnknownNode };
    assert_eq!(world.take_told(1), [rejected]);
    assert!(world.peek(1, 0, THERE, LENGTH) == pattern(1, LENGTH));
}

#[test]
fn the_refusal_of_a_store_names_its_message() {
    let (mut world, imports, export) = world(8);
    world.log = Some(Vec::new());
    world.submit(0, 1, &short_send(imports[1], 0, &[1], false, None), &[1]);
    world.submit(0, 0, &short_send(imports[0], 0, &[1], false, None), &[1]);
    world.serve(0, 1);
    world.transmit(0);
    world.nic(1).revoke(export).unwrap();
    world.settle();
    let log = world.log.take().unwrap();
    let message = |kind: mapwire_wire::Kind| {
        let of_kind = log.iter().filter(move |(_, _, sent)| sent.header.kind == kind as u8);
        of_kind.map(|(_, _, sent)| MessageId(sent.header.message.get())).collect::<Vec<_>>()
    };
    let stores = message(mapwire_wire::Kind::Store);
    assert_eq!(stores.len(), 2);
    assert_ne!(stores[0], stores[1], "messages of two processes are told apart");
    assert_eq!(message(mapwire_wire::Kind::StoreRefused), stores);
}

#[test]
fn a_send_that_failed_touches_its_memory_no_more() {
    for seed in 0..8 {
        let (mut world, imports, export) = world(seed);
        world.submit(0, 0, &long_send(imports[0], 0, HERE, LENGTH, 1), &[]);
        world.serve(0, 0);
        for _ in 0..seed {
            world.transmit(0);
        }
        // A chunk waits for room.
        assert!(world.nic(0).poll_transmit().is_some());
        world.nic(0).handle_transmit_blocked(NodeId(1));
        world.nic(0).handle_revoked(NodeId(1), export);
        world.collect(0);
        let told = world.take_told(0);
        let cut = (seed + 1) * PAGE;
        assert!(
            matches!(told[..], [Completion::Failed { completion: Some(1), sent_bytes, .. }] if sent_bytes == cut),
            "{told:?}"
        );
        let frames = world.frames(0, 0, HERE, LENGTH);
        world.unpin(0, 0, HERE, LENGTH);
        world.drop_frames(0, &frames);
        world.nic(0).handle_transmit_ready(NodeId(1));
        world.settle();
        // The link goes on without a gap.
        world.submit(0, 1, &short_send(imports[1], 0, &[8], true, None), &[8]);
        world.nic(0).release(imports[0]);
        world.settle();
        assert_eq!(world.nic(1).counters().rejected.out_of_order, 0);
    }
}

#[test]
fn every_chunk_but_the_last_is_a_plain_store() {
    let (mut world, imports, _) = world(9);
    world.log = Some(Vec::new());
    world.submit(0, 0, &notifying_send(imports[0], 0, HERE, 3 * PAGE, 1), &[]);
    world.settle();
    let flags: Vec<_> = world.log.take().unwrap().iter().map(|(_, _, sent)| sent.header.flags()).collect();
    assert_eq!(flags, [Flags::NONE, Flags::NONE, Flags(Flags::LAST.0 | Flags::NOTIFY.0)]);
}

#[test]
fn packets_that_are_taken_back_leave_no_gap_in_the_numbers_of_their_link() {
    let (mut world, imports, _) = world(10);
    world.nic(0).handle_transmit_blocked(NodeId(1));
    for process in [0, 1, 0, 1] {
        let import = imports[usize::from(process)];
        world.submit(0, process, &short_send(import, 0, &[9], true, None), &[9]);
        world.serve(0, process);
    }
    // Chunks of process 0 stand between packets that stay.
    world.nic(0).handle_transmit_ready(NodeId(1));
    world.submit(0, 0, &long_send(imports[0], 0, HERE, LENGTH, 1), &[]);
    world.serve(0, 0);
    for _ in 0..4 {
        world.transmit(0);
    }
    assert!(world.nic(0).poll_transmit().is_some(), "the first chunk");
    world.nic(0).handle_transmit_blocked(NodeId(1));
    world.submit(0, 1, &short_send(imports[1], 0, &[8], true, None), &[8]);
    world.serve(0, 1);
    let frames = world.frames(0, 0, HERE, LENGTH);
    world.nic(0).close_process(ProcessId(0));
    world.drop_frames(0, &frames);
    world.nodes[0].queues.remove(&0);
    world.settle();
    assert_eq!(world.nic(1).counters().rejected.total(), 0);
    assert_eq!(world.nic(1).counters().notifications, 5);
    assert_eq!(world.peek(1, 0, THERE, 1), [8]);
}

#[test]
fn stores_to_a_peer_that_goes_are_owed_until_the_program_is_told() {
    let (mut world, imports, _) = world(6);
    let peer = NodeId(1);
    assert!(!world.nic(0).owes_stores(peer));
    world.submit(0, 0, &short_send(imports[0], 0, &[1], false, None), &[1]);
    world.serve(0, 0);
    assert!(world.nic(0).owes_stores(peer), "it waits");
    world.settle();
    assert!(!world.nic(0).owes_stores(peer), "it has left");
    world.submit(0, 1, &fetch(imports[1], 0, HERE, 8, 3), &[]);
    world.serve(0, 1);
    assert!(!world.nic(0).owes_stores(peer), "a fetch is no store");
    world.submit(0, 0, &long_send(imports[0], 0, HERE, LENGTH, 1), &[]);
    world.serve(0, 0);
    world.nic(0).handle_peer_gone(peer);
    assert!(world.nic(0).owes_stores(peer), "it was dropped");
    world.nic(0).note_told(peer);
    assert!(!world.nic(0).owes_stores(peer));
    world.submit(0, 0, &short_send(imports[0], 0, &[1], false, None), &[1]);
    world.serve(0, 0);
    assert!(!world.nic(0).owes_stores(peer), "what is sent all the same is no news");
}
