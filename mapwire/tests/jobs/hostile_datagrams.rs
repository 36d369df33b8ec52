//! A stranger who reaches the network of a job: it sends random bytes, what it has recorded, and handshakes, from any address. They have
//! no effect but counters.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use mapwire::{Cause, Node, Rights};
use mapwire_seal::VERSION;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::harness::{Rank, job};

/// How long each attack takes.
const ATTACK: Duration = Duration::from_millis(700);
/// Half-open handshakes a second.
const HANDSHAKES_A_SECOND: u64 = 100_000;
/// Datagrams that are recorded at most.
const RECORDED: usize = 20_000;
/// Bytes that the memory of an attacked rank may grow by.
const GROWTH: u64 = 64 << 20;

const ATTACKS: [&str; 5] = ["random", "replay", "spoofed", "secret", "handshakes"];

#[test]
fn a_stranger_has_no_effect_but_counters_on_a_job_over_udp() {
    job(3)
        .option("--transport", "udp")
        .run(|rank| match rank.number {
            2 => attack(rank),
            _ => work(rank),
        })
        .succeeds();
}

/// Two ranks send each other numbered buffers, and look at every byte, until all attacks are over.
fn work(rank: &Rank) {
    rank.read("recording");
    let node = rank.node();
    let peer = 1 - rank.number;
    let buffer = node.alloc(8192).unwrap();
    let export = node.export_buffer(&buffer).name("box").start().unwrap();
    let import = node.import(peer, "box").rights(Rights::ALL).start().unwrap();
    rank.note(&format!("ports-{}", rank.number), &ports());
    let mut turn = 0_u64;
    let mut exchange = |until: &dyn Fn() -> bool| {
        let (start, first) = (Instant::now(), turn);
        loop {
            turn += 1;
            // Rank 0 says in the buffer whether it is the last of this part.
            let mut data = vec![turn as u8; 4000];
            data[0] = u8::from(until());
            if rank.number == 0 {
                import.put_signal(&data, 8, 0, turn).unwrap();
            }
            export.wait_signal(0, turn).unwrap();
            let mut got = vec![0; 4000];
            export.read(8, &mut got).unwrap();
            assert!(got[1..].iter().all(|byte| *byte == turn as u8), "turn {turn}");
            if rank.number == 1 {
                import.put_signal(&got, 8, 0, turn).unwrap();
            }
            if got[0] == 1 {
                break;
            }
        }
        (turn - first) as f64 / start.elapsed().as_secs_f64()
    };
    let quiet = Instant::now() + ATTACK;
    let before = exchange(&|| Instant::now() > quiet);
    let memory = resident_bytes();
    for attack in ATTACKS {
        let rejected = causes(&node);
        if rank.number == 0 {
            rank.note(&format!("begin-{attack}"), "");
        }
        let rate = exchange(&|| rank.has(&format!("end-{attack}")));
        let grown: Vec<String> = (Cause::ALL.iter().zip(rejected))
            .map(|(cause, old)| (cause, rejections(&node, *cause) - old))
            .filter(|(_, count)| *count > 0)
            .map(|(cause, count)| format!("{count} {cause}"))
            .collect();
        let share = rate / before;
        println!("{attack}: {share:.2} of the exchanges a second without; rejected: {}", grown.join(", "));
        let sent = rank.read(&format!("end-{attack}"));
        let must: &[Cause] = match attack {
            _ if sent == "0" => &[],
            "random" => &[Cause::Malformed],
            "replay" => &[Cause::Replay],
            "spoofed" => &[Cause::Tag],
            _ => &[Cause::Code],
        };
        for cause in must {
            assert!(grown.iter().any(|text| text.ends_with(&cause.to_string())), "{attack}: {grown:?}");
        }
    }
    let growth = resident_bytes().saturating_sub(memory);
    assert!(growth < GROWTH, "{growth} B more");
    // Rank 2 is no part of the job's calls.
    rank.note(&format!("done-{}", rank.number), "");
    rank.read(&format!("done-{peer}"));
}

fn rejections(node: &Node, cause: Cause) -> u64 {
    node.rejections().expect("other hosts").rejected(cause)
}

fn causes(node: &Node) -> Vec<u64> {
    let count = |cause: &Cause| rejections(node, *cause);
    Cause::ALL.iter().map(count).collect()
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// The ports at which this process takes datagrams from anybody.
fn ports() -> String {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let own: HashSet<String> = links
        .filter_map(|entry| {
            let link = std::fs::read_link(entry.path()).ok()?;
            let link = link.to_str()?.strip_prefix("socket:[")?;
            Some(link.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/udp").unwrap();
    let ports = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_open = own.contains(words[9]) && words[2].starts_with("00000000:0000");
        let port = u16::from_str_radix(words[1].split_once(':')?.1, 16).ok()?;
        is_open.then(|| port.to_string())
    });
    let ports: Vec<String> = ports.collect();
    assert!(!ports.is_empty());
    ports.join(" ")
}

/// The stranger, which knows nothing but what it sees.
fn attack(rank: &Rank) {
    let ear = listen();
    rank.note("recording", "");
    let targets: Vec<SocketAddr> = [0, 1]
        .iter()
        .flat_map(|number| {
            let text = rank.read(&format!("ports-{number}"));
            let ports: Vec<u16> = text.split(' ').map(|port| port.parse().unwrap()).collect();
            ports
        })
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .collect();
    let mut recorded = Vec::new();
    for name in ATTACKS {
        rank.read(&format!("begin-{name}"));
        if let Some(ear) = &ear {
            record(ear, &targets, &mut recorded);
        }
        let sent = match name {
            "random" => random(&targets),
            "replay" => replay(&recorded),
            "spoofed" => spoof(&recorded),
            "secret" => handshakes(&targets, 1000),
            _ => handshakes(&targets, HANDSHAKES_A_SECOND),
        };
        println!("{name}: {sent} datagrams sent");
        rank.note(&format!("end-{name}"), &sent.to_string());
    }
}

/// Hears all datagrams of this computer, where that is allowed.
fn listen() -> Option<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let protocol = Some(rustix::net::eth::IP);
    let ear = rustix::net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, protocol);
    if ear.is_err() {
        mapwire_testing::skip!("nothing can be recorded without CAP_NET_RAW");
    }
    ear.ok()
}

/// A datagram that was heard: from where, to where, and its bytes.
type Heard = (SocketAddrV4, SocketAddrV4, Vec<u8>);

fn record(ear: &OwnedFd, targets: &[SocketAddr], into: &mut Vec<Heard>) {
    let mut packet = vec![0; 1 << 16];
    let end = Instant::now() + ATTACK;
    while into.len() < RECORDED && Instant::now() < end {
        let Ok((length, _)) = rustix::net::recv(ear, &mut packet[..], RecvFlags::empty()) else {
            std::thread::yield_now();
            continue;
        };
        let packet = &packet[..length];
        let head = 4 * usize::from(packet[0] & 15);
        if packet[9] != 17 || packet.len() < head + 8 {
            continue;
        }
        let address = |ip: usize, port: usize| {
            let ip: [u8; 4] = packet[ip..ip + 4].try_into().unwrap();
            let port = [packet[head + port], packet[head + port + 1]];
            SocketAddrV4::new(ip.into(), u16::from_be_bytes(port))
        };
        let (from, to) = (address(12, 0), address(16, 2));
        if targets.contains(&to.into()) {
            into.push((from, to, packet[head + 8..].to_vec()));
        }
    }
}

/// Random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// Sockets at several addresses of the loopback network.
fn sockets() -> Vec<UdpSocket> {
    let address = |last| Ipv4Addr::new(127, 0, 0, last);
    (1..=8).filter_map(|last| UdpSocket::bind((address(last), 0)).ok()).collect()
}

fn random(targets: &[SocketAddr]) -> u64 {
    let (sockets, mut dice, mut sent) = (sockets(), Dice(1), 0);
    let end = Instant::now() + ATTACK;
    while Instant::now() < end {
        let length = dice.next() as usize % 2000;
        let mut bytes = dice.bytes(length);
        if let Some(first) = bytes.first_mut() {
            // Some are of a type that there is.
            *first %= 8;
        }
        let socket = &sockets[sent as usize % sockets.len()];
        sent += u64::from(socket.send_to(&bytes, targets[sent as usize % targets.len()]).is_ok());
    }
    sent
}

fn replay(recorded: &[Heard]) -> u64 {
    let (sockets, mut sent) = (sockets(), 0);
    let end = Instant::now() + ATTACK;
    for (_, to, bytes) in recorded.iter().cycle() {
        if Instant::now() > end {
            break;
        }
        let socket = &sockets[sent as usize % sockets.len()];
        sent += u64::from(socket.send_to(bytes, to).is_ok());
    }
    sent
}

/// Sends what was recorded, changed, from the address of its sender.
fn spoof(recorded: &[Heard]) -> u64 {
    let raw = Protocol::from_raw(core::num::NonZero::new(255).unwrap());
    let kind = SocketType::RAW;
    let flags = SocketFlags::CLOEXEC;
    let Ok(mouth) = rustix::net::socket_with(AddressFamily::INET, kind, flags, Some(raw)) else {
        return 0;
    };
    let (mut dice, mut sent) = (Dice(2), 0);
    let end = Instant::now() + ATTACK;
    for (from, to, bytes) in recorded.iter().cycle() {
        if Instant::now() > end {
            break;
        }
        let mut bytes = bytes.clone();
        // Behind the head, so that a session is found for it.
        let place = 16 + dice.next() as usize % (bytes.len() - 16).max(1);
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= 1 << (dice.next() % 8);
        }
        // A counter that was never used.
        bytes[8..16].copy_from_slice(&(u64::MAX / 2 + dice.next() % 1000).to_le_bytes());
        let total = (28 + bytes.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend(total.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        packet.extend(from.ip().octets());
        packet.extend(to.ip().octets());
        packet.extend(from.port().to_be_bytes());
        packet.extend(to.port().to_be_bytes());
        packet.extend((total - 20).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(bytes);
        let done = rustix::net::sendto(&mouth, &packet, SendFlags::empty(), to);
        sent += u64::from(done.is_ok());
    }
    sent
}

/// Sends first messages of handshakes as ranks would, but with another secret: in the name of rank 1 or 0, each for a session of its own.
fn handshakes(targets: &[SocketAddr], a_second: u64) -> u64 {
    let (sockets, mut dice, mut sent) = (sockets(), Dice(3), 0);
    let start = Instant::now();
    while start.elapsed() < ATTACK {
        let due = (start.elapsed().as_nanos() as u64 * a_second / 1_000_000_000).max(1);
        while sent < due {
            let to = sent as usize % targets.len();
            let mut bytes = vec![1, VERSION, 1 - to as u8, 0, to as u8, 0, 0, 0];
            bytes.extend(dice.bytes(8 + 48));
            bytes.extend([0; 24]);
            bytes.extend(dice.bytes(16));
            let socket = &sockets[dice.next() as usize % sockets.len()];
            if socket.send_to(&bytes, targets[to]).is_err() {
                break;
            }
            sent += 1;
        }
    }
    sent
}
