//! Memory and text that C describes by address and length.

use core::ffi::{CStr, c_char, c_void};

use crate::arguments::null;
use crate::failure::Failure;
use crate::status::mw_status_t;

/// Most bytes of a memory block.
const LONGEST: usize = isize::MAX as usize;

/// `length` bytes to read from.
///
/// # Safety
/// `data` points to `length` readable bytes, for as long as `'a` lasts; or the call is refused here.
#[inline]
pub(crate) unsafe fn source<'a>(data: *const c_void, length: usize, name: &str) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    check(data.is_null(), length, name)?;
    // SAFETY: neither null nor longer than memory can be; the rest is the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts(data.cast(), length) })
}

/// `length` bytes to write to.
///
/// # Safety
/// `data` points to `length` writable bytes, which nobody else uses, for as long as `'a` lasts; or the call is refused here.
#[inline]
pub(crate) unsafe fn target<'a>(data: *mut c_void, length: usize, name: &str) -> Result<&'a mut [u8], Failure> {
    if length == 0 {
        return Ok(&mut []);
    }
    check(data.is_null(), length, name)?;
    // SAFETY: as in `source`, and nobody else uses it.
    Ok(unsafe { core::slice::from_raw_parts_mut(data.cast(), length) })
}

/// `count` values to read.
///
/// # Safety
/// `values` points to `count` readable values, for as long as `'a` lasts; or the call is refused here.
pub(crate) unsafe fn values<'a, T: Copy>(values: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check(values.is_null(), count.saturating_mul(size_of::<T>()), name)?;
    if !values.is_aligned() {
        return Err(Failure::argument(format!(
            "`{name}` is {values:p}, which is not aligned to {} bytes",
            align_of::<T>()
        )));
    }
    // SAFETY: neither null nor unaligned nor longer than memory can be; the rest is the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts(values, count) })
}

/// A C string.
///
/// # Safety
/// `text` is `NULL` or ends in a NUL, and stays as it is for as long as `'a` lasts.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: not null; that it has an end and stays is the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|error| {
        Failure::argument(format!("`{name}` is not UTF-8 from byte {} on: {bytes:?}", error.valid_up_to()))
    })
}

/// Refuses a null pointer to bytes, or an impossible length.
#[inline]
pub(crate) fn check(is_null: bool, length: usize, name: &str) -> Result<(), Failure> {
    if is_null {
        return Err(null(name));
    }
    if length > LONGEST {
        return Err(too_long(length, name));
    }
    Ok(())
}

#[cold]
fn too_long(length: usize, name: &str) -> Failure {
    Failure {
        status: mw_status_t::MW_ERR_RANGE,
        message: format!(
            "`{name}` of {length} bytes is longer than memory can be ({LONGEST}): is the length a negative number?"
        ),
    }
}

/// Refuses a range that is not within `end` bytes, before memory of that length is read.
#[inline]
pub(crate) fn check_range(offset: u64, length: usize, end: u64) -> Result<(), Failure> {
    match offset.checked_add(length as u64) {
        Some(last) if last <= end => Ok(()),
        _ => Err(mapwire::Error::OutOfRange { offset, length: length as u64, end, unit: "bytes" }.into()),
    }
}
