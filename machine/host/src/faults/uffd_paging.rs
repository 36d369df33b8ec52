//! The userfaultfd calls that bring pages into a registered range and take them out, and the events of its faults.
//!
//! The owner of a range orders the calls for each page; see [`paging`](crate::paging).

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno as Os;
use rustix::ioctl::{Opcode, opcode};
use rustix::mm::UserfaultfdFlags;

use super::uffd_abi::{
    Done, POISON, REGISTER_MODE_MISSING, REGISTER_MODE_WP, TYPE, ZEROPAGE, call, done, fill, open, register_for,
};

/// Events tell the thread that faulted.
pub(crate) const FEATURE_THREAD_ID: u64 = 1 << 8;
/// Events tell the exact address.
pub(crate) const FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
/// `UFFDIO_POISON`, Linux 6.6.
pub(crate) const FEATURE_POISON: u64 = 1 << 14;
/// `UFFDIO_MOVE`, Linux 6.8.
pub(crate) const FEATURE_MOVE: u64 = 1 << 16;

const EVENT_PAGEFAULT: u8 = 0x12;
const FAULT_WRITE: u64 = 1 << 0;
const FAULT_WP: u64 = 1 << 1;

/// Bytes of `struct uffd_msg`.
const MESSAGE_BYTES: usize = 32;

/// Events read by one call.
pub(crate) const EVENTS: usize = 16;

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

/// `struct uffdio_copy` and, with the same layout, `struct uffdio_move`.
#[repr(C)]
struct Transfer {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    done: i64,
}

const WAKE: Opcode = opcode::read::<Range>(TYPE, 0x02);
const COPY: Opcode = opcode::read_write::<Transfer>(TYPE, 0x03);
const MOVE: Opcode = opcode::read_write::<Transfer>(TYPE, 0x05);

/// A page fault of a thread that sleeps until it is woken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) address: usize,
    /// Whether the access was a store.
    pub(crate) write: bool,
    /// Thread that faulted; 0 if unknown.
    pub(crate) thread: u32,
}

/// Opens a userfaultfd that catches faults of system calls too. Reads from it do not block.
///
/// # Errors
/// The errors of the device and of the system call.
pub(crate) fn open_for_system_calls() -> Result<OwnedFd, (Os, Os)> {
    open(UserfaultfdFlags::CLOEXEC.union(UserfaultfdFlags::NONBLOCK))
}

/// Routes missing faults of private memory to `uffd`, and write-protect faults if `protect`.
pub(crate) fn register(uffd: impl AsFd, start: usize, bytes: usize, protect: bool) -> Result<(), Os> {
    let protect = if protect { REGISTER_MODE_WP } else { 0 };
    register_for(uffd, start, bytes, REGISTER_MODE_MISSING | protect)
}

/// Wakes the threads that sleep on a fault in the range.
pub(crate) fn wake(uffd: impl AsFd, start: usize, bytes: usize) -> Result<(), Os> {
    let mut range = Range { start: start as u64, len: bytes as u64 };
    // SAFETY: the call takes a `Range`, and changes no memory.
    unsafe { call::<WAKE, _>(uffd, &mut range) }
}

/// Gives missing pages at `to` copies of the bytes at `from`; wakes who waits for them.
pub(crate) fn copy(uffd: impl AsFd, to: usize, from: usize, bytes: usize) -> Done {
    transfer::<COPY>(uffd, to, from, bytes)
}

/// Moves the pages at `from` to the missing pages at `to`, without a copy; `from` is missing then. Wakes who waits for
/// pages at `to`. Both ranges are private memory of this process, and `to` is registered.
///
/// A page moves in one step: a store of another thread lands before it and moves along, or faults at `from`.
pub(crate) fn move_pages(uffd: impl AsFd, to: usize, from: usize, bytes: usize) -> Done {
    transfer::<MOVE>(uffd, to, from, bytes)
}

fn transfer<const CALL: Opcode>(uffd: impl AsFd, to: usize, from: usize, bytes: usize) -> Done {
    let mut argument = Transfer { to: to as u64, from: from as u64, len: bytes as u64, mode: 0, done: 0 };
    // SAFETY: the call takes a `Transfer`. Memory changes at ranges that the pager owns only: `to` is
    // missing, so nobody has read it, and what moves away from `from` nobody refers to.
    let outcome = unsafe { call::<CALL, _>(uffd, &mut argument) };
    (done(bytes, argument.done, outcome), outcome)
}

/// Maps the page of zeros at missing pages, and wakes who waits for them.
pub(crate) fn zero(uffd: impl AsFd, start: usize, bytes: usize) -> Done {
    fill::<ZEROPAGE>(uffd, start, bytes, 0)
}

/// Makes every access to missing pages raise SIGBUS from now on, and wakes who waits for them.
pub(crate) fn poison(uffd: impl AsFd, start: usize, bytes: usize) -> Done {
    fill::<POISON>(uffd, start, bytes, 0)
}

/// Reads the pending events, at most [`EVENTS`], and returns their number. Skips events other than page faults.
pub(crate) fn read_events(uffd: impl AsFd, events: &mut [Event; EVENTS]) -> Result<usize, Os> {
    let mut bytes = [0_u8; EVENTS * MESSAGE_BYTES];
    let read = rustix::io::read(uffd, &mut bytes)?;
    let mut count = 0;
    for message in bytes[..read].chunks_exact(MESSAGE_BYTES) {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&message[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        if message[0] == EVENT_PAGEFAULT {
            events[count] = Event {
                address: word(16) as usize,
                write: word(8) & (FAULT_WRITE | FAULT_WP) != 0,
                // Four bytes, and four of padding.
                thread: u32::from_ne_bytes([message[24], message[25], message[26], message[27]]),
            };
            count += 1;
        }
    }
    Ok(count)
}
