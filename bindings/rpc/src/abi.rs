//! The structures that C programs, libtirpc and this library share, as `<rpc/rpc.h>` of libtirpc declares them.
//!
//! `tests.rs` compares them with that header.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_ushort, c_void};

/// `bool_t`.
pub(crate) type Bool = c_int;
pub(crate) const TRUE: Bool = 1;
pub(crate) const FALSE: Bool = 0;

/// `xdrproc_t`: encodes, decodes or frees a value.
pub(crate) type XdrProc = Option<unsafe extern "C" fn(*mut Xdr, ...) -> Bool>;

/// `enum xdr_op`.
pub(crate) const XDR_ENCODE: c_uint = 0;
pub(crate) const XDR_DECODE: c_uint = 1;
pub(crate) const XDR_FREE: c_uint = 2;

#[repr(C)]
pub(crate) struct Xdr {
    pub(crate) op: c_uint,
    pub(crate) ops: *const XdrOps,
    pub(crate) public: *mut c_char,
    pub(crate) private: *mut c_void,
    pub(crate) base: *mut c_char,
    pub(crate) handy: c_uint,
}

/// `struct xdr_ops`, whose other members nobody here calls.
#[repr(C)]
pub(crate) struct XdrOps {
    pub(crate) before: [*const c_void; 4],
    pub(crate) position: unsafe extern "C" fn(*mut Xdr) -> c_uint,
}

/// `struct opaque_auth`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpaqueAuth {
    pub(crate) flavour: c_int,
    pub(crate) base: *mut c_char,
    pub(crate) length: c_uint,
}

pub(crate) const AUTH_NONE: c_int = 0;
pub(crate) const AUTH_SYS: c_int = 1;

/// The first fields of `AUTH`.
#[repr(C)]
pub(crate) struct Auth {
    pub(crate) credential: OpaqueAuth,
    pub(crate) verifier: OpaqueAuth,
}

/// `struct timeval`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeVal {
    pub(crate) seconds: c_long,
    pub(crate) micros: c_long,
}

/// `struct netbuf`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NetBuf {
    pub(crate) most: c_uint,
    pub(crate) length: c_uint,
    pub(crate) bytes: *mut c_void,
}

/// The first fields of `struct netconfig`.
#[repr(C)]
pub(crate) struct NetConfig {
    pub(crate) netid: *const c_char,
}

/// `enum clnt_stat`: any number, as C may return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Status(pub(crate) c_uint);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const CANT_ENCODE_ARGS: Self = Self(1);
    pub(crate) const CANT_DECODE_RES: Self = Self(2);
    pub(crate) const CANT_SEND: Self = Self(3);
    pub(crate) const CANT_RECV: Self = Self(4);
    pub(crate) const TIMED_OUT: Self = Self(5);
    pub(crate) const VERS_MISMATCH: Self = Self(6);
    pub(crate) const AUTH_ERROR: Self = Self(7);
    pub(crate) const PROG_UNAVAIL: Self = Self(8);
    pub(crate) const PROG_VERS_MISMATCH: Self = Self(9);
    pub(crate) const PROC_UNAVAIL: Self = Self(10);
    pub(crate) const CANT_DECODE_ARGS: Self = Self(11);
    pub(crate) const SYSTEM_ERROR: Self = Self(12);
    pub(crate) const UNKNOWN_HOST: Self = Self(13);
    pub(crate) const PROG_NOT_REGISTERED: Self = Self(15);
    pub(crate) const NO_BROADCAST: Self = Self(21);
}

/// `struct rpc_err`; `words` are its union.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RpcError {
    pub(crate) status: Status,
    pub(crate) words: [u32; 2],
}

/// `struct rpc_createerr`.
#[repr(C)]
pub(crate) struct CreateError {
    pub(crate) status: Status,
    pub(crate) error: RpcError,
}

/// `CLIENT`.
#[repr(C)]
pub(crate) struct Client {
    pub(crate) auth: *mut Auth,
    pub(crate) ops: *const ClientOps,
    pub(crate) private: *mut c_void,
    pub(crate) netid: *mut c_char,
    pub(crate) device: *mut c_char,
}

/// `struct clnt_ops`.
#[repr(C)]
pub(crate) struct ClientOps {
    pub(crate) call:
        unsafe extern "C" fn(*mut Client, u32, XdrProc, *mut c_void, XdrProc, *mut c_void, TimeVal) -> Status,
    pub(crate) abort: unsafe extern "C" fn(*mut Client),
    pub(crate) error: unsafe extern "C" fn(*mut Client, *mut RpcError),
    pub(crate) free_results: unsafe extern "C" fn(*mut Client, XdrProc, *mut c_void) -> Bool,
    pub(crate) destroy: unsafe extern "C" fn(*mut Client),
    pub(crate) control: unsafe extern "C" fn(*mut Client, c_uint, *mut c_void) -> Bool,
}

/// `SVCXPRT`.
#[repr(C)]
pub(crate) struct Transport {
    pub(crate) fd: c_int,
    pub(crate) port: c_ushort,
    pub(crate) ops: *const TransportOps,
    pub(crate) address_length: c_int,
    pub(crate) address: [u32; 7],
    pub(crate) ops2: *const TransportOps2,
    pub(crate) device: *mut c_char,
    pub(crate) netid: *mut c_char,
    pub(crate) local: NetBuf,
    pub(crate) remote: NetBuf,
    pub(crate) verifier: OpaqueAuth,
    pub(crate) p1: *mut c_void,
    pub(crate) p2: *mut c_void,
    pub(crate) p3: *mut c_void,
    pub(crate) kind: c_int,
}

/// `SVCXPRT_EXT`, at libtirpc's `xp_p3`: records how a caller was authenticated.
#[repr(C)]
pub(crate) struct TransportExtension {
    pub(crate) flags: c_int,
    pub(crate) auth_ops: *mut c_void,
    pub(crate) auth_private: *mut c_void,
}

/// `enum xprt_stat`.
pub(crate) const XPRT_MOREREQS: c_int = 1;
pub(crate) const XPRT_IDLE: c_int = 2;

/// `struct xp_ops`.
#[repr(C)]
pub(crate) struct TransportOps {
    pub(crate) receive: unsafe extern "C" fn(*mut Transport, *mut RpcMessage) -> Bool,
    pub(crate) state: unsafe extern "C" fn(*mut Transport) -> c_int,
    pub(crate) arguments: unsafe extern "C" fn(*mut Transport, XdrProc, *mut c_void) -> Bool,
    pub(crate) reply: unsafe extern "C" fn(*mut Transport, *mut RpcMessage) -> Bool,
    pub(crate) free_arguments: unsafe extern "C" fn(*mut Transport, XdrProc, *mut c_void) -> Bool,
    pub(crate) destroy: unsafe extern "C" fn(*mut Transport),
}

/// `struct xp_ops2`.
#[repr(C)]
pub(crate) struct TransportOps2 {
    pub(crate) control: unsafe extern "C" fn(*mut Transport, c_uint, *mut c_void) -> Bool,
}

/// `struct rpc_msg`.
#[repr(C)]
pub(crate) struct RpcMessage {
    pub(crate) xid: u32,
    pub(crate) direction: c_int,
    pub(crate) body: MessageBody,
}

/// The union in `struct rpc_msg`.
#[repr(C)]
pub(crate) union MessageBody {
    pub(crate) call: CallBody,
    pub(crate) reply: ReplyBody,
}

/// `struct call_body`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CallBody {
    pub(crate) rpc_version: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) credential: OpaqueAuth,
    pub(crate) verifier: OpaqueAuth,
}

/// `struct reply_body`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ReplyBody {
    /// `MSG_ACCEPTED` or `MSG_DENIED`.
    pub(crate) state: c_int,
    pub(crate) body: ReplyUnion,
}

pub(crate) const MSG_ACCEPTED: c_int = 0;

/// The union in `struct reply_body`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union ReplyUnion {
    pub(crate) accepted: AcceptedReply,
    pub(crate) rejected: RejectedReply,
}

/// `struct accepted_reply`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AcceptedReply {
    pub(crate) verifier: OpaqueAuth,
    /// `enum accept_stat`.
    pub(crate) state: c_int,
    pub(crate) body: AcceptedUnion,
}

/// The union in `struct accepted_reply`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union AcceptedUnion {
    /// Lowest and highest version.
    pub(crate) versions: [u32; 2],
    pub(crate) results: Results,
}

/// The results, and the function that encodes them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Results {
    pub(crate) place: *mut c_void,
    pub(crate) encode: XdrProc,
}

/// `struct rejected_reply`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RejectedReply {
    /// `RPC_MISMATCH` or `AUTH_ERROR`.
    pub(crate) state: c_int,
    /// Lowest and highest version, or `enum auth_stat`.
    pub(crate) words: [u32; 2],
}

pub(crate) const AUTH_ERROR: c_int = 1;

/// A dispatch function of a server.
pub(crate) type Dispatch = Option<unsafe extern "C" fn(*mut c_void, *mut Transport)>;

/// A function that `rpc_reg()` registers.
pub(crate) type Procedure = unsafe extern "C" fn(*mut c_char) -> *mut c_char;

/// The first fields of `struct svc_req`.
#[repr(C)]
pub(crate) struct ServiceRequest {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
}

/// `u_long`, the older calls' type for programs and versions.
pub(crate) type ULong = c_ulong;
