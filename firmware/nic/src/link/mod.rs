//! A link to one peer over a transport that may lose, repeat, reorder and delay packets.
//!
//! [`Link`] gives a NIC the guarantees of a lossless transport: each packet once, in order, from the peer's present incarnation.
//! It holds no payload of its own packets: its owner keeps the queue from the oldest unacked packet on, and emits a packet again
//! when [`Link::poll`] says so. A command is over when its last packet is acked, since its memory may be read again until then.
//!
//! A receiver that cannot take the packet that is due drops it, and asks for it [again](Link::ask_again) once it can (dynamic
//! handle lookup §IV-A). The paper's link has no such request and waits for a timeout, which §V-B names as the price of a miss.
//!
//! Each transmission has a number of its own, also when its packet was sent before (RFC 9002 §2, "monotonically increasing packet
//! numbers"), so that a round-trip time is never taken from the wrong copy. The packet's sequence number gives its place in order.
//!
//! Three later acks or a timer (RFC 6298) show a loss, as in RFC 9002. The window follows CUBIC (RFC 9438), and transmissions are paced. A
//! timeout that proves spurious widens the timer and gives the window back; owners read what waits in their sockets before they let a timer
//! fire. A silent peer that owes an answer is probed, and is dead after [`LinkConfig::dead_after_ns`].

mod acks;
mod cubic;
mod doubt;
mod greeting;
mod machine;
mod pacing;
mod paths;
mod ranges;
mod reorder;
mod rtt;
mod sent;
mod stats;
#[cfg(test)]
mod tests;

pub(crate) use machine::MOST_EVENTS;
pub use machine::{Body, Datagram, Ignored, Link, LinkConfig, LinkEvent, Received};
pub use reorder::Arrival;
pub use stats::{LinkCounters, LinkStats};

/// Packets of a link that may be unacked, and that a receiver keeps if they arrive early.
pub const LINK_WINDOW: u32 = 64;
