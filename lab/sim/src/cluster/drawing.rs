//! Clusters for a service of each node, drawn from a seed.

use mapwire_translation::{DesignConfig, PinRules};

use super::{ClusterConfig, Delivery, EARLY_PACKETS, LinkConfig};
use crate::random::Random;

/// How long a link waits for a silent peer: longer than any fault.
const DEAD_AFTER_NS: u64 = 300_000_000;

impl ClusterConfig {
    /// One process a node. What is `None` is drawn: 2 to 8 nodes, and whether the transport may lose packets.
    pub(crate) fn drawn_for_service(random: &mut Random, nodes: Option<u16>, lossy: Option<bool>) -> Self {
        let few = random.spread(2, 8) as u16;
        let is_lossy = random.chance(50);
        let delivery = match lossy.unwrap_or(is_lossy) {
            false => Delivery::Lossless,
            true => Delivery::Lossy {
                paths: random.within(1, 3) as u8,
                dead_after_ns: DEAD_AFTER_NS,
                tells_of_crashes: random.chance(50),
                early_packets: EARLY_PACKETS,
                is_sealed: random.chance(25),
            },
        };
        Self {
            nodes: nodes.unwrap_or(few),
            processes: 1,
            delivery,
            link: LinkConfig {
                latency_ns: random.spread(500, 100_000),
                bits_per_second: random.spread(1_000_000_000, 400_000_000_000),
                queue_packets: random.spread(16, 256) as u32,
            },
            design: DesignConfig::default(),
            pin_rules: PinRules::default(),
            words: 1,
            nic_memory_bytes: 64 << 20,
            max_payload_bytes: random.spread(1_000, 70_000) as usize,
        }
    }
}
