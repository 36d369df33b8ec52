//! The memfd behind every memory that peers can map.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use super::MemoryError;
use crate::page::{PAGE_BYTES, check_page_size, round_to_pages};

/// Status of an export that stands.
pub(crate) const STANDING: u32 = 0;
/// Status of an export that was revoked.
pub(crate) const REVOKED: u32 = 1;

/// Bytes of data pages and of the whole memfd for a buffer of `bytes`.
pub(crate) fn layout(bytes: usize) -> Result<(usize, usize), MemoryError> {
    if bytes == 0 {
        return Err(MemoryError::Zero);
    }
    let too_long = MemoryError::TooLong { bytes };
    let data = round_to_pages(bytes).ok_or(too_long.clone())?;
    let all = data.checked_add(PAGE_BYTES).ok_or(too_long.clone())?;
    if isize::try_from(all).is_err() {
        return Err(too_long);
    }
    Ok((data, all))
}

/// A memfd for a buffer of `bytes`: data pages and the status page, sealed in its length.
///
/// `name` shows in `/proc/PID/maps`; bytes that a name cannot hold are replaced.
pub(crate) fn create(name: &str, bytes: usize) -> Result<OwnedFd, MemoryError> {
    check_page_size()?;
    let (_, all) = layout(bytes)?;
    let fail = |call| move |errno| MemoryError::of_call(call, bytes, errno);
    let file = rustix::fs::memfd_create(
        shown_name(name),
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )
    .map_err(fail("memfd_create"))?;
    rustix::fs::ftruncate(&file, all as u64).map_err(fail("ftruncate"))?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)
        .map_err(fail("fcntl(F_ADD_SEALS)"))?;
    Ok(file)
}

/// Whether `file` is long enough for a buffer of `bytes` and can never become shorter.
pub(crate) fn verify(file: impl AsFd, bytes: usize) -> Result<(), MemoryError> {
    let (_, all) = layout(bytes)?;
    let fail = |call| move |errno| MemoryError::of_call(call, bytes, errno);
    // The seals first: a length read before them could change in between.
    let seals = match rustix::fs::fcntl_get_seals(&file) {
        Ok(seals) => seals,
        Err(rustix::io::Errno::INVAL) => return Err(MemoryError::NotSealed),
        Err(errno) => return Err(fail("fcntl(F_GET_SEALS)")(errno)),
    };
    if !seals.contains(SealFlags::SHRINK) {
        return Err(MemoryError::NotSealed);
    }
    let found_bytes = rustix::fs::fstat(&file).map_err(fail("fstat"))?.st_size as u64;
    if found_bytes < all as u64 {
        return Err(MemoryError::TooShort {
            found_bytes,
            needed_bytes: all as u64,
        });
    }
    Ok(())
}

/// The process that made something. A forked child has a copy of the value, but must not undo
/// what belongs to its parent when it drops that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(rustix::process::Pid);

impl Owner {
    /// The calling process.
    pub(crate) fn me() -> Self {
        Self(rustix::process::getpid())
    }

    /// Whether the calling process is the owner.
    pub(crate) fn is_me(self) -> bool {
        self == Self::me()
    }
}

fn shown_name(name: &str) -> String {
    // The kernel allows 249 bytes.
    let mut shown = String::from("mapwire");
    if !name.is_empty() {
        shown.push(':');
    }
    shown.extend(
        name.chars()
            .filter(|c| c.is_ascii_graphic() && *c != '/')
            .take(200),
    );
    shown
}
