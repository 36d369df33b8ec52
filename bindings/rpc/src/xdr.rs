//! libtirpc's XDR over memory: values of C programs to and from records.

use core::ffi::{c_uint, c_void};

use crate::abi::{XDR_DECODE, XDR_ENCODE, XDR_FREE, Xdr, XdrProc};
use crate::tirpc::tirpc;

fn unused(op: c_uint) -> Xdr {
    Xdr {
        op,
        ops: core::ptr::null(),
        public: core::ptr::null_mut(),
        private: core::ptr::null_mut(),
        base: core::ptr::null_mut(),
        handy: 0,
    }
}

/// An XDR over `bytes` bytes at `at`; `None` without libtirpc or if they are too many for it.
fn over(at: *mut u8, bytes: usize, op: c_uint) -> Option<Xdr> {
    let library = tirpc()?;
    let bytes = c_uint::try_from(bytes).ok()?;
    let mut xdr = unused(op);
    // SAFETY: the function fills the structure and looks at no byte.
    unsafe { (library.xdrmem_create)(&raw mut xdr, at.cast(), bytes, op) };
    Some(xdr)
}

/// Encodes the value at `value` into `room` bytes at `at`. Returns the bytes used; `None` if it does not fit, or cannot be encoded.
///
/// # Safety
/// The memory is writable, by others too, and `encode` fits the value.
pub(crate) unsafe fn encode(encode: XdrProc, value: *mut c_void, at: *mut u8, room: usize) -> Option<usize> {
    let mut xdr = over(at, room, XDR_ENCODE)?;
    // SAFETY: by this function's own contract.
    let done = unsafe { encode?(&raw mut xdr, value) };
    if done == 0 {
        return None;
    }
    // SAFETY: libtirpc has filled the operations, and they stay.
    let position = unsafe { ((*xdr.ops).position)(&raw mut xdr) };
    (position as usize <= room).then_some(position as usize)
}

/// Decodes `bytes` bytes at `at` into `place`. Returns whether that succeeded; if not, [free](free) what was allocated on the way.
///
/// # Safety
/// The memory is readable, and others may change it meanwhile; `decode` fits the place. The decoders of libtirpc, and those that rpcgen
/// makes of them, load each word once, and only use what they have loaded.
pub(crate) unsafe fn decode(decode: XdrProc, place: *mut c_void, at: *const u8, bytes: usize) -> bool {
    let Some(mut xdr) = over(at.cast_mut(), bytes, XDR_DECODE) else {
        return false;
    };
    let Some(decode) = decode else {
        return false;
    };
    // SAFETY: by this function's own contract; an XDR that decodes stores nothing into its memory.
    unsafe { decode(&raw mut xdr, place) != 0 }
}

/// Frees what `decode` has allocated at `place`.
///
/// # Safety
/// `decode` fits what lies there.
pub(crate) unsafe fn free(decode: XdrProc, place: *mut c_void) -> bool {
    let mut xdr = unused(XDR_FREE);
    let Some(decode) = decode else {
        return false;
    };
    // SAFETY: by this function's own contract; with this operation only the operation is looked at.
    unsafe { decode(&raw mut xdr, place) != 0 }
}
