//! Imports: the right to store into another rank's memory, or to fetch from it.

use core::ops::Range;
use core::time::Duration;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use mapwire_driver::engine::{DirectStores, Engine};
use mapwire_driver::imports::LocalImport;
use mapwire_host::memory::MappedBuffer;
use mapwire_host::memory::raw::Source;
use mapwire_vmmc::ProxyAddress;
use mapwire_wire::{Key, Refusal, Rights, Signal, SignalOp};

use crate::buffer::Buffer;
use crate::error::{Error, Result, check_range, refuse_reserved};
use crate::node::Node;

mod atomics;
mod checks;
mod commands;
mod copies;
mod memory;
mod parts;
mod proxies;
mod requests;
mod rma;
mod transfer;

use memory::{Memory, Then};
pub use parts::Rows;
pub use requests::{Request, Stable, StableMut};

/// An import about to be made. Unless told otherwise it has all rights that the export gives, and waits for the exporter as long as
/// `MAPWIRE_TIMEOUT` says (30 s).
#[must_use = "nothing is imported until `start`"]
#[derive(Debug)]
pub struct ImportBuilder<'a> {
    node: &'a Node,
    rank: usize,
    name: &'a str,
    rights: Rights,
    token: Option<Key>,
    timeout: Duration,
    reserved: bool,
}

impl Node {
    /// Begins to import what rank `rank` exports, or will export, as `name`.
    pub fn import<'a>(&'a self, rank: usize, name: &'a str) -> ImportBuilder<'a> {
        ImportBuilder::new(self, rank, name)
    }
}

impl<'a> ImportBuilder<'a> {
    fn new(node: &'a Node, rank: usize, name: &'a str) -> Self {
        let timeout = node.engine().timeout();
        Self { node, rank, name, rights: Rights::NONE, token: None, timeout, reserved: false }
    }

    /// What to ask for, and to have then on every path: no more than the export gives. No right stands for all that it gives.
    pub fn rights(mut self, rights: Rights) -> Self {
        self.rights = rights;
        self
    }

    /// The token to show.
    pub fn token(mut self, token: Key) -> Self {
        self.token = Some(token);
        self
    }

    /// How long to wait for the export.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Lets the name be one of mapwire's own.
    pub(crate) fn reserved(mut self) -> Self {
        self.reserved = true;
        self
    }

    /// Imports it.
    ///
    /// # Errors
    /// No such rank; a name that is not exported in time (the error names it); an exporter that refuses or is gone.
    pub fn start(self) -> Result<Import> {
        self.node.check_process()?;
        if !self.reserved {
            refuse_reserved(self.name)?;
        }
        let engine = self.node.engine();
        let peer = self.node.peer(self.rank)?;
        let rank = peer.0;
        let mut left = self.timeout;
        if !engine.lock().takes_requests(peer) {
            let begun = Instant::now();
            engine.wait_for(
                Some(left),
                || {
                    let name = self.name;
                    format!("importing `{name}`: rank {rank} has not taken the requests before it")
                },
                |driver| driver.takes_requests(peer).then_some(()),
            )?;
            left = left.saturating_sub(begun.elapsed());
        }
        let timeout_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let request = engine.lock().ask_import(peer, self.name, self.rights, self.token, timeout_ns)?;
        // The model ends the wait itself, and says what was waited for; the margin is for the last message.
        let margin = self.timeout.saturating_add(Duration::from_secs(5));
        let waited = engine.wait_for(
            Some(margin),
            || format!("the import of `{}` from rank {rank}", self.name),
            |driver| driver.take_import(request),
        );
        if waited.is_err() {
            engine.lock().abandon_import(request);
        }
        let local = waited??;
        Import::enter(self.node, local, self.name)
    }
}

/// The right to store into another rank's memory, or to fetch from it. Dropping it gives it up; what was sent by it goes on.
#[derive(Debug)]
pub struct Import {
    held: Arc<Held>,
    /// Whether the proxy addresses end with this value: not with that of a call which came by one of them.
    is_owner: bool,
}

/// What an import holds. Calls by proxy address hold it too while they run: when the import is dropped meanwhile, its
/// addresses end at once, and the rest is given up when those calls are done.
#[derive(Debug)]
struct Held {
    engine: Arc<Engine>,
    direct_stores: DirectStores,
    local: LocalImport,
    node: Node,
    proxy: ProxyAddress,
    name: String,
    /// The exporter is on another host.
    is_remote: bool,
    /// Libfabric moves memory from and to the exporter's.
    has_rma: bool,
}

impl Import {
    /// Bytes of the export.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        self.held.local.grant.length
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.held.node
    }

    /// The exporting rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        usize::from(self.held.local.grant.node().0)
    }

    /// What may be done.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.held.local.grant.rights
    }

    /// Whether all of the exporter's memory is mapped here: then a send is a copy, and the MMU checks it.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct_range() == (0..self.len())
    }

    /// The bytes of the export that are mapped here, which take the direct path: all, none, or those of whole pages.
    #[must_use]
    pub fn direct_range(&self) -> Range<u64> {
        let part = self.held.local.mapped.as_ref().map(MappedBuffer::part);
        part.map_or(0..0, |part| part.start as u64..part.end as u64)
    }

    /// Where bytes `offset` to `offset + length` of the export are mapped here; `None` unless all of them are. Mapped until the
    /// import is dropped, and for loads only without the right to store.
    ///
    /// Loads and stores there need no call (the proxy space is then real address space, as on SHRIMP). They are ordered as this
    /// processor orders them, and after a revocation stores reach nobody. They wake nobody: an exporter that sleeps in
    /// `wait_signal` sees them after 10 ms at most. A forked child is given none, and must not use its parent's.
    #[must_use]
    pub fn pointer(&self, offset: u64, length: u64) -> Option<*mut u8> {
        self.held.node.check_process().ok()?;
        let mapped = self.held.local.mapped.as_ref()?;
        check_range(offset, length, self.len()).ok()?;
        mapped.at(offset as usize, length as usize)
    }

    /// The first proxy address of this import (VMMC §2): names its bytes among all imports of this process, until it is
    /// dropped.
    #[must_use]
    pub fn proxy_address(&self) -> ProxyAddress {
        self.held.proxy
    }

    /// The proxy address of byte `offset`: [`Node::send_to`] and its like take it. The end of the import has one too.
    ///
    /// # Errors
    /// An offset past the end.
    pub fn proxy_at(&self, offset: u64) -> Result<ProxyAddress> {
        check_range(offset, 0, self.len())?;
        // Whatever is within the import has an address.
        Ok(self.held.proxy.offset(offset).unwrap_or(self.held.proxy))
    }

    /// Stores `data` at `offset` of the export. Returns once `data` may be reused. Delivery is not confirmed: an exporter may
    /// still refuse what has left, when it revokes the export meanwhile. [`flush`](Self::flush) confirms delivery. What one
    /// process sends to another arrives in order.
    ///
    /// Once this process has been told that the export is revoked, every send fails with [`Error::Revoked`]. It has been told
    /// when the exporter's message has come, and looks for that message before each send.
    ///
    /// # Errors
    /// A range outside the export, no right to store, an export that is revoked, an exporter that is gone, or pages of
    /// `data` that cannot be pinned. A long send can fail after a part of it has left: the error is then [`Error::Partial`],
    /// which says how much may have been stored at most. With every other error nothing of it was stored.
    #[inline]
    pub fn send(&self, data: &[u8], offset: u64) -> Result<()> {
        self.send_source(data.into(), offset)
    }

    /// As [`send`](Self::send), from the bytes `range` of a buffer. Other ranks may store to it at any time, so it has no slice; what they
    /// store meanwhile may be sent or not.
    ///
    /// # Errors
    /// As [`send`](Self::send), and a range outside the buffer.
    #[inline]
    pub fn send_from(&self, source: &Buffer, range: Range<usize>, offset: u64) -> Result<()> {
        self.send_source(source.bytes(range)?, offset)
    }

    #[inline]
    fn send_source(&self, data: Source<'_>, offset: u64) -> Result<()> {
        if let Some(mapped) = &self.held.local.mapped
            && self.is_open(mapped)
            && mapped.put(offset as usize, data)
        {
            self.wake_awaiting(mapped);
            return Ok(());
        }
        self.transfer(Memory::From(data), offset, Then::Nothing)
    }

    /// Stores `data` at `offset`, then `value` at `signal_offset`, in this order: whoever sees the value (with
    /// [`crate::Export::wait_signal`] or an acquiring load) sees the data.
    ///
    /// # Errors
    /// As [`send`](Self::send), and a signal offset that is not a multiple of 8.
    #[inline]
    pub fn put_signal(&self, data: &[u8], offset: u64, signal_offset: u64, value: u64) -> Result<()> {
        self.put_signal_source(data.into(), offset, Signal::set(signal_offset, value))
    }

    /// As [`put_signal`](Self::put_signal), but adds `value` to the word at `signal_offset`, in one atomic step; the sum wraps. Several
    /// senders can so signal by one word.
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal).
    #[inline]
    pub fn put_signal_add(&self, data: &[u8], offset: u64, signal_offset: u64, value: u64) -> Result<()> {
        self.put_signal_source(data.into(), offset, Signal { offset: signal_offset, value, op: SignalOp::Add })
    }

    /// As [`put_signal`](Self::put_signal), but sets the bits of `value` in the word at `signal_offset`, in one atomic step, and leaves the
    /// others.
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal).
    #[inline]
    pub fn put_signal_or(&self, data: &[u8], offset: u64, signal_offset: u64, value: u64) -> Result<()> {
        self.put_signal_source(data.into(), offset, Signal { offset: signal_offset, value, op: SignalOp::Or })
    }

    /// As [`put_signal`](Self::put_signal), from the bytes `range` of a buffer, as [`send_from`](Self::send_from).
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal), and a range outside the buffer.
    #[inline]
    pub fn put_signal_from(
        &self,
        source: &Buffer,
        range: Range<usize>,
        offset: u64,
        signal_offset: u64,
        value: u64,
    ) -> Result<()> {
        self.put_signal_source(source.bytes(range)?, offset, Signal::set(signal_offset, value))
    }

    #[inline]
    fn put_signal_source(&self, data: Source<'_>, offset: u64, signal: Signal) -> Result<()> {
        if let Some(mapped) = &self.held.local.mapped
            && self.is_open(mapped)
            && mapped.put_signal(offset as usize, data, signal)
        {
            self.wake_awaiting(mapped);
            return Ok(());
        }
        self.check_signal(signal.offset)?;
        self.transfer(Memory::From(data), offset, Then::Signal(signal))
    }

    /// Stores `data`, and has the exporter's notification handler run after delivery.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_notify(&self, data: &[u8], offset: u64) -> Result<()> {
        self.transfer(Memory::From(data.into()), offset, Then::Notify)
    }

    /// Copies `into.len()` bytes from `offset` of the export (UTLB §4.1, remote fetch).
    ///
    /// # Errors
    /// As [`send`](Self::send), for the right to fetch.
    #[inline]
    pub fn fetch(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if let Some(mapped) = &self.held.local.mapped
            && self.is_open(mapped)
            && self.held.local.grant.rights.contains(Rights::FETCH)
            && mapped.read(offset as usize, into).is_ok()
        {
            return Ok(());
        }
        self.transfer(Memory::Into(into), offset, Then::Nothing)
    }

    /// As the calls above, by the fast way where it is open.
    fn move_now(&self, memory: Memory<'_>, offset: u64, then: Then) -> Result<()> {
        match (memory, then.signal()) {
            (Memory::Into(into), _) => self.fetch(offset, into),
            (Memory::From(data), None) => self.send_source(data, offset),
            (Memory::From(data), Some(signal)) => self.put_signal_source(data, offset, signal),
        }
    }

    /// Waits until all that this process has sent by this import is in place at the exporter. Needs no right to fetch.
    ///
    /// On the direct path it is a fence and a look at the exporter's status; on the ring path a message to the exporter and
    /// back, behind everything sent before.
    ///
    /// # Errors
    /// [`Error::NotStored`]: sends since the last flush were not stored, how many and the first of them as far as is known.
    /// On the ring path each is reported by one flush. On the direct path every flush after a revocation fails, since it is not
    /// known what the exporter still saw. Sends that failed with an error of their own may be counted too, and so may those by
    /// another import of the same export in this process. An exporter that is gone: what of the sends was stored is not known.
    pub fn flush(&self) -> Result<()> {
        self.held.node.check_process()?;
        let held = &*self.held;
        let grant = &held.local.grant;
        let Some(mapped) = &held.local.mapped else { return self.flush_ring() };
        if !self.is_direct() {
            self.flush_ring()?;
        }
        if !mapped.stores_arrived() {
            return Err(Error::NotStored {
                rank: u32::from(grant.node().0),
                name: held.name.clone(),
                count: 0,
                first: None,
                reason: Refusal::Revoked,
            });
        }
        if held.direct_stores.is_clear() { Ok(()) } else { self.refuse_if_gone(&mut held.engine.lock()) }
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // In a forked child another thread of the parent may have the addresses locked for ever.
        if self.is_owner && self.held.engine.is_here() {
            self.held.node.proxies().write().unwrap_or_else(PoisonError::into_inner).leave(self.held.proxy);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.engine.is_here() {
            return;
        }
        let grant = self.local.grant;
        self.engine.lock().release_import(self.local.id, &grant);
    }
}
