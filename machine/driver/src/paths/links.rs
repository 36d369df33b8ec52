//! The links over datagrams as they are set up, and the datagram that the page-fault handler has left.

use std::time::Duration;

use mapwire_nic::link::LinkConfig;
use mapwire_transport::net::Net;
use mapwire_wire::NodeId;

use crate::config::DriverConfig;
use crate::error::DriverError;
use crate::ids::job_key;

/// How long a peer may be silent that owes an answer. The launcher tells of ranks that end. A link finds out what cannot be reached, and
/// says why: so it gives up before a thread that began to wait for that peer a little earlier.
pub(super) fn silence(timeout: Duration) -> Duration {
    timeout - timeout / 8
}

/// The links over `net`, of an epoch that this process has never had.
pub(super) fn link_config(net: &Net, config: &DriverConfig) -> Result<LinkConfig, DriverError> {
    let [a, b, c, d, e, f, g, h, ..] = job_key()?.0;
    let epoch = u64::from_le_bytes([a, b, c, d, e, f, g, h]) | 1;
    Ok(LinkConfig {
        dead_after_ns: u64::try_from(silence(config.timeout).as_nanos()).unwrap_or(u64::MAX),
        paths: net.paths(),
        ..LinkConfig::new(epoch, Net::max_datagram_bytes() as u32)
    })
}

/// A datagram that the page-fault handler has taken from its socket and may not take further. Its memory is taken beforehand.
#[derive(Debug, Default)]
pub(super) struct LeftDatagram {
    from: Option<NodeId>,
    length: usize,
    bytes: Box<[u8]>,
}

impl LeftDatagram {
    /// With room for any datagram.
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; Net::max_datagram_bytes()].into(), ..Self::default() }
    }

    pub(super) fn is_there(&self) -> bool {
        self.from.is_some()
    }

    /// Keeps a datagram. One that is longer than any is lost.
    pub(super) fn keep(&mut self, from: NodeId, bytes: &[u8]) {
        if let Some(copy) = self.bytes.get_mut(..bytes.len()) {
            copy.copy_from_slice(bytes);
            (self.from, self.length) = (Some(from), bytes.len());
        }
    }

    pub(super) fn take(&mut self) -> Option<(NodeId, &[u8])> {
        let from = self.from.take()?;
        Some((from, &self.bytes[..self.length]))
    }
}
