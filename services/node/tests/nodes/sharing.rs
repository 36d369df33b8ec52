//! The shared memory over NICs alone: minipages travel as stores, and what follows them comes behind.

use mapwire_dsm::{Access, Address, AllocOptions, Config, Dsm, Outcome, Unit};
use mapwire_node::{SharedEnd, SharedMemory};
use mapwire_vmmc::service::Service;
use mapwire_wire::{CommandRepr, Endpoint, HandlerId, NodeId};

use crate::processes::{HERE, export, import};
use crate::world::{World, at};

const SHARED: HandlerId = HandlerId(1);
const PAGES: u32 = 2;

/// Two nodes of two processes: four ranks, each with an import of the memory of each other one.
fn ranks() -> (World, [Endpoint; 4]) {
    let mut world = World::new(2, 2);
    let all = [at(0, 0), at(0, 1), at(1, 0), at(1, 1)];
    for (rank, of) in (0..).zip(all) {
        let dsm = Dsm::new(Config { hold_ns: 0, ..Config::new(rank, 4, 1, PAGES, 4) });
        let mut memory = SharedMemory::new(dsm.unwrap(), 2);
        for peer in all {
            memory.hear(peer);
        }
        let node = &mut world.nodes[usize::from(of.node.0)];
        node.register(of.process, SHARED, Box::new(memory)).unwrap();
        export(&mut world, of, "segment");
    }
    for of in all {
        for to in all {
            if of != to {
                let (id, _) = import(&mut world, of, to, "segment").unwrap();
                world.segments.insert((of, to), (id, HERE));
            }
        }
    }
    (world, all)
}

fn call<R>(world: &mut World, of: Endpoint, call: impl FnOnce(&mut SharedMemory) -> R) -> R {
    let node = &mut world.nodes[usize::from(of.node.0)];
    node.call(of.process, SHARED, call).unwrap()
}

/// Waits for the operation of a rank's thread.
fn outcome(world: &mut World, of: Endpoint) -> Result<Outcome, SharedEnd> {
    world.settle();
    call(world, of, |memory| memory.take_outcome(0)).expect("it has ended")
}

fn alloc(world: &mut World, of: Endpoint, bytes: u64) -> Address {
    let whole = AllocOptions { unit: Unit::Whole, ..AllocOptions::default() };
    call(world, of, |memory| memory.dsm_mut().alloc_with(0, bytes, whole)).unwrap();
    match outcome(world, of) {
        Ok(Outcome::Allocated(address)) => address,
        other => panic!("{other:?}"),
    }
}

fn fault(world: &mut World, of: Endpoint, address: Address, access: Access) {
    let page = address.offset_bytes / 4096;
    let began = call(world, of, |memory| memory.dsm_mut().handle_fault(0, 0, address.view, page, access));
    let _ = began.unwrap();
    assert_eq!(outcome(world, of), Ok(Outcome::Served(access)));
}

#[test]
fn minipages_reach_ranks_that_have_nothing_mapped() {
    let (mut world, all) = ranks();
    let address = alloc(&mut world, all[0], 5000);
    let there = HERE + address.offset_bytes;
    let data: Vec<u8> = (0..5000_u32).map(|at| (at * 7 % 251) as u8).collect();
    world.write(all[0], there, &data);
    for reader in [all[3], all[1], all[2]] {
        fault(&mut world, reader, address, Access::Read);
        assert_eq!(world.read(reader, there, 5000), data, "{reader}");
    }
    fault(&mut world, all[2], address, Access::Write);
    world.write(all[2], there + 4999, &[99]);
    fault(&mut world, all[0], address, Access::Read);
    assert_eq!(world.read(all[0], there + 4998, 2), [data[4998], 99]);
    assert!(world.told.iter().flatten().next().is_none(), "{:?}", world.told);
}

#[test]
fn a_store_waits_for_the_programs_own_long_send_and_both_arrive() {
    let (mut world, all) = ranks();
    let address = alloc(&mut world, all[0], 64);
    let there = HERE + address.offset_bytes;
    world.write(all[0], there, &[5; 64]);
    let (id, _) = world.segments[&(all[0], all[2])];
    let node = &mut world.nodes[0];
    let pages = mapwire_translation::PageRange::covering(HERE, 8000).unwrap();
    node.hold(all[0].process, &mut world.memories[0], 3, pages).unwrap();
    let command = CommandRepr::LongSend {
        import: id,
        offset: 1000,
        address: HERE + 1000,
        length: 7000,
        notify: false,
        signal: None,
        completion: 3,
    };
    node.handle_own_command(all[0].process, &command, &[]);
    assert!(!node.accepts_command(all[0].process));
    fault(&mut world, all[2], address, Access::Read);
    assert_eq!(world.read(all[2], there, 64), [5; 64]);
    let told = &world.told[0];
    assert!(matches!(told[..], [mapwire_node::Told::Done { completion: 3, .. }]), "{told:?}");
}

#[test]
fn a_rank_whose_memory_is_not_imported_gets_no_grant_and_the_memory_ends() {
    let (mut world, all) = ranks();
    world.segments.clear();
    let address = alloc(&mut world, all[0], 64);
    let page = address.offset_bytes / 4096;
    let began = call(&mut world, all[3], |memory| {
        let dsm = memory.dsm_mut();
        dsm.handle_fault(0, 0, address.view, page, Access::Read)
    });
    let _ = began.unwrap();
    world.settle();
    let end = call(&mut world, all[0], |memory| memory.end());
    assert_eq!(end, Some(SharedEnd::Lost(NodeId(1))));
    let waits = call(&mut world, all[3], |memory| memory.take_outcome(0));
    assert_eq!(waits, None, "no grant without its data");
}
