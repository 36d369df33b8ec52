//! When the kernel is asked for the senders of datagrams. That makes a small one about a tenth slower, and only handshakes need it: their answers
//! go to the sender's address, which their cookies bind.

/// For how long after a handshake's datagram: longer than handshakes ever wait before they repeat themselves, so that the datagrams of
/// other peers do not end it before.
const NAMING_NS: u64 = 1_000_000_000;

/// Whether the kernel is asked for senders, as it is at first.
#[derive(Debug)]
pub(super) struct Naming {
    /// Until when; `None` while it is not asked.
    until_ns: Option<u64>,
    /// Change that the sockets must be told.
    change: Option<bool>,
}

impl Naming {
    pub(super) const fn new() -> Self {
        Self { until_ns: Some(0), change: None }
    }

    /// A datagram of a handshake has come, from any sender.
    #[cold]
    pub(super) fn handle_handshake(&mut self, now_ns: u64) {
        if self.until_ns.is_none() {
            self.change = Some(true);
        }
        self.until_ns = Some(now_ns.saturating_add(NAMING_NS));
    }

    /// A datagram of a link has come.
    #[inline]
    pub(super) fn handle_data(&mut self, now_ns: u64) {
        if self.until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.until_ns = None;
            self.change = Some(false);
        }
    }

    /// Whether the kernel is to be asked from now on, if that has changed.
    #[inline]
    pub(super) fn take_change(&mut self) -> Option<bool> {
        self.change.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_asked_for_until_a_while_after_the_last_handshake() {
        let mut naming = Naming::new();
        naming.handle_handshake(0);
        naming.handle_data(NAMING_NS - 1);
        assert_eq!(naming.take_change(), None);
        naming.handle_data(NAMING_NS);
        assert_eq!(naming.take_change(), Some(false));
        naming.handle_handshake(2 * NAMING_NS);
        assert_eq!(naming.take_change(), Some(true));
        naming.handle_handshake(2 * NAMING_NS + 5);
        naming.handle_data(3 * NAMING_NS);
        assert_eq!(naming.take_change(), None);
    }
}
