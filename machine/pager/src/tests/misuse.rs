//! Invalid arguments, and what remains when everything is dropped.

use mapwire_host::memory::{MemoryError, SharedBuffer};
use mapwire_testing::children::{drop_privileges, free_base, in_child};

use super::memory::{WORDS, load, store};
use super::*;

#[test]
fn sizes_and_addresses_that_make_no_region_are_errors_that_say_why() {
    let pager = local(Config::new(32));
    let text = |bytes, address| pager.map(bytes, address).unwrap_err().to_string();
    assert!(text(0, None).contains("0 bytes"));
    assert!(text(usize::MAX, None).contains(&usize::MAX.to_string()));
    assert!(text((1 << 47) + 1, None).contains("beyond the address space"));
    assert!(text(1 << 47, None).contains("not that much address space"));
    assert!(text(4096, Some(4097)).contains("0x1001"));
    assert!(text(4096, Some(usize::MAX - 4095)).contains("mmap"));
    let base = free_base();
    let region = pager.map(5000, Some(base)).unwrap();
    assert_eq!((region.range(), region.bytes()), (base..base + 8192, 8192));
    assert!(text(4096, Some(base + 4096)).contains("choose another address"));
    drop(region);
    assert!(pager.map(4096, Some(base)).is_ok());
}

#[test]
fn only_whole_pages_within_the_region_are_discarded() {
    each(|config, name| {
        let pager = local(config);
        let region = pager.map(100 * PAGE_BYTES, None).unwrap();
        for page in 0..100 {
            store(&region, page * WORDS, 1);
        }
        for (offset, bytes) in [(0, 100 * PAGE_BYTES + 1), (usize::MAX, 2), (100 * PAGE_BYTES + 1, 0)] {
            assert!(region.discard(offset, bytes).is_err(), "{name}");
        }
        region.discard(1, PAGE_BYTES).unwrap();
        region.discard(100 * PAGE_BYTES, 0).unwrap();
        assert!((0..100).all(|page| load(&region, page * WORDS) == 1));
        region.discard(1, 99 * PAGE_BYTES).unwrap();
        let sum: u64 = (0..100).map(|page| load(&region, page * WORDS)).sum();
        assert_eq!(sum, 2, "{name}");
        region.discard(0, region.bytes()).unwrap();
        assert_eq!(pager.statistics().mapped_pages, 0, "{name}");
        assert_eq!(pager.statistics().stored_pages, 0, "{name}");
    });
}

#[test]
fn pages_that_are_moved_leave_zeros_behind() {
    each(|config, name| {
        let pager = local(config);
        let region = pager.map(200 * PAGE_BYTES, None).unwrap();
        for page in 0..200 {
            store(&region, page * WORDS, page as u64 + 1);
        }
        for (from, bytes, to, says) in [
            (1, PAGE_BYTES, 0, "multiple of 4096"),
            (0, PAGE_BYTES, 200 * PAGE_BYTES, "not within"),
            (0, usize::MAX, PAGE_BYTES, "not within"),
            (0, 2 * PAGE_BYTES, PAGE_BYTES, "overlap"),
        ] {
            let error = region.remap(from, bytes, to).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
        region.remap(0, 90 * PAGE_BYTES, 100 * PAGE_BYTES).unwrap();
        for page in 0..200 {
            let expected = match page {
                0..90 => 0,
                100..190 => page - 99,
                _ => page + 1,
            };
            assert_eq!(load(&region, page * WORDS), expected as u64, "{name} {page}");
        }
    });
}

#[test]
fn nothing_is_left_of_a_pager_that_is_dropped() {
    in_child("leaks", || {
        let counts = || {
            let entries = |path| std::fs::read_dir(path).unwrap().count();
            let ranges = mapwire_host::limits::Limits::read().mapped_ranges;
            (entries("/proc/self/task"), entries("/proc/self/fd"), ranges)
        };
        let use_all = || {
            each(|config, _| {
                let pager = local(config);
                let regions = [1, 2].map(|_| pager.map(64 * PAGE_BYTES, None).unwrap());
                drop(pager);
                for region in regions {
                    for page in 0..64 {
                        store(&region, page * WORDS, 1);
                    }
                }
            });
        };
        // What threads leave to the C library exists from now on.
        use_all();
        let before = counts();
        for _ in 0..5 {
            use_all();
        }
        let after = counts();
        assert_eq!((before.0, before.1), (after.0, after.1));
        assert!(after.2 <= before.2 + 4, "{before:?} {after:?}");
    });
}

#[test]
fn where_the_kernel_refuses_the_error_names_the_sysctl() {
    if mapwire_host::limits::unprivileged_userfaultfd() == Some(1) {
        mapwire_testing::skip!("vm.unprivileged_userfaultfd is 1");
        return;
    }
    in_child("refused", || {
        drop_privileges();
        let refused = Pager::new(32, Box::new(LocalMemoryStore::default()));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("sysctl vm.unprivileged_userfaultfd=1"), "{text}");
    });
}

#[test]
fn a_region_of_64_gib_takes_metadata_of_its_touched_pages_only() {
    each(|config, name| {
        let pager = local(config);
        let bytes = 64 << 30;
        let region = pager.map(bytes, None).unwrap();
        let pages = bytes / PAGE_BYTES;
        let touched = (0..100).map(|index| index * (pages / 100) + index);
        for page in touched.clone() {
            store(&region, page * WORDS, page as u64 + 1);
        }
        for page in touched {
            assert_eq!(load(&region, page * WORDS), page as u64 + 1, "{name}");
        }
        let table = region.core().lock().region(region.number()).unwrap().table.address_range();
        assert!(table.len() * 200 <= bytes, "{name}: {}", table.len());
        let resident = resident_bytes(table.start);
        assert!(resident <= 200 * PAGE_BYTES, "{name}: {resident}");
    });
}

/// Resident bytes of the mapped range that contains `start`.
fn resident_bytes(start: usize) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        let word = line.split(' ').next().unwrap_or_default();
        if let Some((from, to)) = word.split_once('-') {
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            inside = (number(from)..number(to)).contains(&start);
        } else if inside && word == "Rss:" {
            let kib = line.split_whitespace().nth(1).unwrap();
            bytes += kib.parse::<usize>().unwrap() * 1024;
        }
    }
    bytes
}

#[test]
fn memory_of_a_region_is_not_adopted_whatever_of_it_is_in_ram() {
    const PAGES: usize = 100;
    each(|config, name| {
        let pager = local(config);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        for page in 0..PAGES {
            store(&region, page * WORDS, page as u64 + 1);
        }
        for (first, pages) in [(0, PAGES), (0, 1), (PAGES - 1, 1)] {
            let start = region.range().start + first * PAGE_BYTES;
            let adopted = SharedBuffer::adopt("far", start, pages * PAGE_BYTES);
            let error = adopted.unwrap_err();
            assert!(matches!(error, MemoryError::NotAdoptable { .. }), "{name}: {error}");
            assert!(error.to_string().contains("far memory"), "{name}: {error}");
        }
        for page in 0..PAGES {
            assert_eq!(load(&region, page * WORDS), page as u64 + 1, "{name}");
        }
    });
}
