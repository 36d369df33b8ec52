//! Sends and fetches that continue while the program runs.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use mapwire::Request;

use crate::arguments::{flag, get, make, required};
use crate::failure::{Failure, call};
use crate::import::{mw_import_t, to_send};
use crate::memory;
use crate::status::mw_status_t;

/// A send or fetch under way. Its memory belongs to the library until `mw_request_wait`.
#[derive(Debug)]
pub struct mw_request_t {
    request: UnderWay,
}

#[derive(Debug)]
enum UnderWay {
    Send(Request<&'static [u8]>),
    Fetch(Request<&'static mut [u8]>),
}

impl mw_request_t {
    fn wait(self) -> Result<(), Failure> {
        match self.request {
            UnderWay::Send(request) => _ = request.wait()?,
            UnderWay::Fetch(request) => _ = request.wait()?,
        }
        Ok(())
    }
}

/// Begins to store `length` bytes at `offset`, and returns before they have left; on the ring path it waits only while 64 commands are
/// queued.
///
/// End it with `mw_request_wait`: until then the memory belongs to the library.
///
/// # Errors
/// As `mw_import_send`, and `MW_ERR_LIMIT`: 896 requests of this process are under way on the ring path. Nothing is begun then, and there
/// is nothing to wait for.
///
/// # Safety
/// `data` points to `length` readable bytes, which stay mapped and unchanged until `mw_request_wait` has returned, whatever its code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_send_async(
    import: Option<&mw_import_t>,
    data: *const c_void,
    length: usize,
    offset: u64,
    request: Option<&mut MaybeUninit<*mut mw_request_t>>,
) -> mw_status_t {
    make(request, "request", || {
        // SAFETY: the caller promises that the memory stays until it has waited, which is as long as the `Request` uses it: its
        // `wait` and its `drop` both wait first.
        let (import, data) = unsafe { to_send(import, data, length, offset) }?;
        Ok(mw_request_t { request: UnderWay::Send(import.send_async(data, offset)?) })
    })
}

/// Begins to store `length` bytes at `offset`, and then the 8 bytes of `value` at `signal_offset`, as `mw_import_put_signal` does.
/// End it with `mw_request_wait`.
///
/// # Errors
/// As `mw_import_put_signal` and `mw_import_send_async`.
///
/// # Safety
/// As `mw_import_send_async`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_put_signal_async(
    import: Option<&mw_import_t>,
    data: *const c_void,
    length: usize,
    offset: u64,
    signal_offset: u64,
    value: u64,
    request: Option<&mut MaybeUninit<*mut mw_request_t>>,
) -> mw_status_t {
    make(request, "request", || {
        // SAFETY: as in `mw_import_send_async`.
        let (import, data) = unsafe { to_send(import, data, length, offset) }?;
        Ok(mw_request_t { request: UnderWay::Send(import.put_signal_async(data, offset, signal_offset, value)?) })
    })
}

/// Begins to copy `length` bytes from `offset` of the export to `into`. They are in place when `mw_request_wait` has returned `MW_OK`.
///
/// # Errors
/// As `mw_import_fetch` and `mw_import_send_async`.
///
/// # Safety
/// `into` points to `length` writable bytes, which stay mapped and are used by nobody until `mw_request_wait` has returned, whatever
/// its code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_fetch_async(
    import: Option<&mw_import_t>,
    offset: u64,
    into: *mut c_void,
    length: usize,
    request: Option<&mut MaybeUninit<*mut mw_request_t>>,
) -> mw_status_t {
    make(request, "request", || {
        let import = &required(import, "import")?.import;
        memory::check_range(offset, length, import.len())?;
        // SAFETY: as in `mw_import_send_async`; nobody else uses the memory.
        let into: &'static mut [u8] = unsafe { memory::target(into, length, "into") }?;
        Ok(mw_request_t { request: UnderWay::Fetch(import.fetch_async(offset, into)?) })
    })
}

/// Returns whether `mw_request_wait` would return at once in `*done` (1 or 0). Serves what has arrived; never waits.
#[unsafe(no_mangle)]
pub extern "C" fn mw_request_is_done(
    request: Option<&mw_request_t>,
    done: Option<&mut MaybeUninit<i32>>,
) -> mw_status_t {
    get(done, "done", || {
        Ok(flag(match &required(request, "request")?.request {
            UnderWay::Send(request) => request.is_done(),
            UnderWay::Fetch(request) => request.is_done(),
        }))
    })
}

/// Waits until the memory of a request may be used again, and frees `request`, whatever the code. `NULL` is no error.
///
/// # Errors
/// As `mw_import_send` or `mw_import_fetch`: it failed after it had begun. Parts of it may have been stored, or be in the destination.
///
/// # Safety
/// No other thread is in a call with `request`, or uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_request_wait(request: Option<Box<mw_request_t>>) -> mw_status_t {
    call(|| request.map_or(Ok(()), |object| object.wait()))
}

/// As `mw_request_wait` for `count` requests, which become `NULL`; `NULL` ones are ignored. Waits for all of them, even if some fail.
///
/// # Errors
/// As `mw_request_wait`, for the first that failed.
///
/// # Safety
/// `requests` points to `count` writable requests, each `NULL` or distinct. No other thread is in a call with one of them, or uses it
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_request_wait_all(requests: *mut Option<Box<mw_request_t>>, count: usize) -> mw_status_t {
    call(|| {
        if count == 0 {
            return Ok(());
        }
        let bytes = count.saturating_mul(size_of::<*mut mw_request_t>());
        memory::check(requests.is_null(), bytes, "requests")?;
        let mut outcome = Ok(());
        for index in 0..count {
            // SAFETY: the caller promises `count` of them, each a request of this library or `NULL`.
            let request = unsafe { (*requests.add(index)).take() };
            let ended = request.map_or(Ok(()), |object| object.wait());
            outcome = outcome.and(ended);
        }
        outcome
    })
}
