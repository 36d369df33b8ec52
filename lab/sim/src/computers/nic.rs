//! The NIC's processor, which does one thing at a time and is slowed by DMA; and what waits in the NIC.

use std::collections::VecDeque;

use mapwire_wire::CommandHeader;

use super::Computers;
use super::engine::{Then, Transfer};
use super::network::Parcel;
use super::run::Event;
use crate::hardware::{Cost, Lane, Profile, Ps};

/// Work that belongs to lookups.
pub(super) const TRANSLATES: &str = "translates";
pub(super) const FINDS_TABLE: &str = "finds table";

/// A command in the queue of a process.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) process: u16,
    pub(super) header: CommandHeader,
    pub(super) inline: Vec<u8>,
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
    Command(Command),
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

#[derive(Clone, Copy, Debug)]
struct Work {
    left_ps: Ps,
    since_ps: Ps,
    began_ps: Ps,
    label: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct Nic {
    /// Of each process.
    pub(super) commands: Vec<VecDeque<Command>>,
    /// The process whose queue is looked at first.
    pub(super) turn: usize,
    pub(super) inbox: VecDeque<usize>,
    /// Transfers that are over, and want the processor.
    pub(super) ended: VecDeque<Then>,
    /// The steps of the job in progress; `None` if there is none.
    pub(super) job: Option<VecDeque<Step>>,
    work: Option<Work>,
    plan: u32,
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
    /// Transfers of the network, in and out.
    wires: u16,
    is_host_dma: bool,
}

impl Nic {
    /// Of so many processes.
    pub(super) fn new(processes: u16) -> Self {
        let count = usize::from(processes);
        let mut nic = Self { copied: vec![false; count], ..Self::default() };
        nic.commands.resize_with(count, VecDeque::new);
        nic
    }

    /// Whether the processor works.
    pub(super) fn works(&self) -> bool {
        self.work.is_some()
    }

    /// How much of its time the processor works: parts of 100.
    fn rate(&self, profile: &Profile) -> u64 {
        let cost = match (self.is_host_dma, self.wires > 0) {
            (false, false) => return 100,
            (true, true) => Cost::NicSlowedByTwo,
            _ => Cost::NicSlowedByDma,
        };
        100_u64.saturating_sub(profile.of(cost))
    }
}

impl Computers {
    /// The processor looks for something to do, behind what happens at the same time.
    pub(super) fn wake_nic(&mut self, node: usize) {
        let nic = &mut self.computers[node].nic;
        if nic.job.is_none() {
            self.plan_nic(node, self.now_ps);
        }
    }

    pub(super) fn plan_nic(&mut self, node: usize, at_ps: Ps) {
        let nic = &mut self.computers[node].nic;
        nic.plan += 1;
        let plan = nic.plan;
        self.agenda.enter(at_ps, Event::Nic { node, plan });
    }

    pub(super) fn is_planned(&self, node: usize, plan: u32) -> bool {
        self.computers[node].nic.plan == plan
    }

    /// Begins a part of a job. Whether that takes time.
    pub(super) fn begin_work(&mut self, node: usize, left_ps: Ps, label: &'static str) -> bool {
        if left_ps == 0 {
            return false;
        }
        self.computers[node].nic.work = Some(Work { left_ps, since_ps: self.now_ps, began_ps: self.now_ps, label });
        self.plan_work(node);
        true
    }

    /// Plans the end of the work in progress; there is none while the processor stands still.
    fn plan_work(&mut self, node: usize) {
        let nic = &mut self.computers[node].nic;
        nic.plan += 1;
        let rate = nic.rate(&self.profile);
        if let Some(work) = nic.work
            && rate > 0
        {
            let at_ps = work.since_ps + (work.left_ps * 100).div_ceil(rate);
            self.plan_nic(node, at_ps);
        }
    }

    /// The work in progress is done.
    pub(super) fn end_work(&mut self, node: usize) {
        let computer = &mut self.computers[node];
        if let Some(work) = computer.nic.work.take() {
            let took_ps = self.now_ps - work.began_ps;
            computer.load.nic_ps += took_ps;
            if [TRANSLATES, FINDS_TABLE].contains(&work.label) {
                computer.load.lookups_ps += took_ps;
            }
            let span = (work.began_ps, self.now_ps);
            self.timeline.note(node, Lane::Nic, work.label, span);
        }
    }

    /// A transfer begins or ends: what was done so far counts at the rate so far.
    pub(super) fn change_dma(&mut self, node: usize, is_wire: bool, begins: bool) {
        let nic = &mut self.computers[node].nic;
        let rate = nic.rate(&self.profile);
        if let Some(work) = &mut nic.work {
            let done_ps = (self.now_ps - work.since_ps) * rate / 100;
            work.left_ps = work.left_ps.saturating_sub(done_ps);
            work.since_ps = self.now_ps;
        }
        match (is_wire, begins) {
            (true, true) => nic.wires += 1,
            (true, false) => nic.wires -= 1,
            (false, _) => nic.is_host_dma = begins,
        }
        if nic.work.is_some() {
            self.plan_work(node);
        }
    }
}
