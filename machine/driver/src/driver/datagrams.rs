//! What goes to ranks of other hosts and comes from them: datagrams, which may be lost.

use std::time::Duration;

use mapwire_nic::link::LinkConfig;
use mapwire_nic::{BufferId, DatagramBody, Source, Verdict};
use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_transport::fabric::Fabric;
use mapwire_transport::net::{Arrival, Lost, Net};
use mapwire_transport::payload::{Payload, Received};
use mapwire_wire::link::{LINK_HEADER_BYTES, MAX_ACK_BYTES};
use mapwire_wire::{HEADER_BYTES, Header, NodeId};
use zerocopy::{FromBytes, IntoBytes};

use super::receiving::Taken;
use super::telling::Teller;
use super::{Driver, job_key, now_ns};
use crate::config::DriverConfig;
use crate::error::DriverError;
use crate::exports::LocalExport;
use crate::log::{Line, Log};
use crate::mover::{self, GarbagePage};
use crate::pages::Pins;

/// Datagrams taken in one turn, so that a busy peer does not keep a thread from its own work.
const RECEIVE_BUDGET: usize = 64;

/// Datagrams sent in one turn, so that what comes meanwhile is looked at.
const SEND_BUDGET: usize = 64;

/// How often a packet whose pages are not there is tried, before it is dropped: its sender sends it again.
const TRIES: usize = 64;
/// Looks at the sockets before the timer of a link is seen to, while each finds something.
const MOST_CATCHES: usize = 16;

/// Bytes of the head of a datagram with a packet: that of the link, then the packet's.
const HEAD_BYTES: usize = LINK_HEADER_BYTES + HEADER_BYTES;

/// How long a peer may be silent that owes an answer. The launcher tells of ranks that end. A link finds out what cannot be reached, and
/// says why: so it gives up before a thread that began to wait for that peer a little earlier.
pub(super) fn silence(timeout: Duration) -> Duration {
    timeout - timeout / 8
}

/// The links over `net`, of an epoch that this process has never had.
pub(super) fn link_config(net: &Net, config: &DriverConfig) -> Result<LinkConfig, DriverError> {
    let [a, b, c, d, e, f, g, h, ..] = job_key()?.0;
    let epoch = u64::from_le_bytes([a, b, c, d, e, f, g, h]) | 1;
    Ok(LinkConfig {
        dead_after_ns: u64::try_from(silence(config.timeout).as_nanos()).unwrap_or(u64::MAX),
        paths: net.paths(),
        ..LinkConfig::new(epoch, Net::max_datagram_bytes() as u32)
    })
}

/// A datagram that the page-fault handler has taken from its socket and may not take further. Its memory is taken beforehand.
#[derive(Debug, Default)]
pub(super) struct LeftDatagram {
    from: Option<NodeId>,
    length: usize,
    bytes: Box<[u8]>,
}

impl LeftDatagram {
    /// With room for any datagram.
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; Net::max_datagram_bytes()].into(), ..Self::default() }
    }

    fn is_there(&self) -> bool {
        self.from.is_some()
    }

    /// Keeps a datagram. One that is longer than any is lost.
    fn keep(&mut self, from: NodeId, bytes: &[u8]) {
        if let Some(copy) = self.bytes.get_mut(..bytes.len()) {
            copy.copy_from_slice(bytes);
            (self.from, self.length) = (Some(from), bytes.len());
        }
    }

    fn take(&mut self) -> Option<(NodeId, &[u8])> {
        let from = self.from.take()?;
        Some((from, &self.bytes[..self.length]))
    }
}

/// What takes a datagram, while the transport has it.
struct Hands<'a> {
    node: &'a mut Node<AnyDesign>,
    pins: &'a mut Pins,
    garbage: &'a mut GarbagePage,
    teller: &'a mut Teller,
    exports: &'a [LocalExport],
    log: &'a mut Log,
}

/// The host must act before a datagram can be taken.
struct Lacks;

impl Hands<'_> {
    /// Takes a datagram, with `tries` to supply what it lacks.
    #[inline]
    fn take(&mut self, now_ns: u64, from: NodeId, bytes: &[u8], tries: usize) -> Result<(), Lacks> {
        let payload = Taken(Received::Inline(bytes.get(LINK_HEADER_BYTES + HEADER_BYTES..).unwrap_or(&[])));
        let mut outcome = Err(Lacks);
        for left in (0..tries).rev() {
            match (self.node).handle_datagram(now_ns, from, bytes, BufferId(0)) {
                Verdict::Taken => {
                    outcome = Ok(());
                    break;
                }
                Verdict::Wait if left == 0 => break,
                Verdict::Wait => self.serve_misses(),
            }
        }
        while let Some(dma) = self.node.poll_move() {
            let old = mover::deliver(self.pins, self.garbage, &dma, &payload.0);
            self.node.handle_moved(&dma, old);
        }
        while let Some(told) = self.node.poll_told(&payload, super::now_ns) {
            self.teller.tell(told, self.exports, self.log);
        }
        outcome
    }

    #[cold]
    fn serve_misses(&mut self) {
        let mut failed = Vec::new();
        self.node.serve_misses(self.pins, |error| failed.push(error));
        for error in failed {
            let error = self.pins.explain(error);
            self.log.push(Line::NotServed(error.to_string()));
        }
    }
}

impl<F: Fabric> Driver<F> {
    /// Datagrams that came and were rejected, by cause; `None` where no rank is on another host.
    pub fn rejections(&mut self) -> Option<mapwire_seal::Counters> {
        self.fabric.net().map(|net| *net.counters())
    }

    /// Takes what has come by datagrams. Whether there was anything.
    #[inline]
    pub(super) fn receive_datagrams(&mut self) -> bool {
        self.fabric.net().is_some() && self.receive_some_datagrams()
    }

    /// Takes what waits in the sockets if the timer of a link is due at `now_ns`: it may have come while this thread had no processor, and
    /// then is not late. Gives a time up to which all has been taken.
    pub(crate) fn catch_up(&mut self, mut now_ns: u64) -> u64 {
        let is_due = self.node.nic().poll_at().is_some_and(|at_ns| at_ns <= now_ns);
        if is_due && self.fabric.net().is_some() {
            for _ in 0..MOST_CATCHES {
                if !self.receive_some_datagrams() {
                    break;
                }
                now_ns = super::now_ns();
            }
        }
        now_ns
    }

    fn receive_some_datagrams(&mut self) -> bool {
        let mut received = self.take_left_datagram();
        self.fabric.begin_look();
        // What one call to the kernel brings has come at one time.
        let mut time_ns = None;
        for _ in 0..RECEIVE_BUDGET {
            let Some(net) = self.fabric.net() else {
                break;
            };
            if self.is_confined {
                let is_free = !self.left_datagram.is_there();
                match net.is_next_of_session() {
                    None if is_free => break,
                    Some(true) if is_free => {}
                    _ => {
                        self.node.leave_for_later();
                        break;
                    }
                }
            }
            let Some(arrival) = net.poll(|| *time_ns.get_or_insert_with(now_ns)) else {
                break;
            };
            received = true;
            let (from, bytes) = match arrival {
                Arrival::Datagram { from, bytes } => (from, &*bytes),
                Arrival::Other => continue,
                // Its sender sends it again.
                Arrival::Stranger(_) if self.is_confined => continue,
                Arrival::Stranger(from) => {
                    self.meet(from);
                    continue;
                }
            };
            let mut hands = Hands {
                node: &mut self.node,
                pins: &mut self.pins,
                garbage: &mut self.garbage,
                teller: &mut self.teller,
                exports: &self.exports,
                log: &mut self.log,
            };
            let time_ns = time_ns.unwrap_or_else(now_ns);
            if self.is_confined {
                let may_take = !hands.teller.is_full() && hands.node.may_take_datagram(from, bytes);
                if !may_take || hands.take(time_ns, from, bytes, 1).is_err() {
                    self.left_datagram.keep(from, bytes);
                    self.node.leave_for_later();
                    break;
                }
            } else {
                // What could not be taken comes again.
                let _ = hands.take(time_ns, from, bytes, TRIES);
            }
            self.end_datagram(from);
            // Others may wait for what came: what has come since is for the next turn.
            if !self.fabric.net().is_some_and(|net| net.has_received()) {
                break;
            }
        }
        received
    }

    /// Takes the datagram that the page-fault handler has left. Whether there was one.
    #[inline]
    fn take_left_datagram(&mut self) -> bool {
        !self.is_confined && self.left_datagram.is_there() && self.take_left_datagram_now()
    }

    #[cold]
    fn take_left_datagram_now(&mut self) -> bool {
        let mut left = core::mem::take(&mut self.left_datagram);
        if let Some((from, bytes)) = left.take() {
            let mut hands = Hands {
                node: &mut self.node,
                pins: &mut self.pins,
                garbage: &mut self.garbage,
                teller: &mut self.teller,
                exports: &self.exports,
                log: &mut self.log,
            };
            let _ = hands.take(now_ns(), from, bytes, TRIES);
            self.end_datagram(from);
        }
        self.left_datagram = left;
        true
    }

    fn end_datagram(&mut self, from: NodeId) {
        if self.node.end_packet(from) {
            self.tell();
        }
        if !self.is_confined {
            self.take_early(from);
        }
    }

    /// Takes the packets of `from` that came before their turn, and whose turn has come.
    fn take_early(&mut self, from: NodeId) {
        while let Some(packet) = self.node.poll_early(from) {
            // It was checked as it came.
            let Ok((header, bytes)) = Header::ref_from_prefix(&packet) else {
                continue;
            };
            let payload = Taken(Received::Inline(bytes));
            let mut verdict = Verdict::Wait;
            for _ in 0..TRIES {
                verdict = self.node.handle_packet(from, header, &payload, BufferId(0));
                if verdict == Verdict::Taken {
                    break;
                }
                self.serve_misses();
            }
            if verdict == Verdict::Wait {
                // It is acked, and so cannot be dropped.
                self.log.push(Line::Stuck { from });
                self.handle_peer_gone(from);
                return;
            }
            while let Some(dma) = self.node.poll_move() {
                let old = mover::deliver(&self.pins, &mut self.garbage, &dma, &payload.0);
                self.node.handle_moved(&dma, old);
            }
            while let Some(told) = self.node.poll_told(&payload, now_ns) {
                self.teller.tell(told, &self.exports, &mut self.log);
            }
            if self.node.end_packet(from) {
                self.tell();
            }
        }
    }

    /// Sends the datagrams that are due. Whether there were any.
    #[inline]
    pub(super) fn transmit_datagrams(&mut self) -> bool {
        self.fabric.net().is_some() && self.transmit_some_datagrams()
    }

    fn transmit_some_datagrams(&mut self) -> bool {
        let Some(net) = self.fabric.net() else {
            return false;
        };
        if !self.node.has_datagrams() && !net.is_due_soon(now_ns) {
            return false;
        }
        let now_ns = now_ns();
        if self.is_confined && net.is_due(now_ns) {
            // Handshakes need memory.
            self.node.leave_for_later();
            return false;
        }
        let mut outbound = net.begin(now_ns);
        outbound.set_confined(self.is_confined);
        let mut sent = 0;
        let (mut stranger, mut has_session) = (None, true);
        while sent < SEND_BUDGET
            && let Some(datagram) = self.node.poll_datagram(now_ns)
        {
            sent += 1;
            let (to, path) = (datagram.to, datagram.header.path);
            let link = datagram.header.emit();
            let pushed = match datagram.body {
                DatagramBody::None => outbound.push(to, path, &link, Payload::EMPTY, &[]),
                DatagramBody::Ack(ack) => {
                    let mut bytes = [0; MAX_ACK_BYTES];
                    let length = ack.emit(&mut bytes);
                    outbound.push(to, path, &link, Payload::EMPTY, &bytes[..length])
                }
                DatagramBody::Packet(packet) => {
                    let mut head = [0; HEAD_BYTES];
                    head[..LINK_HEADER_BYTES].copy_from_slice(&link);
                    head[LINK_HEADER_BYTES..].copy_from_slice(packet.header.as_bytes());
                    let (payload, tail) = match &packet.source {
                        Source::Inline { bytes, length } => (Payload::EMPTY, &bytes[..usize::from(*length)]),
                        Source::Message(bytes) => (Payload::EMPTY, &bytes[..]),
                        Source::Memory { piece, trailer, .. } => (
                            Payload::one(mover::bytes_of(&self.pins, &self.garbage, piece)),
                            trailer.as_ref().map_or(&[][..], |trailer| trailer),
                        ),
                    };
                    outbound.push(to, path, &head, payload, tail)
                }
            };
            match pushed {
                Err(Lost::Stranger) => stranger = Some(to),
                Err(Lost::NoSession) => has_session = false,
                Err(Lost::TooLong | Lost::Forked) | Ok(()) => {}
            }
        }
        outbound.finish();
        if sent > 0 {
            self.attention.note_talk(now_ns);
        }
        if self.is_confined {
            if stranger.is_some() || !has_session {
                // The link sends it again.
                self.node.leave_for_later();
            }
            return sent > 0;
        }
        if let Some(to) = stranger {
            self.meet(to);
        }
        while let Some((peer, bytes)) = self.fabric.net().and_then(Net::poll_shortened) {
            self.handle_reached(peer, bytes);
        }
        sent > 0
    }

    /// Asks how a rank of another host is reached, once.
    #[cold]
    fn meet(&mut self, peer: NodeId) {
        if let Err(error) = self.fabric.request_connection(peer) {
            self.log.push(Line::NotConnected { to: peer, error });
        }
    }

    /// Datagrams of `bytes` at most can be sent to `peer` now.
    #[cold]
    pub(super) fn handle_reached(&mut self, peer: NodeId, bytes: usize) {
        self.node.make_room(peer);
        let payload = bytes.saturating_sub(LINK_HEADER_BYTES + HEADER_BYTES);
        self.node.set_max_payload(peer, payload);
    }
}
