//! The trace file: round trips, golden bytes, and what is wrong with files that were cut off or changed.

use mapwire_trace::{DamageKind, Metadata, ReadError, TraceReader, TraceWriter, WriteError};
use mapwire_wire::{TRACE_FLAG_DIRECT, TraceOp, TraceRecord};
use proptest::prelude::*;

fn metadata() -> Metadata {
    Metadata { made_by: "test".to_owned(), command: vec!["prog".to_owned()], ..Metadata::default() }
}

fn record(time_ns: u64, (node, process): (u16, u16), op: TraceOp, address: u64, bytes: u64) -> TraceRecord {
    TraceRecord {
        time_ns: time_ns.into(),
        address: address.into(),
        bytes: bytes.into(),
        node: node.into(),
        process: process.into(),
        op: op as u8,
        flags: if address.is_multiple_of(3) { TRACE_FLAG_DIRECT } else { 0 },
        reserved: 0.into(),
    }
}

fn written(records: &[TraceRecord]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &metadata()).unwrap();
    for record in records {
        writer.push(record).unwrap();
    }
    assert_eq!(writer.records(), records.len() as u64);
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> (Vec<TraceRecord>, Option<ReadError>) {
    let reader = match TraceReader::new(bytes, "f.mwt") {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (mut records, mut error) = (Vec::new(), None);
    for next in reader.records() {
        match next {
            Ok(record) => records.push(record),
            Err(found) => error = Some(found),
        }
    }
    (records, error)
}

/// A few blocks of a small job, in which every kind of column occurs.
fn job(records: u64) -> Vec<TraceRecord> {
    let ops = [TraceOp::Send, TraceOp::Receive, TraceOp::Fetch];
    (0..records)
        .map(|i| {
            let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let place = ((mixed % 4) as u16, (mixed % 3) as u16);
            let bytes = [8, 4096, 1 << 20][(mixed % 7 % 3) as usize];
            record(
                1000 + i * 300 + mixed % 250,
                place,
                ops[(i % 3) as usize],
                0x7f00_0000_0000 + mixed % 5000 * 64,
                bytes,
            )
        })
        .collect()
}

fn damage(error: Option<ReadError>) -> mapwire_trace::Damage {
    match error {
        Some(ReadError::Damaged(damage)) => damage,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_small_file_has_its_golden_bytes_and_that_of_the_first_version_is_read() {
    let records = [record(10, (1, 2), TraceOp::Send, 0x1000, 4096), record(12, (1, 2), TraceOp::Receive, 0x3000, 8)];
    let text = serde_json::to_string(&metadata()).unwrap();
    let head = |version| {
        let mut head = vec![0x8d, b'M', b'W', b'T', 0x0d, 0x0a, 0x1a, 0x0a, version, 0, 0, 0];
        head.extend_from_slice(&(text.len() as u32).to_le_bytes());
        head.extend_from_slice(text.as_bytes());
        head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
        head
    };
    let mut payload = vec![1, 0, 1, 0, 2, 0, 1, 0, 1, 0, 2, 0, 3, 1];
    // Streams 0 and 1, steps 0 and 2, bytes 4096 and 8, addresses: the widths are one byte, LZ4 has two literals.
    payload.extend_from_slice(&[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0x20, 0, 1]);
    payload.extend_from_slice(&[2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0x20, 0, 1]);
    payload.extend_from_slice(&[2, 2, 3, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x40, 0xff, 1, 0, 0]);
    payload.push(0);
    payload.extend_from_slice(&[2, 1, 13, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0x20, 0, 1]);
    let block = |mark: &[u8; 4], count: u32, first: u64, last: u64, payload: &[u8]| {
        let head = [mark, &(payload.len() as u32).to_le_bytes()[..], &count.to_le_bytes()].concat();
        let times = [first.to_le_bytes(), last.to_le_bytes()].concat();
        let checksum = crc32fast::hash(&[&head, &times, payload].concat());
        [&head, &checksum.to_le_bytes()[..], &times, payload].concat()
    };
    let blocks = [block(b"MWTB", 2, 10, 12, &payload), block(b"MWTE", 1, 10, 12, &2_u64.to_le_bytes())].concat();
    assert_eq!(written(&records), [head(3), blocks.clone()].concat());
    for version in [1, 2, 3] {
        let (again, error) = read(&[head(version), blocks.clone()].concat());
        assert!(error.is_none(), "{error:?}");
        assert_eq!(again, records);
    }
}

#[test]
fn a_file_without_records_is_whole() {
    let bytes = written(&[]);
    let mut reader = TraceReader::new(&bytes[..], "f.mwt").unwrap();
    assert_eq!(reader.metadata(), &metadata());
    assert!(reader.next_block().unwrap().is_none());
    assert!(reader.is_complete());
}

#[test]
fn long_traces_come_back_block_by_block() {
    let records = job(40_000);
    let bytes = written(&records);
    let mut reader = TraceReader::new(&bytes[..], "f.mwt").unwrap();
    let mut seen = 0;
    while let Some(block) = reader.next_block().unwrap() {
        for (index, record) in block.records().enumerate() {
            assert_eq!(record, records[seen + index]);
        }
        seen += block.len();
    }
    assert_eq!((seen, reader.so_far().records), (records.len(), records.len() as u64));
    assert_eq!(reader.position_bytes(), bytes.len() as u64);
    assert!(reader.is_complete());
    assert!(bytes.len() < records.len() * 8, "{} bytes", bytes.len());
}

#[test]
fn a_file_cut_at_any_byte_gives_whole_blocks_and_says_where_they_end() {
    let records = job(16_384 + 50);
    let bytes = written(&records);
    let (two, one) = (bytes.len() - 40, {
        let mut reader = TraceReader::new(&bytes[..], "f.mwt").unwrap();
        reader.next_block().unwrap();
        reader.position_bytes() as usize
    });
    let header = one - 32 - u32::from_le_bytes(bytes[one..][4..8].try_into().unwrap()) as usize;
    assert!(header < one && one < two);
    // Every byte around the block's borders, and some in the long first block.
    let lengths = (0..bytes.len()).filter(|l| *l < 600 || *l + 50 > one || l % 997 == 0);
    for length in lengths {
        let (found, error) = read(&bytes[..length]);
        let begin = length.min(found.len());
        assert_eq!(found[..], records[..found.len()], "{begin}");
        let error = error.unwrap_or_else(|| panic!("{length} bytes are no whole file"));
        match error {
            ReadError::NotATrace { .. } => assert!(found.is_empty() && length < 600),
            ReadError::Damaged(damage) => {
                let (at, whole) = match length {
                    l if l >= two => (two, records.len()),
                    l if l >= one => (one, 16_384),
                    _ => (damage.at as usize, 0),
                };
                assert_eq!((damage.at as usize, found.len()), (at, whole), "{length}");
                assert_eq!(damage.records, whole as u64);
                let kind = match length - at {
                    0 => DamageKind::NoEnd,
                    more => DamageKind::CutOff(more as u64),
                };
                if length >= one {
                    assert_eq!(damage.kind, kind, "{length}");
                }
                let text = damage.to_string();
                assert!(text.contains(&format!("f.mwt is good for {whole} records, up to byte {at}")), "{text}");
            }
            other => panic!("{length}: {other}"),
        }
    }
    let (all, error) = read(&bytes);
    assert!(error.is_none() && all == records);
}

#[test]
fn a_change_of_any_byte_is_found() {
    let records = job(60);
    let bytes = written(&records);
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= flip;
            let (found, error) = read(&changed);
            assert!(error.is_some(), "byte {at} of {}, changed by {flip:#x}", bytes.len());
            assert!(found.is_empty() || found == records);
        }
    }
}

#[test]
fn what_follows_the_end_is_found() {
    let mut bytes = written(&job(5));
    bytes.push(0);
    let (records, error) = read(&bytes);
    assert_eq!(records.len(), 5);
    assert_eq!(damage(error).kind, DamageKind::BehindEnd);
}

#[test]
fn two_files_behind_one_another_are_not_one() {
    let one = written(&job(5));
    let (records, error) = read(&[&one[..one.len() - 40], &one[..]].concat());
    assert_eq!(records.len(), 5);
    assert!(matches!(damage(error).kind, DamageKind::NoBlock(_)));
}

#[test]
fn a_block_out_of_its_place_is_found() {
    let records = job(3 * 16_384);
    let bytes = written(&records);
    let mut reader = TraceReader::new(&bytes[..], "f.mwt").unwrap();
    let mut borders = vec![reader.position_bytes() as usize];
    while reader.next_block().unwrap().is_some() {
        borders.push(reader.position_bytes() as usize);
    }
    let part = |i: usize| &bytes[borders[i]..borders[i + 1]];
    let end = &bytes[borders[3]..];
    let head = &bytes[..borders[0]];
    let swapped = [head, part(1), part(0), part(2), end].concat();
    let (found, error) = read(&swapped);
    assert_eq!(found[..], records[16_384..2 * 16_384]);
    assert!(matches!(damage(error).kind, DamageKind::Unordered { .. }));
    let (found, error) = read(&[head, part(0), part(2), end].concat());
    assert_eq!(found.len(), 2 * 16_384);
    assert_eq!(damage(error).kind, DamageKind::WrongEnd);
}

#[test]
fn the_good_part_alone_reads_as_a_file_that_ends_and_tells_of_the_damage() {
    let bytes = written(&job(50));
    let cut = &bytes[..bytes.len() - 1];
    let mut reader = TraceReader::new(cut, "f.mwt").unwrap().keep_good_part();
    assert_eq!(reader.next_block().unwrap().unwrap().len(), 50);
    assert!(reader.damage().is_none());
    assert!(reader.next_block().unwrap().is_none());
    assert!(!reader.is_complete());
    assert_eq!(reader.damage().unwrap().kind, DamageKind::CutOff(39));
    assert!(reader.next_block().unwrap().is_none());
}

#[test]
fn what_is_no_trace_is_refused_with_what_it_is() {
    for (bytes, says) in [
        (&b""[..], "it is empty"),
        (b"time_ns,node\n", "it begins with time_ns,"),
        (&[0x8d, b'M', b'W', b'T', 0x0a, 0x0a], "it begins with"),
        (&[0x8d, b'M', b'W', b'T', 0x0d], "cut off after 5 bytes"),
        (&[0x8d, b'M', b'W', b'T', 0x0d, 0x0a, 0x1a, 0x0a, 4, 0, 0, 0, 0, 0, 0, 0], "of version 4"),
        (&[0x8d, b'M', b'W', b'T', 0x0d, 0x0a, 0x1a, 0x0a, 1, 0, 0, 0, 0, 0, 0, 0xff], "claims 4278190080 bytes"),
    ] {
        let error = TraceReader::new(bytes, "f.mwt").unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("f.mwt"), "{error}");
    }
}

#[test]
fn records_that_cannot_be_in_a_trace_are_refused_and_others_may_follow() {
    let mut writer = TraceWriter::new(Vec::new(), &metadata()).unwrap();
    writer.push(&record(9, (0, 0), TraceOp::Send, 1, 1)).unwrap();
    let error = writer.push(&record(8, (0, 0), TraceOp::Send, 1, 1)).unwrap_err();
    assert!(matches!(error, WriteError::Unordered { record: 1, time_ns: 8, last_ns: 9 }));
    let mut wrong = record(9, (0, 0), TraceOp::Send, 1, 1);
    wrong.op = u8::MAX;
    assert!(matches!(writer.push(&wrong), Err(WriteError::Op { record: 1, op: u8::MAX })));
    writer.push(&record(9, (0, 0), TraceOp::Send, 2, 1)).unwrap();
    let (records, error) = read(&writer.finish().unwrap());
    assert!(error.is_none());
    assert_eq!(records.len(), 2);
}

#[test]
fn metadata_that_is_too_long_is_refused() {
    let long = Metadata { notes: vec!["x".repeat(1 << 20)], ..metadata() };
    let error = TraceWriter::new(Vec::new(), &long).unwrap_err();
    assert!(matches!(error, WriteError::Metadata { .. }));
}

#[test]
fn a_full_disk_is_an_error_of_the_push_that_meets_it() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = TraceWriter::new(Full(1000), &metadata()).unwrap();
    let error = job(20_000).iter().find_map(|r| writer.push(r).err());
    assert!(matches!(error, Some(WriteError::Io(e)) if e.kind() == std::io::ErrorKind::StorageFull));
}

fn any_record() -> impl Strategy<Value = (u64, TraceRecord)> {
    let step = prop_oneof![0..4_u64, 0..100_000_u64, Just(1 << 60)];
    let address = prop_oneof![(0..1000_u64).prop_map(|p| p * 4096), any::<u64>()];
    let bytes = prop_oneof![Just(4096), 0..10_000_u64, any::<u64>()];
    (step, 0..3_u16, any::<u16>(), 1..=9_u8, any::<u8>(), address, bytes).prop_map(
        |(step, node, process, op, flags, address, bytes)| {
            let record = TraceRecord {
                time_ns: 0.into(),
                address: address.into(),
                bytes: bytes.into(),
                node: node.into(),
                process: (process % 5).into(),
                op,
                flags,
                reserved: 0.into(),
            };
            (step, record)
        },
    )
}

proptest! {
    #[test]
    fn any_trace_comes_back(records in prop::collection::vec(any_record(), 0..3000)) {
        let mut now = 0_u64;
        let records: Vec<TraceRecord> = records
            .into_iter()
            .map(|(step, mut record)| {
                now = now.saturating_add(step);
                record.time_ns = now.into();
                record
            })
            .collect();
        let (again, error) = read(&written(&records));
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(again, records);
    }

    #[test]
    fn blocks_with_right_checksums_and_any_payload_do_no_harm(
        payload in prop::collection::vec(any::<u8>(), 0..300),
        count in 0..70_000_u32,
        times in any::<(u64, u64)>(),
    ) {
        let mut bytes = written(&[]);
        bytes.truncate(bytes.len() - 40);
        let head = [&b"MWTB"[..], &(payload.len() as u32).to_le_bytes(), &count.to_le_bytes()].concat();
        let times = [times.0.to_le_bytes(), times.1.to_le_bytes()].concat();
        let checksum = crc32fast::hash(&[&head, &times, &payload[..]].concat());
        bytes.extend_from_slice(&[&head, &checksum.to_le_bytes()[..], &times, &payload].concat());
        let (records, _) = read(&bytes);
        prop_assert!(records.iter().all(|r| r.op().is_some()));
        prop_assert!(records.is_sorted_by_key(|r| r.time_ns.get()));
    }
}
