//! The format does not change: every kind encodes as it did when its version was set.

use std::fs;
use std::path::PathBuf;

use crate::vectors::*;
use mapwire_wire::*;
use zerocopy::IntoBytes;

#[test]
fn every_kind_of_packet_has_a_vector() {
    for kind in Kind::ALL {
        assert!(packets().iter().any(|v| v.meaning.kind() == kind), "{kind}");
        assert_eq!(Kind::from_code(kind as u8), Some(kind));
    }
}

#[test]
fn packets_are_written_as_their_vectors() {
    for v in packets() {
        assert_eq!(packet_bytes(v.meaning, SEQUENCE, v.data), v.bytes(), "{}", v.name);
    }
}

#[test]
fn packets_are_read_from_their_vectors() {
    for v in packets() {
        let bytes = v.bytes();
        let packet = Packet::new_checked(&bytes).unwrap_or_else(|e| panic!("{}: {e}", v.name));
        assert_eq!(packet.repr(), v.meaning, "{}", v.name);
        assert_eq!(packet.header().sequence.get(), SEQUENCE);
        assert_eq!(packet.to_string(), v.prints, "{}", v.name);
    }
}

#[test]
fn control_messages_are_written_and_read_as_their_vectors() {
    for v in controls() {
        let bytes = v.bytes();
        assert_eq!(v.meaning.to_vec().unwrap(), bytes, "{}", v.name);
        assert_eq!(ControlMessage::parse(&bytes), Ok(v.meaning), "{}", v.name);
        assert_eq!(v.meaning.to_string(), v.prints, "{}", v.name);
    }
}

#[test]
fn commands_are_written_and_read_as_their_vectors() {
    for v in commands() {
        let bytes = v.bytes();
        assert_eq!(command_bytes(v.meaning, v.data).unwrap(), bytes, "{}", v.name);
        assert_eq!(parse_command(&bytes), Some(Ok(v.meaning)), "{}", v.name);
        assert_eq!(v.meaning.data(&bytes[COMMAND_BYTES..]), v.data, "{}", v.name);
        assert_eq!(v.meaning.to_string(), v.prints, "{}", v.name);
    }
}

#[test]
fn a_short_sends_inline_bytes_are_the_store_packets_payload() {
    let stored = packets().into_iter().find(|v| v.name == "store-with-signal").unwrap();
    let sent = commands().into_iter().find(|v| v.name == "short-send-with-signal").unwrap();
    assert_eq!(stored.bytes()[HEADER_BYTES..], sent.bytes()[COMMAND_BYTES..]);
}

#[test]
fn a_header_prints_even_when_it_is_not_legal() {
    let bytes = packets()[1].bytes();
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!(
        packet.header().to_string(),
        "store v1 seq 42 flags last+notify+signal key a0a1… export 5 message 7 offset 0x1000, 20 bytes"
    );
    let odd = Header { kind: 99, flags: 0x12.into(), ..Header::ZERO };
    assert_eq!(odd.to_string(), "kind 99 v0 seq 0 flags notify+0x10 key 0000… export 0 message 0 offset 0x0, 0 bytes");
}

#[test]
fn printing_a_packet_for_debugging_shows_no_key() {
    let request = packets().into_iter().find(|v| v.name == "fetch-request").unwrap().bytes();
    let packet = Packet::new_checked(&request).unwrap();
    let (header, payload) = packet.repr().emit(0);
    let shown = format!("{packet:?} {header:?} {payload:?}");
    assert!(shown.contains("a0a1…") && !shown.contains("162") && !shown.contains("178"), "{shown}");
    assert_eq!(header.as_bytes().len(), HEADER_BYTES);
}

/// Datagrams of a link on a lossy transport, without the packet of data.
fn datagrams() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    use link::{LinkAck, LinkHeader, LinkKind, MAX_ACK_BYTES};
    let header = LinkHeader {
        kind: LinkKind::Hello,
        path: 1,
        expected: 0,
        epoch: 0x0102_0304_0506_0708,
        peer_epoch: 0,
        number: 9,
        sequence: 0,
    };
    let known = LinkHeader { peer_epoch: 0x1112_1314_1516_1718, ..header };
    let of =
        |kind, expected| LinkHeader { kind, expected, sequence: if kind == LinkKind::Data { 77 } else { 0 }, ..known };
    let mut bytes = [0; MAX_ACK_BYTES];
    let ack = LinkAck::new(1234, [(40, 42), (30, 30), (1, 7)]).unwrap();
    let length = ack.emit(&mut bytes);
    let mut acked = of(LinkKind::Ack, SEQUENCE).emit().to_vec();
    acked.extend(&bytes[..length]);
    [
        ("hello", header.emit().to_vec()),
        ("welcome", of(LinkKind::Welcome, 0).emit().to_vec()),
        ("data", of(LinkKind::Data, SEQUENCE).emit().to_vec()),
        ("ack", acked),
        ("again", of(LinkKind::Again, SEQUENCE).emit().to_vec()),
    ]
    .into_iter()
}

/// The seeds of the fuzz targets are these vectors. `MAPWIRE_WRITE_SEEDS=1` rewrites them.
#[test]
fn the_fuzz_seeds_are_the_vectors() {
    let seeds = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut vectors: Vec<(&str, &str, Vec<u8>)> = Vec::new();
    vectors.extend(packets().iter().map(|v| ("packet", v.name, v.bytes())));
    vectors.extend(controls().iter().map(|v| ("control", v.name, v.bytes())));
    vectors.extend(commands().iter().map(|v| ("command", v.name, v.bytes())));
    vectors.extend(datagrams().map(|(name, bytes)| ("link", name, bytes)));
    for (target, name, bytes) in vectors {
        let path = seeds.join(target).join(name);
        if std::env::var_os("MAPWIRE_WRITE_SEEDS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        let seed = fs::read(&path)
            .unwrap_or_else(|e| panic!("{}: {e}; run this test with MAPWIRE_WRITE_SEEDS=1", path.display()));
        assert_eq!(seed, bytes, "{}", path.display());
    }
}
