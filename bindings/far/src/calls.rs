//! What all calls for memory need: their failures, and parts in whole pages.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use libc::MAP_FAILED;
use mapwire_host::page::PAGE_BYTES;

/// Fails with this error, as a call that gives an address.
pub(crate) fn refuse(code: c_int) -> *mut c_void {
    // SAFETY: the place is this thread's.
    unsafe { *libc::__errno_location() = code };
    MAP_FAILED
}

/// Fails with this error, as a call that gives a number.
pub(crate) fn fail(code: c_int) -> c_int {
    refuse(code);
    -1
}

/// The part, extended to the end of its last page.
pub(crate) fn whole(part: Range<usize>) -> Range<usize> {
    part.start..part.end.next_multiple_of(PAGE_BYTES)
}
