//! The ring between two real processes: this test binary, started once more as the peer.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use mapwire_transport::payload::Piece;
use mapwire_transport::shm::channel::{Channel, Side};
use mapwire_transport::shm::ring::{PushError, RingConfig};

const PACKETS: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(60);
const PEER: &str = "MAPWIRE_TEST_PEER_FD";

fn length(number: u64) -> usize {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    match mixed % 3 {
        0 => 8,
        1 => (mixed % 137) as usize,
        _ => (mixed % 4113) as usize,
    }
}

fn byte(number: u64, index: usize) -> u8 {
    (number as usize * 13 + index * 7 + (index >> 8)) as u8
}

fn send(channel: &mut Channel, number: u64) -> bool {
    let bytes: Vec<u8> = (0..length(number)).map(|index| byte(number, index)).collect();
    let mut header = [0; 48];
    header[..8].copy_from_slice(&number.to_le_bytes());
    match channel.sender.try_push(&header, &[Piece::from(&bytes[..])]) {
        Ok(()) => true,
        Err(PushError::Full) => false,
        Err(other) => panic!("{other}"),
    }
}

fn receive(channel: &mut Channel, number: u64) -> bool {
    let Some(incoming) = channel.receiver.peek().unwrap() else {
        return false;
    };
    assert_eq!(incoming.header[..8], number.to_le_bytes());
    assert_eq!(incoming.payload.len_bytes(), length(number));
    let mut copy = vec![0; length(number)];
    incoming.payload.copy_to_slice(0, &mut copy);
    let intact = copy.iter().enumerate().all(|(index, &got)| got == byte(number, index));
    assert!(intact, "packet {number}");
    channel.receiver.release();
    true
}

/// Both directions at once: sends and receives every packet.
fn exchange(channel: &mut Channel) {
    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while sent < PACKETS || received < PACKETS {
        assert!(start.elapsed() < PATIENCE, "stuck at {sent} sent, {received} received");
        let moved = (sent < PACKETS && send(channel, sent), received < PACKETS && receive(channel, received));
        sent += u64::from(moved.0);
        received += u64::from(moved.1);
        if moved == (false, false) {
            std::thread::yield_now();
        }
    }
    while !channel.sender.drained().unwrap() {
        assert!(start.elapsed() < PATIENCE, "never drained");
        channel.receiver.peek().unwrap();
        std::thread::yield_now();
    }
}

fn spawn_peer(memory: &OwnedFd, test: &str) -> Child {
    rustix::io::fcntl_setfd(memory, rustix::io::FdFlags::empty()).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(PEER, memory.as_raw_fd().to_string())
        .spawn()
        .unwrap()
}

/// The channel, if this process was started as the peer.
fn as_peer() -> Option<Channel> {
    let fd = std::env::var(PEER).ok()?.parse().unwrap();
    // SAFETY: the parent left exactly this descriptor open for us, and nothing else here owns it.
    let memory = unsafe { OwnedFd::from_raw_fd(fd) };
    Some(Channel::open(&memory, Side::Higher, &RingConfig::default()).unwrap())
}

#[test]
fn two_processes_exchange_packets_of_every_kind_in_both_directions() {
    if let Some(mut channel) = as_peer() {
        exchange(&mut channel);
        channel.receiver.announce();
        return;
    }
    let config = RingConfig::default();
    let memory = Channel::create(&config).unwrap();
    let mut channel = Channel::open(&memory, Side::Lower, &config).unwrap();
    let mut peer =
        spawn_peer(&memory, "ring_processes::two_processes_exchange_packets_of_every_kind_in_both_directions");
    exchange(&mut channel);
    channel.receiver.announce();
    assert!(peer.wait().unwrap().success());
    assert!(channel.receiver.producer_closed() && channel.sender.consumer_closed());
}

#[test]
fn packets_of_a_process_that_was_killed_can_still_be_received() {
    if let Some(mut channel) = as_peer() {
        for number in 0..10 {
            assert!(send(&mut channel, number));
        }
        while !receive(&mut channel, 0) {}
        channel.receiver.announce();
        loop {
            std::thread::park();
        }
    }
    let config = RingConfig::default();
    let memory = Channel::create(&config).unwrap();
    let mut channel = Channel::open(&memory, Side::Lower, &config).unwrap();
    let mut peer = spawn_peer(&memory, "ring_processes::packets_of_a_process_that_was_killed_can_still_be_received");
    let start = Instant::now();
    // The peer takes this packet only after it has sent its own.
    assert!(send(&mut channel, 0));
    while !channel.sender.drained().unwrap() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    peer.kill().unwrap();
    peer.wait().unwrap();
    for number in 0..10 {
        assert!(receive(&mut channel, number), "packet {number}");
    }
    assert!(!channel.receiver.has_packet() && !channel.receiver.producer_closed());
}
