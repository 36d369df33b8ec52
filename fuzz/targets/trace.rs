//! A trace file gives valid records in order of time, whatever it holds; what was read is written again as a file with the same records.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mapwire_trace::{Metadata, RawReader, TraceReader, TraceWriter};
use zerocopy::IntoBytes;

/// Makes the checksums of `bytes` right as far as its blocks go, so that changes reach what stands behind them.
fn with_right_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let word = |bytes: &[u8], at: usize| -> Option<usize> {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(word.try_into().ok()?) as usize)
    };
    let Some(metadata_bytes) = word(&bytes, 12) else {
        return bytes;
    };
    let mut at = 16 + metadata_bytes;
    if at + 4 <= bytes.len() {
        let checksum = crc32fast::hash(&bytes[..at]).to_le_bytes();
        bytes[at..at + 4].copy_from_slice(&checksum);
    }
    at += 4;
    while let Some(length) = word(&bytes, at + 4)
        && let Some(end) = (at + 32).checked_add(length).filter(|end| *end <= bytes.len())
    {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[at..at + 12]);
        hasher.update(&bytes[at + 16..end]);
        let checksum = hasher.finalize().to_le_bytes();
        bytes[at + 12..at + 16].copy_from_slice(&checksum);
        at = end;
    }
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    // The same bytes as a rank's file: what it gives is valid.
    for record in RawReader::new(bytes, "raw").flatten() {
        assert!(record.op().is_some());
    }
    let bytes = with_right_checksums(bytes);
    let Ok(reader) = TraceReader::new(&bytes[..], "fuzz") else {
        return;
    };
    let mut reader = reader.keep_good_part();
    let mut records = Vec::new();
    while let Ok(Some(block)) = reader.next_block() {
        records.extend(block.records());
    }
    assert_eq!(reader.so_far().records, records.len() as u64);
    assert!(records.is_sorted_by_key(|record| record.time_ns.get()));
    let mut writer = TraceWriter::new(Vec::new(), &Metadata::default()).unwrap();
    for record in &records {
        assert!(record.op().is_some());
        writer.push(record).unwrap();
    }
    let written = writer.finish().unwrap();
    let again: Result<Vec<_>, _> = TraceReader::new(&written[..], "again").unwrap().records().collect();
    assert!(again.unwrap().as_bytes() == records.as_bytes());
});
