//! `send-latency` and `send-bandwidth` over UDP, beside datagrams of the same bytes between bare sockets, and over libfabric, beside its
//! bare messages; both sides spin.

mod bare;

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Instant;

use mapwire::{Export, Import, Node, Rights};
use mapwire_host::mapping::{Mapping, Rights as Access};
use mapwire_translation::PAGE_BYTES;
use serde_json::{Value, json};

use super::job::{Job, Order, Steps, role};
use super::measure::{Effort, Step, sampled};
use super::messages::{Source, read};
use super::placement::Placements;
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan};
use crate::Transport;
use bare::BareWay;

/// Bytes of a datagram of the baseline at most: what loopback carries whole.
const DATAGRAM_BYTES: usize = 65_000;
/// Bytes of the baseline's stream that may be under way.
const STREAM_BYTES: usize = 1 << 20;
/// Messages of a stream that may be under way at most.
const MOST_SLOTS: u64 = 64;
/// Bytes of a stream's window by mapwire, in messages of one at least.
const WINDOW_BYTES: usize = 8 << 20;
/// Bytes of the sockets' buffers of the baseline, if the system allows.
const SOCKET_BYTES: usize = 8 << 20;

/// What the ranks can be told to do; a way is added to the last two.
mod what {
    pub(super) const END: u64 = 0;
    pub(super) const PING_PONG: u64 = 16;
    pub(super) const STREAM: u64 = 32;
}

/// The ways, as the rounds number them.
const RAW: u64 = 0;
const PUT: u64 = 1;

/// Words of the memory by which both ranks keep in step, behind those of [`Steps`].
mod word {
    pub(super) const PORT: usize = 2048;
    /// The address of an endpoint, a word for its length first: 256 bytes for each rank.
    pub(super) const ADDRESS: usize = 3072;
    pub(super) const MET: usize = 2304;
    pub(super) const TAKEN: usize = 2560;
    /// Datagrams of the baseline.
    pub(super) const RECEIVED: usize = 2688;
}

/// What the baseline goes through.
enum Raw {
    Udp(UdpSocket),
    Ofi(Box<RefCell<BareWay>>),
}

/// One rank's ends.
struct Ends<'n> {
    node: &'n Node,
    shared: Words,
    raw: Raw,
    /// Where messages land.
    inbox: Words,
    import: Import,
    source: RefCell<Source>,
    met: RefCell<u64>,
    /// Datagrams of the baseline's stream that this rank has sent or taken, while there is one.
    passed: Cell<Option<u64>>,
    _export: Export,
    _memory: Vec<u64>,
}

impl<'n> Ends<'n> {
    fn new(node: &'n Node, plan: Plan, shared: Words, bytes: usize) -> Result<Self, BenchError> {
        let (me, peer) = (node.rank(), 1 - node.rank());
        let mut memory = vec![0_u64; (bytes + 2 * PAGE_BYTES) / 8];
        let whole = Words::new(memory.as_mut_ptr().cast(), memory.len() * 8);
        let inbox = whole.part(whole.before_page(), bytes + PAGE_BYTES);
        let export = match plan.transport {
            // Mapped, so that libfabric can move memory.
            Transport::Ofi => inbox.export(node),
            _ => inbox.export(node).ring_only(),
        };
        let export = export.name("bench").start()?;
        let import = node.import(peer, "bench").rights(Rights::ALL).start()?;
        let raw = match plan.transport {
            Transport::Ofi => Raw::Ofi(Box::new(RefCell::new(BareWay::new(node, shared)?))),
            _ => Raw::Udp(Self::bare_socket(shared, me, peer)?),
        };
        Ok(Self {
            node,
            shared,
            raw,
            inbox,
            import,
            source: RefCell::new(Source::new(bytes)),
            met: RefCell::new(0),
            passed: Cell::new(None),
            _export: export,
            _memory: memory,
        })
    }

    fn bare_socket(shared: Words, me: usize, peer: usize) -> Result<UdpSocket, BenchError> {
        let raw = UdpSocket::bind("127.0.0.1:0")?;
        raw.set_nonblocking(true)?;
        for buffer in [
            rustix::net::sockopt::set_socket_recv_buffer_size_force,
            rustix::net::sockopt::set_socket_send_buffer_size_force,
        ] {
            // Without the right to it the baseline has what it has.
            let _ = buffer(&raw, SOCKET_BYTES);
        }
        shared.store(word::PORT + 64 * me, raw.local_addr()?.port().into());
        let port = loop {
            match shared.load(word::PORT + 64 * peer) {
                0 => {}
                port => break port as u16,
            }
        };
        raw.connect(("127.0.0.1", port))?;
        Ok(raw)
    }

    /// Both ranks have come here.
    fn meet(&self) {
        let (me, peer) = (self.node.rank(), 1 - self.node.rank());
        *self.met.borrow_mut() += 1;
        let times = *self.met.borrow();
        self.shared.store(word::MET + 64 * me, times);
        while self.shared.load(word::MET + 64 * peer) < times {
            self.node.poll();
        }
    }

    /// Writes message `number`, which is sent next by this way.
    fn prepare(&self, way: u64, source: &mut Source, bytes: usize, number: u64) -> Result<(), BenchError> {
        match &self.raw {
            Raw::Ofi(bare) if way == RAW => bare.borrow_mut().prepare(bytes, number),
            _ => {
                source.rewrite(bytes, number);
                Ok(())
            }
        }
    }

    /// Whether the receiver of a stream has room for a message of `bytes`, which nothing else sees to. If so, it is counted.
    fn has_room(&self, bytes: usize, most: usize) -> bool {
        let Some(passed) = self.passed.get() else {
            return true;
        };
        let least = if matches!(self.raw, Raw::Ofi(_)) { 8 } else { 1 };
        let most = (STREAM_BYTES / bytes).clamp(least, most) as u64;
        let has_room = self.shared.load(word::RECEIVED) + most > passed;
        if has_room {
            self.passed.set(Some(passed + 1));
        }
        has_room
    }

    fn note_taken(&self) {
        if let Some(passed) = self.passed.get() {
            self.passed.set(Some(passed + 1));
            self.shared.store(word::RECEIVED, passed + 1);
        }
    }

    fn send_raw(&self, data: &[u8], number: u64) -> Result<(), BenchError> {
        let socket = match &self.raw {
            Raw::Udp(socket) => socket,
            Raw::Ofi(bare) => {
                return bare.borrow_mut().send(data.len(), number, |bytes| self.has_room(bytes, bare::MOST_UNDER_WAY));
            }
        };
        for piece in data.chunks(DATAGRAM_BYTES) {
            while !self.has_room(piece.len(), 256) {}
            while let Err(error) = socket.send(piece) {
                if error.kind() != ErrorKind::WouldBlock {
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    fn take_raw(&self, at: usize, bytes: usize, number: u64) -> Result<(), BenchError> {
        let socket = match &self.raw {
            Raw::Udp(socket) => socket,
            Raw::Ofi(bare) => {
                return bare.borrow_mut().take(bytes, number, || self.note_taken());
            }
        };
        let mut taken = 0;
        let mut start = None;
        while taken < bytes {
            let most = DATAGRAM_BYTES.min(bytes - taken);
            match self.inbox.part(at + taken, most).receive(socket) {
                Ok(length) => {
                    taken += length;
                    self.note_taken();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let start: &Instant = start.get_or_insert_with(Instant::now);
                    if start.elapsed().as_secs() > 5 {
                        return Err("the baseline lost a datagram on loopback".into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        read(self.inbox, at, bytes, number)
    }

    fn put(&self, data: &[u8], at: usize, number: u64) -> Result<(), BenchError> {
        let flag = at + data.len();
        if data.len() == 8 {
            // Eight bytes are their own flag, as a datagram is.
            self.import.send(&number.to_le_bytes(), flag as u64)?;
        } else {
            (self.import).put_signal(data, at as u64, flag as u64, number)?;
        }
        Ok(())
    }

    fn take_put(&self, at: usize, bytes: usize, number: u64) -> Result<(), BenchError> {
        while self.inbox.load(at + bytes) != number {
            self.node.poll();
        }
        match bytes {
            8 => Ok(()),
            _ => read(self.inbox, at, bytes, number),
        }
    }

    /// Back and forth; gives nanoseconds one way.
    fn ping_pong(&self, way: u64, order: Order) -> Result<f64, BenchError> {
        let bytes = order.bytes as usize;
        let mut source = self.source.borrow_mut();
        self.prepare(way, &mut source, bytes, 1)?;
        self.inbox.store(bytes, 0);
        self.passed.set(None);
        self.meet();
        let start = Instant::now();
        let take = |number| match way {
            RAW => self.take_raw(0, bytes, number),
            _ => self.take_put(0, bytes, number),
        };
        for number in 1..=order.times {
            if self.node.rank() == 1 {
                take(number)?;
            }
            match way {
                RAW => self.send_raw(source.data(bytes), number)?,
                _ => self.put(source.data(bytes), 0, number)?,
            }
            self.prepare(way, &mut source, bytes, number + 1)?;
            if self.node.rank() == 0 {
                take(number)?;
            }
        }
        let ns = start.elapsed().as_nanos() as f64 / (2 * order.times) as f64;
        if let Raw::Ofi(bare) = &self.raw {
            bare.borrow_mut().drain()?;
        }
        Ok(ns)
    }

    /// Messages from rank 0 to rank 1, which says how many it has read; gives nanoseconds a message.
    fn stream(&self, way: u64, order: Order) -> Result<f64, BenchError> {
        let bytes = order.bytes as usize;
        let slots = ((WINDOW_BYTES / bytes).max(2) as u64).min(MOST_SLOTS);
        let place = |number: u64| (number % slots) as usize * (bytes + PAGE_BYTES);
        for slot in 0..slots {
            self.inbox.store(place(slot) + bytes, 0);
        }
        self.shared.store(word::TAKEN, 0);
        self.shared.store(word::RECEIVED, 0);
        self.passed.set((way == RAW).then_some(0));
        self.meet();
        if self.node.rank() == 1 {
            for number in 1..=order.times {
                match way {
                    RAW => self.take_raw(place(number), bytes, number)?,
                    _ => self.take_put(place(number), bytes, number)?,
                }
                self.shared.store(word::TAKEN, number);
            }
            return Ok(0.0);
        }
        let wait_for = |number| {
            while self.shared.load(word::TAKEN) < number {
                match &self.raw {
                    _ if way == PUT => {
                        self.node.poll();
                    }
                    Raw::Ofi(bare) => bare.borrow_mut().idle()?,
                    Raw::Udp(_) => {}
                }
            }
            Ok::<(), BenchError>(())
        };
        let mut source = self.source.borrow_mut();
        let start = Instant::now();
        for number in 1..=order.times {
            self.prepare(way, &mut source, bytes, number)?;
            wait_for(number.saturating_sub(slots))?;
            match way {
                RAW => self.send_raw(source.data(bytes), number)?,
                _ => self.put(source.data(bytes), place(number), number)?,
            }
        }
        wait_for(order.times)?;
        Ok(start.elapsed().as_nanos() as f64 / order.times as f64)
    }

    fn carry_out(&self, order: Order) -> Result<f64, BenchError> {
        match (order.what / 16 * 16, order.what % 16) {
            (what::PING_PONG, way) => self.ping_pong(way, order),
            (what::STREAM, way) => self.stream(way, order),
            _ => Ok(0.0),
        }
    }
}

/// One measurement: what the ranks do, how much of it, and what it gives.
struct Point {
    what: u64,
    bytes: u64,
    times: u64,
    unit: &'static str,
    /// What is reported of nanoseconds a message.
    figure: fn(f64, u64) -> f64,
}

fn in_ranks(name: &str, plan: Plan, report: &mut Report, room: usize, points: &[Point]) -> Result<(), BenchError> {
    let Some(case) = role() else {
        let memory = rustix::fs::memfd_create("mapwire-bench", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, PAGE_BYTES as u64)?;
        // Ranks share no memory of mapwire's here, and open this.
        let case = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        let mut options = vec!["--wait", "poll", "--transport", plan.transport_text];
        if plan.insecure {
            options.push("--insecure");
        }
        return Job { bench: name, ranks: 2, options: &options, case: &case }.run(plan, report.is_json());
    };
    let file = std::fs::File::options().read(true).write(true).open(case)?;
    let mapping = Mapping::foreign(&file, PAGE_BYTES, Access::ReadWrite)?;
    let shared = Words::new(mapping.at(0, PAGE_BYTES), PAGE_BYTES);
    let node = Node::join()?;
    let ends = Ends::new(&node, plan, shared, room)?;
    let mut steps = Steps::over(&node, shared);
    let polling = node.polling();
    let idle = || {
        node.poll();
    };
    if node.rank() == 1 {
        loop {
            let order = steps.next(idle);
            ends.carry_out(order)?;
            steps.answer();
            if order.what == what::END {
                break;
            }
        }
        drop(polling);
        return Ok(());
    }
    let is_sealed = plan.transport != Transport::Ofi && !plan.insecure;
    let baseline = |bytes| match &ends.raw {
        Raw::Udp(_) => "raw UDP",
        Raw::Ofi(bare) if bare.borrow().stores(bytes as usize) => "raw libfabric store",
        Raw::Ofi(_) => "raw libfabric",
    };
    let mut placements = Placements::default();
    for point in points {
        let effort = Effort::planned(plan, 3, 31);
        let outcome = sampled::<BenchError>(effort, &mut placements, 2, |step| {
            let Step::Way(way) = step else {
                return Ok(steps.look(idle));
            };
            let order = Order { what: point.what + way as u64, bytes: point.bytes, times: point.times };
            let ns = steps.together(order, || ends.carry_out(order), idle)?;
            Ok((point.figure)(ns, point.bytes))
        });
        let Some(samples) = report.settled(&format!("{} B", point.bytes), outcome)? else {
            continue;
        };
        let case: Vec<(&'static str, Value)> = vec![
            ("path", json!("packets")),
            ("transport", json!(plan.transport_text)),
            ("sealed", json!(is_sealed)),
            ("bytes", json!(point.bytes)),
            ("ranks", json!(2)),
            ("wait", json!("poll")),
        ];
        report.rows(&case, point.unit, baseline(point.bytes), &samples.figures(1, 0));
    }
    let order = Order { what: what::END, bytes: 0, times: 0 };
    steps.together(order, || (), idle);
    drop(polling);
    Ok(())
}

/// `mapwire bench send-latency --transport udp|ofi`.
pub(crate) fn latency(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let point = |bytes: u64| Point {
        what: what::PING_PONG,
        bytes,
        times: (if plan.quick { 400_000 } else { 2_000_000 } / (5000 + bytes / 2)).max(4),
        unit: "ns",
        figure: |ns, _| ns,
    };
    let points = [8, 64, 1024, 4096, 16_384, 65_536].map(point);
    in_ranks("send-latency", plan, report, 1 << 17, &points)
}

/// `mapwire bench send-bandwidth --transport udp|ofi`.
pub(crate) fn bandwidth(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let point = |bytes: u64| Point {
        what: what::STREAM,
        bytes,
        times: (if plan.quick { 8 << 20 } else { 64 << 20 } / bytes).clamp(4, 4000),
        unit: "GB/s",
        figure: |ns, bytes| bytes as f64 / ns,
    };
    let points = [4096, 65_536, 1 << 20, 16 << 20].map(point);
    let room = (WINDOW_BYTES + (16 << 20)) * 2;
    in_ranks("send-bandwidth", plan, report, room, &points)
}
