//! Queries single mappings from the kernel, without the text of `/proc/self/maps` (`PROCMAP_QUERY`, Linux 6.11).

use std::os::fd::OwnedFd;
use std::sync::{Mutex, TryLockError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Updater, opcode};
use rustix::mm::MprotectFlags;

use crate::descriptors::above_stdio;
use crate::masking::mask;
use crate::processes::Owner;

/// One line of `/proc/self/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MappedRange {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
    /// Whether others that map the same file see stores.
    pub(crate) shared: bool,
    /// Size of its pages, in bytes; 0 if unknown.
    pub(crate) page_bytes: u64,
    /// Offset of the first byte in the file.
    pub(crate) offset: u64,
    /// Major and minor number of the file's device.
    pub(crate) device: (u32, u32),
    /// Inode number of the file; 0 for anonymous memory.
    pub(crate) inode: u64,
    /// File or `[heap]`, `[stack]`; empty for anonymous memory. Empty from [`Maps`](crate::maps::Maps) if the kernel answers without text.
    pub(crate) name: String,
}

impl MappedRange {
    pub(crate) fn rights(&self) -> MprotectFlags {
        let allowed = |is: bool, flag| if is { flag } else { MprotectFlags::empty() };
        allowed(self.readable, MprotectFlags::READ)
            | allowed(self.writable, MprotectFlags::WRITE)
            | allowed(self.executable, MprotectFlags::EXEC)
    }
}

const WRITABLE: u64 = 1 << 1;
const READABLE: u64 = 1 << 0;
const EXECUTABLE: u64 = 1 << 2;
const SHARED: u64 = 1 << 3;
/// If nothing is mapped there, return the next range.
const OR_NEXT: u64 = 1 << 4;

#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// `/proc/self/maps`, opened once: opening it costs as much as fifty queries. A forked child opens its own.
static MAPS: Mutex<Option<(Owner, OwnedFd)>> = Mutex::new(None);

/// The first mapped range that ends after `address`; `None` if there is none.
///
/// # Errors
/// The kernel is older, or `/proc` is not mounted; or another thread is querying (`EAGAIN`), which a forked child may lack: so nobody
/// waits for it.
pub(crate) fn range_at_or_after(address: usize) -> Result<Option<MappedRange>, Errno> {
    // A handler may fork, which queries too.
    let _mask = mask();
    let mut maps = match MAPS.try_lock() {
        Ok(maps) => maps,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(Errno::AGAIN),
    };
    if !matches!(&*maps, Some((owner, _)) if owner.is_me()) {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/self/maps", flags, Mode::empty()).and_then(above_stdio)?;
        *maps = Some((Owner::me(), file));
    }
    let Some((_, file)) = &*maps else {
        return Err(Errno::BADF);
    };
    let mut query =
        Query { size: size_of::<Query>() as u64, query_flags: OR_NEXT, query_addr: address as u64, ..Query::default() };
    // SAFETY: the call reads and writes a structure of the size that its number and its first field say; both lengths of
    // further memory are 0.
    let asked = unsafe {
        rustix::ioctl::ioctl(file, Updater::<{ opcode::read_write::<Query>(b'f', 17) }, Query>::new(&mut query))
    };
    match asked {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    let has = |flag| query.vma_flags & flag != 0;
    Ok(Some(MappedRange {
        start: query.vma_start as usize,
        end: query.vma_end as usize,
        readable: has(READABLE),
        writable: has(WRITABLE),
        executable: has(EXECUTABLE),
        shared: has(SHARED),
        page_bytes: query.vma_page_size,
        offset: query.vma_offset,
        device: (query.dev_major, query.dev_minor),
        inode: query.inode,
        name: String::new(),
    }))
}
