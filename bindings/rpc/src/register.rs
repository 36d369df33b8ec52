//! Creation and registration of servers: the functions of libtirpc, which also offer what they register to clients of this network.

use core::ffi::{c_char, c_int, c_void};
use std::os::unix::net::UnixStream;
use std::sync::Once;

use crate::abi::{Bool, Dispatch, FALSE, NetConfig, Transport, ULong};
use crate::names::Served;
use crate::settings::{Use, usage};
use crate::simple;
use crate::tirpc::{Tirpc, tirpc};
use crate::transport::{is_mapwire, is_ours, offer, serve, withdraw};

pub(crate) fn dispatch_of(function: *const c_void) -> Dispatch {
    // SAFETY: null is `None`; others are dispatch functions, as in C.
    unsafe { core::mem::transmute::<*const c_void, Dispatch>(function) }
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

c_functions! {
    /// Serves a program by all transports of a network; see `rpc_svc_create(3)`. `network` may be `mapwire`.
    fn svc_create(dispatch: *const c_void, program: u32, version: u32, network: *const c_char) -> c_int {
        let (dispatch, served) = (dispatch_of(dispatch), Served { program, version });
        let serve_here = || c_int::from(!serve(dispatch, served).is_null());
        if is_mapwire(network) {
            return serve_here();
        }
        let Some(library) = tirpc() else {
            return 0;
        };
        let made = (library.svc_create)(dispatch, program, version, network);
        if made > 0 {
            offer_too(served);
            return made;
        }
        outcome(FALSE, served, serve_here)
    }

    /// Serves a program by one transport; that of this network has the name `mapwire`.
    fn svc_tp_create(dispatch: *const c_void, program: u32, version: u32, network: *const c_void) -> *mut c_void {
        let (dispatch, network) = (dispatch_of(dispatch), network.cast::<NetConfig>());
        if is_mapwire(network.as_ref().map_or(core::ptr::null(), |it| it.netid)) {
            return serve(dispatch, Served { program, version }).cast();
        }
        tirpc().map_or(core::ptr::null_mut(), |library| {
            (library.svc_tp_create)(dispatch, program, version, network).cast()
        })
    }

    /// Has calls of a program dispatched, and registers it with rpcbind if a network is given.
    fn svc_reg(
        transport: *mut c_void, program: u32, version: u32, dispatch: *const c_void, network: *const c_void,
    ) -> Bool {
        let transport = transport.cast::<Transport>();
        let dispatch = simple::dispatch_instead_of(dispatch_of(dispatch));
        register(transport, Served { program, version }, dispatch, network.cast(), core::ptr::null(), |library, network| {
            (library.svc_reg)(transport, program, version, dispatch, network)
        })
    }

    /// As [`svc_reg`], for transports of the older calls.
    fn svc_register(
        transport: *mut c_void, program: ULong, version: ULong, dispatch: *const c_void, protocol: c_int,
    ) -> Bool {
        let (transport, dispatch) = (transport.cast::<Transport>(), dispatch_of(dispatch));
        let served = Served { program: program as u32, version: version as u32 };
        register(transport, served, dispatch, protocol, 0, |library, protocol| {
            (library.svc_register)(transport, program, version, dispatch, protocol)
        })
    }

    /// Ends [`svc_reg`].
    fn svc_unreg(program: u32, version: u32) {
        withdraw(Served { program, version });
        if let Some(library) = tirpc() {
            (library.svc_unreg)(program, version);
        }
    }

    /// Ends [`svc_register`].
    fn svc_unregister(program: ULong, version: ULong) {
        withdraw(Served { program: program as u32, version: version as u32 });
        if let Some(library) = tirpc() {
            (library.svc_unregister)(program, version);
        }
    }
}

/// Serves a program here, or has libtirpc list it with a network; with `none`, rpcbind is not asked.
fn register<N: PartialEq>(
    transport: *mut Transport,
    served: Served,
    dispatch: Dispatch,
    network: N,
    none: N,
    list: impl Fn(&Tirpc, N) -> Bool,
) -> Bool {
    if is_ours(transport) {
        return Bool::from(!serve(dispatch, served).is_null());
    }
    let Some(library) = tirpc() else {
        return FALSE;
    };
    let is_listed_only = network == none;
    let is_done = list(library, network);
    if is_listed_only {
        offer_too(served);
        return is_done;
    }
    outcome(is_done, served, || list(library, none))
}
