//! The kernel's userfaultfd interface: numbers and structures of `linux/userfaultfd.h`, and one function for each call in use.
//!
//! Covers protection in SIGBUS mode: no events are ever read from the descriptor. [`uffd_paging`](super::uffd_paging) has the calls that
//! move pages in and out.

use core::ffi::c_void;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use crate::descriptors::above_stdio;
use rustix::io::Errno as Os;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Updater, opcode};
use rustix::mm::UserfaultfdFlags;

/// The device that provides a userfaultfd to whoever may open it.
pub const DEVICE: &str = "/dev/userfaultfd";

pub(super) const TYPE: u8 = 0xAA;
const API_VERSION: u64 = 0xAA;

pub(crate) const FEATURE_FAULT_FLAG_WP: u64 = 1 << 0;
pub(super) const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
pub(crate) const FEATURE_SIGBUS: u64 = 1 << 7;
pub(super) const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
pub(super) const FEATURE_WP_SHMEM: u64 = 1 << 12;

/// A userfaultfd that catches no faults of system calls, and so needs no privilege.
const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);

pub(super) const REGISTER_MODE_MISSING: u64 = 1 << 0;
pub(super) const REGISTER_MODE_WP: u64 = 1 << 1;
const REGISTER_MODE_MINOR: u64 = 1 << 2;

const WRITEPROTECT_MODE_WP: u64 = 1 << 0;
const WRITEPROTECT_MODE_DONTWAKE: u64 = 1 << 1;

const CONTINUE_MODE_DONTWAKE: u64 = 1 << 0;
const CONTINUE_MODE_WP: u64 = 1 << 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
struct WriteProtect {
    start: u64,
    len: u64,
    mode: u64,
}

/// `struct uffdio_continue` and, with the same layout, `struct uffdio_zeropage` and `struct uffdio_poison`.
#[repr(C)]
struct Fill {
    start: u64,
    len: u64,
    mode: u64,
    done: i64,
}

const API: Opcode = opcode::read_write::<Api>(TYPE, 0x3F);
const REGISTER: Opcode = opcode::read_write::<Register>(TYPE, 0x00);
const WRITEPROTECT: Opcode = opcode::read_write::<WriteProtect>(TYPE, 0x06);
pub(super) const ZEROPAGE: Opcode = opcode::read_write::<Fill>(TYPE, 0x04);
pub(super) const POISON: Opcode = opcode::read_write::<Fill>(TYPE, 0x08);
const CONTINUE: Opcode = opcode::read_write::<Fill>(TYPE, 0x07);
const DEVICE_NEW: Opcode = opcode::none(TYPE, 0x00);

/// Makes a userfaultfd, or returns the errors of the device and of the system call.
pub type Opener = fn() -> Result<OwnedFd, (Os, Os)>;

/// Opens a userfaultfd for faults of user mode: from the device, which has permissions of its own, else by the system call, which needs
/// none since Linux 5.11.
///
/// # Errors
/// The errors of the device and of the system call.
pub fn open_userfaultfd() -> Result<OwnedFd, (Os, Os)> {
    open(UserfaultfdFlags::CLOEXEC.union(USER_MODE_ONLY))
}

/// As [`open_userfaultfd`], with other flags.
pub(super) fn open(flags: UserfaultfdFlags) -> Result<OwnedFd, (Os, Os)> {
    let by_device = || {
        use rustix::fs::{Mode, OFlags};
        let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: the opcode takes its flags by value and answers with a new descriptor.
        unsafe { rustix::ioctl::ioctl(&device, DeviceNew(flags.bits() as usize)) }.and_then(above_stdio)
    };
    by_device().or_else(|device| {
        // SAFETY: the descriptor is used by this crate alone, on ranges that it owns.
        unsafe { rustix::mm::userfaultfd(flags) }.and_then(above_stdio).map_err(|call| (device, call))
    })
}

struct DeviceNew(usize);

// SAFETY: the kernel reads no memory through the argument, which is a number; the output is a
// descriptor that nobody else owns.
unsafe impl Ioctl for DeviceNew {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        DEVICE_NEW
    }

    fn as_ptr(&mut self) -> *mut c_void {
        core::ptr::without_provenance_mut(self.0)
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: a success of this opcode is a fresh descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

/// Makes one call of the interface, which reads and writes `argument`.
///
/// # Safety
/// `CALL` takes a `T`. What it does to memory concerns ranges that the caller owns, where nobody holds a reference to what changes.
pub(super) unsafe fn call<const CALL: Opcode, T>(uffd: impl AsFd, argument: &mut T) -> Result<(), Os> {
    // SAFETY: this function's contract.
    unsafe { rustix::ioctl::ioctl(uffd, Updater::<CALL, T>::new(argument)) }
}

/// Agrees with the kernel on `features`; all of them, or the error `INVAL`.
pub(crate) fn agree(uffd: impl AsFd, features: u64) -> Result<u64, Os> {
    let mut api = Api { api: API_VERSION, features, ioctls: 0 };
    // SAFETY: the call takes an `Api`, and changes no memory.
    unsafe { call::<API, _>(uffd, &mut api) }?;
    Ok(api.features)
}

/// Routes the missing, minor and write-protect faults of a range to `uffd`.
///
/// The range must be owned by the caller: accesses to it will raise SIGBUS.
pub(super) fn register(uffd: impl AsFd, start: usize, bytes: usize) -> Result<(), Os> {
    let mode = REGISTER_MODE_MISSING | REGISTER_MODE_WP | REGISTER_MODE_MINOR;
    register_for(uffd, start, bytes, mode)
}

/// As [`register`], for the faults of `mode`.
pub(super) fn register_for(uffd: impl AsFd, start: usize, bytes: usize, mode: u64) -> Result<(), Os> {
    let mut register = Register { start: start as u64, len: bytes as u64, mode, ioctls: 0 };
    // SAFETY: the call takes a `Register`, and changes no memory.
    unsafe { call::<REGISTER, _>(uffd, &mut register) }
}

/// Blocks stores to the mapped pages of a range, or allows them again.
pub(crate) fn write_protect(uffd: impl AsFd, start: usize, bytes: usize, protect: bool) -> Result<(), Os> {
    let mut argument = WriteProtect {
        start: start as u64,
        len: bytes as u64,
        // Nobody sleeps on a fault in SIGBUS mode, so nobody need be woken. The kernel refuses DONTWAKE when protecting, where it would
        // mean nothing.
        mode: if protect { WRITEPROTECT_MODE_WP } else { WRITEPROTECT_MODE_DONTWAKE },
    };
    // SAFETY: the call takes a `WriteProtect`, and changes no byte.
    unsafe { call::<WRITEPROTECT, _>(uffd, &mut argument) }
}

/// Bytes that a call has done, and the error of the page after them unless all were.
pub(crate) type Done = (usize, Result<(), Os>);

/// Maps pages of the range that have memory, until one fails.
pub(super) fn resume(uffd: impl AsFd, start: usize, bytes: usize, protect: bool) -> Done {
    let mode = CONTINUE_MODE_DONTWAKE | if protect { CONTINUE_MODE_WP } else { 0 };
    fill::<CONTINUE>(uffd, start, bytes, mode)
}

/// Makes a call that maps pages which are missing.
pub(super) fn fill<const CALL: Opcode>(uffd: impl AsFd, start: usize, bytes: usize, mode: u64) -> Done {
    let mut argument = Fill { start: start as u64, len: bytes as u64, mode, done: 0 };
    // SAFETY: each such call takes a `Fill`; the pages are missing, so nobody has read them.
    let outcome = unsafe { call::<CALL, _>(uffd, &mut argument) };
    (done(bytes, argument.done, outcome), outcome)
}

/// On failure the kernel stores the bytes done before it, or the negated error.
pub(super) fn done(bytes: usize, done: i64, outcome: Result<(), Os>) -> usize {
    match outcome {
        Ok(()) => bytes,
        Err(_) => usize::try_from(done).map_or(0, |done| done.min(bytes)),
    }
}
