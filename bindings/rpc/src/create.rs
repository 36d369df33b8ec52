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

/// Makes a client by `meet`, or by `otherwise` through libtirpc.
fn make(
    maker: Maker,
    meet: impl FnOnce() -> Result<*mut Client, Failure>,
    otherwise: impl FnOnce(&Tirpc) -> *mut Client,
) -> *mut Client {
    let by_tirpc = || tirpc().map_or(core::ptr::null_mut(), otherwise);
    match maker {
        Maker::Tirpc => by_tirpc(),
        Maker::Mapwire => meet().unwrap_or_else(|failure| fail(&failure)),
        Maker::Either => meet().unwrap_or_else(|_| by_tirpc()),
    }
}

/// Makes a client of a server.
unsafe fn create(
    host: *const c_char,
    served: Served,
    network: *const c_char,
    wait: Duration,
    otherwise: impl FnOnce(&Tirpc) -> *mut Client,
) -> *mut Client {
    // SAFETY: by the contract of the C functions, these are strings that end with zero.
    make(unsafe { maker(network) }, || unsafe { meet(host, served, wait) }, otherwise)
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

c_functions! {
    /// Makes a client of a program; see `rpc_clnt_create(3)`. `network` may be `mapwire`.
    fn clnt_create(host: *const c_char, program: u32, version: u32, network: *const c_char) -> *mut c_void {
        let served = Served { program, version };
        create(host, served, network, MEETING, |library| (library.clnt_create)(host, program, version, network)).cast()
    }

    /// As [`clnt_create`], with a timeout.
    fn clnt_create_timed(
        host: *const c_char, program: u32, version: u32, network: *const c_char, timeout: *const c_void,
    ) -> *mut c_void {
        let (served, timeout) = (Served { program, version }, timeout.cast());
        create(host, served, network, patience(timeout), |library| {
            (library.clnt_create_timed)(host, program, version, network, timeout)
        }).cast()
    }

    /// As [`clnt_create`], with a network from `/etc/netconfig`, or one whose name is `mapwire`.
    fn clnt_tp_create(host: *const c_char, program: u32, version: u32, network: *const c_void) -> *mut c_void {
        let (served, network) = (Served { program, version }, network.cast());
        create(host, served, network_of(network), MEETING, |library| {
            (library.clnt_tp_create)(host, program, version, network)
        }).cast()
    }

    /// As [`clnt_tp_create`], with a timeout.
    fn clnt_tp_create_timed(
        host: *const c_char, program: u32, version: u32, network: *const c_void, timeout: *const c_void,
    ) -> *mut c_void {
        let (served, network, timeout) = (Served { program, version }, network.cast(), timeout.cast());
        create(host, served, network_of(network), patience(timeout), |library| {
            (library.clnt_tp_create_timed)(host, program, version, network, timeout)
        }).cast()
    }

    /// Makes a client of the highest version, from `low` to `high`, that the server has.
    fn clnt_create_vers(
        host: *const c_char, program: u32, version: *mut u32, low: u32, high: u32, network: *const c_char,
    ) -> *mut c_void {
        highest(host, program, version, (low, high), network, MEETING, |library| {
            (library.clnt_create_vers)(host, program, version, low, high, network)
        }).cast()
    }

    /// As [`clnt_create_vers`], with a timeout.
    fn clnt_create_vers_timed(
        host: *const c_char, program: u32, version: *mut u32, low: u32, high: u32, network: *const c_char,
        timeout: *const c_void,
    ) -> *mut c_void {
        let timeout = timeout.cast();
        highest(host, program, version, (low, high), network, patience(timeout), |library| {
            (library.clnt_create_vers_timed)(host, program, version, low, high, network, timeout)
        }).cast()
    }
}

/// Makes a client of the highest version in a range, and tells the program that version.
unsafe fn highest(
    host: *const c_char,
    program: u32,
    version: *mut u32,
    (low, high): (u32, u32),
    network: *const c_char,
    wait: Duration,
    otherwise: impl FnOnce(&Tirpc) -> *mut Client,
) -> *mut Client {
    let meet = || {
        // SAFETY: the caller's arguments, as in C.
        let client = unsafe { meet(host, Served { program, version: high }, wait) }?;
        // SAFETY: a client that was just made, and is destroyed if there is no version; the program's destination for it.
        unsafe {
            *version = client::settle_version(client, low, high, wait).inspect_err(|_| client::destroy(client))?;
        }
        Ok(client)
    };
    // SAFETY: the same.
    make(unsafe { maker(network) }, meet, otherwise)
}
