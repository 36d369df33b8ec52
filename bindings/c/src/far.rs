//! Memory that may exceed its share of RAM.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mapwire::{Far, FarSlice};

use crate::arguments::{free, make, new_object, required};
use crate::failure::{Failure, call};
use crate::growing::{self, Growing};
use crate::status::mw_status_t;

/// Memory of which a limited part is in RAM, and the rest in an unnamed file, or in files that were mapped. Loads and stores access it as
/// usual; an access to a page that is not in RAM waits until it is. System calls may use the memory, as may any number of threads.
/// `mapwire stats` shows its figures.
///
/// A page that cannot be read back from the disk unchanged is never given to the program: access to it raises SIGBUS, and a line on stderr
/// says why. A child by fork(2) does not have the memory. Free pages by the functions here: munmap(2) and madvise(2) bypass the library.
#[derive(Debug)]
pub struct mw_far_t {
    far: Far,
    /// Pieces by address.
    pieces: Mutex<BTreeMap<usize, FarSlice>>,
}

impl mw_far_t {
    fn pieces(&self) -> MutexGuard<'_, BTreeMap<usize, FarSlice>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a piece of memory until it is freed; returns its address.
    fn keep(&self, mut piece: FarSlice) -> *mut c_void {
        let memory = piece.as_mut_ptr();
        self.pieces().insert(memory.addr(), piece);
        memory.cast()
    }
}

/// Options of far memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mw_far_options_t {
    /// `sizeof(mw_far_options_t)`; set it before the call.
    pub size: usize,
    /// Most bytes in RAM: at least 65,536. A partial page does not count.
    pub local_bytes: u64,
    /// Folder of the file that holds the rest; `NULL` for `/var/tmp`.
    pub disk: *const c_char,
}

// SAFETY: `repr(C)`, words only, so without padding; the size comes first; numbers, and a pointer that may be null.
unsafe impl Growing for mw_far_options_t {
    const NAME: &'static str = "mw_far_options_t";
    const FIRST: usize = 3 * 8;
}

/// Counters of far memory since it was opened. Pages have 4096 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct mw_far_stats_t {
    /// `sizeof(mw_far_stats_t)`; set it before the call.
    pub size: usize,
    /// Most pages in RAM.
    pub limit_pages: u64,
    /// Pages in RAM now.
    pub resident_pages: u64,
    /// Pages now in memory of other hosts; always 0 so far.
    pub remote_pages: u64,
    /// Pages now on the disk only.
    pub disk_pages: u64,
    /// Page faults on pages never touched.
    pub new_faults: u64,
    /// Page faults on pages that were still in RAM.
    pub hit_faults: u64,
    /// Page faults that read the disk or a mapped file.
    pub fetch_faults: u64,
    /// Pages read from the disk.
    pub fetched_pages: u64,
    /// Pages written to the disk.
    pub stored_pages: u64,
    /// Pages read from mapped files.
    pub file_pages: u64,
    /// Pages read before they were touched.
    pub ahead_pages: u64,
    /// Of those, pages that were then used, as far as faults show.
    pub ahead_hits: u64,
    /// Median latency of page faults, in nanoseconds.
    pub fault_p50_ns: u64,
    /// 99th percentile of that latency, in nanoseconds.
    pub fault_p99_ns: u64,
    /// 99.9th percentile, in nanoseconds.
    pub fault_p999_ns: u64,
    /// Maximum, in nanoseconds.
    pub fault_max_ns: u64,
    /// Pages that were lost.
    pub lost_pages: u64,
}

// SAFETY: `repr(C)`, words only, so without padding; the size comes first; numbers.
unsafe impl Growing for mw_far_stats_t {
    const NAME: &'static str = "mw_far_stats_t";
    const FIRST: usize = 18 * 8;
}

/// Opens far memory. It needs userfaultfd (see `mapwire doctor`), and no job.
///
/// Close it with `mw_far_close`.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: too few bytes in RAM. `MW_ERR_LIMIT`: more than the address space has. `MW_ERR_SYSTEM`: no file can be made in the
/// folder, or userfaultfd is refused (the message says how to fix it).
///
/// # Safety
/// `options` points to as many bytes as its `size` says, and `disk` to text with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_far_open(
    options: *const mw_far_options_t,
    far: Option<&mut MaybeUninit<*mut mw_far_t>>,
) -> mw_status_t {
    make(far, "far", || {
        // SAFETY: by the caller's promise.
        let options = unsafe { growing::read(options) }?;
        let mut builder = Far::builder().local(options.local_bytes);
        if !options.disk.is_null() {
            // SAFETY: by the caller's promise.
            let folder = unsafe { core::ffi::CStr::from_ptr(options.disk) };
            builder = builder.disk(std::ffi::OsStr::from_bytes(folder.to_bytes()));
        }
        Ok(mw_far_t { far: builder.open()?, pieces: Mutex::default() })
    })
}

/// Frees all of the memory, and `far`. `NULL` is no error.
///
/// # Safety
/// No other thread is in a call with `far`, and nobody uses it or the memory afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_far_close(far: Option<Box<mw_far_t>>) -> mw_status_t {
    free(far)
}

/// Allocates `length` bytes, zeroed, on a page boundary. It takes whole pages of 4096 bytes; untouched ones use no RAM or disk. At most
/// 1024 pieces exist at a time.
///
/// Free `*memory` with `mw_far_free`.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: 0 bytes. `MW_ERR_LIMIT`: more than the address space has, or too many pieces.
#[unsafe(no_mangle)]
pub extern "C" fn mw_far_alloc(
    far: Option<&mw_far_t>,
    length: usize,
    memory: Option<&mut MaybeUninit<*mut c_void>>,
) -> mw_status_t {
    call(|| {
        let place = new_object(memory, "memory")?;
        let far = required(far, "far")?;
        *place = far.keep(far.far.alloc(length)?);
        Ok(())
    })
}

/// Maps `length` bytes of a file from byte `offset` on, a multiple of 4096. Pages are read when they are touched. Stores change only the
/// memory, never the file. Unchanged pages are never written to the disk: they are read again.
///
/// A page that the program has seen keeps its bytes even if the file changes meanwhile: if they are gone, access raises SIGBUS. `fd` may
/// be closed. As usual, this process's fcntl(2) locks on the file end when the memory is freed.
///
/// Free `*memory` with `mw_far_free`.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: 0 bytes, not a regular file, or not open for reading. `MW_ERR_RANGE`: bytes behind the end of the file.
/// `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 4096. `MW_ERR_LIMIT`: no address space or descriptor, or too many pieces.
/// `MW_ERR_SYSTEM`: `fd` is not open.
#[unsafe(no_mangle)]
pub extern "C" fn mw_far_map(
    far: Option<&mw_far_t>,
    fd: c_int,
    offset: u64,
    length: usize,
    memory: Option<&mut MaybeUninit<*mut c_void>>,
) -> mw_status_t {
    call(|| {
        let place = new_object(memory, "memory")?;
        let far = required(far, "far")?;
        if fd < 0 {
            return Err(Failure::argument(format!("{fd} is not the descriptor of a file")));
        }
        // SAFETY: used only within the call. If the descriptor is not open, the kernel says so.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        *place = far.keep(far.far.map_part(file, offset, length)?);
        Ok(())
    })
}

/// Frees memory of `mw_far_alloc` or `mw_far_map`. `NULL` is no error.
///
/// # Errors
/// `MW_ERR_ADDRESS`: no memory of `far` begins there.
///
/// # Safety
/// Nobody uses the memory afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_far_free(far: Option<&mw_far_t>, memory: *mut c_void) -> mw_status_t {
    call(|| {
        let far = required(far, "far")?;
        if memory.is_null() {
            return Ok(());
        }
        // Dropped without the lock: that takes a while.
        let piece = far.pieces().remove(&memory.addr());
        piece.map(drop).ok_or_else(|| Failure {
            status: mw_status_t::MW_ERR_ADDRESS,
            message: format!(
                "no far memory begins at {memory:p}: give the address that mw_far_alloc or mw_far_map gave, once"
            ),
        })
    })
}

/// Returns the counters so far in `*stats`, whose `size` must be set.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: the size is not valid.
///
/// # Safety
/// `stats` points to as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_far_stats(far: Option<&mw_far_t>, stats: *mut mw_far_stats_t) -> mw_status_t {
    call(|| {
        let it = required(far, "far")?.far.statistics();
        let ns = |share| it.fault_latency_at(share).as_nanos() as u64;
        let counted = mw_far_stats_t {
            size: 0,
            limit_pages: it.limit_pages as u64,
            resident_pages: it.resident_pages as u64,
            remote_pages: it.remote_pages as u64,
            disk_pages: it.disk_pages() as u64,
            new_faults: it.zero_faults,
            hit_faults: it.minor_faults,
            fetch_faults: it.major_faults,
            fetched_pages: it.fetched_pages,
            stored_pages: it.written_pages,
            file_pages: it.file_pages,
            ahead_pages: it.ahead_pages,
            ahead_hits: it.ahead_hits,
            fault_p50_ns: ns(0.5),
            fault_p99_ns: ns(0.99),
            fault_p999_ns: ns(0.999),
            fault_max_ns: it.fault_latency.max().as_nanos() as u64,
            lost_pages: it.lost_pages,
        };
        // SAFETY: by the caller's promise.
        unsafe { growing::write(stats, &counted) }
    })
}
