//! Stores and fetches between endpoints of this process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mapwire_host::mapping::Mapping;

use super::super::rma::{Region, RemoteRights};
use super::super::*;
use super::{alone, network};
use crate::transport::Transport;

/// Polls both until an operation of the first is over.
fn done(net: &mut [Ofi]) -> RmaDone {
    let start = Instant::now();
    loop {
        for other in &mut net[1..] {
            other.flush();
        }
        if let Some(done) = net[0].poll_done() {
            return done;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "never done");
    }
}

const MEMORY_BYTES: usize = 1 << 20;

fn bytes_of(mapping: &Mapping) -> Vec<u8> {
    let words = (0..MEMORY_BYTES).step_by(8);
    words.flat_map(|at| mapping.word64(at).load(Ordering::Acquire).to_ne_bytes()).collect()
}

fn fill(mapping: &Mapping, bytes: &[u8]) {
    for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        mapping.word64(8 * index).store(u64::from_ne_bytes(*word), Ordering::Release);
    }
}

fn stores_and_fetches(provider: &str) {
    let _alone = alone(provider);
    let Some(mut net) = network(provider, 2) else {
        return;
    };
    let memory = || Arc::new(Mapping::anonymous(MEMORY_BYTES).unwrap());
    let (here, there) = (memory(), memory());
    let pattern: Vec<u8> = (0..MEMORY_BYTES).map(|index| (index * 7 + index / 999) as u8).collect();
    fill(&here, &pattern);
    let local = net[0].registrar().register(&here, 0, MEMORY_BYTES, RemoteRights::NONE);
    let local = Arc::new(local.unwrap());
    // Of the exporter's memory only this part.
    let exported = net[1].registrar().register(&there, 4096, 600_000, RemoteRights::ALL).unwrap();
    let remote = RemoteMemory::from_bytes(&exported.remote().to_bytes());
    let piece = |offset, bytes| LocalPiece { region: &local, offset, bytes };
    let mut expected = vec![0; MEMORY_BYTES];
    for (token, (at, first, second)) in [
        (0, (0, 1), (9, 0)),
        (1, (5, 8), (77, 100)),
        (4095, (4000, 4096), (0, 3)),
        (500_000, (64, 65536), (100_000, 34_464)),
    ]
    .into_iter()
    .enumerate()
    {
        let pieces = [piece(first.0, first.1), piece(second.0, second.1)];
        let pieces = if second.1 == 0 { &pieces[..1] } else { &pieces[..] };
        net[0].transfer(Direction::StoreInPlace, NodeId(1), (&remote, at as u64), pieces, token as u64).unwrap();
        assert_eq!(done(&mut net), RmaDone { token: token as u64, peer: NodeId(1), result: Ok(()) });
        let mut to = 4096 + at;
        for (offset, bytes) in [first, second] {
            expected[to..to + bytes].copy_from_slice(&pattern[offset..offset + bytes]);
            to += bytes;
        }
        assert!(bytes_of(&there) == expected, "store {token}");
    }
    // And back, in two pieces.
    let pieces = [piece(700_000, 10_000), piece(900_000, 90_000)];
    net[0].transfer(Direction::Fetch, NodeId(1), (&remote, 500_000), &pieces, 99).unwrap();
    assert_eq!(done(&mut net).result, Ok(()));
    let back = bytes_of(&here);
    assert!(back[700_000..710_000] == expected[504_096..514_096]);
    assert!(back[900_000..990_000] == expected[514_096..604_096]);
    // What is not inside is refused here.
    let outside = net[0].transfer(Direction::StoreInPlace, NodeId(1), (&remote, 599_999), &[piece(0, 2)], 1);
    assert!(matches!(outside, Err(RmaError::Outside { .. })), "{outside:?}");
    assert_eq!(
        net[0].transfer(Direction::StoreInPlace, NodeId(1), (&remote, u64::MAX), &[piece(0, 2)], 1),
        Err(RmaError::Outside { offset: u64::MAX, bytes: 2, region_bytes: 600_000 })
    );
    assert_eq!(
        net[0].transfer(Direction::StoreInPlace, NodeId(1), (&remote, 0), &[piece(MEMORY_BYTES, 1)], 1),
        Err(RmaError::BadPiece)
    );
    assert_eq!(
        net[0].transfer(Direction::StoreInPlace, NodeId(9), (&remote, 0), &[piece(0, 1)], 1),
        Err(RmaError::NotConnected(NodeId(9)))
    );
    let strange = net[1].registrar().register(&there, 0, 4096, RemoteRights::NONE).unwrap();
    let strange = Arc::new(strange);
    let strange = LocalPiece { region: &strange, offset: 0, bytes: 1 };
    assert_eq!(
        net[0].transfer(Direction::StoreInPlace, NodeId(1), (&remote, 0), &[strange], 1),
        Err(RmaError::BadPiece)
    );
    assert!(bytes_of(&there) == expected);
}

#[test]
fn stores_and_fetches_arrive_whole_over_tcp() {
    stores_and_fetches("tcp");
}

#[test]
fn stores_and_fetches_arrive_whole_over_shm() {
    stores_and_fetches("shm");
}

#[test]
fn stores_and_fetches_arrive_whole_over_udp() {
    stores_and_fetches("udp;ofi_rxd");
}

/// What the peer allows, and whether its region is closed before the operation.
const REFUSED: [(RemoteRights, bool, bool); 6] = [
    (RemoteRights::NONE, true, false),
    (RemoteRights::NONE, false, false),
    (FETCH, true, false),
    (STORE, false, false),
    (RemoteRights::ALL, true, true),
    (RemoteRights::ALL, false, true),
];
const FETCH: RemoteRights = RemoteRights { store: false, fetch: true };
const STORE: RemoteRights = RemoteRights { store: true, fetch: false };

/// Operations that the peer's memory does not allow fail, and move nothing.
fn are_refused(provider: &str, cases: &[(RemoteRights, bool, bool)]) {
    for &(rights, is_store, is_closed) in cases {
        let Some(mut net) = network(provider, 2) else {
            return;
        };
        let memory = || Arc::new(Mapping::anonymous(MEMORY_BYTES).unwrap());
        let (here, there) = (memory(), memory());
        fill(&here, &[1; MEMORY_BYTES]);
        fill(&there, &[2; MEMORY_BYTES]);
        let register = |node: usize, memory, rights| -> Arc<Region> {
            let registrar = net[node].registrar();
            Arc::new(registrar.register(memory, 0, MEMORY_BYTES, rights).unwrap())
        };
        let local = register(0, &here, RemoteRights::NONE);
        let exported = register(1, &there, rights);
        let remote = exported.remote();
        if is_closed {
            drop(exported);
        }
        let piece = [LocalPiece { region: &local, offset: 0, bytes: 10_000 }];
        let begun = if is_store {
            net[0].transfer(Direction::StoreInPlace, NodeId(1), (&remote, 0), &piece, 1)
        } else {
            net[0].transfer(Direction::Fetch, NodeId(1), (&remote, 0), &piece, 1)
        };
        let result = begun.and_then(|()| done(&mut net).result);
        let case = format!("{provider}: {rights:?}, store {is_store}, closed {is_closed}: {result:?}");
        println!("{case}");
        assert!(bytes_of(&there) == [2; MEMORY_BYTES], "{case}: a store changed memory");
        assert!(bytes_of(&here) == [1; MEMORY_BYTES], "{case}: a fetch gave bytes");
        assert!(result.is_err(), "{case}");
    }
}

#[test]
fn operations_without_the_right_fail_and_change_nothing_over_tcp() {
    are_refused("tcp", &REFUSED);
}

#[test]
fn operations_without_the_right_fail_and_change_nothing_over_udp() {
    are_refused("udp;ofi_rxd", &REFUSED[2..3]);
}
