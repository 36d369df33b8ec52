//! Jobs of a NIC, step by step.

use std::collections::VecDeque;

use mapwire_gms::{CheckPoints, ENTRY_BYTES, Message, Operation, RowSize, Scanned};

use super::nic::{Code, Job, Step};
use crate::hardware::wires::Flight;
use crate::hardware::{Cost, Profile, Ps};

/// Bytes of a getpage's request as the protocol encodes it: what the time to take a message in was measured with.
const REQUEST_BYTES: u64 = 41;

/// Where directory operations are carried out, and where the table lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// On hosts, by interrupts: GMS.
    Host,
    /// On NICs, the table in host memory: GMS-NP(HM).
    NicHostMemory,
    /// On NICs, the table in NIC memory: GMS-NP(NM).
    NicMemory,
}

impl Placement {
    /// In the papers' order.
    pub const ALL: [Self; 3] = [Self::Host, Self::NicHostMemory, Self::NicMemory];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "GMS",
            Self::NicHostMemory => "GMS-NP(HM)",
            Self::NicMemory => "GMS-NP(NM)",
        }
    }
}

/// Makes jobs for the NICs of one machine.
#[derive(Debug)]
pub(super) struct Jobs {
    pub(super) profile: Profile,
    pub(super) placement: Placement,
    pub(super) row_size: RowSize,
}

/// Whether a message is an operation of the page directory, which a NIC can carry out (GMS-NP §3.2).
fn is_for_directory(bytes: &[u8]) -> bool {
    match Message::parse(bytes) {
        Ok(Message::Request(request)) => matches!(
            request.operation,
            Operation::Get | Operation::Take | Operation::NotHere | Operation::NotHereTake | Operation::Discard
        ),
        Ok(Message::Insert { .. } | Message::Remove { .. } | Message::Spare { .. } | Message::Reset { .. }) => true,
        _ => false,
    }
}

impl Jobs {
    /// A message has come: the NIC carries it out itself, or takes it in for the host.
    pub(super) fn arrived(&self, flight: Flight) -> Job {
        if self.placement != Placement::Host && is_for_directory(&flight.bytes) {
            // A directory operation (GMS-NP §3.2).
            let steps = [self.compute(Cost::NicDecode, "decodes"), Step::Handle].into();
            return Job { steps, message: Some(flight), ..Job::default() };
        }
        self.receive(flight)
    }

    /// Bytes of a message on wires and in NIC memory, without the page.
    pub(super) fn message_bytes(&self, bytes: usize) -> u64 {
        bytes as u64 + self.profile.of(Cost::HeaderBytes)
    }

    fn compute(&self, cost: Cost, label: &'static str) -> Step {
        Step::Compute(self.profile.of(cost), Code::Scans, label)
    }

    /// Takes a message in and interrupts the host.
    fn receive(&self, flight: Flight) -> Job {
        let bytes = self.message_bytes(flight.bytes.len()) + flight.data_bytes;
        let request = self.profile.dma(self.message_bytes(REQUEST_BYTES as usize));
        let setup = self.profile.of(Cost::DmaSetup);
        let measured = self.profile.of(Cost::NicReceive);
        let mut steps = VecDeque::new();
        if self.placement != Placement::Host {
            steps.push_back(self.compute(Cost::NicDispatch, "handler id"));
        }
        let rest = measured.saturating_sub(setup + request);
        steps.push_back(Step::Compute(rest, Code::Scans, "receives"));
        steps.push_back(self.compute(Cost::DmaSetup, "programs DMA"));
        let pulse = self.profile.of(Cost::PulseBytes).min(bytes);
        let not_before_ps = match flight.data_bytes {
            0 => 0,
            _ => flight.tail_ps + self.profile.dma(pulse),
        };
        steps.push_back(Step::Dma { bytes, reads: false, not_before_ps, label: "message to host" });
        steps.extend([Step::AwaitEnd, Step::Interrupt]);
        Job { steps, message: Some(flight), ..Job::default() }
    }

    /// Looks up for the host what it asks about, as only the NIC changes the table (GMS-NP §3.3).
    pub(super) fn look_up(&self, scanned: Scanned) -> Job {
        let mut steps: VecDeque<Step> = [self.compute(Cost::NicDecode, "decodes")].into();
        steps.extend(self.directory(scanned, 0));
        Job { steps, ..Job::default() }
    }

    /// Sends what the host has handed over.
    pub(super) fn send(&self, outgoing: Flight) -> Job {
        let dma = |bytes, label| Step::Dma { bytes, reads: true, not_before_ps: 0, label };
        let mut steps = VecDeque::from([
            self.compute(Cost::DmaSetup, "programs DMA"),
            dma(self.message_bytes(outgoing.bytes.len()), "message from host"),
            Step::AwaitEnd,
            Step::Compute(self.profile.of(Cost::NicPrepare), Code::Moves, "prepares"),
        ]);
        if outgoing.data_bytes > 0 {
            steps.push_back(self.compute(Cost::DmaSetup, "programs DMA"));
            steps.push_back(dma(outgoing.data_bytes, "page from host"));
        }
        steps.push_back(Step::Transmit);
        Job { steps, out: [outgoing].into(), is_send: true, ..Job::default() }
    }

    /// What the NIC does for an operation that looked at so much, behind its decoding: lookup, so many messages, changes.
    pub(super) fn directory(&self, scanned: Scanned, messages: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let in_host = self.placement == Placement::NicHostMemory;
        let entries = scanned.entries.max(1);
        let in_row = self.row_size.entries() as u64;
        let rows = entries.div_ceil(in_row);
        if in_host {
            for row in 0..rows {
                if row > 0 {
                    steps.push(self.compute(Cost::DmaSetup, "programs DMA"));
                }
                steps.push(self.row());
                if row == 0 {
                    steps.push(self.compute(Cost::NicLookup, "looks up"));
                }
                self.scan(in_row.min(entries - row * in_row), &mut steps);
            }
        } else {
            steps.push(self.compute(Cost::NicLookup, "looks up"));
            let scan = entries * self.profile.of(Cost::NicScan);
            steps.push(Step::Compute(scan, Code::Scans, "scans"));
        }
        for _ in 0..messages {
            let prepare = self.profile.of(Cost::NicPrepare);
            steps.push(Step::Compute(prepare, Code::Moves, "prepares"));
            steps.push(Step::Transmit);
        }
        // Rows that the change needed besides, as that of the last entry, which fills a gap.
        for _ in rows..scanned.rows {
            if in_host {
                steps.push(self.compute(Cost::DmaSetup, "programs DMA"));
                steps.extend([self.row(), Step::AwaitEnd]);
            }
        }
        for _ in 0..scanned.written {
            steps.push(self.compute(Cost::NicModify, "modifies"));
            if in_host {
                steps.push(self.compute(Cost::DmaSetup, "programs DMA"));
                steps.push(Step::Dma {
                    bytes: ENTRY_BYTES as u64,
                    reads: false,
                    not_before_ps: 0,
                    label: "entry to host",
                });
            }
        }
        steps
    }

    fn row(&self) -> Step {
        Step::Dma { bytes: self.row_size.bytes() as u64, reads: true, not_before_ps: 0, label: "row from host" }
    }

    /// Scans so many entries of a row while it comes (GMS-NP §3.3, §4.4): at each check point it waits for all entries up to the next.
    fn scan(&self, entries: u64, steps: &mut Vec<Step>) {
        let in_row = self.row_size.entries() as u64;
        let ns = |cost| self.profile.of(cost) / 1000;
        let mut points = CheckPoints::new(ns(Cost::DmaBlock), ns(Cost::NicScanInDma), in_row).peekable();
        while let Some(scanned) = points.next().filter(|&scanned| scanned < entries) {
            let next = points.peek().copied().unwrap_or(in_row);
            steps.push(Step::Await(next * ENTRY_BYTES as u64));
            let count: Ps = next.min(entries) - scanned;
            let scan = count * self.profile.of(Cost::NicScan);
            steps.push(Step::Compute(scan, Code::Scans, "scans"));
        }
    }
}
