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

/// Messages of one node to another, put in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Orders {
    sent: BTreeMap<NodeId, u64>,
    taken: BTreeMap<NodeId, u64>,
    early: BTreeMap<(NodeId, u64), Flight>,
}

impl Orders {
    /// The number of the next message to a node.
    pub(super) fn number(&mut self, to: NodeId) -> u64 {
        let number = self.sent.entry(to).or_default();
        *number += 1;
        *number
    }

    /// A message came.
    pub(super) fn arrive(&mut self, flight: Flight) {
        self.early.insert((flight.from, flight.number), flight);
    }

    /// The next message of a node whose turn it is.
    pub(super) fn next(&mut self, from: NodeId) -> Option<Flight> {
        let taken = self.taken.entry(from).or_default();
        let flight = self.early.remove(&(from, *taken + 1))?;
        *taken += 1;
        Some(flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_in_the_order_in_which_they_were_sent() {
        let mut orders = Orders::default();
        let from = NodeId(3);
        let flight = |number| Flight { from, number, bytes: Vec::new(), page_bytes: 0, tail_ps: 0 };
        orders.arrive(flight(2));
        assert!(orders.next(from).is_none());
        orders.arrive(flight(1));
        let taken = std::iter::from_fn(|| orders.next(from)).map(|it| it.number);
        assert_eq!(taken.collect::<Vec<_>>(), [1, 2]);
    }
}
