//! Creation and registration of servers: the functions of libtirpc, which also offer what they register to clients of this network.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::net::UnixStream;
use std::sync::Once;

use crate::abi::{Bool, Dispatch, FALSE, NetConfig, TRUE, Transport, ULong};
use crate::names::Served;
use crate::rpcbind::NETWORK;
use crate::settings::{Use, usage};
use crate::simple;
use crate::tirpc::tirpc;
use crate::transport::{is_ours, offer, withdraw};

pub(crate) fn dispatch_of(function: *const c_void) -> Dispatch {
    // SAFETY: null is `None`; others are dispatch functions, as in C.
    unsafe { core::mem::transmute::<*const c_void, Dispatch>(function) }
}

pub(crate) unsafe fn is_mapwire(network: *const c_char) -> bool {
    // SAFETY: null, or a string that ends with zero.
    !network.is_null() && unsafe { CStr::from_ptr(network) } == NETWORK
}

/// Offers `served` here, and has libtirpc dispatch its calls.
pub(crate) fn serve(dispatch: Dispatch, served: Served) -> *mut Transport {
    let Some(library) = tirpc() else {
        return core::ptr::null_mut();
    };
    let transport = match offer(served) {
        Ok(transport) => transport,
        Err(error) => {
            crate::log::warn(&error.to_string());
            return core::ptr::null_mut();
        }
    };
    // SAFETY: this network's handle, and the program's function; without a network rpcbind is not asked.
    let is_listed =
        unsafe { (library.svc_reg)(transport, served.program, served.version, dispatch, core::ptr::null()) };
    match is_listed {
        FALSE => core::ptr::null_mut(),
        _ => transport,
    }
}

/// Whether rpcbind runs, without which servers of other networks cannot be found.
fn has_rpcbind() -> bool {
    UnixStream::connect("/run/rpcbind.sock").is_ok()
}

/// Also offers here what is registered for another network, unless the user has disabled that.
fn offer_too(served: Served) -> bool {
    if usage() == Use::Asked {
        return false;
    }
    match offer(served) {
        Ok(_) => true,
        Err(error) => {
            crate::log::warn(&format!("clients of mapwire are not served: {error}"));
            false
        }
    }
}

/// Result of a registration with another network, which may have failed for lack of rpcbind.
fn outcome(is_done: Bool, served: Served, list_only: impl FnOnce() -> Bool) -> Bool {
    let is_offered = offer_too(served);
    if is_done != FALSE || !is_offered || has_rpcbind() {
        return is_done;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        crate::log::warn(
            "rpcbind does not run: this server serves clients of mapwire, and others only if they know its ports",
        );
    });
    list_only()
}

/// Serves a program by all transports of a network; see `rpc_svc_create(3)`. `network` may be `mapwire`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn svc_create(
    dispatch: *const c_void,
    program: u32,
    version: u32,
    network: *const c_char,
) -> c_int {
    let (dispatch, served) = (dispatch_of(dispatch), Served { program, version });
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        if is_mapwire(network) {
            return c_int::from(!serve(dispatch, served).is_null());
        }
        let Some(library) = tirpc() else {
            return 0;
        };
        let made = (library.svc_create)(dispatch, program, version, network);
        if made > 0 {
            offer_too(served);
            return made;
        }
        outcome(FALSE, served, || c_int::from(!serve(dispatch, served).is_null()))
    }
}

/// Serves a program by one transport; that of this network has the name `mapwire`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn svc_tp_create(
    dispatch: *const c_void,
    program: u32,
    version: u32,
    network: *const c_void,
) -> *mut c_void {
    let (dispatch, network) = (dispatch_of(dispatch), network.cast::<NetConfig>());
    let served = Served { program, version };
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        let name = network.as_ref().map_or(core::ptr::null(), |it| it.netid);
        if is_mapwire(name) {
            return serve(dispatch, served).cast();
        }
        let Some(library) = tirpc() else {
            return core::ptr::null_mut();
        };
        (library.svc_tp_create)(dispatch, program, version, network).cast()
    }
}

/// Has calls of a program dispatched, and registers it with rpcbind if a network is given.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn svc_reg(
    transport: *mut c_void,
    program: u32,
    version: u32,
    dispatch: *const c_void,
    network: *const c_void,
) -> Bool {
    let (transport, network) = (transport.cast::<Transport>(), network.cast::<NetConfig>());
    let dispatch = simple::dispatch_instead_of(dispatch_of(dispatch));
    let served = Served { program, version };
    if is_ours(transport) {
        return Bool::from(!serve(dispatch, served).is_null());
    }
    let Some(library) = tirpc() else {
        return FALSE;
    };
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        let list = |network| (library.svc_reg)(transport, program, version, dispatch, network);
        let is_done = list(network);
        if network.is_null() {
            offer_too(served);
            return is_done;
        }
        outcome(is_done, served, || list(core::ptr::null()))
    }
}

/// As [`svc_reg`], for transports of the older calls.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn svc_register(
    transport: *mut c_void,
    program: ULong,
    version: ULong,
    dispatch: *const c_void,
    protocol: c_int,
) -> Bool {
    let (transport, dispatch) = (transport.cast::<Transport>(), dispatch_of(dispatch));
    let served = Served { program: program as u32, version: version as u32 };
    if is_ours(transport) {
        return Bool::from(!serve(dispatch, served).is_null());
    }
    let Some(library) = tirpc() else {
        return FALSE;
    };
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        let list = |protocol| (library.svc_register)(transport, program, version, dispatch, protocol);
        let is_done = list(protocol);
        if protocol == 0 {
            offer_too(served);
            return is_done;
        }
        outcome(is_done, served, || match list(0) {
            FALSE => FALSE,
            _ => TRUE,
        })
    }
}

/// Ends [`svc_reg`].
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn svc_unreg(program: u32, version: u32) {
    withdraw(Served { program, version });
    if let Some(library) = tirpc() {
        // SAFETY: the caller's arguments, as in C.
        unsafe { (library.svc_unreg)(program, version) };
    }
}

/// Ends [`svc_register`].
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn svc_unregister(program: ULong, version: ULong) {
    withdraw(Served { program: program as u32, version: version as u32 });
    if let Some(library) = tirpc() {
        // SAFETY: the caller's arguments, as in C.
        unsafe { (library.svc_unregister)(program, version) };
    }
}
