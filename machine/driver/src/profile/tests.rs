use core::sync::atomic::{AtomicU64, Ordering};
use std::os::unix::fs::PermissionsExt;

use super::*;

static NOW: AtomicU64 = AtomicU64::new(1);

fn folder() -> tempfile::TempDir {
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().unwrap()
}

fn profile(folder: &Path) -> Profile {
    let profile = Profile::create(folder, 3, 4, || NOW.load(Ordering::Relaxed)).unwrap();
    profile.open(1, Means::Minipages);
    profile
}

fn report(folder: &Path) -> Report {
    Report::read(&std::fs::read(file_of(folder, 3)).unwrap()).unwrap()
}

const SMALL: Span = Span { view: 2, offset: 4096 + 80, bytes: 40 };

#[test]
fn faults_rights_and_bytes_of_a_unit_are_one_row() {
    let folder = folder();
    let profile = profile(folder.path());
    let at_page = Span { view: 2, offset: 4096, bytes: 0 };
    profile.note_fault(at_page, 4096 + 96, Right::Write);
    profile.note_right(SMALL, Right::Write);
    profile.note_right(SMALL, Right::None);
    NOW.fetch_add(SHORTLY_NS - 1, Ordering::Relaxed);
    profile.note_fault(SMALL, 4096 + 80, Right::Write);
    profile.note_right(SMALL, Right::Write);
    profile.note_right(SMALL, Right::Read);
    NOW.fetch_add(SHORTLY_NS, Ordering::Relaxed);
    profile.note_fault(SMALL, 4096 + 80, Right::Write);
    profile.note_moved(SMALL, 40);
    let read = report(folder.path());
    assert_eq!((read.rank, read.units.len()), (3, 1));
    let unit = read.units[0];
    let expected = (3, 0, 40, 1, 40);
    assert_eq!((unit.write_faults, unit.read_faults, unit.bytes, unit.returned, unit.length), expected);
    assert_eq!(unit.parts, [1 << 10 | 1 << 12, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(unit.first, 1 << 48 | (4096 + 96));
    assert!(read.was(Means::Minipages) && !read.was(Means::Lazy));
}

#[test]
fn a_right_to_a_run_of_lazy_pages_is_one_to_each_of_them() {
    let folder = folder();
    let profile = profile(folder.path());
    profile.open(2, Means::Lazy);
    let page = |number: u64| Span { view: 0, offset: number * 4096, bytes: 4096 };
    for turn in 0..2 {
        for number in 3..6 {
            profile.note_fault(page(number), number * 4096 + 8, Right::Read);
        }
        for right in [Right::Read, Right::None] {
            profile.note_right(Span { bytes: 3 * 4096, ..page(3) }, right);
        }
        let units = report(folder.path()).units;
        assert_eq!(units.len(), 3);
        assert!(units.iter().all(|unit| (unit.length, unit.returned) == (4096, turn)), "{units:?}");
    }
}

#[test]
fn what_one_place_allocates_in_a_row_is_one_range_and_sites_beyond_the_last_are_one() {
    let folder = folder();
    let profile = profile(folder.path());
    let here = CallSite { text: "src/a.rs", line: 7 };
    for number in 0..100 {
        profile.note_allocation(number * 48, 40, here);
    }
    profile.note_allocation(4800, 40, CallSite { text: "grid", line: 0 });
    profile.note_allocation(4848, 40, here);
    let read = report(folder.path());
    assert_eq!(read.ranges.len(), 3);
    assert_eq!((read.ranges[0].first & 0xffff, read.ranges[0].end & 0xffff), (0, 99 * 48 + 40));
    assert_eq!((read.sites[0].text.as_str(), read.sites[0].line, read.sites[0].allocations), ("src/a.rs", 7, 101));
    assert_eq!((read.sites[1].text.as_str(), read.sites[1].line, read.sites[1].bytes), ("grid", 0, 40));
    for line in 0..2 * MOST_SITES as u32 {
        profile.note_allocation(1 << 20, 1, CallSite { text: "src/b.rs", line: line + 1 });
    }
    let read = report(folder.path());
    assert_eq!(read.sites.len(), MOST_SITES);
    let last = read.sites.last().unwrap();
    assert_eq!((last.text.as_str(), last.allocations), ("other places", MOST_SITES as u64 + 3));
}

#[test]
fn more_units_than_there_is_room_for_lose_no_fault() {
    let folder = folder();
    let profile = profile(folder.path());
    let faults = 3 * units(4) as u64;
    for page in 0..faults {
        let offset = page * 4096;
        profile.note_fault(Span { view: 0, offset, bytes: 4096 }, offset, Right::Read);
    }
    let read = report(folder.path());
    assert_eq!(read.units.iter().map(Unit::faults).sum::<u64>(), faults);
    assert!(read.units.iter().any(Unit::is_area));
}

#[test]
fn a_long_path_keeps_its_end_and_a_hostile_file_gives_nothing_wild() {
    let folder = folder();
    let profile = profile(folder.path());
    let long = format!("{}/end.rs", "é".repeat(300));
    profile.note_allocation(0, 1, CallSite { text: &long, line: 1 });
    let read = report(folder.path());
    assert!(read.sites[0].text.ends_with("éé/end.rs"), "{:?}", read.sites);
    for fill in [0_u8, 0xff] {
        let mut bytes = vec![fill; file_bytes(units(4))];
        assert_eq!(Report::read(&bytes), None);
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[8..16].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[16..24].copy_from_slice(&7_u64.to_ne_bytes());
        for length in [0, 7, 64, 1000, 300_000, bytes.len()] {
            if let Some(read) = Report::read(&bytes[..length]) {
                assert!(read.ranges.iter().all(|range| range.site < read.sites.len()));
            }
        }
    }
}
