//! Memory that may be larger than what it takes of the RAM.

use core::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

use mapwire_host::page::PAGE_BYTES;
use mapwire_pager::{DiskStore, FileChanges, Pager, Statistics, file_bytes};

use crate::error::{Result, check_range};

pub(crate) mod error;
#[allow(unsafe_code)]
mod slice;

pub use error::FarError;
use error::LEAST_BYTES;
pub use slice::FarSlice;

/// Where the file is made unless another folder is given: `/tmp` is often in RAM itself.
const FOLDER: &str = "/var/tmp";

/// Memory of which a limited part is in RAM, and the rest in a file that has no name, or in files that were mapped. For programs that
/// know what of their memory is large; `mapwire far` does it for programs as they are.
///
/// ```no_run
/// use mapwire::Far;
///
/// let far = Far::builder().local(1 << 30).disk("/mnt/nvme").open()?;
/// let mut table = far.alloc(64 << 30)?;
/// table[12_345_678_901] = 1;
/// let index = far.map_file(&std::fs::File::open("index.bin").unwrap())?;
/// println!("{} {:.3}", index[0], far.statistics().hit_ratio());
/// # Ok::<(), mapwire::Error>(())
/// ```
///
/// All of it shares one limit. Accesses are loads and stores; one of a page that is not in RAM waits until it is there. System calls may
/// use the memory, and it may be exported: importers do not map it then, and what they send takes the ring. It needs userfaultfd, as `mapwire doctor` says, and what it needs is freed when the last [`FarSlice`] is dropped.
/// `mapwire stats` shows its figures.
///
/// # When a page is lost
/// A page that comes back from the disk with other bytes, or not at all, is never given to the program: access to it raises SIGBUS, which
/// ends the process unless it handles that, and a line on stderr says why. A child of `fork` does not have the memory, and dies
/// of SIGSEGV where it touches it; `std::process::Command` is fine.
pub struct Far {
    pager: Pager,
}

/// How far memory is opened.
#[derive(Debug, Clone)]
#[must_use = "nothing is opened before `open`"]
pub struct FarBuilder {
    local_bytes: u64,
    disk: PathBuf,
}

impl FarBuilder {
    /// How much of the memory is in RAM, in bytes: at least 65,536. Part of a page does not count.
    pub fn local(self, bytes: u64) -> Self {
        Self { local_bytes: bytes, ..self }
    }

    /// The folder of the file that holds the rest, instead of `/var/tmp`.
    pub fn disk(self, folder: impl Into<PathBuf>) -> Self {
        Self { disk: folder.into(), ..self }
    }

    /// Opens it.
    ///
    /// # Errors
    /// A limit that is too low or beyond the address space; a folder where no file can be made; what the kernel refuses, with how to mend
    /// it.
    pub fn open(self) -> Result<Far> {
        let pages = self.local_bytes / PAGE_BYTES as u64;
        let limit = usize::try_from(pages).unwrap_or(usize::MAX);
        if self.local_bytes < LEAST_BYTES {
            let local_bytes = self.local_bytes;
            return Err(FarError::Local { local_bytes }.into());
        }
        let store = DiskStore::new(&self.disk).map_err(|cause| FarError::Disk { folder: self.disk, cause })?;
        let pager = Pager::new(limit, Box::new(store)).map_err(FarError::from)?;
        Ok(Far { pager })
    }
}

impl Far {
    /// Sets up far memory; [`FarBuilder::local`] must be called.
    pub fn builder() -> FarBuilder {
        FarBuilder { local_bytes: 0, disk: FOLDER.into() }
    }

    /// Memory of `bytes` zeros, which begins on a page. It takes whole pages of 4096 bytes, of which only those that are touched take
    /// anything; at most 1024 slices are there at a time.
    ///
    /// # Errors
    /// 0 bytes, or more than there are addresses or room for.
    pub fn alloc(&self, bytes: usize) -> Result<FarSlice> {
        let region = self.pager.map(bytes, None).map_err(FarError::from)?;
        Ok(FarSlice::new(region, bytes))
    }

    /// The bytes of a file, as [`map_part`](Self::map_part).
    ///
    /// # Errors
    /// As of [`map_part`](Self::map_part); an empty file.
    pub fn map_file(&self, file: &File) -> Result<FarSlice> {
        let bytes = file_bytes(file).map_err(FarError::from)?;
        self.map_part(file, 0, usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// `bytes` bytes of a file from byte `offset` on, a multiple of 4096. Pages are read when they are touched. Stores change the memory
    /// alone, never the file. Pages that do not change are never written to the disk: they are read again.
    ///
    /// The program sees the bytes that it has seen before, also when the file is changed meanwhile: where they are gone, the page is
    /// [lost](Self#when-a-page-is-lost). The descriptor may be closed. As ever, locks of `fcntl` that this process has on the file end
    /// when the slice is dropped.
    ///
    /// # Errors
    /// No bytes, or some behind the file's end; an offset that no page begins at; no regular file, or one that is not open for reading.
    pub fn map_part(&self, file: impl AsFd, offset: u64, bytes: usize) -> Result<FarSlice> {
        let end = file_bytes(&file).map_err(FarError::from)?;
        let length = bytes as u64;
        check_range(offset, length, end)?;
        let slice = self.alloc(bytes)?;
        slice.map(file.as_fd(), offset, FileChanges::Refused)?;
        Ok(slice)
    }

    /// What was counted so far, over all of this memory.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.pager.statistics()
    }
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statistics = self.statistics();
        f.debug_struct("Far")
            .field("limit_pages", &statistics.limit_pages)
            .field("resident_pages", &statistics.resident_pages)
            .finish_non_exhaustive()
    }
}
