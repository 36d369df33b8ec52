//! Stores that fail, lie or fill up.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mapwire_testing::children::child;

use super::memory::{WORDS, load, store};
use super::*;

const PAGES: usize = 128;

const WELL: u8 = 0;
const FULL: u8 = 1;
const DEAF: u8 = 2;
const LYING: u8 = 3;

/// A store that misbehaves on command.
#[derive(Debug, Default)]
struct Moods {
    mood: AtomicU8,
    /// Fetches of this page always fail.
    lost: AtomicU64,
    fetches: AtomicU64,
    /// Offered pages, with their first words. If there are any, it wants the others.
    offered: Mutex<Option<BTreeMap<u64, Vec<u64>>>>,
}

#[derive(Debug)]
struct MoodyStore {
    moods: Arc<Moods>,
    inner: LocalMemoryStore,
}

impl BackingStore for MoodyStore {
    fn add_region(&self, region: u32, pages: u64) -> Result<(), StoreError> {
        self.inner.add_region(region, pages)
    }

    fn remove_region(&self, region: u32) {
        self.inner.remove_region(region);
    }

    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError> {
        assert!(pages.is_sorted_by_key(|page| page.id));
        assert!(pages.iter().all(|page| page.bytes.len() == PAGE_BYTES));
        if self.moods.mood.load(Ordering::SeqCst) == FULL {
            return Err(StoreError::Full { advice: "wait" });
        }
        self.inner.store(pages)
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
        self.moods.fetches.fetch_add(pages.len() as u64, Ordering::SeqCst);
        let lost = self.moods.lost.load(Ordering::SeqCst);
        if pages.iter().any(|page| lost != 0 && page.id.page == lost) {
            return Err(StoreError::Other("one page is lost"));
        }
        let mood = self.moods.mood.load(Ordering::SeqCst);
        if mood == DEAF {
            return Err(StoreError::Other("nobody answers"));
        }
        self.inner.fetch(pages)?;
        if mood == LYING {
            pages.iter_mut().for_each(|page| page.bytes[99] ^= 4);
        }
        Ok(())
    }

    fn wants(&self, id: PageId) -> bool {
        let offered = self.moods.offered.lock().unwrap();
        let offered = offered.as_ref();
        offered.is_some_and(|offered| !offered.contains_key(&id.page))
    }

    fn offer(&self, pages: &[OutgoingPage<'_>]) {
        let mut offered = self.moods.offered.lock().unwrap();
        for page in pages {
            let word = u64::from_le_bytes(page.bytes[..8].try_into().unwrap());
            let offered = offered.as_mut().unwrap();
            offered.entry(page.id.page).or_default().push(word);
        }
    }

    fn discard(&self, region: u32, first: u64, pages: u64) {
        self.inner.discard(region, first, pages);
    }
}

fn moody(config: Config) -> (Pager, Arc<Moods>) {
    let moods = Arc::new(Moods::default());
    let store = MoodyStore { moods: Arc::clone(&moods), inner: LocalMemoryStore::default() };
    (with_store(config, Box::new(store)), moods)
}

/// Stores the page's number plus `plus` into each page.
fn fill(region: &Region, plus: u64) {
    for page in 0..PAGES {
        store(region, page * WORDS, page as u64 + plus);
    }
}

fn check(region: &Region, plus: u64, name: &str) {
    for page in 0..PAGES {
        assert_eq!(load(region, page * WORDS), page as u64 + plus, "{name}");
    }
}

#[test]
fn pages_that_cannot_be_stored_stay_beyond_the_limit_and_go_once_they_can() {
    each(|config, name| {
        let (pager, moods) = moody(config);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        moods.mood.store(FULL, Ordering::SeqCst);
        fill(&region, 1);
        let statistics = pager.statistics();
        assert!(statistics.resident_pages > 100, "{name}: {statistics:?}");
        assert!(statistics.store_failures > 0, "{name}: {statistics:?}");
        check(&region, 1, name);
        moods.mood.store(WELL, Ordering::SeqCst);
        let other = pager.map(PAGES * 8 * PAGE_BYTES, None).unwrap();
        for page in 0..PAGES * 8 {
            store(&other, page * WORDS, 1);
        }
        let statistics = pager.statistics();
        assert!(statistics.resident_pages <= 34, "{name}: {statistics:?}");
        check(&region, 1, name);
    });
}

#[test]
fn a_page_that_cannot_be_had_or_comes_back_wrong_raises_a_bus_error_and_the_cause_is_told() {
    let wrong = "came back from the backing store with wrong bytes";
    for (mood, says) in [(DEAF, "raises SIGBUS: nobody answers"), (LYING, wrong)] {
        each(|config, name| {
            let (status, text) = child(&format!("{mood} {name}"), || {
                let (pager, moods) = moody(config);
                let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
                fill(&region, 1);
                eprintln!("page 1 is at {:#x}.", region.range().start + PAGE_BYTES);
                moods.mood.store(mood, Ordering::SeqCst);
                load(&region, WORDS);
                eprintln!("the load went on");
            });
            if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
                assert_eq!(status.signal(), Some(libc::SIGBUS), "{name}: {text}");
                assert!(text.contains(says), "{name}: {text}");
                assert!(!text.contains("the load went on"), "{name}: {text}");
                let (_, rest) = text.split_once("page 1 is at ").unwrap();
                let (address, rest) = rest.split_once('.').unwrap();
                assert!(rest.contains(address), "{name}: {text}");
            }
        });
    }
}

#[test]
fn a_store_is_offered_each_page_that_it_wants_once_as_it_leaves_unchanged() {
    each(|config, name| {
        let (pager, moods) = moody(config);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        *moods.offered.lock().unwrap() = Some(BTreeMap::new());
        fill(&region, 1);
        let offered = moods.offered.lock().unwrap().clone();
        assert_eq!(offered, Some(BTreeMap::new()), "{name}: they changed");
        // Which pages leave is the pager's choice: one that stays is not offered yet.
        let all = (0..PAGES as u64).map(|page| (page, vec![page + 1]));
        let all = Some(all.collect::<BTreeMap<_, _>>());
        let mut offered = None;
        for _ in 0..100 {
            check(&region, 1, name);
            offered = moods.offered.lock().unwrap().clone();
            if offered == all {
                break;
            }
        }
        assert_eq!(offered, all, "{name}");
    });
}

#[test]
fn a_page_that_is_lost_leaves_its_neighbours_alone() {
    each(|config, name| {
        let (pager, moods) = moody(config);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        fill(&region, 1);
        moods.lost.store(9, Ordering::SeqCst);
        for page in (0..PAGES).filter(|&page| page != 9) {
            assert_eq!(load(&region, page * WORDS), page as u64 + 1, "{name}");
        }
        assert_eq!(pager.statistics().lost_pages, 0, "{name}");
        // It is not gone, if somebody finds it.
        moods.lost.store(0, Ordering::SeqCst);
        check(&region, 1, name);
    });
}

#[test]
fn a_lost_page_that_is_discarded_is_zero_and_usable() {
    each(|config, name| {
        let (pager, moods) = moody(config);
        let mut region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        fill(&region, 1);
        moods.lost.store(1, Ordering::SeqCst);
        // A system call gets an error where the program would get a signal.
        let page = &memory::bytes(&mut region)[PAGE_BYTES..2 * PAGE_BYTES];
        let mut pipe = std::io::pipe().unwrap();
        let written = std::io::Write::write(&mut pipe.1, page);
        assert!(written.is_err(), "{name}: {written:?}");
        assert_eq!(pager.statistics().lost_pages, 1, "{name}");
        region.discard(PAGE_BYTES, PAGE_BYTES).unwrap();
        assert_eq!(load(&region, WORDS), 0, "{name}");
        store(&region, WORDS, 2);
        check(&region, 1, name);
    });
}

#[test]
fn threads_that_fault_on_one_page_fetch_it_once() {
    each(|config, name| {
        let (pager, moods) = moody(Config { read_ahead_pages: 0, victim_pages: 0, ..config });
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        fill(&region, 1);
        let barrier = std::sync::Barrier::new(4);
        for page in [0, 2, 4, 6, 8] {
            let before = moods.fetches.load(Ordering::SeqCst);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        barrier.wait();
                        assert_eq!(load(&region, page * WORDS), page as u64 + 1);
                    });
                }
            });
            assert_eq!(moods.fetches.load(Ordering::SeqCst), before + 1, "{name}");
        }
    });
}

#[test]
fn a_store_that_is_full_or_cannot_be_inherited_is_an_error_and_the_pager_goes_on() {
    each(|config, name| {
        let (pager, moods) = moody(config);
        let region = pager.map(100 * PAGE_BYTES, None).unwrap();
        for (mood, says) in [(FULL, "full: wait"), (0, "cannot be inherited")] {
            for page in 0..100 {
                store(&region, page * WORDS, u64::from(mood) + 1);
            }
            moods.mood.store(mood, Ordering::SeqCst);
            let error = pager.freeze().unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
            moods.mood.store(0, Ordering::SeqCst);
            for page in 0..100 {
                let found = load(&region, page * WORDS);
                assert_eq!(found, u64::from(mood) + 1, "{name} {page}");
                store(&region, page * WORDS, 5);
            }
            assert!((0..100).all(|page| load(&region, page * WORDS) == 5));
        }
    });
}
