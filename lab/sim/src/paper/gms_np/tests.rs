//! The paper's machine, and that it says the same everywhere.

use super::*;

fn report() -> Report {
    run(&Options::default()).unwrap()
}

#[test]
fn explore() {
    let report = report();
    for table in &report.tables {
        println!("== {} ({}) {:?}", table.name, table.unit, table.columns);
        for row in &table.rows {
            print!("{:?} ", row.keys);
            for cell in &row.cells {
                match cell.published {
                    Some(p) => print!("{}/{} {:?}% {} | ", cell.milli.unwrap(), p.milli, cell.difference().map(|d| d as f64 / 10.0), cell.role.word()),
                    None => print!("{:?} | ", cell.milli),
                }
            }
            println!();
        }
        for note in &table.notes { println!("  * {note}"); }
    }
}

#[test]
fn timing() {
    let tables = Tables { profile: testbed(), row_size: mapwire_gms::RowSize::ThirtyTwo };
    let t = std::time::Instant::now();
    tables.all().unwrap(); println!("all {:?}", t.elapsed());
    tables.figure_6().unwrap(); println!("fig6 {:?}", t.elapsed());
    tables.beyond().unwrap(); println!("beyond {:?}", t.elapsed());
}
