//! A client of donors, with a disk behind them, run by the code that real ones run ([`mapwire_gms::Client`]): node 0 stores the pages of its
//! program and fetches them, while donors shrink, die and lie. A page that is read is the page that was written last; an error is named only
//! where two donors had failed by then, and never where the disk has each page.

mod program;
mod world;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use mapwire_gms::{Client, ClientConfig, Config, FRAME_BYTES, Frames, Gms, PageName, PageWord, SpaceId};
use mapwire_node::{Ask, Told};
use mapwire_wire::{Endpoint, NodeId};

use super::buggy::Buggy;
use super::{FRAMES_ADDRESS, GLOBAL, GlobalScenario, PROCESS};
use crate::canary::Canary;
use crate::cluster::{Cluster, Observer, StoreBy, Violation};
use crate::coverage::counted;
use crate::random::Random;
use crate::run::{Outcome, Part, RunError, Workload, drive};
use crate::segments::Segments;

const CLIENT: NodeId = NodeId(0);

/// Events of a run at most, for each step of its program.
const EVENTS_A_STEP: u64 = 50_000;

/// Events: the next step of the program, and the end of a wait.
const STEP: u32 = 0;
const WAKE: u32 = 1;

counted! { DonorSeen {
    fetched = DonorFetched: "Pages that were read from donors or the disk.";
    elsewhere: "Pages that came with wrong bytes and were found elsewhere.";
    stored_again: "Pages in RAM that were stored again since all copies were lost.";
    lost: "Pages that were lost with two donors.";
    salvaged = Salvaged: "Pages that were read from the memory of dead donors.";
    late = LateDonor: "Operations that donors did not end in time.";
    died: "Donors that died.";
    lied: "Donors that changed pages or said what is not so.";
    shrunk: "Donors that took frames back.";
} }

/// How a client and its donors are.
#[derive(Clone, Copy, Debug)]
pub struct DonorShape {
    /// Donors that are to have each page, besides or in place of the disk.
    pub copies: u8,
    /// Pages of the program.
    pub pages: u64,
    /// Frames of the client for each kind of operation.
    pub frames: u32,
    /// Frames of each donor.
    pub pool_frames: u32,
    /// Donors whose memory the client can read: all below this one.
    pub near: u16,
    /// About as many donors die, and lie.
    pub die: u16,
    pub lie: u16,
    /// How long the client waits for what the disk has as well.
    pub patience_ns: u64,
    /// Of 100 writes of the disk, those that fail.
    pub full_percent: u64,
    pub steps: u32,
    /// Most of the time between two steps.
    pub pace_ns: u64,
}

impl DonorShape {
    pub(super) fn draw(mut random: Random, nodes: u16, steps: Option<u32>) -> Self {
        let donors = u64::from(nodes) - 1;
        Self {
            copies: if donors < 2 { 1 } else { *random.pick(&[1, 2, 2, 2]) },
            pages: random.within(4, 16),
            frames: *random.pick(&[1, 2, 8]),
            pool_frames: *random.pick(&[8, 32, 64]),
            near: *random.pick(&[1, nodes]),
            die: if random.chance(85) { random.within(donors, 3 * donors) as u16 } else { 0 },
            lie: u16::from(random.chance(25)),
            patience_ns: random.spread(100_000, 20_000_000),
            full_percent: *random.pick(&[0, 0, 10]),
            steps: steps.unwrap_or(random.within(100, 400) as u32),
            pace_ns: *random.pick(&[100_000, 1_000_000, 10_000_000]),
        }
    }
}

impl fmt::Display for DonorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copies, pages, frames, pool_frames, near, die, lie, patience_ns, full_percent, steps, pace_ns } =
            self;
        writeln!(
            f,
            "  a client of donors: {copies} copies of {pages} pages, {frames} at once, {pool_frames} frames of each donor, those below {near} on its host\n\
             \x20 {die} donors die, {lie} lie; {patience_ns} ns of patience, {full_percent} % of writes fail, {steps} steps, up to {pace_ns} ns apart"
        )
    }
}

/// What the client has of its own: what its threads share.
#[derive(Debug)]
struct Own {
    client: Client,
    frames: RefCell<Frames>,
    words: RefCell<BTreeMap<u64, PageWord>>,
    disk: RefCell<BTreeMap<u64, Vec<u8>>>,
    discards: RefCell<VecDeque<(PageName, u32)>>,
    has_session: Cell<bool>,
}

/// A page of the program.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// How often it was written; its bytes follow from that.
    written: u32,
    /// It is in RAM, with bytes that the store does not have.
    is_dirty: bool,
    is_in_ram: bool,
    is_stored: bool,
    /// Two donors have failed since it was stored.
    may_be_lost: bool,
}

/// The donors and the program, and what must be true of them.
#[derive(Debug)]
struct Donors {
    shape: DonorShape,
    nodes: u16,
    /// Absent while the client does something.
    own: Option<Box<Own>>,
    pages: Vec<Page>,
    left: u32,
    /// Steps, by number, in which the program does nothing.
    skipped: BTreeSet<u32>,
    /// Donors that lived at the client's last look.
    living: usize,
    /// Donors that are dead or lie, and those of which the client has made good.
    failed: BTreeSet<NodeId>,
    healed: BTreeSet<NodeId>,
    liars: BTreeSet<NodeId>,
    failures: u32,
    segments: Segments,
    canary: Option<Canary>,
    random: Random,
    most_events: u64,
    is_interrupted: bool,
    is_over: bool,
    seen: DonorSeen,
    violation: Option<(u64, Violation)>,
}

impl Donors {
    fn is_stopped(&self) -> bool {
        self.violation.is_some() || self.is_interrupted
    }

    fn gms<'a>(&self, cluster: &'a Cluster, node: NodeId) -> Option<&'a Gms> {
        super::gms_of(cluster, node, node != CLIENT)
    }

    /// A call of a node's global memory, with its time; then all that follows from it.
    fn call<R>(&mut self, cluster: &mut Cluster, node: NodeId, call: impl FnOnce(&mut Gms, u64) -> R) -> Option<R> {
        let clock_ns = cluster.clock_ns(node);
        let (parts, _) = cluster.parts(node);
        let done = if node == CLIENT {
            parts.call(PROCESS, GLOBAL, |gms: &mut Gms| call(gms, clock_ns))
        } else {
            parts.call(PROCESS, GLOBAL, |buggy: &mut Buggy| call(buggy.gms_mut(), clock_ns))
        };
        cluster.settle(node, self);
        done
    }

    /// Whether pages may be lost that are not on the disk: two donors have failed.
    fn may_lose(&self) -> bool {
        self.shape.copies > 1 && self.failed.difference(&self.healed).count() > 1
    }

    /// A donor is of no use any more. Where two are, pages may be lost that are not on the disk.
    fn fail(&mut self, node: NodeId) {
        self.failures += 1;
        self.failed.insert(node);
        if self.may_lose() {
            self.pages.iter_mut().for_each(|page| page.may_be_lost |= page.is_stored);
        }
    }
}

impl Observer for Donors {
    fn told(&mut self, now_ns: u64, at: NodeId, told: &Told) {
        let is_explained = match told {
            Told::PathChanged { .. } => true,
            Told::PeerSilent { node } => self.failed.contains(node),
            _ => false,
        };
        if !is_explained {
            self.broke(now_ns, "global memory", format!("{at}: {told:?}"));
        }
    }

    fn asked(&mut self, _now_ns: u64, at: NodeId, ask: &Ask) {
        self.segments.note(at, ask);
    }

    fn store(&mut self, _now_ns: u64, at: NodeId, ask: &Ask) -> StoreBy {
        self.segments.store(at, ask).unwrap_or(StoreBy::Nothing { is_claimed: false })
    }

    fn crashed(&mut self, _now_ns: u64, node: NodeId) {
        self.seen.died += 1;
        self.segments.forget(node);
        self.fail(node);
    }

    fn violated(&mut self, now_ns: u64, violation: Violation) {
        self.violation.get_or_insert((now_ns, violation));
    }
}

/// Runs a client of donors.
pub(super) fn run(
    scenario: &GlobalScenario,
    shape: DonorShape,
    part: Part<'_>,
) -> Result<Outcome<super::Seen>, RunError> {
    let (mut cluster, mut random) = scenario.begin(part)?;
    let mut donors = begin(scenario, shape, &mut cluster, &mut random)?;
    donors.skipped = (0..shape.steps).filter(|step| !(part.has_call)(*step as usize)).collect();
    let most_events = donors.most_events;
    Ok(drive(cluster, donors, (most_events, u64::MAX)))
}

/// Puts the global memory of each node there.
fn begin(
    scenario: &GlobalScenario,
    shape: DonorShape,
    cluster: &mut Cluster,
    random: &mut Random,
) -> Result<Donors, RunError> {
    let nodes = scenario.shape.nodes;
    let most_frames = shape.pool_frames.max(2 * shape.frames);
    let bytes = u64::from(most_frames) * FRAME_BYTES;
    let config = ClientConfig {
        copies: shape.copies,
        patience_ns: shape.patience_ns,
        pause_ns: shape.patience_ns,
        full_ns: shape.patience_ns,
    };
    let own = Own {
        client: Client::new(config),
        frames: RefCell::new(Frames::new(2 * shape.frames)),
        words: RefCell::default(),
        disk: RefCell::default(),
        discards: RefCell::default(),
        has_session: Cell::new(true),
    };
    let mut donors = Donors {
        shape,
        nodes,
        own: Some(Box::new(own)),
        pages: vec![Page::default(); shape.pages as usize],
        left: shape.steps,
        skipped: BTreeSet::new(),
        living: usize::from(nodes) - 1,
        failed: BTreeSet::new(),
        healed: BTreeSet::new(),
        liars: BTreeSet::new(),
        failures: 0,
        segments: Segments::new(GLOBAL, FRAMES_ADDRESS, bytes, scenario.stores_by_nic),
        canary: scenario.drawn.canary,
        random: Random::new(random.next()),
        most_events: EVENTS_A_STEP * (u64::from(shape.steps) + 50),
        is_interrupted: false,
        is_over: false,
        seen: DonorSeen::default(),
        violation: None,
    };
    for node in (0..nodes).map(NodeId) {
        let (own, pool) = if node == CLIENT { (2 * shape.frames, 0) } else { (0, shape.pool_frames) };
        let gms = Gms::new(Config {
            process: PROCESS,
            requests: 4 * shape.frames as u16,
            epoch_ms: scenario.shape.epoch_ms,
            ..Config::new(node, (0..nodes).map(NodeId).collect(), own + pool, pool)
        })?;
        let (parts, _) = cluster.parts(node);
        match node {
            CLIENT => parts.register(PROCESS, GLOBAL, Box::new(gms))?,
            _ => parts.register(PROCESS, GLOBAL, Box::new(Buggy::new(gms, None)))?,
        }
        if let Err(text) = donors.segments.export(cluster, Endpoint::first_of(node)) {
            donors.broke(0, "global memory", text);
        }
    }
    let all: Vec<Endpoint> = (0..nodes).map(|node| Endpoint::first_of(NodeId(node))).collect();
    if let Err(text) = donors.segments.ask(cluster, &all) {
        donors.broke(0, "global memory", text);
    }
    for node in (0..nodes).map(NodeId) {
        cluster.settle(node, &mut donors);
        if node != CLIENT {
            donors.call(cluster, node, |gms, now_ns| gms.donate(now_ns, shape.pool_frames));
        }
    }
    cluster.schedule(0, STEP);
    Ok(donors)
}

/// The name of a page of the program.
fn name_of(id: u64) -> PageName {
    PageName::new(&SpaceId::Anonymous { node: CLIENT.0, incarnation: 1, region: 0 }, id)
}
