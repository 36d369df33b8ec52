//! Programs from the traces of jobs: what their threads asked of the shared memory, and how long they computed in between.
//!
//! A page fault of the trace becomes a touch of the minipage where it lies. If the rank may access it there already when its turn comes,
//! nothing happens; accesses that did not fault in the job are not known, and cannot fault here.

use std::collections::BTreeMap;

use mapwire_dsm::{Config, MAX_RANKS, PAGE_BYTES};
use mapwire_wire::{TraceOp, TraceRecord};
use thiserror::Error;

use super::program::{Deed, Entry, Program, Script};

/// Deeds at most.
const MOST_DEEDS: usize = 20_000_000;
const DAY_PS: u64 = 86_400_000_000_000_000;
/// Computing of all threads at most.
const MOST_COMPUTING_PS: u64 = 30 * DAY_PS;
/// Locks and barriers, as of a job.
const LOCKS: u64 = Config::LOCKS as u64;
const BARRIERS: u64 = Config::BARRIERS as u64;
/// Threads of a rank that may use the shared memory, as of a job.
const MOST_THREADS: u64 = 64;

#[derive(Debug, Error)]
pub enum CapturedError {
    #[error(
        "the trace has {0} records and no shared memory is opened in them: take one of a program that uses the shared memory, by `mapwire run --trace`"
    )]
    Nothing(u64),
    #[error(
        "record {record}: rank {rank} opens a shared memory of {bytes} bytes at {address:#x}; a replay has one memory, opened once by each rank and of one shape"
    )]
    Opens { record: u64, rank: u16, address: u64, bytes: u64 },
    #[error(
        "record {record}: a shared memory of {pages} pages in {views} views, with {participants} threads of a rank in barriers: expected 1 to 2^28 pages, 1 to 512 views and 1 to 64 threads"
    )]
    Shape { record: u64, pages: u64, views: u64, participants: u64 },
    #[error("record {record} is of node {node}, process {process}: a replay has at most {MAX_RANKS} ranks")]
    Rank { record: u64, node: u16, process: u16 },
    #[error("record {record} is of thread {thread}: a rank has threads 0 to {most}", most = MOST_THREADS - 1)]
    Thread { record: u64, thread: u64 },
    #[error("the trace has records of node {last} and none of node {node}: replay the trace of all ranks of a job")]
    Missing { node: u16, last: u16 },
    #[error(
        "record {record}: {op} {number} is beyond all that there are: a replay has {LOCKS} locks, {BARRIERS} barriers and {MAX_RANKS} ranks"
    )]
    Number { record: u64, op: TraceOp, number: u64 },
    #[error("record {record}: {op} at {address:#x}, where the trace allocates no minipage")]
    Nowhere { record: u64, op: TraceOp, address: u64 },
    #[error("record {record} allocates {bytes} bytes at {address:#x}, which overlap another allocation of the trace")]
    Overlap { record: u64, address: u64, bytes: u64 },
    #[error("record {record}: the threads of the trace compute for more than {} days in all", MOST_COMPUTING_PS / DAY_PS)]
    Computes { record: u64 },
    #[error("record {record} would be deed {MOST_DEEDS} of the replay: replay a shorter trace")]
    Long { record: u64 },
}

/// How computing times of the job become those of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Computing takes so many thousandths of what it took in the job.
    pub speed_milli: u64,
    /// Nanoseconds of each page fault's trap that the job counted as computing.
    pub trap_ns: u64,
    /// The same of every other call.
    pub call_ns: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { speed_milli: 1000, trap_ns: 0, call_ns: 0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// From the first record to the last.
    pub total_ns: u64,
    /// From rank 0's first barrier to its last; `None` with fewer than two.
    pub work_ns: Option<u64>,
    /// Processor time that all threads used between calls, before it is scaled.
    pub computed_ns: u64,
    /// The part of it that lies between rank 0's first barrier and its last.
    pub work_computed_ns: u64,
    pub faults: u64,
}

/// A minipage of the trace.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    address: u64,
    bytes: u64,
    number: u32,
    record: u64,
}

/// A call of the trace. The address is what the record has there: an address, a number, or what it has become by then.
#[derive(Clone, Copy, Debug)]
struct Call {
    record: u64,
    op: TraceOp,
    address: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Thread {
    calls: Vec<Call>,
    /// It begins where this thread has made so many calls.
    after: Option<(usize, usize)>,
}

/// One process of the trace.
#[derive(Debug, Default)]
struct Process {
    opened: bool,
    shaped: bool,
    /// Its threads, by their numbers: where they stand among all.
    threads: BTreeMap<u64, usize>,
    current: Option<usize>,
}

/// A trace, record by record.
#[derive(Debug, Default)]
pub struct Captured {
    records: u64,
    deeds: usize,
    processes: BTreeMap<(u16, u16), Process>,
    threads: Vec<((u16, u16), Thread)>,
    shape: Option<(u64, u64)>,
    views: Option<(u64, u64)>,
    allocations: Vec<Allocation>,
    first_ns: Option<u64>,
    last_ns: u64,
    barriers: Option<(u64, u64)>,
    live: Live,
    /// What was computed up to rank 0's last barrier.
    computed_at_last_ns: u64,
}

impl Captured {
    /// Takes the next record. What is no call of the shared memory is passed over.
    pub fn push(&mut self, record: &TraceRecord) -> Result<(), CapturedError> {
        let number = self.records;
        self.records += 1;
        let is_call = |op: &TraceOp| op.is_shared_memory() && !matches!(op, TraceOp::Give | TraceOp::Take);
        let Some(op) = record.op().filter(is_call) else { return Ok(()) };
        let place = (record.node.get(), record.process.get());
        if u32::from(place.0).max(u32::from(place.1)) >= u32::from(MAX_RANKS) {
            let (node, process) = place;
            return Err(CapturedError::Rank { record: number, node, process });
        }
        let (address, bytes, time_ns) = (record.address.get(), record.bytes.get(), record.time_ns.get());
        self.first_ns.get_or_insert(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        let most = match op {
            TraceOp::Lock | TraceOp::Unlock => LOCKS,
            TraceOp::Barrier => BARRIERS,
            TraceOp::Broadcast => MAX_RANKS.into(),
            _ => u64::MAX,
        };
        if address >= most {
            return Err(CapturedError::Number { record: number, op, number: address });
        }
        let mut call = Call { record: number, op, address, bytes };
        match op {
            TraceOp::Compute => {
                self.enter_thread(number, place, address)?;
                self.live.computed_ns = self.live.computed_ns.saturating_add(bytes);
                if self.barriers.is_some() {
                    let work = &mut self.live.work_computed_ns;
                    *work = work.saturating_add(bytes);
                }
            }
            TraceOp::OpenShared => return self.open(number, place, address, bytes),
            TraceOp::ShapeShared => match self.reshape(number, place, address, bytes)? {
                Some(participants) => call.address = participants.into(),
                None => return Ok(()),
            },
            TraceOp::Allocate => {
                let minipage = self.allocations.len() as u32;
                self.allocations.push(Allocation { address, bytes, number: minipage, record: number });
                call.address = minipage.into();
            }
            TraceOp::ReadFault | TraceOp::WriteFault => {
                self.live.faults += 1;
                call.bytes = 1;
            }
            TraceOp::Barrier if place == (0, 0) => {
                let (_, last) = self.barriers.get_or_insert((time_ns, time_ns));
                *last = time_ns;
                self.computed_at_last_ns = self.live.work_computed_ns;
            }
            _ => {}
        }
        let at = match self.processes.entry(place).or_default().current {
            Some(at) => at,
            None => self.enter_thread(number, place, 0)?,
        };
        self.deeds += 1;
        if self.deeds > MOST_DEEDS {
            return Err(CapturedError::Long { record: number });
        }
        self.threads[at].1.calls.push(call);
        Ok(())
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// The records that follow are of this thread of a process.
    fn enter_thread(&mut self, record: u64, place: (u16, u16), thread: u64) -> Result<usize, CapturedError> {
        if thread >= MOST_THREADS {
            return Err(CapturedError::Thread { record, thread });
        }
        let process = self.processes.entry(place).or_default();
        let next = self.threads.len();
        let at = *process.threads.entry(thread).or_insert(next);
        if at == next {
            // A thread begins where the one that was last heard of stands.
            let after = process.current.map(|before| (before, self.threads[before].1.calls.len()));
            self.threads.push((place, Thread { calls: Vec::new(), after }));
        }
        process.current = Some(at);
        Ok(at)
    }

    fn open(&mut self, record: u64, place: (u16, u16), address: u64, bytes: u64) -> Result<(), CapturedError> {
        let shape = *self.shape.get_or_insert((address, bytes));
        let process = self.processes.entry(place).or_default();
        if process.opened || shape != (address, bytes) {
            return Err(CapturedError::Opens { record, rank: place.0, address, bytes });
        }
        process.opened = true;
        Ok(())
    }

    /// The first shape of a process is that of the memory; a later one changes its participants.
    fn reshape(
        &mut self,
        record: u64,
        place: (u16, u16),
        views: u64,
        participants: u64,
    ) -> Result<Option<u16>, CapturedError> {
        let pages = self.shape.map_or(0, |(_, bytes)| bytes / PAGE_BYTES);
        let first = *self.views.get_or_insert((views, participants));
        let is_possible = (1..=512).contains(&views)
            && (1..=1 << 28).contains(&pages)
            && (1..=MOST_THREADS).contains(&participants)
            && first.0 == views;
        if !is_possible {
            return Err(CapturedError::Shape { record, pages, views, participants });
        }
        let process = self.processes.entry(place).or_default();
        let is_first = !core::mem::replace(&mut process.shaped, true);
        let changes = !is_first || first.1 != participants;
        Ok(changes.then_some(participants as u16))
    }

    /// The program, with its computing times as `scale` says, and what the job took.
    pub fn finish(mut self, scale: &Scale) -> Result<(Program, Live), CapturedError> {
        let (Some((_, bytes)), Some((views, participants))) = (self.shape, self.views) else {
            return Err(CapturedError::Nothing(self.records));
        };
        self.allocations.sort_by_key(|it| it.address);
        for pair in self.allocations.windows(2) {
            if pair[0].address.saturating_add(pair[0].bytes) > pair[1].address {
                let Allocation { address, bytes, record, .. } = pair[1];
                return Err(CapturedError::Overlap { record, address, bytes });
            }
        }
        let per_node = self.processes.keys().map(|(_, process)| process + 1).max();
        let nodes = self.processes.keys().map(|(node, _)| node + 1).max();
        let (per_node, nodes) = (per_node.unwrap_or(1), nodes.unwrap_or(1));
        let has_records = |node| self.processes.range((node, 0)..=(node, u16::MAX)).count() > 0;
        if let Some(node) = (0..nodes).find(|node| !has_records(*node)) {
            let last = nodes - 1;
            return Err(CapturedError::Missing { node, last });
        }
        let ranks = u32::from(per_node) * u32::from(nodes);
        if ranks > u32::from(MAX_RANKS) {
            return Err(CapturedError::Rank { record: self.records, node: nodes - 1, process: per_node - 1 });
        }
        let (mut deeds, mut computed_ps) = (0, 0_u64);
        let mut scripts = Vec::new();
        // Where each deed of a thread begins among its entries.
        let mut starts: Vec<Vec<usize>> = Vec::new();
        for ((node, process), thread) in &self.threads {
            let mut entries = Vec::new();
            let mut starts_here = vec![0];
            for (at, call) in thread.calls.iter().enumerate() {
                self.expand(call, thread.calls.get(at + 1), scale, &mut entries)?;
                deeds += entries.len() - starts_here[starts_here.len() - 1];
                if deeds > MOST_DEEDS {
                    return Err(CapturedError::Long { record: call.record });
                }
                if let Some(Entry { deed: Deed::Compute(ps), .. }) = entries.last() {
                    computed_ps = computed_ps.saturating_add(*ps);
                }
                if computed_ps > MOST_COMPUTING_PS {
                    return Err(CapturedError::Computes { record: call.record });
                }
                starts_here.push(entries.len());
            }
            starts.push(starts_here);
            scripts.push(Script { rank: node * per_node + process, entries, after: thread.after });
        }
        for script in &mut scripts {
            if let Some((before, calls)) = &mut script.after {
                *calls = starts[*before][*calls];
                // A thread that follows one which has done nothing yet begins with it.
                if *calls == 0 {
                    script.after = None;
                }
            }
        }
        let scripts = in_order_of_ranks(scripts);
        let work = self.barriers.filter(|(first, last)| last > first);
        let live = Live {
            total_ns: self.last_ns - self.first_ns.unwrap_or(self.last_ns).min(self.last_ns),
            work_ns: work.map(|(first, last)| last - first),
            work_computed_ns: self.computed_at_last_ns,
            ..self.live
        };
        let program = Program {
            ranks: ranks as u16,
            pages: (bytes / PAGE_BYTES) as u32,
            views: views as u16,
            participants: participants as u16,
            minipages: self.allocations.len() as u32,
            scripts,
        };
        Ok((program, live))
    }

    /// The entries of a call.
    fn expand(
        &self,
        call: &Call,
        next: Option<&Call>,
        scale: &Scale,
        entries: &mut Vec<Entry>,
    ) -> Result<(), CapturedError> {
        let Call { record, op, address, bytes } = *call;
        let deed = match op {
            TraceOp::Compute => {
                let extra_ns = match next.map(|next| next.op) {
                    Some(TraceOp::ReadFault | TraceOp::WriteFault) => scale.trap_ns,
                    _ => scale.call_ns,
                };
                let ps = u128::from(bytes.saturating_sub(extra_ns)) * u128::from(scale.speed_milli);
                Deed::Compute(u64::try_from(ps).unwrap_or(u64::MAX))
            }
            TraceOp::ShapeShared => Deed::Participants(address as u16),
            TraceOp::Allocate => Deed::Allocate { minipage: address as u32, bytes },
            TraceOp::Lock => Deed::Lock(address as u32),
            TraceOp::Unlock => Deed::Unlock(address as u32),
            TraceOp::Barrier => Deed::Barrier(address as u32),
            TraceOp::Broadcast => Deed::Broadcast(address as u16),
            _ => return self.touch(call, entries),
        };
        entries.push(Entry { deed, number: record });
        Ok(())
    }

    /// The entries of a fault or prefetch: one for each minipage that it touches.
    fn touch(&self, call: &Call, entries: &mut Vec<Entry>) -> Result<(), CapturedError> {
        let Call { record, op, address, bytes } = *call;
        let writes = matches!(op, TraceOp::WriteFault | TraceOp::PrefetchWrite);
        let is_fault = matches!(op, TraceOp::ReadFault | TraceOp::WriteFault);
        let after = self.allocations.partition_point(|it| it.address <= address);
        let nowhere = CapturedError::Nowhere { record, op, address };
        let Some(first) = after.checked_sub(1) else { return Err(nowhere) };
        let end = address.saturating_add(bytes.max(1));
        let touched = self.allocations[first..].iter().take_while(|it| it.address < end);
        let before = entries.len();
        for it in touched.filter(|it| it.address.saturating_add(it.bytes) > address) {
            let minipage = it.number;
            let deed = if is_fault { Deed::Touch { minipage, writes } } else { Deed::Prefetch { minipage, writes } };
            entries.push(Entry { deed, number: record });
            if entries.len() > MOST_DEEDS {
                return Err(CapturedError::Long { record });
            }
        }
        if entries.len() == before { Err(nowhere) } else { Ok(()) }
    }
}

/// The scripts by rank, whoever came first in the trace.
fn in_order_of_ranks(scripts: Vec<Script>) -> Vec<Script> {
    let mut order: Vec<usize> = (0..scripts.len()).collect();
    order.sort_by_key(|at| scripts[*at].rank);
    let mut places = vec![0; scripts.len()];
    for (place, at) in order.into_iter().enumerate() {
        places[at] = place;
    }
    let mut sorted = vec![Script::default(); scripts.len()];
    for (mut script, place) in scripts.into_iter().zip(&places) {
        script.after = script.after.map(|(before, deeds)| (places[before], deeds));
        sorted[*place] = script;
    }
    sorted
}
