//! What is set up before time begins: computers, exports, imports.

use std::collections::VecDeque;

use mapwire_nic::link::LinkConfig;
use mapwire_nic::{BufferId, Config, Delivery, Verdict};
use mapwire_node::{ExportRequest, NoPayload};
use mapwire_vmmc::Importers;
use mapwire_wire::link::LINK_HEADER_BYTES;
use mapwire_wire::{
    Endpoint, ExportId, HEADER_BYTES, ImportId, Key, MAX_CONTROL_BYTES, NodeId, Rights, SIGNAL_TRAILER_BYTES,
};

use super::engine::Engine;
use super::handler::Host;
use super::link::Links;
use super::nic::Nic;
use super::parcel::{Parcel, Port};
use super::pins::Pins;
use super::{Computer, Computers, ComputersError, Load, Shape};
use crate::hardware::memory::Memory;
use crate::hardware::node::{self, check_size};
use crate::hardware::{Agenda, Profile, Timeline};

/// Time that an import may take, which passes in none.
const TIMEOUT_NS: u64 = 1_000_000_000;

impl Computers {
    /// Computers whose processes are open.
    pub fn new(profile: Profile, shape: Shape) -> Result<Self, ComputersError> {
        let least_chunk = (MAX_CONTROL_BYTES + SIGNAL_TRAILER_BYTES) as u64;
        for (what, given, least, most) in [
            ("computers", u64::from(shape.nodes), 1, 64),
            ("processes", u64::from(shape.processes), 1, 16),
            ("processors", u64::from(shape.processors), 1, 16),
            ("send buffers", u64::from(shape.send_buffers), 2, 64),
            ("receive buffers", u64::from(shape.receive_buffers), 2, 64),
            ("loads at a time", u64::from(shape.loads), 1, 64),
            ("packets of a window", u64::from(shape.window), 1, 1024),
            ("completion words", u64::from(shape.words), 1, 4096),
            ("bytes of a packet", shape.chunk_bytes as u64, least_chunk, 64 << 10),
            ("bytes of a short send", shape.short_bytes, 0, 4096),
        ] {
            check_size(what, given, (least, most))?;
        }
        let computers = (0..shape.nodes).map(|node| computer(&shape, node));
        Ok(Self {
            computers: computers.collect::<Result<_, _>>()?,
            resends: Links::new(shape.on_miss, usize::from(shape.nodes), shape.window, shape.miss_seed),
            profile,
            shape,
            now_ps: 0,
            agenda: Agenda::new(),
            flights: Vec::new(),
            programs: Vec::new(),
            marks: Vec::new(),
            timeline: Timeline::default(),
            failed: None,
        })
    }

    /// Exports memory of a process, for all others, at no cost.
    pub fn export(&mut self, of: Endpoint, name: &str, address: u64, length: u64) -> Result<ExportId, ComputersError> {
        let mut key = [0x5a; 16];
        key[..2].copy_from_slice(&of.node.0.to_le_bytes());
        key[2..10].copy_from_slice(&address.to_le_bytes());
        let request = ExportRequest {
            name: name.to_owned(),
            key: Key(key),
            address,
            length,
            rights: Rights::ALL,
            importers: Importers::Job,
            direct: None,
            pins_late: false,
        };
        let computer = &mut self.computers[usize::from(of.node.0)];
        let mut pins = Pins::of(&mut computer.memory);
        computer.node.export(of.process, &mut pins, request).map_err(|error| host(of, error.to_string()))
    }

    /// Imports what another process has exported under a name, at no cost.
    pub fn import(&mut self, of: Endpoint, from: Endpoint, name: &str) -> Result<ImportId, ComputersError> {
        let node = usize::from(of.node.0);
        let now_ns = self.now_ps / 1000 + 1;
        let asked = self.computers[node].node.ask_import(now_ns, of.process, from, name, Rights::ALL, None, TIMEOUT_NS);
        let request = asked.map_err(|error| host(of, error.to_string()))?;
        self.settle_at_once(node)?;
        let entered = self.computers[node].node.enter_import(of.process, request);
        match entered {
            Some(Ok((import, _))) => {
                self.settle_at_once(node)?;
                Ok(import)
            }
            Some(Err(error)) => Err(host(of, error.to_string())),
            None => Err(host(of, format!("no answer to the import of `{name}`"))),
        }
    }

    /// Delivers what nodes have to say to each other at once. Nothing else may be under way.
    fn settle_at_once(&mut self, node: usize) -> Result<(), ComputersError> {
        let mut open = VecDeque::from([node]);
        let mut hastened = self.shape.links.is_none();
        let now_ns = self.now_ps / 1000 + 1;
        loop {
            let Some(node) = open.pop_front() else {
                if hastened {
                    return Ok(());
                }
                // No ack of the set-up is left for the run.
                hastened = true;
                for (node, computer) in self.computers.iter_mut().enumerate() {
                    computer.node.hasten_acks();
                    open.push_back(node);
                }
                continue;
            };
            while self.computers[node].node.poll_ask().is_some() {}
            let (from, has_links) = (NodeId(node as u16), self.shape.links.is_some());
            while let Some(Parcel { packet, .. }) = self.computers[node]
                .poll_parcel(from, has_links, now_ns)
                .map_err(|bad| ComputersError::Host { node: from, text: bad.0 })?
            {
                let peer = usize::from(packet.to.0);
                let other = &mut self.computers[peer].node;
                let verdict = packet.take(other, now_ns, BufferId(0));
                while verdict == Verdict::Taken && other.poll_told(&packet.body(), || now_ns).is_some() {}
                other.end_packet(from);
                open.push_back(peer);
            }
            while self.computers[node].node.poll_told(&NoPayload, || now_ns).is_some() {}
        }
    }
}

fn host(of: Endpoint, text: String) -> ComputersError {
    let node = of.node;
    ComputersError::Host { node, text }
}

fn computer(shape: &Shape, number: u16) -> Result<Computer, ComputersError> {
    let key = |peer: u16| {
        let mut bytes = [0x3c; 16];
        bytes[..2].copy_from_slice(&number.to_le_bytes());
        bytes[2..4].copy_from_slice(&peer.to_le_bytes());
        Key(bytes)
    };
    let payload_bytes = shape.chunk_bytes + SIGNAL_TRAILER_BYTES;
    let nic = Config {
        node: NodeId(number),
        reply_keys: (0..shape.nodes).map(key).collect(),
        memory_bytes: shape.nic_memory_bytes,
        max_payload_bytes: payload_bytes,
        delivery: match shape.links {
            None => Delivery::Lossless,
            Some(config) => Delivery::Lossy(LinkConfig {
                epoch: u64::from(number) + 1,
                max_datagram_bytes: (payload_bytes + HEADER_BYTES + LINK_HEADER_BYTES) as u32,
                ..config
            }),
        },
    };
    let mut node = node::node(nic, &shape.design, (shape.processes, shape.words), shape.pin_rules)?;
    for peer in 0..shape.nodes {
        node.make_room(NodeId(peer));
    }
    Ok(Computer {
        node,
        memory: Memory::new(shape.processes),
        host: Host::new(shape.processors),
        nic: Nic::new(shape.processes),
        engine: Engine::default(),
        port: Port::default(),
        load: Load::default(),
    })
}
