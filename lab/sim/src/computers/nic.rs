//! The NIC's processor, which does one thing at a time and is slowed by DMA; and what waits in the NIC.

use std::collections::VecDeque;

use mapwire_node::Told;
use mapwire_wire::ProcessId;

use super::engine::Transfer;
use super::parcel::Parcel;
use crate::hardware::node::Command;
use crate::hardware::{Cost, NicProcessor, Profile, Ps, Rates};

/// Work that belongs to lookups.
pub(super) const TRANSLATES: &str = "translates";
pub(super) const FINDS_TABLE: &str = "finds table";

/// A command in the queue of a process.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) command: Command,
    /// A long one whose data are charged as if they were in the queue.
    pub(super) is_copied: bool,
}

/// A part of a job.
#[derive(Debug)]
pub(super) enum Step {
    Work(Ps, &'static str),
    /// A transfer waits to be programmed.
    Queue(Transfer),
    /// The next waiting transfer is programmed.
    Program,
    Begin,
    /// Table entries of so many bytes are to be read, before all other transfers.
    Table(u64),
    /// The processor waits for them.
    AwaitTable,
    Command(ProcessId, Posted),
    Transmit(Parcel),
    Take(usize),
    /// Packets are sent again, so many at most, from a number on.
    Resend {
        to: usize,
        first: u64,
        most: usize,
    },
    /// A packet is sent again.
    Again(Parcel),
    /// A peer is asked for packets, from a number on.
    Ask {
        from: usize,
        first: u64,
    },
}

#[derive(Debug, Default)]
pub(super) struct Nic {
    /// Of each process.
    pub(super) commands: Vec<VecDeque<Posted>>,
    /// The process whose queue is looked at first.
    pub(super) turn: usize,
    pub(super) inbox: VecDeque<usize>,
    /// Packets that are loaded, and want the processor; commands may be complete with them.
    pub(super) ended: VecDeque<(Parcel, Vec<Told>)>,
    /// The steps of the job in progress; `None` if there is none.
    pub(super) job: Option<VecDeque<Step>>,
    pub(super) processor: NicProcessor,
    /// When the last job ended.
    pub(super) free_ps: Option<Ps>,
    /// It is in the tight sending loop (VMMC §5.3).
    pub(super) is_tight: bool,
    /// A packet has come since the last of a long send was begun from the main loop.
    pub(super) has_heard: bool,
    /// Packets of long sends that are being loaded.
    pub(super) loading: u16,
    /// Table entries have not come yet.
    pub(super) awaits_table: bool,
    /// Since when they have been wanted.
    pub(super) table_since_ps: Ps,
    /// The first packet that came lacks a translation, which the host is asked for.
    pub(super) lacks: bool,
    /// When its links or services want to be called.
    pub(super) timer_ps: Option<Ps>,
    /// Packets of processes' sends that are charged as short ones, by process.
    pub(super) copied: Vec<bool>,
}

impl Nic {
    pub(super) fn new(processes: u16) -> Self {
        let count = usize::from(processes);
        let mut nic = Self { copied: vec![false; count], ..Self::default() };
        nic.commands.resize_with(count, VecDeque::new);
        nic
    }
}

/// How much of its time the processor works, by what is transferred.
pub(super) fn rates(profile: &Profile) -> Rates {
    let slowed = |cost| (100_u64.saturating_sub(profile.of(cost)), 100);
    let (by_one, by_two) = (slowed(Cost::NicSlowedByDma), slowed(Cost::NicSlowedByTwo));
    [[(100, 100), by_one], [by_one, by_two]]
}
