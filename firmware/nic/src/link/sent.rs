//! Packets that are sent and not acked.

use alloc::collections::VecDeque;

use mapwire_wire::link::LinkAck;

use super::LINK_WINDOW;

/// A transmission is lost once one this many numbers later is acked (RFC 9002 §6.1.1).
const PACKET_THRESHOLD: u64 = 3;

/// An unacked packet, whose contents its owner keeps.
#[derive(Clone, Copy, Debug)]
struct Packet {
    bytes: u32,
    /// Copies of it that are neither acked nor lost.
    out: u32,
    /// It was sent more than once: which copy arrived is unknown (Karn and Partridge 1987).
    repeated: bool,
    acked: bool,
}

/// A transmission that is neither acked nor lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) number: u64,
    pub(super) sequence: u32,
    pub(super) sent_ns: u64,
    pub(super) bytes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The newest transmission that it acks for the first time.
    pub(super) newest: Option<Flight>,
    /// Whether that is the newest that the ack names, so that its time is a round trip (RFC 9002 §5.1).
    pub(super) timed: bool,
    /// When the newest packet was sent that a packet of the peer acknowledges, if known.
    pub(super) carried_ns: Option<u64>,
    /// Bytes of transmissions that have arrived.
    pub(super) bytes: u64,
    /// Whether further packets are acked, even if all their transmissions counted as lost.
    pub(super) advanced: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// When the newest lost transmission was sent.
    pub(super) newest_sent_ns: Option<u64>,
    /// When the next transmission is lost unless it is acked.
    pub(super) next_ns: Option<u64>,
}

/// An ack of what was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NeverSent;

/// Packets by sequence number, and their transmissions by number.
#[derive(Debug)]
pub(super) struct Sent {
    /// Sequence number of the first of `packets`.
    base: u32,
    packets: VecDeque<Packet>,
    /// In ascending order of their numbers.
    flights: VecDeque<Flight>,
    in_flight_bytes: u64,
    /// Highest number that the peer has acked.
    acked_number: Option<u64>,
    next_number: u64,
    /// Packets acked since the last `take_over`.
    over: u32,
}

impl Sent {
    pub(super) const fn new(base: u32) -> Self {
        Self {
            base,
            packets: VecDeque::new(),
            flights: VecDeque::new(),
            in_flight_bytes: 0,
            acked_number: None,
            next_number: 1,
            over: 0,
        }
    }

    /// Forgets all packets; numbers go on, so that none is used twice.
    pub(super) fn reset(&mut self, base: u32) {
        let next_number = self.next_number;
        *self = Self { next_number, ..Self::new(base) };
    }

    /// Takes the memory for a full window, and as many copies again.
    pub(super) fn reserve(&mut self) {
        let window = LINK_WINDOW as usize;
        let missing = |most: usize, length: usize| most.saturating_sub(length);
        self.packets.reserve_exact(missing(window, self.packets.len()));
        self.flights.reserve_exact(missing(2 * window, self.flights.len()));
    }

    /// Whether one more transmission can be recorded without allocating.
    pub(super) fn has_room(&self) -> bool {
        self.packets.len() < self.packets.capacity() && self.flights.len() < self.flights.capacity()
    }

    pub(super) const fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Sequence number of the oldest unacked packet.
    pub(super) const fn base(&self) -> u32 {
        self.base
    }

    pub(super) const fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Number of unacked packets.
    pub(super) fn len(&self) -> u32 {
        self.packets.len() as u32
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= LINK_WINDOW
    }

    pub(super) fn last(&self) -> Option<&Flight> {
        self.flights.back()
    }

    /// Sequence number and bytes of the oldest packet without a copy under way.
    pub(super) fn lost(&self) -> Option<(u32, u32)> {
        let at = self.packets.iter().position(|p| !p.acked && p.out == 0)?;
        Some((self.base.wrapping_add(at as u32), self.packets[at].bytes))
    }

    /// The packet with `skip` older unacked ones, or the last.
    pub(super) fn oldest(&self, skip: usize) -> Option<u32> {
        let mut open = (0u32..).zip(&self.packets).filter(|(_, p)| !p.acked);
        let first = open.next()?;
        let (at, _) = open.take(skip).last().unwrap_or(first);
        Some(self.base.wrapping_add(at))
    }

    /// A new packet of `bytes` is sent. Returns its sequence and transmission numbers.
    pub(super) fn handle_new(&mut self, now_ns: u64, bytes: u32) -> (u32, u64) {
        let sequence = self.base.wrapping_add(self.len());
        self.packets.push_back(Packet { bytes, out: 0, repeated: false, acked: false });
        (sequence, self.transmit(now_ns, sequence))
    }

    /// Packet `sequence` is sent again. Returns its transmission number.
    pub(super) fn handle_again(&mut self, now_ns: u64, sequence: u32) -> u64 {
        let at = sequence.wrapping_sub(self.base) as usize;
        if let Some(packet) = self.packets.get_mut(at) {
            packet.repeated = true;
        }
        self.transmit(now_ns, sequence)
    }

    fn transmit(&mut self, now_ns: u64, sequence: u32) -> u64 {
        let number = self.take_number();
        let at = sequence.wrapping_sub(self.base) as usize;
        if let Some(packet) = self.packets.get_mut(at) {
            packet.out += 1;
            self.in_flight_bytes += u64::from(packet.bytes);
            self.flights.push_back(Flight { number, sequence, sent_ns: now_ns, bytes: packet.bytes });
        }
        number
    }

    /// The peer expects `expected` next, and has received what `ack` names.
    pub(super) fn handle_ack(&mut self, expected: u32, ack: Option<&LinkAck>) -> Result<Progress, NeverSent> {
        let ranges = ack.map_or(&[][..], LinkAck::ranges);
        let highest = ranges.first().map(|range| range.1);
        if highest.is_some_and(|number| number >= self.next_number) {
            return Err(NeverSent);
        }
        let ahead = expected.wrapping_sub(self.base);
        if ahead > self.len() && ahead <= u32::MAX / 2 {
            return Err(NeverSent);
        }
        // An ack overtaken by a newer one expects what is long over.
        let before = if ahead > self.len() { 0 } else { ahead };
        for packet in self.packets.iter_mut().take(before as usize) {
            packet.acked = true;
        }
        let mut progress = Progress::default();
        let base = self.base;
        if ack.is_none() && before > 0 && !self.packets[before as usize - 1].repeated {
            let newest = expected.wrapping_sub(1);
            let flight = self.flights.iter().rfind(|flight| flight.sequence == newest);
            progress.carried_ns = flight.map(|flight| flight.sent_ns);
        }
        let packets = &mut self.packets;
        let named = |number: u64| ranges.iter().any(|(first, last)| (*first..=*last).contains(&number));
        for flight in &self.flights {
            if named(flight.number) {
                progress.newest = Some(*flight);
                if let Some(packet) = packets.get_mut(flight.sequence.wrapping_sub(base) as usize) {
                    packet.acked = true;
                }
            }
        }
        progress.timed = progress.newest.map(|flight| flight.number) == highest;
        let in_flight_bytes = &mut self.in_flight_bytes;
        self.flights.retain(|flight| {
            let at = flight.sequence.wrapping_sub(base) as usize;
            let open = packets.get(at).is_some_and(|packet| !packet.acked);
            if !open {
                *in_flight_bytes -= u64::from(flight.bytes);
                progress.bytes += u64::from(flight.bytes);
            }
            open
        });
        self.acked_number = self.acked_number.max(highest);
        while self.packets.front().is_some_and(|packet| packet.acked) {
            self.packets.pop_front();
            self.base = self.base.wrapping_add(1);
            self.over += 1;
            progress.advanced = true;
        }
        Ok(progress)
    }

    /// The receiver has dropped the oldest packet, and asks for it again.
    pub(super) fn handle_asked_again(&mut self) {
        let (base, in_flight_bytes) = (self.base, &mut self.in_flight_bytes);
        self.flights.retain(|flight| {
            let stays = flight.sequence != base;
            if !stays {
                *in_flight_bytes -= u64::from(flight.bytes);
            }
            stays
        });
        if let Some(packet) = self.packets.front_mut() {
            packet.out = 0;
        }
    }

    /// Heap memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.packets.capacity() * size_of::<Packet>() + self.flights.capacity() * size_of::<Flight>()
    }

    /// Packets acked since the last call, oldest first.
    pub(super) fn take_over(&mut self) -> u32 {
        core::mem::take(&mut self.over)
    }

    /// Finds what is lost at `now_ns`, if an ack is late after `delay_ns`.
    pub(super) fn detect_losses(&mut self, now_ns: u64, delay_ns: u64) -> Losses {
        let mut losses = Losses::default();
        let Some(acked) = self.acked_number else {
            return losses;
        };
        let (base, packets) = (self.base, &mut self.packets);
        let in_flight_bytes = &mut self.in_flight_bytes;
        self.flights.retain(|flight| {
            if flight.number >= acked {
                return true;
            }
            let late_ns = flight.sent_ns.saturating_add(delay_ns);
            if acked - flight.number < PACKET_THRESHOLD && late_ns > now_ns {
                losses.next_ns = Some(losses.next_ns.map_or(late_ns, |next| next.min(late_ns)));
                return true;
            }
            *in_flight_bytes -= u64::from(flight.bytes);
            if let Some(packet) = packets.get_mut(flight.sequence.wrapping_sub(base) as usize) {
                packet.out -= 1;
            }
            losses.newest_sent_ns = losses.newest_sent_ns.max(Some(flight.sent_ns));
            false
        });
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(ranges: &[(u64, u64)]) -> LinkAck {
        LinkAck::new(0, ranges.iter().copied()).unwrap()
    }

    #[test]
    fn a_packet_of_the_peer_times_what_was_sent_once() {
        let mut sent = Sent::new(0);
        for at in 0..3 {
            sent.handle_new(at, 100);
        }
        assert_eq!(sent.handle_ack(2, None).unwrap().carried_ns, Some(1));
        assert_eq!(sent.handle_ack(2, None).unwrap().carried_ns, None);
        sent.handle_again(9, 2);
        assert_eq!(sent.handle_ack(3, None).unwrap().carried_ns, None);
        sent.handle_new(10, 100);
        let progress = sent.handle_ack(4, Some(&ack(&[(5, 5)]))).unwrap();
        assert_eq!((progress.timed, progress.carried_ns), (true, None));
    }

    #[test]
    fn packets_are_over_in_their_order_and_three_later_acks_lose_one() {
        let mut sent = Sent::new(u32::MAX - 1);
        for at in 0..5 {
            let (sequence, number) = sent.handle_new(at, 100);
            assert_eq!((sequence, number), ((u32::MAX - 1).wrapping_add(at as u32), at + 1));
        }
        let progress = sent.handle_ack(u32::MAX - 1, Some(&ack(&[(2, 3)]))).unwrap();
        assert_eq!((progress.bytes, progress.timed, sent.take_over()), (200, true, 0));
        assert_eq!(sent.detect_losses(5, 100).next_ns, Some(100));
        assert_eq!(sent.lost(), None);
        sent.handle_ack(u32::MAX - 1, Some(&ack(&[(2, 4)]))).unwrap();
        assert_eq!(sent.detect_losses(5, 100).newest_sent_ns, Some(0));
        assert_eq!(sent.lost(), Some((u32::MAX - 1, 100)));
        assert_eq!(sent.handle_again(6, u32::MAX - 1), 6);
        assert_eq!((sent.lost(), sent.in_flight_bytes()), (None, 200));
        sent.handle_ack(2, None).unwrap();
        assert_eq!((sent.take_over(), sent.len(), sent.in_flight_bytes()), (4, 1, 100));
    }

    #[test]
    fn time_loses_what_an_ack_has_passed_and_nothing_else() {
        let mut sent = Sent::new(0);
        for at in 0..3 {
            sent.handle_new(at, 100);
        }
        assert!(sent.detect_losses(1_000_000, 100).newest_sent_ns.is_none());
        sent.handle_ack(0, Some(&ack(&[(2, 2)]))).unwrap();
        assert_eq!(sent.detect_losses(99, 100).next_ns, Some(100));
        assert_eq!(sent.detect_losses(100, 100).newest_sent_ns, Some(0));
        assert_eq!((sent.lost(), sent.oldest(1)), (Some((0, 100)), Some(2)));
    }

    #[test]
    fn an_ack_of_what_was_never_sent_changes_nothing() {
        let mut sent = Sent::new(0);
        sent.handle_new(0, 100);
        assert_eq!(sent.handle_ack(2, None).err(), Some(NeverSent));
        for range in [(2, 2), (1, u64::MAX), (0, 2)] {
            assert_eq!(sent.handle_ack(1, Some(&ack(&[range]))).err(), Some(NeverSent));
        }
        assert_eq!((sent.take_over(), sent.in_flight_bytes()), (0, 100));
        // An ack older than everything under way says nothing new.
        sent.handle_ack(u32::MAX - 5, None).unwrap();
        assert_eq!(sent.take_over(), 0);
    }

    #[test]
    fn a_packet_that_counted_as_lost_is_over_when_a_late_ack_comes() {
        let mut sent = Sent::new(0);
        sent.handle_new(0, 100);
        sent.handle_asked_again();
        assert_eq!((sent.lost(), sent.in_flight_bytes()), (Some((0, 100)), 0));
        let progress = sent.handle_ack(1, None).unwrap();
        assert!(progress.advanced && progress.bytes == 0);
        assert_eq!((sent.take_over(), sent.len()), (1, 0));
    }

    #[test]
    fn copies_of_an_acked_packet_are_no_longer_under_way() {
        let mut sent = Sent::new(0);
        sent.handle_new(0, 100);
        sent.handle_again(1, 0);
        assert_eq!(sent.in_flight_bytes(), 200);
        sent.handle_ack(0, Some(&ack(&[(2, 2)]))).unwrap();
        assert_eq!((sent.in_flight_bytes(), sent.last().is_none(), sent.take_over()), (0, true, 1));
    }
}
