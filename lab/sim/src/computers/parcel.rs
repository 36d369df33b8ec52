//! Packets as they go from NIC to NIC, and those that a NIC has on their way.

use std::collections::{BTreeMap, VecDeque};

use mapwire_wire::{HEADER_BYTES, ProcessId};

use crate::hardware::Ps;
use crate::hardware::packets::{Form, Packet};

/// A packet, or a datagram of a link.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) packet: Packet,
    /// Bytes behind its headers, and the process in whose memory they are, if they are in one's.
    pub(super) data_bytes: u64,
    pub(super) process: Option<ProcessId>,
    /// Its place among those that leave its NIC.
    pub(super) number: u64,
    /// Its number, where packets are dropped and sent again without a link of the firmware.
    pub(super) sequence: Option<u64>,
}

impl Parcel {
    pub(super) fn new(packet: Packet) -> Self {
        Self { packet, data_bytes: 0, process: None, number: 0, sequence: None }
    }

    pub(super) fn wire_bytes(&self) -> u64 {
        let header = if self.packet.form == Form::Plain { HEADER_BYTES } else { 0 };
        (header + self.packet.payload.len()) as u64
    }
}

/// The network side of a NIC.
#[derive(Debug, Default)]
pub(super) struct Port {
    /// Packets that are to go out; the first may be going.
    pub(super) out: VecDeque<Parcel>,
    /// Packets that are ready before others that the firmware has made before them.
    pub(super) ready: BTreeMap<u64, Parcel>,
    numbered: u64,
    pub(super) begun: u64,
    pub(super) since_ps: Option<Ps>,
    /// The first packet has found no buffer.
    pub(super) is_blocked: bool,
    /// Buffers taken by packets on their way out.
    pub(super) leaving: u16,
    /// Buffers taken by packets that came, or come.
    pub(super) coming: u16,
}

impl Port {
    /// Takes a buffer for the next packet, and gives its place in the order in which all leave.
    pub(super) fn number(&mut self) -> u64 {
        self.leaving += 1;
        self.numbered += 1;
        self.numbered
    }

    /// Whether nothing is on its way out.
    pub(super) fn is_idle(&self) -> bool {
        self.out.is_empty()
    }
}
