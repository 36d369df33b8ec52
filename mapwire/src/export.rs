//! Exports: memory that others may store into or fetch from.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use mapwire_driver::DriverError;
use mapwire_driver::engine::AskForWake;
use mapwire_driver::exports::{DirectMemory, ExportRequest, writers};
use mapwire_driver::notices::{Notification, NotificationHandler};
use mapwire_host::memory::{MemoryError, SharedBuffer};
use mapwire_translation::PAGE_BYTES;
use mapwire_vmmc::Importers;
use mapwire_wire::{ExportId, NodeId, Rights};

use crate::buffer::Buffer;
use crate::config::Path;
use crate::error::{Error, Result, check_range, refuse_reserved};
use crate::node::Node;
use crate::raw;

/// An export about to be made. Unless told otherwise it has no name (give it one), allows stores and fetches, and lets every
/// rank of the job import it.
#[must_use = "nothing is exported until `start`"]
pub struct ExportBuilder<'a> {
    node: &'a Node,
    buffer: Option<Buffer>,
    address: u64,
    length: u64,
    name: String,
    rights: Rights,
    importers: Importers,
    handler: Option<NotificationHandler>,
    ring_only: bool,
    reserved: bool,
}

impl Node {
    /// Begins to export a buffer from [`alloc`](Self::alloc), on the direct path where importers' rights allow. Of several exports of one buffer
    /// that stand at a time only the first takes it.
    pub fn export_buffer<'a>(&'a self, buffer: &'a Buffer) -> ExportBuilder<'a> {
        ExportBuilder::of_buffer(self, buffer)
    }

    /// Begins to export memory of any kind: heap, stack or static.
    ///
    /// Whole pages of heap and statics take the direct path where importers' rights allow: [`start`](ExportBuilder::start) moves them onto
    /// memory that can be mapped, in place, and the end of the export moves them back. Each takes some 20 µs and 1.5 µs a page. Stores of
    /// other threads wait meanwhile; a system call must not store there. What changes for `fork`, `madvise` and huge pages until then
    /// is said at [`SharedBuffer::adopt`](mapwire_host::memory::SharedBuffer::adopt).
    ///
    /// The rest takes the ring path: this process's NIC stores what comes, so that neighbours on the same page stay private. That is the
    /// memory before the first whole page and behind the last, stacks, memory that is exported already or shared otherwise, of huge pages
    /// or executable, and all memory with [`ring_only`](ExportBuilder::ring_only).
    ///
    /// # Safety
    /// The range stays mapped and at its place until the [`Export`](crate::Export) is dropped (not merely forgotten), and
    /// whoever reads it meanwhile bears that other ranks change it at any time: through
    /// [`Export::read`](crate::Export::read), atomics or volatile loads, not through references.
    #[allow(unsafe_code)]
    pub unsafe fn export_range(&self, address: *mut u8, length: usize) -> ExportBuilder<'_> {
        ExportBuilder::of_memory(self, address as u64, length as u64)
    }
}

impl<'a> ExportBuilder<'a> {
    fn of_buffer(node: &'a Node, buffer: &Buffer) -> Self {
        let mut builder = Self::of_memory(node, buffer.as_ptr() as u64, buffer.len() as u64);
        builder.buffer = Some(buffer.clone());
        builder
    }

    fn of_memory(node: &'a Node, address: u64, length: u64) -> Self {
        Self {
            node,
            buffer: None,
            address,
            length,
            name: String::new(),
            rights: Rights::ALL,
            importers: Importers::Job,
            handler: None,
            ring_only: node.config().path == Path::Ring,
            reserved: false,
        }
    }

    /// The name by which others import it: 1 to 255 bytes, once at a time in this process. Names that begin with `mapwire.` are
    /// reserved.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// What importers may do. Each importer that the export admits can have all of it, whatever it asks for.
    ///
    /// Memory that can be mapped for storing can also be read, so an export that allows stores only takes the ring path. One
    /// that allows fetches only takes the direct path as others do: the kernel refuses importers every way to store
    /// there.
    pub fn rights(mut self, rights: Rights) -> Self {
        self.rights = rights;
        self
    }

    /// Who may import it.
    pub fn importers(mut self, importers: Importers) -> Self {
        self.importers = importers;
        self
    }

    /// Exports only bytes `offset` to `offset + length` of the memory. A part of a buffer from [`Node::alloc`] takes the ring path, so
    /// that its neighbours on the page stay private.
    ///
    /// # Errors
    /// A range outside the memory.
    pub fn range(mut self, offset: u64, length: u64) -> Result<Self> {
        check_range(offset, length, self.length)?;
        self.ring_only |= self.buffer.is_some() && length != self.length;
        self.address += offset;
        self.length = length;
        Ok(self)
    }

    /// Takes the ring path even where importers could map the memory, which then stays as it is: needed for [`Export::redirect`].
    pub fn ring_only(mut self) -> Self {
        self.ring_only = true;
        self
    }

    /// Lets the name be one of mapwire's own.
    pub(crate) fn reserved(mut self) -> Self {
        self.reserved = true;
        self
    }

    /// Runs `handler` after each message that asks for a notification has been delivered: in whichever thread of this
    /// process then runs the driver, outside its lock, so the handler may itself send. It must not wait for a lock of the program: its
    /// thread may hold that lock itself, or the owner may wait for a page of shared memory. Use `try_lock`, or leave the work to a
    /// thread of the program. Of one sender 65,536 notifications at most wait for their handlers; more are dropped and counted.
    pub fn on_notify(mut self, handler: impl Fn(Notification) + Send + Sync + 'static) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Exports it.
    ///
    /// # Errors
    /// No bytes, no rights, an invalid or taken name, memory that this process may not read and write, memory that is
    /// shared memory, or the limit on pinned pages. Nothing is exported then.
    pub fn start(self) -> Result<Export> {
        self.node.check_process()?;
        if !self.reserved {
            refuse_reserved(&self.name)?;
        }
        let (address, length) = (self.address, self.length);
        raw::refuse_shared(self.node.engine(), address, length)?;
        let memory = match &self.buffer {
            _ if self.ring_only || !self.rights.contains(Rights::FETCH) => None,
            Some(buffer) => Some(Arc::clone(buffer.memory())),
            None => adopt(address, length, self.rights).map(|memory| Arc::new(Mutex::new(memory))),
        };
        if self.buffer.is_none() {
            // What was adopted is mapped as it must be.
            let whole = memory.as_ref().is_some_and(|_| is_whole_pages(address, length));
            if !whole {
                raw::require_mapped(address, length, true)?;
            }
        }
        let direct = memory.as_ref().map(|memory| DirectMemory::Buffer(Arc::clone(memory)));
        let (name, importers) = (self.name.clone(), self.importers.clone());
        let request = ExportRequest {
            name: self.name,
            address,
            length,
            rights: self.rights,
            importers: self.importers,
            direct,
            handler: self.handler,
        };
        let id = self.node.engine().lock().export(request)?;
        Ok(Export {
            node: self.node.clone(),
            id,
            address,
            length,
            memory,
            _buffer: self.buffer,
            landing: None,
            name,
            importers,
        })
    }
}

/// Moves the whole pages of private memory to where importers can map them; `None` where that cannot be, so that it goes by the
/// ring.
fn adopt(address: u64, length: u64, rights: Rights) -> Option<SharedBuffer> {
    let adopted = SharedBuffer::adopt("mapwire-export", address as usize, length as usize).and_then(|mut memory| {
        // Takes a descriptor more. Without it the memory goes back at once.
        memory.share(writers(rights))?;
        Ok(memory)
    });
    match adopted {
        Ok(memory) => Some(memory),
        Err(error @ MemoryError::NotAdoptable { .. }) => {
            tracing::debug!(%error, "an export takes the ring path");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "an export takes the ring path, which is slower");
            None
        }
    }
}

fn is_whole_pages(address: u64, length: u64) -> bool {
    (address | length).is_multiple_of(PAGE_BYTES as u64)
}

/// Waits until `look` finds a signal, for `timeout` at most. Without one, it gives the error `deserted` once none can come any more.
pub(crate) fn wait_for<T>(
    node: &Node,
    direct: Option<&dyn AskForWake>,
    timeout: Option<Duration>,
    look: impl Fn() -> Option<T>,
    is_deserted: impl Fn() -> bool,
    deserted: impl FnOnce() -> Error,
) -> Result<Option<T>> {
    let outcome = node.engine().wait_for_memory(direct, timeout, |thorough| {
        if let Some(seen) = look() {
            return Some(Some(seen));
        }
        // What was sent before is in place: the last look is after that.
        (thorough && timeout.is_none() && is_deserted()).then(&look)
    });
    match outcome {
        Some(None) => Err(deserted()),
        found => Ok(found.flatten()),
    }
}

/// An export. It stands until [`revoke`](Self::revoke) or until it is dropped.
#[derive(Debug)]
pub struct Export {
    node: Node,
    id: ExportId,
    address: u64,
    length: u64,
    /// What importers may map.
    memory: Option<Arc<Mutex<SharedBuffer>>>,
    /// Kept for as long as others may store into it.
    _buffer: Option<Buffer>,
    landing: Option<Buffer>,
    name: String,
    importers: Importers,
}

impl Export {
    /// Its length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Copies bytes out of the exported memory, which others may be changing: what is stored meanwhile may come in part.
    ///
    /// # Errors
    /// A range outside the export.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.node.check_process()?;
        check_range(offset, to.len() as u64, self.length)?;
        raw::read(self.memory() + offset, to);
        Ok(())
    }

    /// Copies bytes into the exported memory.
    ///
    /// # Errors
    /// A range outside the export.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.node.check_process()?;
        check_range(offset, from.len() as u64, self.length)?;
        raw::write(self.memory() + offset, from);
        Ok(())
    }

    /// Loads the signal at `offset` with acquire order: the data that was put before it is there.
    ///
    /// # Errors
    /// A word outside the export, or not aligned in memory.
    #[inline]
    pub fn signal(&self, offset: u64) -> Result<u64> {
        raw::load(self.signal_address(offset)?)
    }

    /// Waits until the signal at `offset` is at least `value`.
    ///
    /// The wait ends with an error when nobody is left who could store it: every rank that may import this export is gone. An
    /// export that lets the whole job in is waited for as long as any other rank lives, for that one may yet import it: name
    /// the ranks with [`Importers::Nodes`] to have the wait end when those have left.
    ///
    /// # Errors
    /// As [`signal`](Self::signal); or nobody is left who could store it.
    pub fn wait_signal(&self, offset: u64, value: u64) -> Result<u64> {
        self.wait_signal_for(offset, value, None).map(Option::unwrap_or_default)
    }

    /// As [`wait_signal`](Self::wait_signal), for at most `timeout`: `None` when that is over.
    ///
    /// # Errors
    /// As [`wait_signal`](Self::wait_signal) when there is no timeout, else as [`signal`](Self::signal).
    pub fn wait_signal_for(&self, offset: u64, value: u64, timeout: Option<Duration>) -> Result<Option<u64>> {
        let address = self.signal_address(offset)?;
        let look = || raw::load(address).ok().filter(|&seen| seen >= value);
        let deserted = || self.deserted(offset);
        wait_for(&self.node, self.direct(), timeout, look, || self.is_deserted(), deserted)
    }

    /// What to ask for wake-ups if importers may have mapped the memory.
    pub(crate) fn direct(&self) -> Option<&dyn AskForWake> {
        self.memory.as_deref().map(|memory| memory as &dyn AskForWake)
    }

    /// Says that a signal will not come.
    pub(crate) fn deserted(&self, offset: u64) -> Error {
        Error::Deserted { offset, name: self.name.clone(), ranks: self.node.engine().states() }
    }

    /// Whether nobody holds this export, and nobody is left who may import it.
    pub(crate) fn is_deserted(&self) -> bool {
        let engine = self.node.engine();
        let driver = engine.lock();
        let nobody_may = match &self.importers {
            Importers::Nodes(nodes) => {
                let is_other = |node: &&NodeId| usize::from(node.0) != self.node.rank();
                let mut others = nodes.iter().filter(is_other).peekable();
                others.peek().is_some() && others.all(|&node| driver.is_gone(node))
            }
            _ => false,
        };
        (nobody_may || engine.is_deserted()) && driver.holders(self.id) == 0
    }

    #[inline]
    pub(crate) fn signal_address(&self, offset: u64) -> Result<u64> {
        self.node.check_process()?;
        check_range(offset, 8, self.length)?;
        Ok(self.memory() + offset)
    }

    /// First address of the memory that is stored into now.
    #[inline]
    fn memory(&self) -> u64 {
        match &self.landing {
            None => self.address,
            Some(landing) => landing.as_ptr() as u64,
        }
    }

    /// Lets a buffer stand for the exported memory until [`redirect_back`](Self::redirect_back) (UTLB §4.1, transfer
    /// redirection): what others store lands in the buffer, at the same offsets, and what they fetch comes from it.
    /// [`read`](Self::read), [`write`](Self::write), [`signal`](Self::signal) and [`wait_signal`](Self::wait_signal) use the
    /// buffer too. (The paper redirects incoming data and does not say what a fetch reads.) A send or fetch that is under way during the call uses either.
    ///
    /// # Errors
    /// A buffer shorter than the export; an export that importers have mapped: make it with [`ExportBuilder::ring_only`]; the
    /// limit on pinned pages. The export then stays as it is.
    pub fn redirect(&mut self, to: &Buffer) -> Result<()> {
        self.node.check_process()?;
        self.node.engine().lock().redirect(self.id, Some(to.memory()))?;
        self.landing = Some(to.clone());
        Ok(())
    }

    /// Ends a redirection.
    ///
    /// # Errors
    /// As [`redirect`](Self::redirect).
    pub fn redirect_back(&mut self) -> Result<()> {
        self.node.check_process()?;
        self.node.engine().lock().redirect(self.id, None)?;
        self.landing = None;
        Ok(())
    }

    /// Takes the export back, at once: nothing is stored there from here on. What importers had mapped is theirs alone, since
    /// this process goes on with a copy at the same address. Their sends fail as soon as their process has been told: on the
    /// direct path before this returns, on the ring path when the message has reached them. What they sent before may have
    /// returned `Ok` and be refused: [`Import::flush`](crate::Import::flush) says so.
    ///
    /// # Errors
    /// No memory for the copy. The export is taken back all the same, but importers that mapped it still see this memory.
    pub fn revoke(self) -> Result<()> {
        self.node.check_process()?;
        let outcome = self.node.engine().lock().unexport(self.id);
        // The drop that follows finds it gone.
        outcome.map_err(Error::from)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if self.node.check_process().is_err() {
            return;
        }
        match self.node.engine().lock().unexport(self.id) {
            Ok(()) | Err(DriverError::Nic(mapwire_nic::NicError::UnknownExport(_))) => {}
            Err(error) => tracing::error!(%error, "an export could not be taken back whole"),
        }
    }
}
