//! Who sees to the timers of links, and to peers that nobody rings this rank for, while no thread of the program waits: the service thread,
//! which must know of them.

use core::time::Duration;

use mapwire_host::waiting::now_ns;
use mapwire_transport::fabric::Unrung;

/// How long the service thread sleeps at most while this rank talks to other hosts, and by how much timers are late then: acks and
/// what is lost. A shorter time costs programs that compute.
pub(crate) const ATTENTIVE_NAP: Duration = Duration::from_millis(2);

/// How long a rank that has sent nothing more still counts as talking.
const TALK_NS: u64 = 50_000_000;

/// How long threads sleep at most that wait, where nothing wakes them for what far peers send.
const BLIND_NAP: Duration = Duration::from_micros(50);

/// How long the service thread does then while there is talk. A shorter time keeps threads that look themselves from the driver.
const BLIND_TALK_NAP: Duration = Duration::from_micros(250);

/// How long it does while there is no talk.
const BLIND_QUIET_NAP: Duration = Duration::from_millis(1);

/// How long threads sleep at most where the provider wakes them: what it does by time, such as to send again, nobody wakes them for.
const WATCHED_NAP: Duration = Duration::from_millis(50);

/// How old a look at far peers may be that a send relies on: it takes a system call.
const LOOK_NS: u64 = 50_000;

/// How long after its last packet a rank counts as talking to far peers.
const FAR_TALK_NS: u64 = 5_000_000;

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

    /// A packet has gone to a far peer, or waits to, or has come from one.
    pub(super) fn note_far_talk(&mut self) {
        self.far_talked_ns = now_ns();
    }

    /// Whether the last look at far peers is old; if so one is made now.
    #[cold]
    pub(super) fn begin_far_look(&mut self) -> bool {
        let now_ns = now_ns();
        let is_due = now_ns.saturating_sub(self.far_looked_ns) > LOOK_NS;
        if is_due {
            self.far_looked_ns = now_ns;
        }
        is_due
    }

    /// Notes that the service thread is about to sleep for `nap` at most. Gives how long it may. `is_awaited`: a thread in the page-fault
    /// handler waits for it.
    pub(super) fn begin_service_nap(
        &mut self,
        mut nap: Duration,
        unrung: Option<Unrung>,
        is_awaited: bool,
    ) -> Duration {
        let now_ns = now_ns();
        let is_recent = |at_ns: u64, span_ns: u64| now_ns.saturating_sub(at_ns) < span_ns;
        nap = nap.min(match unrung {
            None => nap,
            Some(Unrung::Blind) if is_awaited => BLIND_NAP,
            Some(Unrung::Blind) if is_recent(self.far_talked_ns, FAR_TALK_NS) => BLIND_TALK_NAP,
            Some(Unrung::Blind) => BLIND_QUIET_NAP,
            Some(Unrung::Watched) => WATCHED_NAP,
        });
        if self.talked_ns == 0 {
            return nap;
        }
        if is_recent(self.talked_ns, TALK_NS) {
            nap = nap.min(ATTENTIVE_NAP);
        }
        let nap_ns = u64::try_from(nap.as_nanos()).unwrap_or(u64::MAX);
        self.until_ns = now_ns.saturating_add(nap_ns);
        nap
    }

    /// Whether what is due at `due_ns` must be done long before the service thread looks again.
    #[inline]
    pub(super) fn is_late(&self, due_ns: u64) -> bool {
        due_ns.saturating_add(ATTENTIVE_NAP.as_nanos() as u64) < self.until_ns
    }
}

/// How long a thread that waits sleeps at most, where some peers ring nobody.
pub(super) fn waiting_nap(unrung: Unrung) -> Duration {
    match unrung {
        Unrung::Watched => WATCHED_NAP,
        Unrung::Blind => BLIND_NAP,
    }
}
