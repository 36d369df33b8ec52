//! The page directory of global memory on computers of another time: hosts, programmable NICs with a DMA engine, wires.
//!
//! Each node runs the real [`Gms`]; messages are those that it sends, and what a directory operation costs follows from what its
//! [`Directory`](mapwire_gms::Directory) looked at. The [`Profile`] says what each step costs. All time is whole picoseconds,
//! and nothing is drawn, so a run repeats to the last digit on every platform.
//!
//! What a NIC does, step by step, is in `jobs`; what a host does, in `host`; what happens when, in `run`.

mod host;
mod jobs;
mod nic;
mod run;

use std::collections::VecDeque;

use mapwire_gms::{Config, ConfigError, Gms, NodeSet, Outcome, PageName, RowSize, Scanned};
use mapwire_vmmc::service::Service;
use mapwire_wire::{Endpoint, NodeId};
use thiserror::Error;

use crate::hardware::wires::{Flight, Orders, Wires};
use crate::hardware::{Agenda, Profile, Ps, Timeline};
use host::Host;
use jobs::Jobs;
use nic::Nic;

pub use host::{Call, HostLoad};
pub use jobs::Placement;

/// What a machine is like, besides its costs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Nodes, 2 to [`MAX_NODES`](mapwire_gms::MAX_NODES).
    pub nodes: u16,
    pub placement: Placement,
    /// Entries in a row of the directory.
    pub row_size: RowSize,
    /// Bytes of each node's part of the directory, in host memory. In NIC memory it is what the profile has room for.
    pub directory_bytes: usize,
    /// Frames of each node that serve others.
    pub pool_frames: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// The service refuses its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("node {node} refuses the call: {error}")]
    Refused { node: u16, error: mapwire_gms::Error },
    #[error("{node} says that {by} broke the protocol: messages were mixed up")]
    Broken { node: NodeId, by: NodeId },
    #[error("node {node} did not get page {page}, although it is stored: the protocol lost it")]
    Lost { page: u64, node: u16 },
    #[error("page {page} could not be stored at {node}: give nodes more frames or a larger directory")]
    NotPlaced { page: u64, node: NodeId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub at_ps: Ps,
    pub node: u16,
    /// How an operation ended; `None` if a bare message came.
    pub outcome: Option<Outcome>,
}

/// How busy a node was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How long the NIC's processor worked, waits for DMA included.
    pub nic_ps: Ps,
    /// Of that, sending what the host had handed over.
    pub nic_sending_ps: Ps,
    /// How long the host handled messages, interrupts included.
    pub host_ps: Ps,
    pub interrupts: u64,
}

impl std::ops::Sub for Load {
    type Output = Self;

    /// What was done since an earlier time.
    fn sub(self, earlier: Self) -> Self {
        Self {
            nic_ps: self.nic_ps - earlier.nic_ps,
            nic_sending_ps: self.nic_sending_ps - earlier.nic_sending_ps,
            host_ps: self.host_ps - earlier.host_ps,
            interrupts: self.interrupts - earlier.interrupts,
        }
    }
}

/// Something that happens at a node.
#[derive(Debug)]
enum Event {
    /// The NIC's processor ends a step of this plan.
    Nic { node: usize, plan: u64 },
    /// The host ends a phase.
    Host { node: usize },
    /// A transfer begins or ends.
    Dma { node: usize, is_wire: bool, begins: bool },
    /// A message is there, or its head if a page follows.
    Arrive(Flight),
    /// The program makes a call.
    Ask { node: usize, name: PageName, call: Call },
}

#[derive(Debug)]
struct Computer {
    gms: Gms,
    nic: Nic,
    host: Host,
    load: Load,
}

/// The cluster. Pages are [placed](Self::place), hosts [get their load](Self::set_host_load), then programs [ask](Self::ask) for pages,
/// and [`poll_told`](Self::poll_told) lets time pass up to the next outcome.
#[derive(Debug)]
pub struct Machine {
    jobs: Jobs,
    now_ps: Ps,
    agenda: Agenda<Event>,
    orders: Orders,
    wires: Wires,
    nodes: Vec<Computer>,
    told: VecDeque<Told>,
    /// What parts do, while that is wanted.
    pub timeline: Timeline,
}

impl Machine {
    /// Nodes that store nothing yet.
    pub fn new(profile: Profile, shape: Shape) -> Result<Self, MachineError> {
        let members: NodeSet = (0..shape.nodes).map(NodeId).collect();
        let directory_bytes = match shape.placement {
            Placement::NicMemory => profile.nic_table_bytes,
            _ => shape.directory_bytes,
        };
        let computer = |node| {
            let frames = 1 + shape.pool_frames;
            let gms = Gms::new(Config {
                directory_bytes,
                row_size: shape.row_size,
                requests: 4096,
                // Longer than any run.
                epoch_ms: u32::MAX,
                ..Config::new(NodeId(node), members, frames, shape.pool_frames)
            })?;
            Ok(Computer { gms, nic: Nic::default(), host: Host::default(), load: Load::default() })
        };
        let nodes = (0..shape.nodes).map(computer);
        let mut machine = Self {
            jobs: Jobs { profile, placement: shape.placement, row_size: shape.row_size },
            now_ps: 0,
            agenda: Agenda::new(),
            orders: Orders::default(),
            wires: Wires::new(shape.nodes.into()),
            nodes: nodes.collect::<Result<_, ConfigError>>()?,
            told: VecDeque::new(),
            timeline: Timeline::default(),
        };
        for node in 0..machine.nodes.len() {
            let donated = machine.nodes[node].gms.donate(1, shape.pool_frames);
            donated.map_err(|error| refused(node, error))?;
            machine.settle(node)?;
            // That the donation is as it was wanted.
            while machine.nodes[node].gms.poll_outcome().is_some() {}
        }
        Ok(machine)
    }

    /// What a host does besides from now on.
    pub fn set_host_load(&mut self, node: u16, load: HostLoad) {
        self.nodes[usize::from(node)].host.load = load;
    }

    pub fn directory_node(&self, name: PageName) -> Option<NodeId> {
        self.nodes[0].gms.map().directory_node(name.hash())
    }

    pub fn now_ps(&self) -> Ps {
        self.now_ps
    }

    /// How busy a node has been.
    pub fn load(&self, node: u16) -> Load {
        self.nodes[usize::from(node)].load
    }

    /// Stores a page of a node at another, at once and at no cost.
    pub fn place(&mut self, name: PageName, owner: u16, at: NodeId) -> Result<(), MachineError> {
        let (node, now_ns) = (usize::from(owner), self.now_ns());
        let begun = Call::Put(at).make(&mut self.nodes[node].gms, now_ns, name);
        begun.map_err(|error| refused(node, error))?;
        self.settle(node)?;
        match self.nodes[node].gms.poll_outcome() {
            Some(Outcome::Stored { .. }) => Ok(()),
            _ => Err(MachineError::NotPlaced { page: name.page, node: at }),
        }
    }

    /// The program of a node makes a call about a page at that time. The outcome has the page's number as its tag; a discardpage has none.
    pub fn ask(&mut self, at_ps: Ps, node: u16, name: PageName, call: Call) {
        self.agenda.enter(at_ps, Event::Ask { node: usize::from(node), name, call });
    }

    /// The host of a node hands its NIC a bare message for another, with so many bytes of memory.
    pub fn send(&mut self, node: u16, to: NodeId, page_bytes: u64) {
        let job = self.jobs.send(self.orders.make(node, to.0, &[], page_bytes));
        self.give_nic(usize::from(node), job);
    }

    fn now_ns(&self) -> u64 {
        self.now_ps / 1000 + 1
    }

    /// What the directory of a node has looked at.
    fn scanned(&self, node: usize) -> Scanned {
        self.nodes[node].gms.directory().scanned()
    }

    /// Messages that a node's service wants to be sent, in their order.
    fn drain(&mut self, node: usize) -> VecDeque<Flight> {
        let mut out = VecDeque::new();
        while let Some(action) = self.nodes[node].gms.poll_action() {
            out.extend(self.orders.make_asked(node as u16, &action));
        }
        out
    }

    /// Gives a message to a node's service.
    fn deliver(&mut self, node: usize, flight: &Flight) -> Result<(), MachineError> {
        let (now_ns, from) = (self.now_ns(), NodeId(flight.from));
        let taken = self.nodes[node].gms.handle_message(now_ns, Endpoint::first_of(from), &flight.bytes);
        taken.map_err(|_| MachineError::Broken { node: NodeId(node as u16), by: from })
    }

    /// Delivers what a node has to say, and what others answer, at once and at no cost. Nothing else may be under way.
    fn settle(&mut self, node: usize) -> Result<(), MachineError> {
        let mut open = VecDeque::from([node]);
        while let Some(node) = open.pop_front() {
            for out in self.drain(node) {
                let to = usize::from(out.to);
                for flight in self.orders.arrive(out) {
                    self.deliver(to, &flight)?;
                }
                open.push_back(to);
            }
        }
        Ok(())
    }
}

fn refused(node: usize, error: mapwire_gms::Error) -> MachineError {
    MachineError::Refused { node: node as u16, error }
}
