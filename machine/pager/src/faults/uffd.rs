//! The userfaultfd of a pager: the calls that bring pages into a registered range and take them out, and the events of its faults.
//!
//! The pager orders the calls for each page: see [the crate](crate).

use std::os::fd::{AsFd, OwnedFd};

use mapwire_host::faults::uffd_abi::{
    self, Done, FEATURE_FAULT_FLAG_WP, Feature, REGISTER_MODE_MISSING, REGISTER_MODE_WP, TYPE, call, done, fill,
};
use rustix::io::Errno as Os;
use rustix::ioctl::{Opcode, opcode};
use rustix::mm::UserfaultfdFlags;

use crate::error::PagerError;

/// What a pager needs. The last of them came with Linux 6.8.
const FEATURES: [Feature; 5] = [
    Feature { bit: FEATURE_FAULT_FLAG_WP, name: "write protection", since: "5.7" },
    Feature { bit: 1 << 8, name: "the numbers of threads", since: "4.14" },
    Feature { bit: 1 << 11, name: "exact addresses", since: "5.18" },
    Feature { bit: 1 << 14, name: "UFFDIO_POISON", since: "6.6" },
    Feature { bit: 1 << 16, name: "UFFDIO_MOVE", since: "6.8" },
];

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
const ZEROPAGE: Opcode = opcode::read_write::<uffd_abi::Fill>(TYPE, 0x04);
const MOVE: Opcode = opcode::read_write::<Transfer>(TYPE, 0x05);
const POISON: Opcode = opcode::read_write::<uffd_abi::Fill>(TYPE, 0x08);

/// A page fault of a thread that sleeps until it is woken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) address: usize,
    /// Whether the access was a store.
    pub(crate) write: bool,
    /// Number of the thread that faulted.
    pub(crate) thread: u32,
}

/// Opens a userfaultfd that catches faults of system calls too. Reads from it do not block.
pub(crate) fn open() -> Result<OwnedFd, PagerError> {
    let uffd = uffd_abi::open(UserfaultfdFlags::CLOEXEC.union(UserfaultfdFlags::NONBLOCK))
        .map_err(|(device, call)| PagerError::UserfaultfdRefused { device: device.into(), call: call.into() })?;
    uffd_abi::agree_on(&uffd, &FEATURES).map_err(|(missing, errno)| match missing {
        Some(Feature { name, since, .. }) => PagerError::UserfaultfdTooOld { missing: name, since },
        None => PagerError::system("ioctl(UFFDIO_API)", 0, 0, errno),
    })?;
    Ok(uffd)
}

/// Routes missing faults of private memory to `uffd`, and write-protect faults if `protect`.
pub(crate) fn register(uffd: impl AsFd, start: usize, bytes: usize, protect: bool) -> Result<(), PagerError> {
    let protect = if protect { REGISTER_MODE_WP } else { 0 };
    uffd_abi::register(uffd, start, bytes, REGISTER_MODE_MISSING | protect)
        .map_err(|errno| PagerError::system("ioctl(UFFDIO_REGISTER)", start, bytes, errno))
}

/// Wakes the threads that sleep on a fault in the range. Fails only for memory that is no longer registered, where nobody sleeps.
pub(crate) fn wake(uffd: impl AsFd, start: usize, bytes: usize) {
    let mut range = Range { start: start as u64, len: bytes as u64 };
    // SAFETY: the call takes a `Range`, and changes no memory.
    let _ = unsafe { call::<WAKE, _>(uffd, &mut range) };
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
    // SAFETY: the call takes a `Fill`, of missing pages that the pager owns.
    unsafe { fill::<ZEROPAGE>(uffd, start, bytes, 0) }
}

/// Makes every access to missing pages raise SIGBUS from now on, and wakes who waits for them.
pub(crate) fn poison(uffd: impl AsFd, start: usize, bytes: usize) -> Done {
    // SAFETY: as in `zero`.
    unsafe { fill::<POISON>(uffd, start, bytes, 0) }
}

/// Reads the pending events, at most [`EVENTS`], and returns their number. Skips events other than page faults.
pub(crate) fn read_events(uffd: impl AsFd, events: &mut [Event; EVENTS]) -> Result<usize, Os> {
    let mut bytes = [0_u8; EVENTS * MESSAGE_BYTES];
    let read = rustix::io::read(uffd, &mut bytes)?;
    let mut count = 0;
    for message in bytes[..read].chunks_exact(MESSAGE_BYTES) {
        let (words, _) = message.as_chunks::<8>();
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        if message[0] == EVENT_PAGEFAULT {
            events[count] = Event {
                address: word(2) as usize,
                write: word(1) & (FAULT_WRITE | FAULT_WP) != 0,
                // Four bytes, and four of padding.
                thread: u32::from_ne_bytes([message[24], message[25], message[26], message[27]]),
            };
            count += 1;
        }
    }
    Ok(count)
}
