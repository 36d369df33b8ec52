//! A simulated computer: a node, its memory, its clock, its processor time.

use std::collections::VecDeque;

use mapwire_node::Node;
use mapwire_translation::AnyDesign;

use super::sealing::Wrap;
use crate::hardware::memory::Memory;
use crate::hardware::node::Commands;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) offset_ns: u64,
    /// Billionths by which it is fast.
    pub(crate) drift_ppb: u64,
}

impl Clock {
    #[inline]
    pub(crate) fn shows(&self, time_ns: u64) -> u64 {
        let drift = u128::from(time_ns) * u128::from(self.drift_ppb) / 1_000_000_000;
        self.offset_ns + time_ns + drift as u64
    }

    /// The first time at which it shows `shown_ns` at least.
    pub(crate) fn time_of(&self, shown_ns: u64) -> u64 {
        let passed = u128::from(shown_ns.saturating_sub(self.offset_ns));
        let ppb = 1_000_000_000 + u128::from(self.drift_ppb);
        let mut time = (passed * 1_000_000_000 / ppb) as u64;
        while self.shows(time) < shown_ns {
            time += 1;
        }
        time
    }
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) node: Node<AnyDesign>,
    pub(crate) memory: Memory,
    pub(crate) commands: Vec<Commands>,
    /// How datagrams are wrapped, where there are any.
    pub(super) wrap: Option<Wrap>,
    pub(crate) clock: Clock,
    /// Packets that have arrived and wait for the processor.
    pub(crate) inbox: VecDeque<u32>,
    /// Until when the processor is busy.
    pub(crate) free_at_ns: u64,
    /// A `Run` event is on the agenda.
    pub(crate) is_scheduled: bool,
    /// When the port has sent what it has.
    pub(crate) port_free_ns: u64,
    /// The time of the timer event that counts.
    pub(crate) timer_ns: Option<u64>,
    /// A `Room` event is on the agenda.
    pub(crate) has_room_event: bool,
    /// How many times slower than others.
    pub(crate) slowness: u64,
    pub(crate) is_alive: bool,
    /// The fault by which its programs forge packets.
    pub(crate) forges: Option<u32>,
    /// Tries of the packet at the front of the inbox.
    pub(crate) tries: u32,
}
