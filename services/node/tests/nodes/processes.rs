//! Processes behind one NIC: each has its own exports and imports, and none reaches those of another.

use mapwire_nic::CommandError;
use mapwire_node::{ExportError, ExportRequest, NOTICE_HANDLER, Told, notice};
use mapwire_vmmc::{Grant, Importers, VmmcError};
use mapwire_wire::{CommandRepr, Endpoint, ExportId, HandlerId, ImportId, Key, NodeId, Rights};

use crate::world::{World, at, key};

pub(crate) const HERE: u64 = 0x1_0000;
const SECOND: u64 = 1_000_000_000;

fn request(name: &str, of: Endpoint) -> ExportRequest {
    ExportRequest {
        name: name.to_owned(),
        key: key(of.node.0, 100 + of.process.0),
        address: HERE,
        length: 10_000,
        rights: Rights::ALL,
        importers: Importers::Job,
        direct: None,
        pins_late: false,
    }
}

pub(crate) fn export(world: &mut World, of: Endpoint, name: &str) -> ExportId {
    let number = usize::from(of.node.0);
    let (nodes, memories) = (&mut world.nodes, &mut world.memories);
    let exported = nodes[number].export(of.process, &mut memories[number], request(name, of));
    exported.unwrap()
}

pub(crate) fn import(world: &mut World, of: Endpoint, from: Endpoint, name: &str) -> Result<(ImportId, Grant), String> {
    let node = &mut world.nodes[usize::from(of.node.0)];
    let asked = node.ask_import(0, of.process, from, name, Rights::ALL, None, SECOND);
    let request = asked.unwrap();
    world.settle();
    let node = &mut world.nodes[usize::from(of.node.0)];
    match node.enter_import(of.process, request) {
        Some(entered) => entered.map_err(|error| error.to_string()),
        None => Err("no answer".to_owned()),
    }
}

pub(crate) fn send(world: &mut World, of: Endpoint, import: ImportId, offset: u64, data: &[u8]) {
    let command = CommandRepr::ShortSend { import, offset, length: data.len() as u32, notify: false, signal: None };
    let node = &mut world.nodes[usize::from(of.node.0)];
    node.handle_own_command(of.process, &command, data);
    world.settle();
}

#[test]
fn processes_of_one_node_export_under_the_same_name_and_importers_get_the_one_they_ask() {
    let mut world = World::new(2, 2);
    let (one, other) = (at(0, 0), at(0, 1));
    for of in [one, other] {
        export(&mut world, of, "inbox");
    }
    for (importer, exporter, data) in [(at(1, 1), one, b"one"), (at(1, 0), other, b"two")] {
        let (id, grant) = import(&mut world, importer, exporter, "inbox").unwrap();
        assert_eq!(grant.from, exporter);
        send(&mut world, importer, id, 5000, data);
        assert_eq!(world.read(exporter, HERE + 5000, 3), data);
    }
    assert_eq!(world.read(one, HERE + 5000, 3), b"one");
    assert!(world.told.iter().flatten().next().is_none(), "{:?}", world.told);
}

#[test]
fn a_process_uses_and_takes_back_nothing_of_another() {
    let mut world = World::new(2, 2);
    let exporter = at(0, 0);
    let id = export(&mut world, exporter, "inbox");
    let (import, grant) = import(&mut world, at(1, 0), exporter, "inbox").unwrap();
    send(&mut world, at(1, 1), import, 0, b"no");
    assert!(matches!(world.told[1][..], [Told::Failed { error: CommandError::UnknownImport(_), .. }]));
    assert_eq!(world.read(exporter, HERE, 2), [0; 2]);
    let stranger = at(0, 1).process;
    assert!(world.nodes[0].unexport(stranger, id).is_err());
    let memory = &mut world.memories[0];
    let redirected = world.nodes[0].redirect(stranger, memory, id, None);
    assert!(matches!(redirected, Err(ExportError::Nic(_))));
    world.nodes[1].release_import(at(1, 1).process, import, &grant);
    world.settle();
    assert_eq!(world.nodes[0].holders(exporter.process, id), 1);
    world.nodes[1].release_import(at(1, 0).process, import, &grant);
    world.settle();
    assert_eq!(world.nodes[0].holders(exporter.process, id), 0);
}

#[test]
fn a_process_that_closes_revokes_its_exports_and_no_others() {
    let mut world = World::new(2, 2);
    let importer = at(1, 0);
    let mut imports = Vec::new();
    for of in [at(0, 0), at(0, 1)] {
        export(&mut world, of, "inbox");
        imports.push(import(&mut world, importer, of, "inbox").unwrap().0);
    }
    world.nodes[0].close_process(at(0, 0).process);
    world.settle();
    send(&mut world, importer, imports[0], 0, b"late");
    let told = core::mem::take(&mut world.told[1]);
    assert!(matches!(told[..], [Told::Failed { error: CommandError::Revoked(_), .. }]), "{told:?}");
    send(&mut world, importer, imports[1], 0, b"fine");
    assert_eq!(world.read(at(0, 1), HERE, 4), b"fine");
    assert!(!world.nodes[1].is_gone(NodeId(0)));
}

#[test]
fn an_import_of_what_nobody_exports_waits_and_ends_at_its_time() {
    let mut world = World::new(2, 1);
    let importer = at(1, 0);
    let node = &mut world.nodes[1];
    let asked = node.ask_import(7, importer.process, at(0, 0), "never", Rights::ALL, None, SECOND);
    let request = asked.unwrap();
    world.settle();
    let node = &mut world.nodes[1];
    assert!(node.outcome(importer.process, request).is_none());
    assert_eq!(node.poll_at(), Some(7 + SECOND));
    node.handle_time(7 + SECOND);
    world.settle();
    let outcome = world.nodes[1].enter_import(importer.process, request);
    let error = outcome.unwrap().unwrap_err().to_string();
    assert!(error.contains("`never` within 1000 ms"), "{error}");
    // The exporter has been told, and holds nothing for it.
    let id = export(&mut world, at(0, 0), "never");
    world.settle();
    assert_eq!(world.nodes[0].holders(at(0, 0).process, id), 0);
}

#[test]
fn what_was_asked_of_a_node_that_goes_ends_and_nothing_goes_there_any_more() {
    let mut world = World::new(2, 1);
    let importer = at(1, 0);
    let node = &mut world.nodes[1];
    let asked = node.ask_import(0, importer.process, at(0, 0), "x", Rights::ALL, None, SECOND);
    let request = asked.unwrap();
    world.settle();
    world.nodes[1].handle_peer_gone(0, NodeId(0));
    world.settle();
    let outcome = world.nodes[1].outcome(importer.process, request);
    assert!(matches!(outcome, Some(Err(VmmcError::PeerGone { .. }))));
    world.send(importer, at(0, 0), HandlerId(9), b"hello");
    world.settle();
    let told = world.told[1].last();
    assert!(matches!(told, Some(Told::Failed { error: CommandError::PeerGone(_), .. })), "{told:?}");
}

#[test]
fn a_notice_needs_the_key_and_a_range_within_an_export_of_the_process() {
    let mut world = World::new(2, 2);
    let of = at(0, 1);
    let id = export(&mut world, of, "inbox");
    let right = key(0, 101);
    let mut take = |to: Endpoint, id, key: Key, offset, length| {
        let bytes = notice(id, key, offset, length);
        world.send(at(1, 0), to, NOTICE_HANDLER, &bytes);
        world.settle();
        core::mem::take(&mut world.told[0])
    };
    let told = take(of, id, right, 40, 9960);
    assert!(matches!(told[..], [Told::Notified { offset: 40, length: 9960, .. }]), "{told:?}");
    for (to, id, key) in [(of, id, Key([4; 16])), (of, ExportId(id.0 + 1), right), (at(0, 0), id, right)] {
        let told = take(to, id, key, 40, 60);
        assert!(matches!(told[..], [Told::NoticeWithoutKey { .. }]), "{told:?}");
    }
    for offset in [9941, u64::MAX] {
        let told = take(of, id, right, offset, 60);
        assert!(matches!(told[..], [Told::NoticeOutside { .. }]), "{told:?}");
    }
    world.send(at(1, 0), of, NOTICE_HANDLER, b"short");
    world.settle();
    assert!(world.told[0].is_empty());
}

#[test]
fn an_export_without_bytes_or_rights_or_with_a_name_that_is_taken_changes_nothing() {
    let mut world = World::new(1, 1);
    let of = at(0, 0);
    export(&mut world, of, "taken");
    let mut refused = |change: &dyn Fn(&mut ExportRequest)| {
        let mut asked = request("free", of);
        change(&mut asked);
        let memory = &mut world.memories[0];
        world.nodes[0].export(of.process, memory, asked).unwrap_err()
    };
    assert!(matches!(refused(&|asked| asked.length = 0), ExportError::Empty));
    let no_rights = refused(&|asked| asked.rights = Rights::NONE);
    assert!(matches!(no_rights, ExportError::NoRights));
    let taken = refused(&|asked| asked.name = "taken".to_owned());
    assert!(matches!(taken, ExportError::Vmmc(VmmcError::NameTaken(_))));
    let endless = refused(&|asked| asked.address = u64::MAX - 5);
    assert!(matches!(endless, ExportError::Range(_)), "{endless}");
    export(&mut world, of, "free");
}
