//! The chapter's digits, and what the paper states beside its figures.

use super::applications::APPLICATIONS;
use super::*;
use crate::paper::{Options, Table};

/// All figures of a table, row by row, in thousandths.
fn values(table: &Table) -> Vec<Vec<i64>> {
    let cells = |row: &crate::paper::Row| row.cells.iter().filter_map(|cell| cell.milli).collect();
    table.rows.iter().map(cells).collect()
}

#[test]
fn the_papers_table_and_figure_are_the_same_to_the_last_digit() {
    let (_, _, responses, processor) = figure_3::all().unwrap();
    let golden: [&[i64]; 7] = [
        &[201_102, 208_932, 1_000_316, 213_907],
        &[202_842, 210_672, 1_000_325, 215_647],
        &[210_082, 218_017, 1_000_342, 222_992],
        &[217_313, 225_248, 1_000_377, 230_223],
        &[231_239, 239_174, 1_000_447, 244_149],
        &[259_092, 267_027, 1_000_586, 272_002],
        &[314_294, 322_219, 1_000_764, 327_194],
    ];
    assert_eq!(values(&responses), golden);
    let golden: [&[i64]; 2] = [&[90_776, 70_776, 1_282], &[138_626, 70_776, 1_958]];
    assert_eq!(values(&processor), golden);
    let table = table_1::table().unwrap();
    let golden: [&[i64]; 5] = [
        &[7_100, 1_138, 1_129, 790, 0],
        &[26_000, 4_655, 4_350, 6_552, 4_666],
        &[20_600, 2_759, 2_706, 1_920, 4_946],
        &[15_300, 2_776, 2_473, 10_914, 14_552],
        &[160_000, 22_013, 21_739, 1_244, 17_332],
    ];
    assert_eq!(values(&table), golden);
    let basic = basic::table().unwrap();
    let golden = [
        202_842, 314_294, 211_429, 413_780, 314_294, 472_121, 66_792, 83_726, 11_000, 122_563,
        726_557,
    ];
    assert_eq!(values(&basic).concat(), golden);
}

#[test]
fn most_predictions_that_the_machine_can_make_are_within_a_tenth() {
    let (_, _, responses, processor) = figure_3::all().unwrap();
    let report = Report {
        profiles: Vec::new(),
        tables: vec![
            responses,
            processor,
            table_1::table().unwrap(),
            basic::table().unwrap(),
        ],
        figures: Vec::new(),
    };
    let summary = report.summary();
    assert_eq!((summary.predicted, summary.within), (19, 10));
}

#[test]
fn what_the_paper_states_of_polling_and_interrupts_holds() {
    let machine = |notice| millipage(notice);
    for bytes in [128, 4096] {
        let read = |notice, is_busy| bench::read(&machine(notice), bytes, is_busy).unwrap();
        let (polling, interrupts) = (
            read(Notice::Polling, false),
            read(Notice::Interrupts, false),
        );
        // "No difference" while nothing else runs: 5 % at most.
        assert!(polling.abs_diff(interrupts) * 20 < polling);
        // "Significantly" slower, and "a slight reduction", beside a program.
        assert!(read(Notice::Polling, true) > 3 * polling);
        let busy = read(Notice::Interrupts, true);
        assert!(busy > interrupts && busy * 20 < interrupts * 21);
    }
    // No application is slower by interrupts.
    for application in &APPLICATIONS {
        let time = |notice| table_1::time(application, notice).unwrap();
        assert!(time(Notice::Interrupts) <= time(Notice::Polling));
    }
}

#[test]
fn a_row_size_is_refused() {
    let options = Options {
        row_size: Some(mapwire_gms::RowSize::Eight),
        ..Options::default()
    };
    let error = run(&options).unwrap_err().to_string();
    assert!(error.contains("millipage"), "{error}");
}
