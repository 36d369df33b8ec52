//! UTLB's machine: that it says the same everywhere, and what the notes say of it.

use super::*;
use crate::paper::{Role, Table};

/// The figures of a table, row by row, in thousandths.
fn values(table: &Table) -> Vec<Vec<i64>> {
    let cells = |row: &crate::paper::Row| row.cells.iter().filter_map(|cell| cell.milli).collect();
    table.rows.iter().map(cells).collect()
}

/// Barnes, then FFT, with 1 K, 4 K and 16 K entries.
const TABLE_6: [[i64; 2]; 6] =
    [[2_565, 4_874], [2_475, 2_548], [2_457, 1_918], [8_956, 22_032], [8_938, 21_270], [8_740, 15_136]];

#[test]
fn table_6_is_the_same_to_the_last_digit_and_what_the_equation_gives_within_a_fortieth() {
    let runs = lookups::run(&["Barnes", "FFT"]).unwrap();
    let table = runs.table_6();
    assert_eq!(values(&table), TABLE_6);
    for cell in table.rows.iter().flat_map(|row| &row.cells) {
        assert_eq!(cell.role, Role::Input);
        assert!(cell.difference().unwrap().abs() <= 25, "{cell:?}");
    }
    // What the streams were made from comes out of the designs, to a hundredth of a lookup.
    for cell in runs.table_4().rows.iter().flat_map(|row| &row.cells) {
        let theirs = cell.published.unwrap();
        assert!((cell.milli.unwrap() - theirs.milli).abs() <= theirs.digit_milli, "{cell:?}");
        assert_eq!(cell.role, Role::Input);
    }
}

#[test]
fn what_went_into_the_machine_comes_out_of_it() {
    let tables = [operations::table_1().unwrap(), operations::table_2().unwrap()];
    let (mut inputs, mut between) = (0, 0);
    for cell in tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells) {
        if cell.published.is_some() {
            match cell.role {
                Role::Input => inputs += 1,
                _ => between += 1,
            }
            assert!(cell.difference().is_some_and(|tenths| tenths.abs() < 80), "{cell:?}");
        }
    }
    assert_eq!((inputs, between), (15, 4), "misses of 2 to 16 entries");
}

/// 256 bytes, 4 KB and 1 MB one way: UTLB in the NIC, on the host, not pinned; Intr and VMMC in the NIC and not.
const END_TO_END: [[i64; 3]; 7] = [
    [21_915, 112_048, 105_153],
    [26_515, 116_648, 98_776],
    [51_215, 141_348, 92_323],
    [21_415, 111_548, 105_158],
    [50_915, 141_048, 81_900],
    [21_415, 111_548, 105_158],
    [138_915, 229_048, 96_864],
];

#[test]
fn the_effects_of_lookups_are_the_same_to_the_last_digit() {
    let tables = effects::tables().unwrap();
    assert_eq!(values(&tables[0]), END_TO_END);
}
