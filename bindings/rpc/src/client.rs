//! `CLIENT` handles whose calls go by mapwire.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mapwire::rpc::{AuthSys, Caller, Credential, Record};
use mapwire_host::processes::Owner;

use crate::abi::{
    AUTH_NONE, AUTH_SYS, Auth, Bool, Client, ClientOps, FALSE, NetBuf, RpcError, Status, TRUE, TimeVal, XdrProc,
};
use crate::failure::Failure;
use crate::forks::owner;
use crate::names::Served;
use crate::rpcbind::NETWORK;
use crate::session::Session;
use crate::tirpc::tirpc;
use crate::xdr;

/// Longest body of a credential (RFC 5531).
const MAX_AUTH_BYTES: usize = 400;
const MICROS: i64 = 1_000_000;

static OPS: ClientOps = ClientOps { call, abort, error, free_results, destroy: destroy_client, control };

/// ClientState behind a handle. One call at a time, as in libtirpc.
struct Handle {
    state: Mutex<ClientState>,
    /// Answer for programs that ask for the server's address: this host's, without a port.
    address: libc::sockaddr_in,
}

struct ClientState {
    session: Arc<Session>,
    caller: Caller,
    served: Served,
    /// Flavour and body from which the caller's credential was made.
    credential: (c_int, Vec<u8>),
    /// Timeout of all calls, overriding that of each call.
    timeout: Option<TimeVal>,
    /// Retry time that programs set for UDP; unused here.
    retry: TimeVal,
    error: RpcError,
    /// Number of this handle's calls; programs can set it.
    xid: u32,
    /// A forked child must leave what its parent uses.
    owner: Owner,
}

impl TimeVal {
    pub(crate) fn as_duration(self) -> Duration {
        let micros = self.seconds.saturating_mul(MICROS).saturating_add(self.micros);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }

    fn is_legal(self) -> bool {
        (0..=100_000_000).contains(&self.seconds) && (0..=MICROS).contains(&self.micros)
    }
}

/// Makes a client of a server on this host that one of these users runs.
pub(crate) fn open(served: Served, users: &[u32], wait: Duration) -> Result<*mut Client, Failure> {
    Ok(with(served, Session::open(served, users, wait)?))
}

/// Makes a client of a server on another host.
pub(crate) fn open_far(served: Served, host: &str, wait: Duration) -> Result<*mut Client, Failure> {
    Ok(with(served, Session::open_far(served, host, wait)?))
}

fn with(served: Served, (session, caller): (Arc<Session>, Caller)) -> *mut Client {
    let auth = match tirpc() {
        // SAFETY: libtirpc's function without arguments.
        Some(library) => unsafe { (library.authnone_create)() },
        None => core::ptr::null_mut(),
    };
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    let handle = Box::new(Handle {
        state: Mutex::new(ClientState {
            session,
            caller,
            served,
            credential: (AUTH_NONE, Vec::new()),
            timeout: None,
            retry: TimeVal::default(),
            error: Failure::of(Status::SUCCESS, 0).error(),
            xid: 0,
            owner: owner(),
        }),
        address,
    });
    Box::into_raw(Box::new(Client {
        auth,
        ops: &raw const OPS,
        private: Box::into_raw(handle).cast(),
        netid: network(),
        device: core::ptr::null_mut(),
    }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// A client from [`open`] that has not been destroyed.
unsafe fn handle<'a>(client: *mut Client) -> &'a Handle {
    // SAFETY: by this function's own contract.
    unsafe { &*(*client).private.cast::<Handle>() }
}

unsafe extern "C" fn call(
    client: *mut Client,
    procedure: u32,
    encode: XdrProc,
    arguments: *mut c_void,
    decode: XdrProc,
    results: *mut c_void,
    wait: TimeVal,
) -> Status {
    // SAFETY: the caller's handle, as in C.
    let (state, auth) = unsafe { (&mut *lock(&handle(client).state), (*client).auth) };
    let write = |at: *mut u8, room: usize| {
        // SAFETY: the room is writable, and the function fits the arguments, as in C.
        unsafe { xdr::encode(encode, arguments, at, room) }
    };
    // SAFETY: null, or an authenticator of libtirpc.
    let outcome = unsafe { state.adopt(auth) }
        .and_then(|()| state.call(procedure, write, state.timeout.unwrap_or(wait), decode.is_none()));
    let outcome = outcome.and_then(|record| {
        let Some(record) = record else {
            return Ok(());
        };
        // SAFETY: the record is mapped while it lives, and the function fits the results, as in C.
        let is_read = unsafe { xdr::decode(decode, results, record.as_ptr(), record.len()) };
        match is_read {
            true => Ok(()),
            false => Err(Failure::of(Status::CANT_DECODE_RES, 0)),
        }
    });
    let failure = outcome.err().unwrap_or(Failure::of(Status::SUCCESS, 0));
    state.error = failure.error();
    failure.status()
}

impl ClientState {
    /// Adopts the credential of the handle's authenticator, if it has changed.
    unsafe fn adopt(&mut self, auth: *mut Auth) -> Result<(), Failure> {
        // SAFETY: null, or an authenticator.
        let Some(auth) = (unsafe { auth.as_ref() }) else {
            return Ok(());
        };
        let raw = &auth.credential;
        let length = (raw.length as usize).min(MAX_AUTH_BYTES);
        let body = if raw.base.is_null() || length == 0 {
            &[][..]
        } else {
            // SAFETY: an authenticator's credential has so many bytes, which change in calls of its owner alone.
            unsafe { core::slice::from_raw_parts(raw.base.cast::<u8>().cast_const(), length) }
        };
        if (self.credential.0, &self.credential.1[..]) == (raw.flavour, body) {
            return Ok(());
        }
        let read = match raw.flavour {
            AUTH_NONE => Some(Credential::None),
            AUTH_SYS => AuthSys::decode(body).ok().map(Credential::Sys),
            _ => None,
        };
        let set = read.map(|credential| self.caller.set_credential(credential));
        match set {
            Some(Ok(())) => {
                self.credential = (raw.flavour, body.to_vec());
                Ok(())
            }
            // AUTH_BADCRED: other flavours are not carried.
            _ => Err(Failure::of(Status::AUTH_ERROR, 1)),
        }
    }

    /// The results; `None` if the caller does not wait for them.
    fn call(
        &mut self,
        procedure: u32,
        write: impl FnMut(*mut u8, usize) -> Option<usize>,
        wait: TimeVal,
        has_no_results: bool,
    ) -> Result<Option<Record>, Failure> {
        if !self.owner.is_me() {
            return Err(Failure::of(Status::CANT_SEND, libc::EBADF));
        }
        self.xid = self.xid.wrapping_add(1);
        let wait = wait.as_duration();
        if wait.is_zero() {
            // Batching in libtirpc's terms: the call goes, and nobody waits.
            self.caller.set_timeout(Some(Duration::from_secs(25)));
            let sent = self.caller.one_way_raw(procedure, write);
            sent.map_err(|error| Failure::of_call(&error))?;
            return match has_no_results {
                true => Ok(None),
                false => Err(Failure::of(Status::TIMED_OUT, 0)),
            };
        }
        self.caller.set_timeout(Some(wait));
        let called = self.caller.call_raw(procedure, write);
        called.map(Some).map_err(|error| Failure::of_call(&error))
    }

    /// Directs further calls to another program or version of the server.
    fn turn_to(&mut self, served: Served) -> bool {
        // In a forked child the session is the parent's.
        if !self.owner.is_me() {
            return false;
        }
        let Ok(caller) = self.session.caller(served) else {
            return false;
        };
        self.caller = caller;
        self.served = served;
        // The new caller has none yet.
        self.credential = (AUTH_NONE, Vec::new());
        true
    }
}

unsafe extern "C" fn abort(_: *mut Client) {}

unsafe extern "C" fn error(client: *mut Client, to: *mut RpcError) {
    // SAFETY: the caller's handle and place, as in C.
    unsafe { *to = lock(&handle(client).state).error };
}

unsafe extern "C" fn free_results(_: *mut Client, decode: XdrProc, results: *mut c_void) -> Bool {
    // SAFETY: the function fits the results, as in C.
    Bool::from(unsafe { xdr::free(decode, results) })
}

unsafe extern "C" fn destroy_client(client: *mut Client) {
    // SAFETY: the caller's handle, which it uses no more, as in C.
    unsafe { destroy(client) };
}

/// Ends a client.
///
/// # Safety
/// A client from [`open`] that nobody uses any more.
pub(crate) unsafe fn destroy(client: *mut Client) {
    // SAFETY: by this function's own contract; all three were made by `open`.
    let (client, handle, netid) = unsafe {
        let client = Box::from_raw(client);
        let handle = Box::from_raw(client.private.cast::<Handle>());
        let netid = CString::from_raw(client.netid);
        (client, handle, netid)
    };
    drop((client, netid));
    if !lock(&handle.state).owner.is_me() {
        // Leaving the job is up to the parent.
        core::mem::forget(handle);
    }
}

const CLSET_TIMEOUT: c_uint = 1;
const CLGET_TIMEOUT: c_uint = 2;
const CLGET_SERVER_ADDR: c_uint = 3;
const CLSET_RETRY_TIMEOUT: c_uint = 4;
const CLGET_RETRY_TIMEOUT: c_uint = 5;
const CLGET_SVC_ADDR: c_uint = 7;
const CLSET_FD_CLOSE: c_uint = 8;
const CLSET_FD_NCLOSE: c_uint = 9;
const CLGET_XID: c_uint = 10;
const CLSET_XID: c_uint = 11;
const CLGET_VERS: c_uint = 12;
const CLSET_VERS: c_uint = 13;
const CLGET_PROG: c_uint = 14;
const CLSET_PROG: c_uint = 15;

unsafe extern "C" fn control(client: *mut Client, request: c_uint, info: *mut c_void) -> Bool {
    if matches!(request, CLSET_FD_CLOSE | CLSET_FD_NCLOSE) {
        // There is no descriptor, so either is done.
        return TRUE;
    }
    if info.is_null() {
        return FALSE;
    }
    // SAFETY: the caller's handle, as in C.
    let handle = unsafe { handle(client) };
    let state = &mut *lock(&handle.state);
    let (time, word) = (info.cast::<TimeVal>(), info.cast::<u32>());
    // SAFETY: what lies there is what the request says, as in C.
    unsafe {
        match request {
            CLSET_TIMEOUT if (*time).is_legal() => state.timeout = Some(*time),
            CLGET_TIMEOUT => *time = state.timeout.unwrap_or(UNSET),
            CLSET_RETRY_TIMEOUT if (*time).is_legal() => state.retry = *time,
            CLGET_RETRY_TIMEOUT => *time = state.retry,
            CLGET_SERVER_ADDR => *info.cast::<libc::sockaddr_in>() = handle.address,
            CLGET_SVC_ADDR => {
                let bytes: *const libc::sockaddr_in = &raw const handle.address;
                let length = size_of_val(&handle.address) as c_uint;
                *info.cast::<NetBuf>() = NetBuf { most: length, length, bytes: bytes.cast_mut().cast() };
            }
            CLGET_XID => *word = state.xid,
            CLSET_XID => state.xid = *word,
            CLGET_VERS => *word = state.served.version,
            CLGET_PROG => *word = state.served.program,
            CLSET_VERS => {
                let version = *word;
                let served = Served { version, ..state.served };
                return Bool::from(state.turn_to(served));
            }
            CLSET_PROG => {
                let program = *word;
                let served = Served { program, ..state.served };
                return Bool::from(state.turn_to(served));
            }
            _ => return FALSE,
        }
    }
    TRUE
}

/// libtirpc's answer, too, as long as a program has set no timeout.
const UNSET: TimeVal = TimeVal { seconds: -1, micros: -1 };

/// Finds the highest version from `low` to `high` that the server has, and directs calls to it.
///
/// # Safety
/// A client from [`open`].
pub(crate) unsafe fn settle_version(client: *mut Client, low: u32, high: u32, wait: Duration) -> Result<u32, Failure> {
    // SAFETY: by this function's own contract.
    let state = &mut *lock(unsafe { &handle(client).state });
    let micros = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
    let wait = TimeVal { seconds: micros / MICROS, micros: micros % MICROS };
    let nothing = |_: *mut u8, _: usize| Some(0);
    let Err(failure) = state.call(0, nothing, wait, true) else {
        return Ok(state.served.version);
    };
    let [lowest, highest] = failure.error().words;
    let found = highest.min(high);
    if failure.status() != Status::PROG_VERS_MISMATCH || found < low.max(lowest) {
        return Err(failure);
    }
    let served = Served { version: found, ..state.served };
    if !state.turn_to(served) {
        return Err(failure);
    }
    state.call(0, nothing, wait, true)?;
    Ok(found)
}

/// Name of this network, for handles and transports.
pub(crate) fn network() -> *mut c_char {
    CString::from(NETWORK).into_raw()
}
