//! The shape of the shared memory: the same in every rank except for `rank`.

use crate::{Protocol, Rank};
use thiserror::Error;

/// Most ranks of a job.
pub const MAX_RANKS: u16 = 1024;
/// Most views of the segment.
pub const MAX_VIEWS: u16 = 512;
/// Most pages of the segment: 1 TiB.
pub const MAX_PAGES: u32 = 1 << 28;

/// Most pages of which a rank has prefetches outstanding: [`Dsm::prefetch`](crate::Dsm::prefetch).
pub const MAX_PREFETCHES: u16 = 16;
/// Most pages that a rank fetches ahead of its accesses at a time, under [`Protocol::Hlrc`].
pub const MAX_PAGES_AHEAD: u16 = 512;

/// Consecutive views, those from a multiple of it on, of which minipages that start on one page are prefetched together.
pub(crate) const SET: u16 = 64;

/// Most outstanding requests of all ranks.
pub(crate) const MAX_REQUESTS: u32 = (1 << 20) - 1;

/// The shape of the shared memory and the sizes of its tables. All ranks must agree on all fields but `rank`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Number of this rank.
    pub rank: Rank,
    /// Ranks of the job, 1 to 1,024.
    pub ranks: u16,
    /// Most application threads of a rank that use the shared memory.
    pub threads: u16,
    /// Threads of each rank that must arrive at a barrier; 1 to `threads`.
    pub participants: u16,
    /// Pages of 4 KiB in the segment.
    pub pages: u32,
    /// Application views, 1 to 512: the most minipages that share a page.
    pub views: u16,
    /// Number of locks.
    pub locks: u32,
    /// Number of barriers.
    pub barriers: u32,
    /// Synchronisation objects that are in use at a time in each home, counting each thread that reads a lock: see
    /// [`Dsm::call_object`](crate::Dsm::call_object).
    pub objects: u32,
    /// Pages that rank 0 gives a rank at a time for its small allocations.
    pub chunk_pages: u32,
    /// How long a thread keeps a minipage that it was just granted while others want it, so that it can finish the access that faulted; 0:
    /// not at all. See [`Dsm::release_holds`](crate::Dsm::release_holds).
    pub hold_ns: u64,
    /// Under [`Protocol::Minipages`], whether read faults of a thread a constant stride apart bring what follows ahead of it, to be read.
    /// Papers' figures and traces that show each fault want it off.
    pub read_ahead: bool,
    /// How often threads of one rank may pass a lock to each other while another rank waits for it.
    pub lock_local_passes: u8,
    /// Protocol of allocations that name none.
    pub protocol: Protocol,
    /// Under [`Protocol::Hlrc`], pages of a rank of which it keeps twins at a time, at least 2 for each thread and 2: when all are in use,
    /// what was written so far is sent to the homes.
    pub twins: u32,
    /// Under [`Protocol::Hlrc`], write notices that a rank keeps for others, at least 128 and 4 for each rank. When there is room for no
    /// more, it forgets which pages were written, and ranks that synchronise with it fetch all that they use.
    pub notices: u32,
    /// Under [`Protocol::Hlrc`], how many times in a row one rank alone must have changed a page before the page's home moves there; 0:
    /// homes stay.
    pub home_moves_after: u16,
    /// Under [`Protocol::Hlrc`], whether to look for writes that no synchronisation orders ([`Dsm::poll_race`](crate::Dsm::poll_race)).
    /// That costs a message for each diff.
    pub finds_races: bool,
}

impl Config {
    /// Default number of locks.
    pub const LOCKS: u32 = 4096;
    /// Default number of barriers.
    pub const BARRIERS: u32 = 256;
    /// Default number of objects of a home.
    pub const OBJECTS: u32 = 1 << 16;

    /// One barrier participant a rank, 4096 locks, 256 barriers, 65,536 objects a home, chunks of up to 256 pages, holds of 5 µs, read-ahead,
    /// 4 local lock passes; minipages.
    /// If lazy, 4096 twins, 16,384 notices, and homes that move after 4 intervals.
    pub fn new(rank: Rank, ranks: u16, threads: u16, pages: u32, views: u16) -> Self {
        let share = pages / u32::from(ranks.max(1)) / 4;
        Config {
            rank,
            ranks,
            threads,
            participants: 1,
            pages,
            views,
            locks: Self::LOCKS,
            barriers: Self::BARRIERS,
            objects: Self::OBJECTS,
            chunk_pages: share.clamp(1, 256),
            hold_ns: 5_000,
            read_ahead: true,
            lock_local_passes: 4,
            protocol: Protocol::Minipages,
            twins: 4096.max(least_twins(threads)),
            notices: 16_384,
            home_moves_after: 8,
            finds_races: false,
        }
    }

    /// Most outstanding requests of a rank: one for each thread, and the prefetches.
    pub(crate) fn requests(&self) -> u16 {
        self.threads + SET * self.sets()
    }

    /// Sets of minipages of which a rank may have prefetches outstanding: fewer in a job of many ranks and threads.
    pub(crate) fn sets(&self) -> u16 {
        ((max_requests(self.ranks) - self.threads) / SET).min(MAX_PREFETCHES)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.ranks == 0 || self.ranks > MAX_RANKS {
            return Err(ConfigError::Ranks(self.ranks));
        }
        if self.rank >= self.ranks {
            return Err(ConfigError::Rank { rank: self.rank, ranks: self.ranks });
        }
        if self.threads == 0 || self.threads > max_threads(self.ranks) {
            return Err(ConfigError::Threads { threads: self.threads, ranks: self.ranks });
        }
        if self.participants == 0 || self.participants > self.threads {
            return Err(ConfigError::Participants { participants: self.participants, threads: self.threads });
        }
        if self.pages == 0 || self.pages > MAX_PAGES {
            return Err(ConfigError::Pages(self.pages));
        }
        if self.views == 0 || self.views > MAX_VIEWS {
            return Err(ConfigError::Views(self.views));
        }
        if self.chunk_pages == 0 {
            return Err(ConfigError::ChunkPages);
        }
        if self.barriers == u32::MAX {
            return Err(ConfigError::Barriers);
        }
        if self.protocol == Protocol::Minipages {
            return Ok(());
        }
        let (twins, notices) = (least_twins(self.threads), least_notices(self.ranks));
        if self.twins < twins {
            return Err(ConfigError::Twins { twins: self.twins, least: twins });
        }
        if self.notices < notices {
            return Err(ConfigError::Notices { notices: self.notices, least: notices });
        }
        Ok(())
    }
}

/// Most threads of a rank for which all outstanding requests of the job can be numbered.
fn max_threads(ranks: u16) -> u16 {
    max_requests(ranks) - SET
}

/// Most requests of a rank for which all outstanding ones of the job can be numbered.
fn max_requests(ranks: u16) -> u16 {
    (MAX_REQUESTS / u32::from(ranks)).min(u32::from(u16::MAX) - 1) as u16
}

/// Twins that an instruction of each thread needs, which touches two pages, and to merge what one of them fetches.
fn least_twins(threads: u16) -> u32 {
    2 * u32::from(threads) + 2
}

/// Write notices into which all that a rank knows can be condensed, and those of a message.
fn least_notices(ranks: u16) -> u32 {
    128 + 4 * u32::from(ranks)
}

/// Why a shape is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No ranks, or too many.
    #[error("{0} ranks: the shared memory serves 1 to {MAX_RANKS}")]
    Ranks(u16),
    /// This rank is outside the job.
    #[error("rank {rank} is outside a job of {ranks} ranks")]
    Rank {
        rank: Rank,
        /// Ranks of the job.
        ranks: u16,
    },
    /// No threads, or too many in the job.
    #[error(
        "{threads} threads in each of {ranks} ranks: 1 to {} would do",
        max_threads(*ranks)
    )]
    Threads {
        /// Threads of a rank.
        threads: u16,
        /// Ranks of the job.
        ranks: u16,
    },
    /// More barrier participants than threads, or none.
    #[error("{participants} barrier participants of {threads} threads: between 1 and the number of threads")]
    Participants {
        /// Participants of a rank.
        participants: u16,
        /// Threads of a rank.
        threads: u16,
    },
    /// No pages, or too many.
    #[error("{0} pages: the segment has 1 to {MAX_PAGES}")]
    Pages(u32),
    /// No views, or too many.
    #[error("{0} views: the segment has 1 to {MAX_VIEWS}")]
    Views(u16),
    /// The chunk size is 0.
    #[error("chunks of 0 pages hold nothing; give at least 1")]
    ChunkPages,
    /// Too many barriers: no number is left for broadcasts.
    #[error("too many barriers; at most {}", u32::MAX - 1)]
    Barriers,
    /// Too few twins.
    #[error("{twins} twins of pages: give at least {least}, 2 for each thread and 2")]
    Twins { twins: u32, least: u32 },
    /// Too few write notices.
    #[error("room for {notices} write notices: give at least {least}, 4 for each rank and 128")]
    Notices { notices: u32, least: u32 },
    /// The machine refuses memory for the tables.
    #[error("the machine refuses memory for tables of {pages} pages in {views} views; use fewer views or pages")]
    TooLarge {
        /// Pages of the segment.
        pages: u32,
        /// Views of the segment.
        views: u16,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_that_cannot_be_is_refused_by_name() {
        let good = Config::new(0, 4, 2, 1024, 32);
        assert_eq!(good.check(), Ok(()));
        assert_eq!(Config { ranks: 1025, ..good }.check(), Err(ConfigError::Ranks(1025)));
        assert_eq!(Config { ranks: 0, ..good }.check(), Err(ConfigError::Ranks(0)));
        assert_eq!(Config { rank: 4, ..good }.check(), Err(ConfigError::Rank { rank: 4, ranks: 4 }));
        assert!(matches!(Config { threads: 0, ..good }.check(), Err(ConfigError::Threads { .. })));
        for (ranks, most) in [(1, 65_470), (4, 65_470), (64, 16_319), (1024, 959)] {
            let threads = |threads| Config { ranks, threads, ..good }.check();
            assert_eq!(threads(most), Ok(()));
            let error = threads(most + 1).unwrap_err();
            assert!(matches!(error, ConfigError::Threads { .. }));
            assert!(alloc::format!("{error}").contains(&alloc::format!("1 to {most} would do")));
        }
        assert!(matches!(Config { participants: 3, ..good }.check(), Err(ConfigError::Participants { .. })));
        assert_eq!(Config { pages: 0, ..good }.check(), Err(ConfigError::Pages(0)));
        assert_eq!(Config { pages: 1 << 28, ..good }.check(), Ok(()), "1 TiB");
        assert_eq!(Config { pages: MAX_PAGES + 1, ..good }.check(), Err(ConfigError::Pages(MAX_PAGES + 1)));
        assert_eq!(Config { views: 513, ..good }.check(), Err(ConfigError::Views(513)));
        assert_eq!(Config { chunk_pages: 0, ..good }.check(), Err(ConfigError::ChunkPages));
        assert_eq!(Config { twins: 5, ..good }.check(), Ok(()), "minipages need none");
        let good = Config { protocol: Protocol::Hlrc, ..good };
        assert_eq!(Config { twins: 5, ..good }.check(), Err(ConfigError::Twins { twins: 5, least: 6 }));
        assert_eq!(Config { notices: 143, ..good }.check(), Err(ConfigError::Notices { notices: 143, least: 144 }));
    }
}
