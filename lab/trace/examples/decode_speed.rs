//! How fast trace files are decoded and written, and how small they are: `cargo run --release -p mapwire-trace --example
//! decode_speed [FILE...]`. Without files, synthetic traces of every pattern in memory.

use std::hint::black_box;
use std::time::Instant;

use mapwire_trace::generate::{Generator, Options, Pattern};
use mapwire_trace::{Metadata, TraceReader, TraceWriter};
use mapwire_wire::TraceRecord;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    for name in std::env::args().skip(1) {
        files.push((name.clone(), std::fs::read(&name)?));
    }
    if files.is_empty() {
        let mixed = [("mix".to_owned(), Pattern::ALL.to_vec())];
        let single = Pattern::ALL.map(|pattern| (pattern.to_string(), vec![pattern]));
        for (name, patterns) in single.into_iter().chain(mixed) {
            let options = Options { patterns, processes: 5, records: 4_000_000, ..Options::default() };
            let records: Vec<TraceRecord> = Generator::new(&options)?.collect();
            let begun = Instant::now();
            let mut writer = TraceWriter::new(Vec::new(), &Metadata::default())?;
            for record in &records {
                writer.push(record)?;
            }
            let bytes = writer.finish()?;
            let rate = records.len() as f64 / begun.elapsed().as_secs_f64() / 1e6;
            println!("{name:<12} written at {rate:.1} M records/s");
            files.push((name, bytes));
        }
    }
    for (name, bytes) in &files {
        let mut best = f64::INFINITY;
        let mut records = 0;
        for _ in 0..40 {
            let begun = Instant::now();
            let mut reader = TraceReader::new(&bytes[..], name.as_str())?;
            while let Some(block) = reader.next_block()? {
                black_box(&block);
            }
            records = reader.so_far().records;
            best = best.min(begun.elapsed().as_secs_f64());
        }
        println!(
            "{name:<12} {records} records, {:.2} bytes each, decoded at {:.1} M records/s",
            bytes.len() as f64 / records as f64,
            records as f64 / best / 1e6
        );
    }
    Ok(())
}
