//! The wires: each node has one in and one out; what is on a wire takes it for itself. A message that waits for the receiver's wire does
//! not hold up the sender's.

use mapwire_wire::NodeId;

use super::Machine;
use super::flight::{Flight, Outgoing};
use super::profile::{Cost, Ps};
use super::run::Event;
use super::timeline::Lane;

/// When a node's wires are free.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Port {
    out_free_ps: Ps,
    in_free_ps: Ps,
}

impl Machine {
    /// A message leaves. A page is sent on as it comes from the host, a pulse behind (cut-through, as Trapeze does).
    pub(super) fn transmit(&mut self, node: usize, out: Outgoing) {
        let profile = &self.jobs.profile;
        let bytes = self.jobs.message_bytes(out.bytes.len()) + out.page_bytes;
        let pulse = profile.of(Cost::PulseBytes).min(bytes);
        let (pulse_dma, pulse_wire) = (profile.dma(pulse), profile.wire(pulse));
        let latency = profile.of(Cost::WireLatency);
        let whole = profile.wire(bytes);
        let has_page = out.page_bytes > 0;
        let sender = &mut self.nodes[node];
        let (ready_ps, last_ps) = match has_page {
            true => {
                let transfer = sender.nic.transfer;
                (transfer.begin_ps + pulse_dma, transfer.end_ps + pulse_wire)
            }
            false => (self.now_ps, 0),
        };
        let begin_ps = ready_ps.max(self.now_ps).max(sender.port.out_free_ps);
        let end_ps = (begin_ps + whole).max(last_ps);
        sender.port.out_free_ps = end_ps;
        let to = usize::from(out.to.0);
        let receiver = &mut self.nodes[to];
        let head_ps = (begin_ps + latency).max(receiver.port.in_free_ps);
        let tail_ps = (head_ps + whole).max(end_ps + latency);
        receiver.port.in_free_ps = tail_ps;
        let flight = Flight {
            from: NodeId(node as u16),
            number: out.number,
            bytes: out.bytes,
            page_bytes: out.page_bytes,
            tail_ps,
        };
        let arrival_ps = if has_page { head_ps + pulse_wire } else { tail_ps };
        for (node, from_ps, to_ps) in [(node, begin_ps, end_ps), (to, head_ps, tail_ps)] {
            for (at_ps, begins) in [(from_ps, true), (to_ps, false)] {
                let is_wire = true;
                self.agenda.enter(at_ps, Event::Dma { node, is_wire, begins });
            }
        }
        let timeline = &mut self.timeline;
        timeline.note(node, Lane::SendWire, "sends", (begin_ps, end_ps));
        timeline.note(to, Lane::ReceiveWire, "receives", (head_ps, tail_ps));
        self.agenda.enter(arrival_ps, Event::Arrive { node: to, flight });
    }
}
