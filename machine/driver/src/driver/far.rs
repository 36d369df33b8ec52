//! Ranks of other hosts that libfabric reaches: nobody rings this rank for what they send, and the page-fault handler must not call the
//! library.

use core::time::Duration;

use mapwire_transport::fabric::Fabric;

use super::{Driver, now_ns};

/// How long threads sleep at most that wait, where the provider has nothing to sleep on.
const BLIND_NAP: Duration = Duration::from_micros(50);

/// How long the service thread does then while there is talk. A shorter time keeps threads that look themselves from the driver.
const TALK_NAP: Duration = Duration::from_micros(250);

/// How long it does while there is none.
const QUIET_NAP: Duration = Duration::from_millis(1);

/// How long threads sleep at most where the provider wakes them: what it does by time, such as to send again, nobody wakes them for.
const LONGEST_NAP: Duration = Duration::from_millis(50);

/// How old a look may be that a send relies on: it takes a system call.
const LOOK_NS: u64 = 50_000;

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

    /// Looks what far peers have sent, unless that was just done.
    pub(super) fn look_far(&mut self) {
        let is_due = self.attention.begin_far_look(now_ns(), LOOK_NS);
        if is_due && let Some(far) = self.fabric.far() {
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

    /// How long the service thread sleeps at most, of `nap`. `is_awaited`: a thread in the page-fault handler waits for it.
    pub(super) fn far_service_nap(&mut self, nap: Duration, is_awaited: bool) -> Duration {
        match self.far_nap() {
            None => nap,
            Some(BLIND_NAP) if !is_awaited => {
                let quiet_ns = now_ns().saturating_sub(self.attention.far_talked_ns());
                nap.min(if quiet_ns < TALK_NS { TALK_NAP } else { QUIET_NAP })
            }
            Some(longest) => nap.min(longest),
        }
    }
}
