//! The `SVCXPRT` of this network, which libtirpc polls, dispatches from and answers through as with any other.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mapwire::meeting::MeetingError;
use mapwire::rpc::{AuthProblem, Credential, Encoder, ReplyStatus, Request};
use rustix::io::Errno;

use crate::abi::{
    AUTH_ERROR, AUTH_NONE, AUTH_SYS, Bool, CallBody, Dispatch, FALSE, MSG_ACCEPTED, NetBuf, OpaqueAuth, RpcMessage,
    TRUE, Transport, TransportExtension, TransportOps, TransportOps2, XPRT_IDLE, XPRT_MOREREQS, XdrProc,
};
use crate::client::network;
use crate::forks::call_in_children;
use crate::names::Served;
use crate::rpcbind::{self, NETWORK};
use crate::serving::Serving;
use crate::tirpc::tirpc;
use crate::xdr;

static OPS: TransportOps = TransportOps { receive, state, arguments, reply, free_arguments, destroy };

static OPS2: TransportOps2 = TransportOps2 { control };

/// The process's offers, once there are any.
static SERVING: Mutex<Option<Offer>> = Mutex::new(None);

struct Offer {
    serving: Serving,
    /// Address of the transport, which is never freed.
    transport: usize,
}

/// In a forked child, without the parent's jobs, their calls, and the call in hand.
fn lock() -> MutexGuard<'static, Option<Offer>> {
    let mut offers = SERVING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(offer) = offers.as_mut()
        && let Err(errno) = offer.serving.leave_to_parent()
    {
        crate::log::warn(&format!("this child of a server serves no clients of mapwire: {errno}"));
        // It must not touch what it has of its parent's.
        core::mem::forget(offers.take());
    }
    offers
}

/// In a new forked child: leaves the parent's objects to the parent, unless another thread was using them. Then they are left when they
/// are next requested.
fn leave_in_child() {
    if let Ok(mut offers) = SERVING.try_lock()
        && let Some(offer) = offers.as_mut()
    {
        let _ = offer.serving.leave_to_parent();
    }
}

/// The handle of this network, made on first use.
fn transport_of(offer: &mut Option<Offer>) -> Result<&mut Offer, MeetingError> {
    if offer.is_none() {
        call_in_children(leave_in_child);
        let os = |errno| MeetingError::Os { call: "epoll_create1", errno };
        let library = tirpc().ok_or(os(Errno::NOSYS))?;
        let serving = Serving::new().map_err(os)?;
        let transport = Box::into_raw(Box::new(new_transport(serving.descriptor())));
        // SAFETY: a transport that is never freed.
        unsafe { (library.xprt_register)(transport) };
        *offer = Some(Offer { serving, transport: transport as usize });
    }
    offer.as_mut().ok_or(MeetingError::Os { call: "epoll_create1", errno: Errno::NOMEM })
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

/// Reported port of the superuser's calls: only the superuser can bind it, and servers may trust it.
const RESERVED_PORT: u16 = 1023;
/// Reported port of all other calls.
const OTHER_PORT: u16 = 65_535;

/// Size of the caller's reported address: this host's, with one of the two ports.
const ADDRESS_BYTES: c_uint = size_of::<libc::sockaddr_in>() as c_uint;

fn new_transport(fd: c_int) -> Transport {
    let address = [0; 7];
    let nothing = || NetBuf { most: 0, length: 0, bytes: core::ptr::null_mut() };
    let remote: *mut libc::sockaddr_in = Box::into_raw(Box::new(libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    }));
    let extension =
        TransportExtension { flags: 0, auth_ops: core::ptr::null_mut(), auth_private: core::ptr::null_mut() };
    let mut transport = Transport {
        fd,
        port: 0,
        ops: &raw const OPS,
        address_length: ADDRESS_BYTES as c_int,
        address,
        ops2: &raw const OPS2,
        device: core::ptr::null_mut(),
        netid: network(),
        local: nothing(),
        remote: NetBuf { most: ADDRESS_BYTES, length: ADDRESS_BYTES, bytes: remote.cast() },
        verifier: no_auth(),
        p1: core::ptr::null_mut(),
        p2: core::ptr::null_mut(),
        p3: Box::into_raw(Box::new(extension)).cast(),
        kind: 0,
    };
    // SAFETY: a transport with such an address.
    unsafe { note_caller(&raw mut transport, None) };
    transport
}

/// Updates the transport's addresses to the caller of the call in hand, as far as its kernel can tell.
///
/// # Safety
/// A transport that [`new_transport`] makes.
unsafe fn note_caller(transport: *mut Transport, request: Option<&Request>) {
    let is_root = request.and_then(Request::peer).is_some_and(|peer| peer.uid == 0);
    let port = if is_root { RESERVED_PORT } else { OTHER_PORT }.to_be();
    // SAFETY: by this function's own contract; the address has its fields in both places.
    unsafe {
        let remote = (*transport).remote.bytes.cast::<libc::sockaddr_in>();
        (*remote).sin_port = port;
        let address: *mut libc::sockaddr_in = (&raw mut (*transport).address).cast();
        address.write_unaligned(*remote);
    }
}

fn no_auth() -> OpaqueAuth {
    OpaqueAuth { flavour: AUTH_NONE, base: core::ptr::null_mut(), length: 0 }
}

/// Offers a version of a program to clients of this network. Returns the handle on which its calls arrive.
pub(crate) fn offer(served: Served) -> Result<*mut Transport, MeetingError> {
    let mut offers = lock();
    let offer = transport_of(&mut offers)?;
    let is_new = !offer.serving.offers(served);
    let socket = offer.serving.offer(served)?;
    let transport = offer.transport;
    drop(offers);
    if is_new {
        rpcbind::register(served, &socket);
    }
    Ok(transport as *mut Transport)
}

pub(crate) fn withdraw(served: Served) {
    let mut offers = lock();
    let Some(offer) = offers.as_mut().filter(|it| it.serving.offers(served)) else {
        return;
    };
    offer.serving.withdraw(served);
    drop(offers);
    rpcbind::unregister(served);
}

/// Whether this is the handle of this network.
pub(crate) fn is_ours(transport: *const Transport) -> bool {
    // SAFETY: null, or a transport of libtirpc.
    unsafe { transport.as_ref() }.is_some_and(|it| core::ptr::eq(it.ops, &raw const OPS))
}

unsafe extern "C" fn receive(transport: *mut Transport, message: *mut RpcMessage) -> Bool {
    let mut offers = lock();
    let request = offers.as_mut().and_then(|offer| offer.serving.take());
    let Some(request) = request else {
        return FALSE;
    };
    // SAFETY: libtirpc gives this network's handle, and a message whose credential has room for the longest.
    unsafe {
        note_caller(transport, Some(request));
        tell(request, message);
    }
    TRUE
}

/// Longest body of a credential (RFC 5531).
const MAX_AUTH_BYTES: usize = 400;

/// Fills a message with a call's fields.
///
/// # Safety
/// The credential of the message has [`MAX_AUTH_BYTES`] of room.
unsafe fn tell(request: &Request, message: *mut RpcMessage) {
    let mut body = Vec::new();
    if let Credential::Sys(sys) = request.credential() {
        // A vector has room.
        let _ = sys.encode(&mut Encoder::new(&mut body));
    }
    // SAFETY: by this function's own contract; a body that was read off a record is no longer than that.
    unsafe {
        (*message).xid = request.xid();
        (*message).direction = 0;
        let call: &mut CallBody = &mut (*message).body.call;
        call.rpc_version = 2;
        call.program = request.program();
        call.version = request.version();
        call.procedure = request.procedure();
        call.credential.flavour = match request.credential() {
            Credential::None => AUTH_NONE,
            Credential::Sys(_) => AUTH_SYS,
        };
        let length = body.len().min(MAX_AUTH_BYTES);
        call.credential.length = length as c_uint;
        call.credential.base.cast::<u8>().copy_from_nonoverlapping(body.as_ptr(), length);
        call.verifier.flavour = AUTH_NONE;
        call.verifier.length = 0;
    }
}

unsafe extern "C" fn state(transport: *mut Transport) -> c_int {
    let mut offers = lock();
    let has_next = offers.as_mut().is_some_and(|it| it.serving.has_next());
    // A procedure may have served this call before it replies to its own.
    let outer = offers.as_ref().and_then(|it| it.serving.in_hand());
    // SAFETY: this network's handle.
    unsafe { note_caller(transport, outer) };
    if has_next { XPRT_MOREREQS } else { XPRT_IDLE }
}

/// Takes the call in hand out of its slot: the program's functions run while nothing is locked.
fn take_current() -> Option<Request> {
    lock().as_mut()?.serving.in_hand_mut()?.take()
}

fn put_current(request: Request) {
    if let Some(offer) = lock().as_mut()
        && let Some(place) = offer.serving.in_hand_mut()
    {
        *place = Some(request);
    }
}

unsafe extern "C" fn arguments(_: *mut Transport, decode: XdrProc, place: *mut c_void) -> Bool {
    let Some(request) = take_current() else {
        return FALSE;
    };
    let is_read = request.record().is_some_and(|record| {
        // SAFETY: the record is mapped while it lives, and the function fits the place, as in C.
        unsafe { xdr::decode(decode, place, record.as_ptr(), record.len()) }
    });
    put_current(request);
    Bool::from(is_read)
}

unsafe extern "C" fn reply(transport: *mut Transport, message: *mut RpcMessage) -> Bool {
    let _ = transport;
    let Some(mut request) = take_current() else {
        return FALSE;
    };
    // SAFETY: libtirpc's message of a reply.
    let done = unsafe { answer(&mut request, message) };
    // A call whose reply could not be written is answered by an error.
    put_current(request);
    Bool::from(done)
}

/// # Safety
/// A message of a reply, with results that its function fits.
unsafe fn answer(request: &mut Request, message: *const RpcMessage) -> bool {
    if request.is_one_way() {
        return true;
    }
    // SAFETY: by this function's own contract; the numbers say which parts of the unions there are.
    let status = unsafe {
        let reply = (*message).body.reply;
        match reply.state {
            MSG_ACCEPTED => {
                let accepted = reply.body.accepted;
                match accepted.state {
                    0 => {
                        let results = accepted.body.results;
                        let write = |at: *mut u8, room: usize| xdr::encode(results.encode, results.place, at, room);
                        return request.reply_raw(write).is_ok();
                    }
                    1 => ReplyStatus::ProgramUnavailable,
                    2 => {
                        let [low, high] = accepted.body.versions;
                        ReplyStatus::ProgramMismatch { low, high }
                    }
                    3 => ReplyStatus::ProcedureUnavailable,
                    4 => ReplyStatus::GarbageArguments,
                    _ => ReplyStatus::SystemError,
                }
            }
            _ => {
                let rejected = reply.body.rejected;
                let [first, second] = rejected.words;
                match rejected.state {
                    AUTH_ERROR => ReplyStatus::AuthError(problem(first)),
                    _ => ReplyStatus::RpcMismatch { low: first, high: second },
                }
            }
        }
    };
    request.reply_error(status).is_ok()
}

fn problem(number: u32) -> AuthProblem {
    match number {
        1 => AuthProblem::BadCredential,
        2 => AuthProblem::RejectedCredential,
        3 => AuthProblem::BadVerifier,
        4 => AuthProblem::RejectedVerifier,
        5 => AuthProblem::TooWeak,
        6 => AuthProblem::InvalidResponse,
        _ => AuthProblem::Failed,
    }
}

unsafe extern "C" fn free_arguments(_: *mut Transport, decode: XdrProc, place: *mut c_void) -> Bool {
    // SAFETY: the function fits what lies there, as in C.
    Bool::from(unsafe { xdr::free(decode, place) })
}

unsafe extern "C" fn destroy(transport: *mut Transport) {
    if let Some(library) = tirpc() {
        // SAFETY: the handle of this network.
        unsafe { (library.xprt_unregister)(transport) };
    }
    // Its memory stays, as others may still have its address; it serves nobody any more.
    drop(lock().take());
}

unsafe extern "C" fn control(_: *mut Transport, _: c_uint, _: *mut c_void) -> Bool {
    FALSE
}
