//! What the paper states beside its figures. The digits are kept with those of all chapters.

use super::*;
use crate::paper::Options;

#[test]
fn what_the_paper_states_of_polling_and_interrupts_holds() {
    let machine = |notice| millipage(notice);
    for bytes in [128, 4096] {
        let read = |notice, is_busy| bench::read(&machine(notice), bytes, is_busy).unwrap();
        let (polling, interrupts) = (read(Notice::Polling, false), read(Notice::Interrupts, false));
        // "No difference" while nothing else runs: 5 % at most.
        assert!(polling.abs_diff(interrupts) * 20 < polling);
        // "Significantly" slower, and "a slight reduction", beside a program.
        assert!(read(Notice::Polling, true) > 3 * polling);
        let busy = read(Notice::Interrupts, true);
        assert!(busy > interrupts && busy * 20 < interrupts * 21);
    }
    // No application is slower by interrupts.
    let [table, _] = table_1::tables().unwrap();
    for row in &table.rows {
        let improvement = row.cells[3].milli.unwrap();
        assert!((0..25_000).contains(&improvement), "{row:?}");
    }
}

#[test]
fn a_row_size_is_refused() {
    let options = Options { row_size: Some(mapwire_gms::RowSize::Eight), ..Options::default() };
    let error = run(&options).unwrap_err().to_string();
    assert!(error.contains("millipage"), "{error}");
}
