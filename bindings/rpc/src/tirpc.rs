//! libtirpc: programs' requests for other transports, and the parts of it that this library uses.
//!
//! Its functions are looked up at run time, behind this library in the order of loading. So both can define the same names, and this
//! library needs no header and no library to be built.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::abi::{
    Auth, Bool, Client, CreateError, Dispatch, NetConfig, Procedure, TimeVal, Transport, ULong, Xdr, XdrProc,
};

/// The library to open if the program is not linked with it.
const LIBRARY: &CStr = c"libtirpc.so.3";

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        pub(crate) struct Tirpc {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Tirpc {
            fn find() -> Result<Self, &'static CStr> {
                Ok(Self {
                    $($name: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(
                            concat!(stringify!($name), "\0").as_bytes(),
                        ) {
                            Ok(name) => name,
                            Err(_) => c"",
                        };
                        let found = symbol(NAME).ok_or(NAME)?;
                        // SAFETY: libtirpc's function of this name has this signature, by its header.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    __rpc_createerr: fn() -> *mut CreateError;
    authnone_create: fn() -> *mut Auth;
    clnt_create: fn(*const c_char, u32, u32, *const c_char) -> *mut Client;
    clnt_create_timed: fn(*const c_char, u32, u32, *const c_char, *const TimeVal) -> *mut Client;
    clnt_create_vers: fn(*const c_char, u32, *mut u32, u32, u32, *const c_char) -> *mut Client;
    clnt_create_vers_timed: fn(*const c_char, u32, *mut u32, u32, u32, *const c_char, *const TimeVal) -> *mut Client;
    clnt_tp_create: fn(*const c_char, u32, u32, *const NetConfig) -> *mut Client;
    clnt_tp_create_timed: fn(*const c_char, u32, u32, *const NetConfig, *const TimeVal) -> *mut Client;
    clntunix_create: fn(*mut c_void, ULong, ULong, *mut c_int, c_uint, c_uint) -> *mut Client;
    rpc_call: fn(*const c_char, u32, u32, u32, XdrProc, *const c_char, XdrProc, *mut c_char, *const c_char) -> c_uint;
    rpc_reg: fn(u32, u32, u32, Option<Procedure>, XdrProc, XdrProc, *mut c_char) -> c_int;
    rpc_broadcast: fn(u32, u32, u32, XdrProc, *mut c_char, XdrProc, *mut c_char, *const c_void, *const c_char) -> c_uint;
    rpc_broadcast_exp: fn(u32, u32, u32, XdrProc, *mut c_char, XdrProc, *mut c_char, *const c_void, c_int, c_int, *const c_char) -> c_uint;
    svc_create: fn(Dispatch, u32, u32, *const c_char) -> c_int;
    svc_reg: fn(*mut Transport, u32, u32, Dispatch, *const NetConfig) -> Bool;
    svc_register: fn(*mut Transport, ULong, ULong, Dispatch, c_int) -> Bool;
    svc_sendreply: fn(*mut Transport, XdrProc, *mut c_void) -> Bool;
    svc_tp_create: fn(Dispatch, u32, u32, *const NetConfig) -> *mut Transport;
    svc_unreg: fn(u32, u32);
    svc_unregister: fn(ULong, ULong);
    svcerr_decode: fn(*mut Transport);
    svcerr_noproc: fn(*mut Transport);
    svcerr_systemerr: fn(*mut Transport);
    xdr_bool: fn(*mut Xdr, *mut Bool) -> Bool;
    xdr_rpcb: fn(*mut Xdr, *mut c_void) -> Bool;
    xdr_rpcblist_ptr: fn(*mut Xdr, *mut c_void) -> Bool;
    xdr_void: fn() -> Bool;
    xdrmem_create: fn(*mut Xdr, *mut c_char, c_uint, c_uint);
    xprt_register: fn(*mut Transport);
    xprt_unregister: fn(*mut Transport);
}

/// The address of a function of libtirpc.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends with zero.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return Some(next);
    }
    // SAFETY: the same. Once opened the library stays.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() {
        return None;
    }
    // SAFETY: a library that is open.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// libtirpc. `None` if it is missing or too old, which is reported once on standard error.
pub(crate) fn tirpc() -> Option<&'static Tirpc> {
    static FOUND: OnceLock<Option<Tirpc>> = OnceLock::new();
    let find = || match Tirpc::find() {
        Ok(found) => Some(found),
        Err(name) => {
            crate::log::warn(&format!(
                "libtirpc 1.3 or later is needed, and has no function {}: link the program with -lmapwire_rpc -ltirpc, in this order",
                name.to_string_lossy()
            ));
            None
        }
    };
    FOUND.get_or_init(find).as_ref()
}
