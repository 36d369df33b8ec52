//! The board: one small memfd that every rank of a job maps.
//!
//! It answers three questions without a system call: is somebody polling in that rank (may I skip
//! the wake-up), has a rank come or gone, and does a message wait for me at the broker.
//!
//! Layout: one 128-byte line for the job (magic, version, number of ranks, `events`), then one
//! 128-byte line a rank: `polling` and `bell` in its first half, which senders read, `state`, `mail`
//! and `pid` in its second half, which the broker writes. How many threads poll is counted in the
//! process; only the first that begins and the last that ends store to the line, since senders'
//! processors have it.
//!
//! **Advisory only.** Every rank can write every word of the board, so each value is a hint. A wrong
//! one costs a needless wake-up or at most [`NAP`] of delay; it is never an index, a length or an
//! address. The file is sealed against shrinking, so that no peer can make a load fault.
//!
//! The doorbell rule (both sides need their fence; this is Dekker's pattern):
//! a sender publishes, then calls [`Board::ring`]; a sleeper calls [`Board::leave_polling`] and then
//! [`Board::sleep`], whose `recheck` looks at the rings once more after the fence.
//!
//! All methods may be called from a signal handler: they allocate nothing and take no lock. A rank
//! number outside the job reads as an absent rank, and writes to it do nothing.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

/// Longest uninterrupted sleep. A board that a hostile or broken rank scribbled on (a mark of
/// polling that stays, say) delays a wake-up by this much and no more.
pub const NAP: Duration = Duration::from_millis(200);

/// The largest job: what a board is willing to describe.
pub const MAX_RANKS: u32 = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"MWBD");
const VERSION: u32 = 2;

/// What the broker knows of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RankState {
    /// Has not joined yet.
    Absent,
    /// Has joined and, as far as the broker knows, runs.
    Joined,
    /// Has left, or ended with exit code 0.
    Left,
    /// Was killed, ended with another exit code, or closed its connection without leaving.
    Dead,
    /// Was stopped by a signal (SIGSTOP, SIGTSTP); it may continue.
    Stopped,
}

impl RankState {
    /// Whether nothing can come from this rank any more.
    #[must_use]
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Left | Self::Dead)
    }

    fn to_word(self) -> u32 {
        match self {
            Self::Absent => 0,
            Self::Joined => 1,
            Self::Left => 2,
            Self::Dead => 3,
            Self::Stopped => 4,
        }
    }

    /// A word that no broker writes reads as `Absent`: it proves nothing about the rank.
    fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Joined,
            2 => Self::Left,
            3 => Self::Dead,
            4 => Self::Stopped,
            _ => Self::Absent,
        }
    }
}

impl std::fmt::Display for RankState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Absent => "absent",
            Self::Joined => "joined",
            Self::Left => "left",
            Self::Dead => "dead",
            Self::Stopped => "stopped",
        })
    }
}

/// Why a board could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// The number of ranks is zero or above [`MAX_RANKS`].
    #[error("a job has 1 to {MAX_RANKS} ranks, not {0}")]
    Ranks(u32),
    /// The descriptor is not a board of this version.
    #[error("the board received from the broker is not usable: {0}")]
    Malformed(&'static str),
    /// The kernel refused.
    #[error("{call} for the board failed: {errno}")]
    Os {
        /// The system call.
        call: &'static str,
        /// What it answered.
        errno: Errno,
    },
}

#[repr(C, align(128))]
struct JobLine {
    magic: AtomicU32,
    version: AtomicU32,
    ranks: AtomicU32,
    events: AtomicU32,
}

#[repr(C, align(64))]
struct BellHalf {
    polling: AtomicU32,
    bell: AtomicU32,
}

#[repr(C, align(64))]
struct NewsHalf {
    state: AtomicU32,
    mail: AtomicU32,
    pid: AtomicU32,
}

#[repr(C, align(128))]
struct RankLine {
    bell: BellHalf,
    news: NewsHalf,
}

/// A mapped board. Shared by all threads of a rank; unmapped on drop.
#[derive(Debug)]
pub struct Board {
    base: NonNull<u8>,
    bytes: usize,
    ranks: u32,
    /// Threads of this process that poll.
    pollers: AtomicU32,
}

// SAFETY: the mapping is only ever read and written through atomics, and lives until drop.
unsafe impl Send for Board {}
// SAFETY: as above; no method needs exclusive access.
unsafe impl Sync for Board {}

fn bytes_for(ranks: u32) -> usize {
    let lines = size_of::<JobLine>() + ranks as usize * size_of::<RankLine>();
    lines.next_multiple_of(rustix::param::page_size())
}

fn os(call: &'static str) -> impl Fn(Errno) -> BoardError {
    move |errno| BoardError::Os { call, errno }
}

impl Board {
    /// Makes the board of a job, all ranks absent. The descriptor is what [`Board::open`] takes in
    /// the other processes; the memory lives as long as one mapping or descriptor does.
    ///
    /// # Errors
    /// A number of ranks out of range, or no memory or descriptor left.
    pub fn create(ranks: u32) -> Result<(Self, OwnedFd), BoardError> {
        if ranks == 0 || ranks > MAX_RANKS {
            return Err(BoardError::Ranks(ranks));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("mapwire-board", flags).map_err(os("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes_for(ranks) as u64).map_err(os("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(os("fcntl(F_ADD_SEALS)"))?;
        let board = Self::map(fd.as_fd(), ranks)?;
        let job = board.job();
        job.version.store(VERSION, Ordering::Relaxed);
        job.ranks.store(ranks, Ordering::Relaxed);
        job.magic.store(MAGIC, Ordering::Release);
        Ok((board, fd))
    }

    /// Maps a board made elsewhere. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// [`BoardError::Malformed`] if it is no memfd, is not sealed in size, or its size, magic,
    /// version and number of ranks do not fit together.
    pub fn open(fd: BorrowedFd<'_>) -> Result<Self, BoardError> {
        let seals = rustix::fs::fcntl_get_seals(fd)
            .map_err(|_| BoardError::Malformed("not a sealed memory file"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(BoardError::Malformed("its size is not sealed"));
        }
        let size = rustix::fs::fstat(fd).map_err(os("fstat"))?.st_size;
        let size = usize::try_from(size).unwrap_or(0);
        if size < bytes_for(1) || size > bytes_for(MAX_RANKS) {
            return Err(BoardError::Malformed("its size fits no job"));
        }
        let probe = Self::map(fd, 1)?;
        let job = probe.job();
        if job.magic.load(Ordering::Acquire) != MAGIC {
            return Err(BoardError::Malformed("wrong magic"));
        }
        if job.version.load(Ordering::Relaxed) != VERSION {
            return Err(BoardError::Malformed(
                "another version; launcher and program must come from the same mapwire release",
            ));
        }
        let ranks = job.ranks.load(Ordering::Relaxed);
        drop(probe);
        if ranks == 0 || ranks > MAX_RANKS || bytes_for(ranks) != size {
            return Err(BoardError::Malformed(
                "its size does not fit its number of ranks",
            ));
        }
        Self::map(fd, ranks)
    }

    fn map(fd: BorrowedFd<'_>, ranks: u32) -> Result<Self, BoardError> {
        let bytes = bytes_for(ranks);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }
        .map_err(os("mmap"))?;
        let base = NonNull::new(base.cast()).ok_or(BoardError::Malformed("mapped at zero"))?;
        Ok(Self {
            base,
            bytes,
            ranks,
            pollers: AtomicU32::new(0),
        })
    }

    fn job(&self) -> &JobLine {
        // SAFETY: the mapping is page-aligned, at least one page long and sealed in size; the line
        // consists of atomics only, for which any bit pattern is valid.
        unsafe { self.base.cast::<JobLine>().as_ref() }
    }

    fn line(&self, rank: u32) -> Option<&RankLine> {
        if rank >= self.ranks {
            return None;
        }
        let offset = size_of::<JobLine>() + rank as usize * size_of::<RankLine>();
        // SAFETY: `rank < ranks`, so offset + 128 <= bytes_for(ranks) == the mapping's length;
        // lines are atomics only, 128-byte aligned in a page-aligned mapping.
        Some(unsafe { self.base.add(offset).cast::<RankLine>().as_ref() })
    }

    /// Number of ranks in the job.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Counts the calling thread as one that polls for `rank`, which is this process's own: senders
    /// then skip the wake-up. Pair with [`Board::leave_polling`].
    #[inline]
    pub fn enter_polling(&self, rank: u32) {
        // A thread that begins while another ends may find its mark taken off again: it is rung for
        // nothing, no more.
        if self.pollers.fetch_add(1, Ordering::AcqRel) == 0
            && let Some(line) = self.line(rank)
        {
            // No fence: a sender that does not see the mark yet rings for nothing.
            line.bell.polling.store(1, Ordering::Release);
        }
    }

    /// Takes the calling thread off the count. What was published before is seen by a look at the
    /// rings after this call; what is published later rings the bell, if no other thread polls. Whether
    /// this contained a full fence, so that [`Board::hint`] will do for what was published before.
    #[inline]
    pub fn leave_polling(&self, rank: u32) -> bool {
        // The last one to leave comes after all that began, by the order of the count; so no mark
        // outlasts the threads.
        if self.pollers.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(line) = self.line(rank)
        {
            line.bell.polling.store(0, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            return true;
        }
        false
    }

    /// Whether some thread is said to poll for `rank`.
    #[must_use]
    #[inline]
    pub fn is_polling(&self, rank: u32) -> bool {
        self.line(rank)
            .is_some_and(|l| l.bell.polling.load(Ordering::Relaxed) != 0)
    }

    /// Tells `rank` that something was published for it. Contains the sender's fence; costs a
    /// system call only if nobody polls there. Returns whether it made that call.
    pub fn ring(&self, rank: u32) -> bool {
        fence(Ordering::SeqCst);
        self.hint(rank)
    }

    /// As [`Board::ring`] without its fence: for a caller that has made one since it published, or for a
    /// peer that looks again by itself, as at times it is not woken although it sleeps.
    pub fn hint(&self, rank: u32) -> bool {
        if rank >= self.ranks || self.is_polling(rank) {
            return false;
        }
        self.wake(rank);
        true
    }

    /// Rings the bell of `rank` whether or not somebody polls there: all its sleepers look again.
    pub fn wake(&self, rank: u32) {
        if let Some(line) = self.line(rank) {
            line.bell.bell.fetch_add(1, Ordering::SeqCst);
            let _ = futex::wake(&line.bell.bell, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Sleeps until `recheck` says that there is something to do, or `timeout` has passed (`None`:
    /// no limit). `recheck` runs before the first sleep, after each ring, and every [`NAP`]. Returns
    /// its last answer: `false` means that the time is over.
    ///
    /// The calling thread must not be counted as polling: call [`Board::leave_polling`] before, and
    /// [`Board::enter_polling`] after. A thread that never polls just sleeps.
    pub fn sleep(
        &self,
        rank: u32,
        mut recheck: impl FnMut() -> bool,
        timeout: Option<Duration>,
    ) -> bool {
        let Some(line) = self.line(rank) else {
            return recheck();
        };
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            let seen = line.bell.bell.load(Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if recheck() {
                return true;
            }
            let nap = match deadline {
                None => NAP,
                Some(end) => match end.checked_duration_since(Instant::now()) {
                    None | Some(Duration::ZERO) => return false,
                    Some(left) => left.min(NAP),
                },
            };
            let limit = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(nap.subsec_nanos()),
            };
            match futex::wait(&line.bell.bell, futex::Flags::empty(), seen, Some(&limit)) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                // No futex on this mapping, which no supported kernel answers: doze, don't spin.
                Err(_) => std::thread::sleep(Duration::from_millis(1).min(nap)),
            }
        }
    }

    /// What the broker last said of `rank`.
    #[must_use]
    pub fn state(&self, rank: u32) -> RankState {
        self.line(rank).map_or(RankState::Absent, |l| {
            RankState::from_word(l.news.state.load(Ordering::Acquire))
        })
    }

    /// Sets the state of `rank`; a change counts as an event and rings the bell of every rank.
    pub fn set_state(&self, rank: u32, state: RankState) {
        let Some(line) = self.line(rank) else { return };
        let word = state.to_word();
        if line.news.state.swap(word, Ordering::AcqRel) != word {
            self.job().events.fetch_add(1, Ordering::AcqRel);
            for other in 0..self.ranks {
                self.ring(other);
            }
        }
    }

    /// Changes of state in the job so far (wraps). Compare with the last value seen.
    #[must_use]
    pub fn events(&self) -> u32 {
        self.job().events.load(Ordering::Acquire)
    }

    /// Messages that the broker has queued for `rank` so far (wraps). Compare with the last value
    /// seen; on a difference, ask the rendezvous client.
    #[must_use]
    pub fn mail(&self, rank: u32) -> u32 {
        self.line(rank)
            .map_or(0, |l| l.news.mail.load(Ordering::Acquire))
    }

    /// Counts a message for `rank` and rings its bell. The broker's, after the message is queued.
    pub fn add_mail(&self, rank: u32) {
        if let Some(line) = self.line(rank) {
            line.news.mail.fetch_add(1, Ordering::AcqRel);
            self.ring(rank);
        }
    }

    /// Process id of `rank` as the kernel told the broker, 0 before it joined.
    #[must_use]
    pub fn pid(&self, rank: u32) -> u32 {
        self.line(rank)
            .map_or(0, |l| l.news.pid.load(Ordering::Relaxed))
    }

    /// Notes the process id of `rank`. The broker's.
    pub fn set_pid(&self, rank: u32, pid: u32) {
        if let Some(line) = self.line(rank) {
            line.news.pid.store(pid, Ordering::Relaxed);
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are what mmap gave, unmapped once; no reference into the
        // mapping outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn second_mapping(fd: &OwnedFd) -> Board {
        Board::open(fd.as_fd()).unwrap()
    }

    #[test]
    fn lines_are_128_bytes_and_halves_do_not_share_a_cache_line() {
        assert_eq!(size_of::<JobLine>(), 128);
        assert_eq!(size_of::<RankLine>(), 128);
        assert_eq!(std::mem::offset_of!(RankLine, news), 64);
    }

    #[test]
    fn what_one_mapping_writes_the_other_reads() {
        let (board, fd) = Board::create(3).unwrap();
        let other = second_mapping(&fd);
        assert_eq!(other.ranks(), 3);
        assert_eq!(other.state(2), RankState::Absent);
        board.set_state(2, RankState::Joined);
        board.set_pid(2, 77);
        board.add_mail(1);
        assert_eq!(other.state(2), RankState::Joined);
        assert_eq!(other.pid(2), 77);
        assert_eq!(other.mail(1), 1);
        assert_eq!(other.events(), 1);
        other.set_state(2, RankState::Joined);
        assert_eq!(board.events(), 1, "no change is no event");
    }

    #[test]
    fn a_job_of_no_ranks_or_absurdly_many_is_refused() {
        assert!(matches!(Board::create(0), Err(BoardError::Ranks(0))));
        assert!(matches!(
            Board::create(MAX_RANKS + 1),
            Err(BoardError::Ranks(_))
        ));
        assert!(Board::create(MAX_RANKS).is_ok());
    }

    #[test]
    fn a_rank_outside_the_job_reads_as_absent_and_cannot_be_written() {
        let (board, _fd) = Board::create(1).unwrap();
        board.set_state(1, RankState::Joined);
        board.set_state(u32::MAX, RankState::Joined);
        assert_eq!(board.state(1), RankState::Absent);
        assert_eq!(board.events(), 0);
        assert!(!board.ring(7));
        assert!(!board.sleep(7, || false, None));
    }

    #[test]
    fn a_sender_rings_only_when_nobody_polls() {
        let (board, _fd) = Board::create(2).unwrap();
        assert!(board.ring(1));
        board.enter_polling(1);
        assert!(!board.ring(1));
        board.enter_polling(1);
        board.leave_polling(1);
        assert!(!board.ring(1));
        board.leave_polling(1);
        assert!(board.ring(1));
    }

    #[test]
    fn a_sleeper_wakes_at_the_ring() {
        let (board, fd) = Board::create(2).unwrap();
        let board = Arc::new(board);
        let flag = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let (board, flag) = (second_mapping(&fd), flag.clone());
            std::thread::spawn(move || {
                let start = Instant::now();
                let woke = board.sleep(1, || flag.load(Ordering::Acquire), None);
                (woke, start.elapsed())
            })
        };
        std::thread::sleep(Duration::from_millis(20));
        flag.store(true, Ordering::Release);
        board.ring(1);
        let (woke, took) = sleeper.join().unwrap();
        assert!(woke);
        assert!(took < Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn sleep_gives_up_at_its_timeout() {
        let (board, _fd) = Board::create(1).unwrap();
        let start = Instant::now();
        assert!(!board.sleep(0, || false, Some(Duration::from_millis(30))));
        assert!(start.elapsed() >= Duration::from_millis(30));
        assert!(!board.sleep(0, || false, Some(Duration::ZERO)));
    }

    #[test]
    fn a_scribbled_mark_of_polling_delays_a_sleeper_but_does_not_hang_it() {
        let (board, fd) = Board::create(1).unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        board
            .line(0)
            .unwrap()
            .bell
            .polling
            .store(u32::MAX, Ordering::SeqCst);
        let sleeper = {
            let (board, flag) = (second_mapping(&fd), flag.clone());
            std::thread::spawn(move || board.sleep(0, || flag.load(Ordering::Acquire), None))
        };
        flag.store(true, Ordering::Release);
        assert!(!board.ring(0), "the mark says that somebody polls");
        assert!(sleeper.join().unwrap());
    }

    #[test]
    fn scribbled_words_read_as_hints_only() {
        let (board, fd) = Board::create(2).unwrap();
        let line = board.line(1).unwrap();
        line.news.state.store(99, Ordering::SeqCst);
        board.job().ranks.store(u32::MAX, Ordering::SeqCst);
        assert_eq!(board.state(1), RankState::Absent);
        assert_eq!(board.ranks(), 2);
        board.add_mail(1);
        assert!(matches!(
            Board::open(fd.as_fd()),
            Err(BoardError::Malformed(_))
        ));
    }

    #[test]
    fn an_unsealed_or_foreign_file_is_no_board() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("x", flags).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert!(matches!(
            Board::open(fd.as_fd()),
            Err(BoardError::Malformed(_))
        ));
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(
            Board::open(fd.as_fd()),
            Err(BoardError::Malformed("wrong magic"))
        ));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(Board::open(null.as_fd()).is_err());
    }
}
