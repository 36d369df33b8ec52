//! Registration of servers with rpcbind, if it runs: `rpcinfo` shows them, and clients of other users find them.
//!
//! rpcbind accepts a server of any network. The universal address is the name of the door's socket. The library's own `rpcb_set` only
//! knows the networks of `/etc/netconfig`, so rpcbind is called here like any program.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;

use crate::abi::{Client, Status, TimeVal, Xdr, XdrProc};
use crate::names::Served;
use crate::tirpc::{Tirpc, tirpc};

/// The socket on which rpcbind listens for processes of its host.
const SOCKET: &[u8] = b"/run/rpcbind.sock\0";
const PROGRAM: u32 = 100_000;
const VERSION: u32 = 4;
const SET: u32 = 1;
const UNSET: u32 = 2;
const DUMP: u32 = 4;
/// Longest time of a call to rpcbind.
const TIMEOUT: TimeVal = TimeVal { seconds: 2, micros: 0 };
/// Most entries examined.
const MOST: usize = 10_000;

/// Name of the network.
pub(crate) const NETWORK: &CStr = c"mapwire";

/// `struct sockaddr_un`.
#[repr(C)]
struct Address {
    family: u16,
    path: [u8; 108],
}

/// `struct rpcb`.
#[repr(C)]
struct Entry {
    program: u32,
    version: u32,
    network: *const c_char,
    address: *const c_char,
    owner: *const c_char,
}

/// `struct rp__list`.
#[repr(C)]
struct List {
    entry: Entry,
    next: *mut List,
}

struct Binder {
    library: &'static Tirpc,
    client: *mut Client,
}

impl Binder {
    /// `None` if it does not run here.
    fn connect() -> Option<Self> {
        if !std::fs::exists("/run/rpcbind.sock").unwrap_or(false) {
            return None;
        }
        let library = tirpc()?;
        let mut address = Address { family: libc::AF_UNIX as u16, path: [0; 108] };
        address.path[..SOCKET.len()].copy_from_slice(SOCKET);
        let mut socket: c_int = -1;
        // SAFETY: an address of a Unix socket, and room for the socket's number.
        let client = unsafe {
            (library.clntunix_create)((&raw mut address).cast(), PROGRAM.into(), VERSION.into(), &raw mut socket, 0, 0)
        };
        (!client.is_null()).then_some(Self { library, client })
    }

    /// Whether the call succeeded.
    fn call(
        &self,
        procedure: u32,
        encode: XdrProc,
        arguments: *mut c_void,
        decode: XdrProc,
        results: *mut c_void,
    ) -> bool {
        // SAFETY: the client is open, and the functions fit what the pointers name, by what the callers here give.
        let status = unsafe {
            ((*(*self.client).ops).call)(self.client, procedure, encode, arguments, decode, results, TIMEOUT)
        };
        status == Status::SUCCESS
    }

    fn change(&self, procedure: u32, entry: &mut Entry) -> bool {
        let mut done = 0;
        let (entry, done_at) = ((&raw mut *entry).cast(), (&raw mut done).cast());
        let encode = variadic(self.library.xdr_rpcb);
        // SAFETY: a function that takes an XDR and a place is also called with these types by the code that passes it.
        let decode: XdrProc = Some(unsafe {
            core::mem::transmute::<
                unsafe extern "C" fn(*mut Xdr, *mut c_int) -> c_int,
                unsafe extern "C" fn(*mut Xdr, ...) -> c_int,
            >(self.library.xdr_bool)
        });
        self.call(procedure, encode, entry, decode, done_at) && done != 0
    }
}

impl Drop for Binder {
    fn drop(&mut self) {
        // SAFETY: the client is open, and nobody uses it after this.
        unsafe { ((*(*self.client).ops).destroy)(self.client) };
    }
}

fn variadic(function: unsafe extern "C" fn(*mut Xdr, *mut c_void) -> c_int) -> XdrProc {
    // SAFETY: a function that takes an XDR and a place is called so also by who says so at the call.
    Some(unsafe {
        core::mem::transmute::<
            unsafe extern "C" fn(*mut Xdr, *mut c_void) -> c_int,
            unsafe extern "C" fn(*mut Xdr, ...) -> c_int,
        >(function)
    })
}

fn entry(served: Served, address: &CStr) -> Entry {
    Entry {
        program: served.program,
        version: served.version,
        network: NETWORK.as_ptr(),
        address: address.as_ptr(),
        owner: c"".as_ptr(),
    }
}

/// Lists a server whose door has this socket. Returns whether rpcbind runs and accepted it.
pub(crate) fn register(served: Served, socket: &str) -> bool {
    let (Some(binder), Ok(address)) = (Binder::connect(), CString::new(socket)) else {
        return false;
    };
    let mut entry = entry(served, &address);
    // The entry of an earlier server of this user, which was killed, may remain.
    binder.change(UNSET, &mut entry);
    binder.change(SET, &mut entry)
}

/// Removes it from the list.
pub(crate) fn unregister(served: Served) {
    if let Some(binder) = Binder::connect() {
        binder.change(UNSET, &mut entry(served, c""));
    }
}

/// The users whose processes serve it, according to rpcbind.
pub(crate) fn users_of(served: Served) -> Vec<u32> {
    let Some(binder) = Binder::connect() else {
        return Vec::new();
    };
    let mut list: *mut List = core::ptr::null_mut();
    let decode = variadic(binder.library.xdr_rpcblist_ptr);
    // SAFETY: a function that encodes nothing looks at no argument.
    let nothing: XdrProc = Some(unsafe {
        core::mem::transmute::<unsafe extern "C" fn() -> c_int, unsafe extern "C" fn(*mut Xdr, ...) -> c_int>(
            binder.library.xdr_void,
        )
    });
    let place: *mut c_void = (&raw mut list).cast();
    let mut users = Vec::new();
    if binder.call(DUMP, nothing, core::ptr::null_mut(), decode, place) {
        let mut at = list;
        for _ in 0..MOST {
            // SAFETY: null, or an element that the decoder made.
            let Some(element) = (unsafe { at.as_ref() }) else {
                break;
            };
            if let (Some(network), Some(address)) = (text(element.entry.network), text(element.entry.address))
                && network == NETWORK
                && let Some(user) = address.to_str().ok().and_then(|it| served.user_at(it))
            {
                users.push(user);
            }
            at = element.next;
        }
    }
    // SAFETY: the list that the decoder has made, or none.
    unsafe { crate::xdr::free(decode, place) };
    users
}

/// A string made by a decoder.
fn text<'a>(string: *const c_char) -> Option<&'a CStr> {
    // SAFETY: null, or a string that ends with zero and stays until the list is freed.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) })
}
