//! The two ranks of a measurement: rank 0 calls, rank 1 serves.

use std::cell::Cell;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use mapwire::rpc::{Caller, Decoder, Encoder, Rpc, RpcConfig, Server, XdrError};
use mapwire::{Buffer, Export, Import, Node, Rights};
use mapwire_translation::PAGE_BYTES;

use crate::job::{self, Order, Steps};
use crate::words::Words;
use crate::{BenchError, udp};

/// Bytes of the arguments of a long call.
pub(super) const LONG_BYTES: usize = 1 << 20;

const PROGRAM: u32 = 0x2000_0100;
const VERSION: u32 = 1;

/// Words of the shared memory, a line for each rank, and the bytes that long records bounce through.
const FUTEX: usize = 0;
const BOUNCES: usize = 256;
const BOUNCE: usize = PAGE_BYTES;

/// What passes between the ranks; as numbers, the orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Eight bytes are stored, and eight are stored back.
    Put = 1,
    /// A call without arguments or results.
    Call,
    /// 1 MB is copied within one process.
    Memcpy,
    /// A call with 1 MB, which the server copies into memory of its own.
    LongCall,
    /// The same, which the server looks at where it lies.
    LentCall,
    /// 1 MB is copied into shared memory by the one process, and then out of it by the other.
    Bounce,
    /// A futex wakes the peer, and the peer wakes by another.
    Futex,
    /// A datagram there and one back between bare sockets.
    RawUdp,
}

impl Way {
    fn of(what: u64) -> Option<Self> {
        use Way::{Bounce, Call, Futex, LentCall, LongCall, Memcpy, Put, RawUdp};
        let all = [Put, Call, Memcpy, LongCall, LentCall, Bounce, Futex, RawUdp];
        all.into_iter().find(|way| *way as u64 == what)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Put => "direct put there and back",
            Self::Call => "null",
            Self::Memcpy => "memcpy",
            Self::LongCall => "decoded",
            Self::LentCall => "lent",
            Self::Bounce => "two-copy bounce",
            Self::Futex => "two futex wakes",
            Self::RawUdp => "raw UDP there and back",
        }
    }

    /// What its figures are in: long calls are given as what passes in a second.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Memcpy | Self::LongCall | Self::LentCall | Self::Bounce => "GB/s",
            _ => "us",
        }
    }
}

/// What this rank has of the calls.
enum Role {
    Caller(Caller),
    Server(Server),
}

pub(super) struct Ends {
    node: Node,
    shared: Words,
    role: Role,
    source: Vec<u8>,
    sink: Vec<u8>,
    /// Round trips so far: each has a number of its own.
    turn: Cell<u64>,
    direct: Option<Direct>,
    socket: Option<UdpSocket>,
    _rpc: Rpc,
}

/// Memory for puts.
struct Direct {
    import: Import,
    ours: Words,
    _export: Export,
    _memory: Buffer,
}

impl Direct {
    fn new(node: &Node) -> Result<Self, BenchError> {
        let memory = node.alloc(PAGE_BYTES)?;
        let export = node.export_buffer(&memory).name("bench.put").start()?;
        let import = node.import(1 - node.rank(), "bench.put").rights(Rights::ALL).start()?;
        Ok(Self { import, ours: Words::of_buffer(&memory), _export: export, _memory: memory })
    }
}

impl Ends {
    pub(super) fn new(node: &Node, case: &str, shared: Words) -> Result<Self, BenchError> {
        let rpc = Rpc::open(node, RpcConfig::default())?;
        // The first call comes once the connection stands.
        let role = if node.rank() == 0 {
            let caller = rpc.caller(1, PROGRAM, VERSION)?;
            caller.call::<()>(0, &())?;
            Role::Caller(caller)
        } else {
            let server = rpc.serve(PROGRAM, VERSION)?;
            serve(&server, 1, &mut Vec::new())?;
            Role::Server(server)
        };
        Ok(Self {
            node: node.clone(),
            shared,
            role,
            source: vec![7; LONG_BYTES],
            sink: vec![1; LONG_BYTES],
            turn: Cell::new(0),
            direct: (case == "poll").then(|| Direct::new(node)).transpose()?,
            socket: (case == "udp").then(|| udp::connected(shared, node.rank())).transpose()?,
            _rpc: rpc,
        })
    }

    /// Round trips: rank 0 says a turn and waits until it is back, rank 1 waits for it and says it back.
    fn round_trips(
        &self,
        times: u64,
        mut say: impl FnMut(u64) -> Result<(), BenchError>,
        mut hear: impl FnMut(u64) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let first = self.turn.replace(self.turn.get() + times) + 1;
        for turn in first..first + times {
            if self.node.rank() == 0 {
                say(turn)?;
            }
            hear(turn)?;
            if self.node.rank() == 1 {
                say(turn)?;
            }
        }
        Ok(())
    }

    fn put(&self, times: u64) -> Result<(), BenchError> {
        let direct = self.direct.as_ref().ok_or("no memory for puts")?;
        let say = |turn: u64| Ok(direct.import.send(&turn.to_ne_bytes(), 0)?);
        self.round_trips(times, say, |turn| {
            while direct.ours.load(0) != turn {}
            Ok(())
        })
    }

    fn futex(&self, times: u64) -> Result<(), BenchError> {
        let (shared, word) = (self.shared, |rank: usize| FUTEX + 128 * rank);
        let (ours, theirs) = (word(self.node.rank()), word(1 - self.node.rank()));
        let say = |turn| {
            shared.wake(theirs, turn as u32);
            Ok(())
        };
        self.round_trips(times, say, |turn| {
            shared.sleep_until(ours, turn as u32);
            Ok(())
        })
    }

    fn bounce(&mut self, times: u64) -> Result<(), BenchError> {
        let (shared, word) = (self.shared, |rank: usize| BOUNCES + 128 * rank);
        let (ours, theirs) = (word(self.node.rank()), word(1 - self.node.rank()));
        let mut sink = std::mem::take(&mut self.sink);
        let is_caller = self.node.rank() == 0;
        let say = |turn| {
            if is_caller {
                shared.put(BOUNCE, &self.source);
            }
            shared.store(theirs, turn);
            Ok(())
        };
        self.round_trips(times, say, |turn| {
            while shared.load(ours) != turn {}
            if !is_caller {
                shared.get(BOUNCE, &mut sink);
            }
            Ok(())
        })?;
        self.sink = sink;
        Ok(())
    }

    fn raw_udp(&self, times: u64) -> Result<(), BenchError> {
        let socket = self.socket.as_ref().ok_or("no socket")?;
        // As long as a null call's record.
        let (question, mut answer) = ([0; 64], [0; 64]);
        let say = |_| udp::spin(|| socket.send(&question)).map(drop);
        self.round_trips(times, say, |_| udp::spin(|| socket.recv(&mut answer)).map(drop))
    }
}

impl job::Ends for Ends {
    /// Passes a way so often: microseconds each, or gigabytes a second.
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        let (way, times) = (Way::of(order.what).ok_or("no such way")?, order.times);
        if (way, self.node.rank()) == (Way::Futex, 0) {
            // The peer falls asleep first: two that are awake may pass the turn to and fro without a sleep.
            std::thread::sleep(Duration::from_micros(300));
        }
        let start = Instant::now();
        match (way, &self.role) {
            (Way::Put, _) => self.put(times)?,
            (Way::Futex, _) => self.futex(times)?,
            (Way::RawUdp, _) => self.raw_udp(times)?,
            (Way::Bounce, _) => self.bounce(times)?,
            (Way::Memcpy, Role::Server(_)) => {}
            (Way::Memcpy, Role::Caller(_)) => {
                for _ in 0..times {
                    self.sink.copy_from_slice(&self.source);
                    std::hint::black_box(&mut *self.sink);
                }
            }
            (_, Role::Server(server)) => serve(server, times, &mut self.sink)?,
            (Way::Call, Role::Caller(caller)) => {
                for _ in 0..times {
                    caller.call::<()>(0, &())?;
                }
            }
            (Way::LongCall | Way::LentCall, Role::Caller(caller)) => {
                for _ in 0..times {
                    let encode = |to: &mut Encoder<'_>| to.opaque(&self.source);
                    let procedure = u32::from(way == Way::LentCall) + 1;
                    let pending = caller.begin_with(procedure, Some(LONG_BYTES + 4), encode)?;
                    let word = pending.wait()?.value::<u32>()?;
                    if word != 7 {
                        return Err(format!("the server saw {word} where 7 was sent").into());
                    }
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64() / times as f64;
        Ok(match way.unit() {
            "us" => seconds * 1e6,
            _ => LONG_BYTES as f64 / seconds / 1e9,
        })
    }

    fn idle(&self) {
        self.node.poll();
    }
}

/// Answers so many calls.
fn serve(server: &Server, times: u64, sink: &mut Vec<u8>) -> Result<(), BenchError> {
    for _ in 0..times {
        let mut request = server.next(None)?.ok_or("no call came")?;
        let word = match request.procedure() {
            0 => {
                request.reply(&())?;
                continue;
            }
            1 => request.decode(|from| decoded(from, sink))?,
            _ => {
                let record = request.record().ok_or("no arguments")?;
                let mut last = [0; 4];
                record.read(record.len() - 4, &mut last)?;
                u32::from(last[3])
            }
        };
        request.reply(&word)?;
    }
    Ok(())
}

fn decoded(from: &mut Decoder<'_>, sink: &mut Vec<u8>) -> Result<u32, XdrError> {
    let length = from.length(LONG_BYTES, 1)?;
    sink.resize(length, 0);
    from.fixed_opaque(sink)?;
    Ok(sink.last().copied().unwrap_or(0).into())
}
