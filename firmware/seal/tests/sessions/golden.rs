//! The bytes of envelopes, which must not change without a new version.

use mapwire_seal::{Aead, Cause, Opened, Plain, Rotation};
use mapwire_wire::NodeId;

use crate::world::{Random, SECOND, World};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_sealed_envelope_has_type_length_index_counter_ciphertext_and_tag() {
    let mut world = World::new(Random::new(2), Rotation::default());
    world.send(0).unwrap_err();
    world.run_for(SECOND);
    let confirm = world.captured_to(1).pop().unwrap();
    let index = u32::from_le_bytes(confirm[4..8].try_into().unwrap());
    let mut datagram = *b"________________datagram of a link________________";
    let now_ns = world.now_ns;
    world.nodes[0].seal(now_ns, NodeId(1), &mut datagram).unwrap();
    assert_eq!(datagram[..4], [4, 0, 50, 0]);
    assert_eq!(datagram[4..8], index.to_le_bytes());
    assert_eq!(datagram[8..16], 1u64.to_le_bytes(), "the confirm was 0");
}

/// NIST's GCM test case 4 (McGrew and Viega, appendix B), whose nonce and additional data are those of no envelope.
#[test]
fn the_cipher_is_aes_128_gcm() {
    let key = *b"\xfe\xff\xe9\x92\x86\x65\x73\x1c\x6d\x6a\x8f\x94\x67\x30\x83\x08";
    let nonce = *b"\xca\xfe\xba\xbe\xfa\xce\xdb\xad\xde\xca\xf8\x88";
    let aad = b"\xfe\xed\xfa\xce\xde\xad\xbe\xef\xfe\xed\xfa\xce\xde\xad\xbe\xef\xab\xad\xda\xd2";
    let mut bytes = *b"\xd9\x31\x32\x25\xf8\x84\x06\xe5\xa5\x59\x09\xc5\xaf\xf5\x26\x9a\
        \x86\xa7\xa9\x53\x15\x34\xf7\xda\x2e\x4c\x30\x3d\x8a\x31\x8a\x72\
        \x1c\x3c\x0c\x95\x95\x68\x09\x53\x2f\xcf\x0e\x24\x49\xa6\xb5\x25\
        \xb1\x6a\xed\xf5\xaa\x0d\xe6\x57\xba\x63\x7b\x39";
    let plain = bytes;
    let tag = Aead::new(&key).seal(&nonce, aad, &mut bytes);
    assert_eq!(hex(&tag), "5bc94fbc3221a5db94fae95ae7121a47");
    assert_eq!(hex(&bytes[..16]), "42831ec2217774244b7221b784d0d49c");
    let mut sealed = [&bytes[..], &tag].concat();
    assert!(Aead::new(&key).open(&nonce, aad, &mut sealed));
    assert_eq!(sealed[..60], plain);
}

#[test]
fn a_plain_envelope_has_type_length_node_and_job() {
    let sender = Plain::new(NodeId(0x0102), 0x200, 0x0a0b_0c0d);
    let mut datagram = *b"____________link";
    sender.seal(NodeId(3), &mut datagram).unwrap();
    assert_eq!(hex(&datagram[..12]), "05001000020100000d0c0b0a");
    let mut receiver = Plain::new(NodeId(3), 0x200, 0x0a0b_0c0d);
    let expected = Opened::Data { from: NodeId(0x0102), bytes: 12..16 };
    assert_eq!(receiver.handle(&datagram), expected);
    for (at, cause) in [
        (0, Cause::Malformed),
        (1, Cause::Malformed),
        (2, Cause::Malformed),
        (3, Cause::Malformed),
        (5, Cause::Misdirected),
        (6, Cause::Malformed),
        (7, Cause::Malformed),
        (8, Cause::Misdirected),
    ] {
        let mut other = datagram;
        other[at] ^= 0x40;
        assert_eq!(receiver.handle(&other), Opened::Rejected(cause), "{at}");
    }
    let bare = receiver.handle(&datagram[..12]);
    assert_eq!(bare, Opened::Rejected(Cause::Malformed));
    let sealed = receiver.handle(&[4; 40]);
    assert_eq!(sealed, Opened::Rejected(Cause::Mode));
}

#[test]
fn a_handshake_has_the_same_bytes_in_every_run() {
    let mut world = World::new(Random::new(2), Rotation::default());
    world.send(0).unwrap_err();
    world.run_for(SECOND);
    let all = [world.captured_to(1), world.captured_to(0)].concat();
    let lengths: Vec<usize> = all.iter().map(Vec::len).collect();
    assert_eq!(lengths, [104, 104, 32, 72, 85]);
    assert_eq!(hex(&all[0][..16]), GOLDEN_HEADER);
    let sum = all
        .concat()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    assert_eq!(format!("{sum:016x}"), GOLDEN_SUM);
}

const GOLDEN_HEADER: &str = "01020000010000004d000000acb8270b";
const GOLDEN_SUM: &str = "f5b9d97a82c789da";
