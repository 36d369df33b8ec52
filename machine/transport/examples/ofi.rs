//! Packets and stores over libfabric beside `fi_pingpong` of the same provider in the same run.
//!
//! `ofi [PROVIDER] [ROUNDS]`, over loopback; prints one JSON object a line. Times are one way, those of stores there and back. `rate_ratio` is the baseline's time over
//! ours, or our rate over the baseline's: more is better. The baseline is measured right before and after each point and averaged.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use mapwire_host::mapping::Mapping;
use mapwire_transport::ofi::Ofi;
use mapwire_transport::ofi::rma::{Direction, LocalPiece, RemoteMemory, RemoteRights, RmaError};
use mapwire_transport::payload::Payload;
use mapwire_transport::transport::{SendError, Transport};
use mapwire_wire::{Header, NodeId};

const SIZES: [usize; 4] = [64, 1024, 4096, 65536];
const MEMORY_BYTES: usize = 1 << 20;
const ECHO: u32 = 0;
const TAKE: u32 = 1;
const EXPORT: u32 = 2;
const PEER: NodeId = NodeId(1);

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn send(ofi: &mut Ofi, message: u32, bytes: &[u8]) {
    let mut header = Header::ZERO;
    header.length.set(bytes.len() as u32);
    header.message.set(message);
    while let Err(error) = ofi.send(PEER, &header, Payload::one(bytes)) {
        assert_eq!(error, SendError::WouldBlock(PEER));
    }
}

/// Waits for a packet, copies it, and returns its message and length.
fn receive(ofi: &mut Ofi, into: &mut [u8]) -> Option<(u32, usize)> {
    loop {
        let Some(packet) = ofi.poll_receive().ok()? else {
            continue;
        };
        let (message, bytes) = (packet.header.message.get(), packet.payload.len_bytes());
        packet.payload.copy_to_slice(0, &mut into[..bytes]);
        ofi.release(PEER);
        return Some((message, bytes));
    }
}

fn serve(provider: &str) {
    let mut ofi = Ofi::open(provider).expect("an endpoint");
    println!("{}", to_hex(ofi.name()));
    let mut name = String::new();
    std::io::stdin().read_line(&mut name).expect("a name");
    let name = from_hex(name.trim_end());
    ofi.connect(PEER, &name).expect("connect");
    let memory = Arc::new(Mapping::anonymous(MEMORY_BYTES).expect("memory"));
    let registrar = ofi.registrar();
    let mut region = None;
    let mut buffer = vec![0; 1 << 17];
    while let Some((message, bytes)) = receive(&mut ofi, &mut buffer) {
        match message {
            ECHO => send(&mut ofi, ECHO, &buffer[..bytes]),
            EXPORT => {
                let made = registrar.register(&memory, 0, MEMORY_BYTES, RemoteRights::ALL);
                let remote = region.insert(made.expect("a region")).remote();
                send(&mut ofi, EXPORT, &remote.to_bytes());
            }
            _ => {}
        }
    }
}

fn start(provider: &str) -> (Ofi, Child) {
    let mut ofi = Ofi::open(provider).unwrap_or_else(|error| {
        println!("skipped: {error}");
        std::process::exit(0)
    });
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["serve", provider])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process");
    let mut input = child.stdin.take().expect("piped");
    writeln!(input, "{}", to_hex(ofi.name())).expect("it reads");
    let mut name = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    lines.read_line(&mut name).expect("its name");
    let name = from_hex(name.trim_end());
    ofi.connect(PEER, &name).expect("connect");
    while !ofi.is_ready(PEER) {}
    (ofi, child)
}

/// One way, µs, by `fi_pingpong`.
fn baseline(provider: &str, bytes: usize, rounds: usize) -> Option<f64> {
    let core = provider.split(';').next()?;
    let (rounds, bytes) = (rounds.to_string(), bytes.to_string());
    let common = ["-p", core, "-e", "rdm", "-I", &rounds, "-S", &bytes];
    let mut server = Command::new("fi_pingpong")
        .args(common)
        .args(["-B", "47599"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    let client = Command::new("timeout")
        .args(["20", "fi_pingpong"])
        .args(common)
        .args(["-P", "47599", "127.0.0.1"])
        .output();
    let _ = server.kill();
    let _ = server.wait();
    let text = String::from_utf8(client.ok()?.stdout).ok()?;
    // bytes, sent, acks, total, time, MB/sec, usec/xfer, Mxfers/sec
    let fields = text.lines().last()?.split_whitespace();
    fields.rev().nth(1)?.parse().ok()
}

/// One way, µs.
fn ping_pong(ofi: &mut Ofi, bytes: usize, rounds: usize) -> f64 {
    let mut buffer = vec![0; 1 << 17];
    let data = vec![1; bytes];
    let mut start = Instant::now();
    for round in 0..rounds + rounds / 10 {
        if round == rounds / 10 {
            start = Instant::now();
        }
        send(ofi, ECHO, &data);
        receive(ofi, &mut buffer).expect("an echo");
    }
    start.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0
}

/// MB/s.
fn stream(ofi: &mut Ofi, bytes: usize, packets: usize) -> f64 {
    let data = vec![1; bytes];
    let mut buffer = vec![0; 64];
    let start = Instant::now();
    for _ in 0..packets {
        send(ofi, TAKE, &data);
    }
    send(ofi, ECHO, &[0; 8]);
    receive(ofi, &mut buffer).expect("an echo");
    (bytes * packets) as f64 / (start.elapsed().as_secs_f64() * 1e6)
}

/// Stores with `most` under way: the µs that each takes.
fn stores(ofi: &mut Ofi, bytes: usize, count: usize, most: usize) -> f64 {
    let mut buffer = vec![0; 64];
    send(ofi, EXPORT, &[]);
    receive(ofi, &mut buffer).expect("an answer");
    let wire = buffer.first_chunk().expect("its length");
    let remote = RemoteMemory::from_bytes(wire);
    let memory = Arc::new(Mapping::anonymous(MEMORY_BYTES).expect("memory"));
    let registrar = ofi.registrar();
    let region = registrar.register(&memory, 0, MEMORY_BYTES, RemoteRights::NONE);
    let region = Arc::new(region.expect("a region"));
    let piece = [LocalPiece {
        region: &region,
        offset: 0,
        bytes,
    }];
    let (mut begun, mut over) = (0, 0);
    let start = Instant::now();
    while over < count {
        if begun < count && begun - over < most {
            match ofi.transfer(
                Direction::StoreInPlace,
                PEER,
                (&remote, 0),
                &piece,
                begun as u64,
            ) {
                Ok(()) => begun += 1,
                Err(error) => assert_eq!(error, RmaError::WouldBlock),
            }
        }
        if let Some(done) = ofi.poll_done() {
            done.result.expect("a store");
            over += 1;
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn measure(provider: &str, bytes: usize, rounds: usize) {
    let before = baseline(provider, bytes, rounds).unwrap_or(f64::NAN);
    let (mut ofi, mut child) = start(provider);
    let ours = ping_pong(&mut ofi, bytes, rounds);
    let streamed = stream(&mut ofi, bytes, rounds);
    let (alone, together) = if ofi.has_rma() {
        let alone = stores(&mut ofi, bytes, rounds, 1);
        (alone, stores(&mut ofi, bytes, rounds, 32))
    } else {
        (f64::NAN, f64::NAN)
    };
    drop(ofi);
    let _ = child.wait();
    let after = baseline(provider, bytes, rounds).unwrap_or(f64::NAN);
    let base = (before + after) / 2.0;
    let row = |bench: &str, value: f64, unit: &str, baseline: f64, ratio: f64| {
        println!(
            r#"{{"bench":"{bench}","provider":"{provider}","bytes":{bytes},"value":{value:.3},"unit":"{unit}","baseline":"fi_pingpong","baseline_value":{baseline:.3},"rate_ratio":{ratio:.3},"before":{before:.3},"after":{after:.3}}}"#
        );
    };
    row("ofi-ping-pong", ours, "us", base, base / ours);
    // A store is done when the peer has said so: there and back.
    let round_trip = 2.0 * base;
    row("ofi-store", alone, "us", round_trip, round_trip / alone);
    let rate = bytes as f64 / base;
    row("ofi-stream", streamed, "MB/s", rate, streamed / rate);
    let stored = bytes as f64 / together;
    row("ofi-store-stream", stored, "MB/s", rate, stored / rate);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let first = args.next().unwrap_or_else(|| "tcp".to_owned());
    if first == "serve" {
        return serve(&args.next().expect("a provider"));
    }
    let rounds = args.next().map_or(4000, |rounds| {
        rounds.parse().expect("a number of rounds, at least 10")
    });
    for bytes in SIZES {
        measure(&first, bytes, rounds);
    }
}
