//! What every implementation of [`Rows`] must pass.

use alloc::collections::BTreeMap;

use mapwire_wire::NodeId;

use super::super::{Directory, DirectoryFull, ENTRY_BYTES, Entry, RowSize, Rows};
use crate::name::{PageHash, PageName};

/// Operations of a run against the oracle.
const OPERATIONS: usize = 4_000;
/// Pages that they name.
const PAGES: u64 = 200;

/// Runs all of it over rows that `make` gives for an entry count and a budget in bytes.
///
/// # Panics
/// The rows are not as they must be.
pub(super) fn suite<R: Rows>(make: impl Fn(RowSize, usize) -> R) {
    for size in [RowSize::Eight, RowSize::ThirtyTwo, RowSize::SixtyFour] {
        entries_are_read_as_they_were_written(make(size, 4 * size.bytes()));
        for rows in [1, 2, 9, 64] {
            agrees_with_oracle(make(size, rows * size.bytes()), rows);
        }
        keeps_what_it_has_when_full(make(size, 2 * size.bytes()));
        spoilt_rows_neither_panic_nor_hang(|| make(size, 9 * size.bytes()));
    }
}

/// Numbers that look random (SplitMix64).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn name(page: u64) -> PageName {
    PageName { space: 1, page }
}

/// Few different rows, so that chains grow long.
fn hash(page: u64) -> PageHash {
    PageHash((page % 5) as u32)
}

/// Each entry is a place of its own, and pieces of a row are parts of it.
fn entries_are_read_as_they_were_written(mut rows: impl Rows) {
    let entries = rows.size().entries();
    assert!(rows.primary().is_power_of_two());
    assert!(rows.bytes() >= rows.primary() as usize * rows.size().bytes());
    let mut expected = alloc::vec![0; rows.size().bytes()];
    let mut found = expected.clone();
    rows.read(0, 0..entries, &mut found);
    assert_eq!(found, expected, "a row that is not in use holds zeros");
    for at in 0..entries {
        let entry = [at as u8 + 1; ENTRY_BYTES];
        rows.write(0, at, &entry);
        expected[at * ENTRY_BYTES..][..ENTRY_BYTES].copy_from_slice(&entry);
    }
    for (from, until) in [(0, entries), (0, 1), (1, 7), (entries - 1, entries), (3, 3)] {
        let piece = &mut found[..(until - from) * ENTRY_BYTES];
        rows.read(0, from..until, piece);
        assert_eq!(piece, &expected[from * ENTRY_BYTES..until * ENTRY_BYTES]);
    }
    let other = rows.primary() - 1;
    if other > 0 {
        rows.read(other, 0..entries, &mut found);
        assert!(found.iter().all(|&byte| byte == 0), "another row changed");
    }
}

/// A directory over the rows holds what a sorted map holds, and gives every row back.
fn agrees_with_oracle(rows: impl Rows, count: usize) {
    let seed = count as u64;
    let mut state = seed;
    let mut directory = Directory::new(rows);
    let mut oracle = BTreeMap::<u64, Entry>::new();
    for step in 0..OPERATIONS {
        let page = draw(&mut state) % PAGES;
        let node = NodeId((draw(&mut state) % 6) as u16);
        let held = oracle.get(&page).copied();
        let found = directory.lookup(name(page), hash(page));
        assert_eq!(found, held, "step {step} of seed {seed}");
        match draw(&mut state) % 16 {
            0 => {
                directory.change_all(|entry| {
                    entry.remove(node);
                });
                oracle.values_mut().for_each(|entry| {
                    entry.remove(node);
                });
            }
            1..10 => {
                let mut entry = held.unwrap_or(Entry::new(name(page), 1));
                if entry.add(node) {
                    match directory.update(&entry, hash(page)) {
                        Ok(()) => {
                            oracle.insert(page, entry);
                        }
                        Err(DirectoryFull) => assert_eq!(held, None, "only a new page needs room"),
                    }
                }
            }
            _ => {
                if let Some(entry) = oracle.get_mut(&page) {
                    entry.remove(node);
                    assert_eq!(directory.update(entry, hash(page)), Ok(()));
                }
            }
        }
        oracle.retain(|_, entry| entry.copies().len() > 0);
        assert_eq!(directory.len(), oracle.len(), "step {step} of seed {seed}");
    }
    let mut shown = BTreeMap::new();
    directory.for_each(|entry| {
        shown.insert(entry.name().page, *entry);
    });
    assert_eq!(shown, oracle);
    let mut seen = 0;
    directory.change_all(|entry| {
        seen += 1;
        *entry = Entry::new(entry.name(), 1);
    });
    assert_eq!(seen, oracle.len());
    let primary = directory.rows.primary() as usize;
    let mut unused = 0;
    while directory.rows.allocate().is_some() {
        unused += 1;
    }
    assert_eq!(primary + unused, count, "every other row is free again");
}

/// A page for which there is no room is refused, and no other is lost.
fn keeps_what_it_has_when_full(rows: impl Rows) {
    let mut directory = Directory::new(rows);
    let mut pages = 0;
    loop {
        let mut entry = Entry::new(name(pages), 1);
        assert!(entry.add(NodeId(1)));
        if directory.update(&entry, PageHash(0)) == Err(DirectoryFull) {
            break;
        }
        pages += 1;
    }
    assert_eq!(directory.len() as u64, pages);
    let mut is_there = |page| directory.lookup(name(page), PageHash(0)).is_some();
    assert!((0..pages).all(&mut is_there) && !is_there(pages));
}

/// Whatever somebody else writes into the rows, operations end.
fn spoilt_rows_neither_panic_nor_hang<R: Rows>(make: impl Fn() -> R) {
    let spoilers: [fn(&mut u64) -> u8; 3] = [
        |_| 0xee,
        |state| draw(state) as u8,
        // Links within the table: chains meet, and go round.
        |state| (draw(state) % 3) as u8,
    ];
    for (seed, spoiler) in spoilers.into_iter().enumerate() {
        let mut state = seed as u64;
        let mut directory = Directory::new(make());
        for page in 0..400 {
            if page % 100 == 50 {
                for row in 0..directory.rows() as u32 {
                    for at in 0..directory.rows.size().entries() {
                        let entry = core::array::from_fn(|_| spoiler(&mut state));
                        directory.rows.write(row, at, &entry);
                    }
                }
            }
            let _ = directory.lookup(name(page), hash(page));
            let mut entry = Entry::new(name(page % 60), page as u32);
            let node = NodeId((page % 4) as u16);
            let _ = page % 3 != 0 && entry.add(node);
            let _ = directory.update(&entry, hash(page % 60));
            if page % 40 == 0 {
                directory.change_all(|entry| {
                    entry.remove(node);
                });
            }
        }
    }
}
