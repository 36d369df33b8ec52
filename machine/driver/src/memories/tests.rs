use std::sync::{Arc, Mutex, PoisonError};

use mapwire_host::memory::SharedBuffer;
use mapwire_vmmc::Importers;
use mapwire_vmmc::service::Region;
use mapwire_wire::{ExportId, HandlerId, ImportId, NodeId, Rights};

use super::Stored;
use crate::exports::{DirectMemory, ExportRequest};
use crate::local::Local;
use crate::local::tests::local;

const PEER: NodeId = NodeId(1);
const BYTES: usize = 1 << 16;

fn buffer() -> Arc<Mutex<SharedBuffer>> {
    Arc::new(Mutex::new(SharedBuffer::allocate("memories", BYTES).unwrap()))
}

fn address(buffer: &Mutex<SharedBuffer>) -> u64 {
    buffer.lock().unwrap_or_else(PoisonError::into_inner).as_ptr().addr() as u64
}

fn export(local: &mut Local, name: &str, buffer: &Arc<Mutex<SharedBuffer>>, can_map: bool) -> ExportId {
    let request = ExportRequest {
        name: name.into(),
        address: address(buffer),
        length: BYTES as u64,
        rights: Rights::ALL,
        importers: Importers::Job,
        direct: Some(DirectMemory::Buffer(Arc::clone(buffer))),
        handler: None,
    };
    local.memories.export(&mut local.node, &mut local.outcomes, request, can_map).unwrap()
}

/// The tags under which an export is passed.
fn tags(local: &mut Local, export: ExportId) -> Vec<u64> {
    let mut tags = Vec::new();
    let pass = |tag, _: std::os::fd::BorrowedFd<'_>| {
        tags.push(tag);
        Ok(())
    };
    local.memories.pass(&mut local.outcomes, (PEER, export, 7), pass);
    tags
}

#[test]
fn of_several_exports_of_a_buffer_the_first_is_passed_and_the_next_once_that_is_taken_back() {
    let (mut local, buffer) = (local(2), buffer());
    let apart = export(&mut local, "apart", &buffer, false);
    assert!(tags(&mut local, apart).is_empty(), "nobody can map it");
    let [first, second] = ["first", "second"].map(|name| export(&mut local, name, &buffer, true));
    let passed = tags(&mut local, first);
    assert_eq!(passed.len(), 2, "memory and status");
    assert!(passed.iter().all(|tag| tag & 0xffff_ffff == 7), "under the importer's number");
    assert!(tags(&mut local, second).is_empty());
    local.memories.unexport(&mut local.node, &mut local.outcomes, first).unwrap();
    assert!(tags(&mut local, first).is_empty());
    let third = export(&mut local, "third", &buffer, true);
    assert_eq!(tags(&mut local, third).len(), 2);
}

#[test]
fn memory_that_no_import_awaits_is_not_kept() {
    let mut local = local(2);
    assert_eq!(local.memories.take_passed(&local.node, PEER, 7, None), None);
    assert!(local.memories.passed.is_empty());
}

#[test]
fn a_service_stores_by_the_nic_from_memory_for_one_peer_until_that_is_taken_away() {
    let (mut local, own) = (local(3), buffer());
    let (handler, import) = (HandlerId(20), ImportId(3));
    let region = |offset: u64| Region { view: 0, offset, bytes: 4096 };
    let stored = |local: &mut Local, to: u16, offset: u64| {
        let memory = local.memories.of_service(handler);
        memory.map_or(Stored::Never, |memory| memory.store(NodeId(to), &region(offset), 0))
    };
    assert_eq!(stored(&mut local, 1, 0), Stored::Never);
    local.memories.set_pair(&local.node, handler, PEER, Some((Arc::clone(&own), import)));
    assert_eq!(stored(&mut local, 1, 4096), Stored::ByNic(import, address(&own) + 4096));
    assert_eq!(stored(&mut local, 1, BYTES as u64 - 4095), Stored::Never, "it is not all there");
    assert_eq!(stored(&mut local, 2, 0), Stored::Never, "of another peer");
    local.memories.set_pair(&local.node, handler, PEER, None);
    assert_eq!(stored(&mut local, 1, 4096), Stored::Never);
}
