//! The firmware of a mapwire network interface: one state machine that takes commands of local processes and packets of other
//! nodes, and decides what to transmit, what to move in memory, and what to report.
//!
//! It sees no clock, thread, socket or memory. A driver (the machine's, or a simulator's) feeds it and drains it; see [`Nic`] for
//! the order of calls. What it decides:
//!
//! * whether a store or fetch is allowed: nothing is applied before its 128-bit key, rights and range have
//!   been checked, so nothing lands outside an exported range (VMMC §2);
//! * where the bytes are ([`mapwire_translation`]): sources and destinations are virtual addresses that the NIC translates
//!   page by page to frames (UTLB §3.3); an address that is not pinned gives the garbage frame (UTLB §4.2);
//! * how a transfer is cut: at the page boundaries of its source (VMMC §4.5), but not where neighbouring pages are neighbouring
//!   frames, as long as the transport carries it; each piece is scattered to the frames where it lands.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod actions;
mod answers;
mod budget;
mod counters;
mod dispatch;
mod error;
mod exports;
mod fetches;
mod imports;
mod inbound;
pub mod link;
mod lossy;
mod nic;
mod outbound;
mod pieces;
mod processes;
mod queue;
mod slots;
mod stalled;
mod transmit;
mod turns;

pub use actions::{BufferId, Completion, Dma, Rejection, SignalWrite, Traced};
pub use budget::{BudgetRow, Holdings, MemoryBreakdown};
pub use counters::{Counters, Rejections};
pub use error::{CommandError, NicError};
pub use exports::{Export, Landing};
pub use imports::{Import, RefusedStore, RefusedStores};
pub use nic::datagrams::{Datagram, DatagramBody};
pub use nic::receive::Verdict;
pub use nic::{Config, Delivery, MIN_PAYLOAD_BYTES, Nic};
pub use pieces::Piece;
pub use transmit::{Source, Transmit};
