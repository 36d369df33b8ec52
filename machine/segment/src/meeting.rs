//! How the ranks of a host agree on the segment before any of them uses it.
//!
//! Each rank shows its settings in a line of its own at the start of the file, which it maps anywhere for that, and waits for the lines of
//! the others. Then all try one address after the other until all can map the segment there.
//!
//! A line shows how far its rank has got in this opening of the memory; the last to get somewhere wakes the others.

use core::fmt::Display;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::time::Instant;

use mapwire_host::mapping::{Mapping, Rights};
use mapwire_host::memory::{MemoryError, memfd};
use mapwire_host::waiting::{Patience, futex_wait, futex_wake};

use crate::error::SegmentError;
use crate::layout::{DEFAULT_BASE, MAX_RANKS, MEETING_AT, ROW_BYTES, ROWS_AT, STATE_AT, mapped_bytes};
use crate::segment::Segment;
use crate::waiting::{NAP, Vigil};

/// Addresses that the ranks try, if the settings name none.
const TRIES: usize = 8;
/// From one such address to the next, if the segment is not longer.
const TRY_STEP_BYTES: usize = 1 << 40;

/// The end of a process's addresses.
const USER_SPACE_END: usize = 1 << 47;

/// Words of a line.
const STAGE: u64 = 0;
const BASE: u64 = 8;
const BYTES: u64 = 16;
const COHERENCE: u64 = 24;
const VIEWS: u64 = 32;
const DEBUG: u64 = 48;
/// Whether this rank could map the segment at the last address: 1 or 0.
const MAPPED: u64 = 40;

/// What all ranks must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// First address; `None`: any that all ranks have free.
    pub base: Option<usize>,
    /// Bytes for the program's data.
    pub bytes: u64,
    /// How the ranks keep the memory coherent: a number of the caller's.
    pub coherence: u64,
    /// Whether the heap looks for damage.
    pub debug: bool,
    /// Views of each page, where a protocol has them.
    pub views: u64,
}

/// The ranks of a host on their way to a common segment.
#[derive(Debug)]
pub struct Meeting<V> {
    file: OwnedFd,
    lines: Mapping,
    rank: usize,
    ranks: usize,
    /// Counts the openings of the memory, from 1: the same in all ranks.
    round: u32,
    settings: Settings,
    /// For so long no rank has come any more: then the wait is given up.
    timeout: Duration,
    vigil: V,
}

impl<V: Vigil + Clone + 'static> Meeting<V> {
    /// Shows the settings of `rank`, one of `ranks`, in the `file` that all have. `round` counts the openings of the memory from 1.
    ///
    /// # Errors
    /// A file of another kind, too many ranks, no memory.
    pub fn begin(
        file: OwnedFd,
        (rank, ranks): (usize, usize),
        round: u32,
        settings: Settings,
        timeout: Duration,
        vigil: V,
    ) -> Result<Self, SegmentError> {
        if rank >= ranks || ranks > MAX_RANKS {
            return Err(SegmentError::Ranks(ranks));
        }
        memfd::verify_growing(&file)?;
        memfd::grow(&file, STATE_AT)?;
        let bytes = STATE_AT as usize;
        let lines = Mapping::foreign(&file, bytes, Rights::ReadWrite)
            .map_err(|errno| MemoryError::of_call("mmap", bytes, errno))?;
        let meeting = Self { file, lines, rank, ranks, round, settings, timeout, vigil };
        meeting.word(rank, BASE).store(settings.base.unwrap_or(0) as u64, Ordering::Relaxed);
        meeting.word(rank, BYTES).store(settings.bytes, Ordering::Relaxed);
        meeting.word(rank, COHERENCE).store(settings.coherence, Ordering::Relaxed);
        meeting.word(rank, VIEWS).store(settings.views, Ordering::Relaxed);
        meeting.word(rank, DEBUG).store(settings.debug.into(), Ordering::Relaxed);
        meeting.word(rank, MAPPED).store(0, Ordering::Relaxed);
        Ok(meeting)
    }

    /// What knows whether the job goes on.
    pub fn vigil(&self) -> &V {
        &self.vigil
    }

    /// Waits until all ranks have shown their settings, and compares them with those of rank 0. `name_of` names a number for coherence.
    ///
    /// # Errors
    /// [`SegmentError::Differs`], [`SegmentError::Late`], [`SegmentError::RankGone`].
    pub fn compare(&self, name_of: impl Fn(u64) -> String) -> Result<(), SegmentError> {
        self.reach(1)?;
        let first = |word| self.word(0, word).load(Ordering::Relaxed);
        let hex = |base: u64| if base == 0 { "any address".to_owned() } else { format!("{base:#x}") };
        let Settings { base, bytes, coherence, debug, views } = self.settings;
        same("the coherence of shared memory (MAPWIRE_COHERENCE)", coherence, first(COHERENCE), name_of)?;
        same("MAPWIRE_SHARED", bytes, first(BYTES), text)?;
        same("MAPWIRE_HEAP_DEBUG", debug.into(), first(DEBUG), |is_on| is_on != 0)?;
        same("MAPWIRE_VIEWS", views, first(VIEWS), text)?;
        same("MAPWIRE_SHARED_BASE", base.unwrap_or(0) as u64, first(BASE), hex)
    }

    /// Maps the segment at an address that is free in all ranks; cleared, if it was used before.
    ///
    /// # Errors
    /// [`SegmentError::Clash`] where something is mapped at the address, [`SegmentError::Elsewhere`] in the other ranks; limits of this
    /// process; [`SegmentError::Late`] and [`SegmentError::RankGone`].
    pub fn map(&self, mut patience: impl FnMut() -> Patience) -> Result<Segment, SegmentError> {
        let bytes = self.settings.bytes;
        let bytes = mapped_bytes(bytes).filter(|_| bytes > 0).ok_or(SegmentError::Length { bytes })?;
        let step = usize::try_from(bytes).unwrap_or(usize::MAX).max(TRY_STEP_BYTES);
        let tries = if self.settings.base.is_some() { 1 } else { TRIES };
        let mut last = None;
        for nth in 0..tries {
            let base = self.settings.base.unwrap_or(DEFAULT_BASE);
            let base = nth.checked_mul(step).and_then(|far| base.checked_add(far)).unwrap_or(usize::MAX);
            // The same in all ranks: what comes later is further beyond user space.
            if nth > 0 && base.saturating_add(step) > USER_SPACE_END {
                break;
            }
            let file = self.file.try_clone().map_err(|error| {
                let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::MFILE);
                MemoryError::of_call("dup", 0, errno)
            })?;
            let vigil = Box::new(self.vigil.clone());
            let mapped = Segment::map(file, base, bytes, self.rank, patience(), vigil);
            self.word(self.rank, MAPPED).store(mapped.is_ok().into(), Ordering::Relaxed);
            // Twice: nobody tries the next address before all have seen who could map this one.
            let stage = 2 + 2 * nth as u8;
            self.reach(stage)?;
            let failed = (0..self.ranks).find(|&rank| self.word(rank, MAPPED).load(Ordering::Relaxed) != 1);
            self.reach(stage + 1)?;
            match (failed, mapped) {
                (None, Ok(segment)) => return self.clear(segment, stage + 2),
                (Some(rank), Ok(_)) => last = last.or(Some(SegmentError::Elsewhere { rank, base })),
                (_, Err(error)) => last = last.or(Some(error)),
            }
        }
        Err(last.unwrap_or(SegmentError::Base { base: 0 }))
    }

    /// Rank 0 clears what an earlier opening has left; the others wait for that.
    fn clear(&self, segment: Segment, stage: u8) -> Result<Segment, SegmentError> {
        if self.rank == 0 && self.round > 1 {
            segment.discard(STATE_AT, segment.notice_growth() - STATE_AT)?;
        }
        self.reach(stage)?;
        Ok(segment)
    }

    fn word(&self, rank: usize, word: u64) -> &AtomicU64 {
        self.lines.word64((ROWS_AT + rank as u64 * ROW_BYTES + word) as usize)
    }

    /// Changes when all have reached a stage.
    fn changes(&self) -> &AtomicU32 {
        self.lines.word32(MEETING_AT as usize)
    }

    /// Shows that this rank has reached a stage, and waits until all have.
    fn reach(&self, stage: u8) -> Result<(), SegmentError> {
        let number = u64::from(self.round) << 8 | u64::from(stage);
        self.word(self.rank, STAGE).store(number, Ordering::Release);
        // The last two to get here could otherwise each miss the other.
        fence(Ordering::SeqCst);
        let missing = || (0..self.ranks).filter(|&rank| self.word(rank, STAGE).load(Ordering::Acquire) < number);
        let mut left = missing().count();
        if left == 0 {
            self.changes().fetch_add(1, Ordering::AcqRel);
            futex_wake(self.changes(), u32::MAX);
            return Ok(());
        }
        let mut since = Instant::now();
        loop {
            let seen = self.changes().load(Ordering::Acquire);
            let now = missing().count();
            if now == 0 {
                return Ok(());
            }
            if let Some(rank) = self.vigil.gone() {
                return Err(SegmentError::RankGone(rank));
            }
            if now < left {
                (left, since) = (now, Instant::now());
            } else if since.elapsed() > self.timeout {
                return Err(SegmentError::Late { missing: missing().collect(), ranks: self.ranks });
            }
            futex_wait(self.changes(), seen, Some(NAP.min(self.timeout)));
        }
    }
}

fn text(value: u64) -> String {
    value.to_string()
}

fn same<D: Display>(name: &'static str, ours: u64, first: u64, text: impl Fn(u64) -> D) -> Result<(), SegmentError> {
    if ours == first {
        return Ok(());
    }
    Err(SegmentError::Differs { name, ours: text(ours).to_string(), first: text(first).to_string() })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU32;
    use std::os::fd::AsFd;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::thread;

    use mapwire_host::waiting::WaitStrategy;

    use super::*;

    /// All is well while it is 0; else one more than the rank that is gone.
    #[derive(Clone, Debug, Default)]
    struct Word(Arc<AtomicU32>);

    impl Vigil for Word {
        fn gone(&self) -> Option<u32> {
            self.0.load(Ordering::Relaxed).checked_sub(1)
        }
    }

    const SETTINGS: Settings = Settings { base: None, bytes: 64 << 20, coherence: 0, debug: false, views: 1 };

    fn begin(file: impl AsFd, rank: usize, ranks: usize, round: u32, settings: Settings) -> Meeting<Word> {
        let file = file.as_fd().try_clone_to_owned().unwrap();
        Meeting::begin(file, (rank, ranks), round, settings, Duration::from_secs(20), Word::default()).unwrap()
    }

    fn patience() -> Patience {
        Patience::new(WaitStrategy::Event, 1, core::hint::spin_loop)
    }

    #[test]
    fn ranks_that_differ_in_a_setting_are_told_which_and_how() {
        let file = memfd::create_growing("test").unwrap();
        let others = [
            Settings { bytes: 32 << 20, ..SETTINGS },
            Settings { base: Some(0x2000_0000_0000), ..SETTINGS },
            Settings { coherence: 1, ..SETTINGS },
            Settings { views: 2, ..SETTINGS },
        ];
        let messages: Vec<String> = thread::scope(|scope| {
            let first = scope.spawn(|| begin(&file, 0, 5, 1, SETTINGS).compare(text));
            let others: Vec<_> = others
                .into_iter()
                .zip(1..)
                .map(|(settings, rank)| {
                    scope.spawn({
                        let file = &file;
                        move || begin(file, rank, 5, 1, settings).compare(|n| ["one", "two"][n as usize].to_owned())
                    })
                })
                .collect();
            assert!(first.join().unwrap().is_ok());
            others.into_iter().map(|other| other.join().unwrap().unwrap_err().to_string()).collect()
        });
        assert!(messages[0].contains("MAPWIRE_SHARED is 33554432 here and 67108864 in rank 0"), "{messages:?}");
        assert!(messages[1].contains("0x200000000000 here and any address in rank 0"), "{messages:?}");
        assert!(messages[2].contains("two here and one in rank 0"), "{messages:?}");
        assert!(messages[3].contains("MAPWIRE_VIEWS is 2 here and 1"), "{messages:?}");
    }

    /// Held by whoever maps memory at the usual addresses.
    static USUAL_ADDRESSES: Mutex<()> = Mutex::new(());

    #[test]
    fn an_address_that_is_taken_in_a_rank_makes_all_use_the_next() {
        let _usual = USUAL_ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let file = memfd::create_growing("test").unwrap();
        let taken = Mapping::sparse(4096, Some(DEFAULT_BASE + (16 << 20)));
        assert!(taken.is_ok());
        let meeting = begin(&file, 0, 1, 1, SETTINGS);
        meeting.compare(text).unwrap();
        let segment = meeting.map(patience).unwrap();
        assert_eq!(segment.base(), DEFAULT_BASE + TRY_STEP_BYTES);
        let named = Settings { base: Some(DEFAULT_BASE), ..SETTINGS };
        let error = begin(&file, 0, 1, 2, named).map(patience).unwrap_err();
        assert!(matches!(error, SegmentError::Clash { rank: 0, .. }), "{error}");
        assert!(error.to_string().contains("MAPWIRE_SHARED_BASE"), "{error}");
    }

    /// Two ranks of one process are never both able to map an address: whoever could map the last must not pass for one that could map this.
    #[test]
    fn nobody_takes_an_address_that_another_could_not_map_for_one_that_all_have() {
        let _usual = USUAL_ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let file = memfd::create_growing("test").unwrap();
        for round in 1..=20 {
            let map = |rank| begin(&file, rank, 2, round, SETTINGS).map(patience).map(|segment| segment.base());
            let mapped = thread::scope(|scope| {
                let other = scope.spawn(move || map(1));
                [map(0), other.join().unwrap()]
            });
            for mapped in mapped {
                let error = mapped.unwrap_err();
                assert!(matches!(error, SegmentError::Clash { .. } | SegmentError::Elsewhere { .. }), "{error}");
            }
        }
    }

    #[test]
    fn a_memory_that_is_opened_again_is_clear() {
        let file = memfd::create_growing("test").unwrap();
        let named = Settings { base: Some(0x2f00_0000_0000), ..SETTINGS };
        for round in 1..4 {
            let segment = begin(&file, 0, 1, round, named).map(patience).unwrap();
            segment.grow_to(10 << 20).unwrap();
            for offset in [STATE_AT, 9 << 20] {
                assert_eq!(segment.word64(offset).unwrap().swap(7, Ordering::Relaxed), 0);
            }
        }
    }

    #[test]
    fn one_that_does_not_come_is_named_and_one_that_is_gone_too() {
        let file = memfd::create_growing("test").unwrap();
        let vigil = Word::default();
        let timeout = Duration::from_millis(50);
        let begin = |timeout| {
            let file = file.try_clone().unwrap();
            Meeting::begin(file, (1, 4), 1, SETTINGS, timeout, vigil.clone()).unwrap()
        };
        let error = begin(timeout).compare(text).unwrap_err();
        assert!(matches!(&error, SegmentError::Late { missing, .. } if *missing == [0, 2, 3]), "{error}");
        vigil.0.store(3, Ordering::Relaxed);
        let error = begin(Duration::from_secs(100)).compare(text).unwrap_err();
        assert!(matches!(error, SegmentError::RankGone(2)), "{error}");
    }
}
