//! This process's side of the paths to its peers: its node, its memory, and who hears of what is over.

use mapwire_node::Node;
use mapwire_translation::AnyDesign;

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
            let old = self.memories.deliver(&dma, payload);
            self.node.handle_moved(&dma, old);
        }
        while let Some(told) = self.node.poll_told(payload, mapwire_host::waiting::now_ns) {
            self.outcomes.tell(told);
        }
    }

    /// Supplies what the NIC asks for. Whether there was anything.
    #[cold]
    pub(crate) fn serve_misses(&mut self) -> bool {
        self.memories.serve_misses(&mut self.node, &mut self.outcomes)
    }
}
