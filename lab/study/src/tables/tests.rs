use mapwire_trace::{Block, Metadata};
use mapwire_wire::TraceOp;

use super::*;
use crate::decode::Selection;
use crate::files::{FileError, TraceFindings};
use crate::study::{Allowed, Request, Study, StudyError};

/// Two processes that sweep buffers of so many pages, again and again, beside a few busy pages; and receives.
fn studied(request: Request, pages: u64) -> Result<TraceFindings, StudyError> {
    let mut allowed = Allowed::ALL;
    loop {
        let mut study = Study::new(request.clone(), allowed)?;
        let count = 4 * pages;
        let process: Vec<u16> = (0..count).map(|n| (n % 2) as u16).collect();
        let address: Vec<u64> =
            (0..count).map(|n| if n % 3 == 0 { (n % 5) << 12 } else { (100 + n % pages) << 12 }).collect();
        let op: Vec<u8> =
            (0..count).map(|n| if n % 7 == 0 { TraceOp::Receive as u8 } else { TraceOp::Send as u8 }).collect();
        let (zeros, flags) = (vec![0_u16; count as usize], vec![0_u8; count as usize]);
        let (time, bytes) = (vec![0; count as usize], vec![4096; count as usize]);
        let block = Block {
            time_ns: &time,
            node: &zeros,
            process: &process,
            op: &op,
            flags: &flags,
            address: &address,
            bytes: &bytes,
        };
        match study.take(&block).and_then(|()| study.finish()) {
            Err(StudyError::Again(less)) => allowed = less,
            Err(error) => return Err(error),
            Ok(findings) => {
                return Ok(TraceFindings {
                    path: format!("sweep{pages}.mwt").into(),
                    metadata: Metadata::default(),
                    findings,
                    damage: None,
                });
            }
        }
    }
}

fn all() -> (Gathered, Vec<Comparison>) {
    let mut source = |request: Request| {
        let of = |pages| {
            studied(request.clone(), pages).map_err(|cause| FileError::Study { file: "made up".to_owned(), cause })
        };
        Ok(vec![of(1500)?, of(6000)?])
    };
    let gathered = gather(&mut source, Selection::SEND_SIDE, Selection::ALL, 2).unwrap();
    let tables = comparisons(&gathered, &CostProfile::papers());
    (gathered, tables)
}

#[test]
fn every_table_and_figure_has_our_traces_beside_the_papers_cells() {
    let (gathered, tables) = all();
    assert_eq!(gathered.names, ["sweep1500", "sweep6000"]);
    let names: Vec<_> = tables.iter().map(|table| table.name).collect();
    let expected = [
        "Table 3", "Table 4", "Table 5", "Table 6", "Table 7", "Table 8", "Figure 7", "Figure 8", "Figure 3",
        "Figure 5",
    ];
    assert_eq!(names, expected);
    for table in &tables {
        assert!(!table.row_keys.is_empty() && !table.caption.is_empty(), "{}", table.name);
        let numbers = table.ours.rows.iter().flatten().filter(|cell| cell.value.is_some()).count();
        assert!(numbers >= table.row_keys.len() / 2, "{}: {numbers} numbers", table.name);
        for column in &table.ours.columns {
            assert!(
                matches!(table.name, "Table 3" | "Figure 3")
                    || gathered.names.iter().any(|name| column.starts_with(name)),
                "{column}"
            );
        }
        let cells = table.row_keys.len() * (table.ours.columns.len() + table.published.columns.len());
        assert_eq!(table.to_json().len(), cells);
    }
}

#[test]
fn tables_agree_with_one_another() {
    let (gathered, tables) = all();
    let named = |name: &str| tables.iter().find(|table| table.name == name).unwrap();
    let (four, eight, seven, six) = (named("Table 4"), named("Table 8"), named("Figure 7"), named("Table 6"));
    for size in ["1K", "2K", "4K", "8K", "16K"] {
        let misses = four.ours_at(&[size, "NI misses"], "sweep6000 UTLB").unwrap();
        assert_eq!(misses, four.ours_at(&[size, "NI misses"], "sweep6000 Intr").unwrap());
        assert_eq!(misses, eight.ours_at(&[size, "direct"], "sweep6000").unwrap());
        let causes: f64 = ["compulsory", "capacity", "conflict"]
            .iter()
            .map(|cause| seven.ours_at(&[size, cause], "sweep6000").unwrap().value.unwrap())
            .sum();
        assert!((causes - misses.value.unwrap()).abs() < 1e-9);
        let checks = four.ours_at(&[size, "check misses"], "sweep6000 UTLB").unwrap().value.unwrap();
        let cost = six.ours_at(&[size], "sweep6000 UTLB").unwrap().value.unwrap();
        assert!((cost - (1.3 + 27.0 * checks + 1.8 * misses.value.unwrap())).abs() < 1e-3);
    }
    let words = conclusions(&gathered.names, &tables).join("\n");
    let conflicts = seven.ours_at(&["8K", "conflict"], "sweep6000").unwrap();
    assert!(conflicts.value.unwrap() >= 0.0);
    assert!(words.contains("sweep6000: with 8K entries a lookup costs "), "{words}");
    // The paper's side is the paper's.
    let row = four.row_keys.iter().position(|keys| keys == &["1K", "NI misses"]).unwrap();
    let column = four.published.columns.iter().position(|name| name == "FFT Intr").unwrap();
    assert_eq!(four.published.rows[row][column].text, "0.50");
}
