//! Transfers of many parts in one call.

use core::ffi::c_void;
use std::io::{IoSlice, IoSliceMut};

use mapwire::{Import, Rows};

use crate::arguments::required;
use crate::failure::{Failure, call};
use crate::import::mw_import_t;
use crate::memory;
use crate::status::mw_status_t;

/// `struct iovec` of `sys/uio.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct iovec {
    iov_base: *mut c_void,
    iov_len: usize,
}

/// Refuses parts whose total exceeds the export, before their memory is read.
fn check_total(parts: &[iovec], offset: u64, import: &Import) -> Result<(), Failure> {
    let total = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.iov_len));
    memory::check_range(offset, total, import.len())
}

/// The bytes of `rows` in this process's memory, after checking that those in the export are within it.
fn local_bytes(rows: &Rows, offset: u64, import: &Import) -> Result<usize, Failure> {
    let remote = rows.remote_bytes().and_then(|bytes| usize::try_from(bytes).ok());
    memory::check_range(offset, remote.unwrap_or(usize::MAX), import.len())?;
    rows.local_bytes().ok_or_else(|| Failure {
        status: mw_status_t::MW_ERR_RANGE,
        message: format!(
            "{} rows of {} bytes every {} bytes are longer than memory can be",
            rows.count, rows.bytes, rows.local_stride
        ),
    })
}

/// Stores `count` parts of memory one behind the other from `offset` on, like as many calls of `mw_import_send`. All are checked before
/// any byte is stored. On the ring path they follow each other without a wait, and short ones travel together.
///
/// # Errors
/// As `mw_import_send`, for all parts together.
///
/// # Safety
/// `parts` points to `count` of them (it may be `NULL` if there are none), each with `iov_len` readable bytes at `iov_base`, which no
/// thread changes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_sendv(
    import: Option<&mw_import_t>,
    parts: *const iovec,
    count: usize,
    offset: u64,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        // SAFETY: the caller's promise.
        let parts = unsafe { memory::values(parts, count, "parts") }?;
        check_total(parts, offset, import)?;
        // SAFETY: as above.
        let source = |part: &iovec| unsafe { memory::source(part.iov_base, part.iov_len, "iov_base") };
        let slices: Result<Vec<_>, Failure> = parts.iter().map(source).collect();
        let slices: Vec<_> = slices?.into_iter().map(IoSlice::new).collect();
        Ok(import.send_vectored(&slices, offset)?)
    })
}

/// Copies the bytes from `offset` of the export on to `count` parts of memory, one after the other, until they are full.
///
/// # Errors
/// As `mw_import_fetch`, for all parts together. Some may be filled then.
///
/// # Safety
/// `parts` points to `count` of them (it may be `NULL` if there are none), each with `iov_len` writable bytes at `iov_base`, which no
/// thread uses during the call. No two of them overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_fetchv(
    import: Option<&mw_import_t>,
    offset: u64,
    parts: *const iovec,
    count: usize,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        // SAFETY: the caller's promise.
        let parts = unsafe { memory::values(parts, count, "parts") }?;
        check_total(parts, offset, import)?;
        // SAFETY: as above.
        let target = |part: &iovec| unsafe { memory::target(part.iov_base, part.iov_len, "iov_base") };
        let slices: Result<Vec<_>, Failure> = parts.iter().map(target).collect();
        let mut slices: Vec<_> = slices?.into_iter().map(IoSliceMut::new).collect();
        Ok(import.fetch_vectored(offset, &mut slices)?)
    })
}

/// Stores `rows` rows of `row_bytes` bytes. In `data` they begin every `local_stride` bytes, and may overlap; in the export they begin
/// every `remote_stride` bytes, the first at `offset`. All are checked before any byte is stored. On the ring path they follow each
/// other without a wait.
///
/// # Errors
/// As `mw_import_send`: if a row leaves the export nothing is stored. `MW_ERR_ARGUMENT`: `remote_stride` is less than `row_bytes`, so rows
/// would overlap.
///
/// # Safety
/// The bytes of `data` from the first row to the end of the last are readable, and no thread changes them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_send_strided(
    import: Option<&mw_import_t>,
    data: *const c_void,
    offset: u64,
    rows: usize,
    row_bytes: usize,
    local_stride: usize,
    remote_stride: u64,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        let rows = Rows { count: rows, bytes: row_bytes, local_stride, remote_stride };
        let length = local_bytes(&rows, offset, import)?;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::source(data, length, "data") }?;
        Ok(import.send_strided(data, offset, &rows)?)
    })
}

/// Copies `rows` rows of `row_bytes` bytes of the export, which begin every `remote_stride` bytes there, the first at `offset`, and may
/// overlap, to rows of `into`, which begin every `local_stride` bytes. The bytes of `into` between rows stay as they are.
///
/// # Errors
/// As `mw_import_fetch`: if a row leaves the export nothing is fetched. `MW_ERR_ARGUMENT`: `local_stride` is less than `row_bytes`, so
/// rows would overlap.
///
/// # Safety
/// The bytes of `into` from the first row to the end of the last are writable, and no thread uses them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_fetch_strided(
    import: Option<&mw_import_t>,
    offset: u64,
    into: *mut c_void,
    rows: usize,
    row_bytes: usize,
    local_stride: usize,
    remote_stride: u64,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        let rows = Rows { count: rows, bytes: row_bytes, local_stride, remote_stride };
        let length = local_bytes(&rows, offset, import)?;
        // SAFETY: the caller's promise.
        let into = unsafe { memory::target(into, length, "into") }?;
        Ok(import.fetch_strided(offset, into, &rows)?)
    })
}
