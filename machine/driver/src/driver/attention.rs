//! Who sees to the timers of links while no thread of the program waits: the service thread, which must know of them.

use core::time::Duration;

use mapwire_transport::fabric::Fabric;

use super::{Driver, now_ns};

/// How long the service thread sleeps at most while this rank talks to other hosts, and by how much timers are late then: acks and
/// what is lost. A shorter time costs programs that compute.
pub(crate) const ATTENTIVE_NAP: Duration = Duration::from_millis(2);

/// How long a rank that has sent nothing more still counts as talking.
const TALK_NS: u64 = 50_000_000;

/// When the service thread looks again.
#[derive(Debug, Default)]
pub(super) struct Attention {
    /// At the latest, on the monotonic clock.
    until_ns: u64,
    /// When a datagram was sent last.
    talked_ns: u64,
    /// When a far peer was sent something last, or has sent it.
    far_talked_ns: u64,
    /// When a send last looked what they have sent.
    far_looked_ns: u64,
}

impl Attention {
    pub(super) fn note_talk(&mut self, now_ns: u64) {
        self.talked_ns = now_ns;
    }

    pub(super) fn note_far_talk(&mut self, now_ns: u64) {
        self.far_talked_ns = now_ns;
    }

    /// Whether the last look is older than `most_ns`; if so one is made now.
    pub(super) fn begin_far_look(&mut self, now_ns: u64, most_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.far_looked_ns) > most_ns;
        if is_due {
            self.far_looked_ns = now_ns;
        }
        is_due
    }

    pub(super) fn far_talked_ns(&self) -> u64 {
        self.far_talked_ns
    }
}

impl<F: Fabric> Driver<F> {
    /// Notes that the service thread is about to sleep for `nap` at most. Gives how long it may. `is_awaited`: a thread in the page-fault
    /// handler waits for it.
    pub(crate) fn begin_service_nap(&mut self, nap: Duration, is_awaited: bool) -> Duration {
        let nap = self.far_service_nap(nap, is_awaited);
        if self.attention.talked_ns == 0 {
            return nap;
        }
        let now_ns = now_ns();
        let nap = match now_ns.saturating_sub(self.attention.talked_ns) < TALK_NS {
            true => nap.min(ATTENTIVE_NAP),
            false => nap,
        };
        let nap_ns = u64::try_from(nap.as_nanos()).unwrap_or(u64::MAX);
        self.attention.until_ns = now_ns.saturating_add(nap_ns);
        nap
    }

    /// Whether something must be done long before the service thread looks again.
    #[inline]
    pub(crate) fn needs_attention(&self) -> bool {
        let until_ns = self.attention.until_ns;
        let due_ns = self.node.nic().poll_at();
        let late_ns = ATTENTIVE_NAP.as_nanos() as u64;
        due_ns.is_some_and(|due_ns| due_ns.saturating_add(late_ns) < until_ns)
    }

    /// Lets the service thread see to what a thread leaves behind that goes on with its own work.
    pub(super) fn ask_for_attention(&mut self) {
        if (self.is_blocked() || self.needs_attention()) && !self.to_ring.contains(&self.me) {
            self.to_ring.push(self.me);
        }
    }

    /// Sends the acks that wait for a packet to carry them: the thread that could send one goes on with its own work.
    pub(crate) fn acknowledge(&mut self) {
        if self.fabric.net().is_some() && self.node.hasten_acks() {
            self.transmit_datagrams();
        }
    }
}
