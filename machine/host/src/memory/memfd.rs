//! The memfd behind memory that processes share: its creation, and the checks on one from another process before it is mapped.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;

use super::MemoryError;
use crate::descriptors::above_stdio;
use crate::limits;
use crate::page::{check_page_size, round_to_pages};

/// Bytes of the whole pages that hold `bytes`.
pub(crate) fn whole_pages(bytes: usize) -> Result<usize, MemoryError> {
    if bytes == 0 {
        return Err(MemoryError::Zero);
    }
    round_to_pages(bytes).filter(|&pages| isize::try_from(pages).is_ok()).ok_or(MemoryError::TooLong { bytes })
}

/// Makes a memfd of `bytes`, a multiple of the page size. Call [`finish`] before another process gets it.
///
/// `name` shows in `/proc/PID/maps`; bytes that a name cannot hold are dropped.
///
/// # Errors
/// No descriptor left, too many bytes, more than RLIMIT_FSIZE, or pages of another size.
pub fn create(name: &str, bytes: usize) -> Result<OwnedFd, MemoryError> {
    check_page_size()?;
    // The kernel would end the process.
    if limits::file_bytes().0.is_some_and(|most| bytes as u64 > most) {
        return Err(MemoryError::of_call("ftruncate", bytes, Errno::FBIG));
    }
    let fail = |call| move |errno| MemoryError::of_call(call, bytes, errno);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(shown_name(name), flags).and_then(above_stdio).map_err(fail("memfd_create"))?;
    rustix::fs::ftruncate(&file, bytes as u64).map_err(fail("ftruncate"))?;
    Ok(file)
}

/// The seals of every memfd that processes share.
const LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Processes that may store into a memfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Every process with the descriptor.
    All,
    /// Only the process that has mapped it already, through that mapping: the kernel refuses every new writable mapping and every `write`.
    Present,
}

/// Seals a memfd: from now on its length is fixed and no seal can be added, so no holder of the descriptor can take the right to store
/// away from the others.
///
/// # Errors
/// The kernel is older than 5.1 (`EINVAL`) and `writers` is [`Writers::Present`].
pub fn finish(file: impl AsFd, writers: Writers) -> Result<(), MemoryError> {
    let more = match writers {
        Writers::All => SealFlags::empty(),
        Writers::Present => SealFlags::FUTURE_WRITE,
    };
    rustix::fs::fcntl_add_seals(file, LENGTH | more)
        .map_err(|errno| MemoryError::of_call("fcntl(F_ADD_SEALS)", 0, errno))
}

/// Seals of a memfd that grows: a load or store below a length that it has had never faults.
const GROWING: SealFlags = SealFlags::SHRINK.union(SealFlags::SEAL);

/// Makes an empty memfd that every process with the descriptor may [`grow`] and store to, and that never shrinks.
///
/// # Errors
/// As [`create`].
pub fn create_growing(name: &str) -> Result<OwnedFd, MemoryError> {
    let file = create(name, 0)?;
    let sealed = rustix::fs::fcntl_add_seals(&file, GROWING);
    sealed.map_err(|errno| MemoryError::of_call("fcntl(F_ADD_SEALS)", 0, errno))?;
    Ok(file)
}

/// Makes a memfd of [`create_growing`] at least `bytes` long.
///
/// # Errors
/// More than RLIMIT_FSIZE allows this process, or the kernel's limit of a file.
pub fn grow(file: impl AsFd, bytes: u64) -> Result<(), MemoryError> {
    let whole = usize::try_from(bytes).unwrap_or(usize::MAX);
    let fail = |call| move |errno| MemoryError::of_call(call, whole, errno);
    loop {
        if rustix::fs::fstat(&file).map_err(fail("fstat"))?.st_size as u64 >= bytes {
            return Ok(());
        }
        // The kernel would end the process.
        if limits::file_bytes().0.is_some_and(|most| bytes > most) {
            return Err(fail("ftruncate")(Errno::FBIG));
        }
        match rustix::fs::ftruncate(&file, bytes) {
            Ok(()) => return Ok(()),
            // Another process has made it longer meanwhile.
            Err(Errno::PERM) => {}
            Err(errno) => return Err(fail("ftruncate")(errno)),
        }
    }
}

/// Checks a memfd of [`create_growing`] from another process before it is mapped.
///
/// # Errors
/// [`MemoryError::NotSealed`], and errors of the kernel.
pub fn verify_growing(file: impl AsFd) -> Result<(), MemoryError> {
    verify_sealed(file, GROWING, "not sealed against shrinking and further seals")
}

/// Checks a descriptor from another process before it is mapped: no load or store of its first `bytes` can fault, whatever its other
/// holders do. Returns its length in bytes.
///
/// It must be a memfd of base pages (a huge page can run out on access, which is a SIGBUS), have
/// at least `bytes`, and be sealed against shrinking, growing and further seals.
///
/// # Errors
/// [`MemoryError::NotSealed`] and [`MemoryError::TooShort`], and errors of the kernel.
pub fn verify(file: impl AsFd, bytes: usize) -> Result<u64, MemoryError> {
    // The seals first: a length read before them could change in between.
    verify_sealed(&file, LENGTH, "not sealed against shrinking, growing and further seals")?;
    let found_bytes =
        rustix::fs::fstat(&file).map_err(|errno| MemoryError::of_call("fstat", bytes, errno))?.st_size as u64;
    if found_bytes < bytes as u64 {
        return Err(MemoryError::TooShort { found_bytes, needed_bytes: bytes as u64 });
    }
    Ok(found_bytes)
}

/// Checks that the file is a memfd of base pages with these seals; `else_it_is` describes one without.
fn verify_sealed(file: impl AsFd, wanted: SealFlags, else_it_is: &'static str) -> Result<(), MemoryError> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let fail = |call| move |errno| MemoryError::of_call(call, 0, errno);
    let magic = rustix::fs::fstatfs(&file).map_err(fail("fstatfs"))?.f_type;
    if magic as u64 & 0xffff_ffff != TMPFS_MAGIC {
        return Err(MemoryError::NotSealed("no memfd of base pages"));
    }
    let seals = rustix::fs::fcntl_get_seals(&file).map_err(|errno| match errno {
        // A device, or a descriptor that only names a file.
        Errno::INVAL | Errno::BADF => MemoryError::NotSealed("no memfd of base pages"),
        errno => fail("fcntl(F_GET_SEALS)")(errno),
    })?;
    if seals.contains(wanted) { Ok(()) } else { Err(MemoryError::NotSealed(else_it_is)) }
}

/// Calls `each` with the offset and length of each run of pages of `file` that were ever touched, of the `bytes` from `offset` on.
pub(crate) fn extents(
    file: impl AsFd,
    offset: usize,
    bytes: usize,
    mut each: impl FnMut(usize, usize),
) -> Result<(), Errno> {
    let (mut at, limit) = (offset, offset + bytes);
    while at < limit {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at as u64)) {
            Ok(start) => (start as usize).min(limit),
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        };
        if start == limit {
            break;
        }
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start as u64))?;
        let end = (end as usize).clamp(start + 1, limit);
        each(start, end - start);
        at = end;
    }
    Ok(())
}

fn shown_name(name: &str) -> String {
    // The kernel allows 249 bytes.
    let mut shown = String::from("mapwire");
    if !name.is_empty() {
        shown.push(':');
    }
    shown.extend(name.chars().filter(|c| c.is_ascii_graphic() && *c != '/').take(200));
    shown
}
