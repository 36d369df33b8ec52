//! What goes to ranks of other hosts and comes from them: datagrams, which may be lost.

use mapwire_host::waiting::now_ns;
use mapwire_nic::{BufferId, DatagramBody, Verdict};
use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_transport::fabric::Fabric;
use mapwire_transport::net::{Arrival, Lost, Net};
use mapwire_transport::payload::{Payload, Received};
use mapwire_wire::link::{LINK_HEADER_BYTES, MAX_ACK_BYTES};
use mapwire_wire::{HEADER_BYTES, Header, NodeId};
use zerocopy::{FromBytes, IntoBytes};

use super::Paths;
use crate::local::Local;
use crate::log::Line;
use crate::mover::Taken;

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

/// Takes a datagram, with `tries` to supply what it lacks. Whether it was taken.
#[inline]
fn take(local: &mut Local, (now_ns, from, bytes): (u64, NodeId, &[u8]), tries: usize) -> bool {
    let payload = Taken::from(Received::Inline(bytes.get(HEAD_BYTES..).unwrap_or(&[])));
    let mut is_taken = false;
    for left in (0..tries).rev() {
        is_taken = local.node.handle_datagram(now_ns, from, bytes, BufferId(0)) == Verdict::Taken;
        if is_taken || left == 0 {
            break;
        }
        local.serve_misses();
    }
    local.deliver(&payload);
    is_taken
}

impl<F: Fabric> Paths<F> {
    /// Takes what waits in the sockets if the timer of a link is due at `now_ns`: it may have come while this thread had no processor, and
    /// then is not late. Gives a time up to which all has been taken.
    pub(crate) fn catch_up(&mut self, local: &mut Local, mut now_ns: u64) -> u64 {
        let is_due = local.node.nic().poll_at().is_some_and(|at_ns| at_ns <= now_ns);
        if is_due && self.has_datagrams() {
            for _ in 0..MOST_CATCHES {
                if !self.receive_datagrams(local) {
                    break;
                }
                now_ns = mapwire_host::waiting::now_ns();
            }
        }
        now_ns
    }

    pub(super) fn receive_datagrams(&mut self, local: &mut Local) -> bool {
        let is_confined = local.node.is_confined();
        let mut received = !is_confined && self.left_datagram.is_there();
        if received {
            self.take_left(local);
        }
        self.fabric.begin_look();
        // What one call to the kernel brings has come at one time.
        let mut time_ns = None;
        for _ in 0..RECEIVE_BUDGET {
            let Some(net) = self.fabric.datagrams() else {
                break;
            };
            if is_confined {
                let is_free = !self.left_datagram.is_there();
                match net.is_next_of_session() {
                    None if is_free => break,
                    Some(true) if is_free => {}
                    _ => {
                        local.node.leave_for_later();
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
                Arrival::Stranger(_) if is_confined => continue,
                Arrival::Stranger(from) => {
                    self.connect(&mut local.outcomes, from);
                    continue;
                }
            };
            let datagram = (time_ns.unwrap_or_else(now_ns), from, bytes);
            if !is_confined {
                // What could not be taken comes again.
                take(local, datagram, TRIES);
            } else if local.outcomes.is_full()
                || !local.node.may_take_datagram(from, bytes)
                || !take(local, datagram, 1)
            {
                self.left_datagram.keep(from, bytes);
                local.node.leave_for_later();
                break;
            }
            self.end_datagram(local, from);
            // Others may wait for what came: what has come since is for the next turn.
            if !self.fabric.datagrams().is_some_and(|net| net.has_received()) {
                break;
            }
        }
        received
    }

    /// Takes the datagram that the page-fault handler has left.
    #[cold]
    fn take_left(&mut self, local: &mut Local) {
        let mut left = core::mem::take(&mut self.left_datagram);
        if let Some((from, bytes)) = left.take() {
            take(local, (now_ns(), from, bytes), TRIES);
            self.end_datagram(local, from);
        }
        self.left_datagram = left;
    }

    fn end_datagram(&mut self, local: &mut Local, from: NodeId) {
        if local.node.end_packet(from) {
            self.tell(local);
        }
        if !local.node.is_confined() {
            self.take_early(local, from);
        }
    }

    /// Takes the packets of `from` that came before their turn, and whose turn has come.
    fn take_early(&mut self, local: &mut Local, from: NodeId) {
        while let Some(packet) = local.node.poll_early(from) {
            // It was checked as it came.
            let Ok((header, bytes)) = Header::ref_from_prefix(&packet) else {
                continue;
            };
            let payload = Taken::from(Received::Inline(bytes));
            let is_taken = (0..TRIES).any(|_| {
                let is_taken = local.node.handle_packet(from, header, &payload, BufferId(0)) == Verdict::Taken;
                if !is_taken {
                    local.serve_misses();
                }
                is_taken
            });
            if !is_taken {
                // It is acked, and so cannot be dropped.
                local.outcomes.log(Line::Stuck { from });
                self.handle_gone(local, from);
                return;
            }
            local.deliver(&payload);
            if local.node.end_packet(from) {
                self.tell(local);
            }
        }
    }

    /// Sends the datagrams that are due. Whether there were any.
    pub(super) fn transmit_datagrams(&mut self, local: &mut Local) -> bool {
        let Some(net) = self.fabric.datagrams() else {
            return false;
        };
        if !local.node.has_datagrams() && !net.is_due_soon(now_ns) {
            return false;
        }
        let now_ns = now_ns();
        let is_confined = local.node.is_confined();
        if is_confined && net.is_due(now_ns) {
            // Handshakes need memory.
            local.node.leave_for_later();
            return false;
        }
        let mut outbound = net.begin(now_ns);
        outbound.set_confined(is_confined);
        let mut sent = 0;
        let (mut stranger, mut has_session) = (None, true);
        while sent < SEND_BUDGET
            && let Some(datagram) = local.node.poll_datagram(now_ns)
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
                    let (memory, tail) = local.memories.frames().parts_of(packet);
                    outbound.push(to, path, &head, memory.map_or(Payload::EMPTY, Payload::one), tail)
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
        if is_confined {
            if stranger.is_some() || !has_session {
                // The link sends it again.
                local.node.leave_for_later();
            }
            return sent > 0;
        }
        if let Some(to) = stranger {
            self.connect(&mut local.outcomes, to);
        }
        while let Some((peer, bytes)) = self.fabric.datagrams().and_then(Net::poll_shortened) {
            self.handle_reached(&mut local.node, peer, bytes);
        }
        sent > 0
    }

    /// Sends the acks that wait for a packet to carry them: the thread that could send one goes on with its own work.
    pub(crate) fn acknowledge(&mut self, local: &mut Local) {
        if self.has_datagrams() && local.node.hasten_acks() {
            self.transmit_datagrams(local);
        }
    }

    /// Datagrams of `bytes` at most can be sent to `peer` now.
    #[cold]
    pub(crate) fn handle_reached(&self, node: &mut Node<AnyDesign>, peer: NodeId, bytes: usize) {
        node.make_room(peer);
        node.set_max_payload(peer, bytes.saturating_sub(HEAD_BYTES));
    }
}
