//! Programs that use global memory, and what is checked of it: a page that is read is the page written last, unless deaths, discards or
//! want of room explain that it is not there, and an older version comes back at most as members change; nothing lands in a frame that no
//! operation names; every operation ends; and at rest the directory names the pages that are stored and no others. Nodes join, leave,
//! donate frames and die.

mod buggy;
mod donors;
mod program;
mod running;
mod scenario;
mod seen;

pub use donors::{DonorSeen, DonorShape};
pub use seen::Seen;

use std::collections::BTreeMap;

use mapwire_gms::{FRAME_BYTES, Gms, PageName, SpaceId};
use mapwire_node::{Act, Ask, Told};
use mapwire_wire::{Endpoint, HandlerId, NodeId, ProcessId};

use crate::canary::Canary;
use crate::checks::global_memory::{self as check, Read, Truth};
use crate::checks::liveness;
use crate::cluster::{Cluster, FIRST_ADDRESS, Observer, StoreBy, Violation};
use crate::random::Random;
use crate::run::Drawn;
use crate::segments::Segments;
use buggy::Buggy;

/// The handler id of the global memory.
const GLOBAL: HandlerId = HandlerId(4);
/// The process of each node that takes part.
const PROCESS: ProcessId = ProcessId(0);
/// Where the frames begin in each process: apart from where other services have their memory.
const FRAMES_ADDRESS: u64 = FIRST_ADDRESS + (1 << 20);
/// Frames that a program uses.
const OWN_FRAMES: u32 = 16;

/// When it is looked first whether all is at rest, after the last call; then ever later.
const FIRST_LOOK_NS: u64 = 30_000_000;

#[derive(Clone, Copy, Debug)]
pub struct GlobalShape {
    pub nodes: u16,
    /// Of them, those that are members at the start.
    pub members: u16,
    /// Frames of each node that may serve others.
    pub pool_frames: u32,
    /// Pages of each node's own.
    pub pages: u64,
    pub shared_pages: u64,
    /// Operations of each kind that a node may have under way.
    pub requests: u16,
    /// Bytes of each node's part of the directory.
    pub directory_bytes: usize,
    /// Of 100 putpages, those of a page that is on permanent storage.
    pub on_disk_percent: u64,
    /// Of 100 calls, those that join or leave.
    pub moves_percent: u64,
    /// How long an epoch lasts at most.
    pub epoch_ms: u32,
}

/// A run as it was drawn.
#[derive(Debug)]
pub struct GlobalScenario {
    pub drawn: Drawn,
    pub shape: GlobalShape,
    pub calls: u32,
    /// Pages are stores of the network interfaces; otherwise each node has mapped the memory of the others.
    pub stores_by_nic: bool,
    /// A client of donors in place of programs that use global memory in all its parts.
    pub donors: Option<DonorShape>,
}

/// What an operation of a program is about.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Get {
        name: PageName,
        frame: u32,
        keep: bool,
    },
    Put {
        name: PageName,
        frame: u32,
        version: u32,
        on_disk: bool,
    },
    /// A page of the node's own pool, of this version and checksum, is about to be copied from `from`.
    Copy {
        name: PageName,
        frame: u32,
        keep: bool,
        from: u32,
        version: u32,
        checksum: u32,
    },
}

/// The program of a node.
#[derive(Debug, Default)]
struct Program {
    operations: BTreeMap<u64, Operation>,
    /// Frames that no operation uses: all zeros.
    spare: Vec<u32>,
    has_joined: bool,
    is_leaving: bool,
    is_dead: bool,
}

/// A call of a program.
#[derive(Clone, Copy, Debug)]
struct Call {
    at_ns: u64,
    node: NodeId,
    seed: u64,
}

/// How far the end of a run is: a look at a cluster that should be at rest, the reads of all pages, and a last look.
#[derive(Clone, Copy, Debug)]
struct Ending {
    last_ns: u64,
    look_ns: u64,
    unread: u64,
    was_at_rest: bool,
}

impl Ending {
    /// That of a run whose nodes read so many pages each.
    const fn new(pages: u64) -> Self {
        Self { last_ns: 0, look_ns: FIRST_LOOK_NS, unread: pages, was_at_rest: false }
    }
}

/// The programs and what must be true of them.
#[derive(Debug)]
struct Programs {
    calls: Vec<Call>,
    ending: Ending,
    shape: GlobalShape,
    programs: Vec<Program>,
    truths: BTreeMap<PageName, Truth>,
    segments: Segments,
    /// Copies that are due: events with the numbers from `first_copy` on.
    copies: Vec<(NodeId, u64)>,
    first_copy: u32,
    tag: u64,
    /// Nodes that have crashed since the last step.
    crashed: Vec<NodeId>,
    canary: Option<Canary>,
    /// Draws when the bug shows, and how long programs take.
    random: Random,
    seen: Seen,
    violation: Option<(u64, Violation)>,
}

/// A page of a node's own.
fn own_page(node: NodeId, page: u64) -> PageName {
    let space = SpaceId::Anonymous { node: node.0, incarnation: 1, region: 0 };
    PageName::new(&space, page)
}

/// Whether a page is the node's own.
fn is_own(node: NodeId, name: PageName) -> bool {
    own_page(node, name.page) == name
}

/// The global memory of a node.
fn gms_of(cluster: &Cluster, node: NodeId, is_buggy: bool) -> Option<&Gms> {
    let node = cluster.node(node);
    if is_buggy { node.service(PROCESS, GLOBAL).map(Buggy::gms) } else { node.service(PROCESS, GLOBAL) }
}

impl Programs {
    fn unexplained(&mut self, now_ns: u64, text: String) {
        self.broke(now_ns, "global memory", text);
    }

    fn is_buggy(&self) -> bool {
        self.canary.is_some_and(Canary::is_of_global_memory)
    }

    fn gms<'a>(&self, cluster: &'a Cluster, node: NodeId) -> Option<&'a Gms> {
        gms_of(cluster, node, self.is_buggy())
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.shape.nodes).map(NodeId)
    }

    fn is_alive(&self, node: NodeId) -> bool {
        !self.programs[usize::from(node.0)].is_dead
    }

    /// A call of the global memory, with the time of the node; then all that follows from it.
    fn call<R>(&mut self, cluster: &mut Cluster, node: NodeId, call: impl FnOnce(&mut Gms, u64) -> R) -> Option<R> {
        let clock_ns = cluster.clock_ns(node);
        let (parts, _) = cluster.parts(node);
        let done = if self.is_buggy() {
            parts.call(PROCESS, GLOBAL, |buggy: &mut Buggy| call(buggy.gms_mut(), clock_ns))
        } else {
            parts.call(PROCESS, GLOBAL, |gms: &mut Gms| call(gms, clock_ns))
        };
        cluster.settle(node, self);
        done
    }

    /// Lets each node import the memory of each other.
    fn ask_imports(&mut self, cluster: &mut Cluster) {
        let all: Vec<Endpoint> = self.nodes().map(Endpoint::first_of).collect();
        if let Err(text) = self.segments.ask(cluster, &all) {
            self.unexplained(0, text);
        }
        for node in self.nodes() {
            cluster.settle(node, self);
        }
    }

    /// Pages may be lost with a node: those that it stores, and those that an operation is about.
    fn lose(&mut self, cluster: &Cluster, node: NodeId) {
        self.seen.crashed += 1;
        self.segments.forget(node);
        let pages = self.gms(cluster, node).into_iter().flat_map(Gms::pages);
        for (name, ..) in pages {
            if let Some(truth) = self.truths.get_mut(&name) {
                truth.must_be_there = false;
            }
        }
        for truth in self.truths.values_mut().filter(|truth| truth.is_busy) {
            truth.must_be_there = false;
        }
        self.programs[usize::from(node.0)] = Program { is_dead: true, ..Program::default() };
    }

    /// What must hold once nothing is under way.
    fn check_rest(&self, cluster: &mut Cluster) -> Result<(), Violation> {
        let living: Vec<NodeId> = self.nodes().filter(|&node| self.is_alive(node)).collect();
        for &node in &living {
            let program = &self.programs[usize::from(node.0)];
            let at = Endpoint::first_of(node);
            if let Some(operation) = program.operations.values().next() {
                return Err(liveness::still_waits(at, format!("{operation:?}")));
            }
            // A node leaves once somebody has taken its pages.
            let under_way = self.gms(cluster, node).map_or(0, Gms::under_way);
            if under_way > 0 && !program.is_leaving {
                return Err(liveness::still_waits(at, format!("{under_way} operations")));
            }
        }
        let of = |&node: &NodeId| self.gms(cluster, node);
        let all: Vec<&Gms> = living.iter().filter_map(of).collect();
        check::fits_together(&all, self.shape.pool_frames)?;
        let pages: Vec<_> = all.iter().flat_map(|gms| gms.pages().map(|page| (gms.config().node, page))).collect();
        for (node, (name, version, frame)) in pages {
            let bytes = self.read(cluster, node, frame);
            let read = Read { name, version, checksum: 0, bytes: &bytes };
            check::holds(node, read)?;
        }
        Ok(())
    }

    fn read(&self, cluster: &mut Cluster, node: NodeId, frame: u32) -> Vec<u8> {
        let mut bytes = vec![0; FRAME_BYTES as usize];
        let address = FRAMES_ADDRESS + u64::from(frame) * FRAME_BYTES;
        cluster.parts(node).1.read(PROCESS.0, address, &mut bytes);
        bytes
    }

    fn write(&self, cluster: &mut Cluster, node: NodeId, frame: u32, bytes: &[u8]) {
        let address = FRAMES_ADDRESS + u64::from(frame) * FRAME_BYTES;
        cluster.parts(node).1.write(PROCESS.0, address, bytes);
    }
}

impl Observer for Programs {
    fn told(&mut self, now_ns: u64, at: NodeId, told: &Told) {
        let of_dead = match told {
            Told::PathChanged { .. } => return,
            Told::PeerSilent { node } => Some(*node),
            _ => None,
        };
        if of_dead.is_none_or(|node| self.is_alive(node)) {
            self.unexplained(now_ns, format!("{at}: {told:?}"));
        }
    }

    fn asked(&mut self, now_ns: u64, at: NodeId, ask: &Ask) {
        self.segments.note(at, ask);
        if let Act::Protect { .. } = ask.act {
            self.unexplained(now_ns, format!("{at} asks for {ask:?}"));
        }
    }

    fn store(&mut self, _now_ns: u64, at: NodeId, ask: &Ask) -> StoreBy {
        if self.canary == Some(Canary::LostStore) && self.random.chance(5) {
            return StoreBy::Nothing { is_claimed: true };
        }
        self.segments.store(at, ask).unwrap_or(StoreBy::Nothing { is_claimed: false })
    }

    fn crashed(&mut self, _now_ns: u64, node: NodeId) {
        self.programs[usize::from(node.0)].is_dead = true;
        self.crashed.push(node);
    }

    fn violated(&mut self, now_ns: u64, violation: Violation) {
        self.violation.get_or_insert((now_ns, violation));
    }
}
