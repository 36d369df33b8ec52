//! Memory that all ranks share: a segment of the host, or the protocol of Millipage.

#[deny(unsafe_code)]
mod calls;
#[deny(unsafe_code)]
pub(crate) mod error;
#[deny(unsafe_code)]
mod freed;
#[deny(unsafe_code)]
mod heap;
#[deny(unsafe_code)]
mod objects;
#[deny(unsafe_code)]
mod one_host;
#[deny(unsafe_code)]
mod options;
mod protocol;
#[deny(unsafe_code)]
mod push;
mod rows;
#[deny(unsafe_code)]
mod seeing;
mod values;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mapwire_driver::DriverError;
use mapwire_driver::engine::Engine;
use mapwire_dsm::Counters;
use mapwire_host::faults::{FaultBackend, WatchError};

pub use self::error::SharedError;
use self::one_host::OneHost;
pub use self::options::{AllocOptions, Unit};
pub(crate) use self::protocol::Protocol;
pub use self::rows::SharedRows;
#[doc(hidden)]
pub use self::seeing::{allocates_at, allocates_by};
pub use self::values::{SharedBox, SharedVec};
use crate::config::Coherence;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::opening::{Open, Opening};
use crate::slice::{Sharable, SharedSlice};
use crate::sync::Objects;

/// Memory that all ranks of the job share, at the same addresses.
///
/// How the ranks see each other's stores depends on the job ([`Coherence`]):
///
/// * **All on one host:** the ranks map the same memory, and the processor keeps it coherent. Loads, stores, atomics, system calls,
///   `mlockall` and debuggers work on it as on any memory. A forked child has it too, and may load, store, allocate, lock and unlock.
/// * **On several hosts,** or with `--coherence minipages`: an allocation of up to a page is a *minipage*, which moves between ranks as a whole
///   and alone, however many share its page (Millipage §2.1); a longer one has as many as its [`Unit`] says, by default one a page. One rank at a time may store to it, or many may read; the memory is sequentially
///   consistent. Nothing needs to be called for that: an access that is not allowed yet faults, and the fault handler fetches the minipage.
///
/// Cheap to clone. [`open`](Self::open) and [`close`](Self::close) are collective.
///
/// # With minipages
/// System calls do not fault: hand them private memory, or touch shared memory before. A child by `fork` does not have the memory: it dies
/// of SIGSEGV where it touches it, after a line on standard error that says why.
///
/// A signal handler may load and store shared memory, on any thread of the program. It must return (no `longjmp`), and it calls
/// nothing of this crate. Install handlers before the memory is opened: while it is open and there are handlers, calls that work
/// on it block signals for a moment, at the price of two system calls. After installing a handler later, call
/// [`notice_handlers`](Self::notice_handlers). Otherwise it is noticed after some calls, and until then the process may end with
/// a message when that handler touches shared memory in the middle of a call.
#[derive(Clone, Debug)]
pub struct Shared {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    node: Node,
    /// Ended before anything is taken away.
    open: Open,
    memory: Memory,
    objects: Arc<Objects>,
    _mark: Mark,
}

/// Says that a node's shared memory is open, until it is dropped.
#[derive(Debug)]
struct Mark(Node);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.is_shared().store(false, Ordering::Release);
    }
}

/// What keeps the memory coherent.
#[derive(Debug)]
enum Memory {
    OneHost(OneHost),
    Protocol(Arc<Protocol>),
}

impl Shared {
    /// Opens the shared memory, for the first time or after it was closed, with `threads` threads of this rank taking part in
    /// barriers (usually 1). All ranks of the job call it. Settings come from the node's configuration and must agree.
    ///
    /// # Errors
    /// It is open already; addresses, mappings or faults are refused (the error names the setting); a rank does not
    /// come, or has other settings.
    pub fn open(node: &Node, threads: usize) -> Result<Self> {
        node.check_process()?;
        if node.is_shared().swap(true, Ordering::AcqRel) {
            return Err(SharedError::Open.into());
        }
        let mark = Mark(node.clone());
        let is_of_one_host = one_host::coherence_of(node) == Coherence::Auto;
        let memory = match one_host::meet(node)? {
            Some(meeting) if is_of_one_host => {
                seeing::begin(node, Coherence::Auto);
                Memory::OneHost(OneHost::open(node, threads, &meeting)?)
            }
            _ => Memory::Protocol(Arc::new(Protocol::open(node, threads)?)),
        };
        let objects = Arc::new(match &memory {
            Memory::OneHost(memory) => Objects::of_one_host(memory.objects()),
            Memory::Protocol(protocol) => Objects::served(protocol),
        });
        let open = match &memory {
            Memory::OneHost(_) => Opening::begin_for_children(),
            Memory::Protocol(_) => Opening::begin(),
        };
        let open = open.ok_or(SharedError::Watch(WatchError::TooMany))?;
        Ok(Self { inner: Arc::new(Inner { node: node.clone(), open, memory, objects, _mark: mark }) })
    }

    /// What keeps the memory coherent: [`Coherence::Auto`] is the processor.
    #[must_use]
    pub fn coherence(&self) -> Coherence {
        match &self.inner.memory {
            Memory::OneHost(_) => Coherence::Auto,
            Memory::Protocol(_) if self.node().config().shared.coherence == Coherence::Hlrc => Coherence::Hlrc,
            Memory::Protocol(_) => Coherence::Minipages,
        }
    }

    /// Says that the program has installed handlers of signals since the memory was opened, and that they may touch it. Takes
    /// about 20 microseconds.
    pub fn notice_handlers(&self) {
        self.engine().notice_handlers();
    }

    /// Allocates `length` zeroed values, with minipages as one of their own, or one a page if they are more than a page. This rank may store to
    /// them at once; others learn their address by [`broadcast`](Self::broadcast) or through other shared memory.
    ///
    /// # Errors
    /// No bytes, or more than is left; values that must be aligned to more than a page.
    #[track_caller]
    pub fn alloc<T: Sharable>(&self, length: usize) -> Result<SharedSlice<T>> {
        self.alloc_with(length, &AllocOptions::new())
    }

    /// As [`alloc`](Self::alloc), with options.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), and a unit of 0 bytes or longer than the allocation; a home outside the job; a coherence that the job cannot
    /// give.
    #[track_caller]
    pub fn alloc_with<T: Sharable>(&self, length: usize, options: &AllocOptions<'_>) -> Result<SharedSlice<T>> {
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        let least = rows::least_bytes::<T>()?;
        let address = self.alloc_bytes_with(if bytes == 0 { 0 } else { bytes.max(least) }, options)?;
        SharedSlice::checked(self, address, length)
    }

    /// Allocates `bytes` zeroed bytes, as [`alloc`](Self::alloc): aligned to 16 bytes, from 64 on to 64, from a page on to
    /// pages. Gives the address, which is the same in every rank.
    ///
    /// # Errors
    /// No bytes, or more than is left.
    #[track_caller]
    pub fn alloc_bytes(&self, bytes: u64) -> Result<u64> {
        self.alloc_bytes_with(bytes, &AllocOptions::new())
    }

    /// As [`alloc_bytes`](Self::alloc_bytes), with options.
    ///
    /// # Errors
    /// As [`alloc_with`](Self::alloc_with).
    #[track_caller]
    pub fn alloc_bytes_with(&self, bytes: u64, options: &AllocOptions<'_>) -> Result<u64> {
        let of_model = || options.of_model(self.coherence(), self.node().size(), bytes);
        match &self.inner.memory {
            Memory::OneHost(memory) => {
                of_model()?;
                self.allocated(memory, memory.heap().alloc(bytes, 1))
            }
            Memory::Protocol(protocol) => {
                let address = protocol.alloc(bytes, of_model()?)?;
                self.note_allocation(address, bytes, options.given_name());
                Ok(address)
            }
        }
    }

    /// Fetches what of `slice` is not here while this thread goes on. It is a hint: at most 16 minipages, or 512 pages with hlrc, are
    /// on their way at a time, faults fetch the rest, and another rank may take one away before it is used.
    ///
    /// # Errors
    /// The memory is closed, or the shared memory is at its end.
    pub fn prefetch<T: Sharable>(&self, slice: &SharedSlice<T>) -> Result<()> {
        slice.check_open()?;
        self.prefetch_all(&[(slice.address(), bytes_of(slice), false)])
    }

    /// As [`prefetch`](Self::prefetch), to store there: no other rank keeps a copy.
    ///
    /// # Errors
    /// As [`prefetch`](Self::prefetch).
    pub fn prefetch_to_write<T: Sharable>(&self, slice: &SharedSlice<T>) -> Result<()> {
        slice.check_open()?;
        self.prefetch_all(&[(slice.address(), bytes_of(slice), true)])
    }

    /// As [`prefetch`](Self::prefetch), for several runs of bytes: the address of each, how many bytes it has, and whether to store
    /// there, as [`prefetch_to_write`](Self::prefetch_to_write). One call wakes another rank once.
    ///
    /// # Errors
    /// As [`prefetch`](Self::prefetch), and bytes that are not within one view of the shared memory.
    pub fn prefetch_all(&self, runs: &[(u64, u64, bool)]) -> Result<()> {
        self.check_runs(runs.iter().map(|&(address, bytes, _)| (address, bytes)))?;
        match &self.inner.memory {
            Memory::OneHost(memory) => memory.populate(runs),
            Memory::Protocol(protocol) => protocol.prefetch(runs)?,
        }
        Ok(())
    }

    /// Says that this thread stores to every byte of these runs (the address of each, and how many bytes it has) before any thread of its
    /// rank releases a lock or an object of [`sync`](crate::sync) or comes to a barrier, and loads none of them before. With hlrc, pages within them are then not fetched, and go to
    /// their homes as they are; where the promise is broken, bytes have any value.
    ///
    /// # Errors
    /// As [`prefetch`](Self::prefetch), and bytes that are not within one view of the shared memory.
    pub fn overwrite_all(&self, runs: &[(u64, u64)]) -> Result<()> {
        self.check_runs(runs.iter().copied())?;
        match &self.inner.memory {
            Memory::OneHost(_) => Ok(()),
            Memory::Protocol(protocol) => protocol.overwrite(runs),
        }
    }

    fn check_runs(&self, runs: impl Iterator<Item = (u64, u64)>) -> Result<()> {
        self.check()?;
        for (address, bytes) in runs {
            self.check_address(address, bytes)?;
        }
        Ok(())
    }

    /// Waits until every rank has got here, and all its threads that take part. A rank that ends after it must close the memory
    /// first: the last rank to get here passes while the others still learn of it.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn barrier(&self) -> Result<()> {
        self.barrier_of(0)
    }

    /// As [`barrier`](Self::barrier), for one of several independent barriers.
    ///
    /// # Errors
    /// A rank is gone; a number beyond the 256 there are.
    pub fn barrier_of(&self, barrier: u32) -> Result<()> {
        match &self.inner.memory {
            Memory::OneHost(memory) => Ok(memory.barrier(barrier)?),
            Memory::Protocol(protocol) => protocol.barrier(barrier),
        }
    }

    /// Gives `value` of rank `root` to all ranks. One thread of each rank calls it.
    ///
    /// # Errors
    /// A rank is gone; a root outside the job.
    pub fn broadcast(&self, root: usize, value: u64) -> Result<u64> {
        let root = u16::try_from(root).unwrap_or(u16::MAX);
        match &self.inner.memory {
            Memory::OneHost(memory) => Ok(memory.broadcast(root, value)?),
            Memory::Protocol(protocol) => protocol.broadcast(root, value),
        }
    }

    /// Gives a slice that `root` allocated to all ranks. Other ranks' `slice` is ignored.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast); what `root` gives is not within one view of the shared memory, or not aligned for `T`.
    pub fn broadcast_slice<T: Sharable>(&self, root: usize, slice: Option<SharedSlice<T>>) -> Result<SharedSlice<T>> {
        let address = self.broadcast(root, slice.map_or(0, |slice| slice.address()))?;
        let length = self.broadcast(root, slice.map_or(0, |slice| slice.len() as u64))?;
        SharedSlice::checked(self, address, length as usize)
    }

    /// Takes a lock: one of 4096, the same in every rank. On one host whoever comes when it is free takes it, except that a thread that
    /// has waited for more than a millisecond is next. With minipages it is granted in the order of asking, and stays with the rank that had
    /// it last, which takes it again without a message.
    ///
    /// # Errors
    /// A rank is gone; a number beyond the last; a lock that this thread holds; on one host, that its holder has ended.
    #[inline]
    pub fn lock(&self, lock: u32) -> Result<LockGuard<'_>> {
        match &self.inner.memory {
            Memory::OneHost(memory) => memory.lock(lock)?,
            Memory::Protocol(protocol) => protocol.lock(lock)?,
        }
        Ok(LockGuard { shared: self, lock })
    }

    /// Gives a lock back; [`LockGuard`] does it when dropped. For bindings to languages without guards.
    ///
    /// # Errors
    /// A lock that this thread does not hold.
    #[inline]
    pub fn unlock(&self, lock: u32) -> Result<()> {
        match &self.inner.memory {
            Memory::OneHost(memory) => Ok(memory.unlock(lock)?),
            Memory::Protocol(protocol) => protocol.unlock(lock),
        }
    }

    /// Changes how many threads of this rank take part in barriers; on one host those of its forked children count too.
    ///
    /// # Errors
    /// None, more than 64 (on several hosts, or with minipages), or while threads wait in a barrier.
    pub fn set_threads(&self, threads: usize) -> Result<()> {
        match &self.inner.memory {
            Memory::OneHost(memory) => Ok(memory.set_threads(threads)?),
            Memory::Protocol(protocol) => protocol.set_threads(u16::try_from(threads).unwrap_or(u16::MAX)),
        }
    }

    /// What the protocol did in this rank so far; all 0 where there is none.
    #[must_use]
    pub fn counters(&self) -> Counters {
        match &self.inner.memory {
            Memory::OneHost(_) => Counters::default(),
            Memory::Protocol(protocol) => protocol.counters(),
        }
    }

    /// How faults are caught; `None` where none are.
    #[must_use]
    pub fn faults(&self) -> Option<FaultBackend> {
        match &self.inner.memory {
            Memory::OneHost(_) => None,
            Memory::Protocol(protocol) => Some(protocol.faults()),
        }
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.inner.node
    }

    /// Waits until every rank closes, and gives the memory back. All ranks call it; slices know afterwards that it is closed, and
    /// say so when they are used.
    ///
    /// Dropping the last clone gives the memory back without waiting: ranks that use it still are told so. That is the right
    /// thing after an error, which the others must not wait for, and at no other time.
    ///
    /// # Errors
    /// A rank has died; this is a forked child, which only loses its own part.
    pub fn close(self) -> Result<()> {
        self.node().check_process()?;
        match self.broadcast(0, 0) {
            // It passed this very meeting, so all have come, or it waits for nobody: there is nothing to wait for here.
            Err(Error::Shared(
                SharedError::RankGone(rank)
                | SharedError::HolderGone { peer: rank, .. }
                | SharedError::RankClosed(rank),
            )) if !self.engine().has_died(rank) => {}
            outcome => drop(outcome?),
        }
        if let Memory::OneHost(memory) = &self.inner.memory {
            memory.set_closed();
        }
        Ok(())
    }

    /// Whether the memory can be used: by this process, and while the job is whole.
    fn check(&self) -> Result<()> {
        match &self.inner.memory {
            Memory::OneHost(memory) => Ok(memory.check()?),
            Memory::Protocol(protocol) => {
                self.node().check_process()?;
                Ok(protocol.check()?)
            }
        }
    }

    /// Whether `bytes` at `address` lie within the memory, and within one view if it has views.
    fn check_address(&self, address: u64, bytes: u64) -> Result<()> {
        let is_within = match &self.inner.memory {
            Memory::OneHost(memory) => memory.holds(address, bytes),
            Memory::Protocol(protocol) => {
                self.node().check_process()?;
                protocol.holds(address, bytes)
            }
        };
        if is_within {
            return Ok(());
        }
        Err(Error::Driver(DriverError::NotMapped { address, length: bytes, access: "share" }))
    }

    #[inline]
    fn engine(&self) -> &Engine {
        self.inner.node.engine()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.open.end();
    }
}

impl<T: Sharable> SharedSlice<T> {
    /// The slice of `length` values at `address`, if that lies within one view and is aligned for `T`.
    fn checked(shared: &Shared, address: u64, length: usize) -> Result<Self> {
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        shared.check_address(address, bytes)?;
        let align = align_of::<T>() as u64;
        if !address.is_multiple_of(align) {
            return Err(Error::Misplaced { address, align });
        }
        Ok(Self::new(shared.inner.open.opening(), address, length))
    }

    /// The slice of `length` values at `address`, which another rank got from [`Shared::alloc`] and told this one.
    ///
    /// # Safety
    /// `address` and `length` are those of an allocation of `shared`, or lie within one.
    ///
    /// # Errors
    /// An address that is not within one view of the shared memory, or not aligned for `T`.
    pub unsafe fn from_address(shared: &Shared, address: u64, length: usize) -> Result<Self> {
        Self::checked(shared, address, length)
    }
}

fn bytes_of<T: Sharable>(slice: &SharedSlice<T>) -> u64 {
    (slice.len() * size_of::<T>()) as u64
}

/// A lock, held until this is dropped.
#[derive(Debug)]
pub struct LockGuard<'a> {
    shared: &'a Shared,
    lock: u32,
}

impl Drop for LockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let is_ours = matches!(self.shared.inner.memory, Memory::OneHost(_)) || self.shared.engine().is_here();
        if is_ours && let Err(error) = self.shared.unlock(self.lock) {
            tracing::error!(lock = self.lock, %error, "a lock could not be given back");
        }
    }
}
