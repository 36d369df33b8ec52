//! Creation of clients: the functions of libtirpc that name a network, with `mapwire` as one more.

use core::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use mapwire::meeting::trusted_users;

use crate::abi::{Client, NetConfig, Status, TimeVal};
use crate::client;
use crate::failure::Failure;
use crate::names::{Served, Whereabouts, locate};
use crate::rpcbind::{self, NETWORK};
use crate::settings::{MEETING, Use, usage};
use crate::tirpc::{Tirpc, tirpc};

/// The library that makes a client.
pub(crate) enum Maker {
    Mapwire,
    /// Mapwire if it can, else libtirpc.
    Either,
    Tirpc,
}

/// The library for the network that a program has named.
pub(crate) unsafe fn maker(network: *const c_char) -> Maker {
    // SAFETY: null, or a string that ends with zero.
    if !network.is_null() && unsafe { CStr::from_ptr(network) } == NETWORK {
        return Maker::Mapwire;
    }
    match usage() {
        Use::Prefer => Maker::Either,
        Use::Offer | Use::Asked => Maker::Tirpc,
    }
}

/// A client of a server, on this host or another one.
unsafe fn meet(host: *const c_char, served: Served, wait: Duration) -> Result<*mut Client, Failure> {
    let host = if host.is_null() {
        ""
    } else {
        // SAFETY: a string that ends with zero.
        unsafe { CStr::from_ptr(host) }.to_str().unwrap_or("\0")
    };
    match locate(host) {
        Whereabouts::Here => {}
        Whereabouts::Elsewhere => return client::open_far(served, host, wait),
        // The store may know a host by its name.
        Whereabouts::Unknown => {
            return client::open_far(served, host, wait).map_err(|_| Failure::of(Status::UNKNOWN_HOST, 0));
        }
    }
    let mut users = trusted_users();
    match client::open(served, &users, wait) {
        Err(failure) if failure.is_nobody() => {
            // Servers of other users are found only through rpcbind.
            users = rpcbind::users_of(served);
            match users.is_empty() {
                true => Err(failure),
                false => client::open(served, &users, wait),
            }
        }
        outcome => outcome,
    }
}

/// Records for the program why it has no client.
fn fail(failure: &Failure) -> *mut Client {
    if let Some(library) = tirpc() {
        // SAFETY: libtirpc's own record of this thread.
        unsafe {
            let error = (library.__rpc_createerr)();
            (*error).status = failure.status();
            (*error).error = failure.error();
        }
    }
    core::ptr::null_mut()
}

/// Makes a client by mapwire, or by `otherwise` through libtirpc.
unsafe fn create(
    host: *const c_char,
    served: Served,
    network: *const c_char,
    wait: Duration,
    otherwise: impl FnOnce(&Tirpc) -> *mut Client,
) -> *mut Client {
    let by_tirpc = || tirpc().map_or(core::ptr::null_mut(), otherwise);
    // SAFETY: by the contract of the C functions, these are strings that end with zero.
    match unsafe { maker(network) } {
        Maker::Tirpc => by_tirpc(),
        // SAFETY: the same.
        Maker::Mapwire => match unsafe { meet(host, served, wait) } {
            Ok(client) => client,
            Err(failure) => fail(&failure),
        },
        // SAFETY: the same.
        Maker::Either => match unsafe { meet(host, served, wait) } {
            Ok(client) => client,
            Err(_) => by_tirpc(),
        },
    }
}

unsafe fn patience(timeout: *const TimeVal) -> Duration {
    // SAFETY: null, or a time.
    let given = unsafe { timeout.as_ref() };
    given.map_or(MEETING, |given| given.as_duration())
}

/// Name of the network in an entry of `/etc/netconfig`.
unsafe fn network_of(config: *const NetConfig) -> *const c_char {
    // SAFETY: null, or the structure.
    unsafe { config.as_ref() }.map_or(core::ptr::null(), |config| config.netid)
}

/// Makes a client of a program; see `rpc_clnt_create(3)`. `network` may be `mapwire`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clnt_create(
    host: *const c_char,
    program: u32,
    version: u32,
    network: *const c_char,
) -> *mut c_void {
    let served = Served { program, version };
    // SAFETY: the caller's arguments, as in C.
    unsafe { create(host, served, network, MEETING, |library| (library.clnt_create)(host, program, version, network)) }
        .cast()
}

/// As [`clnt_create`], with a timeout.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clnt_create_timed(
    host: *const c_char,
    program: u32,
    version: u32,
    network: *const c_char,
    timeout: *const c_void,
) -> *mut c_void {
    let (served, timeout) = (Served { program, version }, timeout.cast());
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        create(host, served, network, patience(timeout), |library| {
            (library.clnt_create_timed)(host, program, version, network, timeout)
        })
    }
    .cast()
}

/// As [`clnt_create`], with a network from `/etc/netconfig`, or one whose name is `mapwire`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clnt_tp_create(
    host: *const c_char,
    program: u32,
    version: u32,
    network: *const c_void,
) -> *mut c_void {
    let (served, network) = (Served { program, version }, network.cast());
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        create(host, served, network_of(network), MEETING, |library| {
            (library.clnt_tp_create)(host, program, version, network)
        })
    }
    .cast()
}

/// As [`clnt_tp_create`], with a timeout.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clnt_tp_create_timed(
    host: *const c_char,
    program: u32,
    version: u32,
    network: *const c_void,
    timeout: *const c_void,
) -> *mut c_void {
    let (served, network, timeout) = (Served { program, version }, network.cast(), timeout.cast());
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        create(host, served, network_of(network), patience(timeout), |library| {
            (library.clnt_tp_create_timed)(host, program, version, network, timeout)
        })
    }
    .cast()
}

/// Makes a client of the highest version, from `low` to `high`, that the server has.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clnt_create_vers(
    host: *const c_char,
    program: u32,
    version: *mut u32,
    low: u32,
    high: u32,
    network: *const c_char,
) -> *mut c_void {
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        let made = highest(host, program, version, (low, high), network, MEETING);
        match (made, tirpc()) {
            (Some(client), _) => client,
            (None, Some(library)) => (library.clnt_create_vers)(host, program, version, low, high, network),
            (None, None) => core::ptr::null_mut(),
        }
    }
    .cast()
}

/// As [`clnt_create_vers`], with a timeout.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clnt_create_vers_timed(
    host: *const c_char,
    program: u32,
    version: *mut u32,
    low: u32,
    high: u32,
    network: *const c_char,
    timeout: *const c_void,
) -> *mut c_void {
    let timeout: *const TimeVal = timeout.cast();
    // SAFETY: the caller's arguments, as in C.
    unsafe {
        let wait = patience(timeout);
        let made = highest(host, program, version, (low, high), network, wait);
        match (made, tirpc()) {
            (Some(client), _) => client,
            (None, Some(library)) => {
                (library.clnt_create_vers_timed)(host, program, version, low, high, network, timeout)
            }
            (None, None) => core::ptr::null_mut(),
        }
    }
    .cast()
}

/// The client, or null with the reason recorded; `None` if libtirpc is to make it.
unsafe fn highest(
    host: *const c_char,
    program: u32,
    version: *mut u32,
    (low, high): (u32, u32),
    network: *const c_char,
    wait: Duration,
) -> Option<*mut Client> {
    // SAFETY: the caller's arguments, as in C.
    let may_fail = match unsafe { maker(network) } {
        Maker::Tirpc => return None,
        Maker::Mapwire => true,
        Maker::Either => false,
    };
    let served = |version| Served { program, version };
    // SAFETY: the same.
    let made = unsafe { meet(host, served(high), wait) };
    let made = made.and_then(|client| {
        // SAFETY: a client that was just made, and is destroyed if there is no version.
        unsafe { client::settle_version(client, low, high, wait).inspect_err(|_| client::destroy(client)) }
            .map(|found| (client, found))
    });
    match made {
        Ok((client, found)) => {
            // SAFETY: the program's destination for the version.
            unsafe { *version = found };
            Some(client)
        }
        Err(failure) if may_fail => Some(fail(&failure)),
        Err(_) => None,
    }
}
