//! Endpoints of two real processes: this test binary, started once more as the peer.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mapwire_host::mapping::Mapping;
use mapwire_transport::ofi::rma::{Direction, LocalPiece, RemoteMemory, RemoteRights};
use mapwire_transport::ofi::{Ofi, OfiError};
use mapwire_transport::payload::Payload;
use mapwire_transport::transport::{ReceiveError, SendError, Transport};
use mapwire_wire::{Header, NodeId};

const PATIENCE: Duration = Duration::from_secs(30);
const PROVIDER: &str = "MAPWIRE_TEST_OFI_PROVIDER";
const NAME: &str = "ofi-name:";
const MEMORY_BYTES: usize = 1 << 20;

/// What the peer does with a packet, by the header's message.
const ECHO: u32 = 0;
const EXPORT: u32 = 1;
const SUM: u32 = 2;
const SLEEP: u32 = 3;

/// The other process, killed when dropped.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// An endpoint connected to one of another process; `None` where the provider is missing.
fn pair(provider: &str) -> Option<(Ofi, Peer)> {
    let mut ofi = match Ofi::open(provider) {
        Ok(ofi) => ofi,
        Err(error @ (OfiError::NotInstalled { .. } | OfiError::NoProvider { .. })) => {
            mapwire_testing::skip!("{error}");
            return None;
        }
        Err(error) => panic!("{provider}: {error}"),
    };
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ofi_processes::the_other_process", "--nocapture"])
        .env(PROVIDER, provider)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut peer = Peer(child);
    writeln!(peer.0.stdin.take().unwrap(), "{}", to_hex(ofi.name())).unwrap();
    let lines = BufReader::new(peer.0.stdout.take().unwrap()).lines();
    let name = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once(NAME)?.1.to_owned()))
        .expect("the peer's name");
    ofi.connect(NodeId(1), &from_hex(&name)).unwrap();
    let start = Instant::now();
    while !ofi.is_ready(NodeId(1)) {
        assert!(start.elapsed() < PATIENCE, "not connected");
    }
    Some((ofi, peer))
}

fn send(ofi: &mut Ofi, to: NodeId, message: u32, bytes: &[u8]) -> Result<(), SendError> {
    let mut header = Header::ZERO;
    header.length.set(bytes.len() as u32);
    header.message.set(message);
    ofi.send(to, &header, Payload::one(bytes))
}

fn receive(ofi: &mut Ofi) -> Result<Option<(u32, Vec<u8>)>, ReceiveError> {
    let Some(packet) = ofi.poll_receive()? else {
        return Ok(None);
    };
    let message = packet.header.message.get();
    let mut bytes = vec![0; packet.payload.len_bytes()];
    packet.payload.copy_to_slice(0, &mut bytes);
    let from = packet.from;
    ofi.release(from);
    Ok(Some((message, bytes)))
}

fn ask(ofi: &mut Ofi, message: u32) -> Vec<u8> {
    send(ofi, NodeId(1), message, &[]).unwrap();
    let start = Instant::now();
    loop {
        if let Some((answer, bytes)) = receive(ofi).unwrap() {
            assert_eq!(answer, message);
            return bytes;
        }
        assert!(start.elapsed() < PATIENCE, "no answer");
    }
}

fn words(mapping: &Mapping) -> impl Iterator<Item = u64> {
    let at = (0..MEMORY_BYTES).step_by(8);
    at.map(|at| mapping.word64(at).load(Ordering::Acquire))
}

fn sum(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(7, |sum, word| (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(5))
}

/// Does nothing unless another test has started it.
#[test]
fn the_other_process() {
    let Ok(provider) = std::env::var(PROVIDER) else {
        return;
    };
    let mut ofi = Ofi::open(&provider).unwrap();
    println!("{NAME}{}", to_hex(ofi.name()));
    let mut name = String::new();
    std::io::stdin().read_line(&mut name).unwrap();
    let parent = NodeId(0);
    ofi.connect(parent, &from_hex(name.trim_end())).unwrap();
    let memory = Arc::new(Mapping::anonymous(MEMORY_BYTES).unwrap());
    let registrar = ofi.registrar();
    let mut region = None;
    let start = Instant::now();
    while start.elapsed() < 4 * PATIENCE {
        let (message, mut bytes) = match receive(&mut ofi) {
            Ok(Some(received)) => received,
            Ok(None) => continue,
            Err(_) => return,
        };
        match message {
            ECHO => {}
            EXPORT => {
                let made = registrar.register(&memory, 0, MEMORY_BYTES, RemoteRights::ALL);
                bytes = region.insert(made.unwrap()).remote().to_bytes().to_vec();
            }
            SUM => bytes = sum(words(&memory)).to_le_bytes().to_vec(),
            _ => std::thread::sleep(4 * PATIENCE),
        }
        while send(&mut ofi, parent, message, &bytes) == Err(SendError::WouldBlock(parent)) {
            ofi.flush();
        }
    }
}

fn packets_come_back(provider: &str) {
    const PACKETS: u32 = 3000;
    let Some((mut ofi, _peer)) = pair(provider) else {
        return;
    };
    let longest = ofi.max_payload_bytes();
    let packet = |number: u32| {
        let mixed = number.wrapping_mul(2_654_435_761);
        let bytes = match mixed >> 28 {
            0 => longest,
            _ => (mixed >> 20) as usize,
        };
        vec![number as u8; bytes]
    };
    let (mut sent, mut got) = (0, 0);
    let start = Instant::now();
    while got < PACKETS {
        assert!(start.elapsed() < PATIENCE, "stuck at {sent} and {got}");
        if sent < PACKETS {
            match send(&mut ofi, NodeId(1), ECHO, &packet(sent)) {
                Ok(()) => sent += 1,
                Err(SendError::WouldBlock(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        if let Some((_, bytes)) = receive(&mut ofi).unwrap() {
            assert!(bytes == packet(got), "packet {got}");
            got += 1;
        }
    }
}

#[test]
fn packets_come_back_from_another_process_over_tcp() {
    packets_come_back("tcp");
}

#[test]
fn packets_come_back_from_another_process_over_shm() {
    packets_come_back("shm");
}

#[test]
fn packets_come_back_from_another_process_over_udp() {
    packets_come_back("udp;ofi_rxd");
}

fn memory_moves(provider: &str) {
    let Some((mut ofi, _peer)) = pair(provider) else {
        return;
    };
    let bytes = ask(&mut ofi, EXPORT);
    let remote = RemoteMemory::from_bytes(&bytes[..].try_into().unwrap());
    let memory = Arc::new(Mapping::anonymous(MEMORY_BYTES).unwrap());
    let registrar = ofi.registrar();
    let region = registrar.register(&memory, 0, MEMORY_BYTES, RemoteRights::NONE);
    let region = Arc::new(region.unwrap());
    let value = |at: usize| (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for at in (0..MEMORY_BYTES).step_by(8) {
        memory.word64(at).store(value(at), Ordering::Release);
    }
    // Chunks as a network interface cuts them, several at once.
    const CHUNK: usize = 64 << 10;
    let transfer = |ofi: &mut Ofi, is_store: bool| {
        let (mut begun, mut over) = (0, 0);
        let start = Instant::now();
        while over < MEMORY_BYTES / CHUNK {
            assert!(start.elapsed() < PATIENCE, "stuck at {begun} and {over}");
            let at = begun * CHUNK;
            if at < MEMORY_BYTES {
                let piece = |offset, bytes| LocalPiece { region: &region, offset: at + offset, bytes };
                let pieces = [piece(0, 4096 + begun), piece(4096 + begun, CHUNK - 4096 - begun)];
                let result = if is_store {
                    ofi.transfer(Direction::StoreInPlace, NodeId(1), (&remote, at as u64), &pieces, begun as u64)
                } else {
                    ofi.transfer(Direction::Fetch, NodeId(1), (&remote, at as u64), &pieces, begun as u64)
                };
                match result {
                    Ok(()) => begun += 1,
                    Err(mapwire_transport::ofi::rma::RmaError::WouldBlock) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            while let Some(done) = ofi.poll_done() {
                assert_eq!(done.result, Ok(()), "chunk {}", done.token);
                over += 1;
            }
        }
    };
    transfer(&mut ofi, true);
    let expected = sum((0..MEMORY_BYTES).step_by(8).map(value));
    assert_eq!(ask(&mut ofi, SUM), expected.to_le_bytes(), "what was stored");
    for at in (0..MEMORY_BYTES).step_by(8) {
        memory.word64(at).store(0, Ordering::Release);
    }
    transfer(&mut ofi, false);
    assert_eq!(sum(words(&memory)), expected, "what was fetched");
}

#[test]
fn memory_of_another_process_is_stored_to_and_fetched_over_tcp() {
    memory_moves("tcp");
}

#[test]
fn memory_of_another_process_is_stored_to_and_fetched_over_shm() {
    memory_moves("shm");
}

#[test]
fn memory_of_another_process_is_stored_to_and_fetched_over_udp() {
    memory_moves("udp;ofi_rxd");
}

/// Here and not within one process, where shm crashes when an endpoint is closed after it has refused something.
#[test]
fn a_wrong_key_reaches_nothing_of_another_process_over_shm() {
    let Some((mut ofi, _peer)) = pair("shm") else {
        return;
    };
    let mut bytes = ask(&mut ofi, EXPORT);
    bytes[0] ^= 1;
    let remote = RemoteMemory::from_bytes(&bytes[..].try_into().unwrap());
    let memory = Arc::new(Mapping::anonymous(4096).unwrap());
    memory.word64(0).store(7, Ordering::Release);
    let registrar = ofi.registrar();
    let region = registrar.register(&memory, 0, 4096, RemoteRights::NONE);
    let piece = [LocalPiece { region: &Arc::new(region.unwrap()), offset: 0, bytes: 4096 }];
    ofi.transfer(Direction::Fetch, NodeId(1), (&remote, 0), &piece, 1).unwrap();
    let start = Instant::now();
    let done = loop {
        if let Some(done) = ofi.poll_done() {
            break done;
        }
        assert!(start.elapsed() < PATIENCE, "never done");
    };
    assert!(done.result.is_err(), "{done:?}");
    assert_eq!(memory.word64(0).load(Ordering::Acquire), 7, "bytes came");
}

/// Sends fail soon after the peer has been killed, and so does a store; nothing hangs.
fn a_killed_peer_is_gone(provider: &str) {
    let Some((mut ofi, mut peer)) = pair(provider) else {
        return;
    };
    let bytes = ask(&mut ofi, EXPORT);
    let remote = RemoteMemory::from_bytes(&bytes[..].try_into().unwrap());
    let memory = Arc::new(Mapping::anonymous(4096).unwrap());
    let registrar = ofi.registrar();
    let region = registrar.register(&memory, 0, 4096, RemoteRights::NONE);
    let region = Arc::new(region.unwrap());
    send(&mut ofi, NodeId(1), SLEEP, &[]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    ofi.flush();
    peer.0.kill().unwrap();
    peer.0.wait().unwrap();
    let piece = [LocalPiece { region: &region, offset: 0, bytes: 4096 }];
    let start = Instant::now();
    let begun = ofi.transfer(Direction::StoreInPlace, NodeId(1), (&remote, 0), &piece, 5);
    let mut is_failed = begun.is_err();
    let mut is_gone = false;
    let mut is_told = false;
    while !(is_failed && is_gone && is_told) {
        let state = (is_failed, is_gone, is_told);
        assert!(start.elapsed() < PATIENCE, "store, send, end: {state:?}");
        if let Some(done) = ofi.poll_done() {
            assert!(done.result.is_err(), "a store to a dead peer is done");
            is_failed = true;
        }
        match send(&mut ofi, NodeId(1), ECHO, &[1; 5000]) {
            Ok(()) | Err(SendError::WouldBlock(_)) => assert!(!is_gone),
            Err(error) => {
                assert_eq!(error, SendError::PeerGone(NodeId(1)));
                is_gone = true;
            }
        }
        match receive(&mut ofi) {
            Ok(received) => assert_eq!(received, None),
            Err(error) => {
                assert_eq!(error, ReceiveError::PeerGone(NodeId(1)));
                is_told = true;
                is_gone = true;
            }
        }
        // TCP takes 20 s to tell.
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{provider}: known after {:?}", start.elapsed());
}

#[test]
fn a_killed_peer_is_gone_and_nothing_hangs_over_tcp() {
    a_killed_peer_is_gone("tcp");
}
