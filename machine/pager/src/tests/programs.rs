//! Uses of memory by programs besides loads and stores.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;

use mapwire_testing::children::in_child;

use super::memory::{WORDS, bytes, drop_page, forked, load, protect_page, store};
use super::*;

const PAGES: usize = 200;

fn temporary_file() -> std::fs::File {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    std::fs::File::from(rustix::fs::open("/tmp", flags, Mode::RUSR | Mode::WUSR).unwrap())
}

#[test]
fn system_calls_read_into_a_region_and_write_from_it() {
    each(|config, name| {
        let pager = local(config);
        let mut region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        let mut random = Random(5);
        let content: Vec<u8> = (0..region.bytes()).map(|_| random.below(256) as u8).collect();
        let mut file = temporary_file();
        file.write_all(&content).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        // Far more than the limit in one call, at an odd address.
        file.read_exact(&mut bytes(&mut region)[1..]).unwrap();
        assert!(pager.statistics().resident_pages <= 34, "{name}");
        let mut copy = temporary_file();
        copy.write_all(&bytes(&mut region)[1..]).unwrap();
        copy.seek(SeekFrom::Start(0)).unwrap();
        let mut back = Vec::new();
        copy.read_to_end(&mut back).unwrap();
        assert!(back == content[..content.len() - 1], "{name}");
    });
}

#[test]
fn a_page_that_the_program_drops_by_itself_reads_as_zero() {
    each(|config, name| {
        let pager = local(config);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        store(&region, 0, 7);
        drop_page(&region, 0);
        assert_eq!(load(&region, 0), 0, "{name}");
        store(&region, WORDS, 7);
        drop_page(&region, 1);
        for page in 2..PAGES {
            store(&region, page * WORDS, 1);
        }
        assert_eq!(load(&region, WORDS), 0, "{name}");
        store(&region, WORDS, 8);
        assert_eq!(load(&region, WORDS), 8, "{name}");
    });
}

#[test]
fn pages_come_and_go_where_parts_of_a_region_are_protected() {
    each(|config, name| {
        let pager = local(config);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        // Read-ahead crosses the ends of the parts, when it is new and when it is stored.
        for page in (50..PAGES).step_by(7) {
            protect_page(&region, page);
        }
        for round in 0..2 {
            for page in 0..PAGES {
                let is_protected = page >= 50 && (page - 50) % 7 == 0;
                let expected = if is_protected { 0 } else { round * (page as u64 + 1) };
                assert_eq!(load(&region, page * WORDS), expected, "{name}: page {page}");
                if !is_protected {
                    store(&region, page * WORDS, (round + 1) * (page as u64 + 1));
                }
            }
        }
    });
}

#[test]
fn a_forked_child_dies_where_it_touches_a_region_and_leaves_the_parents_alone() {
    in_child("fork", || {
        each(|config, name| {
            let pager = local(config);
            let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
            store(&region, 0, 1);
            let status = forked(|| store(&region, 0, 9));
            assert_eq!(status.signal(), Some(libc::SIGSEGV), "{name}");
            // Frames that the child might have shared are evicted as usual.
            for page in 1..PAGES {
                store(&region, page * WORDS, 1);
            }
            assert!(pager.statistics().resident_pages <= 32, "{name}");
            assert_eq!(load(&region, 0), 1, "{name}");
        });
    });
}

#[test]
fn a_disk_gives_back_what_it_took() {
    each(|config, name| {
        let store_ = DiskStore::new("/tmp").unwrap();
        let pager = with_store(config, Box::new(store_));
        for _ in 0..2 {
            let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
            for round in 1..4 {
                for page in 0..PAGES {
                    let page = if round == 2 { PAGES - 1 - page } else { page };
                    assert_eq!(load(&region, page * WORDS + 5), (round - 1) * page as u64, "{name}");
                    store(&region, page * WORDS + 5, round * page as u64);
                }
            }
            region.discard(0, 100 * PAGE_BYTES).unwrap();
            assert_eq!(load(&region, 99 * WORDS + 5), 0);
            assert_eq!(load(&region, 100 * WORDS + 5), 300);
        }
        let statistics = pager.statistics();
        assert!(statistics.written_pages > 300, "{name}: {statistics:?}");
        assert_eq!(statistics.lost_pages, 0, "{name}");
    });
}
