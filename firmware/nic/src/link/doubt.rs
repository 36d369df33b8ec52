//! Detects spurious timeouts: the peer was late, and nothing was lost.

use mapwire_wire::link::LinkAck;

use super::sent::Flight;

/// The first timeout in a row, while it may be spurious, and the evidence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubts {
    doubt: Option<Doubt>,
    next_heard: u64,
    /// Whether an earlier datagram of the peer is missing since the timeout.
    is_missing: bool,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// Number and time of the last transmission before the timeout.
    number: u64,
    sent_ns: u64,
    /// Time of the first answer, and whether a datagram of the peer was missing then.
    answered: Option<(u64, bool)>,
    /// The window before it shrank, or 0.
    window_bytes: u64,
}

/// What an ack says of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// What was sent before it is lost.
    Needed,
    Spurious {
        /// Nanoseconds from the last transmission before it to the answer.
        took_ns: u64,
        /// The window before it shrank, or 0.
        window_bytes: u64,
    },
}

impl Doubts {
    /// A datagram of the peer with this number has come.
    pub(super) fn handle_heard(&mut self, number: u64) {
        self.is_missing |= number > self.next_heard;
        self.next_heard = self.next_heard.max(number.saturating_add(1));
    }

    /// A timeout: nothing has arrived in time since `last` was sent.
    pub(super) fn begin(&mut self, last: Option<&Flight>) {
        self.doubt =
            last.map(|last| Doubt { number: last.number, sent_ns: last.sent_ns, answered: None, window_bytes: 0 });
        self.is_missing = false;
    }

    /// The window shrinks from `window_bytes`.
    pub(super) fn handle_collapse(&mut self, window_bytes: u64) {
        if let Some(doubt) = &mut self.doubt {
            doubt.window_bytes = window_bytes;
        }
    }

    /// Something has arrived, which is new if `is_news`. The timeout was spurious if an ack, perhaps only that of the probe, says
    /// that earlier transmissions have arrived (RFC 3708), and if no datagram of the peer was lost, so that its first answer was
    /// late (Eifel, RFC 4015).
    pub(super) fn resolve(&mut self, now_ns: u64, is_news: bool, ack: Option<&LinkAck>) -> Option<Verdict> {
        let doubt = self.doubt.as_mut()?;
        if is_news {
            doubt.answered.get_or_insert((now_ns, self.is_missing));
        }
        let doubt = *doubt;
        let ranges = ack.map_or(&[][..], LinkAck::ranges);
        if ranges.first().is_none_or(|range| range.1 < doubt.number) {
            return None;
        }
        self.doubt = None;
        let mut named = ranges.iter().map(|(first, last)| *first..=*last);
        if !named.any(|range| range.contains(&doubt.number)) {
            return Some(Verdict::Needed);
        }
        let answered = doubt.answered.filter(|(_, is_missing)| !is_missing);
        answered.map(|(answered_ns, _)| Verdict::Spurious {
            took_ns: answered_ns.saturating_sub(doubt.sent_ns),
            window_bytes: doubt.window_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_late_an_answer_was_is_told_by_the_first_one_though_a_later_ack_settles_it() {
        let last = Flight { number: 5, sequence: 5, sent_ns: 100, bytes: 8 };
        let mut doubts = Doubts::default();
        doubts.begin(Some(&last));
        // A packet of the peer says nothing about transmissions.
        assert_eq!(doubts.resolve(400, true, None), None);
        let older = LinkAck::new(0, [(0, 4)]).unwrap();
        assert_eq!(doubts.resolve(500, true, Some(&older)), None);
        let both = LinkAck::new(0, [(0, 6)]).unwrap();
        let verdict = Verdict::Spurious { took_ns: 300, window_bytes: 0 };
        assert_eq!(doubts.resolve(900, true, Some(&both)), Some(verdict));
        assert_eq!(doubts.resolve(901, true, Some(&both)), None);
    }
}
