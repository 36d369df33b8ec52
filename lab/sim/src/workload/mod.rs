//! Programs that make all calls of VMMC, and what they know: an oracle apart from the nodes under test.

mod calls;
pub(crate) mod deed;
mod hostile;
mod imports;
mod mapped;
mod watching;

use std::collections::BTreeMap;
use std::rc::Rc;

use mapwire_node::Node;
use mapwire_translation::{AnyDesign, PageRange};
use mapwire_vmmc::{Grant, RequestId};
use mapwire_wire::{Endpoint, ExportId, ImportId, MappedPart, NodeId, ProcessId, Rights};

use crate::checks::bounds::{
    Instance, LANES, LANES_OFFSET, MAPPED_ADDRESS, SLOTS, STATIC_BYTES, Spot, WORD_OFFSET, buffer_address, find,
    slot_address,
};
use crate::checks::completions::{Pending, Words};
use crate::checks::delivery::{Sent, Stream, differs};
use crate::checks::forgery::{self, Forged, Kind, Misused};
use crate::checks::importers::{self, Asked};
use crate::checks::liveness;
use crate::checks::restarts::Restarts;
use crate::checks::{pins, room};
use crate::cluster::{Cluster, FIRST_ADDRESS, Observer, Violation};
use crate::coverage::{Condition, Coverage};
use crate::run::Programs;

pub use deed::{Call, Deed};

#[derive(Clone, Copy, Debug, Default)]
pub struct WorkloadConfig {
    /// Bytes of a lane of an export: 64 to 12,288, a multiple of 64.
    pub lane_bytes: u64,
    /// Completion words of each process: 1 to 32.
    pub words: u32,
    /// Processes may pin so many pages only.
    pub is_limited: bool,
    /// Transfers may fail for want of pages.
    pub may_lack_pages: bool,
    /// The link keeps packets until they are acked, and may send an answer again that a revocation has made a refusal meanwhile.
    pub resends: bool,
    /// Pages of exports are pinned as long as the export stands.
    pub pins_exports: bool,
    /// Nodes keep which pages are held: something may have to be unpinned to make room, or pages are pinned on a miss.
    pub keeps_holds: bool,
}

/// An import that a program holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    id: ImportId,
    instance: usize,
    grant: Grant,
    /// Its export is known to be revoked or gone.
    is_dead: bool,
}

/// An export that importers may map in part. Nobody imports it.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    id: ExportId,
    length: u64,
    part: MappedPart,
}

impl Mapped {
    /// What is pinned of it, by address and length.
    fn pinned(&self) -> [(u64, u64); 2] {
        let end = self.part.offset + self.part.bytes;
        [(MAPPED_ADDRESS, self.part.offset), (MAPPED_ADDRESS + end, self.length - end)]
    }
}

#[derive(Debug)]
struct Program {
    at: Endpoint,
    exports: [Option<usize>; SLOTS],
    held: Vec<Held>,
    /// The export that importers may map in part.
    mapped: Option<Mapped>,
    /// Imports that were asked for.
    asked: BTreeMap<RequestId, Asked>,
    words: Words,
}

impl Program {
    fn new(at: Endpoint, words: u32) -> Self {
        Self {
            at,
            exports: [None; SLOTS],
            held: Vec::new(),
            mapped: None,
            asked: BTreeMap::new(),
            words: Words::new(words),
        }
    }
}

/// Something to be done once a step is over.
#[derive(Clone, Copy, Debug)]
enum Todo {
    /// An import that was asked for has its outcome.
    Enter(usize, RequestId),
    Over(usize, Pending, bool),
}

/// The programs of a cluster, and what must be true of it.
#[derive(Debug, Default)]
pub struct Callers {
    config: WorkloadConfig,
    calls: Rc<[Call]>,
    per_node: u16,
    /// NIC memory of a node that has done nothing.
    idle_bytes: u64,
    programs: Vec<Program>,
    instances: Vec<Instance>,
    by_id: BTreeMap<(NodeId, ExportId), usize>,
    /// By sending process, then receiving node.
    streams: BTreeMap<(usize, NodeId), Stream>,
    /// Rights that processes of a node have ever asked for, by node, exporter and place.
    wanted: BTreeMap<(NodeId, Endpoint, usize), Rights>,
    /// Rights by imports that former selves of a node held, by node and export.
    former: BTreeMap<(NodeId, usize), Rights>,
    forged: Vec<Forged>,
    /// Refusals of packets, by sender and receiver.
    refusals: BTreeMap<(NodeId, NodeId), usize>,
    /// Short sends that their own node must refuse.
    misused: Vec<Misused>,
    /// How often each node has restarted.
    incarnations: Vec<u32>,
    restarts: Restarts,
    coverage: Coverage,
    /// Notifications that are due, in order.
    notifications: Vec<(Endpoint, ExportId, NodeId, u64, u64)>,
    /// Nodes that have crashed, and of these those that have not restarted.
    crashed: Vec<bool>,
    down: Vec<bool>,
    todo: Vec<Todo>,
    /// A [late revoke](crate::Canary::LateRevoke) waits at a process for its export.
    late_revokes: Vec<(usize, ExportId)>,
    violation: Option<(u64, Violation)>,
    /// Calls that did something, in order.
    history: Vec<Made>,
}

/// A call that did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    pub at_ns: u64,
    pub by: Endpoint,
    pub call: &'static str,
}

/// Whether an export's word and static bytes stay where they are: those of the last slot are redirected instead.
const fn keeps_place(slot: usize) -> bool {
    slot != SLOTS - 1
}

/// After which a program makes a call of a trace again that found no room.
const AGAIN_NS: u64 = 20_000;

/// Distances, over all processes, to those that a process talks to.
const DISTANCES: [i64; LANES] = [1, -1, 2, -2, 3, -3, 5, -5];

impl Callers {
    /// Programs of all processes of a cluster, which have done nothing yet and make these calls.
    pub(crate) fn new(cluster: &Cluster, config: WorkloadConfig, calls: Rc<[Call]>) -> Self {
        let shape = cluster.config();
        let per_node = shape.processes;
        let count = usize::from(shape.nodes) * usize::from(per_node);
        let program = |index: usize| {
            let at = Endpoint {
                node: NodeId((index / usize::from(per_node)) as u16),
                process: ProcessId((index % usize::from(per_node)) as u16),
            };
            Program::new(at, config.words)
        };
        Self {
            config,
            calls,
            per_node,
            idle_bytes: cluster.node(NodeId(0)).nic().memory().used_bytes(),
            programs: (0..count).map(program).collect(),
            incarnations: vec![0; usize::from(shape.nodes)],
            crashed: vec![false; usize::from(shape.nodes)],
            down: vec![false; usize::from(shape.nodes)],
            ..Self::default()
        }
    }

    fn count(&mut self, at_ns: u64, program: usize, call: &'static str) {
        let by = self.programs[program].at;
        self.history.push(Made { at_ns, by, call });
    }

    fn index(&self, at: Endpoint) -> usize {
        usize::from(at.node.0) * usize::from(self.per_node) + usize::from(at.process.0)
    }

    /// The process that has a lane in the exports of another.
    fn lane_owner(&self, exporter: usize, lane: usize) -> usize {
        let count = self.programs.len() as i64;
        (exporter as i64 + DISTANCES[lane]).rem_euclid(count) as usize
    }

    /// The lane that a process has in the exports of another; `None` where it has none.
    fn lane_of(&self, exporter: usize, importer: usize) -> Option<usize> {
        (0..LANES).find(|&lane| self.lane_owner(exporter, lane) == importer)
    }

    /// Where a lane begins in an export: the first is the last of it, so that also a small cluster goes to the end.
    fn lane_offset(&self, lane: u64) -> u64 {
        LANES_OFFSET + (LANES as u64 - 1 - lane) * self.config.lane_bytes
    }

    fn export_bytes(&self) -> u64 {
        LANES_OFFSET + LANES as u64 * self.config.lane_bytes
    }

    /// Whether a message may be lost: its export is revoked, or one of the two nodes has crashed.
    fn may_fail(&self, sent: &Sent) -> bool {
        may_fail(&self.instances, self.config.may_lack_pages, sent)
    }

    /// All that the programs of a node knew and had is gone.
    fn forget(&mut self, now_ns: u64, node: NodeId) {
        let words = self.config.words;
        for program in self.programs.iter_mut().filter(|program| program.at.node == node) {
            for held in &program.held {
                let had = self.former.entry((node, held.instance)).or_insert(Rights::NONE);
                *had = *had | held.grant.rights;
            }
            *program = Program::new(program.at, words);
        }
        self.wanted.retain(|(by, ..), _| *by != node);
        let of_node = |instance: &&mut Instance| instance.exporter.node == node;
        for instance in self.instances.iter_mut().filter(of_node) {
            if core::mem::replace(&mut instance.stands, false) {
                instance.until_ns = Some(now_ns);
            }
        }
        self.misused.retain(|misused| misused.by.node != node);
        for ((from, _), stream) in &mut self.streams {
            if self.programs[*from].at.node == node {
                stream.give_up();
            }
        }
        let programs = &self.programs;
        self.notifications.retain(|due| due.0.node != node);
        self.late_revokes.retain(|late| programs[late.0].at.node != node);
        self.todo.retain(|todo| {
            let (Todo::Enter(program, _) | Todo::Over(program, ..)) = *todo;
            programs[program].at.node != node
        });
    }

    /// Checks that nothing waits, once nothing is left to happen.
    fn check_rest(&mut self, cluster: &mut Cluster) {
        let now_ns = cluster.now_ns();
        if let Some(violation) = self.waiting(cluster) {
            return self.violated(now_ns, violation);
        }
        for node in (0..cluster.config().nodes).map(NodeId) {
            if cluster.is_alive(node) {
                let outcome = self.check_room(cluster.node(node));
                self.note(now_ns, outcome);
            }
        }
        let outcome = self.check_holders(cluster);
        self.note(now_ns, outcome);
        let outcome = self.check_held(cluster);
        self.note(now_ns, outcome);
        let outcome = self.check_revoked();
        self.note(now_ns, outcome);
        let outcome = self.check_forged();
        self.note(now_ns, outcome);
        self.coverage.note(Condition::AtRest);
        for number in 0..self.instances.len() {
            let instance = &self.instances[number];
            let is_there = instance.stands && cluster.is_alive(instance.exporter.node);
            if !is_there || !keeps_place(instance.slot) {
                continue;
            }
            let (exporter, address, seed) = (instance.exporter, instance.address, instance.seed);
            let (_, memory) = cluster.parts(exporter.node);
            let mut word = [0; 8];
            memory.read(exporter.process.0, address + WORD_OFFSET, &mut word);
            let mut bytes = [0; STATIC_BYTES as usize];
            memory.read(exporter.process.0, address, &mut bytes);
            let outcome = self.instances[number].adds.finish(u64::from_le_bytes(word));
            self.note(now_ns, outcome);
            if let Some(at) = differs(seed, 0, &bytes) {
                self.broke(
                    now_ns,
                    "bounds",
                    format!("{}: byte {at}, which nobody may store, has changed", exporter.node),
                );
            }
        }
    }

    /// A node at rest holds what its programs hold.
    fn check_room(&self, node: &Node<AnyDesign>) -> Result<(), Violation> {
        let (nic, number) = (node.nic(), node.nic().node());
        let processes = u64::from(self.per_node);
        let peers = (self.crashed.len() as u64).min(2 * LANES as u64 * processes);
        room::fits(number, &nic.memory(), self.idle_bytes, (peers, processes))?;
        let (mut holdings, mut backlog) = (nic.holdings(), node.backlog());
        if self.may_not_know() {
            // What crashed nodes have sent.
            (holdings.messages, holdings.early_bytes, holdings.misses) = (0, 0, 0);
            backlog.waiting = 0;
        }
        room::holds_what_is_used(number, self.used_by(number), &holdings, &backlog)
    }

    /// Each export is held as often as programs hold it.
    fn check_holders(&self, cluster: &Cluster) -> Result<(), Violation> {
        if self.may_not_know() {
            return Ok(());
        }
        let mut used = vec![0; self.instances.len()];
        for held in self.programs.iter().flat_map(|program| &program.held) {
            used[held.instance] += 1;
        }
        for (instance, used) in self.instances.iter().zip(used) {
            let Endpoint { node, process } = instance.exporter;
            if instance.stands && cluster.is_alive(node) {
                let holders = cluster.node(node).holders(process, instance.id);
                room::has_holders(node, instance.id, holders, used)?;
            }
        }
        Ok(())
    }

    /// No page is held but those of exports.
    fn check_held(&mut self, cluster: &mut Cluster) -> Result<(), Violation> {
        let is_alive = |program: &&Program| cluster.is_alive(program.at.node);
        let alive: Vec<Endpoint> = self.programs.iter().filter(is_alive).map(|it| it.at).collect();
        for at in alive.into_iter().filter(|_| self.config.keeps_holds) {
            let (node, memory) = cluster.parts(at.node);
            // As a machine does now and then.
            node.reclaim(memory, |_| {});
            let used = self.export_pages(self.index(at));
            self.coverage.note_many(Condition::PagesHeld, u64::from(used > 0));
            pins::are_held(at, node.held_pages(at.process), used)?;
        }
        Ok(())
    }

    /// Pages of the exports of a program, and of where they are redirected to, that are pinned as long as they stand.
    fn export_pages(&self, program: usize) -> u64 {
        if !self.config.pins_exports {
            return 0;
        }
        let Program { exports, mapped, .. } = &self.programs[program];
        let pages = |address, length| PageRange::covering(address, length).map_or(0, |it| it.count);
        let standing = exports.iter().flatten().map(|&number| {
            let instance = &self.instances[number];
            let landing = instance.landing.filter(|_| instance.is_redirected);
            let landed = landing.map_or(0, |landing| pages(landing, instance.length));
            pages(instance.address, instance.length) + landed
        });
        let mapped = mapped.iter().flat_map(Mapped::pinned);
        standing.sum::<u64>() + mapped.map(|(address, length)| pages(address, length)).sum::<u64>()
    }

    /// Who imports an export that is revoked knows it.
    fn check_revoked(&self) -> Result<(), Violation> {
        let has_crashed = |at: Endpoint| self.crashed[usize::from(at.node.0)];
        for Program { at, held, .. } in &self.programs {
            let is_untold = |held: &&Held| {
                let instance = &self.instances[held.instance];
                !held.is_dead && !instance.stands && !has_crashed(instance.exporter)
            };
            if let Some(held) = held.iter().find(is_untold) {
                return Err(importers::was_untold(*at, &self.instances[held.instance]));
            }
        }
        Ok(())
    }

    /// All that is not allowed was refused, if it came as far.
    fn check_forged(&self) -> Result<(), Violation> {
        let has_crashed = |node: NodeId| self.crashed[usize::from(node.0)];
        let mut sent: BTreeMap<(NodeId, NodeId), Vec<&Forged>> = BTreeMap::new();
        for forged in &self.forged {
            // A long send lacks pages where it is sent.
            let may_lack = forged.kind == Kind::Part && self.config.may_lack_pages;
            let is_sent = self.instances[forged.carrier].stands && !may_lack;
            if is_sent && !has_crashed(forged.from) && !has_crashed(forged.to) {
                sent.entry((forged.from, forged.to)).or_default().push(forged);
            }
        }
        for (pair, sent) in sent {
            forgery::were_refused(&sent, self.refusals.get(&pair).copied().unwrap_or(0))?;
        }
        let mut misused = self.misused.iter();
        match misused.find(|misused| self.instances[misused.instance].stands) {
            None => Ok(()),
            Some(misused) => Err(forgery::was_misused(misused)),
        }
    }

    /// Whether nodes may not know of crashes: a link is found dead once something is awaited of it.
    fn may_not_know(&self) -> bool {
        self.config.resends && self.crashed.contains(&true)
    }

    /// Exports and imports of the programs of a node.
    fn used_by(&self, node: NodeId) -> (usize, usize) {
        let of_node = self.programs.iter().filter(|program| program.at.node == node);
        of_node.fold((0, 0), |(exports, imports), program| {
            let mapped = usize::from(program.mapped.is_some());
            let standing = program.exports.iter().flatten().count() + mapped;
            (exports + standing, imports + program.held.len())
        })
    }

    /// What waits though nothing is left to happen.
    fn waiting(&self, cluster: &Cluster) -> Option<Violation> {
        for program in &self.programs {
            let at = program.at;
            if !cluster.is_alive(at.node) {
                continue;
            }
            if let Some((word, pending)) = program.words.iter().next() {
                let what = format!("completion {word} of {:?}", pending.work);
                return Some(liveness::still_waits(at, what));
            }
            if let Some((request, asked)) = program.asked.iter().next() {
                let (from, slot) = (self.programs[asked.exporter].at, asked.slot);
                let what = format!("import {} of export {slot} of {}", request.0, from.node);
                return Some(liveness::still_waits(at, what));
            }
            let queued = cluster.queued_commands(at);
            if queued > 0 {
                return Some(liveness::still_waits(at, format!("a queue of {queued} commands")));
            }
        }
        for ((from, to), stream) in &self.streams {
            // What a node had not sent as it crashed never comes.
            if !cluster.is_alive(self.programs[*from].at.node) {
                continue;
            }
            if let Some(sent) = stream.missing(u64::MAX, |sent| self.may_fail(sent)) {
                let what = format!("message {} of {} bytes to {to}", sent.number, sent.length);
                return Some(liveness::still_waits(self.programs[*from].at, what));
            }
        }
        let due = self.notifications.iter().find(|due| {
            let id = self.by_id.get(&(due.0.node, due.1));
            let stands = id.is_some_and(|id| self.instances[*id].stands);
            stands && !self.down[usize::from(due.0.node.0)]
        });
        due.map(|(at, export, from, ..)| liveness::still_waits(*at, format!("a notification at {export} from {from}")))
    }

    /// The parts of a process's memory that are in use, by address and length.
    fn used(&self, program: usize) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
        let Program { exports, words, mapped, .. } = &self.programs[program];
        let of_words = words.iter().filter(|(_, pending)| pending.length > 0);
        let of_words = of_words.map(|(_, pending)| ("a transfer", pending.address, pending.length));
        let pins = self.config.pins_exports;
        let of_exports = exports.iter().flatten().filter(move |_| pins).map(|&number| {
            let instance = &self.instances[number];
            ("an export", instance.address, instance.length)
        });
        let mapped = mapped.iter().filter(move |_| pins).flat_map(Mapped::pinned);
        let of_mapped = mapped.map(|(address, length)| ("an export", address, length));
        of_words.chain(of_exports).chain(of_mapped)
    }

    fn spot(&self, at: Endpoint, address: u64, length: u64) -> Result<Spot, Violation> {
        let exports = &self.programs[self.index(at)].exports;
        find(at, address, length, exports, &self.instances)
    }

    fn check_unpinned(&mut self, now_ns: u64, at: Endpoint, page: u64) {
        self.coverage.note(Condition::Unpinned);
        if (page << 12) >= FIRST_ADDRESS {
            let outcome = pins::unpinned(at, page, self.used(self.index(at)));
            self.note(now_ns, outcome);
        }
    }
}

impl Programs for Callers {
    /// Calls that did something, in order.
    type Seen = Vec<Made>;

    fn violation(&self) -> Option<&(u64, Violation)> {
        self.violation.as_ref()
    }

    fn runs_at(&self, number: u32) -> Option<NodeId> {
        Some(self.programs[self.calls[number as usize].process as usize].at.node)
    }

    /// A program makes a call; again, if it found no room.
    fn event(&mut self, cluster: &mut Cluster, number: u32) -> bool {
        let call = self.calls[number as usize];
        if self.call(cluster, &call) {
            cluster.schedule(cluster.now_ns() + AGAIN_NS, number);
        }
        false
    }

    fn follow_up(&mut self, cluster: &mut Cluster) {
        while let Some(todo) = self.todo.pop() {
            match todo {
                Todo::Enter(program, request) => self.enter(cluster, program, request),
                Todo::Over(program, pending, is_done) => self.over(cluster, program, pending, is_done),
            }
        }
    }

    fn rest(&mut self, cluster: &mut Cluster) {
        self.check_rest(cluster);
    }

    fn finish(self, coverage: &mut Coverage) -> Vec<Made> {
        coverage.add(&self.coverage);
        self.history
    }
}

/// Whether a message may be lost.
fn may_fail(instances: &[Instance], lacks_pages: bool, sent: &Sent) -> bool {
    lacks_pages || sent.is_given_up || !instances[sent.instance].stands
}

/// Where an export begins, and where the buffer of a word: as the layout of memory has it, `shift` bytes further on.
fn place_of_export(slot: usize, redirected: bool, shift: u64) -> u64 {
    slot_address(slot, redirected) + shift
}

fn place_of_buffer(word: u32, shift: u64) -> u64 {
    buffer_address(word) + shift
}
