//! The directory against a map of the standard library.

extern crate std;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use std::sync::Mutex;

use mapwire_wire::NodeId;
use proptest::prelude::*;

use super::{CheckPoints, Directory, DirectoryFull, ENTRY_BYTES, Entry, PlainRows, RowSize, Rows};
use crate::name::{PageHash, PageName};

mod conformance;

fn name(page: u64) -> PageName {
    PageName { space: 1, page }
}

fn entry(page: u64, nodes: &[u16]) -> Entry {
    let mut entry = Entry::new(name(page), 1);
    assert!(nodes.iter().all(|&node| entry.add(NodeId(node))));
    entry
}

#[derive(Clone, Debug)]
enum Operation {
    Add { page: u64, node: u16 },
    Remove { page: u64, node: u16 },
    RemoveNode { node: u16 },
}

fn operations() -> impl Strategy<Value = Operation> {
    let page = 0u64..200;
    let node = 0u16..6;
    prop_oneof![
        8 => (page.clone(), node.clone()).prop_map(|(page, node)| Operation::Add { page, node }),
        4 => (page, node.clone()).prop_map(|(page, node)| Operation::Remove { page, node }),
        1 => node.prop_map(|node| Operation::RemoveNode { node }),
    ]
}

#[test]
fn plain_rows_pass_the_suite() {
    conformance::suite(PlainRows::new);
    conformance::suite(PlainRows::across_bus);
}

/// Rows across a bus that note the pieces in which they are read.
#[derive(Debug)]
struct Fetched {
    rows: PlainRows,
    pieces: Mutex<Vec<[usize; 2]>>,
}

impl Rows for Fetched {
    fn size(&self) -> RowSize {
        self.rows.size()
    }

    fn primary(&self) -> u32 {
        self.rows.primary()
    }

    fn check_points(&self) -> CheckPoints {
        self.rows.check_points()
    }

    fn read(&self, row: u32, places: Range<usize>, buffer: &mut [u8]) {
        self.pieces.lock().unwrap().push([places.start, places.end]);
        self.rows.read(row, places, buffer);
    }

    fn write(&mut self, row: u32, at: usize, entry: &[u8; ENTRY_BYTES]) {
        self.rows.write(row, at, entry);
    }

    fn allocate(&mut self) -> Option<u32> {
        self.rows.allocate()
    }

    fn free(&mut self, row: u32) {
        self.rows.free(row);
    }

    fn bytes(&self) -> usize {
        self.rows.bytes()
    }
}

fn fetched(size: RowSize, bytes: usize) -> Fetched {
    Fetched { rows: PlainRows::across_bus(size, bytes), pieces: Mutex::default() }
}

#[test]
fn a_scan_fetches_pieces_up_to_its_check_points_and_none_behind_what_it_finds() {
    let size = RowSize::SixtyFour;
    let mut directory = Directory::new(fetched(size, 2 * size.bytes()));
    for page in 0..64 {
        directory.update(&entry(page, &[1]), PageHash(0)).unwrap();
    }
    for (page, expected) in [
        (0, &[[0, 1]][..]),
        (1, &[[0, 1], [1, 7]]),
        (6, &[[0, 1], [1, 7]]),
        (7, &[[0, 1], [1, 7], [7, 37]]),
        (40, &[[0, 1], [1, 7], [7, 37], [37, 64]]),
    ] {
        directory.rows.pieces.lock().unwrap().clear();
        assert!(directory.lookup(name(page), PageHash(0)).is_some());
        assert_eq!(*directory.rows.pieces.lock().unwrap(), expected, "{page}");
    }
}

/// Few different rows, so that chains grow long.
fn hash(page: u64) -> PageHash {
    PageHash((page % 5) as u32)
}

proptest! {
    #[test]
    fn the_directory_holds_what_a_sorted_map_holds(
        operations in proptest::collection::vec(operations(), 1..400),
        rows in 2usize..40,
    ) {
        let size = RowSize::Eight;
        let mut directory = Directory::new(PlainRows::new(size, rows * size.bytes()));
        let mut oracle = BTreeMap::<u64, Entry>::new();
        for operation in operations {
            match operation {
                Operation::Add { page, node } => {
                    let held = oracle.get(&page).copied();
                    prop_assert_eq!(directory.lookup(name(page), hash(page)), held);
                    let mut entry = held.unwrap_or(Entry::new(name(page), 1));
                    if entry.add(NodeId(node)) && directory.update(&entry, hash(page)).is_ok() {
                        oracle.insert(page, entry);
                    } else {
                        // Only a new entry may find no room.
                        prop_assert!(held.is_none() || held == Some(entry));
                    }
                }
                Operation::Remove { page, node } => {
                    if let Some(entry) = oracle.get_mut(&page) {
                        entry.remove(NodeId(node));
                        prop_assert_eq!(directory.update(entry, hash(page)), Ok(()));
                    }
                }
                Operation::RemoveNode { node } => {
                    directory.change_all(|entry| { entry.remove(NodeId(node)); });
                    oracle.values_mut().for_each(|entry| { entry.remove(NodeId(node)); });
                }
            }
            oracle.retain(|_, entry| entry.copies().len() > 0);
            prop_assert_eq!(directory.len(), oracle.len());
        }
        for page in 0..200 {
            prop_assert_eq!(directory.lookup(name(page), hash(page)), oracle.get(&page).copied());
        }
        let mut seen = 0;
        directory.change_all(|entry| { seen += 1; *entry = Entry::new(entry.name(), 1); });
        prop_assert_eq!(seen, oracle.len());
        // Every overflow row is free again.
        let mut unused = 0;
        while directory.rows.allocate().is_some() { unused += 1; }
        prop_assert_eq!(unused + directory.rows.primary() as usize, rows);
    }
}

#[test]
fn a_full_directory_refuses_new_pages_and_keeps_the_others() {
    let mut directory = Directory::new(PlainRows::new(RowSize::Eight, 2 * 256));
    for page in 0..16 {
        directory.update(&entry(page, &[1]), PageHash(0)).unwrap();
    }
    let more = directory.update(&entry(16, &[1]), PageHash(0));
    assert_eq!(more, Err(DirectoryFull));
    directory.update(&entry(3, &[1, 2]), PageHash(0)).unwrap();
    directory.update(&entry(4, &[]), PageHash(0)).unwrap();
    directory.update(&entry(16, &[1]), PageHash(0)).unwrap();
    assert_eq!(directory.len(), 16);
}

#[test]
fn a_lookup_counts_the_rows_and_entries_that_it_scans() {
    let mut directory = Directory::new(PlainRows::new(RowSize::Eight, 2 * 256));
    for page in 0..12 {
        directory.update(&entry(page, &[1]), PageHash(0)).unwrap();
    }
    let before = directory.scanned();
    assert!(directory.lookup(name(10), PageHash(0)).is_some());
    let after = directory.scanned();
    assert_eq!(after.rows - before.rows, 2);
    assert_eq!(after.entries - before.entries, 11);
}

#[test]
fn an_update_behind_a_lookup_scans_nothing_and_writes_one_entry() {
    let mut directory = Directory::new(PlainRows::new(RowSize::Eight, 2 * 256));
    for page in 0..12 {
        directory.update(&entry(page, &[1]), PageHash(0)).unwrap();
    }
    let before = directory.scanned();
    let mut found = directory.lookup(name(10), PageHash(0)).unwrap();
    assert!(found.add(NodeId(2)));
    directory.update(&found, PageHash(0)).unwrap();
    let after = directory.scanned();
    assert_eq!(after.rows - before.rows, 2);
    assert_eq!(after.entries - before.entries, 11);
    assert_eq!(after.written - before.written, 1);
    assert_eq!(directory.lookup(name(10), PageHash(0)), Some(found));
}
