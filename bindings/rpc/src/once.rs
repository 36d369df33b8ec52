//! Calls without a handle of the program: to one server, and to all servers of a network.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::{Client, Status, TimeVal, XdrProc};
use crate::client;
use crate::create::{Maker, clnt_create, maker};
use crate::tirpc::tirpc;

/// Makes a client, calls once, and destroys it.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpc_call(
    host: *const c_char,
    program: u32,
    version: u32,
    procedure: u32,
    encode: *const c_void,
    arguments: *const c_char,
    decode: *const c_void,
    results: *mut c_char,
    network: *const c_char,
) -> c_uint {
    let (encode, decode) = (procedure_of(encode), procedure_of(decode));
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        match (maker(network), tirpc()) {
            (Maker::Mapwire, _) => {}
            (_, Some(library)) => {
                return (library.rpc_call)(
                    host, program, version, procedure, encode, arguments, decode, results, network,
                );
            }
            (_, None) => return Status::SYSTEM_ERROR.0,
        }
        let client: *mut Client = clnt_create(host, program, version, network).cast();
        if client.is_null() {
            return tirpc().map_or(Status::SYSTEM_ERROR.0, |library| (*(library.__rpc_createerr)()).status.0);
        }
        let arguments: *mut c_void = arguments.cast_mut().cast();
        let wait = TimeVal { seconds: 25, micros: 0 };
        let call = (*(*client).ops).call;
        let status = call(client, procedure, encode, arguments, decode, results.cast(), wait);
        client::destroy(client);
        status.0
    }
}

fn procedure_of(function: *const c_void) -> XdrProc {
    // SAFETY: null is `None`; others are functions of this type, as in C.
    unsafe { core::mem::transmute::<*const c_void, XdrProc>(function) }
}

const BROADCAST: &str =
    "mapwire reaches one server at a time and has no broadcast: name a host in clnt_create(), or broadcast by udp";

/// Calls all servers of a network. Mapwire cannot: `RPC_NOBROADCAST`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpc_broadcast(
    program: u32,
    version: u32,
    procedure: u32,
    encode: *const c_void,
    arguments: *mut c_char,
    decode: *const c_void,
    results: *mut c_char,
    each: *const c_void,
    network: *const c_char,
) -> c_uint {
    let (encode, decode) = (procedure_of(encode), procedure_of(decode));
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        match (maker(network), tirpc()) {
            (Maker::Tirpc | Maker::Either, Some(library)) => {
                (library.rpc_broadcast)(program, version, procedure, encode, arguments, decode, results, each, network)
            }
            (Maker::Mapwire, _) => {
                crate::log::warn(BROADCAST);
                Status::NO_BROADCAST.0
            }
            (_, None) => Status::SYSTEM_ERROR.0,
        }
    }
}

/// As [`rpc_broadcast`], with timeouts.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpc_broadcast_exp(
    program: u32,
    version: u32,
    procedure: u32,
    encode: *const c_void,
    arguments: *mut c_char,
    decode: *const c_void,
    results: *mut c_char,
    each: *const c_void,
    first: c_int,
    last: c_int,
    network: *const c_char,
) -> c_uint {
    let (encode, decode) = (procedure_of(encode), procedure_of(decode));
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        match (maker(network), tirpc()) {
            (Maker::Tirpc | Maker::Either, Some(library)) => (library.rpc_broadcast_exp)(
                program, version, procedure, encode, arguments, decode, results, each, first, last, network,
            ),
            (Maker::Mapwire, _) => {
                crate::log::warn(BROADCAST);
                Status::NO_BROADCAST.0
            }
            (_, None) => Status::SYSTEM_ERROR.0,
        }
    }
}
