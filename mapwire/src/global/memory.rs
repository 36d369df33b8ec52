//! A node of the global memory.

use core::time::Duration;

use mapwire_gms::{Config, FRAME_BYTES, Gms, NodeSet, Place};
use mapwire_host::descriptors;
use mapwire_host::pinning::PinnerKind;
use mapwire_host::waiting::now_ns;
use mapwire_launch::{Detected, Membership, NamedJob};
use mapwire_wire::{HandlerId, NodeId};

use crate::buffer::Buffer;
use crate::config::NodeConfig;
use crate::error::Result;
use crate::node::Node;
use crate::services::ServiceBuffer;

/// The handler id of global memory. The jobs that it is used in have no other service.
const HANDLER: HandlerId = HandlerId(16);

/// Operations that a node may have under way.
pub(super) const REQUESTS: u16 = 256;

/// Bytes of the page directory for each page: twice what its entry takes, as rows are filled unevenly.
const DIRECTORY_BYTES: u64 = 64;

/// This rank as a node of the global memory: the service, and the frames that it shares with its peers.
#[derive(Debug)]
pub(super) struct GlobalMemory {
    /// Before the node, which it uses.
    offered: ServiceBuffer,
    buffer: Buffer,
    node: Node,
}

impl GlobalMemory {
    /// Joins the job, of which all ranks are nodes of the global memory, with `own` frames for the program and `donated` behind them that
    /// may serve others. `pages` is how many all nodes donate together.
    ///
    /// # Errors
    /// As [`Node::join`]; a rank does not come; no memory.
    pub(super) fn join(
        mut config: NodeConfig,
        job: &NamedJob,
        timeout: Duration,
        own: u32,
        donated: u32,
        pages: u64,
    ) -> Result<Self> {
        config.driver.timeout = timeout;
        if descriptors::is_kept_above() {
            // An io_uring cannot be moved to another number.
            config.driver.pinner = PinnerKind::Mlock;
        }
        let node = Node::join_by(config, &Detected::Names(job.clone()))?;
        let size = node.size() as u64;
        let members: NodeSet = (0..size as u16).map(NodeId).collect();
        let frames = own.saturating_add(donated);
        let mut service = Config::new(NodeId(node.rank() as u16), members, frames, donated);
        service.requests = REQUESTS;
        service.directory_bytes =
            (1 << 16) + (pages.saturating_mul(DIRECTORY_BYTES) / size) as usize;
        service.seed ^= now_ns();
        let gms = Gms::new(service).map_err(crate::Error::Global)?;
        let buffer = node.alloc(frames as usize * FRAME_BYTES as usize)?;
        let offered = node.register_service_with_memory(HANDLER, gms, &buffer)?;
        Ok(Self {
            offered,
            buffer,
            node,
        })
    }

    /// The frames.
    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Copies a frame of a node of this host without asking it. False where it is on another. The bytes are another page's where the
    /// node has moved the page.
    pub(super) fn load(&self, place: Place, to: &mut [u8]) -> bool {
        let at = u64::from(place.frame) * FRAME_BYTES;
        self.offered.load(place.node.0, at as usize, to)
    }

    /// Ranks in the job.
    pub(super) fn size(&self) -> usize {
        self.node.size()
    }

    /// Calls the service, with the time.
    pub(super) fn call<R>(&self, call: impl FnOnce(&mut Gms, u64) -> R) -> Result<R> {
        self.node
            .call_service(HANDLER, |gms: &mut Gms| call(gms, now_ns()))
    }

    /// Waits until `check` finds something in the service.
    ///
    /// # Errors
    /// [`DriverError::Timeout`](crate::errors::DriverError::Timeout).
    pub(super) fn wait<R>(
        &self,
        timeout: Duration,
        check: impl FnMut(&mut Gms) -> Option<R>,
    ) -> Result<R> {
        self.node.wait_for_service(HANDLER, Some(timeout), check)
    }

    /// Whether rank 0 is gone, for which donors serve.
    pub(super) fn has_lost_first(&self) -> bool {
        let inner = &self.node.inner;
        let membership = inner.membership.as_ref();
        inner.engine.has_died(NodeId(0)) || membership.is_some_and(Membership::has_lost_first)
    }

    /// Whether all other ranks are gone.
    pub(super) fn is_deserted(&self) -> bool {
        self.node.inner.engine.is_deserted()
    }
}
