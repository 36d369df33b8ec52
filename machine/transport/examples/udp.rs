//! Measures UDP sockets beside raw ones over the loopback: what one call costs, ping-pong and streams. One JSON object a line.
//!
//! ```text
//! cargo run --release -p mapwire-transport --example udp [ROUNDS [BENCH]]
//! ```
//!
//! Each point is measured between two measurements of its baseline, and dropped if those differ by more than a fifth.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mapwire_transport::payload::Payload;
use mapwire_transport::udp::{Destination, Udp, UdpConfig};
use rustix::net::sockopt;
use rustix::thread::{CpuSet, sched_setaffinity};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Bytes of a stream that are under way at most.
const WINDOW_BYTES: u64 = 1 << 20;
const STREAM: Duration = Duration::from_millis(150);

/// A socket that sends to one receiver.
trait Socket: Send {
    fn open() -> Self;
    fn address(&self) -> SocketAddr;
    fn aim(&mut self, to: SocketAddr);
    /// Sends `count` datagrams.
    fn send(&mut self, bytes: &[u8], count: usize);
    /// How many bytes came by one look.
    fn look(&mut self) -> Option<usize>;
}

struct Raw {
    socket: UdpSocket,
    to: Option<SocketAddr>,
    buffer: Vec<u8>,
}

impl Socket for Raw {
    fn open() -> Self {
        let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20);
        Self { socket, to: None, buffer: vec![0; 1 << 16] }
    }
    fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }
    fn aim(&mut self, to: SocketAddr) {
        self.to = Some(to);
    }
    fn send(&mut self, bytes: &[u8], count: usize) {
        for _ in 0..count {
            let _ = self.socket.send_to(bytes, self.to.unwrap());
        }
    }
    fn look(&mut self) -> Option<usize> {
        let (bytes, from) = self.socket.recv_from(&mut self.buffer).ok()?;
        black_box(from);
        Some(bytes)
    }
}

/// Raw, connected both ways.
struct RawConnected(Raw);

impl Socket for RawConnected {
    fn open() -> Self {
        Self(Raw::open())
    }
    fn address(&self) -> SocketAddr {
        self.0.address()
    }
    fn aim(&mut self, to: SocketAddr) {
        self.0.socket.connect(to).unwrap();
    }
    fn send(&mut self, bytes: &[u8], count: usize) {
        for _ in 0..count {
            let _ = self.0.socket.send(bytes);
        }
    }
    fn look(&mut self) -> Option<usize> {
        self.0.socket.recv(&mut self.0.buffer).ok()
    }
}

/// Ours, connected or not, with payloads pushed or reserved (then copied, in place of being sealed).
struct Ours<const CONNECTED: bool, const RESERVED: bool> {
    udp: Udp,
    to: Option<Destination>,
}

impl<const CONNECTED: bool, const RESERVED: bool> Socket for Ours<CONNECTED, RESERVED> {
    fn open() -> Self {
        let udp = Udp::bind(&UdpConfig::new(vec![LOOPBACK])).unwrap();
        Self { udp, to: None }
    }
    fn address(&self) -> SocketAddr {
        self.udp.addresses().next().unwrap()
    }
    fn aim(&mut self, to: SocketAddr) {
        let via = match CONNECTED {
            true => self.udp.connect(0, to).unwrap(),
            false => 0,
        };
        self.to = Some(Destination { via, to, may_fragment: false });
    }
    fn send(&mut self, bytes: &[u8], count: usize) {
        let to = self.to.unwrap();
        let mut batch = self.udp.batch();
        let (head, payload) = bytes.split_at(bytes.len().min(40));
        for _ in 0..count {
            if RESERVED {
                batch.reserve(&to, bytes.len()).unwrap().copy_from_slice(bytes);
            } else {
                batch.push(&to, head, Payload::one(payload), &[]);
            }
        }
        black_box(batch.finish());
    }
    fn look(&mut self) -> Option<usize> {
        let mut datagram = self.udp.receive();
        let mut all = None;
        while let Some(one) = datagram.take() {
            black_box(one.from);
            all = Some(all.unwrap_or(0) + one.bytes.len());
            datagram = if self.udp.has_received() { self.udp.receive() } else { None };
        }
        all
    }
}

/// Nanoseconds one way.
fn ping_pong<S: Socket>(bytes: usize) -> f64 {
    const TURNS: u32 = 4000;
    let (mut here, mut there) = (S::open(), S::open());
    there.aim(here.address());
    here.aim(there.address());
    let message = vec![1; bytes];
    let turn = |socket: &mut S| {
        let mut left = bytes;
        while left > 0 {
            left -= socket.look().unwrap_or(0);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for _ in 0..TURNS {
                turn(&mut there);
                there.send(&message, 1);
            }
        });
        pin(0);
        let mut start = Instant::now();
        for number in 0..TURNS {
            if number == TURNS / 10 {
                start = Instant::now();
            }
            here.send(&message, 1);
            turn(&mut here);
        }
        start.elapsed().as_nanos() as f64 / f64::from(TURNS - TURNS / 10) / 2.0
    })
}

/// Bytes a nanosecond that are received.
fn stream<S: Socket>(bytes: usize) -> f64 {
    let (mut here, mut there) = (S::open(), S::open());
    here.aim(there.address());
    let message = vec![1; bytes];
    // Four messages as long as may be.
    let count = 4 * (65_507 / bytes).min(64);
    let (come, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            while !is_over.load(Ordering::Relaxed) {
                if let Some(bytes) = there.look() {
                    come.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            }
        });
        pin(0);
        let start = Instant::now();
        let (mut sent, mut last, mut moved) = (0, 0, start);
        while start.elapsed() < STREAM {
            let now = come.load(Ordering::Relaxed);
            if now != last {
                (last, moved) = (now, Instant::now());
            }
            if sent - now < WINDOW_BYTES {
                here.send(&message, count);
                sent += (bytes * count) as u64;
            } else if moved.elapsed() > Duration::from_millis(5) {
                // What is missing has overflowed a buffer.
                sent = now;
            }
        }
        let rate = come.load(Ordering::Relaxed) as f64 / start.elapsed().as_nanos() as f64;
        is_over.store(true, Ordering::Relaxed);
        rate
    })
}

/// Nanoseconds of a send to a socket whose buffer is full, and of a look that finds nothing.
fn call<S: Socket>(is_send: bool) -> f64 {
    const TURNS: u32 = 20_000;
    let (mut here, full) = (S::open(), S::open());
    here.aim(full.address());
    pin(0);
    let start = Instant::now();
    for _ in 0..TURNS {
        match is_send {
            true => here.send(&[1; 8], 1),
            false => assert!(here.look().is_none()),
        }
    }
    start.elapsed().as_nanos() as f64 / f64::from(TURNS)
}

fn pin(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    let _ = sched_setaffinity(None, &only);
}

/// Prints one row: the median of the ratios of those rounds whose two baselines agree.
fn row(bench: &str, path: &str, bytes: usize, unit: &str, rounds: usize, pair: [&dyn Fn() -> f64; 2]) {
    if std::env::args().nth(2).is_some_and(|only| only != bench) {
        return;
    }
    let [ours, raw] = pair;
    let mut points = Vec::new();
    for _ in 0..rounds {
        let (before, value, after) = (raw(), ours(), raw());
        let baseline = (before + after) / 2.0;
        if (before - after).abs() < baseline / 5.0 {
            points.push((value / baseline, value, baseline));
        }
    }
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let Some(&(ratio, value, baseline)) = points.get(points.len() / 2) else {
        eprintln!("{bench}, {path}, {bytes} B: the machine is too unsteady");
        return;
    };
    let (min, max, runs) = (points[0].0, points[points.len() - 1].0, points.len());
    println!(
        r#"{{"bench":"{bench}","path":"{path}","bytes":{bytes},"value":{value:.3},"unit":"{unit}","baseline":"raw sockets","baseline_value":{baseline:.3},"ratio":{ratio:.3},"min":{min:.3},"max":{max:.3},"runs":{runs}}}"#
    );
}

fn main() {
    type Plain = Ours<false, false>;
    type Connected = Ours<true, false>;
    type Sealing = Ours<false, true>;
    let rounds = std::env::args().nth(1).map_or(9, |text| text.parse().expect("a number of rounds"));
    let call_row = |bench, path, ours: &dyn Fn() -> f64, is_send| {
        row(bench, path, 8, "ns", rounds, [ours, &|| call::<Raw>(is_send)]);
    };
    call_row("udp-send-call", "batch", &|| call::<Plain>(true), true);
    call_row("udp-send-call", "batch, connected", &|| call::<Connected>(true), true);
    call_row("udp-empty-look", "receive", &|| call::<Plain>(false), false);
    for bytes in [8, 1400, 4096, 65_000] {
        let ping_row = |path, ours: &dyn Fn() -> f64| {
            row("udp-ping-pong", path, bytes, "ns", rounds, [ours, &|| ping_pong::<Raw>(bytes)]);
        };
        ping_row("batch", &|| ping_pong::<Plain>(bytes));
        ping_row("batch, connected", &|| ping_pong::<Connected>(bytes));
        ping_row("raw, connected", &|| ping_pong::<RawConnected>(bytes));
    }
    for bytes in [1400, 8900, 65_000] {
        // The best that raw sockets do without segmentation offload is the longest datagram.
        let stream_row = |path, ours: &dyn Fn() -> f64| {
            row("udp-stream", path, bytes, "GB/s", rounds, [ours, &|| stream::<Raw>(65_000)]);
        };
        stream_row("batch", &|| stream::<Plain>(bytes));
        stream_row("batch, reserved", &|| stream::<Sealing>(bytes));
        stream_row("raw of this length", &|| stream::<Raw>(bytes));
    }
}
