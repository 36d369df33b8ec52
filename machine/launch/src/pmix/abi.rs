//! The parts of `pmix_common.h` that are used here, as C lays them out.

use std::ffi::{c_char, c_int, c_void};

pub(super) type Status = c_int;

pub(super) const SUCCESS: Status = 0;
pub(super) const ERR_TIMEOUT: Status = -24;
pub(super) const ERR_UNREACH: Status = -25;
pub(super) const ERR_NOT_FOUND: Status = -46;
pub(super) const ERR_LOST_CONNECTION: Status = -61;
pub(super) const OPERATION_SUCCEEDED: Status = -157;
pub(super) const EVENT_NO_ACTION_TAKEN: Status = -331;

/// One rank failed.
pub(super) const RANK_FAILURES: [Status; 8] = [
    -7,   // PMIX_ERR_PROC_ABORTED
    -8,   // PMIX_ERR_PROC_REQUESTED_ABORT
    -200, // PMIX_ERR_PROC_TERM_WO_SYNC
    -400, // PMIX_ERR_PROC_KILLED_BY_CMD
    -401, // PMIX_ERR_PROC_FAILED_TO_START
    -402, // PMIX_ERR_PROC_ABORTED_BY_SIG
    -403, // PMIX_ERR_PROC_SENSOR_BOUND_EXCEEDED
    -404, // PMIX_ERR_EXIT_NONZERO_TERM
];
/// The job, or the launcher, ends.
pub(super) const JOB_FAILURES: [Status; 8] = [
    ERR_UNREACH,
    ERR_LOST_CONNECTION,
    -180, // PMIX_ERR_JOB_CANCELED
    -182, // PMIX_ERR_JOB_ABORTED
    -183, // PMIX_ERR_JOB_KILLED_BY_CMD
    -184, // PMIX_ERR_JOB_ABORTED_BY_SIG
    -187, // PMIX_ERR_JOB_NON_ZERO_TERM
    -189, // PMIX_ERR_JOB_ABORTED_BY_SYS_EVENT
];

pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;
pub(super) const SCOPE_GLOBAL: u8 = 3;

pub(super) const TYPE_BOOL: u16 = 1;
pub(super) const TYPE_INT: u16 = 6;
pub(super) const TYPE_UINT32: u16 = 14;
pub(super) const TYPE_PROC: u16 = 22;
pub(super) const TYPE_BYTE_OBJECT: u16 = 27;

/// `pmix_proc_t`: a rank of a job.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    pub(super) namespace: [c_char; 256],
    pub(super) rank: u32,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ByteObject {
    pub(super) bytes: *const c_char,
    pub(super) size: usize,
}

/// The union of `pmix_value_t`: those members that are used, and its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Data {
    pub(super) flag: bool,
    pub(super) integer: c_int,
    pub(super) uint32: u32,
    pub(super) proc: *const Proc,
    pub(super) bytes: ByteObject,
    /// The largest member, `pmix_envar_t`, is two pointers and a character.
    pub(super) all: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub(super) kind: u16,
    pub(super) data: Data,
}

/// `pmix_info_t`: a named option of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Info {
    pub(super) key: [c_char; 512],
    pub(super) flags: u32,
    pub(super) value: Value,
}

pub(super) type OpDone = unsafe extern "C" fn(Status, *mut c_void);
pub(super) type ValueDone = unsafe extern "C" fn(Status, *mut Value, *mut c_void);
pub(super) type Registered = unsafe extern "C" fn(Status, usize, *mut c_void);
pub(super) type EventDone = unsafe extern "C" fn(Status, *mut Info, usize, Option<OpDone>, *mut c_void, *mut c_void);
pub(super) type EventHandler = unsafe extern "C" fn(
    usize,
    Status,
    *const Proc,
    *mut Info,
    usize,
    *mut Info,
    usize,
    Option<EventDone>,
    *mut c_void,
);

pub(super) type Init = unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> Status;
pub(super) type Finalize = unsafe extern "C" fn(*const Info, usize) -> Status;
pub(super) type Abort = unsafe extern "C" fn(Status, *const c_char, *mut Proc, usize) -> Status;
pub(super) type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> Status;
pub(super) type Commit = unsafe extern "C" fn() -> Status;
pub(super) type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize, OpDone, *mut c_void) -> Status;
pub(super) type Get =
    unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, ValueDone, *mut c_void) -> Status;
pub(super) type Register =
    unsafe extern "C" fn(*const Status, usize, *mut Info, usize, EventHandler, Registered, *mut c_void);
pub(super) type ErrorString = unsafe extern "C" fn(Status) -> *const c_char;
