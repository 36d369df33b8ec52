//! The kernel's calls that make up a pager, without a pager, and a store by itself: the limits of far memory.

use std::cell::RefCell;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use mapwire_host::faults::uffd_abi::{self, REGISTER_MODE_MISSING, TYPE};
use mapwire_host::mapping::Mapping;
use mapwire_host::memory::Errno;
use mapwire_pager::{BackingStore, IncomingPage, OutgoingPage, PageId};
use mapwire_translation::PAGE_BYTES;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno as Os;
use rustix::ioctl::opcode;
use rustix::mm::{Advice, UserfaultfdFlags};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use crate::BenchError;

/// Pages of one bare call, and of the pager's longest read-ahead.
const BATCH: usize = 32;

/// Private memory whose faults a thread serves by a copy of one page.
pub(super) struct BarePages {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// Pages for a store, which begin at a multiple of 4096 here.
    buffer: RefCell<Vec<u8>>,
}

struct Shared {
    uffd: OwnedFd,
    memory: Mapping,
    /// What is copied.
    source: Mapping,
    /// Processor of the thread that faults. On another the fault would wait for two wake-ups.
    processor: AtomicUsize,
}

/// `struct uffdio_copy`.
#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    done: i64,
}

impl Shared {
    fn copy(&self, offset: usize, bytes: usize) -> Result<(), Os> {
        let (to, from) = (self.memory.address() + offset, self.source.address());
        let mut copy = Copy { to: to as u64, from: from as u64, len: bytes as u64, mode: 0, done: 0 };
        // SAFETY: the call takes a `Copy`, from memory of this value to missing pages of this value.
        unsafe { uffd_abi::call::<{ opcode::read_write::<Copy>(TYPE, 3) }, _>(&self.uffd, &mut copy) }
    }

    fn serve(&self, stop: &OwnedFd) -> Result<(), Os> {
        let mut at = usize::MAX;
        loop {
            let mut fds = [&self.uffd, stop].map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
            poll(&mut fds, None)?;
            if !fds[1].revents().is_empty() {
                return Ok(());
            }
            // `struct uffd_msg` of a page fault: its third word is the address.
            let mut message = [0; 32];
            while rustix::io::read(&self.uffd, &mut message).is_ok() {
                let address = usize::from_ne_bytes(*message.as_chunks().0.get(2).ok_or(Os::IO)?);
                let processor = self.processor.load(Ordering::Relaxed);
                if processor != at {
                    at = processor;
                    let mut set = CpuSet::new();
                    set.set(at);
                    sched_setaffinity(None, &set)?;
                }
                self.copy((address - self.memory.address()) & !(PAGE_BYTES - 1), PAGE_BYTES)?;
            }
        }
    }
}

impl BarePages {
    /// Makes `pages` pages, missing at first.
    pub(super) fn new(pages: usize) -> Result<Self, BenchError> {
        let map = |pages: usize, advice| -> Result<Mapping, Os> {
            let memory = Mapping::sparse(pages * PAGE_BYTES, None)?;
            memory.advise(0, memory.bytes(), advice)?;
            Ok(memory)
        };
        let uffd = uffd_abi::open(UserfaultfdFlags::CLOEXEC.union(UserfaultfdFlags::NONBLOCK))
            .map_err(|(_, call)| format!("userfaultfd is refused: {}; see `mapwire doctor`", Errno(call)))?;
        uffd_abi::agree_on(&uffd, &[]).map_err(|(_, errno)| errno)?;
        let (memory, source) = (map(pages, Advice::LinuxNoHugepage)?, map(BATCH, Advice::LinuxPopulateWrite)?);
        uffd_abi::register(&uffd, memory.address(), memory.bytes(), REGISTER_MODE_MISSING)?;
        let shared = Arc::new(Shared { uffd, memory, source, processor: AtomicUsize::new(sched_getcpu()) });
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (served, until) = (Arc::clone(&shared), Arc::clone(&stop));
        let thread = std::thread::Builder::new().spawn(move || {
            mapwire_host::scheduling::ask_for_short_turns();
            served.serve(&until).expect("bare faults are served");
        })?;
        Ok(Self { shared, stop, thread: Some(thread), buffer: RefCell::new(vec![0; (BATCH + 1) * PAGE_BYTES]) })
    }

    pub(super) fn memory(&self) -> &Mapping {
        &self.shared.memory
    }

    /// Copies pages in and drops them again, some at a time: `UFFDIO_COPY` and `MADV_DONTNEED`.
    pub(super) fn copy_and_drop(&self) -> Result<(), BenchError> {
        let (step, end) = (BATCH * PAGE_BYTES, self.shared.memory.bytes());
        for offset in (0..end).step_by(step) {
            let bytes = step.min(end - offset);
            self.shared.copy(offset, bytes)?;
            self.shared.memory.advise(offset, bytes, Advice::LinuxDontNeed)?;
        }
        Ok(())
    }

    /// Makes all pages missing, for faults of the calling thread.
    pub(super) fn drop_all(&self) -> Result<(), BenchError> {
        self.shared.processor.store(sched_getcpu(), Ordering::Relaxed);
        Ok(self.shared.memory.advise(0, self.shared.memory.bytes(), Advice::LinuxDontNeed)?)
    }

    /// Has `store` take or return some pages of its region 0, at most [`BATCH`] at a time.
    pub(super) fn stream(&self, store: &dyn BackingStore, pages: Range<usize>, fetch: bool) -> Result<(), BenchError> {
        let mut buffer = self.buffer.borrow_mut();
        let skip = buffer.as_ptr().align_offset(PAGE_BYTES);
        for first in pages.clone().step_by(BATCH) {
            let ids = (first..pages.end).map(|page| PageId { region: 0, page: page as u64 });
            let each = ids.zip(buffer[skip..].chunks_exact_mut(PAGE_BYTES).take(BATCH));
            let mut incoming: Vec<_> = each.map(|(id, bytes)| IncomingPage { id, bytes }).collect();
            if fetch {
                store.fetch(&mut incoming)?;
            } else {
                let outgoing = incoming.iter().map(|page| OutgoingPage { id: page.id, bytes: page.bytes });
                store.store(&outgoing.collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }
}

impl Drop for BarePages {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
