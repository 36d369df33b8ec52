//! The list of adopted memory, and its inheritance by forked children.
//!
//! A child inherits shared mappings, so its stores would reach its parent and the parent's importers. Handlers of `fork`
//! ([`libc::pthread_atfork`]) map the adopted memory privately in the child instead. `vfork`, `posix_spawn` and `clone` without the C
//! library do not run them: their children call `exec` at once, or share memory knowingly.

use core::cell::RefCell;
use core::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::MemoryError;
use crate::mapping::Mapping;
use crate::maps::Maps;
use crate::masking::{Mask, mask};

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) file: Arc<OwnedFd>,
}

#[derive(Debug)]
struct Registry {
    /// Whether the handlers are installed.
    armed: bool,
    entries: Vec<Entry>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { armed: false, entries: Vec::new() });

/// Locks the list of adopted memory: nobody forks, and no signal handler interrupts this thread.
#[derive(Debug)]
pub(super) struct Adoptions {
    registry: MutexGuard<'static, Registry>,
    _mask: Mask,
}

/// Locks the list.
///
/// # Errors
/// The C library has no memory for the handlers of `fork`.
pub(super) fn lock() -> Result<Adoptions, MemoryError> {
    let mut adoptions = lock_for_fork();
    if !adoptions.registry.armed {
        // SAFETY: the handlers are functions of this library, which stays loaded.
        let failed = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        if failed != 0 {
            let errno = rustix::io::Errno::from_raw_os_error(failed);
            return Err(MemoryError::of_call("pthread_atfork", 0, errno));
        }
        adoptions.registry.armed = true;
    }
    Ok(adoptions)
}

fn lock_for_fork() -> Adoptions {
    let mask = mask();
    Adoptions { registry: REGISTRY.lock().unwrap_or_else(PoisonError::into_inner), _mask: mask }
}

impl Adoptions {
    pub(super) fn len(&self) -> usize {
        self.registry.entries.len()
    }

    /// Makes room for one more, so that [`push`](Self::push) allocates nothing.
    pub(super) fn reserve(&mut self) {
        self.registry.entries.reserve(1);
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.registry.entries.push(entry);
    }

    /// Removes the one on `file`: others may begin at the same address, where the program has mapped new memory since.
    pub(super) fn remove(&mut self, file: &Arc<OwnedFd>) {
        let entries = &mut self.registry.entries;
        entries.retain(|entry| !Arc::ptr_eq(&entry.file, file));
    }
}

/// A range that maps a memfd, and its rights, which the program may have changed.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) range: Range<usize>,
    pub(super) rights: MprotectFlags,
}

impl Part {
    /// A range of unknown rights.
    fn open(range: Range<usize>) -> Self {
        let rights = MprotectFlags::READ | MprotectFlags::WRITE;
        Self { range, rights }
    }
}

/// The parts of `bytes` at `start` that still map `file`, whose first byte was there. The program has unmapped the others.
///
/// # Errors
/// The kernel does not say which file it is.
pub(super) fn standing(start: usize, bytes: usize, file: impl AsFd) -> Result<Vec<Part>, MemoryError> {
    let stat = rustix::fs::fstat(file).map_err(|errno| MemoryError::of_call("fstat", bytes, errno))?;
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let (mut maps, mut parts) = (Maps::default(), Vec::new());
    let (mut at, end) = (start, start + bytes);
    while at < end
        && let Some(range) = maps.at_or_after(at)
        && range.start < end
    {
        let from = range.start.max(at);
        let is_ours = range.shared
            && (range.device, range.inode) == (device, stat.st_ino)
            && range.offset + (from - range.start) as u64 == (from - start) as u64;
        at = range.end.min(end);
        if is_ours {
            parts.push(Part { range: from..at, rights: range.rights() });
        }
    }
    if maps.is_blind() {
        // Nothing is known, so the program's promise to keep the memory must do.
        parts = vec![Part::open(start..end)];
    }
    Ok(parts)
}

/// A mapping for the child: its address, memfd and offset.
struct Inheritance {
    adoptions: Adoptions,
    parts: Vec<(Part, Arc<OwnedFd>, u64)>,
}

thread_local! {
    /// From the beginning of a fork to its end.
    static FORKING: RefCell<Option<Inheritance>> = const { RefCell::new(None) };
}

/// Called before a fork, in the parent.
extern "C" fn prepare() {
    let adoptions = lock_for_fork();
    let mut parts = Vec::new();
    for entry in &adoptions.registry.entries {
        let standing = standing(entry.start, entry.bytes, &entry.file)
            .unwrap_or_else(|_| vec![Part::open(entry.start..entry.start + entry.bytes)]);
        parts.extend(standing.into_iter().map(|part| {
            let offset = (part.range.start - entry.start) as u64;
            (part, Arc::clone(&entry.file), offset)
        }));
    }
    let _ = FORKING.try_with(|forking| forking.replace(Some(Inheritance { adoptions, parts })));
}

/// Called after a fork, in the parent.
extern "C" fn parent() {
    let _ = FORKING.try_with(|forking| drop(forking.take()));
}

/// Called after a fork, in the child, whose only thread this is.
extern "C" fn child() {
    let Ok(Some(mut inheritance)) = FORKING.try_with(RefCell::take) else {
        return;
    };
    for (Part { range, rights }, file, offset) in &inheritance.parts {
        let rights = ProtFlags::from_bits_retain(rights.bits());
        // SAFETY: the same bytes at the same place.
        let mapped = unsafe { Mapping::over(range.start, file, *offset, range.len(), rights, MapFlags::PRIVATE) };
        if mapped.is_err() {
            // A child whose stores would change its parent's memory must not run.
            std::process::abort();
        }
    }
    inheritance.adoptions.registry.entries.clear();
}
