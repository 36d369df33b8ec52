//! The layout of libfabric's structures and tables (`rdma/*.h`), as far as they are used.
//!
//! Entries of a table that nobody calls are [`Unused`]. A table begins with its size in bytes; all entries here are in each version from
//! 1.9 on.

use core::ffi::{c_char, c_int, c_void};

/// An entry or a pointer that is not used.
pub(super) type Unused = *const c_void;

/// FI_VERSION(1, 9).
pub(super) const API_VERSION: u32 = (1 << 16) | 9;

pub(super) const FI_MSG: u64 = 1 << 1;
pub(super) const FI_RMA: u64 = 1 << 2;
pub(super) const FI_READ: u64 = 1 << 8;
pub(super) const FI_WRITE: u64 = 1 << 9;
pub(super) const FI_RECV: u64 = 1 << 10;
pub(super) const FI_SEND: u64 = 1 << 11;
pub(super) const FI_REMOTE_READ: u64 = 1 << 12;
pub(super) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(super) const FI_COMPLETION: u64 = 1 << 24;
pub(super) const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub(super) const FI_NUMERICHOST: u64 = 1 << 55;
pub(super) const FI_SOURCE: u64 = 1 << 57;

/// Modes: the caller's contexts have room for the library, 4 or 8 words.
pub(super) const FI_CONTEXT: u64 = 1 << 59;
pub(super) const FI_CONTEXT2: u64 = 1 << 52;

pub(super) const FI_MR_LOCAL: c_int = 1 << 2;
pub(super) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(super) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(super) const FI_MR_PROV_KEY: c_int = 1 << 6;
pub(super) const FI_MR_ENDPOINT: c_int = 1 << 9;

pub(super) const FI_ORDER_RAW: u64 = 1 << 1;
pub(super) const FI_ORDER_WAW: u64 = 1 << 4;
pub(super) const FI_ORDER_SAW: u64 = 1 << 7;
pub(super) const FI_ORDER_SAS: u64 = 1 << 8;
pub(super) const FI_THREAD_SAFE: c_int = 1;
pub(super) const FI_RM_ENABLED: c_int = 2;
pub(super) const FI_EP_RDM: c_int = 3;
pub(super) const FI_CQ_FORMAT_MSG: c_int = 2;
pub(super) const FI_GETWAIT: c_int = 5;
pub(super) const FI_ENABLE: c_int = 6;
pub(super) const FI_WAIT_NONE: c_int = 0;
pub(super) const FI_WAIT_FD: c_int = 3;
pub(super) const FI_ADDR_UNSPEC: u64 = u64::MAX;

pub(super) const FI_EAGAIN: isize = libc::EAGAIN as isize;
pub(super) const FI_ENODATA: c_int = libc::ENODATA;
pub(super) const FI_ENOSYS: c_int = libc::ENOSYS;
/// Of libfabric itself: the completion queue holds an error.
pub(super) const FI_EAVAIL: isize = 259;

#[repr(C)]
pub(super) struct Fid {
    pub(super) class: usize,
    pub(super) context: *mut c_void,
    pub(super) ops: *const Ops,
}

#[repr(C)]
pub(super) struct Ops {
    pub(super) size: usize,
    pub(super) close: Option<unsafe extern "C" fn(*mut Fid) -> c_int>,
    pub(super) bind: Option<unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int>,
    pub(super) control: Option<unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int>,
}

#[repr(C)]
pub(super) struct TxAttr {
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) op_flags: u64,
    pub(super) msg_order: u64,
    pub(super) comp_order: u64,
    pub(super) inject_size: usize,
    pub(super) size: usize,
    pub(super) iov_limit: usize,
    pub(super) rma_iov_limit: usize,
}

#[repr(C)]
pub(super) struct RxAttr {
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) op_flags: u64,
    pub(super) msg_order: u64,
    pub(super) comp_order: u64,
    pub(super) total_buffered_recv: usize,
    pub(super) size: usize,
}

#[repr(C)]
pub(super) struct EpAttr {
    pub(super) kind: c_int,
    pub(super) protocol: u32,
    pub(super) protocol_version: u32,
    pub(super) max_msg_size: usize,
}

#[repr(C)]
pub(super) struct DomainAttr {
    pub(super) domain: *mut FidDomain,
    pub(super) name: *mut c_char,
    pub(super) threading: c_int,
    pub(super) control_progress: c_int,
    pub(super) data_progress: c_int,
    pub(super) resource_mgmt: c_int,
    pub(super) av_type: c_int,
    pub(super) mr_mode: c_int,
    pub(super) mr_key_size: usize,
}

#[repr(C)]
pub(super) struct FabricAttr {
    pub(super) fabric: *mut FidFabric,
    pub(super) name: *mut c_char,
    pub(super) prov_name: *mut c_char,
    pub(super) prov_version: u32,
    pub(super) api_version: u32,
}

/// `struct fi_info`.
#[repr(C)]
pub(super) struct RawInfo {
    pub(super) next: *mut RawInfo,
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) addr_format: u32,
    pub(super) src_addrlen: usize,
    pub(super) dest_addrlen: usize,
    pub(super) src_addr: *mut c_void,
    pub(super) dest_addr: *mut c_void,
    pub(super) handle: *mut Fid,
    pub(super) tx_attr: *mut TxAttr,
    pub(super) rx_attr: *mut RxAttr,
    pub(super) ep_attr: *mut EpAttr,
    pub(super) domain_attr: *mut DomainAttr,
    pub(super) fabric_attr: *mut FabricAttr,
}

#[repr(C)]
pub(super) struct FidFabric {
    pub(super) fid: Fid,
    pub(super) ops: *const FabricOps,
}

#[repr(C)]
pub(super) struct FabricOps {
    pub(super) size: usize,
    pub(super) domain:
        Option<unsafe extern "C" fn(*mut FidFabric, *mut RawInfo, *mut *mut FidDomain, *mut c_void) -> c_int>,
    pub(super) passive_ep: Unused,
    pub(super) eq_open: Unused,
    pub(super) wait_open: Unused,
    pub(super) trywait: Option<unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int>,
}

#[repr(C)]
pub(super) struct FidDomain {
    pub(super) fid: Fid,
    pub(super) ops: *const DomainOps,
    pub(super) mr: *const MrOps,
}

#[repr(C)]
pub(super) struct DomainOps {
    pub(super) size: usize,
    pub(super) av_open:
        Option<unsafe extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int>,
    pub(super) cq_open:
        Option<unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int>,
    pub(super) endpoint:
        Option<unsafe extern "C" fn(*mut FidDomain, *mut RawInfo, *mut *mut FidEp, *mut c_void) -> c_int>,
}

#[repr(C)]
pub(super) struct MrOps {
    pub(super) size: usize,
    #[allow(clippy::type_complexity)]
    pub(super) reg: Option<
        unsafe extern "C" fn(*mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void) -> c_int,
    >,
}

#[repr(C)]
pub(super) struct FidMr {
    pub(super) fid: Fid,
    pub(super) mem_desc: *mut c_void,
    pub(super) key: u64,
}

#[repr(C)]
pub(super) struct AvAttr {
    pub(super) kind: c_int,
    pub(super) rx_ctx_bits: c_int,
    pub(super) count: usize,
    pub(super) ep_per_node: usize,
    pub(super) name: *const c_char,
    pub(super) map_addr: *mut c_void,
    pub(super) flags: u64,
}

#[repr(C)]
pub(super) struct FidAv {
    pub(super) fid: Fid,
    pub(super) ops: *const AvOps,
}

#[repr(C)]
pub(super) struct AvOps {
    pub(super) size: usize,
    pub(super) insert:
        Option<unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int>,
}

#[repr(C)]
pub(super) struct CqAttr {
    pub(super) size: usize,
    pub(super) flags: u64,
    pub(super) format: c_int,
    pub(super) wait_obj: c_int,
    pub(super) signaling_vector: c_int,
    pub(super) wait_cond: c_int,
    pub(super) wait_set: *mut c_void,
}

#[repr(C)]
pub(super) struct FidCq {
    pub(super) fid: Fid,
    pub(super) ops: *const CqOps,
}

#[repr(C)]
pub(super) struct CqOps {
    pub(super) size: usize,
    pub(super) read: Option<unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize>,
    pub(super) readfrom: Unused,
    pub(super) readerr: Option<unsafe extern "C" fn(*mut FidCq, *mut CqErrEntry, u64) -> isize>,
}

/// `struct fi_cq_msg_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqEntry {
    pub(super) context: *mut c_void,
    pub(super) flags: u64,
    pub(super) len: usize,
}

#[repr(C)]
pub(super) struct CqErrEntry {
    pub(super) context: *mut c_void,
    pub(super) flags: u64,
    pub(super) len: usize,
    pub(super) buf: *mut c_void,
    pub(super) data: u64,
    pub(super) tag: u64,
    pub(super) olen: usize,
    pub(super) err: c_int,
    pub(super) prov_errno: c_int,
    pub(super) err_data: *mut c_void,
    pub(super) err_data_size: usize,
    /// Later versions add fields here, which they may write.
    pub(super) room: [u64; 8],
}

#[repr(C)]
pub(super) struct FidEp {
    pub(super) fid: Fid,
    pub(super) ops: Unused,
    pub(super) cm: *const CmOps,
    pub(super) msg: *const MsgOps,
    pub(super) rma: *const RmaOps,
}

#[repr(C)]
pub(super) struct CmOps {
    pub(super) size: usize,
    pub(super) setname: Unused,
    pub(super) getname: Option<unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int>,
}

/// A transfer of one piece: endpoint, memory, length, descriptor, peer, context.
pub(super) type SendCall =
    unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize;

#[repr(C)]
pub(super) struct MsgOps {
    pub(super) size: usize,
    pub(super) recv:
        Option<unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize>,
    pub(super) recvv: Unused,
    pub(super) recvmsg: Unused,
    pub(super) send: Option<SendCall>,
}

/// Remote memory of an operation.
#[repr(C)]
pub(super) struct RmaIov {
    pub(super) address: u64,
    pub(super) len: usize,
    pub(super) key: u64,
}

/// `struct fi_msg_rma`.
#[repr(C)]
pub(super) struct MsgRma {
    pub(super) iov: *const libc::iovec,
    pub(super) desc: *mut *mut c_void,
    pub(super) iov_count: usize,
    pub(super) peer: u64,
    pub(super) remote: *const RmaIov,
    pub(super) remote_count: usize,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
}

pub(super) type RmaCall = unsafe extern "C" fn(*mut FidEp, *const MsgRma, u64) -> isize;

#[repr(C)]
pub(super) struct RmaOps {
    pub(super) size: usize,
    pub(super) read: Unused,
    pub(super) readv: Unused,
    pub(super) readmsg: Option<RmaCall>,
    pub(super) write: Unused,
    pub(super) writev: Unused,
    pub(super) writemsg: Option<RmaCall>,
}

/// Identifies an operation under way. The library may use the first words.
#[repr(C)]
pub(super) struct Context {
    pub(super) of_library: [usize; 8],
    pub(super) number: usize,
}

/// Calls an entry of a table, which may be missing.
macro_rules! call {
    ($table:expr, $entry:ident($($argument:expr),* $(,)?)) => {
        match $table.$entry {
            Some(entry) => entry($($argument),*),
            None => -FI_ENOSYS as _,
        }
    };
}
pub(super) use call;
