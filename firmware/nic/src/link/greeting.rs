//! How a link learns the current incarnation of its peer.
//!
//! Each side asks the other for its epoch with a challenge that it has never used before, and believes only an answer to a
//! challenge of the open question. So no delayed or repeated datagram of a former incarnation can bring that incarnation back.

/// Challenges after which a peer is asked again only when it shows an unknown epoch, unless something waits to be sent.
const TRIES: u32 = 6;
/// Challenges after which their interval no longer doubles. Many peers that ask a busy one then no longer keep it busy.
const MOST_DOUBLINGS: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct Question {
    /// Number of the first challenge, and when it was sent.
    first: Option<(u64, u64)>,
    /// Number of the last challenge, and when it was sent. An answer to any challenge in between is believed: otherwise a peer
    /// whose answers take longer than the interval would never be known.
    last: Option<(u64, u64)>,
    tries: u32,
    next_ns: u64,
}

/// The epoch of the peer, and the question for it.
#[derive(Debug)]
pub(super) struct Greeting {
    known: Option<u64>,
    question: Option<Question>,
    /// Earliest time of the next question, so that foreign epochs cost one datagram an interval at most.
    next_question_ns: u64,
    interval_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The epoch that was known before.
    pub(super) before: Option<u64>,
    /// Upper bound on the nanoseconds between challenge and answer.
    pub(super) took_ns: u64,
}

impl Greeting {
    pub(super) const fn new(interval_ns: u64) -> Self {
        Self {
            known: None,
            question: None,
            next_question_ns: 0,
            interval_ns: if interval_ns == 0 { 1 } else { interval_ns },
        }
    }

    /// The peer's epoch, if known.
    pub(super) const fn known(&self) -> Option<u64> {
        self.known
    }

    /// Starts asking for the peer's epoch, unless a question is open.
    pub(super) fn begin(&mut self, now_ns: u64) {
        if self.question.is_none() {
            let next_ns = now_ns.max(self.next_question_ns);
            self.question = Some(Question { first: None, last: None, tries: 0, next_ns });
        }
    }

    pub(super) const fn cancel(&mut self) {
        self.question = None;
    }

    /// Time of the next challenge.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.question.map(|question| question.next_ns)
    }

    /// Whether a challenge with this number is to be sent now, and whether the one before it went unanswered. `is_awaited` when
    /// something waits to be sent.
    pub(super) fn poll(&mut self, now_ns: u64, number: u64, is_awaited: bool) -> Option<bool> {
        let question = self.question.as_mut().filter(|q| q.next_ns <= now_ns)?;
        let must_know = self.known.is_none() && is_awaited;
        if question.tries >= TRIES && !must_know {
            self.question = None;
            return None;
        }
        let again = question.last.replace((number, now_ns)).is_some();
        question.first.get_or_insert((number, now_ns));
        let wait_ns = self.interval_ns << question.tries.min(MOST_DOUBLINGS);
        question.tries += 1;
        question.next_ns = now_ns.saturating_add(wait_ns);
        self.next_question_ns = question.next_ns;
        Some(again)
    }

    /// A peer of `epoch` answers `challenge`. `None` if that challenge is not part of the open question.
    pub(super) fn handle_answer(&mut self, now_ns: u64, challenge: u64, epoch: u64) -> Option<Answer> {
        let question = self.question?;
        let (first, first_ns) = question.first?;
        let (last, last_ns) = question.last?;
        if !(first..=last).contains(&challenge) {
            return None;
        }
        // Only the first and last times are known: this is an upper bound.
        let sent_ns = if challenge == last { last_ns } else { first_ns };
        self.question = None;
        Some(Answer { before: self.known.replace(epoch), took_ns: now_ns.saturating_sub(sent_ns) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_to_a_challenge_of_the_open_question_is_believed() {
        let mut greeting = Greeting::new(100);
        assert_eq!(greeting.handle_answer(0, 0, 5), None);
        greeting.begin(10);
        assert_eq!(greeting.poll(10, 1, false), Some(false));
        assert_eq!((greeting.poll(109, 2, false), greeting.poll(110, 2, false)), (None, Some(true)));
        assert_eq!(greeting.handle_answer(120, 0, 5), None);
        assert_eq!(greeting.handle_answer(120, 3, 5), None);
        let first = Answer { before: None, took_ns: 15 };
        assert_eq!(greeting.handle_answer(125, 2, 5), Some(first));
        assert_eq!(greeting.handle_answer(126, 2, 6), None);
        assert_eq!(greeting.known(), Some(5));
        greeting.begin(1_000);
        assert_eq!(greeting.poll(1_000, 3, false), Some(false));
        assert_eq!(greeting.poll(1_100, 4, false), Some(true));
        // Answer to the former question.
        assert_eq!(greeting.handle_answer(1_110, 2, 6), None);
        let late = Answer { before: Some(5), took_ns: 120 };
        assert_eq!(greeting.handle_answer(1_120, 3, 6), Some(late));
    }

    #[test]
    fn a_silent_peer_is_asked_on_and_on_only_while_something_waits_for_it() {
        for (is_awaited, asks) in [(false, 6), (true, 20)] {
            let mut greeting = Greeting::new(100);
            greeting.begin(0);
            let mut sent = 0;
            while let Some(now_ns) = greeting.next_ns().filter(|_| sent < 20) {
                sent += u32::from(greeting.poll(now_ns, now_ns + 1, is_awaited).is_some());
            }
            assert_eq!(sent, asks);
        }
    }

    #[test]
    fn foreign_epochs_at_each_packet_cost_a_challenge_each_interval_and_end() {
        let mut greeting = Greeting::new(100);
        greeting.known = Some(5);
        let mut sent = 0;
        for now_ns in 0..100_000u64 {
            greeting.begin(now_ns);
            sent += u32::from(greeting.poll(now_ns, now_ns, true).is_some());
        }
        assert!((10..500).contains(&sent), "{sent}");
        assert_eq!(greeting.known(), Some(5));
    }
}
