//! What the NIC does next, and the steps of that.
//!
//! The main loop sees to transfers that are over first, then to packets that came, then to sends, then to commands (VMMC §4.5, §5.3). A
//! pass through it costs [`Cost::NicLoop`]: before a command, before whatever follows a job at once, and before each step of a long
//! send, unless that is in the tight loop. There the next packet is prepared while one is loaded, and nothing lies between two loads but
//! the start of the network DMA; a packet that comes ends that.

use std::collections::VecDeque;

use mapwire_nic::{BufferId, Verdict};
use mapwire_node::{NoPayload, Told};
use mapwire_translation::{Counters, DesignConfig, TranslationDesign};
use mapwire_wire::{NodeId, ProcessId};

use super::engine::{Then, Transfer};
use super::links::Turn;
use super::nic::{FINDS_TABLE, Posted, Step, TRANSLATES};
use super::parcel::Parcel;
use super::{Computers, ComputersError};
use crate::hardware::packets::{Form, Packet};
use crate::hardware::{Cost, Ps};

/// Bytes of an entry of a translation table in host memory (UTLB §4.2: 8 K entries are 32 KB).
const ENTRY_BYTES: u64 = 4;
/// Transfers that wait before no more packets are taken.
const MOST_WAITING: usize = 2;

type Steps = VecDeque<Step>;

impl Computers {
    fn cost(&self, cost: Cost) -> Ps {
        self.profile.of(cost)
    }

    /// A pass through the main loop.
    fn pass(&self) -> Step {
        Step::Work(self.cost(Cost::NicLoop), "main loop")
    }

    /// The next job of a processor that has none.
    pub(super) fn next_job(&mut self, node: usize) -> Option<Steps> {
        let computer = &mut self.computers[node];
        let follows = computer.nic.free_ps == Some(self.now_ps);
        if let Some((parcel, told)) = computer.nic.ended.pop_front() {
            return Some(self.follow(node, parcel, &told));
        }
        if computer.engine.can_begin() {
            return Some([Step::Program].into());
        }
        if let Some(steps) = self.resends.next_steps(node) {
            return Some(steps);
        }
        let computer = &mut self.computers[node];
        let has_room = computer.engine.waiting.len() < MOST_WAITING;
        if has_room
            && !computer.nic.lacks
            && let Some(slot) = computer.nic.inbox.pop_front()
        {
            let mut steps = Steps::new();
            if follows {
                steps.push_back(self.pass());
            }
            let takes = self.cost(Cost::NicTakePacket);
            steps.extend([Step::Work(takes, "takes packet"), Step::Take(slot)]);
            return Some(steps);
        }
        self.cut(node, true).or_else(|| self.pick_up(node))
    }

    /// What the processor does when a packet is loaded, for which these commands may be complete.
    fn follow(&mut self, node: usize, parcel: Parcel, told: &[Told]) -> Steps {
        let mut steps = Steps::new();
        let nic = &mut self.computers[node].nic;
        nic.loading -= 1;
        if !nic.is_tight {
            steps.push_back(self.pass());
        }
        let start = self.cost(Cost::NicStartNetwork);
        steps.extend([Step::Work(start, "starts network"), Step::Transmit(parcel)]);
        steps.extend(told.iter().filter_map(report));
        steps
    }

    /// Takes the next packet that the firmware has to send, if there is a buffer for it and, for a long send, the engine is free or the
    /// tight loop prepares ahead.
    fn cut(&mut self, node: usize, from_main_loop: bool) -> Option<Steps> {
        let computer = &mut self.computers[node];
        let nic = &computer.nic;
        let is_full = computer.port.leaving >= self.shape.send_buffers;
        if is_full || !self.resends.has_room(node) {
            return None;
        }
        let is_long = computer.node.nic().has_uncut();
        let is_free = computer.engine.current.is_none() && computer.engine.waiting.is_empty();
        let is_ahead = nic.is_tight && nic.loading == 1 && computer.port.is_idle();
        if is_long && !is_ahead && (!is_free || nic.loading >= self.shape.loads) {
            return None;
        }
        let before = computer.node.nic().translation().counters();
        let now_ns = self.now_ps / 1000 + 1;
        let polled = computer.poll_parcel(NodeId(node as u16), self.shape.links.is_some(), now_ns);
        let after = computer.node.nic().translation().counters();
        let mut steps = Steps::new();
        if from_main_loop && !is_ahead {
            steps.push_back(self.pass());
        }
        self.translate(after - before, Cost::NicTranslate, &mut steps);
        let mut parcel = match polled {
            Ok(Some(parcel)) => parcel,
            Ok(None) => {
                self.ask_host(node);
                return (after != before).then_some(steps);
            }
            Err(bad) => {
                self.fail_host(node, bad.0);
                return None;
            }
        };
        let computer = &mut self.computers[node];
        parcel.number = computer.port.number();
        let is_quiet = computer.port.coming == 0;
        let told = self.told(node);
        steps.push_back(Step::Work(self.cost(Cost::NicHeader), "header"));
        let bytes = parcel.data_bytes;
        let nic = &mut self.computers[node].nic;
        match parcel.process {
            Some(process) if !nic.copied[usize::from(process.0)] => {
                nic.loading += 1;
                if !is_ahead {
                    nic.is_tight = is_quiet && !nic.has_heard;
                    nic.has_heard = false;
                }
                steps.push_back(Step::Queue(Transfer {
                    bytes,
                    label: "data from host",
                    then: Then::Loaded(parcel, told),
                }));
            }
            _ => {
                let words = bytes.div_ceil(4);
                let copies = words * self.cost(Cost::NicCopyWord);
                let start = self.cost(Cost::NicStartNetwork);
                steps.extend([
                    Step::Work(copies, "copies data"),
                    Step::Work(start, "starts network"),
                    Step::Transmit(parcel),
                ]);
                for told in told {
                    self.free_word(node, &told);
                }
            }
        }
        self.ask_host(node);
        Some(steps)
    }

    /// What lookups cost: those in NIC memory, and the tables of host memory that were read.
    pub(super) fn translate(&self, met: Counters, hit: Cost, steps: &mut Steps) {
        // A lookup that needs the host counts only once the host has acted.
        let looked = met.lookups + met.interrupts;
        steps.push_back(Step::Work(looked * self.cost(hit), TRANSLATES));
        let line_entries = match self.shape.design {
            DesignConfig::Hierarchical(config) => (config.cache.line_entries as u64).max(config.prefetch.into()),
            _ => 1,
        };
        let others = line_entries - 1;
        let finds_ps = self.cost(Cost::NicMiss) + others * self.cost(Cost::NicMissEntry);
        for _ in 0..met.nic_misses.saturating_sub(met.interrupts) {
            steps.extend([
                Step::Work(finds_ps, FINDS_TABLE),
                Step::Table(line_entries * ENTRY_BYTES),
                Step::AwaitTable,
            ]);
        }
    }

    /// Takes the next command of the next process that may have one taken.
    fn pick_up(&mut self, node: usize) -> Option<Steps> {
        let computer = &mut self.computers[node];
        let queues = computer.nic.commands.len();
        let order = (0..queues).map(|at| (computer.nic.turn + at) % queues);
        let is_ready = |&process: &usize| {
            !computer.nic.commands[process].is_empty() && computer.node.accepts_command(ProcessId(process as u16))
        };
        let process = order.into_iter().find(is_ready)?;
        let posted = computer.nic.commands[process].pop_front()?;
        computer.nic.turn = process + 1;
        let (pick_up, process) = (self.cost(Cost::NicPickUp), ProcessId(process as u16));
        let steps = [self.pass(), Step::Work(pick_up, "picks up"), Step::Command(process, posted)];
        Some(steps.into())
    }

    /// The firmware takes a command, and what that gives to send is begun at once.
    pub(super) fn take_command(&mut self, node: usize, process: ProcessId, posted: &Posted) -> Steps {
        let computer = &mut self.computers[node];
        computer.nic.copied[usize::from(process.0)] = posted.is_copied;
        computer.node.handle_command(process, &posted.command.header, &posted.command.inline);
        self.told(node);
        self.cut(node, false).unwrap_or_default()
    }

    /// The firmware takes a packet.
    pub(super) fn take_packet(&mut self, node: usize, slot: usize) -> Steps {
        let mut steps = Steps::new();
        match self.turn(node, slot) {
            Turn::Now => {}
            Turn::Kept => return steps,
            Turn::Never => {
                self.free_buffer(slot);
                return steps;
            }
        }
        let Some(parcel) = &self.flights[slot] else { return steps };
        let computer = &mut self.computers[node];
        let before = computer.node.nic().translation().counters();
        let Packet { from, form, .. } = parcel.packet;
        let now_ns = self.now_ps / 1000 + 1;
        let verdict = parcel.packet.take(&mut computer.node, now_ns, BufferId(slot as u32));
        let after = computer.node.nic().translation().counters();
        let mut told = Vec::new();
        if verdict == Verdict::Taken {
            while let Some(this) = computer.node.poll_told(&parcel.packet.body(), || now_ns) {
                told.push(this);
            }
            computer.node.end_packet(from);
        }
        self.translate(after - before, Cost::NicTranslateReceive, &mut steps);
        let computer = &mut self.computers[node];
        if verdict == Verdict::Wait {
            match self.resends.waits() {
                true => {
                    computer.nic.inbox.push_front(slot);
                    computer.nic.lacks = true;
                }
                false => self.drop_packet(node, slot),
            }
            self.ask_host(node);
            return steps;
        }
        self.packet_taken(node, slot);
        let computer = &mut self.computers[node];
        let mut moves = Vec::new();
        while let Some(dma) = computer.node.poll_move() {
            moves.push(dma);
        }
        let count = moves.len();
        for (at, dma) in moves.into_iter().enumerate() {
            let signal_bytes = dma.signal.map_or(0, |signal| u64::from(signal.piece.length));
            let bytes = u64::from(dma.piece.length) + signal_bytes;
            steps.push_back(Step::Queue(Transfer {
                bytes,
                label: "data to host",
                then: Then::Stored { parcel: slot, dma, is_last: at + 1 == count },
            }));
        }
        if count == 0 {
            self.free_buffer(slot);
        }
        for told in told {
            steps.extend(report(&told));
            self.note_told(node, told);
        }
        if form == Form::Datagram {
            self.take_early(node, from);
        }
        self.ask_host(node);
        self.set_timer(node);
        steps
    }

    /// Puts the packets that came before their turn, and whose turn has come, before all others.
    fn take_early(&mut self, node: usize, from: NodeId) {
        let mut at = 0;
        while let Some(early) = Packet::poll_early(&mut self.computers[node].node, from, NodeId(node as u16)) {
            let slot = self.keep(Parcel::new(early));
            self.computers[node].nic.inbox.insert(at, slot);
            at += 1;
        }
    }

    /// What the node tells: failures end the run.
    pub(super) fn told(&mut self, node: usize) -> Vec<Told> {
        let now_ns = self.now_ps / 1000 + 1;
        let mut all = Vec::new();
        while let Some(told) = self.computers[node].node.poll_told(&NoPayload, || now_ns) {
            all.push(told);
            self.note_told(node, told);
        }
        all
    }

    fn note_told(&mut self, node: usize, told: Told) {
        match told {
            Told::Done { .. } | Told::Notified { .. } => {}
            told => self.fail(ComputersError::Told { node: NodeId(node as u16), told: Box::new(told) }),
        }
    }

    pub(super) fn fail_host(&mut self, node: usize, text: String) {
        let node = NodeId(node as u16);
        self.fail(ComputersError::Host { node, text });
    }
}

/// The completion word of a command that is over, written to host memory.
pub(super) fn report(told: &Told) -> Option<Step> {
    let Told::Done { process, completion } = *told else { return None };
    Some(Step::Queue(Transfer { bytes: 4, label: "completion to host", then: Then::Complete(process, completion) }))
}
