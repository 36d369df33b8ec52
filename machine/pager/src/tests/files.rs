//! Regions whose pages are of files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;

use mapwire_testing::children::{child, in_child};

use super::memory::{WORDS, allow_loads_only, close_page, fork_frozen, join, load, store};
use super::*;

const PAGES: usize = 200;

/// A file of `bytes` bytes; the first word of each page is its number plus 1.
fn numbered(bytes: usize) -> File {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open("/tmp", flags, Mode::RUSR | Mode::WUSR).unwrap());
    for page in 0..bytes.div_ceil(PAGE_BYTES) {
        write(&file, page, page as u64 + 1);
    }
    file.set_len(bytes as u64).unwrap();
    file
}

fn write(file: &File, page: usize, value: u64) {
    let at = (page * PAGE_BYTES) as u64;
    file.write_all_at(&value.to_ne_bytes(), at).unwrap();
}

fn first_word(file: &File, page: usize) -> u64 {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, (page * PAGE_BYTES) as u64).unwrap();
    u64::from_ne_bytes(word)
}

fn mapped(pager: &Pager, file: &File, changes: FileChanges) -> Region {
    let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
    region.map_file(0, region.bytes(), file, 0, changes).unwrap();
    region
}

/// Touches pages of another region until all of this one have left RAM.
fn push_out(pager: &Pager) {
    let other = pager.map(PAGES * PAGE_BYTES, None).unwrap();
    for round in 0..3 {
        (0..PAGES).for_each(|page| store(&other, page * WORDS, round + 1));
    }
}

#[test]
fn a_file_is_read_as_it_is_and_unchanged_pages_are_never_stored() {
    each(|config, name| {
        let pager = local(config);
        let file = numbered(PAGES * PAGE_BYTES);
        let region = mapped(&pager, &file, FileChanges::Seen);
        let mut random = Random(3);
        for step in 0..3000 {
            let page = if step < PAGES { step } else { random.below(PAGES) };
            assert_eq!(load(&region, page * WORDS), page as u64 + 1, "{name} {step}");
        }
        let counts = pager.statistics();
        assert_eq!(counts.written_pages, 0, "{name}: {counts:?}");
        assert!(counts.file_pages > 400 && counts.fetched_pages == 0, "{name}: {counts:?}");
        // Most are of the pages in a row at first. How many depends on how late the threads that serve faults run.
        assert!(counts.ahead_hits > 10, "{name}: {counts:?}");
        assert!(counts.resident_pages <= 34, "{name}: {counts:?}");
        assert_eq!(counts.stored_pages, 0, "{name}: {counts:?}");
    });
}

#[test]
fn changes_are_the_programs_own_until_they_are_dropped() {
    each(|config, name| {
        let pager = local(config);
        let file = numbered(PAGES * PAGE_BYTES);
        let region = mapped(&pager, &file, FileChanges::Seen);
        let changed = |page: usize| page.is_multiple_of(3);
        // A page of zeros is a change too. Some are read first.
        let value = |page: usize| if page.is_multiple_of(2) { 0 } else { 7 };
        for page in (0..PAGES).filter(|&page| changed(page)) {
            if page.is_multiple_of(4) {
                load(&region, page * WORDS);
            }
            store(&region, page * WORDS, value(page));
        }
        for _ in 0..2 {
            for page in 0..PAGES {
                let expected = if changed(page) { value(page) } else { page as u64 + 1 };
                assert_eq!(load(&region, page * WORDS), expected, "{name} {page}");
                assert_eq!(first_word(&file, page), page as u64 + 1, "{name}");
            }
        }
        let written = pager.statistics().written_pages;
        assert!((50..=70).contains(&written), "{name}: {written}");
        region.discard(0, region.bytes()).unwrap();
        assert_eq!(pager.statistics().stored_pages, 0, "{name}");
        for page in 0..PAGES {
            assert_eq!(load(&region, page * WORDS), page as u64 + 1, "{name} {page}");
        }
    });
}

#[test]
fn parts_of_files_and_zeros_lie_side_by_side() {
    each(|config, name| {
        let pager = local(config);
        let (one, two) = (numbered(PAGES * PAGE_BYTES), numbered(PAGES * PAGE_BYTES));
        write(&two, 150, 5000);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        let put = |page: usize, pages: usize, file: &File, from: usize| {
            let (offset, from) = (page * PAGE_BYTES, (from * PAGE_BYTES) as u64);
            let bytes = pages * PAGE_BYTES;
            region.map_file(offset, bytes, file, from, FileChanges::Seen).unwrap();
        };
        put(20, 100, &one, 0);
        put(60, 20, &two, 140);
        region.map_zeros(100 * PAGE_BYTES, 10 * PAGE_BYTES).unwrap();
        region.map_more(80 * PAGE_BYTES, 5 * PAGE_BYTES).unwrap();
        let expected = |page: usize| match page {
            70 => 5000,
            60..85 => page as u64 - 60 + 141,
            100..110 | 0..20 | 120.. => 0,
            _ => page as u64 - 20 + 1,
        };
        for round in 0..4_u32 {
            for step in 0..PAGES {
                let page = if round.is_multiple_of(2) { step } else { PAGES - 1 - step };
                assert_eq!(load(&region, page * WORDS), expected(page), "{name} {page}");
            }
        }
        // They move with the program's changes.
        store(&region, 65 * WORDS, 9);
        region.remap(50 * PAGE_BYTES, 40 * PAGE_BYTES, 150 * PAGE_BYTES).unwrap();
        for page in 50..90 {
            let value = if page == 65 { 9 } else { expected(page) };
            assert_eq!(load(&region, page * WORDS), 0, "{name} {page}");
            assert_eq!(load(&region, (page + 100) * WORDS), value, "{name} {page}");
        }
        assert_eq!(load(&region, 49 * WORDS), expected(49), "{name}");
    });
}

#[test]
fn the_rest_of_the_last_page_is_zero_and_pages_behind_it_raise_a_bus_error() {
    each(|config, name| {
        let (status, text) = child(name, || {
            let pager = local(config.clone());
            let file = numbered(100 * PAGE_BYTES + 16);
            let region = mapped(&pager, &file, FileChanges::Seen);
            assert_eq!(load(&region, 100 * WORDS), 101);
            assert!((2..WORDS).all(|word| load(&region, 100 * WORDS + word) == 0));
            // It shrinks; what was seen is gone, once it has left the RAM.
            file.set_len(50 * PAGE_BYTES as u64).unwrap();
            push_out(&pager);
            assert_eq!(load(&region, 49 * WORDS), 50);
            eprintln!("now");
            load(&region, 50 * WORDS);
            eprintln!("the load went on");
        });
        if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
            assert_eq!(status.signal(), Some(libc::SIGBUS), "{name}: {text}");
            assert!(text.contains("now") && !text.contains("lost"), "{name}: {text}");
            assert!(!text.contains("the load went on"), "{name}: {text}");
        }
    });
}

#[test]
fn changes_of_others_are_seen_or_refused_as_is_asked_for() {
    each(|config, name| {
        let pager = local(config.clone());
        let file = numbered(PAGES * PAGE_BYTES);
        let region = mapped(&pager, &file, FileChanges::Seen);
        assert_eq!(load(&region, 7 * WORDS), 8, "{name}");
        push_out(&pager);
        write(&file, 7, 77);
        assert_eq!(load(&region, 7 * WORDS), 77, "{name}");
        let (status, text) = child(name, || {
            let pager = local(config.clone());
            let file = numbered(PAGES * PAGE_BYTES);
            let region = mapped(&pager, &file, FileChanges::Refused);
            assert_eq!(load(&region, 7 * WORDS), 8);
            push_out(&pager);
            // One that nobody has seen, and one that was seen.
            write(&file, 99, 999);
            assert_eq!(load(&region, 99 * WORDS), 999);
            write(&file, 7, 77);
            load(&region, 7 * WORDS);
            eprintln!("the load went on");
        });
        if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
            assert_eq!(status.signal(), Some(libc::SIGBUS), "{name}: {text}");
            let says = "the file that page 7 of region 0 is of was changed";
            assert!(text.contains(says), "{name}: {text}");
            assert!(!text.contains("the load went on"), "{name}: {text}");
        }
    });
}

#[test]
fn pages_that_are_open_to_loads_only_leave_the_ram_too() {
    each(|config, name| {
        let pager = local(config);
        let file = numbered(PAGES * PAGE_BYTES);
        let region = mapped(&pager, &file, FileChanges::Seen);
        for page in 0..PAGES {
            if page.is_multiple_of(2) {
                store(&region, page * WORDS, page as u64 + 1000);
            }
        }
        allow_loads_only(&region);
        for _ in 0..3 {
            for page in 0..PAGES {
                let expected = page as u64 + if page.is_multiple_of(2) { 1000 } else { 1 };
                assert_eq!(load(&region, page * WORDS), expected, "{name} {page}");
            }
        }
        let counts = pager.statistics();
        assert!(counts.resident_pages <= 34, "{name}: {counts:?}");
        assert_eq!(counts.lost_pages, 0, "{name}");
    });
}

#[test]
fn several_threads_find_what_each_stored_and_what_the_file_has() {
    each(|config, name| {
        let pager = local(config);
        let file = numbered(PAGES * PAGE_BYTES);
        let open = mapped(&pager, &file, FileChanges::Seen);
        let closed = mapped(&pager, &file, FileChanges::Refused);
        allow_loads_only(&closed);
        std::thread::scope(|scope| {
            for thread in 1..=4_usize {
                let (open, closed) = (&open, &closed);
                scope.spawn(move || {
                    let mut random = Random(thread as u64);
                    let mut expected = vec![0; PAGES];
                    for step in 0..3_000 {
                        let page = random.below(PAGES);
                        if random.below(3) == 0 {
                            expected[page] = step;
                            store(open, page * WORDS + thread, step);
                        }
                        let found = load(open, page * WORDS + thread);
                        assert_eq!(found, expected[page], "{name}: {thread}, {step}, {page}");
                        assert_eq!(load(open, page * WORDS), page as u64 + 1, "{name}");
                        let other = random.below(PAGES);
                        assert_eq!(load(closed, other * WORDS), other as u64 + 1, "{name}");
                    }
                });
            }
        });
        let counts = pager.statistics();
        assert!(counts.resident_pages <= 64, "{name}: {counts:?}");
        assert_eq!(counts.lost_pages, 0, "{name}");
    });
}

#[test]
fn windows_that_reach_over_pages_of_other_rights_bring_those_that_can_come() {
    each(|config, name| {
        let pager = local(config);
        let file = numbered(PAGES * PAGE_BYTES);
        for is_of_file in [false, true] {
            let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
            if is_of_file {
                let changes = FileChanges::Seen;
                region.map_file(0, region.bytes(), &file, 0, changes).unwrap();
            }
            for page in (5..PAGES).step_by(5) {
                close_page(&region, page, true);
            }
            for _ in 0..2 {
                for page in (0..PAGES).filter(|page| *page == 0 || !page.is_multiple_of(5)) {
                    let expected = if is_of_file { page as u64 + 1 } else { 0 };
                    assert_eq!(load(&region, page * WORDS), expected, "{name} {page}");
                }
            }
            assert_eq!(pager.statistics().lost_pages, 0, "{name}");
        }
    });
}

#[test]
fn a_forked_child_has_the_file_and_what_was_changed() {
    in_child("fork_file", || {
        each(|config, name| {
            let pager = local(config);
            let file = numbered(PAGES * PAGE_BYTES);
            let region = mapped(&pager, &file, FileChanges::Refused);
            let check = |region: &Region, plus: u64, who: &str| {
                for page in 0..PAGES {
                    let expected = page as u64 + if page.is_multiple_of(4) { plus } else { 1 };
                    assert_eq!(load(region, page * WORDS), expected, "{name} {who} {page}");
                }
            };
            let change = |region: &Region, plus: u64| {
                for page in (0..PAGES).step_by(4) {
                    store(region, page * WORDS, page as u64 + plus);
                }
            };
            change(&region, 50);
            let pid = fork_frozen(&pager, &region, |pager, region| {
                check(region, 50, "child");
                change(region, 60);
                check(region, 60, "child");
                let grandchild = fork_frozen(pager, region, |_, region| {
                    check(region, 60, "grandchild");
                    region.discard(0, region.bytes()).unwrap();
                    check(region, 1, "grandchild");
                });
                join(grandchild, name);
            });
            change(&region, 70);
            check(&region, 70, "parent");
            join(pid, name);
        });
    });
}

#[test]
fn descriptors_of_files_are_closed_when_nothing_is_of_them_any_more() {
    in_child("descriptors", || {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let pager = local(Config::new(32));
        let file = numbered(PAGES * PAGE_BYTES);
        let before = open();
        let region = mapped(&pager, &file, FileChanges::Seen);
        let half = PAGES / 2 * PAGE_BYTES;
        region.map_file(half, half, &file, 0, FileChanges::Seen).unwrap();
        assert_eq!(open(), before + 1);
        region.map_zeros(0, half).unwrap();
        assert_eq!(open(), before + 1);
        region.map_zeros(half, half).unwrap();
        assert_eq!(open(), before);
        drop(mapped(&pager, &file, FileChanges::Seen));
        assert_eq!(open(), before);
    });
}

#[test]
fn mapping_a_file_leaves_the_locks_on_it_alone() {
    in_child("locks", || {
        let pager = local(Config::new(32));
        let file = numbered(PAGES * PAGE_BYTES);
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::fcntl_lock(&file, lock).unwrap();
        mapwire_host::descriptors::keep_above(100);
        let region = mapped(&pager, &file, FileChanges::Seen);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let status = super::memory::forked(|| {
            let other = File::options().read(true).write(true).open(&path).unwrap();
            let is_locked = rustix::fs::fcntl_lock(&other, lock).is_err();
            std::process::exit(i32::from(!is_locked));
        });
        assert!(status.success(), "the lock is gone");
        drop(region);
    });
}

#[test]
fn ranges_and_offsets_that_make_no_sense_are_told() {
    let pager = local(Config::new(32));
    let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
    let file = numbered(4096);
    let text = |offset, bytes, from| {
        let done = region.map_file(offset, bytes, &file, from, FileChanges::Seen);
        done.unwrap_err().to_string()
    };
    assert!(text(1, 4096, 0).contains("not a multiple of 4096"));
    assert!(text(0, 4096, 5).contains("offset 5 in the file"));
    assert!(text(0, 4096, u64::MAX - 4095).contains("too large"));
    assert!(text(0, region.bytes() + 1, 0).contains("not within"));
    assert!(text(usize::MAX - 4095, 4096, 0).contains("not within"));
}
