//! Nodes that send to their neighbours as fast as they can: how fast the simulator is.

use std::collections::BTreeMap;

use mapwire_node::{Act, Ask, ExportRequest, Told};
use mapwire_translation::{DesignConfig, PinRules};
use mapwire_vmmc::{Importers, RequestId};
use mapwire_wire::{CommandRepr, Endpoint, ImportId, Key, MAX_PAYLOAD_BYTES, NodeId, Rights};

use crate::cluster::{
    Cluster, ClusterConfig, ClusterError, Delivery, FIRST_ADDRESS, LinkConfig, Moved, Observer, Step, Totals, Violation,
};
use crate::random::Random;

/// Bytes of an export.
const EXPORT_BYTES: u64 = 4096;
/// Sends that a program lets wait in its queue.
const QUEUED: usize = 32;

#[derive(Debug, Default)]
struct Pump {
    requests: BTreeMap<NodeId, RequestId>,
    imports: BTreeMap<NodeId, ImportId>,
    over: Vec<NodeId>,
    violation: Option<Violation>,
}

impl Observer for Pump {
    fn moved(&mut self, _now_ns: u64, _moved: Moved<'_>) {}

    fn told(&mut self, _now_ns: u64, at: NodeId, told: &Told) {
        let text = format!("{at}: {told:?}");
        self.violation.get_or_insert(Violation { check: "pump", text });
    }

    fn asked(&mut self, _now_ns: u64, at: NodeId, ask: &Ask) {
        if let Act::ImportOver { .. } = ask.act {
            self.over.push(at);
        }
    }

    fn unpinned(&mut self, _now_ns: u64, _at: Endpoint, _page: u64) {}

    fn crashed(&mut self, _now_ns: u64, _node: NodeId) {}

    fn violated(&mut self, _now_ns: u64, violation: Violation) {
        self.violation.get_or_insert(violation);
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PumpError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the simulated programs cannot send: {0}")]
    Wrong(String),
}

/// Lets each of so many nodes send short messages of `message_bytes`, 1 to 128, to its neighbour until `packets` have arrived.
pub fn pump(nodes: u16, message_bytes: u32, packets: u64) -> Result<Totals, PumpError> {
    let config = ClusterConfig {
        nodes,
        processes: 1,
        link: LinkConfig { latency_ns: 1_000, bits_per_second: 400_000_000_000, queue_packets: 256 },
        delivery: Delivery::Lossless,
        design: DesignConfig::default(),
        pin_rules: PinRules::default(),
        words: 1,
        nic_memory_bytes: 64 << 20,
        max_payload_bytes: MAX_PAYLOAD_BYTES,
    };
    let mut cluster = Cluster::new(config, Random::new(1))?;
    let mut pump = Pump::default();
    let wrong = |error: &dyn core::fmt::Display| PumpError::Wrong(error.to_string());
    for number in 0..nodes {
        let at = Endpoint::first_of(NodeId(number));
        let now_ns = cluster.clock_ns(at.node);
        let (node, memory) = cluster.parts(at.node);
        let request = ExportRequest {
            name: "pump".into(),
            key: Key([7; 16]),
            address: FIRST_ADDRESS,
            length: EXPORT_BYTES,
            rights: Rights::ALL,
            importers: Importers::Job,
            direct: None,
            pins_late: false,
        };
        let exported = node.export(at.process, memory, request);
        exported.map_err(|error| wrong(&error))?;
        let from = Endpoint::first_of(NodeId((number + 1) % nodes));
        let timeout_ns = 1_000_000_000;
        let asked = node.ask_import(now_ns, at.process, from, "pump", Rights::ALL, None, timeout_ns);
        let request = asked.map_err(|error| wrong(&error))?;
        pump.requests.insert(at.node, request);
        cluster.settle(at.node, &mut pump);
    }
    let data = [0x5a; 128];
    let length = message_bytes.clamp(1, 128);
    while cluster.totals().packets < packets {
        match cluster.step(&mut pump) {
            Step::Inside | Step::Interrupted => {}
            Step::Program(number) => {
                let node = NodeId(number as u16);
                let at = Endpoint::first_of(node);
                let Some(&import) = pump.imports.get(&node) else { continue };
                while cluster.queued_commands(at) < QUEUED {
                    let command = CommandRepr::ShortSend { import, offset: 0, length, notify: false, signal: None };
                    let submitted = cluster.submit(at, &command, &data[..length as usize]);
                    submitted.map_err(|error| wrong(&error))?;
                }
                cluster.settle(node, &mut pump);
                let next_ns = cluster.busy_until_ns(node).max(cluster.now_ns() + 1);
                cluster.schedule(next_ns, number);
            }
            Step::Rest => return Err(PumpError::Wrong("nothing is left to happen".into())),
        }
        while let Some(node) = pump.over.pop() {
            let at = Endpoint::first_of(node);
            let Some(request) = pump.requests.remove(&node) else { continue };
            match cluster.parts(node).0.enter_import(at.process, request) {
                Some(Ok((id, _))) => {
                    pump.imports.insert(node, id);
                    cluster.schedule(cluster.now_ns(), u32::from(node.0));
                }
                outcome => return Err(PumpError::Wrong(format!("{node}: {outcome:?}"))),
            }
        }
        if let Some(violation) = pump.violation.take() {
            return Err(PumpError::Wrong(violation.text));
        }
    }
    Ok(cluster.totals())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pump_delivers_as_many_packets_as_it_is_asked_for() {
        let totals = pump(3, 64, 5_000).unwrap();
        assert!(totals.packets >= 5_000, "{totals:?}");
        assert!(totals.bytes > 5_000 * 64);
    }
}
