//! Imports: the right to store into another rank's memory, or to fetch from it.

use core::time::Duration;
use std::sync::Arc;

use mapwire_driver::driver::NOTICE_HANDLER;
use mapwire_driver::exports::direct_notice;
use mapwire_driver::imports::LocalImport;
use mapwire_driver::{Driver, DriverError, DriverMode};
use mapwire_host::memory::MappedBuffer;
use mapwire_nic::CommandError;
use mapwire_translation::PageRange;
use mapwire_vmmc::ProxyAddress;
use mapwire_wire::{
    CommandRepr, Key, NodeId, Refusal, Rights, SHORT_BYTES, SHORT_SIGNAL_BYTES, Signal,
};

use crate::error::{Error, Result, check_range};
use crate::node::{Inner, Node};
use crate::raw;

/// An import about to be made. Unless told otherwise it asks for stores only, and waits for the exporter as long as
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
}

impl<'a> ImportBuilder<'a> {
    pub(crate) fn new(node: &'a Node, rank: usize, name: &'a str) -> Self {
        let timeout = node.inner.engine.timeout();
        Self {
            node,
            rank,
            name,
            rights: Rights::STORE,
            token: None,
            timeout,
        }
    }

    /// What to ask for.
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

    /// Imports it.
    ///
    /// # Errors
    /// No such rank; a name that is not exported in time (the error names it); an exporter that refuses or is gone.
    pub fn start(self) -> Result<Import> {
        let engine = &self.node.inner.engine;
        let size = engine.size();
        let rank = u32::try_from(self.rank)
            .ok()
            .filter(|&rank| rank < size)
            .ok_or(DriverError::NoSuchRank {
                rank: u32::try_from(self.rank).unwrap_or(u32::MAX),
                size,
            })?;
        let peer = NodeId(rank as u16);
        let timeout_ns = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        let request =
            engine
                .lock()
                .ask_import(peer, self.name, self.rights, self.token, timeout_ns)?;
        // The model ends the wait itself, and says what was waited for; the margin is for the last message.
        let margin = self.timeout.saturating_add(Duration::from_secs(5));
        let local = engine.wait_for(
            Some(margin),
            || format!("the import of `{}` from rank {rank}", self.name),
            |driver| driver.take_import(request),
        )??;
        let proxy = self
            .node
            .inner
            .proxies
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .enter(local.id, local.grant.length);
        Ok(Import {
            inner: Arc::clone(&self.node.inner),
            node: self.node.clone(),
            local,
            proxy,
            name: self.name.to_owned(),
        })
    }
}

/// The right to store into another rank's memory, or to fetch from it. Dropping it gives it up.
#[derive(Debug)]
pub struct Import {
    inner: Arc<Inner>,
    node: Node,
    local: LocalImport,
    proxy: ProxyAddress,
    name: String,
}

impl Import {
    /// Bytes of the export.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        self.local.grant.length
    }

    /// The exporting rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        usize::from(self.local.grant.node.0)
    }

    /// What may be done.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.local.grant.rights
    }

    /// Whether the exporter's memory is mapped here: then a send is a copy, and the MMU checks it.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.local.mapped.is_some()
    }

    /// Where the exporter's memory is mapped here, on the direct path: stores through it, and loads, need no call at all (the
    /// proxy space is then real address space, as on SHRIMP). They are ordered as this processor orders stores, and after a
    /// revocation they reach nobody.
    #[must_use]
    pub fn as_ptr(&self) -> Option<*mut u8> {
        self.local
            .mapped
            .as_ref()
            .map(mapwire_host::memory::MappedBuffer::as_ptr)
    }

    /// The first proxy address of this import (VMMC §2): names its bytes among all imports of this process.
    #[must_use]
    pub fn proxy_address(&self) -> ProxyAddress {
        self.proxy
    }

    /// Stores `data` at `offset` of the export. When it returns, `data` may be reused; that it is there is not said: send a
    /// signal after it, or fetch. What one process sends to another arrives in order.
    ///
    /// # Errors
    /// A range outside the export, no right to store, an export that is revoked, an exporter that is gone, or pages of
    /// `data` that cannot be pinned. Nothing is stored then.
    #[inline]
    pub fn send(&self, data: &[u8], offset: u64) -> Result<()> {
        if let Some(mapped) = &self.local.mapped
            && self.is_open(mapped)
            && mapped.put(offset as usize, data)
        {
            return Ok(());
        }
        self.send_slow(data, offset, false, None)
    }

    /// Stores `data` at `offset`, then `value` at `signal_offset`, in this order: whoever sees the value (with
    /// [`crate::Export::wait_signal`] or an acquiring load) sees the data.
    ///
    /// # Errors
    /// As [`send`](Self::send), and a signal offset that is not a multiple of 8.
    #[inline]
    pub fn put_signal(
        &self,
        data: &[u8],
        offset: u64,
        signal_offset: u64,
        value: u64,
    ) -> Result<()> {
        if let Some(mapped) = &self.local.mapped
            && self.is_open(mapped)
            && mapped.holds_signal(signal_offset as usize)
            && mapped.put(offset as usize, data)
        {
            mapped.signal(signal_offset as usize, value);
            return Ok(());
        }
        self.check_signal(signal_offset)?;
        self.send_slow(
            data,
            offset,
            false,
            Some(Signal {
                offset: signal_offset,
                value,
            }),
        )
    }

    /// Stores `data`, and has the exporter's notification handler run after delivery.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_notify(&self, data: &[u8], offset: u64) -> Result<()> {
        let Some(mapped) = &self.local.mapped else {
            return self.send_slow(data, offset, true, None);
        };
        self.open_direct()?;
        self.check(Rights::STORE, offset, data.len() as u64)?;
        mapped.write(offset as usize, data)?;
        let grant = &self.local.grant;
        let notice = direct_notice(grant.export, grant.key, offset, data.len() as u64);
        let command = CommandRepr::Handler {
            to: grant.node,
            handler: NOTICE_HANDLER,
            length: notice.len() as u32,
        };
        self.submit(&command, &notice)
    }

    /// Begins to store `data`, which the caller gives away until [`Sending::wait`] returns it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_async<T: Stable>(&self, data: T, offset: u64) -> Result<Sending<T>> {
        let bytes = data.bytes();
        let word =
            if self.local.mapped.is_some() || bytes.len() <= SHORT_BYTES || self.is_shared(bytes) {
                self.send(bytes, offset)?;
                None
            } else {
                Some(self.submit_long(bytes, offset, false, None)?)
            };
        Ok(Sending {
            inner: Arc::clone(&self.inner),
            to: self.local.grant.node,
            word,
            data: Some(data),
        })
    }

    /// Copies `into.len()` bytes from `offset` of the export (UTLB §4.1, remote fetch).
    ///
    /// # Errors
    /// As [`send`](Self::send), for the right to fetch.
    #[inline]
    pub fn fetch(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if let Some(mapped) = &self.local.mapped
            && self.is_open(mapped)
        {
            self.check(Rights::FETCH, offset, into.len() as u64)?;
            return Ok(mapped.read(offset as usize, into)?);
        }
        self.fetch_slow(offset, into)
    }

    /// Whether a direct store or fetch may go ahead at once. Two loads of lines that are in this core's cache.
    #[inline]
    fn is_open(&self, mapped: &MappedBuffer) -> bool {
        self.inner.engine.is_clear(self.local.grant.node) && !mapped.revoked()
    }

    /// Makes a direct store possible, or says why it is not: waits for what was sent before by the ring.
    #[cold]
    fn open_direct(&self) -> Result<()> {
        if self
            .local
            .mapped
            .as_ref()
            .is_some_and(mapwire_host::memory::MappedBuffer::revoked)
        {
            return Err(self.revoked());
        }
        if !self.inner.engine.is_clear(self.local.grant.node) {
            self.inner.engine.settle(self.local.grant.node)?;
        }
        Ok(())
    }

    #[inline]
    fn check(&self, needs: Rights, offset: u64, length: u64) -> Result<()> {
        let grant = &self.local.grant;
        if !grant.rights.contains(needs) {
            return Err(Error::NoRight {
                needs,
                has: grant.rights,
            });
        }
        check_range(offset, length, grant.length)
    }

    #[inline]
    fn check_signal(&self, offset: u64) -> Result<()> {
        if !offset.is_multiple_of(Signal::WORD_BYTES) {
            return Err(Error::Unaligned(offset));
        }
        self.check(Rights::STORE, offset, Signal::WORD_BYTES)
    }

    fn is_shared(&self, bytes: &[u8]) -> bool {
        raw::in_shared(&self.node, bytes.as_ptr() as u64, bytes.len() as u64)
    }

    /// Everything but a direct store that may go ahead: the ring path, and direct stores that must wait or fail.
    fn send_slow(
        &self,
        data: &[u8],
        offset: u64,
        notify: bool,
        signal: Option<Signal>,
    ) -> Result<()> {
        self.check(Rights::STORE, offset, data.len() as u64)?;
        if self.local.mapped.is_some() {
            self.open_direct()?;
            return match signal {
                None => self.send(data, offset),
                Some(signal) => self.put_signal(data, offset, signal.offset, signal.value),
            };
        }
        let short = if signal.is_some() {
            SHORT_SIGNAL_BYTES
        } else {
            SHORT_BYTES
        };
        if data.len() <= short {
            let length = data.len() as u32;
            let import = self.local.id;
            let mut copy = [0; SHORT_BYTES];
            // Copied here, outside the driver's lock: `data` may be shared memory, and fault.
            copy[..data.len()].copy_from_slice(data);
            let command = CommandRepr::ShortSend {
                import,
                offset,
                length,
                notify,
                signal,
            };
            return self.submit(&command, &copy[..data.len()]);
        }
        if self.is_shared(data) {
            // The driver must not fault: send a copy that cannot.
            let copy = data.to_vec();
            let word = self.submit_long(&copy, offset, notify, signal)?;
            return self.finish(word);
        }
        let word = self.submit_long(data, offset, notify, signal)?;
        self.finish(word)
    }

    #[cold]
    fn fetch_slow(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(Rights::FETCH, offset, into.len() as u64)?;
        if self.local.mapped.is_some() {
            self.open_direct()?;
            return self.fetch(offset, into);
        }
        if into.is_empty() {
            return Ok(());
        }
        if self.is_shared(into) {
            let mut copy = vec![0; into.len()];
            self.fetch_slow(offset, &mut copy)?;
            into.copy_from_slice(&copy);
            return Ok(());
        }
        let (address, length) = (into.as_mut_ptr() as u64, into.len() as u64);
        let import = self.local.id;
        let command = |completion| CommandRepr::Fetch {
            import,
            offset,
            address,
            length,
            completion,
        };
        let word = self.submit_held(address, length, command, &[])?;
        self.finish(word)
    }

    /// Waits until a command is over. One that a revocation crossed failed for that reason.
    fn finish(&self, word: u32) -> Result<()> {
        let grant = &self.local.grant;
        match self.inner.finish(word, grant.node) {
            Err(Error::Driver(DriverError::Command(
                CommandError::Revoked(_) | CommandError::Refused(Refusal::Revoked),
            ))) => Err(self.revoked()),
            outcome => outcome,
        }
    }

    fn revoked(&self) -> Error {
        Error::Revoked {
            rank: u32::from(self.local.grant.node.0),
            name: self.name.clone(),
        }
    }

    /// Refuses a command that would fail at the exporter: it is gone, or has revoked the export.
    #[inline]
    fn refuse_if_over(&self, driver: &Driver) -> Result<()> {
        let grant = &self.local.grant;
        if driver.is_gone(grant.node) {
            return Err(driver.why_gone(grant.node).into());
        }
        if driver
            .nic()
            .imported(self.local.id)
            .is_some_and(|import| import.revoked)
        {
            return Err(self.revoked());
        }
        Ok(())
    }

    fn submit_long(
        &self,
        data: &[u8],
        offset: u64,
        notify: bool,
        signal: Option<Signal>,
    ) -> Result<u32> {
        self.check(Rights::STORE, offset, data.len() as u64)?;
        let (address, length) = (data.as_ptr() as u64, data.len() as u64);
        let import = self.local.id;
        let command = |completion| CommandRepr::LongSend {
            import,
            offset,
            address,
            length,
            notify,
            signal,
            completion,
        };
        self.submit_held(address, length, command, &[])
    }

    /// Submits a command whose pages are pinned and held until it is done; gives its completion word.
    fn submit_held(
        &self,
        address: u64,
        length: u64,
        command: impl Fn(u32) -> CommandRepr,
        data: &[u8],
    ) -> Result<u32> {
        let engine = &self.inner.engine;
        let range = PageRange::covering(address, length).map_err(DriverError::from)?;
        let words = engine.words();
        let word = words
            .take()
            .or_else(|| engine.wait_until(Some(engine.timeout()), |engine| engine.words().take()))
            .ok_or(DriverError::TooManyOutstanding(
                mapwire_driver::completions::WORDS,
            ))?;
        // The usual case takes the lock once: pages pinned, room in the queue.
        let mut driver = engine.lock();
        let begun = self
            .refuse_if_over(&driver)
            .and_then(|()| Ok(driver.hold(word, range)?));
        if let Err(error) = begun {
            words.cancel(word);
            return Err(error);
        }
        engine.mark_dirty(&driver, self.local.grant.node);
        if engine.mode() == DriverMode::Inline
            && matches!(driver.submit(&command(word), data), Ok(true))
        {
            return Ok(word);
        }
        drop(driver);
        if let Err(error) = self.submit(&command(word), data) {
            engine.lock().unhold(word);
            words.cancel(word);
            return Err(error);
        }
        Ok(word)
    }

    /// Writes a command to the queue, waiting for room.
    #[inline]
    fn submit(&self, command: &CommandRepr, data: &[u8]) -> Result<()> {
        let engine = &self.inner.engine;
        let peer = self.local.grant.node;
        if engine.mode() == DriverMode::Inline {
            let mut driver = engine.lock();
            self.refuse_if_over(&driver)?;
            engine.mark_dirty(&driver, peer);
            if driver.submit(command, data).map_err(Error::from)? {
                return Ok(());
            }
        } else {
            self.refuse_if_over(&engine.lock())?;
            if engine.submit(peer, command, data)? {
                return Ok(());
            }
        }
        engine.wait_for(
            Some(engine.timeout()),
            || {
                format!(
                    "room in the command queue, which is full of sends to rank {} and others",
                    peer.0
                )
            },
            |driver| {
                engine.mark_dirty(driver, peer);
                match driver.submit(command, data) {
                    Ok(true) => Some(Ok(())),
                    Ok(false) => None,
                    Err(error) => Some(Err(error)),
                }
            },
        )??;
        Ok(())
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        self.inner
            .proxies
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .leave(self.proxy);
        let grant = self.local.grant;
        self.inner
            .engine
            .lock()
            .release_import(self.local.id, &grant);
    }
}

impl Inner {
    /// Waits until the command with completion word `word` is over.
    fn finish(&self, word: u32, peer: NodeId) -> Result<()> {
        // The NIC ends every command: done, refused, or failed since the peer is gone. So the wait has an end without a
        // timeout, and must not have one: until then the NIC uses the caller's memory.
        let words = self.engine.words();
        let outcome = words.finish(word).or_else(|| {
            self.engine
                .wait_until(None, |engine| engine.words().finish(word))
        });
        match outcome {
            Some(Ok(())) | None => Ok(()),
            Some(Err(CommandError::PeerGone(_))) => Err(self.engine.lock().why_gone(peer).into()),
            Some(Err(error)) => Err(DriverError::from(error).into()),
        }
    }
}

/// Memory that stays at its place while it is given away: what [`Import::send_async`] can send from.
pub trait Stable: sealed::Sealed + Send + 'static {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

macro_rules! stable {
    ($($kind:ty),*) => {$(
        impl sealed::Sealed for $kind {}
        impl Stable for $kind {
            fn bytes(&self) -> &[u8] {
                self
            }
        }
    )*};
}

stable!(Vec<u8>, Box<[u8]>, Arc<[u8]>, &'static [u8]);

mod sealed {
    pub trait Sealed {}
}

/// A send under way, which owns what it sends.
#[derive(Debug)]
#[must_use = "the data comes back from `wait`"]
pub struct Sending<T> {
    inner: Arc<Inner>,
    to: NodeId,
    word: Option<u32>,
    data: Option<T>,
}

impl<T> Sending<T> {
    /// Whether the data may be reused, without waiting. Runs one turn of the driver.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.inner.engine.poll();
        self.word
            .is_none_or(|word| self.inner.engine.words().is_over(word))
    }

    /// Waits until the data may be reused, and gives it back.
    ///
    /// # Errors
    /// As [`Import::send`].
    pub fn wait(mut self) -> Result<T> {
        let outcome = self.finish();
        let data = self.data.take();
        outcome?;
        // It is there until `wait` or `drop` takes it, and this is the one that does.
        data.ok_or(Error::OutOfRange {
            offset: 0,
            length: 0,
            end: 0,
            unit: "bytes",
        })
    }

    fn finish(&mut self) -> Result<()> {
        match self.word.take() {
            None => Ok(()),
            Some(word) => self.inner.finish(word, self.to),
        }
    }
}

impl<T> Drop for Sending<T> {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!(%error, "a send that nobody waited for failed");
        }
    }
}
