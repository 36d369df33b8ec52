//! What processes and peers share: turns, room in queues, NIC memory.

use crate::world::{PAGE, World, fetch, key, long_send, nic_of, pattern, short_send, words};
use mapwire_nic::{Completion, Export, Import, NicError};
use mapwire_translation::{Frame, NicSide, Page, Process, TranslationDesign};
use mapwire_wire::{CommandRepr, Endpoint, HandlerId, ImportId, Kind, NodeId, ProcessId, Rights};

const FIRST: ProcessId = ProcessId(0);

const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x40_0000;
const LENGTH: u64 = 10 * PAGE;

/// Node 1 exports; `processes` processes of node 0 import it.
fn crowd(processes: u16, nodes: usize) -> (World, Vec<ImportId>) {
    let mut world = World::new(nodes, 1);
    world.open(1, 0);
    world.pin(1, 0, THERE, LENGTH);
    let export = world.export(1, 0, THERE, LENGTH);
    let imports = (0..processes)
        .map(|process| {
            world.open(0, process);
            world.pin(0, process, HERE, LENGTH);
            world.import(0, process, 1, export, LENGTH)
        })
        .collect();
    world.log = Some(Vec::new());
    (world, imports)
}

#[test]
fn long_sends_of_many_processes_take_turns_chunk_by_chunk() {
    let (mut world, imports) = crowd(7, 2);
    for (process, &import) in (0..).zip(&imports) {
        world.submit(0, process, &long_send(import, 0, HERE, LENGTH, 1), &[]);
        world.serve(0, process);
    }
    while world.transmit(0) {
        world.receive(0, 1);
    }
    let log = world.log.take().unwrap();
    let owners: Vec<u16> = log.iter().map(|(_, _, sent)| sent.of.unwrap().0).collect();
    assert_eq!(owners.len(), 70);
    for turn in owners.chunks(7) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [0, 1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn more_long_sends_than_a_link_tells_apart_wait_and_all_arrive() {
    let (mut world, imports) = crowd(40, 2);
    for (process, &import) in (0..).zip(&imports) {
        let command = crate::world::notifying_send(import, 0, HERE, LENGTH, 1);
        world.submit(0, process, &command, &[]);
        world.serve(0, process);
    }
    world.settle();
    let told = world.take_told(1);
    assert_eq!(told.len(), 40);
    for told in told {
        assert!(matches!(told, Completion::Notification { offset: 0, length: LENGTH, .. }));
    }
    assert_eq!(words(&world.take_told(0)).0, [1; 40]);
}

#[test]
fn a_node_that_takes_nothing_holds_up_only_what_goes_there() {
    let (mut world, imports) = crowd(3, 3);
    world.open(2, 0);
    world.pin(2, 0, THERE, LENGTH);
    let export = world.export(2, 0, THERE, LENGTH);
    let elsewhere = world.import(0, 2, 2, export, LENGTH);
    world.nic(0).handle_transmit_blocked(NodeId(1));
    world.submit(0, 0, &long_send(imports[0], 0, HERE, LENGTH, 1), &[]);
    for _ in 0..100 {
        world.submit(0, 1, &short_send(imports[1], 0, &[1], false, None), &[1]);
    }
    world.submit(0, 2, &long_send(elsewhere, 0, HERE, LENGTH, 3), &[]);
    for process in 0..3 {
        world.serve(0, process);
    }
    while world.transmit(0) {}
    world.collect(0);
    assert_eq!(words(&world.take_told(0)), (vec![3], vec![]));
    // The queue is bounded: the rest of the commands stay where they are.
    assert_eq!(world.nodes[0].queues[&1].len(), 92);
    assert!(!world.nic(0).idle_towards(NodeId(1)));
    assert!(world.nic(0).idle_towards(NodeId(2)));
    world.settle();
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
    assert!(world.nic(0).idle_towards(NodeId(1)));
}

#[test]
fn no_turn_is_lost_on_a_node_that_takes_nothing() {
    let (mut world, imports) = crowd(2, 3);
    world.open(2, 0);
    world.pin(2, 0, THERE, LENGTH);
    let export = world.export(2, 0, THERE, LENGTH);
    let elsewhere = world.import(0, 1, 2, export, LENGTH);
    world.nic(0).handle_transmit_blocked(NodeId(1));
    world.submit(0, 0, &long_send(imports[0], 0, HERE, LENGTH, 1), &[]);
    world.submit(0, 1, &long_send(elsewhere, 0, HERE, LENGTH, 2), &[]);
    world.serve(0, 0);
    world.serve(0, 1);
    for packet in 0..10 {
        assert!(world.nic(0).poll_transmit().is_some(), "packet {packet}");
        world.transmit(0);
    }
    world.collect(0);
    assert_eq!(words(&world.take_told(0)), (vec![2], vec![]));
}

#[test]
fn peers_and_their_fetches_are_served_in_turn_beside_what_is_sent() {
    let mut world = World::new(4, 2);
    world.open(0, 0);
    world.pin(0, 0, HERE, LENGTH);
    let export = world.export(0, 0, HERE, LENGTH);
    for peer in 1..4 {
        world.open(peer, 0);
        world.pin(peer, 0, THERE, 2 * LENGTH);
        let import = world.import(peer, 0, 0, export, LENGTH);
        for word in 0..2 {
            let to = THERE + LENGTH * u64::from(word);
            world.submit(peer, 0, &fetch(import, 0, to, LENGTH, word), &[]);
        }
        world.serve(peer, 0);
        while world.transmit(peer) {}
        while world.receive(peer, 0) {}
    }
    let inbox = world.export(1, 0, THERE, LENGTH);
    let import = world.import(0, 0, 1, inbox, LENGTH);
    world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, 1), &[]);
    world.serve(0, 0);
    world.log = Some(Vec::new());
    while world.transmit(0) {}
    let log = world.log.take().unwrap();
    let served: Vec<(u16, u8)> = log.iter().map(|(_, to, sent)| (*to, sent.header.kind)).collect();
    for pair in served[..20].chunks(2) {
        let stores = pair.iter().filter(|(_, kind)| *kind == Kind::Store as u8);
        assert_eq!(stores.count(), 1, "every other packet is the process's own");
    }
    for peer in 1..4 {
        let first = log.iter().filter(|(_, to, sent)| *to == peer && sent.header.kind == Kind::FetchReply as u8);
        let fetches: Vec<u32> = first.map(|(_, _, sent)| sent.header.message.get()).collect();
        assert_eq!(fetches.len(), 20);
        assert!(fetches.windows(2).all(|pair| pair[0] != pair[1]), "two fetches take turns");
    }
    let first_round: Vec<u16> =
        served.iter().filter(|(_, kind)| *kind != Kind::Store as u8).map(|(to, _)| *to).take(3).collect();
    assert_eq!(first_round, [1, 2, 3]);
}

#[test]
fn nodes_are_transmitted_to_in_turn() {
    let mut world = World::new(70, 3);
    world.open(0, 0);
    let nic = world.nic(0);
    for _ in 0..3 {
        for to in [5, 64, 69] {
            assert!(nic.send_message(FIRST, Endpoint::first_of(NodeId(to)), HandlerId(1), &[1]));
        }
    }
    let mut order = Vec::new();
    while let Some(transmit) = nic.poll_transmit() {
        let to = transmit.to;
        order.push(to.0);
        nic.handle_transmitted(to);
    }
    assert_eq!(order, [5, 64, 69, 5, 64, 69, 5, 64, 69]);
}

fn message(to: u16, handler: u32, length: u32) -> CommandRepr {
    CommandRepr::Handler { to: Endpoint::first_of(NodeId(to)), handler: HandlerId(handler), length }
}

#[test]
fn a_handler_that_the_host_has_installed_is_given_the_message_and_another_rejects_it() {
    let mut world = World::new(2, 4);
    world.open(0, 0);
    world.nic(1).install_handler(HandlerId(1)).unwrap();
    for length in [0, 1, 8, 128] {
        let data = pattern(9, length);
        world.submit(0, 0, &message(1, 1, length as u32), &data);
        world.settle();
        let messages = core::mem::take(&mut world.nodes[1].messages);
        assert_eq!(messages, [(NodeId(0), data)]);
    }
    world.take_told(1);
    world.submit(0, 0, &message(1, 3, 4), &[1; 4]);
    world.settle();
    assert!(matches!(world.take_told(1)[..], [Completion::Rejected { .. }]));
}

#[test]
fn messages_of_services_arrive_at_any_length_and_too_many_are_refused() {
    let mut world = World::new(2, 6);
    let handler = HandlerId(1);
    world.nic(1).install_handler(handler).unwrap();
    let to = Endpoint { node: NodeId(1), process: ProcessId(7) };
    let longest = world.nic(0).max_message_bytes();
    assert!(longest >= mapwire_wire::MAX_CONTROL_BYTES);
    for length in [0, 1, 136, 137, longest] {
        let message = pattern(1, length as u64);
        let sent = world.nic(0).send_message(ProcessId(3), to, handler, &message);
        assert!(sent);
        world.settle();
        let messages = core::mem::take(&mut world.nodes[1].messages);
        assert_eq!(messages, [(NodeId(0), message)]);
        let told = world.take_told(1);
        let ends = told.iter().any(|told| {
            matches!(told, Completion::Message { to, from, .. }
                if *to == ProcessId(7) && from.process == ProcessId(3))
        });
        assert!(ends, "{told:?}");
    }
    let nic = world.nic(0);
    let mut send = |node, message: &[u8]| nic.send_message(FIRST, Endpoint::first_of(NodeId(node)), handler, message);
    assert!(!send(1, &vec![0; longest + 1]));
    assert!(!send(2, &[1]));
    let queued = (0..10_000).filter(|_| send(1, &[1])).count();
    assert_eq!(queued, 8192);
    assert!(send(0, &[1]), "others have their own room");
}

#[test]
fn a_handler_id_is_given_once_and_within_the_table() {
    let mut nic = nic_of(0, 1, 1 << 20);
    nic.install_handler(HandlerId(3)).unwrap();
    let taken = NicError::HandlerTaken(HandlerId(3));
    assert_eq!(nic.install_handler(HandlerId(3)), Err(taken));
    let full = NicError::TableFull { what: "handler", limit: 256 };
    assert_eq!(nic.install_handler(HandlerId(256)), Err(full));
    assert_eq!(nic.install_handler(HandlerId(u32::MAX)), Err(full));
    nic.install_handler(HandlerId(255)).unwrap();
}

fn export_entry(number: u8) -> Export {
    Export { process: ProcessId(0), key: key(number | 1), address: 0, length: 8, rights: Rights::ALL, landing: None }
}

#[test]
fn each_table_stops_at_the_budget_and_says_which_it_is() {
    let small = nic_of(0, 2, 1 << 20).memory().used_bytes();
    let short = std::panic::catch_unwind(|| nic_of(0, 2, small - 1));
    assert!(short.is_err());
    type Fill = fn(&mut mapwire_nic::Nic<crate::world::forgetful::Forgetful>, u32) -> Result<(), NicError>;
    let fills: [(&str, Fill); 6] = [
        ("a command queue", |nic, n| nic.open_process(ProcessId(n as u16 + 1))),
        ("an export", |nic, n| nic.export(export_entry(n as u8)).map(drop)),
        ("an import", |nic, n| {
            let entry = Import {
                process: ProcessId(0),
                node: NodeId(1),
                export: mapwire_wire::ExportId(n),
                key: key(1),
                length: 8,
                rights: Rights::ALL,
                revoked: false,
                refused: Default::default(),
            };
            nic.import(entry).map(drop)
        }),
        ("translations", |nic, n| nic.install_pages(Process(0), Page(u64::from(n) << 10), &[Frame(1)])),
        ("a table of a service", |nic, n| nic.set_service_bytes(1000 * (n as usize + 1))),
        ("a handler", |nic, n| nic.install_handler(HandlerId(n))),
    ];
    let mut opened = nic_of(0, 2, 1 << 20);
    opened.open_process(ProcessId(0)).unwrap();
    let opened = opened.memory().used_bytes();
    for (name, fill) in fills {
        let budget = opened + if name == "a handler" { 100 } else { 42_000 };
        let mut nic = nic_of(0, 2, budget);
        nic.open_process(ProcessId(0)).unwrap();
        let mut entries = 0;
        let error = loop {
            match fill(&mut nic, entries) {
                Ok(()) => entries += 1,
                Err(error) => break error,
            }
            assert!(entries < 100_000);
        };
        let NicError::OutOfNicMemory { what, needed_bytes, left_bytes } = error else {
            panic!("{name}: {error}");
        };
        assert_eq!(what, name);
        assert!(entries > 0 && (needed_bytes > left_bytes || left_bytes == 0), "{error}");
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(&needed_bytes.to_string()), "{text}");
        let memory = nic.memory();
        assert_eq!(memory.budget_bytes, budget);
        if name != "translations" {
            assert!(memory.used_bytes() <= budget, "{name}: {memory}");
            assert_eq!(left_bytes, budget - memory.used_bytes());
        }
    }
}

#[test]
fn the_breakdown_adds_up_and_names_each_table_once() {
    let mut world = World::new(3, 7);
    world.open(0, 0);
    world.pin(0, 0, HERE, LENGTH);
    world.export(0, 0, HERE, LENGTH);
    let memory = world.nic(0).memory();
    let mut names: Vec<_> = memory.rows.iter().map(|row| row.what).collect();
    assert_eq!(memory.used_bytes(), memory.rows.iter().map(|row| row.bytes).sum::<u64>());
    assert!(memory.to_string().ends_with(&format!("in use of {} B", memory.budget_bytes)));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), memory.rows.len());
    let translation: u64 = memory.rows.iter().filter(|row| row.what.contains("translation")).map(|row| row.bytes).sum();
    assert!(translation > 0);
}

#[test]
fn what_cannot_be_entered_is_refused_by_name() {
    let mut nic = nic_of(0, 2, 1 << 20);
    let unknown = NicError::UnknownProcess(ProcessId(0));
    assert_eq!(nic.export(export_entry(1)), Err(unknown));
    nic.open_process(ProcessId(0)).unwrap();
    assert_eq!(nic.open_process(ProcessId(0)), Err(NicError::ProcessOpen(ProcessId(0))));
    let zero = Export { key: mapwire_wire::Key::ZERO, ..export_entry(1) };
    assert_eq!(nic.export(zero), Err(NicError::ZeroKey));
    let wide = Export { address: u64::MAX - 3, ..export_entry(1) };
    let range = NicError::BadRange { address: u64::MAX - 3, length: 8 };
    assert_eq!(nic.export(wide), Err(range));
    let id = nic.export(export_entry(1)).unwrap();
    let landing = mapwire_nic::Landing { address: u64::MAX - 3, length: 8 };
    assert_eq!(nic.redirect(id, Some(landing)), Err(range));
    assert_eq!(nic.revoke(id).unwrap().address, 0);
    let gone = NicError::UnknownExport(id.0);
    assert_eq!(nic.revoke(id).unwrap_err(), gone);
    assert_eq!(nic.redirect(id, None), Err(gone));
    let import = Import {
        process: ProcessId(0),
        node: NodeId(2),
        export: id,
        key: key(1),
        length: 8,
        rights: Rights::ALL,
        revoked: false,
        refused: Default::default(),
    };
    assert_eq!(nic.import(import).unwrap_err(), NicError::UnknownNode(NodeId(2), 2));
    let not_open = mapwire_translation::TranslationError::NotOpen(Process(5));
    let refused = nic.install_pages(Process(5), Page(1), &[Frame(1)]);
    assert_eq!(refused, Err(NicError::Translation(not_open)));
}

#[test]
fn the_frame_of_a_page_can_be_asked_without_a_trace() {
    let mut nic = nic_of(0, 1, 1 << 20);
    nic.open_process(ProcessId(4)).unwrap();
    nic.install_pages(Process(4), Page(9), &[Frame(90)]).unwrap();
    assert_eq!(nic.frame_of(ProcessId(4), Page(9)), Frame(90));
    assert_eq!(nic.frame_of(ProcessId(4), Page(8)), Frame::GARBAGE);
    assert_eq!(nic.frame_of(ProcessId(3), Page(9)), Frame::GARBAGE);
    nic.design_mut().remove(Process(4), Page(9)).unwrap();
    assert_eq!(nic.frame_of(ProcessId(4), Page(9)), Frame::GARBAGE);
    assert_eq!(nic.translation().counters().lookups, 0);
}
