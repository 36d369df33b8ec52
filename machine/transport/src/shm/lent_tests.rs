//! Packets that refer to lent memory, between honest ends and from one that lies.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use mapwire_wire::{Header, NodeId};
use rustix::fs::{MemfdFlags, SealFlags};

use super::ShmTransport;
use super::channel::{Channel, Side};
use super::lent::{BorrowError, Reference};
use super::region::Region;
use super::ring::RingConfig;
use crate::transport::{ReceiveError, Transport};

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const BYTES: usize = 8192;

fn pair() -> (ShmTransport, ShmTransport, Region) {
    let config = RingConfig::default();
    let fd = Channel::create(&config).unwrap();
    let mut ends = [(Side::Lower, B), (Side::Higher, A)].map(|(side, peer)| {
        let mut transport = ShmTransport::new(&config);
        transport.connect(peer, Channel::open(&fd, side, &config).unwrap());
        Some(transport)
    });
    let memory = Region::map(fd.as_fd(), Channel::layout_bytes(&config)).unwrap();
    (ends[0].take().unwrap(), ends[1].take().unwrap(), memory)
}

fn byte(at: usize) -> u8 {
    (at * 7 + at / 256) as u8
}

fn memory(seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("lent", flags).unwrap();
    let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
    assert_eq!(rustix::io::write(&fd, &bytes), Ok(BYTES));
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn header(len_bytes: usize) -> Header {
    let mut header = Header::ZERO;
    header.length.set(len_bytes as u32);
    header
}

fn refer(number: u32, offset: u64, len_bytes: u32) -> Reference {
    Reference {
        number,
        offset,
        len_bytes,
    }
}

fn receive(by: &mut ShmTransport) -> Result<Option<Vec<u8>>, ReceiveError> {
    let Some(packet) = by.poll_receive()? else {
        return Ok(None);
    };
    let from = packet.from;
    let mut bytes = vec![0; packet.payload.len_bytes()];
    packet.payload.copy_to_slice(0, &mut bytes);
    by.release(from);
    Ok(Some(bytes))
}

/// Lends under `number` from `a` to `b`, as far as that `a` may refer to it.
fn lend(a: &mut ShmTransport, b: &mut ShmTransport, number: u32) {
    a.lend(B, number).unwrap();
    assert!(!a.reads_lent(B, number), "nobody has mapped it");
    b.accept_lent(A, number, memory(SealFlags::SHRINK)).unwrap();
    assert!(a.reads_lent(B, number));
}

#[test]
fn bytes_of_lent_memory_and_their_tail_arrive_intact() {
    let (mut a, mut b, _) = pair();
    lend(&mut a, &mut b, 63);
    for (offset, length, tail) in [
        (0, 4096, &b""[..]),
        (1, 1, b"t"),
        (100, 4096, b"sixteen bytes ok"),
        (BYTES - 1, 1, b"eight by"),
        (BYTES, 0, b"tail"),
    ] {
        let header = header(length + tail.len());
        a.send_lent(B, &header, refer(63, offset as u64, length as u32), tail)
            .unwrap();
        let packet = b.poll_receive().unwrap().unwrap();
        assert!(packet.payload.is_lent());
        let mut expected: Vec<u8> = (offset..offset + length).map(byte).collect();
        expected.extend_from_slice(tail);
        // Whole, and in every pair of parts around the seam.
        for cut in [0, 1, length / 2, length, expected.len()] {
            let cut = cut.min(expected.len());
            let mut bytes = vec![0; expected.len()];
            packet.payload.copy_to_slice(0, &mut bytes[..cut]);
            packet.payload.copy_to_slice(cut, &mut bytes[cut..]);
            assert!(bytes == expected, "{length} bytes cut at {cut}");
        }
        b.release(A);
    }
}

#[test]
fn the_sender_learns_when_its_memory_has_been_read() {
    let (mut a, mut b, _) = pair();
    lend(&mut a, &mut b, 0);
    a.send_lent(B, &header(64), refer(0, 0, 64), &[]).unwrap();
    let sent = a.sent(B);
    assert!(a.released(B) < sent);
    receive(&mut b).unwrap().unwrap();
    b.announce(A);
    assert_eq!(a.released(B), sent);
    a.send_lent(B, &header(64), refer(0, 0, 64), &[]).unwrap();
    b.disconnect(A);
    drop(b);
    assert_eq!(
        a.send_lent(B, &header(64), refer(0, 0, 64), &[]),
        Err(crate::transport::SendError::PeerGone(B))
    );
    assert_eq!(a.released(B), u64::MAX, "it reads no more");
}

#[test]
fn memory_that_is_taken_back_is_unmapped_before_its_number_is_free() {
    let (mut a, mut b, _) = pair();
    lend(&mut a, &mut b, 5);
    lend(&mut a, &mut b, 6);
    a.take_back(B, 5);
    assert!(!a.reads_lent(B, 5));
    assert!(a.keeps_lent(B, 5), "the peer has not looked yet");
    b.flush();
    assert!(!a.keeps_lent(B, 5));
    assert!(a.reads_lent(B, 6), "the other stays");
    // What comes too late is dropped.
    b.accept_lent(A, 5, memory(SealFlags::SHRINK)).unwrap();
    assert!(!a.keeps_lent(B, 5));
    lend(&mut a, &mut b, 5);
    // An idle receiver looks by itself.
    a.take_back(B, 5);
    for _ in 0..200 {
        assert_eq!(receive(&mut b), Ok(None));
    }
    assert!(!a.keeps_lent(B, 5));
}

#[test]
fn memory_that_could_become_unreadable_is_not_borrowed() {
    let (mut a, mut b, _) = pair();
    a.lend(B, 1).unwrap();
    let refused = |outcome| {
        assert!(
            matches!(outcome, Err(BorrowError::NotSealed(_))),
            "{outcome:?}"
        )
    };
    refused(b.accept_lent(A, 1, memory(SealFlags::GROW)));
    refused(b.accept_lent(A, 1, std::fs::File::open("/dev/zero").unwrap()));
    let empty = rustix::fs::memfd_create("lent", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::fcntl_add_seals(&empty, SealFlags::SHRINK).unwrap();
    refused(b.accept_lent(A, 1, empty));
    assert!(!a.reads_lent(B, 1));
    assert!(
        b.accept_lent(A, 64, memory(SealFlags::SHRINK)).is_ok(),
        "no such number: dropped"
    );
    assert!(
        b.accept_lent(A, u32::MAX, memory(SealFlags::SHRINK))
            .is_ok()
    );
}

#[test]
fn a_reference_outside_what_is_lent_breaks_the_connection() {
    for (reference, length, what) in [
        (refer(2, 0, 64), 64, "number of lent memory"),
        (refer(64, 0, 64), 64, "number of lent memory"),
        (refer(u32::MAX, 0, 64), 64, "number of lent memory"),
        (refer(1, BYTES as u64 - 63, 64), 64, "offset"),
        (refer(1, u64::MAX, 64), 64, "offset"),
        (refer(1, u64::MAX - 64, 64), 64, "offset"),
        (refer(1, 0, 65), 64, "length of a reference"),
        (refer(1, 0, u32::MAX), 64, "length of a reference"),
        (refer(1, 0, 64), 81, "length of a reference"),
    ] {
        let (mut a, mut b, memory) = pair();
        lend(&mut a, &mut b, 1);
        a.send_lent(B, &header(64), refer(1, 0, 64), &[]).unwrap();
        // The slot's word, header, then the reference: written over as a hostile peer would.
        let slot = 4096 + 384;
        let word = u64::from(1_u32 << 31 | length) << 32 | 1;
        memory.word32(slot + 12).store(length, Ordering::Relaxed);
        for (index, bytes) in reference.to_bytes().chunks_exact(8).enumerate() {
            let bytes = u64::from_le_bytes(bytes.try_into().unwrap());
            memory
                .word64(slot + 56 + 8 * index)
                .store(bytes, Ordering::Relaxed);
        }
        memory.word64(slot).store(word, Ordering::Release);
        let error = receive(&mut b).unwrap_err().to_string();
        assert!(error.contains(what), "{reference:?}: {error}");
        assert_eq!(receive(&mut b), Ok(None));
    }
}

#[test]
fn a_lender_that_unmarks_what_it_refers_to_hurts_nobody_else() {
    let (mut a, mut b, _) = pair();
    lend(&mut a, &mut b, 1);
    a.send_lent(B, &header(64), refer(1, 0, 64), &[]).unwrap();
    // At the head already: it stays readable until it is released.
    let seen = b.poll_receive().unwrap().is_some();
    assert!(seen);
    a.take_back(B, 1);
    b.flush();
    assert_eq!(receive(&mut b).unwrap().unwrap().len(), 64);
    a.send_lent(B, &header(64), refer(1, 0, 64), &[]).unwrap();
    b.flush();
    assert!(matches!(
        receive(&mut b),
        Err(ReceiveError::PeerCorrupt { .. })
    ));
}
