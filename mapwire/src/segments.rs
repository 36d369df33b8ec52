//! Memory that all ranks offer under one name, each its own.

use mapwire_driver::engine::Engine;
use mapwire_driver::imports::Segment;
use mapwire_vmmc::Grant;
use mapwire_wire::{ImportId, NodeId, Rights};

use crate::error::Result;

/// The memory of another rank.
#[derive(Debug)]
pub(crate) struct PeerSegment {
    pub(crate) peer: NodeId,
    pub(crate) import: ImportId,
    pub(crate) grant: Grant,
    pub(crate) segment: Segment,
}

/// Imports the memory that all other ranks export under `name`, and gives each to `take`. `what` is what a rank has not done that does not come.
pub(crate) fn import_all(
    engine: &Engine,
    name: &str,
    what: &str,
    mut take: impl FnMut(PeerSegment) -> Result<()>,
) -> Result<()> {
    let timeout = engine.timeout();
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    let mut requests = Vec::new();
    for rank in (0..engine.size()).filter(|&rank| rank != engine.rank()) {
        let peer = NodeId(rank as u16);
        let mut driver = engine.lock();
        let request = driver.ask_import(peer, name, Rights::ALL, None, timeout_ns)?;
        requests.push((peer, request));
    }
    for (peer, request) in requests {
        let local = engine.wait_for(
            Some(timeout),
            || format!("rank {} has not {what}", peer.0),
            |driver| driver.take_import(request),
        )??;
        take(PeerSegment { peer, import: local.id, grant: local.grant, segment: local.into() })?;
    }
    Ok(())
}
