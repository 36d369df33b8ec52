//! Servers made by `rpc_reg()`: functions from a value to a value, with a dispatch function of libtirpc.
//!
//! That function also selects by network, among those that `rpc_reg()` was asked to serve, and leaves calls by others unanswered. So calls
//! of this network are dispatched here, by a separate table; others are left to it.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{Bool, Dispatch, FALSE, Procedure, ServiceRequest, Transport, Xdr, XdrProc};
use crate::names::Served;
use crate::tirpc::{Tirpc, tirpc};
use crate::transport::{is_mapwire, is_ours, serve};

/// Room for arguments: more than libtirpc has (9,000 bytes by tcp). A decoder allocates longer ones.
const ARGUMENTS_BYTES: usize = 64 << 10;
/// Has the greatest alignment of any value.
type Unit = u128;

/// A function with its argument and result types.
#[derive(Clone, Copy)]
struct Simple {
    served: Served,
    procedure: u32,
    function: Procedure,
    decode: XdrProc,
    encode: XdrProc,
}

/// All functions, and the dispatch function of libtirpc for them.
struct Table {
    functions: Vec<Simple>,
    theirs: Dispatch,
}

static TABLE: Mutex<Table> = Mutex::new(Table { functions: Vec::new(), theirs: None });

thread_local! {
    /// Whether this thread is in `rpc_reg()`.
    static IS_REGISTERING: Cell<bool> = const { Cell::new(false) };
}

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replacement of `dispatch`: the function here, in place of the one that `rpc_reg()` registers.
pub(crate) fn dispatch_instead_of(theirs: Dispatch) -> Dispatch {
    if !IS_REGISTERING.get() {
        return theirs;
    }
    table().theirs = theirs;
    Some(dispatch)
}

c_functions! {
    /// Serves a function by all transports of a network; see `rpc_svc_calls(3)`. `network` may be `mapwire`.
    fn rpc_reg(
        program: u32, version: u32, procedure: u32, function: *const c_void, decode: *const c_void,
        encode: *const c_void, network: *mut c_char,
    ) -> c_int {
        // Null is `None`; others are functions of these types.
        let function = core::mem::transmute::<*const c_void, Option<Procedure>>(function);
        let decode = core::mem::transmute::<*const c_void, XdrProc>(decode);
        let encode = core::mem::transmute::<*const c_void, XdrProc>(encode);
        let served = Served { program, version };
        let Some(library) = tirpc() else {
            return -1;
        };
        // Its calls may arrive as soon as it is registered. Of several the last one counts.
        let function_here = function.filter(|_| procedure != 0);
        let simple = function_here.map(|function| Simple { served, procedure, function, decode, encode });
        table().functions.extend(simple);
        let outcome = if is_mapwire(network) {
            match simple.map(|_| serve(Some(dispatch), served)) {
                Some(transport) if !transport.is_null() => 0,
                _ => -1,
            }
        } else {
            let before = IS_REGISTERING.replace(true);
            let outcome = (library.rpc_reg)(program, version, procedure, function, decode, encode, network);
            IS_REGISTERING.set(before);
            outcome
        };
        if outcome != 0 && simple.is_some() {
            let is_it = |one: &Simple| (one.served, one.procedure) == (served, procedure);
            let functions = &mut table().functions;
            if let Some(at) = functions.iter().rposition(is_it) {
                functions.remove(at);
            }
        }
        outcome
    }
}

unsafe extern "C" fn dispatch(request: *mut c_void, transport: *mut Transport) {
    if !is_ours(transport) {
        let theirs = table().theirs;
        if let Some(theirs) = theirs {
            // SAFETY: libtirpc's own function, with what libtirpc gives.
            unsafe { theirs(request, transport) };
        }
        return;
    }
    let Some(library) = tirpc() else {
        return;
    };
    // SAFETY: libtirpc's request, and a transport that is registered with it.
    unsafe { answer(library, &*request.cast::<ServiceRequest>(), transport) };
}

/// # Safety
/// A transport of this network with a call in hand.
unsafe fn answer(library: &Tirpc, request: &ServiceRequest, transport: *mut Transport) {
    let served = Served { program: request.program, version: request.version };
    // SAFETY: a function that looks at no argument.
    let nothing: XdrProc = Some(unsafe {
        core::mem::transmute::<unsafe extern "C" fn() -> Bool, unsafe extern "C" fn(*mut Xdr, ...) -> Bool>(
            library.xdr_void,
        )
    });
    if request.procedure == 0 {
        // SAFETY: by this function's own contract.
        unsafe { (library.svc_sendreply)(transport, nothing, core::ptr::null_mut()) };
        return;
    }
    let is_it = |one: &&Simple| (one.served, one.procedure) == (served, request.procedure);
    let found = table().functions.iter().rev().find(is_it).copied();
    let Some(found) = found else {
        // SAFETY: by this function's own contract.
        return unsafe { (library.svcerr_noproc)(transport) };
    };
    let mut room = vec![Unit::default(); ARGUMENTS_BYTES / size_of::<Unit>()];
    let place: *mut c_void = room.as_mut_ptr().cast();
    // SAFETY: by this function's own contract; the program's functions fit each other, and their values the room that libtirpc has for
    // them, which is less.
    unsafe {
        let ops = &*(*transport).ops;
        if (ops.arguments)(transport, found.decode, place) == FALSE {
            return (library.svcerr_decode)(transport);
        }
        let results = (found.function)(place.cast());
        let has_results = !results.is_null() || found.encode.map(|it| it as usize) == nothing.map(|it| it as usize);
        // Without results there is no answer, as on other networks.
        if has_results && (library.svc_sendreply)(transport, found.encode, results.cast()) == FALSE {
            (library.svcerr_systemerr)(transport);
        }
        (ops.free_arguments)(transport, found.decode, place);
    }
}
