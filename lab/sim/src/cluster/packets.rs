//! Packets under way, by numbers that are used again.

use super::{Cluster, Event, KEPT_BYTES};
use crate::hardware::packets::{Form, Packet};

impl Cluster {
    /// The packet has been taken, or is lost with its receiver.
    pub(super) fn let_go(&mut self, packet: u32) {
        let Packet { from, to, form, .. } = self.packets[packet as usize];
        self.recycle(packet);
        if form == Form::Early {
            return;
        }
        let now_ns = self.now_ns;
        let link = self.link(from, to);
        link.queued -= 1;
        if link.is_full {
            link.is_full = false;
            let host = &mut self.hosts[usize::from(from.0)];
            if host.is_alive && !host.has_room_event {
                host.has_room_event = true;
                self.agenda.enter(now_ns + 1, Event::Room(from));
            }
        }
    }

    /// The number of a packet may be used again.
    pub(super) fn recycle(&mut self, packet: u32) {
        let payload = &mut self.packets[packet as usize].payload;
        payload.clear();
        payload.shrink_to(KEPT_BYTES);
        self.free_packets.push(packet);
    }

    /// The number of a packet, which is empty.
    pub(super) fn slot(packets: &mut Vec<Packet>, free: &mut Vec<u32>) -> u32 {
        let index = free.pop().unwrap_or_else(|| {
            packets.push(Packet::NONE);
            packets.len() as u32 - 1
        });
        let slot = &mut packets[index as usize];
        (slot.is_damaged, slot.late) = (false, None);
        index
    }
}
