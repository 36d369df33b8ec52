//! Messages on their way, and their order.

use std::collections::BTreeMap;

use mapwire_gms::{Message, Operation};
use mapwire_wire::NodeId;

use super::profile::Ps;

/// A message that a node's service has asked to be sent.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) to: NodeId,
    /// Its number among those to this node.
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    /// Bytes of memory that go with it.
    pub(super) page_bytes: u64,
}

/// A message on a wire.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) from: NodeId,
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) page_bytes: u64,
    /// When its last byte is there.
    pub(super) tail_ps: Ps,
}

/// Whether a message is an operation of the page directory, which a NIC can carry out (GMS-NP §3.2).
pub(super) fn is_for_directory(bytes: &[u8]) -> bool {
    match Message::parse(bytes) {
        Ok(Message::Request(request)) => matches!(
            request.operation,
            Operation::Get | Operation::Take | Operation::NotHere | Operation::NotHereTake | Operation::Discard
        ),
        Ok(Message::Insert { .. } | Message::Remove { .. } | Message::Spare { .. } | Message::Reset { .. }) => true,
        _ => false,
    }
}

/// Messages between nodes, taken in the order in which each node made them for each other.
#[derive(Debug)]
pub(crate) struct Orders<T> {
    /// By sender and receiver: messages made, and messages taken.
    numbers: BTreeMap<(u16, u16), (u64, u64)>,
    early: BTreeMap<(u16, u16, u64), T>,
}

impl<T> Default for Orders<T> {
    fn default() -> Self {
        Self { numbers: BTreeMap::new(), early: BTreeMap::new() }
    }
}

impl<T> Orders<T> {
    /// The number of the next message that one node makes for another.
    pub(crate) fn number(&mut self, from: u16, to: u16) -> u64 {
        let (made, _) = self.numbers.entry((from, to)).or_default();
        *made += 1;
        *made - 1
    }

    /// A message has come: all that can be taken now, in order.
    pub(crate) fn arrive(&mut self, (from, to): (u16, u16), number: u64, message: T) -> Vec<T> {
        self.early.insert((from, to, number), message);
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
        assert_eq!([0, 1, 2].map(|_| orders.number(3, 4)), [0, 1, 2]);
        assert_eq!(orders.arrive((3, 4), 1, "second"), [""; 0]);
        assert_eq!(orders.arrive((4, 3), 0, "another way"), ["another way"]);
        assert_eq!(orders.arrive((3, 4), 0, "first"), ["first", "second"]);
    }
}
