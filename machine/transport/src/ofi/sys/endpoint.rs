//! A reliable endpoint with its buffers.
//!
//! Buffers are the endpoint's own, and named by number. While an operation uses a buffer, the library owns it and nobody here can look
//! at it; its completion gives it back. That makes the interface safe.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mapwire_host::mapping::Mapping;

use super::abi::*;
use super::domain::Domain;
use super::info::Info;
use super::region::{Access, Region, Registrar};
use super::regions::close;
use crate::ofi::OfiError;
use crate::ofi::rma::{Direction, LocalPiece};

/// Longest address of an endpoint, bytes.
pub(in crate::ofi) const MAX_ADDRESS_BYTES: usize = 128;

/// Stores and fetches that can be under way.
pub(in crate::ofi) const OPERATIONS: usize = 64;

/// Pieces of local memory in one store or fetch at most.
const MAX_PIECES: usize = 4;

/// Numbers of contexts from here on are those of stores and fetches.
const FIRST_OPERATION: usize = usize::MAX / 2;

/// Completions read in one call.
const BATCH: usize = 16;

/// A peer's address, as the library knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ofi) struct FabricAddress(u64);

pub(in crate::ofi) type BufferId = usize;

/// Why an operation was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ofi) enum PostError {
    /// The library is out of room for now.
    Again,
    Failed(c_int),
}

/// An operation is over, and its buffer is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ofi) enum Event {
    /// A message of so many bytes lies in the buffer.
    Received(BufferId, usize),
    /// The message has left the buffer.
    Sent(BufferId),
    ReceiveFailed(BufferId),
    SendFailed(BufferId),
    /// A store or fetch is over; an error other than 0 if it failed.
    Moved(usize, c_int),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BufferUse {
    Idle,
    Receiving,
    Sending,
}

/// Some buffers, with what the library knows them by.
struct Chunk {
    memory: Mapping,
    contexts: Box<[Context]>,
    region: Option<Region>,
}

/// Regions that a store or fetch uses.
type InUse = [Option<Arc<Region>>; MAX_PIECES];

/// See [the module](self).
pub(in crate::ofi) struct Endpoint {
    ep: *mut FidEp,
    cq: *mut FidCq,
    /// Readable when the queue has something, in some cases: see [`may_sleep`](Self::may_sleep).
    wait: Option<c_int>,
    av: *mut FidAv,
    chunks: Vec<Chunk>,
    uses: Vec<BufferUse>,
    slot_bytes: usize,
    chunk_slots: usize,
    operations: Box<[Context]>,
    /// By number of the operation.
    moving: Vec<Option<InUse>>,
    domain: Arc<Domain>,
}

// SAFETY: the domain is opened with FI_THREAD_SAFE, and what the pointers name is used through this value alone.
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// Opens an endpoint whose buffers have `slot_bytes` and come in chunks of `chunk_slots`. It has none at first. `wants_fd`: for
    /// [`fd`](Self::fd), which some providers do not have.
    pub(in crate::ofi) fn open(
        offered: Info<'_>,
        slot_bytes: usize,
        chunk_slots: usize,
        wants_fd: bool,
    ) -> Result<Self, OfiError> {
        let domain = Arc::new(Domain::open(offered)?);
        let mut this = Self {
            ep: ptr::null_mut(),
            cq: ptr::null_mut(),
            wait: None,
            av: ptr::null_mut(),
            chunks: Vec::new(),
            uses: Vec::new(),
            slot_bytes,
            chunk_slots,
            operations: contexts(FIRST_OPERATION, OPERATIONS),
            moving: (0..OPERATIONS).map(|_| None).collect(),
            domain: Arc::clone(&domain),
        };
        let info = domain.info();
        let mut av_attr = AvAttr {
            kind: info.domain_attr().av_type,
            rx_ctx_bits: 0,
            count: 0,
            ep_per_node: 0,
            name: ptr::null(),
            map_addr: ptr::null_mut(),
            flags: 0,
        };
        let mut cq_attr = CqAttr {
            size: info.transmits() + info.receives(),
            flags: 0,
            format: FI_CQ_FORMAT_MSG,
            wait_obj: if wants_fd { FI_WAIT_FD } else { FI_WAIT_NONE },
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        // SAFETY: the domain is open and its tables are those of its version; attributes and results live until the calls return;
        // results go to fields of `this`, which closes them.
        unsafe {
            let ops = &*(*domain.domain).ops;
            let none = ptr::null_mut::<c_void>();
            let code = call!(ops, av_open(domain.domain, &mut av_attr, &mut this.av, none));
            domain.check("fi_av_open", code)?;
            let mut code = call!(ops, cq_open(domain.domain, &mut cq_attr, &mut this.cq, none));
            let mut has_fd = wants_fd;
            if code != 0 && wants_fd {
                cq_attr.wait_obj = FI_WAIT_NONE;
                has_fd = false;
                code = call!(ops, cq_open(domain.domain, &mut cq_attr, &mut this.cq, none));
            }
            domain.check("fi_cq_open", code)?;
            let code = call!(ops, endpoint(domain.domain, info.raw(), &mut this.ep, none));
            domain.check("fi_endpoint", code)?;
            let fid: *mut Fid = this.ep.cast();
            let ops = &*(*fid).ops;
            let bind = |what: *mut Fid, flags: u64| -> c_int { call!(ops, bind(fid, what, flags)) };
            domain.check("fi_ep_bind of addresses", bind(this.av.cast(), 0))?;
            let completions = bind(this.cq.cast(), FI_SEND | FI_RECV);
            domain.check("fi_ep_bind of completions", completions)?;
            let code = call!(ops, control(fid, FI_ENABLE, none));
            domain.check("fi_enable", code)?;
            if has_fd {
                let fid: *mut Fid = this.cq.cast();
                let mut fd: c_int = -1;
                let code: c_int = call!((*(*fid).ops), control(fid, FI_GETWAIT, ptr::from_mut(&mut fd).cast()));
                this.wait = (code == 0 && fd >= 0).then_some(fd);
            }
        }
        domain.regions.open(this.ep);
        Ok(this)
    }

    /// The provider's properties.
    pub(in crate::ofi) fn info(&self) -> Info<'_> {
        self.domain.info()
    }

    /// What a thread may sleep on.
    pub(in crate::ofi) fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the library keeps it open as long as the queue, which this owns.
        self.wait.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the next completion makes [`fd`](Self::fd) readable: not while one waits, or the library wants to be called. To be asked right
    /// before a thread sleeps on it. Always, where there is none.
    pub(in crate::ofi) fn may_sleep(&self) -> bool {
        if self.wait.is_none() {
            return true;
        }
        let fabric = self.domain.fabric;
        let mut fid: *mut Fid = self.cq.cast();
        // SAFETY: fabric and queue are open, and its table is that of its version.
        let code = unsafe { (*(*fabric).ops).trywait.map_or(0, |trywait| trywait(fabric, &mut fid, 1)) };
        code == 0
    }

    /// The address of this endpoint.
    pub(in crate::ofi) fn address(&self) -> Result<Vec<u8>, OfiError> {
        let mut address = vec![0; MAX_ADDRESS_BYTES];
        let mut bytes = address.len();
        // SAFETY: the endpoint is open; at most `bytes` are written to `address`.
        let code = unsafe { call!((*(*self.ep).cm), getname(self.ep.cast(), address.as_mut_ptr().cast(), &mut bytes)) };
        self.domain.check("fi_getname", code)?;
        address.truncate(bytes);
        Ok(address)
    }

    /// Makes an address of a peer known, at most [`MAX_ADDRESS_BYTES`] long. `None` if the library refuses it.
    pub(in crate::ofi) fn insert(&mut self, address: &[u8]) -> Option<FabricAddress> {
        if address.len() > MAX_ADDRESS_BYTES {
            return None;
        }
        // Aligned for any kind of address, longer than each kind, and zeros at its end.
        let mut padded = [0_u64; 2 * MAX_ADDRESS_BYTES / 8];
        let mut known = u64::MAX;
        // SAFETY: the library reads an address of the domain's format, which is shorter than `padded`, and writes one result.
        let count: c_int = unsafe {
            ptr::copy_nonoverlapping(address.as_ptr(), padded.as_mut_ptr().cast(), address.len());
            call!((*(*self.av).ops), insert(self.av, padded.as_ptr().cast(), 1, &mut known, 0, ptr::null_mut()))
        };
        (count == 1).then_some(FabricAddress(known))
    }

    /// Registers memory for stores and fetches.
    pub(in crate::ofi) fn registrar(&self) -> Registrar {
        Registrar(Arc::clone(&self.domain))
    }

    /// Pieces in one store or fetch at most.
    pub(in crate::ofi) fn max_pieces(&self) -> usize {
        self.info().pieces().min(MAX_PIECES)
    }

    /// Text for an error of an operation.
    #[cold]
    pub(in crate::ofi) fn error(&self, code: c_int) -> OfiError {
        self.domain.error("a libfabric operation", code)
    }

    /// Whether all pieces are inside regions of this endpoint.
    pub(in crate::ofi) fn owns(&self, pieces: &[LocalPiece<'_>]) -> bool {
        pieces.iter().all(|piece| {
            let end = piece.offset.checked_add(piece.bytes);
            piece.region.is_of(&self.domain) && end.is_some_and(|end| end <= piece.region.len_bytes())
        })
    }

    /// Begins operation `number`, which is not under way: stores pieces, which it [owns](Self::owns) and are at most
    /// [`max_pieces`](Self::max_pieces), or fetches into them.
    pub(in crate::ofi) fn transfer(
        &mut self,
        number: usize,
        direction: Direction,
        peer: FabricAddress,
        (key, address): (u64, u64),
        pieces: &[LocalPiece<'_>],
    ) -> Result<(), PostError> {
        assert!(self.moving[number].is_none(), "operation {number} is under way");
        assert!(pieces.len() <= MAX_PIECES && self.owns(pieces));
        let mut iov = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MAX_PIECES];
        let mut desc = [ptr::null_mut(); MAX_PIECES];
        let mut in_use = InUse::default();
        for (index, piece) in pieces.iter().enumerate() {
            (iov[index].iov_base, desc[index]) = piece.region.place(piece.offset);
            iov[index].iov_len = piece.bytes;
            in_use[index] = Some(Arc::clone(piece.region));
        }
        let remote = RmaIov { address, len: pieces.iter().map(|piece| piece.bytes).sum(), key };
        let message = MsgRma {
            iov: iov.as_ptr(),
            desc: desc.as_mut_ptr(),
            iov_count: pieces.len(),
            peer: peer.0,
            remote: &remote,
            remote_count: 1,
            context: ptr::from_mut(&mut self.operations[number]).cast(),
            data: 0,
        };
        // SAFETY: the endpoint is open; the message's parts live until the call returns, its context as long as the endpoint, and
        // `moving` keeps the regions until the operation is over, which keep their memory mapped.
        let code = unsafe {
            let ops = (*self.ep).rma.as_ref();
            let call = match direction {
                Direction::Fetch => ops.and_then(|ops| ops.readmsg),
                Direction::Store | Direction::StoreInPlace => ops.and_then(|ops| ops.writemsg),
            };
            let flags = match direction {
                Direction::Store if !self.info().orders_stores() => FI_DELIVERY_COMPLETE,
                Direction::StoreInPlace => FI_DELIVERY_COMPLETE,
                Direction::Store | Direction::Fetch => 0,
            };
            call.map_or(-FI_ENOSYS as isize, |call| call(self.ep, &message, FI_COMPLETION | flags))
        };
        match -code {
            0 => {
                self.moving[number] = Some(in_use);
                Ok(())
            }
            FI_EAGAIN => Err(PostError::Again),
            error => Err(PostError::Failed(error as c_int)),
        }
    }

    /// Adds a chunk of buffers and returns their numbers.
    pub(in crate::ofi) fn grow(&mut self) -> Result<core::ops::Range<BufferId>, OfiError> {
        let bytes = self.slot_bytes * self.chunk_slots;
        let first = self.uses.len();
        let memory = Mapping::anonymous(bytes)
            .map_err(|errno| OfiError::call(self.domain.library(), "mmap", errno.raw_os_error()))?;
        let mut chunk = Chunk { contexts: contexts(first, self.chunk_slots), region: None, memory };
        if self.info().domain_attr().mr_mode & FI_MR_LOCAL != 0 {
            let at = chunk.memory.at(0, bytes);
            // SAFETY: the endpoint closes all regions before it unmaps the memory, which only its operations use.
            let region = unsafe { self.registrar().register_for(at, bytes, Access::Buffers) };
            chunk.region = Some(region?);
        }
        self.chunks.push(chunk);
        self.uses.resize(first + self.chunk_slots, BufferUse::Idle);
        Ok(first..self.uses.len())
    }

    /// Address, descriptor and context of a buffer.
    fn place(&mut self, slot: BufferId) -> (*mut u8, *mut c_void, *mut c_void) {
        let chunk = &mut self.chunks[slot / self.chunk_slots];
        let number = slot % self.chunk_slots;
        let memory = chunk.memory.at(number * self.slot_bytes, self.slot_bytes);
        let desc = chunk.region.as_ref().map_or(ptr::null_mut(), |region| region.place(0).1);
        let context = ptr::from_mut(&mut chunk.contexts[number]).cast();
        (memory, desc, context)
    }

    /// Contents of a buffer; empty while an operation uses it.
    pub(in crate::ofi) fn buffer(&self, slot: BufferId) -> &[u8] {
        if self.uses[slot] != BufferUse::Idle {
            return &[];
        }
        let memory = &self.chunks[slot / self.chunk_slots].memory;
        let at = memory.at((slot % self.chunk_slots) * self.slot_bytes, self.slot_bytes);
        // SAFETY: memory of this endpoint alone, initialised, which no operation uses; none can begin while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(at, self.slot_bytes) }
    }

    /// A buffer to fill. Empty while an operation uses it.
    pub(in crate::ofi) fn buffer_mut(&mut self, slot: BufferId) -> &mut [u8] {
        if self.uses[slot] != BufferUse::Idle {
            return &mut [];
        }
        let (at, ..) = self.place(slot);
        // SAFETY: as in `buffer`, and `self` is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(at, self.slot_bytes) }
    }

    /// Gives an idle buffer to the next message that comes.
    pub(in crate::ofi) fn receive(&mut self, slot: BufferId) -> Result<(), PostError> {
        assert_eq!(self.uses[slot], BufferUse::Idle, "buffer {slot} is in use");
        let (at, desc, context) = self.place(slot);
        // SAFETY: the buffer and its context stay until the endpoint is closed, and nobody looks at them before the completion.
        let code = unsafe {
            call!((*(*self.ep).msg), recv(self.ep, at.cast(), self.slot_bytes, desc, FI_ADDR_UNSPEC, context))
        };
        self.begun(slot, BufferUse::Receiving, code)
    }

    /// Sends the first `bytes` of an idle buffer.
    pub(in crate::ofi) fn send(&mut self, slot: BufferId, bytes: usize, to: FabricAddress) -> Result<(), PostError> {
        assert_eq!(self.uses[slot], BufferUse::Idle, "buffer {slot} is in use");
        assert!(bytes <= self.slot_bytes);
        let (at, desc, context) = self.place(slot);
        // SAFETY: as in `receive`; nobody changes the buffer before the completion.
        let code = unsafe { call!((*(*self.ep).msg), send(self.ep, at.cast(), bytes, desc, to.0, context)) };
        self.begun(slot, BufferUse::Sending, code)
    }

    fn begun(&mut self, slot: BufferId, with: BufferUse, code: isize) -> Result<(), PostError> {
        match -code {
            0 => {
                self.uses[slot] = with;
                Ok(())
            }
            FI_EAGAIN => Err(PostError::Again),
            error => Err(PostError::Failed(error as c_int)),
        }
    }

    /// Lets the library work, and adds what is over to `events`. Whether there may be more.
    pub(in crate::ofi) fn poll(&mut self, events: &mut Vec<Event>) -> bool {
        let mut entries = [CqEntry { context: ptr::null_mut(), flags: 0, len: 0 }; BATCH];
        // SAFETY: the queue is open, and its entries have the format that it was opened with.
        let count = unsafe {
            let Some(read) = (*(*self.cq).ops).read else {
                return false;
            };
            read(self.cq, entries.as_mut_ptr().cast(), BATCH)
        };
        if count == -FI_EAVAIL {
            return self.poll_error(events);
        }
        let count = usize::try_from(count).unwrap_or(0);
        for entry in &entries[..count] {
            self.handle_ended(entry.context, entry.len, 0, events);
        }
        count == BATCH
    }

    /// Takes the error at the head of the queue.
    #[cold]
    fn poll_error(&mut self, events: &mut Vec<Event>) -> bool {
        // SAFETY: all zeros is a value of this structure.
        let mut entry: CqErrEntry = unsafe { core::mem::zeroed() };
        // SAFETY: the queue is open, and `entry` is at least as long as any version's; no memory for details is lent.
        let count = unsafe {
            let Some(read) = (*(*self.cq).ops).readerr else {
                return false;
            };
            read(self.cq, &mut entry, 0)
        };
        if count <= 0 {
            return false;
        }
        self.handle_ended(entry.context, 0, entry.err.max(1), events);
        true
    }

    /// An operation is over, with an error other than 0 if it failed.
    fn handle_ended(&mut self, context: *mut c_void, bytes: usize, error: c_int, events: &mut Vec<Event>) {
        let context: *const Context = context.cast();
        if context.is_null() {
            return;
        }
        // SAFETY: the library returns the contexts that it was given, each of which lives as long as the endpoint. The number behind
        // its own words stays unchanged.
        let number = unsafe { (*context).number };
        if let Some(in_use) = number.checked_sub(FIRST_OPERATION).and_then(|number| self.moving.get_mut(number)) {
            if in_use.take().is_some() {
                events.push(Event::Moved(number - FIRST_OPERATION, error));
            }
            return;
        }
        let Some(use_) = self.uses.get_mut(number) else {
            return;
        };
        events.push(match (core::mem::replace(use_, BufferUse::Idle), error) {
            (BufferUse::Receiving, 0) => Event::Received(number, bytes.min(self.slot_bytes)),
            (BufferUse::Sending, 0) => Event::Sent(number),
            (BufferUse::Receiving, _) => Event::ReceiveFailed(number),
            (BufferUse::Sending, _) => Event::SendFailed(number),
            (BufferUse::Idle, _) => return,
        });
    }
}

/// Contexts with numbers from `first` on.
fn contexts(first: usize, count: usize) -> Box<[Context]> {
    let of_number = |number| Context { of_library: [0; 8], number };
    (first..first + count).map(of_number).collect()
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.domain.regions.close();
        // SAFETY: nobody else knows them. The endpoint goes first: once it is closed no operation uses a buffer, context or region.
        unsafe {
            if !close(self.ep.cast()) {
                // Operations may go on.
                core::mem::forget(core::mem::take(&mut self.chunks));
                core::mem::forget(core::mem::take(&mut self.operations));
                core::mem::forget(core::mem::take(&mut self.moving));
            }
            close(self.cq.cast());
            close(self.av.cast());
        }
    }
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint")
            .field("provider", &self.info().provider())
            .field("buffers", &self.uses.len())
            .finish_non_exhaustive()
    }
}
