//! The shm transport against the conformance suite, and against a peer that scribbles on the shared memory.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use mapwire_host::mapping::{Mapping, Rights};
use mapwire_wire::{Header, NodeId};

use super::channel::{Channel, Side};
use super::ring::{PushError, RingConfig};
use super::{PeerCorrupt, ShmTransport};
use crate::payload::Payload;
use crate::tests::conformance::{self, Network};
use crate::transport::{ReceiveError, SendError, Transport};

const FIRST_RING: usize = 4096;
const FIRST_SLOT: usize = FIRST_RING + 384;

fn network(nodes: usize, config: &RingConfig) -> Network {
    let mut transports: Vec<_> = (0..nodes).map(|_| ShmTransport::new(config)).collect();
    for lower in 0..nodes {
        for higher in lower + 1..nodes {
            let fd = Channel::create(config).unwrap();
            let mut open = |node: usize, side, peer| {
                let channel = Channel::open(&fd, side, config).unwrap();
                transports[node].connect(NodeId(peer as u16), channel);
            };
            open(lower, Side::Lower, higher);
            open(higher, Side::Higher, lower);
        }
    }
    let boxed = |transport| Box::new(transport) as Box<dyn Transport>;
    transports.into_iter().map(boxed).collect()
}

#[test]
fn the_shm_transport_conforms() {
    conformance::run(&mut |nodes| network(nodes, &RingConfig::default()));
}

#[test]
fn the_shm_transport_conforms_with_the_smallest_rings() {
    let config = RingConfig { slots: 16, bulk_bytes: 16 << 10, max_payload_bytes: 4112 };
    conformance::run(&mut |nodes| network(nodes, &config));
}

#[test]
fn a_node_can_send_to_itself() {
    let config = RingConfig::default();
    let mut transport = ShmTransport::new(&config);
    transport.connect_self(NodeId(3), &config).unwrap();
    let mut header = Header::ZERO;
    header.length.set(5);
    let payload = Payload::one(&b"hello"[..]);
    transport.send(NodeId(3), &header, payload).unwrap();
    let packet = transport.poll_receive().unwrap().unwrap();
    assert_eq!(packet.from, NodeId(3));
    let mut copy = [0; 5];
    packet.payload.copy_to_slice(0, &mut copy);
    assert_eq!(&copy, b"hello");
    transport.release(NodeId(3));
    assert!(transport.poll_receive().unwrap().is_none());
}

/// A transport with one peer, and that peer's ring as a hostile process sees it: bare words.
fn victim() -> (ShmTransport, Channel, Mapping) {
    let config = RingConfig::default();
    let fd = Channel::create(&config).unwrap();
    let memory = Mapping::foreign(fd.as_fd(), Channel::layout_bytes(&config), Rights::ReadWrite).unwrap();
    let mut transport = ShmTransport::new(&config);
    let channel = Channel::open(&fd, Side::Higher, &config).unwrap();
    transport.connect(NodeId(0), channel);
    let attacker = Channel::open(&fd, Side::Lower, &config).unwrap();
    (transport, attacker, memory)
}

#[test]
fn an_impossible_length_breaks_the_connection_and_nothing_else() {
    let longest = RingConfig::default().max_payload_bytes;
    for length in [longest + 1, 2 * longest, u32::MAX] {
        let (mut transport, _attacker, memory) = victim();
        let word = u64::from(length) << 32 | 1;
        memory.word64(FIRST_SLOT).store(word, Ordering::Release);
        let error = transport.poll_receive().unwrap_err();
        let corrupt = PeerCorrupt { what: "payload length in bytes", value: u64::from(length) };
        let peer = NodeId(0);
        assert_eq!(error, ReceiveError::PeerCorrupt { peer, corrupt });
        assert!(transport.poll_receive().unwrap().is_none());
        let sent = transport.send(peer, &Header::ZERO, Payload::EMPTY);
        assert_eq!(sent, Err(SendError::PeerGone(peer)));
    }
}

#[test]
fn a_header_that_contradicts_the_ring_breaks_the_connection() {
    let (mut transport, mut attacker, _memory) = victim();
    let mut header = [0; 48];
    header[4] = 9;
    let piece = (&b"eight by"[..]).into();
    attacker.sender.try_push(&header, &[piece]).unwrap();
    let error = transport.poll_receive().unwrap_err();
    assert!(error.to_string().contains("in its header is 9"), "{error}");
}

#[test]
fn an_impossible_release_count_is_named_and_refused() {
    for count in [1, 65, u32::MAX] {
        let (_transport, mut attacker, memory) = victim();
        // The attacker's part is played by the other end here: it owns the count of the ring we push into.
        memory.word32(FIRST_RING).store(count, Ordering::Release);
        let drained = attacker.sender.drained();
        assert_eq!(drained, Ok(true), "nothing is outstanding, nothing is read");
        let mut pushed = 0;
        let error = loop {
            match attacker.sender.try_push(&[0; 48], &[]) {
                Ok(()) => pushed += 1,
                Err(error) => break error,
            }
            assert!(pushed < 1000);
        };
        if count == 1 {
            // Possible once something was sent; the lie costs the liar one packet, then it is full.
            assert_eq!(error, PushError::Full);
        } else {
            assert!(matches!(error, PushError::Corrupt(_)), "{count}: {error}");
        }
    }
}

#[test]
fn random_scribbling_never_panics_or_escapes() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        let (mut transport, mut attacker, memory) = victim();
        let words = Channel::layout_bytes(&RingConfig::default()) / 8;
        for step in 0..400u64 {
            let offset = match random() % 4 {
                0 => FIRST_RING,
                1 => FIRST_SLOT + (random() % 64) as usize * 192,
                _ => random() as usize % words * 8,
            };
            let value = match random() % 3 {
                0 => random(),
                // A length about the longest, with or without the bits of packed and restarted ones.
                1 => ((random() % 40_000) | (random() & 3 << 29)) << 32 | (step / 4 + 1),
                _ => step,
            };
            memory.word64(offset).store(value, Ordering::Release);
            let bytes = [1; 33_000];
            let length = if random() % 8 == 0 { random() as usize % 33_000 } else { 200 };
            let _ = attacker.sender.try_push(&[0; 48], &[(&bytes[..length]).into()]);
            let from = match transport.poll_receive() {
                Ok(Some(packet)) => {
                    let mut copy = vec![0; packet.payload.len_bytes()];
                    packet.payload.copy_to_slice(0, &mut copy);
                    Some(packet.from)
                }
                Ok(None) | Err(_) => None,
            };
            if let Some(from) = from {
                transport.release(from);
            }
            let _ = transport.send(NodeId(0), &Header::ZERO, Payload::EMPTY);
        }
    }
}

#[test]
fn a_ring_whose_consumer_keeps_up_uses_the_begin_of_its_bulk_area_only() {
    const BYTES: usize = 4112;
    let config = RingConfig::default();
    let bulk = FIRST_RING + (config.layout_bytes() - config.bulk_bytes as usize);
    let (mut transport, mut attacker, memory) = victim();
    let mut push = |byte: u8| {
        let mut header = Header::ZERO;
        header.length.set(BYTES as u32);
        let header = zerocopy::transmute_ref!(&header);
        let payload = [byte; BYTES];
        attacker.sender.try_push(header, &[(&payload[..]).into()])
    };
    let take = |transport: &mut ShmTransport, byte: u8| {
        let packet = transport.poll_receive().unwrap().unwrap();
        let mut copy = [0; BYTES];
        packet.payload.copy_to_slice(0, &mut copy);
        assert_eq!(copy, [byte; BYTES]);
        transport.release(NodeId(0));
    };
    let is_used = |at: usize| memory.word64(bulk + at).load(Ordering::Relaxed) != 0;
    for number in 1..=100 {
        push(number).unwrap();
        take(&mut transport, number);
        // Which tells the producer.
        assert!(transport.poll_receive().unwrap().is_none());
    }
    assert!(is_used(8 << 10) && !(16 << 10..config.bulk_bytes as usize).step_by(8).any(is_used));
    // One that does not keep up has all of the area.
    (101..=130).for_each(|number| push(number).unwrap());
    (101..=130).for_each(|number| take(&mut transport, number));
    assert!(is_used(64 << 10));
}
