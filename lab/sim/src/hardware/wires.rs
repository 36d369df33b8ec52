//! Messages between services: the wires of each node, one in and one out, and the order in which messages are taken.

use std::collections::BTreeMap;

use mapwire_vmmc::service::Action;

use super::Ps;

/// A message of a service, with so many bytes of memory.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) from: u16,
    pub(crate) to: u16,
    /// Its number among those from the one to the other.
    number: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) data_bytes: u64,
    /// When its last byte is there.
    pub(crate) tail_ps: Ps,
}

/// When a message is on a wire: from its first byte to its last, at its sender and at its receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    pub(crate) begin_ps: Ps,
    pub(crate) end_ps: Ps,
    pub(crate) head_ps: Ps,
    pub(crate) tail_ps: Ps,
}

/// When the wires of each node are free: out and in. A message that waits for the receiver's wire does not hold up the sender's.
#[derive(Debug)]
pub(crate) struct Wires(Vec<[Ps; 2]>);

impl Wires {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(vec![[0; 2]; nodes])
    }

    /// A message can leave from `ready_ps` on, and its last byte not before `last_ps`. It takes a wire `whole_ps`.
    pub(crate) fn pass(
        &mut self,
        (from, to): (usize, usize),
        (ready_ps, last_ps): (Ps, Ps),
        (whole_ps, latency_ps): (Ps, Ps),
    ) -> Passage {
        let begin_ps = ready_ps.max(self.0[from][0]);
        let end_ps = (begin_ps + whole_ps).max(last_ps);
        self.0[from][0] = end_ps;
        let head_ps = (begin_ps + latency_ps).max(self.0[to][1]);
        let tail_ps = (head_ps + whole_ps).max(end_ps + latency_ps);
        self.0[to][1] = tail_ps;
        Passage { begin_ps, end_ps, head_ps, tail_ps }
    }
}

/// Messages between nodes, taken in the order in which each node made them for each other.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// By sender and receiver: messages made, and messages taken.
    numbers: BTreeMap<(u16, u16), (u64, u64)>,
    early: BTreeMap<(u16, u16, u64), Flight>,
    pub(crate) messages: u64,
    /// Of all messages, with their data.
    pub(crate) bytes: u64,
}

impl Orders {
    pub(crate) fn make(&mut self, from: u16, to: u16, bytes: &[u8], data_bytes: u64) -> Flight {
        let (made, _) = self.numbers.entry((from, to)).or_default();
        *made += 1;
        self.messages += 1;
        self.bytes += bytes.len() as u64 + data_bytes;
        Flight { from, to, number: *made - 1, bytes: bytes.to_vec(), data_bytes, tail_ps: 0 }
    }

    /// The message that a service asks for; `None` if it asks for something else.
    pub(crate) fn make_asked(&mut self, from: u16, action: &Action<'_>) -> Option<Flight> {
        match *action {
            Action::Send { to, message } => Some(self.make(from, to.node.0, message, 0)),
            Action::Store { to, region, message, .. } => Some(self.make(from, to.node.0, message, region.bytes)),
            // These runs have no bytes that could differ: all may have.
            Action::StoreChanges { to, region, message, .. } => Some(self.make(from, to.node.0, message, region.bytes)),
            Action::Protect { .. } | Action::Fetch { .. } | Action::Change(_) => None,
        }
    }

    /// A message has come: all that can be taken now, in order.
    pub(crate) fn arrive(&mut self, flight: Flight) -> Vec<Flight> {
        let (from, to) = (flight.from, flight.to);
        self.early.insert((from, to, flight.number), flight);
        let (_, taken) = self.numbers.entry((from, to)).or_default();
        let mut ready = Vec::new();
        while let Some(next) = self.early.remove(&(from, to, *taken)) {
            *taken += 1;
            ready.push(next);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_in_the_order_in_which_they_were_sent() {
        let mut orders = Orders::default();
        let [first, second] = ["first", "second"].map(|text| orders.make(3, 4, text.as_bytes(), 0));
        let other = orders.make(4, 3, b"another way", 0);
        let mut arrive = |flight| orders.arrive(flight).into_iter().map(|it| it.bytes).collect::<Vec<_>>();
        assert_eq!(arrive(second), [b""; 0]);
        assert_eq!(arrive(other), [b"another way"]);
        assert_eq!(arrive(first), [&b"first"[..], b"second"]);
    }
}
