//! This process's side of the paths to its peers: its node, its memory, and who hears of what is over.

use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_wire::{HandlerId, Header, Kind, TRACE_FLAG_DIRECT, TraceOp};

use crate::ids::PROCESS;
use crate::memories::Memories;
use crate::mover::Taken;
use crate::outcomes::Outcomes;

/// See [the module](self).
#[derive(Debug)]
pub(crate) struct Local {
    /// Decides.
    pub node: Node<AnyDesign>,
    /// Carries out what the node decides about memory.
    pub memories: Memories,
    /// Passes on what the node tells.
    pub outcomes: Outcomes,
}

impl Local {
    /// Moves the bytes of a packet that the node has taken to their frames, and passes on what is told of it.
    #[inline]
    pub(crate) fn deliver(&mut self, payload: &Taken<'_>) {
        while let Some(dma) = self.node.poll_move() {
            let old = self.memories.frames_mut().deliver(&dma, payload);
            self.node.handle_moved(&dma, old);
        }
        while let Some(told) = self.node.poll_told(payload, mapwire_host::waiting::now_ns) {
            self.outcomes.tell(told);
        }
    }

    /// Writes down which bytes of a service's memory the sender of a packet has stored before it.
    #[cold]
    pub(crate) fn trace_stored(&mut self, header: &Header, message: &[u8]) {
        let handler = HandlerId(header.message.get());
        if header.kind == Kind::Handler as u8
            && let Some((offset, bytes)) = self.node.stored_before(PROCESS, handler, message)
            && let Some(stored) = self.memories.traced(handler, offset, bytes)
        {
            self.outcomes.trace(&mut self.node, TraceOp::Receive, TRACE_FLAG_DIRECT, stored);
        }
    }

    /// Supplies what the NIC asks for. Whether there was anything.
    #[cold]
    pub(crate) fn serve_misses(&mut self) -> bool {
        self.memories.serve_misses(&mut self.node, &mut self.outcomes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use mapwire_nic::{Config, Delivery};
    use mapwire_node::NodeConfig;
    use mapwire_wire::{Key, MAX_PAYLOAD_BYTES, NodeId};

    use super::*;
    use crate::completions::{CompletionWords, WORDS};
    use crate::config::DriverConfig;

    /// The side of node 0 of `nodes`.
    pub(crate) fn local(nodes: usize) -> Local {
        let config = DriverConfig::default();
        let nic = Config {
            node: NodeId(0),
            reply_keys: vec![Key([1; 16]); nodes],
            memory_bytes: config.nic_memory(nodes),
            max_payload_bytes: MAX_PAYLOAD_BYTES,
            delivery: Delivery::Lossless,
        };
        let design = AnyDesign::new(&config.translation).unwrap();
        let mut node = Node::new(NodeConfig { nic, uid: 0 }, design).unwrap();
        let (memories, rules) = Memories::new(&config).unwrap();
        node.open_process(PROCESS, rules, WORDS).unwrap();
        Local { node, memories, outcomes: Outcomes::new(Arc::new(CompletionWords::new()), nodes, None) }
    }
}
