//! When to acknowledge packets (RFC 9000 §13.2).

use mapwire_wire::link::LinkAck;

use super::LINK_WINDOW;
use super::ranges::Ranges;

/// Packets in order after which an ack goes at once: a quarter of the window. RFC 9000 §13.2.2 has 2, and allows more to a
/// receiver of batches: then the answer to a message of a few packets replaces their ack.
/// in batches have more: what answers a message of some packets then takes the place of their ack.
const EVERY: u32 = LINK_WINDOW / 4;
/// Packets in a row that may replace an ack by their expected number: only an ack tells the round-trip time.
const MOST_CARRIED: u32 = 16;

/// Acknowledgements owed to the peer.
#[derive(Debug, Default)]
pub(super) struct Acks {
    ranges: Ranges,
    /// Arrival time of the highest number.
    newest_ns: u64,
    due_ns: Option<u64>,
    /// Packets since the last ack, or since a packet of ours replaced one.
    since: u32,
    /// Packets of ours since the last ack that replaced one.
    carried: u32,
    last: LinkAck,
}

impl Acks {
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        (self.due_ns, self.since, self.carried) = (None, 0, 0);
    }

    /// Allocates all memory that it will need.
    pub(super) fn reserve(&mut self) {
        self.ranges.reserve();
    }

    /// A packet goes to the peer and tells it which number is expected. If nothing is missing, it replaces the ack.
    pub(super) const fn handle_carried(&mut self) {
        if self.may_be_carried() {
            (self.due_ns, self.since) = (None, 0);
            self.carried += 1;
        }
    }

    /// Whether a packet may replace the ack that is owed.
    pub(super) const fn may_be_carried(&self) -> bool {
        self.since > 0 && self.carried < MOST_CARRIED
    }

    /// Transmission `number` has arrived. The ack of one in order may wait `delay_ns` for the next; a repeated or early one is
    /// acked at once, so that its sender sees what is missing.
    pub(super) fn handle_arrived(&mut self, now_ns: u64, number: u64, in_order: bool, delay_ns: u64) {
        if self.ranges.last().is_none_or(|last| last < number) {
            self.newest_ns = now_ns;
        }
        self.ranges.insert(number);
        self.since += 1;
        let wait_ns = match in_order && self.since < EVERY {
            true => delay_ns,
            false => 0,
        };
        let due_ns = now_ns.saturating_add(wait_ns);
        self.due_ns = Some(self.due_ns.map_or(due_ns, |due| due.min(due_ns)));
    }

    /// Makes a waiting ack due now. Returns whether one was waiting.
    pub(super) fn hasten(&mut self) -> bool {
        self.due_ns = self.due_ns.map(|_| 0);
        self.due_ns.is_some()
    }

    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Whether an ack is due at `now_ns`; if so, it is [`last`](Self::last).
    pub(super) fn poll(&mut self, now_ns: u64) -> bool {
        if self.due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return false;
        }
        (self.due_ns, self.since, self.carried) = (None, 0, 0);
        let delay_ns = now_ns.saturating_sub(self.newest_ns);
        let ack = LinkAck::new(u32::try_from(delay_ns).unwrap_or(u32::MAX), self.ranges.iter());
        ack.map(|ack| self.last = ack).is_ok()
    }

    /// The ack that was due last.
    pub(super) const fn last(&self) -> &LinkAck {
        &self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_waits_for_the_next_and_what_is_early_does_not_wait() {
        let mut acks = Acks::default();
        acks.handle_arrived(100, 1, true, 50);
        assert_eq!((acks.due_ns(), acks.poll(149)), (Some(150), false));
        for number in 2..=u64::from(EVERY) {
            assert!(!acks.poll(120));
            acks.handle_arrived(120, number, true, 50);
        }
        assert!(acks.poll(130));
        let ack = acks.last();
        assert_eq!((ack.delay_ns, ack.ranges()), (10, &[(1, EVERY.into())][..]));
        assert!(!acks.poll(1000));
        acks.handle_arrived(1000, 50, false, 50);
        assert!(acks.poll(1000));
        assert_eq!(acks.last().ranges(), [(50, 50), (1, EVERY.into())]);
    }

    #[test]
    fn an_ack_that_is_hastened_does_not_wait_and_none_is_made_of_nothing() {
        let mut acks = Acks::default();
        assert!(!acks.hasten());
        acks.handle_arrived(100, 1, true, 50);
        assert!(acks.hasten());
        assert!(acks.poll(101));
        assert_eq!(acks.last().ranges(), [(1, 1)]);
        assert!(!acks.hasten());
    }

    #[test]
    fn packets_of_ours_take_the_place_of_acks_for_a_while() {
        let mut acks = Acks::default();
        let mut told = 0;
        for number in 1..=40 {
            acks.handle_arrived(number, number, true, 50);
            acks.handle_carried();
            told += u32::from(acks.poll(number + 50));
        }
        assert_eq!(told, 2);
    }
}
