//! Ranks of other hosts that libfabric reaches: nobody rings this rank for what they send, and the page-fault handler must not call the
//! library.

use core::time::Duration;

use mapwire_transport::fabric::Fabric;

use super::{Driver, now_ns};

/// How long threads sleep at most where the provider has nothing to sleep on: those that wait and, while there is talk, the service
/// thread.
const BLIND_NAP: Duration = Duration::from_micros(50);

/// How long the service thread does then, while nobody talks.
const QUIET_NAP: Duration = Duration::from_millis(1);

/// How long threads sleep at most where the provider wakes them: what it does by time, such as to send again, nobody wakes them for.
const LONGEST_NAP: Duration = Duration::from_millis(20);

/// How long after its last packet a rank counts as talking.
const TALK_NS: u64 = 5_000_000;

impl<F: Fabric> Driver<F> {
    /// A packet has gone to a far peer, or waits to, or has come from one.
    #[inline]
    pub(super) fn note_far_talk(&mut self) {
        self.attention.note_far_talk(now_ns());
    }

    /// Whether any rank is far: threads in the page-fault handler wait for others then.
    #[inline]
    pub(crate) fn has_far(&mut self) -> bool {
        self.fabric.far().is_some()
    }

    /// Looks what far peers have sent.
    pub(super) fn look_far(&mut self) {
        if let Some(far) = self.fabric.far() {
            far.look();
        }
    }

    /// How long a thread that waits sleeps at most, where any rank is far.
    pub(crate) fn far_nap(&mut self) -> Option<Duration> {
        let far = self.fabric.far()?;
        Some(match far.fd() {
            Some(_) => LONGEST_NAP,
            None => BLIND_NAP,
        })
    }

    /// How long the service thread sleeps at most, of `nap`.
    pub(super) fn far_service_nap(&mut self, nap: Duration) -> Duration {
        match self.far_nap() {
            None => nap,
            Some(BLIND_NAP) => {
                let quiet_ns = now_ns().saturating_sub(self.attention.far_talked_ns());
                nap.min(if quiet_ns < TALK_NS {
                    BLIND_NAP
                } else {
                    QUIET_NAP
                })
            }
            Some(longest) => nap.min(longest),
        }
    }
}
