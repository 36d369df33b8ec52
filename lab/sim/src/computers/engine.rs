//! The DMA engine between host memory and NIC memory: one transfer at a time, programmed by the NIC's processor.

use std::collections::VecDeque;

use mapwire_nic::Dma;
use mapwire_node::Told;
use mapwire_wire::ProcessId;

use super::parcel::Parcel;
use crate::hardware::{Cost, Profile, Ps};

#[derive(Debug)]
pub(super) enum Then {
    /// A packet's data are in NIC memory: it can go out, and its command may be complete.
    Loaded(Parcel, Vec<Told>),
    /// A move of a packet that came is done; `is_last`: its buffer is free.
    Stored { parcel: usize, dma: Dma, is_last: bool },
    /// A completion word is in host memory.
    Complete(ProcessId, u32),
    /// Table entries are in NIC memory: the processor waits for them.
    Table,
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) bytes: u64,
    pub(super) label: &'static str,
    pub(super) then: Then,
}

#[derive(Debug, Default)]
pub(super) struct Engine {
    /// Transfers that are to be programmed.
    pub(super) waiting: VecDeque<Transfer>,
    pub(super) current: Option<(Transfer, Ps)>,
}

impl Engine {
    /// Whether the next transfer can be programmed.
    pub(super) fn can_begin(&self) -> bool {
        self.current.is_none() && !self.waiting.is_empty()
    }
}

impl Then {
    /// How much later than the engine is done the data are there: buses of today have many transfers under way.
    pub(super) fn late_ps(&self, profile: &Profile) -> Ps {
        profile.of(match self {
            Self::Loaded(..) | Self::Table => Cost::DmaLatency,
            Self::Stored { .. } | Self::Complete(..) => Cost::DmaStoreLatency,
        })
    }
}

/// How long the engine takes for so many bytes once it is programmed.
pub(super) fn takes(profile: &Profile, bytes: u64) -> Ps {
    profile.host_dma(bytes).saturating_sub(profile.of(Cost::DmaSetup))
}
