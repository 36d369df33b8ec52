//! A node of the global memory.

use core::time::Duration;

use mapwire_gms::{Config, FRAME_BYTES, Gms, NodeSet, Place, PlainRows, Rows};
use mapwire_host::descriptors;
use mapwire_host::pinning::PinnerKind;
use mapwire_host::waiting::now_ns;
use mapwire_launch::{Detected, NamedJob};
use mapwire_wire::{HandlerId, NodeId};

use super::host_thread::HostThread;
use super::placement::DirectoryPlacement;
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
pub struct GlobalMemory {
    /// Before the node, which they use.
    _host: Option<HostThread>,
    offered: ServiceBuffer,
    buffer: Buffer,
    node: Node,
}

impl GlobalMemory {
    /// Joins the job, of which all ranks are nodes of the global memory, with `own` frames for the program and `donated` behind them that
    /// may serve others. `pages` is how many all nodes donate together.
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
        let directory = config.directory;
        let node = Node::join_by(config, &Detected::Names(job.clone()))?;
        let size = node.size() as u64;
        let members: NodeSet = (0..size as u16).map(NodeId).collect();
        let frames = own.saturating_add(donated);
        let mut service = Config::new(NodeId(node.rank() as u16), members, frames, donated);
        service.requests = REQUESTS;
        service.directory_bytes = (1 << 16) + (pages.saturating_mul(DIRECTORY_BYTES) / size) as usize;
        service.seed ^= now_ns();
        Self::start(node, service, directory)
    }

    /// Makes this rank a node of the global memory of its job, with its part of the page directory in its place. All ranks of the job call
    /// it, and it comes back when all have. The service stays for as long as the node.
    ///
    /// # Errors
    /// A configuration that cannot be; no memory, of the process or of the NIC; no thread; a rank does not come.
    pub fn start(node: Node, mut config: Config, directory: DirectoryPlacement) -> Result<Self> {
        let bytes = config.frames as usize * FRAME_BYTES as usize;
        config.directory_on_host = directory == DirectoryPlacement::Host;
        let rows = rows(&node, &config, directory)?;
        let gms = Gms::with_rows(config, rows).map_err(crate::Error::Global)?;
        let buffer = node.alloc(bytes)?;
        let host = (directory == DirectoryPlacement::Host).then(|| HostThread::start(&node)).transpose()?;
        let offered = node.register_service_with_memory(HANDLER, gms, &buffer)?;
        Ok(Self { _host: host, offered, buffer, node })
    }

    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Copies a frame of a node of this host without asking it. False where it is on another. The bytes are another page's where the
    /// node has moved the page.
    pub(super) fn load(&self, place: Place, to: &mut [u8]) -> bool {
        let at = u64::from(place.frame) * FRAME_BYTES;
        self.offered.load(place.node.0, at as usize, to)
    }

    pub(super) fn size(&self) -> usize {
        self.node.size()
    }

    /// Calls the service, with the time.
    ///
    /// # Errors
    /// The service has been taken away.
    pub fn call<R>(&self, call: impl FnOnce(&mut Gms, u64) -> R) -> Result<R> {
        self.node.call_service(HANDLER, |gms: &mut Gms| call(gms, now_ns()))
    }

    /// Waits until `check` finds something in the service.
    ///
    /// # Errors
    /// [`DriverError::Timeout`](crate::errors::DriverError::Timeout).
    pub fn wait<R>(&self, timeout: Duration, check: impl FnMut(&mut Gms) -> Option<R>) -> Result<R> {
        self.node.wait_for_service(HANDLER, Some(timeout), check)
    }

    /// Whether rank 0 is gone, for which donors serve.
    pub(super) fn has_lost_first(&self) -> bool {
        self.node.engine().has_died(NodeId(0)) || self.node.has_lost_first()
    }

    pub(super) fn is_deserted(&self) -> bool {
        self.node.engine().is_deserted()
    }
}

/// The rows of this rank's part of the directory, where that is to lie.
fn rows(node: &Node, config: &Config, directory: DirectoryPlacement) -> Result<Box<dyn Rows>> {
    let (size, wanted) = (config.row_size, config.directory_bytes);
    Ok(match directory {
        DirectoryPlacement::Host => Box::new(PlainRows::new(size, wanted)),
        DirectoryPlacement::NicHostMemory => Box::new(PlainRows::across_bus(size, wanted)),
        DirectoryPlacement::NicMemory => {
            let mut driver = node.engine().lock();
            // Exports, imports and translations need some of it as they come.
            let half = usize::try_from(driver.nic().left_bytes() / 2).unwrap_or(usize::MAX);
            let rows = PlainRows::new(size, wanted.min(half));
            driver.set_service_bytes(rows.bytes())?;
            Box::new(rows)
        }
    })
}
