//! Memory that both processes have mapped: plain puts, looks at the placement, and what keeps the two in step.

use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::placement::quickest;
use crate::{Error, Order, PAGE_BYTES};

/// Words of the file's first page, in cache lines of their own.
const TURN: usize = 0;
const WAY: usize = 8;
const BYTES: usize = 16;
const TIMES: usize = 24;
const THERE: usize = 128;
const BACK: usize = 256;
const ANSWER: usize = 384;
const CREDIT: usize = 512;
const MET: [usize; 2] = [640, 768];
const DATAGRAMS: [usize; 2] = [896, 1024];
/// Orders that are no measurement.
const END: u64 = u64::MAX;
const LOOK: u64 = u64::MAX - 1;
/// As in `mapwire bench`.
const LOOK_PARTS: u64 = 8;
const LOOK_TIMES: u64 = 8;

/// What each process tells the other, behind the first page.
pub(crate) const EXCHANGE_BYTES: usize = 16_384;

pub(crate) struct Shared {
    start: *mut u8,
    rank: usize,
    room: usize,
    turn: Cell<u64>,
    met: Cell<u64>,
}

impl Shared {
    /// Maps the file, and makes it as long as it must be.
    pub(crate) fn map(path: &str, rank: usize, room: usize) -> Result<Self, Error> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        let room = room + PAGE_BYTES;
        let bytes = PAGE_BYTES + 2 * EXCHANGE_BYTES + 2 * room;
        file.set_len(bytes as u64)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel picks unused address space.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(Self { start: start.cast(), rank, room, turn: Cell::new(0), met: Cell::new(0) })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: callers stay within the mapping, which is never unmapped, at multiples of 8; all accesses are atomic.
        unsafe { &*self.start.add(offset).cast() }
    }

    fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    fn store(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// Where message `at` bytes into the memory of `rank` begins.
    fn inbox(&self, rank: usize, at: usize) -> usize {
        PAGE_BYTES + 2 * EXCHANGE_BYTES + rank * self.room + at
    }

    /// The plain put: memcpy, then a release store of the number behind it.
    #[inline(always)]
    pub(crate) fn put(&self, data: &[u8], at: usize, number: u64) {
        let to = self.inbox(1 - self.rank, at);
        assert!(at + data.len() + 8 <= self.room);
        // SAFETY: within the peer's memory, as just checked; the source is private.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start.add(to), data.len()) };
        self.store(to + data.len(), number);
    }

    /// Waits for a plain put.
    #[inline(always)]
    pub(crate) fn take(&self, bytes: usize, at: usize, number: u64) -> &[u8] {
        let from = self.inbox(self.rank, at);
        assert!(at + bytes + 8 <= self.room);
        while self.load(from + bytes) != number {}
        // SAFETY: within this process's memory; the message is complete, and the peer waits for the answer.
        unsafe { std::slice::from_raw_parts(self.start.add(from), bytes) }
    }

    /// Both have come here.
    pub(crate) fn meet(&self) {
        let times = self.met.get() + 1;
        self.met.set(times);
        self.store(MET[self.rank], times);
        while self.load(MET[1 - self.rank]) < times {}
    }

    /// Messages of a stream that have been read.
    pub(crate) fn credit(&self, number: u64) {
        self.store(CREDIT, number);
    }

    pub(crate) fn credits(&self) -> u64 {
        self.load(CREDIT)
    }

    /// Datagrams of the baseline that this process has taken.
    pub(crate) fn note_datagrams(&self, taken: u64) {
        self.store(DATAGRAMS[self.rank], taken);
    }

    /// Datagrams of the baseline that the other process has taken.
    pub(crate) fn datagrams_there(&self) -> u64 {
        self.load(DATAGRAMS[1 - self.rank])
    }

    /// Rank 0: says what to do, or that this is the end.
    pub(crate) fn order(&self, order: Option<Order>) {
        let order = order.unwrap_or(Order { way: END, bytes: 0, times: 0 });
        self.turn.set(self.turn.get() + 1);
        self.store(WAY, order.way);
        self.store(BYTES, order.bytes);
        self.store(TIMES, order.times);
        self.store(TURN, self.turn.get());
    }

    /// Rank 0: waits for the answer.
    pub(crate) fn gather(&self, idle: impl Fn()) {
        while self.load(ANSWER) < self.turn.get() {
            idle();
        }
    }

    /// Rank 1: the next order.
    pub(crate) fn next(&self, idle: impl Fn()) -> Option<Order> {
        loop {
            self.turn.set(self.turn.get() + 1);
            while self.load(TURN) < self.turn.get() {
                idle();
            }
            let order = Order { way: self.load(WAY), bytes: self.load(BYTES), times: self.load(TIMES) };
            if order.way != LOOK {
                return (order.way != END).then_some(order);
            }
            for turn in order.bytes + 1..=order.bytes + order.times {
                while self.load(THERE) < turn {}
                self.store(BACK, turn);
            }
            self.answer();
        }
    }

    pub(crate) fn answer(&self) {
        self.store(ANSWER, self.turn.get());
    }

    /// Rank 0: nanoseconds of a flag's round trip.
    pub(crate) fn look(&self, idle: impl Fn()) -> f64 {
        let base = self.load(THERE);
        self.order(Some(Order { way: LOOK, bytes: base, times: LOOK_PARTS * LOOK_TIMES }));
        let look_ns = quickest(LOOK_PARTS, LOOK_TIMES, |turn| {
            self.store(THERE, base + turn);
            while self.load(BACK) < base + turn {}
        });
        self.gather(idle);
        look_ns
    }

    /// Gives bytes to the other process, and gets its.
    pub(crate) fn exchange(&self, mine: &[u8], theirs: *mut u8) {
        let at = |rank| PAGE_BYTES + rank * EXCHANGE_BYTES;
        assert!(mine.len() <= EXCHANGE_BYTES);
        // SAFETY: within the mapping; `theirs` has room for all of it, as `peer.h` says.
        unsafe {
            ptr::copy_nonoverlapping(mine.as_ptr(), self.start.add(at(self.rank)), mine.len());
            self.meet();
            ptr::copy_nonoverlapping(self.start.add(at(1 - self.rank)), theirs, EXCHANGE_BYTES);
        }
        self.meet();
    }
}

/// Adds up the words of a message.
#[inline(always)]
pub(crate) fn sum(message: &[u8]) -> u64 {
    let words = message.chunks_exact(8);
    words.fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(word.try_into().unwrap_or_default())))
}
