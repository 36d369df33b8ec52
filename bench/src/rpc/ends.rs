//! The two ranks of a measurement: rank 0 calls, rank 1 serves.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mapwire::rpc::{Caller, Decoder, Encoder, Rpc, RpcConfig, Server, XdrError};
use mapwire::{Export, Import, Node, Rights};
use mapwire_host::waiting::{futex_wait, futex_wake};
use mapwire_translation::PAGE_BYTES;

use crate::BenchError;
use crate::job::Order;
use crate::words::Words;

/// Bytes of the arguments of a long call.
pub(super) const LONG_BYTES: usize = 1 << 20;

const PROGRAM: u32 = 0x2000_0100;
const VERSION: u32 = 1;

/// Words of the shared memory, behind those of the steps.
const PORT: usize = 2 * PAGE_BYTES;
const FUTEX: usize = PORT + 256;
const BOUNCES: usize = FUTEX + 256;
/// Bytes that long records bounce through, behind the words.
const BOUNCE: usize = 4 * PAGE_BYTES;
/// Bytes of all of it.
pub(super) const SHARED_BYTES: usize = BOUNCE + LONG_BYTES;

/// What passes between the ranks.
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
    pub(super) const END: Order = Order { what: 0, bytes: 0, times: 0 };

    pub(super) fn of(what: u64) -> Option<Self> {
        const ALL: [Way; 8] =
            [Way::Put, Way::Call, Way::Memcpy, Way::LongCall, Way::LentCall, Way::Bounce, Way::Futex, Way::RawUdp];
        ALL.into_iter().find(|way| *way as u64 == what)
    }

    pub(super) fn order(self, times: u64) -> Order {
        Order { what: self as u64, bytes: 0, times }
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

pub(super) struct Ends<'n> {
    node: &'n Node,
    shared: Words,
    role: Role,
    source: RefCell<Vec<u8>>,
    sink: RefCell<Vec<u8>>,
    /// Round trips so far of puts and of futexes: each has a number of its own.
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
    _memory: mapwire::Buffer,
}

impl<'n> Ends<'n> {
    pub(super) fn new(node: &'n Node, case: &str, shared: Words) -> Result<Self, BenchError> {
        let rpc = Rpc::open(node, RpcConfig::default())?;
        let peer = 1 - node.rank();
        let role = match node.rank() {
            0 => Role::Caller(rpc.caller(peer, PROGRAM, VERSION)?),
            _ => {
                let server = rpc.serve(PROGRAM, VERSION)?;
                // The first call comes once the connection stands.
                serve(&server, 1, &mut Vec::new())?;
                Role::Server(server)
            }
        };
        if let Role::Caller(caller) = &role {
            caller.call::<()>(0, &())?;
        }
        let direct = match case {
            "poll" => {
                let memory = node.alloc(PAGE_BYTES)?;
                let export = node.export_buffer(&memory).name("bench.put").start()?;
                let import = node.import(peer, "bench.put").rights(Rights::ALL);
                Some(Direct {
                    import: import.start()?,
                    ours: Words::of_buffer(&memory),
                    _export: export,
                    _memory: memory,
                })
            }
            _ => None,
        };
        let socket = match case {
            "udp" => Some(bare_socket(shared, node.rank())?),
            _ => None,
        };
        Ok(Self {
            node,
            shared,
            role,
            source: RefCell::new(vec![7; LONG_BYTES]),
            sink: RefCell::new(vec![1; LONG_BYTES]),
            turn: Cell::new(0),
            direct,
            socket,
            _rpc: rpc,
        })
    }

    /// Passes a way so often: microseconds each, or gigabytes a second.
    pub(super) fn carry_out(&self, way: Way, times: u64) -> Result<f64, BenchError> {
        if (way, self.node.rank()) == (Way::Futex, 0) {
            // The peer falls asleep first: two that are awake may pass the turn to and fro without a sleep.
            std::thread::sleep(Duration::from_micros(300));
        }
        let start = Instant::now();
        match (way, &self.role) {
            (Way::Put, _) => self.put(times)?,
            (Way::Futex, _) => self.futex(times),
            (Way::RawUdp, _) => self.raw_udp(times)?,
            (Way::Bounce, _) => self.bounce(times),
            (Way::Memcpy, Role::Server(_)) => {}
            (Way::Memcpy, Role::Caller(_)) => {
                let (source, mut sink) = (self.source.borrow(), self.sink.borrow_mut());
                for _ in 0..times {
                    sink.copy_from_slice(&source);
                    std::hint::black_box(&mut *sink);
                }
            }
            (_, Role::Server(server)) => serve(server, times, &mut self.sink.borrow_mut())?,
            (Way::Call, Role::Caller(caller)) => {
                for _ in 0..times {
                    caller.call::<()>(0, &())?;
                }
            }
            (Way::LongCall | Way::LentCall, Role::Caller(caller)) => {
                let source = self.source.borrow();
                for _ in 0..times {
                    let encode = |to: &mut Encoder<'_>| to.opaque(&source);
                    let procedure = u32::from(way == Way::LentCall) + 1;
                    let bytes = Some(LONG_BYTES + 4);
                    let pending = caller.begin_with(procedure, bytes, encode)?;
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

    fn put(&self, times: u64) -> Result<(), BenchError> {
        let direct = self.direct.as_ref().ok_or("no memory for puts")?;
        let first = self.turn.get() + 1;
        for turn in first..first + times {
            let send = || direct.import.send(&turn.to_ne_bytes(), 0);
            if self.node.rank() == 0 {
                send()?;
            }
            while direct.ours.load(0) != turn {}
            if self.node.rank() == 1 {
                send()?;
            }
        }
        self.turn.set(first + times - 1);
        Ok(())
    }

    fn futex(&self, times: u64) {
        let first = self.turn.get() + 1;
        let me = self.node.rank();
        let word = |rank: usize| self.shared.futex(FUTEX + 128 * rank);
        let wake = |turn: u64| {
            word(1 - me).store(turn as u32, Ordering::Release);
            futex_wake(word(1 - me), 1);
        };
        for turn in first..first + times {
            if me == 0 {
                wake(turn);
            }
            loop {
                let seen = word(me).load(Ordering::Acquire);
                if seen == turn as u32 {
                    break;
                }
                futex_wait(word(me), seen, None);
            }
            if me == 1 {
                wake(turn);
            }
        }
        self.turn.set(first + times - 1);
    }

    fn bounce(&self, times: u64) {
        let first = self.turn.get() + 1;
        let word = |rank: usize| BOUNCES + 128 * rank;
        let await_turn = |rank: usize, turn: u64| while self.shared.load(word(rank)) != turn {};
        for turn in first..first + times {
            if self.node.rank() == 0 {
                self.shared.put(BOUNCE, &self.source.borrow());
                self.shared.store(word(0), turn);
                await_turn(1, turn);
            } else {
                await_turn(0, turn);
                self.shared.get(BOUNCE, &mut self.sink.borrow_mut());
                self.shared.store(word(1), turn);
            }
        }
        self.turn.set(first + times - 1);
    }

    fn raw_udp(&self, times: u64) -> Result<(), BenchError> {
        let socket = self.socket.as_ref().ok_or("no socket")?;
        // As long as a null call's record.
        let mut bytes = [0_u8; 64];
        for _ in 0..times {
            if self.node.rank() == 0 {
                socket.send(&bytes)?;
            }
            let begun = Instant::now();
            while let Err(error) = socket.recv(&mut bytes) {
                if error.kind() != ErrorKind::WouldBlock {
                    return Err(error.into());
                }
                if begun.elapsed().as_secs() > 5 {
                    return Err("the baseline lost a datagram on loopback".into());
                }
            }
            if self.node.rank() == 1 {
                socket.send(&bytes)?;
            }
        }
        Ok(())
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

fn bare_socket(shared: Words, me: usize) -> Result<UdpSocket, BenchError> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    shared.store(PORT + 64 * me, socket.local_addr()?.port().into());
    let port = loop {
        match shared.load(PORT + 64 * (1 - me)) {
            0 => std::thread::yield_now(),
            port => break port as u16,
        }
    };
    socket.connect(("127.0.0.1", port))?;
    Ok(socket)
}
