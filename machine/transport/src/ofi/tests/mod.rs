//! Packets between endpoints of this process.

mod rma;

use std::sync::{Mutex, MutexGuard, PoisonError};

use mapwire_wire::Header;

use super::*;
use crate::payload::Payload;
use crate::tests::conformance::{self, Network};
use crate::transport::Transport;

/// Endpoints of a provider, each connected to every other; `None` where libfabric or the provider is missing.
pub(super) fn network(provider: &str, nodes: usize) -> Option<Vec<Ofi>> {
    let mut net = Vec::new();
    for _ in 0..nodes {
        match Ofi::open(provider) {
            Ok(ofi) => net.push(ofi),
            Err(error @ (OfiError::NotInstalled { .. } | OfiError::NoProvider { .. })) => {
                mapwire_testing::skip!("{error}");
                return None;
            }
            Err(error) => panic!("{provider}: {error}"),
        }
    }
    let names: Vec<_> = net.iter().map(|ofi| ofi.name().to_vec()).collect();
    for (me, ofi) in net.iter_mut().enumerate() {
        for (peer, name) in names.iter().enumerate() {
            if peer != me {
                ofi.connect(NodeId(peer as u16), name).expect("connect");
            }
        }
    }
    let start = Instant::now();
    loop {
        let mut ready = true;
        for (me, ofi) in net.iter_mut().enumerate() {
            for peer in 0..nodes {
                ready &= peer == me || ofi.is_ready(NodeId(peer as u16));
            }
        }
        if ready {
            return Some(net);
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{provider}: not connected");
    }
}

/// Keeps tests of provider `shm` apart: its endpoints in one process share lists that threads of several tests would spoil.
pub(super) fn alone(provider: &str) -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    (provider == "shm").then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn conforms(provider: &str) {
    let _alone = alone(provider);
    if network(provider, 2).is_none() {
        return;
    }
    conformance::run(&mut |nodes| -> Network {
        let net = network(provider, nodes).expect("it was there");
        net.into_iter().map(|ofi| Box::new(ofi) as Box<dyn Transport>).collect()
    });
}

#[test]
fn the_ofi_transport_conforms_over_tcp() {
    conforms("tcp");
}

#[test]
fn the_ofi_transport_conforms_over_shm() {
    conforms("shm");
}

#[test]
fn the_ofi_transport_conforms_over_udp() {
    conforms("udp;ofi_rxd");
}

#[test]
fn providers_are_told_or_the_error_says_that_libfabric_is_missing() {
    match providers() {
        Ok(found) => {
            for provider in found {
                println!("{provider:?}");
                assert!(!provider.name.is_empty() && !provider.interfaces.is_empty());
            }
        }
        Err(error) => {
            mapwire_testing::skip!("{error}");
            assert!(error.to_string().contains("apt-get install libfabric1"));
        }
    }
}

#[test]
fn a_provider_that_there_is_not_is_named_with_those_that_there_are() {
    match Ofi::open("nonsense") {
        Err(OfiError::NotInstalled { reason }) => mapwire_testing::skip!("{reason}"),
        Err(error @ OfiError::NoProvider { .. }) => {
            let text = error.to_string();
            assert!(text.contains("`nonsense`") && text.contains("there are: "), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_that_is_asked_says_at_once_when_it_has_released_all_that_was_sent() {
    let Some(mut net) = network("tcp", 2) else {
        return;
    };
    let header = Header::ZERO;
    for _ in 0..3 {
        net[0].send(NodeId(1), &header, Payload::EMPTY).unwrap();
    }
    assert_eq!(net[0].drained(NodeId(1)), Ok(false));
    let start = Instant::now();
    let mut taken = 0;
    while net[0].drained(NodeId(1)) != Ok(true) {
        // Without a flush, and far fewer than half a window.
        if net[1].poll_receive().unwrap().is_some() {
            net[1].release(NodeId(0));
            taken += 1;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{taken} taken");
    }
    assert_eq!(taken, 3);
}

#[test]
fn a_question_for_the_next_packet_is_not_lost_to_a_word_before_it() {
    let Some(mut net) = network("tcp", 2) else {
        return;
    };
    let header = Header::ZERO;
    net[0].ask_with_next(NodeId(1));
    // So many are released that a word goes back.
    for _ in 0..20 {
        net[1].send(NodeId(0), &header, Payload::EMPTY).unwrap();
    }
    let start = Instant::now();
    let mut taken = 0;
    while taken < 20 {
        if net[0].poll_receive().unwrap().is_some() {
            net[0].release(NodeId(1));
            taken += 1;
        }
        net[1].progress();
        assert!(start.elapsed() < Duration::from_secs(10), "{taken} taken");
    }
    net[0].send(NodeId(1), &header, Payload::EMPTY).unwrap();
    while net[0].drained(NodeId(1)) != Ok(true) {
        if net[1].poll_receive().unwrap().is_some() {
            net[1].release(NodeId(0));
        }
        assert!(start.elapsed() < Duration::from_secs(10), "no answer");
    }
}
