//! Computers of another time that run mapwire's own nodes, in virtual time: hosts with programs, an I/O bus, programmable NICs, wires.
//!
//! Each computer runs a real [`Node`]: NIC firmware, translation design, VMMC. What the firmware does decides what is charged: commands
//! that it takes, pages that it looks up, packets that it cuts, moves that it asks for, words that it completes. The
//! [`Profile`] says what each step costs. All time is whole picoseconds, and nothing is drawn, so a run repeats to the last digit on
//! every platform.
//!
//! * [`Computers::new`], [`export`](Computers::export) and [`import`](Computers::import) set up, at no cost and in no time.
//! * [`start`](Computers::start) gives a process its program, steps one after the other; [`run`](Computers::run) lets time pass until nothing happens any more.
//! * [`marks`](Computers::marks) are what programs noted, and when; [`load`](Computers::load) is how busy each part was.
//!
//! | module | |
//! |---|---|
//! | `program` | what programs can do |
//! | `handler`, `host` | processors, and the interrupts that take them away from programs |
//! | `posts` | how programs post commands |
//! | `pins` | pages pinned and given back, as they are to be charged |
//! | `nic` | the NIC's processor, slowed by DMA; what waits in the NIC |
//! | `jobs` | what the NIC does next, and the steps of that |
//! | `engine` | the DMA engine between host memory and NIC memory |
//! | `parcel`, `network` | packets on wires |
//! | `link`, `links` | links of other kinds, which drop what misses and send it again |
//! | `setup` | exports and imports, before time begins |
//! | `event`, `run` | events |

mod engine;
mod event;
mod handler;
mod host;
mod jobs;
mod link;
mod links;
mod network;
mod nic;
mod parcel;
mod pins;
mod posts;
mod program;
mod run;
mod setup;
#[cfg(test)]
mod tests;

use mapwire_nic::link::LinkConfig;
use mapwire_node::{Node, Told};
use mapwire_translation::{AnyDesign, Counters, DesignConfig, InterruptConfig, PinRules};
use mapwire_wire::{Endpoint, NodeId, ProcessId, SHORT_BYTES, WireError};
use thiserror::Error;

use crate::hardware::memory::Memory;
use crate::hardware::node::ComputerError;
use crate::hardware::{Agenda, Profile, Ps, Timeline};
use engine::Engine;
use event::Event;
use handler::Host;
use link::Links;
use nic::Nic;
use parcel::{Parcel, Port};
use program::Runner;

pub use crate::hardware::memory::FIRST_ADDRESS;
pub use link::{Missed, OnMiss};
pub use program::{Do, Mark, Send};

/// What computers are like, besides their costs.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Computers: 1 to 64.
    pub nodes: u16,
    /// Processes of each: 1 to 16.
    pub processes: u16,
    /// Processors of each host: 1 to 16.
    pub processors: u16,
    pub design: DesignConfig,
    pub pin_rules: PinRules,
    /// Completion words of each process.
    pub words: u32,
    pub nic_memory_bytes: u64,
    /// Data bytes of the longest packet.
    pub chunk_bytes: usize,
    /// Longest send whose data go into the command queue. Beyond 128 bytes, which is what a command of the firmware carries, the
    /// send is carried out as a long one, and only charged as a short one.
    pub short_bytes: u64,
    /// Packets that a NIC has room for on their way out: at least 2, so that one is sent while the next is loaded.
    pub send_buffers: u16,
    /// Packets whose data are read from host memory at a time: 1, but for buses that have many transfers under way.
    pub loads: u16,
    /// Packets that it has room for on their way in.
    pub receive_buffers: u16,
    /// The links by which NICs recover from lost packets, as those that a design drops on a miss; `None` where nothing is lost.
    /// Epoch and size of datagrams are filled in.
    pub links: Option<LinkConfig>,
    /// What becomes of packets whose pages a NIC cannot translate, where it has no such links.
    pub on_miss: OnMiss,
    /// Packets that are sent before the first of them is acked, where `on_miss` drops some.
    pub window: u16,
    /// Seed of how long hosts take to serve misses, where the profile states ranges; `None` if it is by interrupts and pins.
    pub miss_seed: Option<u64>,
}

impl Default for Shape {
    /// Two computers of one process and one processor, as in the first VMMC on Myrinet (VMMC §4, §5.1).
    fn default() -> Self {
        Self {
            nodes: 2,
            processes: 1,
            processors: 1,
            design: DesignConfig::Interrupt(InterruptConfig::VMMC),
            pin_rules: PinRules::default(),
            words: 64,
            nic_memory_bytes: 16 << 20,
            chunk_bytes: 4096,
            short_bytes: SHORT_BYTES as u64,
            send_buffers: 2,
            loads: 1,
            receive_buffers: 4,
            links: None,
            on_miss: OnMiss::Waits,
            window: 16,
            miss_seed: None,
        }
    }
}

#[derive(Debug, Error)]
pub enum ComputersError {
    #[error(transparent)]
    Computer(#[from] ComputerError),
    #[error(transparent)]
    Command(#[from] WireError),
    #[error("{at}: {text}", at = .node)]
    Host { node: NodeId, text: String },
    #[error("{node}: the run was to meet no failure, but the node tells {told:?}")]
    Told { node: NodeId, told: Box<Told> },
    #[error("{node}: the program of {process} waits for what never comes")]
    Stuck { node: NodeId, process: ProcessId },
}

/// How busy a computer was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How long the NIC's processor worked, slowed by DMA or standing still for it.
    pub nic_ps: Ps,
    /// How long the DMA engine between host memory and NIC memory transferred.
    pub engine_ps: Ps,
    /// How long packets were on the wire out.
    pub wire_ps: Ps,
    /// How long programs checked pages, pinned them and gave others back, before they posted.
    pub checks_ps: Ps,
    /// How long the NIC's processor translated, tables that it read by DMA included.
    pub lookups_ps: Ps,
    /// How long handlers of interrupts took the host, interrupts included.
    pub handlers_ps: Ps,
    pub interrupts: u64,
    /// Packets that found the NIC without a free buffer, and waited on the wire.
    pub blocked: u64,
}

#[derive(Debug)]
struct Computer {
    node: Node<AnyDesign>,
    memory: Memory,
    host: Host,
    nic: Nic,
    engine: Engine,
    port: Port,
    load: Load,
}

#[derive(Debug)]
pub struct Computers {
    profile: Profile,
    shape: Shape,
    now_ps: Ps,
    agenda: Agenda<Event>,
    computers: Vec<Computer>,
    /// Packets whose end is on a wire.
    flights: Vec<Option<Parcel>>,
    programs: Vec<Runner>,
    marks: Vec<Mark>,
    /// What parts do, while that is wanted.
    pub timeline: Timeline,
    resends: Links,
    failed: Option<ComputersError>,
}

impl Computers {
    pub fn now_ps(&self) -> Ps {
        self.now_ps
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// What programs noted, in order of time.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// How busy a computer has been.
    pub fn load(&self, node: NodeId) -> Load {
        self.computers[usize::from(node.0)].load
    }

    pub fn node(&self, node: NodeId) -> &Node<AnyDesign> {
        &self.computers[usize::from(node.0)].node
    }

    /// What a process's pages have met: lookups of its NIC, and its own checks, pins and unpins.
    pub fn counters(&self, of: Endpoint) -> Counters {
        let node = self.node(of.node);
        let translation = mapwire_translation::TranslationDesign::counters(node.nic().translation());
        translation + node.page_counters(of.process)
    }

    fn fail(&mut self, error: ComputersError) {
        self.failed.get_or_insert(error);
    }
}
