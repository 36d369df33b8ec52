//! The kernel's userfaultfd interface: numbers and structures of `linux/userfaultfd.h`, and one function for each call that views need.
//! The pager has those that move pages in and out.

use core::ffi::c_void;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use crate::descriptors::above_stdio;
use rustix::io::Errno as Os;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Updater, opcode};
use rustix::mm::UserfaultfdFlags;

/// The device that provides a userfaultfd to whoever may open it.
pub const DEVICE: &str = "/dev/userfaultfd";

/// Type of the interface's requests.
pub const TYPE: u8 = 0xAA;
const API_VERSION: u64 = 0xAA;

/// Faults of stores to pages that are write-protected.
pub const FEATURE_FAULT_FLAG_WP: u64 = 1 << 0;
pub(super) const FEATURE_MINOR_SHMEM: u64 = 1 << 10;

/// A userfaultfd that catches no faults of system calls, and so needs no privilege.
const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);

/// Catch faults of missing pages.
pub const REGISTER_MODE_MISSING: u64 = 1 << 0;
/// Catch stores to write-protected pages.
pub const REGISTER_MODE_WP: u64 = 1 << 1;
/// Catch faults of pages that have memory.
pub const REGISTER_MODE_MINOR: u64 = 1 << 2;

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
#[derive(Debug)]
pub struct Fill {
    start: u64,
    len: u64,
    mode: u64,
    done: i64,
}

const API: Opcode = opcode::read_write::<Api>(TYPE, 0x3F);
const REGISTER: Opcode = opcode::read_write::<Register>(TYPE, 0x00);
const WRITEPROTECT: Opcode = opcode::read_write::<WriteProtect>(TYPE, 0x06);
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
///
/// # Errors
/// As there.
pub fn open(flags: UserfaultfdFlags) -> Result<OwnedFd, (Os, Os)> {
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
pub unsafe fn call<const CALL: Opcode, T>(uffd: impl AsFd, argument: &mut T) -> Result<(), Os> {
    // SAFETY: this function's contract.
    unsafe { rustix::ioctl::ioctl(uffd, Updater::<CALL, T>::new(argument)) }
}

#[derive(Debug, Clone, Copy)]
pub struct Feature {
    pub bit: u64,
    pub name: &'static str,
    /// First version of Linux that has it.
    pub since: &'static str,
}

/// Agrees with the kernel on `features`; all of them, or the error `INVAL`. Returns those that it has.
pub(super) fn agree(uffd: impl AsFd, features: u64) -> Result<u64, Os> {
    let mut api = Api { api: API_VERSION, features, ioctls: 0 };
    // SAFETY: the call takes an `Api`, and changes no memory.
    unsafe { call::<API, _>(uffd, &mut api) }?;
    Ok(api.features)
}

/// Agrees with the kernel on features.
///
/// # Errors
/// The first feature that the kernel lacks, if that is the reason, and the kernel's error.
pub fn agree_on(uffd: impl AsFd, features: &[Feature]) -> Result<(), (Option<Feature>, Os)> {
    let wanted = features.iter().fold(0, |all, feature| all | feature.bit);
    let Err(errno) = agree(&uffd, wanted) else {
        return Ok(());
    };
    // Given no feature, the kernel reports what it has.
    let found = agree(&uffd, 0).map_err(|errno| (None, errno))?;
    Err((features.iter().find(|feature| found & feature.bit == 0).copied(), errno))
}

/// Routes the faults of a range to `uffd`, of the kinds in `mode`. The range must be owned by the caller: accesses to it wait for whoever
/// serves the faults, or raise SIGBUS.
///
/// # Errors
/// The kernel's.
pub fn register(uffd: impl AsFd, start: usize, bytes: usize, mode: u64) -> Result<(), Os> {
    let mut register = Register { start: start as u64, len: bytes as u64, mode, ioctls: 0 };
    // SAFETY: the call takes a `Register`, and changes no memory.
    unsafe { call::<REGISTER, _>(uffd, &mut register) }
}

/// Blocks stores to the mapped pages of a range, or allows them again.
///
/// # Errors
/// The kernel's; pages may have changed before it.
pub fn write_protect(uffd: impl AsFd, start: usize, bytes: usize, protect: bool) -> Result<(), Os> {
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
pub type Done = (usize, Result<(), Os>);

/// Maps pages of the range that have memory, until one fails.
pub(super) fn resume(uffd: impl AsFd, start: usize, bytes: usize, protect: bool) -> Done {
    let mode = CONTINUE_MODE_DONTWAKE | if protect { CONTINUE_MODE_WP } else { 0 };
    // SAFETY: the call takes a `Fill`.
    unsafe { fill::<CONTINUE>(uffd, start, bytes, mode) }
}

/// Makes a call that maps pages which are missing.
///
/// # Safety
/// `CALL` takes a [`Fill`], and the range is the caller's.
pub unsafe fn fill<const CALL: Opcode>(uffd: impl AsFd, start: usize, bytes: usize, mode: u64) -> Done {
    let mut argument = Fill { start: start as u64, len: bytes as u64, mode, done: 0 };
    // SAFETY: this function's contract; the pages are missing, so nobody has read them.
    let outcome = unsafe { call::<CALL, _>(uffd, &mut argument) };
    (done(bytes, argument.done, outcome), outcome)
}

/// Bytes that a call has done, by its answer: on failure the kernel stores the bytes done before it, or the negated error.
#[must_use]
pub fn done(bytes: usize, done: i64, outcome: Result<(), Os>) -> usize {
    match outcome {
        Ok(()) => bytes,
        Err(_) => usize::try_from(done).map_or(0, |done| done.min(bytes)),
    }
}
