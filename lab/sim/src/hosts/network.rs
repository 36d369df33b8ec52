//! Messages between ranks: what is under way, and in which order it is taken.

use crate::hardware::{Cost, Orders, Ps};

use super::machine::Machine;

#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) from: u16,
    pub(super) to: u16,
    /// Its number among those from the one to the other.
    number: u64,
    /// The message of the protocol.
    pub(super) bytes: Vec<u8>,
    /// Bytes of a minipage that came before it.
    pub(super) data: u64,
}

/// The wires of a host.
#[derive(Clone, Copy, Debug, Default)]
struct Wires {
    out_free_ps: Ps,
    in_free_ps: Ps,
}

/// What ranks send each other. The protocol's messages of one rank to another are taken in the order in which it made them.
#[derive(Debug)]
pub(super) struct Network {
    wires: Vec<Wires>,
    orders: Orders<Flight>,
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Network {
    pub(super) fn new(hosts: usize) -> Self {
        Self { wires: vec![Wires::default(); hosts], orders: Orders::default(), messages: 0, bytes: 0 }
    }

    /// A message that a rank has made.
    pub(super) fn make(&mut self, from: u16, to: u16, bytes: &[u8], data: u64) -> Flight {
        let number = self.orders.number(from, to);
        self.messages += 1;
        self.bytes += bytes.len() as u64 + data;
        Flight { from, to, number, bytes: bytes.to_vec(), data }
    }

    /// When a message that leaves its host now comes to the other.
    pub(super) fn transmit(&mut self, machine: &Machine, now_ps: Ps, hosts: (usize, usize), flight: &Flight) -> Ps {
        let (from, to) = hosts;
        let long_ps = (flight.bytes.len() as u64 + flight.data) * machine.of(Cost::WireByte);
        let latency_ps = machine.of(Cost::WireLatency);
        if from == to {
            return now_ps + long_ps + latency_ps;
        }
        let leaves_ps = now_ps.max(self.wires[from].out_free_ps);
        self.wires[from].out_free_ps = leaves_ps + long_ps;
        let begins_ps = (leaves_ps + latency_ps).max(self.wires[to].in_free_ps);
        self.wires[to].in_free_ps = begins_ps + long_ps;
        begins_ps + long_ps
    }

    /// A message has come: all that can be taken now, in order.
    pub(super) fn arrive(&mut self, flight: Flight) -> Vec<Flight> {
        self.orders.arrive((flight.from, flight.to), flight.number, flight)
    }
}
