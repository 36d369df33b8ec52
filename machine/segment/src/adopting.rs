//! Pages that other processes have filled are mapped in runs, before this one faults on each.
//!
//! A store to a page that is there, but not mapped here, faults for 1 to 3 µs and maps that page alone; in a run a page is mapped for 0.3 µs.
//! Barriers are where one phase's pages become the next phase's.
//!
//! Where the program wants huge pages, what is filled is put into them at the same barriers. Memory that nobody has touched stays untouched.

use core::sync::atomic::{AtomicU64, Ordering};

use mapwire_host::page::PAGE_BYTES;
use rustix::fs::{SeekFrom, seek};
use rustix::mm::Advice;

use crate::layout::{ALIGN_BYTES, DATA_AT};
use crate::segment::Segment;

/// A process that has mapped fewer pages by itself since the last time has no use for more.
const LEAST_PAGES: u64 = 64;
/// Pages mapped for each that the process has mapped by itself: the time is a part of that of its faults, whatever it will touch.
const FOR_EACH: u64 = 4;
/// A huge page.
const HUGE_BYTES: u64 = ALIGN_BYTES as u64;

/// Decides when a process maps what others have filled. Cheap to ask: it looks at the first, second, fourth, eighth, … barrier.
#[derive(Debug, Default)]
pub struct Adoption {
    wants_huge_pages: bool,
    barriers: AtomicU64,
    /// Pages of shared memory that were mapped after the last time.
    mapped: AtomicU64,
    /// Offset where the last time ended.
    next: AtomicU64,
}

impl Adoption {
    /// For a process that has mapped nothing yet.
    #[must_use]
    pub fn new(wants_huge_pages: bool) -> Self {
        Self { wants_huge_pages, ..Self::default() }
    }

    /// Maps pages if this is worth while: call it behind each barrier.
    #[inline]
    pub fn handle_barrier(&self, segment: &Segment) {
        if (self.barriers.fetch_add(1, Ordering::Relaxed) + 1).is_power_of_two() {
            if self.wants_huge_pages {
                segment.collapse_filled();
            }
            self.adopt(segment, mapped_pages);
        }
    }

    #[cold]
    fn adopt(&self, segment: &Segment, mapped_pages: impl Fn() -> Option<u64>) {
        let Some(mapped) = mapped_pages() else { return };
        let by_itself = mapped.saturating_sub(self.mapped.load(Ordering::Relaxed));
        if by_itself >= LEAST_PAGES {
            let next = segment.map_filled(self.next.load(Ordering::Relaxed), by_itself * FOR_EACH * PAGE_BYTES as u64);
            self.next.store(next, Ordering::Relaxed);
        }
        self.mapped.store(mapped_pages().unwrap_or(mapped), Ordering::Relaxed);
    }
}

/// Pages of files and shared memory that this process has mapped; `None` where the kernel does not tell.
fn mapped_pages() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split(' ').nth(2)?.parse().ok()
}

impl Segment {
    /// Puts what some process has filled into huge pages, and maps those here: whole ones, of data only. Best effort: another process may do
    /// the same at the moment.
    fn collapse_filled(&self) {
        let (end, mut at) = (self.notice_growth(), DATA_AT);
        while let Ok(filled) = seek(self.file(), SeekFrom::Data(at))
            && let Ok(hole) = seek(self.file(), SeekFrom::Hole(filled))
        {
            let first = filled.next_multiple_of(HUGE_BYTES);
            let bytes = (hole.min(end) / HUGE_BYTES * HUGE_BYTES).saturating_sub(first);
            if bytes > 0 {
                self.collapse(first, bytes);
            }
            at = hole;
        }
    }

    /// Maps up to `bytes` of pages that some process has filled, from offset `from` on; returns where to go on. Best effort.
    fn map_filled(&self, from: u64, mut bytes: u64) -> u64 {
        let end = self.notice_growth();
        let mut at = from.max(DATA_AT);
        while bytes > 0 && at < end {
            let Ok(filled) = seek(self.file(), SeekFrom::Data(at)) else { break };
            let Ok(hole) = seek(self.file(), SeekFrom::Hole(filled)) else { break };
            let run = hole.min(end).saturating_sub(filled).min(bytes);
            if run == 0 {
                break;
            }
            self.advise(filled, run, Advice::LinuxPopulateRead);
            bytes -= run;
            at = filled + run;
            if bytes == 0 {
                return at;
            }
        }
        DATA_AT
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use mapwire_host::memory::memfd;
    use mapwire_host::waiting::{Patience, WaitStrategy};
    use mapwire_testing::children::free_base;

    use super::*;
    use crate::waiting::Vigil;

    #[derive(Debug)]
    struct Nobody;

    impl Vigil for Nobody {
        fn gone(&self) -> Option<u32> {
            None
        }
    }

    fn segment() -> Segment {
        let file = memfd::create_growing("test").unwrap();
        let patience = Patience::new(WaitStrategy::default(), 1, core::hint::spin_loop);
        Segment::map(file, free_base(), 64 << 20, 0, patience, Box::new(Nobody)).unwrap()
    }

    fn fill(segment: &Segment, pages: core::ops::Range<u64>) {
        for page in pages {
            let at = DATA_AT + page * PAGE_BYTES as u64;
            assert_eq!(rustix::io::pwrite(segment.file(), &[7], at), Ok(1));
        }
    }

    /// Which pages of data are mapped in this process.
    fn mapped(segment: &Segment, pages: u64) -> Vec<u64> {
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let is_mapped = |page: &u64| {
            let address = segment.base() as u64 + DATA_AT + page * PAGE_BYTES as u64;
            let mut entry = [0; 8];
            rustix::io::pread(&pagemap, &mut entry, address / PAGE_BYTES as u64 * 8).unwrap();
            u64::from_le_bytes(entry) >> 63 == 1
        };
        (0..pages).filter(is_mapped).collect()
    }

    #[test]
    fn runs_of_filled_pages_are_mapped_and_holes_stay_holes() {
        let segment = segment();
        segment.grow_to(DATA_AT + 300 * PAGE_BYTES as u64).unwrap();
        fill(&segment, 10..20);
        fill(&segment, 100..110);
        assert_eq!(mapped(&segment, 300), []);
        let page = PAGE_BYTES as u64;
        // The budget ends within a run; the next time goes on there, and then all over again.
        let next = segment.map_filled(0, 12 * page);
        assert_eq!(next, DATA_AT + 102 * page);
        assert_eq!(segment.map_filled(next, 100 * page), DATA_AT);
        assert_eq!(mapped(&segment, 300), (10..20).chain(100..110).collect::<Vec<_>>());
        assert_eq!(segment.map_filled(u64::MAX, page), DATA_AT);
        assert!(seek(segment.file(), SeekFrom::Data(DATA_AT + 110 * page)).is_err(), "pages were made");
    }

    /// Bytes of the segment that this process has mapped as huge pages.
    fn huge_bytes(segment: &Segment) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let head = format!("{:x}-", segment.base());
        let of_segment = maps.lines().skip_while(|line| !line.starts_with(&head));
        let kib = of_segment.filter_map(|line| line.strip_prefix("ShmemPmdMapped:")).next().unwrap();
        kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    #[test]
    fn what_is_filled_lies_in_huge_pages_where_they_are_wanted_and_holes_stay_holes() {
        let segment = segment();
        segment.grow_to(DATA_AT + 4000 * PAGE_BYTES as u64).unwrap();
        fill(&segment, 0..2000);
        Adoption::default().handle_barrier(&segment);
        assert_eq!(huge_bytes(&segment), 0);
        let adoption = Adoption::new(true);
        for _ in 0..2 {
            adoption.handle_barrier(&segment);
            let first = DATA_AT.next_multiple_of(HUGE_BYTES);
            let whole = (DATA_AT + 2000 * PAGE_BYTES as u64) / HUGE_BYTES * HUGE_BYTES - first;
            assert_eq!(huge_bytes(&segment), whole);
        }
        assert!(seek(segment.file(), SeekFrom::Data(DATA_AT + 2000 * PAGE_BYTES as u64)).is_err(), "pages were made");
        let mut page = [0; 8];
        assert!(segment.read(DATA_AT + 1999 * PAGE_BYTES as u64, &mut page) && page == [7, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn pages_that_it_has_mapped_are_not_taken_for_those_of_the_program() {
        let segment = segment();
        segment.grow_to(DATA_AT + 1000 * PAGE_BYTES as u64).unwrap();
        fill(&segment, 0..1000);
        let by_program = Cell::new(LEAST_PAGES);
        let adoption = Adoption::default();
        let adopt = || {
            let count = || mapped(&segment, 1000).len() as u64;
            adoption.adopt(&segment, || Some(by_program.get() + count()));
            count()
        };
        assert_eq!([adopt(), adopt(), adopt()], [LEAST_PAGES * FOR_EACH; 3]);
        by_program.set(by_program.get() + LEAST_PAGES);
        assert_eq!([adopt(), adopt()], [2 * LEAST_PAGES * FOR_EACH; 2]);
    }

    #[test]
    fn a_process_that_touches_nothing_maps_nothing() {
        let segment = segment();
        segment.grow_to(DATA_AT + 1000 * PAGE_BYTES as u64).unwrap();
        fill(&segment, 0..1000);
        let adoption = Adoption::default();
        adoption.mapped.store(u64::MAX, Ordering::Relaxed);
        adoption.handle_barrier(&segment);
        assert_eq!(mapped(&segment, 1000), []);
        // As if it had mapped all that it has by itself.
        adoption.mapped.store(0, Ordering::Relaxed);
        adoption.handle_barrier(&segment);
        assert!(!mapped(&segment, 1000).is_empty());
    }
}
