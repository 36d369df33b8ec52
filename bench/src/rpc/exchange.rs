//! The two ranks of a measurement: rank 0 calls, rank 1 serves.

use std::time::{Duration, Instant};

use mapwire::Node;
use mapwire::rpc::{Caller, Decoder, Encoder, Rpc, RpcConfig, Server, XdrError};
use mapwire_translation::PAGE_BYTES;

use crate::BenchError;
use crate::inbox::Inbox;
use crate::job::{self, Order, Steps};
use crate::loops::{Loops, Message, Passing};
use crate::udp::Datagrams;
use crate::words::{Heap, Words};

/// Bytes of the arguments of a long call.
pub(super) const LONG_BYTES: usize = 1 << 20;
/// Bytes of a null call's record.
const RECORD_BYTES: usize = 64;

const PROGRAM: u32 = 0x2000_0100;
const VERSION: u32 = 1;

/// Parts of the shared memory, behind that of the loops: lines of the ranks, and the bytes that long records bounce through.
const DATAGRAMS: usize = 1024;
const FUTEX: usize = 1536;
const BOUNCES: usize = 2048;
const BOUNCE: usize = PAGE_BYTES;

/// What passes between the ranks; as numbers, the orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
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

impl Exchange {
    fn of(what: u64) -> Option<Self> {
        use Exchange::{Bounce, Call, Futex, LentCall, LongCall, Memcpy, Put, RawUdp};
        let all = [Put, Call, Memcpy, LongCall, LentCall, Bounce, Futex, RawUdp];
        all.into_iter().find(|exchange| *exchange as u64 == what)
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

/// Memory and sockets of the raw exchanges.
struct Raw {
    node: Node,
    shared: Words,
    inbox: Option<Inbox>,
    datagrams: Option<Datagrams>,
    landing: Heap,
    source: Vec<u8>,
    sink: Vec<u8>,
}

impl Raw {
    fn new(node: &Node, case: &str, shared: Words) -> Result<Self, BenchError> {
        let rank = node.rank();
        let inbox = || Inbox::alloc(node, 1 - rank, "bench.put", PAGE_BYTES, |it| it);
        let datagrams = || Datagrams::new(shared, shared.part(DATAGRAMS, 256), rank);
        Ok(Self {
            node: node.clone(),
            shared,
            inbox: (case == "poll").then(inbox).transpose()?,
            datagrams: (case == "udp").then(datagrams).transpose()?,
            landing: Heap::new(0, RECORD_BYTES),
            source: vec![7; LONG_BYTES],
            sink: vec![1; LONG_BYTES],
        })
    }

    fn inbox(&self) -> Result<&Inbox, BenchError> {
        Ok(self.inbox.as_ref().ok_or("no memory for puts")?)
    }

    fn datagrams(&mut self) -> Result<&mut Datagrams, BenchError> {
        Ok(self.datagrams.as_mut().ok_or("no socket")?)
    }
}

impl Passing for Raw {
    type Path = Exchange;

    fn settle(&self, exchange: Exchange) {
        if (exchange, self.node.rank()) == (Exchange::Futex, 0) {
            // The peer falls asleep first: two that are awake may pass the turn to and fro without a sleep.
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn put(&mut self, exchange: Exchange, data: &[u8], message: Message) -> Result<(), BenchError> {
        let line = 128 * (1 - self.node.rank());
        match exchange {
            Exchange::Put => self.inbox()?.import.send(&message.number.to_ne_bytes(), 0)?,
            Exchange::Futex => self.shared.wake(FUTEX + line, message.number as u32),
            Exchange::RawUdp => self.datagrams()?.send(data, message)?,
            _ => {
                if self.node.rank() == 0 {
                    self.shared.put(BOUNCE, &self.source);
                }
                self.shared.store(BOUNCES + line, message.number);
            }
        }
        Ok(())
    }

    fn take(&mut self, exchange: Exchange, bytes: usize, message: Message) -> Result<(), BenchError> {
        let line = 128 * self.node.rank();
        match exchange {
            Exchange::Put => while self.inbox()?.ours.load(0) != message.number {},
            Exchange::Futex => self.shared.sleep_until(FUTEX + line, message.number as u32),
            Exchange::RawUdp => {
                let landing = self.landing.words;
                self.datagrams()?.take(landing, 0, bytes)?;
            }
            _ => {
                while self.shared.load(BOUNCES + line) != message.number {}
                if self.node.rank() == 1 {
                    self.shared.get(BOUNCE, &mut self.sink);
                }
            }
        }
        Ok(())
    }

    fn progress(&self, _: Exchange) {}

    fn idle(&self) {
        self.node.poll();
    }
}

/// This rank's end of the calls.
enum Role {
    Caller(Caller),
    Server(Server),
}

pub(super) struct Rank {
    loops: Loops,
    raw: Raw,
    role: Role,
    _rpc: Rpc,
}

impl Rank {
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
        let loops = Loops::new(node.rank(), shared, RECORD_BYTES, 1, 0);
        Ok(Self { loops, raw: Raw::new(node, case, shared)?, role, _rpc: rpc })
    }

    /// Calls, or answers them.
    fn calls(&mut self, exchange: Exchange, times: u64) -> Result<(), BenchError> {
        match (exchange, &self.role) {
            (Exchange::Memcpy, Role::Server(_)) => {}
            (Exchange::Memcpy, Role::Caller(_)) => {
                for _ in 0..times {
                    self.raw.sink.copy_from_slice(&self.raw.source);
                    std::hint::black_box(&mut *self.raw.sink);
                }
            }
            (_, Role::Server(server)) => serve(server, times, &mut self.raw.sink)?,
            (Exchange::LongCall | Exchange::LentCall, Role::Caller(caller)) => {
                for _ in 0..times {
                    let encode = |to: &mut Encoder<'_>| to.opaque(&self.raw.source);
                    let procedure = u32::from(exchange == Exchange::LentCall) + 1;
                    let pending = caller.begin_with(procedure, Some(LONG_BYTES + 4), encode)?;
                    let word = pending.wait()?.value::<u32>()?;
                    if word != 7 {
                        return Err(format!("the server saw {word} where 7 was sent").into());
                    }
                }
            }
            (_, Role::Caller(caller)) => {
                for _ in 0..times {
                    caller.call::<()>(0, &())?;
                }
            }
        }
        Ok(())
    }
}

impl job::Part for Rank {
    /// Passes a way so often: microseconds each, or gigabytes a second.
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        use Exchange::{Bounce, Futex, Put, RawUdp};
        let exchange = Exchange::of(order.what).ok_or("unknown order")?;
        let ns = match exchange {
            Put | Futex | RawUdp | Bounce => {
                let order = Order { bytes: RECORD_BYTES as u64, ..order };
                2.0 * self.loops.ping_pong(&mut self.raw, exchange, order)?
            }
            _ => {
                let start = Instant::now();
                self.calls(exchange, order.times)?;
                start.elapsed().as_nanos() as f64 / order.times as f64
            }
        };
        Ok(match exchange.unit() {
            "us" => ns / 1000.0,
            _ => LONG_BYTES as f64 / ns,
        })
    }

    fn idle(&self) {
        self.raw.idle();
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
