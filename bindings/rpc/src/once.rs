//! Calls without a handle of the program: to one server, and to all servers of a network.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::{Client, Status, TimeVal, XdrProc};
use crate::client;
use crate::create::{Maker, clnt_create, maker};
use crate::tirpc::{Tirpc, tirpc};

c_functions! {
    /// Makes a client, calls once, and destroys it.
    fn rpc_call(
        host: *const c_char, program: u32, version: u32, procedure: u32, encode: *const c_void,
        arguments: *const c_char, decode: *const c_void, results: *mut c_char, network: *const c_char,
    ) -> c_uint {
        let (encode, decode) = (procedure_of(encode), procedure_of(decode));
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

    /// Calls all servers of a network. Mapwire cannot: `RPC_NOBROADCAST`.
    fn rpc_broadcast(
        program: u32, version: u32, procedure: u32, encode: *const c_void, arguments: *mut c_char,
        decode: *const c_void, results: *mut c_char, each: *const c_void, network: *const c_char,
    ) -> c_uint {
        let (encode, decode) = (procedure_of(encode), procedure_of(decode));
        broadcast(network, |library| (library.rpc_broadcast)(
            program, version, procedure, encode, arguments, decode, results, each, network,
        ))
    }

    /// As [`rpc_broadcast`], with timeouts.
    fn rpc_broadcast_exp(
        program: u32, version: u32, procedure: u32, encode: *const c_void, arguments: *mut c_char,
        decode: *const c_void, results: *mut c_char, each: *const c_void, first: c_int, last: c_int,
        network: *const c_char,
    ) -> c_uint {
        let (encode, decode) = (procedure_of(encode), procedure_of(decode));
        broadcast(network, |library| (library.rpc_broadcast_exp)(
            program, version, procedure, encode, arguments, decode, results, each, first, last, network,
        ))
    }
}

fn procedure_of(function: *const c_void) -> XdrProc {
    // SAFETY: null is `None`; others are functions of this type, as in C.
    unsafe { core::mem::transmute::<*const c_void, XdrProc>(function) }
}

/// Has libtirpc call the servers of another network than this one.
unsafe fn broadcast(network: *const c_char, otherwise: impl FnOnce(&Tirpc) -> c_uint) -> c_uint {
    // SAFETY: null, or a string that ends with zero, as in C.
    match unsafe { maker(network) } {
        Maker::Mapwire => {
            crate::log::warn(
                "mapwire reaches one server at a time and has no broadcast: name a host in clnt_create(), or broadcast by udp",
            );
            Status::NO_BROADCAST.0
        }
        Maker::Tirpc | Maker::Either => tirpc().map_or(Status::SYSTEM_ERROR.0, otherwise),
    }
}
