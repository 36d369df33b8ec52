//! The board: two small memfds that every rank of a job maps, and a third for the memory that ranks of this host share.
//!
//! They answer three questions without a system call: does a thread of that rank poll (may I skip
//! the wake-up), has a rank come or gone, and does a message wait for me at the broker.
//!
//! * **The [bells](crate::bells)** hold a 128-byte line a rank: `polling`, two bells, and how often it opened the shared memory; and behind them a row of [`Figures`] a rank, for
//!   whoever looks. All ranks write them. How many
//!   threads poll is counted in the process; only the first that begins and the last that ends store to
//!   the line, since senders' processors have it.
//! * **The news** hold a 128-byte header (magic, version, number of ranks, `events`), then a 64-byte line a
//!   rank: `state`, `mail` and `pid`. The broker alone writes them: it maps the file, then seals it against
//!   future writes, so that the kernel lets no rank store there, whatever it does with the descriptor.
//!
//! **Trust.** A rank believes the news, which come from the broker alone. It believes nothing of the
//! bells: a wrong value costs a needless wake-up or at most [`NAP`] of delay; it is never an index, a length
//! or an address. Both files are sealed against shrinking, so that no peer can make a load fault.
//!
//! The doorbell rule (both sides need their fence; this is Dekker's pattern):
//! a sender publishes, then calls [`Board::ring`]; a sleeper calls [`Board::leave_polling`] and then
//! [`Board::sleep`], which marks its bell and whose `recheck` looks at the rings once more after the
//! fence.
//!
//! All methods may be called from a signal handler: they allocate nothing and take no lock. A rank
//! number outside the job reads as an absent rank, and writes to it do nothing.

mod figures;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use mapwire_host::limits::advice;
use mapwire_host::mapping::{Mapping, Rights};
use mapwire_host::memory::{MemoryError, Writers, memfd};
use mapwire_host::waiting::Woken;
use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::bells::{Bells, Sleeper, Slept, Wake, by_word};
pub use figures::{FIGURES, Figures};

/// Longest uninterrupted sleep. A board that a hostile or broken rank scribbled on (a mark of
/// polling that stays, say) delays a wake-up by this much and no more. In a job of more than 64 ranks it is longer by as much as there are
/// more: all together they wake for nothing no more often.
pub const NAP: Duration = Duration::from_millis(200);

/// Ranks of a job up to which a sleep is that long.
const RANKS_OF_A_NAP: u32 = 64;

/// The largest job: what a board is willing to describe.
pub const MAX_RANKS: u32 = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"MWBD");
const VERSION: u32 = 6;

/// State of a rank, as the broker knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RankState {
    /// Has not joined yet.
    Absent = 0,
    /// Has joined and, as far as the broker knows, runs.
    Joined = 1,
    /// Has left, or ended with exit code 0.
    Left = 2,
    /// Was killed, ended with another exit code, or closed its connection without leaving.
    Dead = 3,
    /// Was stopped by a signal (SIGSTOP, SIGTSTP); it may continue.
    Stopped = 4,
}

impl RankState {
    /// Whether nothing can come from this rank any more.
    #[must_use]
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Left | Self::Dead)
    }

    const ALL: [Self; 5] = [Self::Absent, Self::Joined, Self::Left, Self::Dead, Self::Stopped];

    fn from_word(word: u32) -> Self {
        Self::ALL.get(word as usize).copied().unwrap_or(Self::Absent)
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
    #[error("the board received from the launcher is not usable: {0}")]
    Malformed(&'static str),
    /// There is no memory for the board, or what came from the launcher is no memory of mapwire.
    #[error("no board: {0}")]
    Memory(#[from] MemoryError),
    #[error("{call} for the rendezvous failed: {errno}{}", advice(*.errno))]
    Os { call: &'static str, errno: Errno },
}

/// Bytes of a rank's line among the bells: two cache lines, as processors fetch them in pairs.
const BELL_LINE_BYTES: usize = 128;
/// Words of such a line, by their offset.
const POLLING: usize = 0;
const WAITING: usize = 4;
const SERVICE: usize = 8;
/// Far from the others, which change all the time.
const OPENINGS: usize = 64;

/// Bytes of the head of the news.
const HEAD_BYTES: usize = 128;
/// Words of the head.
const HEAD_MAGIC: usize = 0;
const HEAD_VERSION: usize = 4;
const HEAD_RANKS: usize = 8;
const HEAD_EVENTS: usize = 12;
/// Bytes of a rank's line of news.
const NEWS_LINE_BYTES: usize = 64;
/// Words of such a line.
const STATE: usize = 0;
const MAIL: usize = 4;
const PID: usize = 8;
const HOST: usize = 12;

/// The descriptors of a board, which [`Board::open`] takes in the ranks.
#[derive(Debug)]
pub struct BoardFiles {
    pub bells: OwnedFd,
    pub news: OwnedFd,
    /// Empty at first: the shared memory of the ranks of this host, which agree on it by themselves.
    pub segment: OwnedFd,
}

/// A mapped board. Shared by all threads of a rank; unmapped on drop.
#[derive(Debug)]
pub struct Board {
    bells: Mapping,
    /// For reading only, but in the [`BrokersBoard`].
    news: Mapping,
    segment: Option<OwnedFd>,
    ranks: u32,
    /// Threads of this process that poll.
    pollers: AtomicU32,
}

/// The broker's mapping of the board: the one that the news can be written through.
#[derive(Debug)]
pub struct BrokersBoard(Board);

fn bells_bytes(ranks: u32) -> usize {
    figures::bytes(ranks)
}

fn news_bytes(ranks: u32) -> usize {
    (HEAD_BYTES + ranks as usize * NEWS_LINE_BYTES).next_multiple_of(rustix::param::page_size())
}

impl From<crate::local::Failure> for BoardError {
    fn from((call, errno): crate::local::Failure) -> Self {
        Self::Os { call, errno }
    }
}

fn os(call: &'static str) -> impl Fn(Errno) -> BoardError {
    move |errno| BoardError::Os { call, errno }
}

impl BrokersBoard {
    /// Makes the board of a job with a rank on each of `hosts`, all ranks absent. The descriptors are what [`Board::open`] takes in
    /// the other processes; the memory lives as long as one mapping or descriptor does.
    ///
    /// # Errors
    /// A number of ranks out of range, or no memory or descriptor left.
    pub fn create(hosts: &[u32]) -> Result<(Self, BoardFiles), BoardError> {
        let ranks = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        if ranks == 0 || ranks > MAX_RANKS {
            return Err(BoardError::Ranks(ranks));
        }
        let bells = memfd::create("mapwire-bells", bells_bytes(ranks))?;
        memfd::finish(&bells, Writers::All)?;
        let news = memfd::create("mapwire-news", news_bytes(ranks))?;
        let segment = memfd::create_growing("mapwire-shared")?;
        let duplicate = |file: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(file, 3).map_err(os("fcntl(F_DUPFD_CLOEXEC)"));
        let board = Board {
            segment: Some(duplicate(&segment)?),
            bells: Mapping::foreign(bells.as_fd(), bells_bytes(ranks), Rights::ReadWrite).map_err(os("mmap"))?,
            news: Mapping::foreign(news.as_fd(), news_bytes(ranks), Rights::ReadWrite).map_err(os("mmap"))?,
            ranks,
            pollers: AtomicU32::new(0),
        };
        for (rank, host) in hosts.iter().enumerate() {
            let line = HEAD_BYTES + rank * NEWS_LINE_BYTES;
            board.news.word32(line + HOST).store(*host, Ordering::Relaxed);
        }
        // From now on the broker's mapping is the only one that can be written through.
        memfd::finish(&news, Writers::Present)?;
        let head = |word| board.news.word32(word);
        head(HEAD_VERSION).store(VERSION, Ordering::Relaxed);
        head(HEAD_RANKS).store(ranks, Ordering::Relaxed);
        head(HEAD_MAGIC).store(MAGIC, Ordering::Release);
        Ok((Self(board), BoardFiles { bells, news, segment }))
    }

    /// The board as a rank has it, for a process that is its own broker.
    #[must_use]
    pub fn into_board(self) -> Board {
        self.0
    }

    /// Sets the state of `rank`. That a rank goes counts as an event and rings the bell of every rank: nobody waits for other changes, and
    /// while many ranks join they would wake each other for nothing.
    pub fn set_state(&self, rank: u32, state: RankState) {
        let Some(line) = self.0.news_of(rank, STATE) else {
            return;
        };
        let word = state as u32;
        if line.swap(word, Ordering::AcqRel) != word && state.is_gone() {
            self.0.news.word32(HEAD_EVENTS).fetch_add(1, Ordering::AcqRel);
            for other in 0..self.0.ranks {
                self.0.ring(other);
            }
        }
    }

    /// Counts a message for `rank` and rings its bell. To be called after the message is queued.
    pub fn add_mail(&self, rank: u32) {
        if let Some(mail) = self.0.news_of(rank, MAIL) {
            mail.fetch_add(1, Ordering::AcqRel);
            self.0.ring(rank);
        }
    }

    /// Notes the process id of `rank`.
    pub fn set_pid(&self, rank: u32, pid: u32) {
        if let Some(word) = self.0.news_of(rank, PID) {
            word.store(pid, Ordering::Relaxed);
        }
    }
}

impl std::ops::Deref for BrokersBoard {
    type Target = Board;

    fn deref(&self) -> &Board {
        &self.0
    }
}

impl Board {
    /// Maps a board made elsewhere, for storing only the bells. The first two descriptors may be closed afterwards. Of the `segment` nothing is
    /// checked yet.
    ///
    /// # Errors
    /// [`BoardError::Memory`] for what [`memfd::verify`] refuses; [`BoardError::Malformed`] if the news could be written, or sizes, magic,
    /// version and number of ranks do not fit together.
    pub fn open(bells: BorrowedFd<'_>, news: BorrowedFd<'_>, segment: Option<OwnedFd>) -> Result<Self, BoardError> {
        let bytes = usize::try_from(memfd::verify(news, 0)?).unwrap_or(0);
        let seals = rustix::fs::fcntl_get_seals(news).map_err(os("fcntl(F_GET_SEALS)"))?;
        if !seals.contains(SealFlags::FUTURE_WRITE) {
            return Err(BoardError::Malformed("ranks could write its news"));
        }
        if bytes < news_bytes(1) || bytes > news_bytes(MAX_RANKS) {
            return Err(BoardError::Malformed("its size fits no job"));
        }
        let news = Mapping::shared(news, 0, bytes, Rights::Read).map_err(os("mmap"))?;
        let head = |word| news.word32(word).load(Ordering::Relaxed);
        if head(HEAD_MAGIC) != MAGIC {
            return Err(BoardError::Malformed("wrong magic"));
        }
        if head(HEAD_VERSION) != VERSION {
            return Err(BoardError::Malformed(
                "another version; launcher and program must come from the same mapwire release",
            ));
        }
        let ranks = head(HEAD_RANKS);
        if ranks == 0 || ranks > MAX_RANKS || news_bytes(ranks) != bytes {
            return Err(BoardError::Malformed("its size does not fit its number of ranks"));
        }
        if memfd::verify(bells, 0)? != bells_bytes(ranks) as u64 {
            return Err(BoardError::Malformed("the size of its bells does not fit its number of ranks"));
        }
        Ok(Self {
            bells: Mapping::foreign(bells, bells_bytes(ranks), Rights::ReadWrite).map_err(os("mmap"))?,
            news,
            segment,
            ranks,
            pollers: AtomicU32::new(0),
        })
    }

    /// The file of the memory that the ranks of this host share, if this process has it.
    #[must_use]
    pub fn segment(&self) -> Option<BorrowedFd<'_>> {
        self.segment.as_ref().map(AsFd::as_fd)
    }

    /// Whether all ranks are on one host.
    #[must_use]
    pub fn is_of_one_host(&self) -> bool {
        (1..self.ranks).all(|rank| self.host(rank) == self.host(0))
    }

    #[inline]
    fn bell_of(&self, rank: u32, word: usize) -> Option<&AtomicU32> {
        (rank < self.ranks).then(|| self.bells.word32(rank as usize * BELL_LINE_BYTES + word))
    }

    fn bells_of(&self, rank: u32) -> Option<Bells<'_>> {
        Some(Bells {
            polling: self.bell_of(rank, POLLING)?,
            waiting: self.bell_of(rank, WAITING)?,
            service: self.bell_of(rank, SERVICE)?,
        })
    }

    /// Shows how often `rank`, which is this process's own, has opened the shared memory.
    pub fn show_openings(&self, rank: u32, count: u32) {
        if let Some(word) = self.bell_of(rank, OPENINGS) {
            word.store(count, Ordering::Relaxed);
        }
    }

    /// How often `rank` has opened the shared memory, by its own claim.
    #[must_use]
    pub fn openings(&self, rank: u32) -> u32 {
        let word = self.bell_of(rank, OPENINGS);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// A word of a rank's news; of a rank's board it may only be loaded, and relaxed.
    #[inline]
    fn news_of(&self, rank: u32, word: usize) -> Option<&AtomicU32> {
        let line = HEAD_BYTES + rank as usize * NEWS_LINE_BYTES;
        (rank < self.ranks).then(|| self.news.word32(line + word))
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
            && let Some(polling) = self.bell_of(rank, POLLING)
        {
            // No fence: a sender that does not see the mark yet rings for nothing.
            polling.store(1, Ordering::Release);
        }
    }

    /// Sets the mark anew that the calling thread has set by [`Board::enter_polling`]: a store brings the line here, and nobody waits for it.
    #[inline]
    pub fn keep_polling(&self, rank: u32) {
        if let Some(polling) = self.bell_of(rank, POLLING) {
            polling.store(1, Ordering::Relaxed);
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
            && let Some(polling) = self.bell_of(rank, POLLING)
        {
            polling.store(0, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            return true;
        }
        false
    }

    /// Whether a thread of this process polls.
    #[inline]
    #[must_use]
    pub fn is_polling(&self) -> bool {
        self.pollers.load(Ordering::Relaxed) > 0
    }

    /// Tells `rank` that something was published for it. Contains the sender's fence; costs a
    /// system call only if nobody polls there and somebody sleeps. Returns whether it woke anybody.
    pub fn ring(&self, rank: u32) -> bool {
        fence(Ordering::SeqCst);
        self.hint(rank)
    }

    /// As [`Board::ring`] without its fence: for a caller that has made one since it published, or for a
    /// peer that looks again by itself, as at times it is not woken although it sleeps.
    pub fn hint(&self, rank: u32) -> bool {
        self.bells_of(rank).is_some_and(|bells| bells.ring())
    }

    /// Wakes a thread of `rank` that sleeps while it waits, for what will soon be published: [`Board::ring`] is to follow then. Returns whether
    /// it woke anybody.
    pub fn rouse(&self, rank: u32) -> bool {
        self.bells_of(rank).is_some_and(|bells| bells.rouse())
    }

    /// Wakes sleepers of `rank`, whether or not somebody polls there: all of `who` look again.
    pub fn wake(&self, rank: u32, who: Wake) {
        if let Some(bells) = self.bells_of(rank) {
            bells.wake(who);
        }
    }

    /// How often the service thread of `rank` was rung or woken so far, in some unit (wraps). Compare with the last value seen.
    #[must_use]
    pub fn service_rings(&self, rank: u32) -> u32 {
        self.bells_of(rank).map_or(0, |bells| bells.service_rings())
    }

    /// Sleeps until `recheck` says that there is something to do, or `timeout` has passed (`None`:
    /// no limit). `recheck` runs before the first sleep, after each ring, and after each nap, which last
    /// as long as `nap` says: [`NAP`] at most. It is told whether a nap is over and nobody has rung. Reads the clock only with a
    /// timeout.
    ///
    /// The calling thread must not be counted as polling: call [`Board::leave_polling`] before, and
    /// [`Board::enter_polling`] after. A thread that never polls just sleeps. What a sender publishes
    /// during the last look or later may ring nobody, which [`Slept::was_rung`] says: look once more then.
    pub fn sleep(
        &self,
        rank: u32,
        sleeper: Sleeper,
        recheck: impl FnMut(bool) -> bool,
        timeout: Option<Duration>,
        nap: impl FnMut() -> Duration,
    ) -> Slept {
        self.sleep_by(by_word, rank, sleeper, recheck, timeout, nap)
    }

    /// As [`Board::sleep`]; `wait` sleeps while the bell has that value, for so long at most, and may wake for more than a ring.
    pub(crate) fn sleep_by(
        &self,
        wait: impl FnMut(&AtomicU32, u32, Duration) -> Woken,
        rank: u32,
        sleeper: Sleeper,
        mut recheck: impl FnMut(bool) -> bool,
        timeout: Option<Duration>,
        mut nap: impl FnMut() -> Duration,
    ) -> Slept {
        match self.bells_of(rank) {
            Some(bells) => {
                let longest = NAP * (self.ranks / RANKS_OF_A_NAP).max(1);
                let nap = || Some(nap()).filter(|nap| *nap < NAP).unwrap_or(longest);
                bells.sleep(sleeper, recheck, timeout, nap, wait)
            }
            None => Slept { found: recheck(false), was_rung: true },
        }
    }

    /// State of `rank`, as the broker last set it.
    #[must_use]
    pub fn state(&self, rank: u32) -> RankState {
        // Behind a look at `events`, the state of that event is seen, or a later one.
        fence(Ordering::Acquire);
        self.news_of(rank, STATE).map_or(RankState::Absent, |word| RankState::from_word(word.load(Ordering::Relaxed)))
    }

    /// Changes of state in the job so far (wraps). Compare with the last value seen.
    #[must_use]
    pub fn events(&self) -> u32 {
        self.news.word32(HEAD_EVENTS).load(Ordering::Relaxed)
    }

    /// Messages that the broker has queued for `rank` so far (wraps). Compare with the last value
    /// seen; on a difference, ask the rendezvous client.
    #[must_use]
    pub fn mail(&self, rank: u32) -> u32 {
        self.news_of(rank, MAIL).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Number of the host that `rank` is on; never changes.
    #[must_use]
    pub fn host(&self, rank: u32) -> u32 {
        self.news_of(rank, HOST).map_or(u32::MAX, |word| word.load(Ordering::Relaxed))
    }

    /// Process id of `rank` as the kernel told the broker, 0 before it joined.
    #[must_use]
    pub fn pid(&self, rank: u32) -> u32 {
        self.news_of(rank, PID).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
