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
use mapwire_transport::fabric::Fabric;
use mapwire_transport::far::Far;
pub use mapwire_transport::ofi::rma::Direction;
use mapwire_transport::ofi::rma::Registrar;
pub use mapwire_transport::ofi::rma::RmaError;
use mapwire_vmmc::Grant;
use mapwire_wire::{Endpoint, ExportId, HandlerId, NodeId};

use self::announcements::Announcements;
pub(crate) use self::exported::RegisterError;
use self::sources::Sources;
use self::transfers::{Ended, Progress, Transfer, Transfers};
use crate::driver::{Driver, PROCESS};
use crate::error::DriverError;
use crate::log::Line;
use crate::mover;

/// Handler of the announcements.
const HANDLER: HandlerId = HandlerId(3);

/// Exit status when the library does not give memory of the program back.
const EXIT_STUCK: i32 = 1;

/// What was moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) transfers: u64,
    pub(crate) bytes: u64,
}

/// See [the module](self).
#[derive(Debug)]
pub(crate) struct Rma {
    moved: Moved,
    registrar: Registrar,
    sources: Sources,
    transfers: Transfers,
}

impl Rma {
    /// `None` where the provider moves no memory.
    pub(crate) fn new(
        far: Option<&mut Far>,
        node: &mut Node<AnyDesign>,
        rules: PinRules,
    ) -> Result<Option<Box<Self>>, ServiceError> {
        let Some(far) = far.filter(|far| far.has_rma()) else {
            return Ok(None);
        };
        let has_hardware = far.has_hardware();
        // Nobody is in the page-fault handler yet.
        let Some(ofi) = far.memory() else {
            return Ok(None);
        };
        let registrar = ofi.registrar();
        node.register(PROCESS, HANDLER, Box::new(Announcements::default()))?;
        Ok(Some(Box::new(Self {
            moved: Moved::default(),
            sources: Sources::new(mover::pinner(registrar.clone()), rules, !has_hardware),
            transfers: Transfers::default(),
            registrar,
        })))
    }
}

/// A transfer under way. The memory of this process that it uses must stay until [`Driver::rma_over`] says that it is over.
#[derive(Debug)]
#[must_use]
pub struct RmaTransfer {
    number: usize,
    peer: NodeId,
}

impl<F: Fabric> Driver<F> {
    /// Whether stores to and fetches from a rank can go past the NIC.
    pub(crate) fn has_rma(&self, of: NodeId) -> bool {
        self.rma.is_some() && self.fabric.is_far(of)
    }

    /// Registers an export for a far rank that has been granted it, and tells it where.
    pub(crate) fn announce(&mut self, to: Endpoint, export: ExportId, buffer: &SharedBuffer) {
        let Some(rma) = self.rma.as_ref().filter(|_| self.fabric.is_far(to.node)) else {
            return;
        };
        let Some((memory, _)) = buffer.descriptors() else {
            return;
        };
        let Some(known) = self.node.nic().exported(export) else {
            return;
        };
        let (name, rights) = ((export, known.key), known.rights);
        // It was checked to lie there.
        let offset = (buffer.as_ptr().addr() as u64).saturating_sub(known.address);
        let bytes = (buffer.len() as u64).min(known.length.saturating_sub(offset));
        let registrar = &rma.registrar;
        let announce =
            |service: &mut Announcements| service.announce(registrar, to, name, memory, (offset, bytes), rights);
        if let Some(Err(error)) = self.node.call(PROCESS, HANDLER, announce) {
            self.log.push(Line::NotRegistered { export, error });
        }
    }

    /// An export is revoked; nobody stores to it from here on.
    pub(crate) fn orphan(&mut self, export: ExportId) {
        if self.rma.is_some() {
            let withdraw = |service: &mut Announcements| service.withdraw(export);
            let _ = self.node.call(PROCESS, HANDLER, withdraw);
        }
    }

    /// Whether the exporter has announced where `length` bytes from `offset` of an import on are.
    pub fn has_announced(&self, grant: &Grant, offset: u64, length: u64) -> bool {
        let service = self.node.service::<Announcements>(PROCESS, HANDLER);
        let part = service.and_then(|service| service.part_of(grant));
        part.is_some_and(|part| part.place(offset, length).is_some())
    }

    /// Begins to move the `length` bytes at `address` to `offset` of an import, or back. `None` when they must go by packets: the exporter
    /// has not announced them, or the limit on pinned pages is too small.
    ///
    /// The caller has waited until the exporter has taken what was sent before.
    ///
    /// # Errors
    /// Memory that is not mapped.
    pub fn begin_rma(
        &mut self,
        direction: Direction,
        grant: &Grant,
        offset: u64,
        (address, length): (u64, u64),
    ) -> Result<Option<RmaTransfer>, DriverError> {
        let announced = |service: &Announcements| service.part_of(grant);
        let part = self.node.service(PROCESS, HANDLER).and_then(announced);
        let (Some(part), Some(rma)) = (part, &mut self.rma) else {
            return Ok(None);
        };
        let ofi = self.fabric.far().and_then(Far::memory);
        let (Some(at), Some(ofi)) = (part.place(offset, length), ofi) else {
            return Ok(None);
        };
        let range = PageRange::covering(address, length)?;
        // Memory that the provider does not take, or too much of it, goes by packets.
        if !rma.sources.hold(range).unwrap_or(false) {
            return Ok(None);
        }
        let peer = grant.node();
        let name = (peer, grant.export);
        let transfer = Transfer::new(direction, name, (part.memory, at), (address, length), range);
        let number = rma.transfers.begin(transfer, ofi, &rma.sources);
        let begin = |service: &mut Announcements| service.begin(name);
        let _ = self.node.call(PROCESS, HANDLER, begin);
        Ok(Some(RmaTransfer { number, peer }))
    }

    /// Takes note of operations that are over. Whether there were any: the threads that wait for them may sleep.
    #[inline]
    pub(crate) fn drain_moves(&mut self) -> bool {
        match (&mut self.rma, self.fabric.far().and_then(Far::memory)) {
            (Some(rma), Some(ofi)) => rma.transfers.drain(ofi),
            _ => false,
        }
    }

    /// What was moved so far.
    pub(crate) fn moved(&self) -> Moved {
        self.rma.as_ref().map(|it| it.moved).unwrap_or_default()
    }

    /// How a transfer ended, once it has: what was begun of it in bytes, and why no more.
    pub fn rma_over(&mut self, transfer: &RmaTransfer) -> Option<Result<(), (u64, RmaError)>> {
        let (rma, ofi) = (self.rma.as_mut()?, self.fabric.far()?.memory()?);
        let peers = &self.peers;
        let is_gone = |peer| crate::driver::peers::is_gone(peers, peer);
        let sources = &mut rma.sources;
        match rma.transfers.progress(transfer.number, ofi, sources, is_gone) {
            Progress::UnderWay => None,
            Progress::Over(ended) => {
                let Ended { name, begun_bytes, error } = ended;
                // What comes next may be a signal, and then another transfer, which waits until the peer has taken that.
                ofi.ask_with_next(transfer.peer);
                if error.is_none() {
                    rma.moved.transfers += 1;
                    rma.moved.bytes += begun_bytes;
                }
                if let Some(name) = name {
                    let end = |service: &mut Announcements| service.end(name);
                    let _ = self.node.call(PROCESS, HANDLER, end);
                }
                Some(error.map_or(Ok(()), |error| Err((begun_bytes, error))))
            }
            Progress::Stuck => {
                mapwire_host::saying::say(format_args!(
                    "rank {}: rank {} is gone, and libfabric still uses memory of this program for a transfer with it; the process ends",
                    self.me.0, transfer.peer.0
                ));
                mover::exit(EXIT_STUCK)
            }
        }
    }
}
