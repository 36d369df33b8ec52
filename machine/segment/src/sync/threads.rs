//! The table of threads that hold or wait: a line a thread, from its first use to its end.
//!
//! A thread's number is that of its line and how often the line was given, so that a number in a lock tells also that its thread has
//! given its line back. Lines are given in turn: what a line says of an ended thread stays for a while.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use mapwire_host::own_words::OwnWord;
use mapwire_host::processes::Owner;

use crate::layout::{FREED_BYTE, THREADS_AT, THREADS_BYTES};
use crate::segment::Segment;
use crate::sync::error::{SyncError, Who};
use crate::sync::living::Identity;

const LINE_BYTES: u64 = 64;
const LINES: u64 = THREADS_BYTES / LINE_BYTES;
const LINE_BITS: u32 = 15;
const _: () = assert!(LINES == 1 << LINE_BITS);

/// The bits of a number.
pub(crate) const NUMBER: u32 = (1 << 30) - 1;
/// What the heap fills freed memory with where it is debugged, and what a destroyed object says.
pub const FREED: u32 = u32::from_ne_bytes([FREED_BYTE; 4]);

/// Words of a line. The first: how often it was given, and in the lowest bit whether it is.
const GIVEN: u64 = 0;
/// In the first word: a thread has taken the line, and says who it is; the line is not given yet. If it ends then, the line is lost.
const FILLING: u64 = 1 << 63;
const PID_TID: u64 = 8;
/// The rank, and the namespace of the numbers.
const RANK_SPACE: u64 = 16;
const STARTED: u64 = 24;
/// Address of the object that it waits for, or 0.
const WAITS: u64 = 32;
/// Offsets of reader-writer locks that it reads, or 0; with the lowest bit: that it is about to.
const READS: [u64; 3] = [40, 48, 56];
/// In the first line, which is nobody's: the line to try next.
const NEXT: u64 = 0;

thread_local! {
    /// For which opening of which memory this thread has a number, and the number.
    static MINE: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// How many locks this thread reads without a note, at most.
    static UNNOTED: Cell<usize> = const { Cell::new(0) };
    static LINES_HELD: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// A line of the calling thread, given back at its end.
struct Line {
    segment: Weak<Segment>,
    owner: Owner,
    life: u32,
    number: u32,
    given: u64,
    /// Locks that the thread reads without a note of it in the line, because it reads too many at a time.
    unnoted: Vec<u64>,
}

impl Drop for Line {
    fn drop(&mut self) {
        // A forked child must not give back what its parent has.
        if self.owner.is_me()
            && let Some(segment) = self.segment.upgrade()
            && let Some(word) = segment.word64(at(self.number, GIVEN))
        {
            let _ = word.compare_exchange(self.given, self.given & !1, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

fn at(number: u32, word: u64) -> u64 {
    THREADS_AT + u64::from(number) % LINES * LINE_BYTES + word
}

/// The threads of a segment.
#[derive(Debug)]
pub(crate) struct Threads {
    segment: Arc<Segment>,
    rank: u32,
    /// Differs for each opening of a memory in each process: 0 in a child that was forked since.
    life: OwnWord,
}

impl Threads {
    pub(crate) fn new(segment: Arc<Segment>, rank: u32) -> Result<Self, SyncError> {
        let mut words = OwnWord::several(1).map_err(crate::SegmentError::from)?;
        let life = words.swap_remove(0);
        Ok(Self { segment, rank, life })
    }

    #[inline]
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The number of the calling thread: not 0, and within [`NUMBER`].
    #[inline]
    pub(crate) fn me(&self) -> Result<u32, SyncError> {
        let (life, number) = MINE.get();
        if life == self.life.load(Ordering::Relaxed) && life != 0 { Ok(number) } else { self.enter() }
    }

    #[cold]
    fn enter(&self) -> Result<u32, SyncError> {
        /// A forked child continues from its parent's.
        static LAST: AtomicU32 = AtomicU32::new(0);
        let life = match self.life.load(Ordering::Relaxed) {
            0 => {
                let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
                self.life
                    .compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|life| life, |_| next)
            }
            life => life,
        };
        let held = LINES_HELD.try_with(|lines| {
            let mut lines = lines.borrow_mut();
            lines.retain(|line| line.owner.is_me() && line.segment.strong_count() > 0);
            lines.iter().find(|line| line.life == life).map(|line| line.number)
        });
        let number = match held {
            Ok(Some(number)) => number,
            _ => self.take_line(life)?,
        };
        MINE.set((life, number));
        Ok(number)
    }

    fn take_line(&self, life: u32) -> Result<u32, SyncError> {
        let mine = Identity::mine();
        let next = self.word(0, NEXT);
        // Free lines first: looking whether a thread lives takes a while.
        for takes_dead in [false, true] {
            for _ in 1..LINES {
                let line = next.fetch_add(1, Ordering::Relaxed) % (LINES - 1) + 1;
                let word = self.word(line as u32, GIVEN);
                let seen = word.load(Ordering::Acquire);
                if seen & FILLING != 0 || seen & 1 == 1 && !(takes_dead && self.identity(line as u32).has_ended(&mine))
                {
                    continue;
                }
                // The lock learns from this line that its reader has ended.
                if READS.iter().any(|&read| self.get(line as u32, read) != 0) {
                    continue;
                }
                let given = (seen | 1).wrapping_add(2) & !FILLING;
                let number = ((given >> 1) << LINE_BITS) as u32 & NUMBER | line as u32;
                // Numbers that could be taken for something else are left out: the next gift of the line has another.
                let is_odd_one = number == FREED & NUMBER;
                let given = if is_odd_one { given.wrapping_add(2) & !FILLING } else { given };
                let number = if is_odd_one { (number + (1 << LINE_BITS)) & NUMBER } else { number };
                let filling = given & !1 | FILLING;
                if word.compare_exchange(seen, filling, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    self.fill(number, &mine);
                    word.store(given, Ordering::Release);
                    let line = Line {
                        segment: Arc::downgrade(&self.segment),
                        owner: Owner::me(),
                        life,
                        number,
                        given,
                        unnoted: Vec::new(),
                    };
                    let mut line = Some(line);
                    let _ = LINES_HELD.try_with(|lines| lines.borrow_mut().extend(line.take()));
                    // At the thread's very end nothing gives it back: whoever needs it finds the thread dead.
                    core::mem::forget(line);
                    return Ok(number);
                }
            }
        }
        Err(SyncError::TooManyThreads(LINES - 1))
    }

    fn fill(&self, number: u32, mine: &Identity) {
        let put = |word, value| self.word(number, word).store(value, Ordering::Relaxed);
        put(PID_TID, u64::from(mine.tid) << 32 | u64::from(mine.pid));
        put(RANK_SPACE, u64::from(mine.space) << 32 | u64::from(self.rank));
        put(STARTED, mine.started);
        put(WAITS, 0);
    }

    fn word(&self, number: u32, word: u64) -> &AtomicU64 {
        self.segment.word64(at(number, word)).expect("the tables of a segment are always in use")
    }

    fn get(&self, number: u32, word: u64) -> u64 {
        self.word(number, word).load(Ordering::Relaxed)
    }

    fn identity(&self, number: u32) -> Identity {
        let pid_tid = self.get(number, PID_TID);
        Identity {
            pid: pid_tid as u32,
            tid: (pid_tid >> 32) as u32,
            started: self.get(number, STARTED),
            space: (self.get(number, RANK_SPACE) >> 32) as u32,
        }
    }

    /// Who has a number, as far as known: a number that has been given again is an unknown thread's.
    pub(crate) fn who(&self, number: u32) -> Who {
        let Identity { pid, tid, .. } = self.identity(number);
        let rank = self.get(number, RANK_SPACE) as u32;
        let is_last = self.get(number, GIVEN) >> 1 & u64::from(NUMBER >> LINE_BITS) == u64::from(number >> LINE_BITS);
        if is_last { Who { rank, pid, tid } } else { Who { rank: 0, pid: 0, tid: 0 } }
    }

    /// The thread of a number, if it has ended.
    pub(crate) fn ended(&self, number: u32) -> Option<Who> {
        let who = self.who(number);
        let is_given = self.get(number, GIVEN) & 1 == 1;
        let has_ended = who.pid == 0 || !is_given || self.identity(number).has_ended(&Identity::mine());
        has_ended.then_some(who)
    }

    /// Shows for messages what the calling thread waits for: an address, or 0.
    pub(crate) fn show_wait(&self, number: u32, address: usize) {
        self.word(number, WAITS).store(address as u64, Ordering::Relaxed);
    }

    /// All threads that wait, and the addresses of what they wait for.
    pub(crate) fn waiting(&self) -> Vec<(Who, usize)> {
        let given = self.lines().filter(|&line| self.get(line, GIVEN) & 1 == 1 && self.get(line, WAITS) != 0);
        given
            .map(|line| {
                let Identity { pid, tid, .. } = self.identity(line);
                (Who { rank: self.get(line, RANK_SPACE) as u32, pid, tid }, self.get(line, WAITS) as usize)
            })
            .collect()
    }

    /// Lines that were ever given.
    fn lines(&self) -> impl Iterator<Item = u32> {
        let tried = self.word(0, NEXT).load(Ordering::Relaxed).saturating_add(1).min(LINES);
        1..tried as u32
    }

    /// Uses the calling thread's list of the locks that it reads without a note; its line is given back with it, and a forked child has
    /// another. `None`: the thread is at its very end.
    pub(crate) fn with_unnoted<R>(&self, body: impl FnOnce(&mut Vec<u64>) -> R) -> Option<R> {
        let life = self.life.load(Ordering::Relaxed);
        let in_lines = |lines: &RefCell<Vec<Line>>| {
            let mut lines = lines.borrow_mut();
            let line = lines.iter_mut().find(|line| line.life == life && line.owner.is_me())?;
            let result = body(&mut line.unnoted);
            UNNOTED.set(lines.iter().map(|line| line.unnoted.len()).sum());
            Some(result)
        };
        LINES_HELD.try_with(in_lines).ok().flatten()
    }

    /// Whether the calling thread reads the lock at `offset` without a note.
    #[inline]
    pub(crate) fn reads_unnoted(&self, offset: u64) -> bool {
        UNNOTED.get() > 0 && self.with_unnoted(|unnoted| unnoted.contains(&offset)) == Some(true)
    }

    /// Where thread `number` notes that it reads a lock; `None`: it reads as many as are noted.
    #[inline]
    pub(crate) fn free_note(&self, number: u32) -> Option<&AtomicU64> {
        self.note(number, 0)
    }

    /// The note of thread `number` with this content.
    #[inline]
    pub(crate) fn note(&self, number: u32, content: u64) -> Option<&AtomicU64> {
        READS.iter().map(|&read| self.word(number, read)).find(|word| word.load(Ordering::Relaxed) == content)
    }

    /// A thread that has ended as a reader of the lock at `offset`: its number, and who it was.
    pub(crate) fn ended_reader(&self, offset: u64) -> Option<(u32, Who)> {
        let reads = |line: &u32| READS.iter().any(|&read| self.get(*line, read) & !1 == offset);
        let number = |line: u32| (self.get(line, GIVEN) >> 1 << LINE_BITS) as u32 & NUMBER | line;
        self.lines().filter(reads).find_map(|line| Some((number(line), self.ended(number(line))?)))
    }
}
