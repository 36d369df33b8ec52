use super::*;
use crate::paper::Options;
#[test]
fn probe() {
    let report = run(&Options::default()).unwrap();
    for table in &report.tables {
        eprintln!("== {} {:?}", table.name, table.columns);
        for row in &table.rows {
            let cells: Vec<String> = row
                .cells
                .iter()
                .map(|c| {
                    format!(
                        "{:.3} ({} {:?})",
                        c.milli.unwrap_or(0) as f64 / 1000.0,
                        c.published.map_or(0.0, |p| p.milli as f64 / 1000.0),
                        c.difference()
                    )
                })
                .collect();
            eprintln!("{:?} {}", row.keys, cells.join(" | "));
        }
    }
    eprintln!("{:?}", report.summary());
}
