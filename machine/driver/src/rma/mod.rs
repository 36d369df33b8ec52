//! Stores to and fetches from memory of far ranks by libfabric, in place of the NIC's packets: what the direct path is between
//! ranks of one host.
//!
//! An exporter whose memory can be mapped registers it when it grants a far rank an import (`exported.rs`), and announces where it is
//! (`announcements.rs`). An importer that moves many bytes pins its pages by registering them (`sources.rs`). It waits until the exporter
//! has taken the packets before, and lets the provider move the bytes (`transfers.rs`). [`rma`](mapwire_transport::ofi::rma) says what is
//! ordered.

mod announcements;
mod exported;
mod sources;
mod transfers;

use mapwire_host::memory::SharedBuffer;
use mapwire_node::{Node, RegisterError as ServiceError};
use mapwire_translation::{AnyDesign, PageRange, PinRules};
use mapwire_transport::ofi::Ofi;
pub use mapwire_transport::ofi::rma::Direction;
use mapwire_transport::ofi::rma::Registrar;
pub use mapwire_transport::ofi::rma::RmaError;
use mapwire_vmmc::Grant;
use mapwire_wire::{Endpoint, ExportId, HandlerId, NodeId};

use self::announcements::{Announcements, Part};
pub(crate) use self::exported::RegisterError;
use self::sources::Sources;
use self::transfers::{Ended, Progress, Transfer, Transfers};
use crate::error::DriverError;
use crate::ids::PROCESS;
use crate::mover;

/// Handler of the announcements.
const HANDLER: HandlerId = HandlerId(3);

/// Exit status when the library does not give memory of the program back.
const EXIT_STUCK: i32 = 1;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    /// Stores and fetches.
    pub transfers: u64,
    /// Bytes of those.
    pub bytes: u64,
}

/// See [the module](self).
#[derive(Debug)]
pub(crate) struct Rma {
    me: NodeId,
    moved: Moved,
    registrar: Registrar,
    sources: Sources,
    transfers: Transfers,
}

impl Rma {
    /// For an endpoint whose provider moves memory of peers.
    pub(crate) fn new(
        me: NodeId,
        ofi: &Ofi,
        node: &mut Node<AnyDesign>,
        rules: PinRules,
    ) -> Result<Box<Self>, ServiceError> {
        let registrar = ofi.registrar();
        node.register(PROCESS, HANDLER, Box::new(Announcements::default()))?;
        Ok(Box::new(Self {
            me,
            moved: Moved::default(),
            sources: Sources::new(mover::pinner(registrar.clone()), rules, !ofi.has_hardware()),
            transfers: Transfers::default(),
            registrar,
        }))
    }
}

/// A transfer under way. The memory of this process that it uses must stay until [`Driver::rma_over`](crate::Driver::rma_over) says that it is over.
#[derive(Debug)]
#[must_use]
pub struct RmaTransfer {
    number: usize,
    peer: NodeId,
}

impl RmaTransfer {
    pub(crate) fn peer(&self) -> NodeId {
        self.peer
    }
}

impl Rma {
    /// Registers an export for a far rank that has been granted it, and tells it where.
    pub(crate) fn announce(
        &self,
        node: &mut Node<AnyDesign>,
        to: Endpoint,
        export: ExportId,
        buffer: &SharedBuffer,
    ) -> Result<(), RegisterError> {
        let (Some((memory, _)), Some(known)) = (buffer.descriptors(), node.nic().exported(export)) else {
            return Ok(());
        };
        let (name, rights) = ((export, known.key), known.rights);
        // It was checked to lie there.
        let offset = (buffer.as_ptr().addr() as u64).saturating_sub(known.address);
        let bytes = (buffer.len() as u64).min(known.length.saturating_sub(offset));
        let announce =
            |service: &mut Announcements| service.announce(&self.registrar, to, name, memory, (offset, bytes), rights);
        node.call(PROCESS, HANDLER, announce).unwrap_or(Ok(()))
    }

    /// An export is revoked; nobody stores to it from here on.
    pub(crate) fn withdraw(&self, node: &mut Node<AnyDesign>, export: ExportId) {
        let _ = node.call(PROCESS, HANDLER, |service: &mut Announcements| service.withdraw(export));
    }

    /// Begins to move the `length` bytes at `address` to `offset` of an import, or back. `None` when they must go by packets: the exporter
    /// has not announced them, or the limit on pinned pages is too small.
    pub(crate) fn begin(
        &mut self,
        node: &mut Node<AnyDesign>,
        ofi: &mut Ofi,
        direction: Direction,
        (grant, offset): (&Grant, u64),
        (address, length): (u64, u64),
    ) -> Result<Option<RmaTransfer>, DriverError> {
        let Some((part, at)) = announced(node, grant, offset, length) else {
            return Ok(None);
        };
        let range = PageRange::covering(address, length)?;
        // Memory that the provider does not take, or too much of it, goes by packets.
        if !self.sources.hold(range).unwrap_or(false) {
            return Ok(None);
        }
        let peer = grant.node();
        let name = (peer, grant.export);
        let transfer = Transfer::new(direction, name, (part.memory, at), (address, length), range);
        let number = self.transfers.begin(transfer, ofi, &self.sources);
        let _ = node.call(PROCESS, HANDLER, |service: &mut Announcements| service.begin(name));
        Ok(Some(RmaTransfer { number, peer }))
    }

    /// Takes note of operations that are over. Whether there were any.
    pub(crate) fn drain(&mut self, ofi: &mut Ofi) -> bool {
        self.transfers.drain(ofi)
    }

    /// What was moved so far.
    pub(crate) fn moved(&self) -> Moved {
        self.moved
    }

    /// How a transfer ended, once it has: what was begun of it in bytes, and why no more.
    pub(crate) fn take_over(
        &mut self,
        node: &mut Node<AnyDesign>,
        ofi: &mut Ofi,
        transfer: &RmaTransfer,
        is_gone: bool,
    ) -> Option<Result<(), (u64, RmaError)>> {
        match self.transfers.progress(transfer.number, ofi, &mut self.sources, is_gone) {
            Progress::UnderWay => None,
            Progress::Over(Ended { name, begun_bytes, error }) => {
                // What comes next may be a signal, and then another transfer, which waits until the peer has taken that.
                ofi.ask_with_next(transfer.peer);
                if let Some(name) = name {
                    let _ = node.call(PROCESS, HANDLER, |service: &mut Announcements| service.end(name));
                }
                if let Some(error) = error {
                    return Some(Err((begun_bytes, error)));
                }
                self.moved.transfers += 1;
                self.moved.bytes += begun_bytes;
                Some(Ok(()))
            }
            Progress::Stuck => {
                mapwire_host::stderr::say(format_args!(
                    "rank {}: rank {} is gone, and libfabric still uses memory of this program for a transfer with it; the process ends",
                    self.me.0, transfer.peer.0
                ));
                mover::exit(EXIT_STUCK)
            }
        }
    }
}

/// The part of an import that its exporter has announced, and where in it `length` bytes from `offset` of the import on are.
fn announced(node: &Node<AnyDesign>, grant: &Grant, offset: u64, length: u64) -> Option<(Part, u64)> {
    let part = node.service::<Announcements>(PROCESS, HANDLER)?.part_of(grant)?;
    Some((part, part.place(offset, length)?))
}

/// Whether the exporter has announced where `length` bytes from `offset` of an import on are.
pub(crate) fn is_announced(node: &Node<AnyDesign>, grant: &Grant, offset: u64, length: u64) -> bool {
    announced(node, grant, offset, length).is_some()
}
