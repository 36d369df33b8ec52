//! Round trips through other formats: what a format can hold comes back.

mod tables;

use std::collections::HashMap;
use std::io::{Cursor, Read, Seek, SeekFrom, Write};

use mapwire_trace::convert::{
    ConvertError, ExportOptions, Exported, Format, Import, ImportOptions, Sorted, export, import,
};
use mapwire_trace::info::is_transfer;
use mapwire_trace::pages::{cut, pages_of};
use mapwire_trace::{Metadata, TraceReader, TraceWriter};
use mapwire_wire::{TRACE_FLAG_DIRECT, TraceOp, TraceRecord};
use proptest::prelude::*;

fn metadata() -> Metadata {
    Metadata { synthetic: true, command: vec!["made".to_owned(), "up".to_owned()], ..Metadata::default() }
}

fn written(records: &[TraceRecord]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &metadata()).unwrap();
    records.iter().for_each(|r| writer.push(r).unwrap());
    writer.finish().unwrap()
}

fn run<W: Read + Write + Seek + Send>(
    mut reader: TraceReader<&[u8]>,
    format: Format,
    out: &mut W,
    options: &ExportOptions,
) -> Result<Exported, ConvertError> {
    let mut passes = Vec::new();
    let done = export(&mut reader, format, out, options, &mut |done, of| passes.push((done, of)))?;
    if format == Format::OracleGeneral && done.written > 0 {
        assert_eq!(passes.last(), Some(&(done.written, done.written)));
    }
    Ok(done)
}

fn exported(
    records: &[TraceRecord],
    format: Format,
    options: &ExportOptions,
) -> Result<(Vec<u8>, Exported), ConvertError> {
    let file = written(records);
    let mut out = Cursor::new(Vec::new());
    let done = run(TraceReader::new(&file[..], "t.mwt").unwrap(), format, &mut out, options)?;
    Ok((out.into_inner(), done))
}

/// A file that goes when it is closed.
fn as_file(bytes: &[u8]) -> std::fs::File {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("mapwire-convert-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let mut file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn opened(bytes: &[u8], format: Format, options: &ImportOptions) -> Result<Import<'static>, ConvertError> {
    import(format, as_file(bytes), "in", |file| Box::new(file), options)
}

fn imported(bytes: &[u8], format: Format, options: &ImportOptions) -> Vec<TraceRecord> {
    opened(bytes, format, options).unwrap().map(Result::unwrap).collect()
}

/// (what is kept of a record) of every record.
type Kept = (u64, u16, u16, u8, u64, u64, u8);

fn kept(record: &TraceRecord) -> Kept {
    (
        record.time_ns.get(),
        record.node.get(),
        record.process.get(),
        record.op,
        record.address.get(),
        record.bytes.get(),
        record.flags,
    )
}

prop_compose! {
    fn any_record(most_bytes: u64)(
        step in prop_oneof![0..3_u64, 0..5_000_000_000_u64],
        node in 0..4_u16,
        process in prop_oneof![0..3_u16, any::<u16>()],
        op in 1..=9_u8,
        direct: bool,
        address in prop_oneof![(0..100_u64).prop_map(|page| page * 4096), any::<u64>()],
        bytes in prop_oneof![Just(4096), 0..=most_bytes],
    ) -> (u64, TraceRecord) {
        (step, TraceRecord {
            time_ns: 0.into(),
            address: address.into(),
            bytes: bytes.into(),
            node: node.into(),
            process: process.into(),
            op,
            flags: if direct { TRACE_FLAG_DIRECT } else { 0 },
            reserved: 0.into(),
        })
    }
}

fn in_order(records: Vec<(u64, TraceRecord)>) -> Vec<TraceRecord> {
    let mut now = 0;
    let step = |(step, mut record): (u64, TraceRecord)| {
        now += step;
        record.time_ns = now.into();
        record
    };
    records.into_iter().map(step).collect()
}

/// Records of any kind in order of time.
fn any_trace(most_bytes: u64) -> impl Strategy<Value = Vec<TraceRecord>> {
    prop::collection::vec(any_record(most_bytes), 1..200).prop_map(in_order)
}

/// What formats of lookups hold of records: (op, page's part of the address, bytes).
fn lookups(records: &[TraceRecord]) -> Vec<(TraceRecord, u64, u64)> {
    let transfers = records.iter().filter(|r| r.op().is_some_and(is_transfer));
    transfers.flat_map(|r| cut(r.address.get(), r.bytes.get(), 4096).map(|(a, b)| (*r, a, b))).collect()
}

proptest! {
    #[test]
    fn csv_holds_everything(records in any_trace(u64::MAX)) {
        let options = ExportOptions { direct: true, ..ExportOptions::default() };
        let (bytes, done) = exported(&records, Format::Csv, &options).unwrap();
        prop_assert_eq!((done.records, done.written), (records.len() as u64, records.len() as u64));
        prop_assert_eq!(imported(&bytes, Format::Csv, &ImportOptions::default()), records);
    }

    #[test]
    fn csv_without_the_column_holds_everything_but_what_was_direct(records in any_trace(u64::MAX)) {
        let (bytes, done) = exported(&records, Format::Csv, &ExportOptions::default()).unwrap();
        let direct = records.iter().filter(|r| r.is_direct()).count() as u64;
        prop_assert_eq!(done.direct, direct);
        let again = imported(&bytes, Format::Csv, &ImportOptions::default());
        let plain = |r: &TraceRecord| TraceRecord { flags: 0, ..*r };
        prop_assert_eq!(again, records.iter().map(plain).collect::<Vec<_>>());
    }

    #[test]
    fn parquet_holds_everything(records in any_trace(u64::MAX)) {
        let (bytes, done) = exported(&records, Format::Parquet, &ExportOptions::default()).unwrap();
        prop_assert_eq!(done.written, records.len() as u64);
        let import = opened(&bytes, Format::Parquet, &ImportOptions::default()).unwrap();
        prop_assert_eq!(import.metadata(), Some(&metadata()));
        let again: Vec<_> = import.map(Result::unwrap).collect();
        prop_assert_eq!(again, records);
    }

    #[test]
    fn din_holds_the_lookups_of_a_process_in_order(mut records in any_trace(50_000)) {
        records.iter_mut().for_each(|r| (r.node, r.process) = (2.into(), 1.into()));
        let (bytes, done) = exported(&records, Format::Din, &ExportOptions::default()).unwrap();
        let expected: Vec<Kept> = (0..)
            .zip(lookups(&records))
            .map(|(i, (r, address, bytes))| (i, 2, 1, r.op, address, bytes, 0))
            .collect();
        prop_assert_eq!(done.written, expected.len() as u64);
        let options = ImportOptions { node: 2, process: 1, ..ImportOptions::default() };
        let again: Vec<Kept> = imported(&bytes, Format::Din, &options).iter().map(kept).collect();
        prop_assert_eq!(again, expected);
    }

    #[test]
    fn tagged_formats_hold_several_processes(mut records in any_trace(50_000)) {
        for record in &mut records {
            record.address = (record.address.get() >> 17).into();
        }
        let mut number_of = HashMap::new();
        let expected: Vec<(u16, u64)> = lookups(&records)
            .iter()
            .map(|(r, address, _)| {
                let next = number_of.len() as u16;
                (*number_of.entry((r.node.get(), r.process.get())).or_insert(next), address >> 12)
            })
            .collect();
        let export_options = ExportOptions { tagged: true, ..ExportOptions::default() };
        let import_options = ImportOptions { tagged: true, ..ImportOptions::default() };
        for format in [Format::Din, Format::OracleGeneral] {
            let (bytes, _) = exported(&records, format, &export_options).unwrap();
            let again: Vec<_> = imported(&bytes, format, &import_options)
                .iter()
                .map(|r| (r.process.get(), r.address.get() >> 12))
                .collect();
            prop_assert_eq!(&again, &expected, "{}", format);
        }
    }

    #[test]
    fn oracle_general_knows_every_next_access(mut records in any_trace(50_000), unit in 1..3_000_000_000_u64) {
        records.iter_mut().for_each(|r| (r.node, r.process) = (0.into(), 0.into()));
        let unit = unit.max(records[records.len() - 1].time_ns.get() >> 31);
        let options = ExportOptions { time_unit_ns: unit, ..ExportOptions::default() };
        let (bytes, done) = exported(&records, Format::OracleGeneral, &options).unwrap();
        let first = records[0].time_ns.get();
        let pages: Vec<(u64, u64)> = lookups(&records)
            .iter()
            .map(|(r, address, _)| ((r.time_ns.get() - first) / unit, address >> 12))
            .collect();
        prop_assert_eq!((done.written, bytes.len()), (pages.len() as u64, pages.len() * 24));
        for (index, record) in bytes.chunks(24).enumerate() {
            let (time, page) = pages[index];
            // The oracle looks ahead.
            let next = pages[index + 1..].iter().position(|(_, other)| *other == page);
            let next = next.map_or(-1, |ahead| (index + 1 + ahead + 1) as i64);
            let mut expected = (time as u32).to_le_bytes().to_vec();
            expected.extend_from_slice(&page.to_le_bytes());
            expected.extend_from_slice(&4096_u32.to_le_bytes());
            expected.extend_from_slice(&next.to_le_bytes());
            prop_assert_eq!(record, &expected[..], "record {}", index);
        }
        let again = imported(&bytes, Format::OracleGeneral, &ImportOptions { time_unit_ns: unit, ..ImportOptions::default() });
        let again: Vec<_> = again.iter().map(|r| (r.time_ns.get() / unit, r.address.get() >> 12)).collect();
        prop_assert_eq!(again, pages);
    }

    #[test]
    fn sorting_is_stable_in_memory_and_by_files(
        records in prop::collection::vec((0..20_u64, any_record(10)), 0..300),
        run in 1..100_usize,
    ) {
        let records: Vec<TraceRecord> = records
            .into_iter()
            .map(|(time, (_, record))| TraceRecord { time_ns: time.into(), ..record })
            .collect();
        let mut text = b"time_ns,node,process,op,address,bytes,direct\n".to_vec();
        for r in &records {
            let line = format!("{},{},{},{},{},{},{}\n", r.time_ns, r.node, r.process, r.op().unwrap(), r.address, r.bytes, r.flags);
            text.extend_from_slice(line.as_bytes());
        }
        let mut expected = records.clone();
        expected.sort_by_key(|r| r.time_ns.get());
        // Runs of which there may be too many, too.
        let import = opened(&text, Format::Csv, &ImportOptions::default()).unwrap();
        match Sorted::new(import, &std::env::temp_dir(), run) {
            Ok(sorted) => prop_assert_eq!(sorted.map(Result::unwrap).collect::<Vec<_>>(), expected),
            Err(error) => {
                prop_assert!(records.len() > 256 * run, "{}", error);
                prop_assert!(error.to_string().contains("too many to sort"));
            }
        }
    }

    #[test]
    fn whatever_a_file_holds_it_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let csv = [b"time_ns,node,process,op,address,bytes\n", &bytes[..]].concat();
        for (format, bytes) in [(Format::Csv, &csv), (Format::Din, &bytes), (Format::OracleGeneral, &bytes), (Format::Parquet, &bytes)] {
            if let Ok(import) = opened(bytes, format, &ImportOptions::default()) {
                for record in import {
                    let Ok(record) = record else { break };
                    prop_assert!(record.op().is_some());
                }
            }
        }
    }
}

fn record(time_ns: u64, place: (u16, u16), op: TraceOp, address: u64, bytes: u64) -> TraceRecord {
    TraceRecord {
        time_ns: time_ns.into(),
        address: address.into(),
        bytes: bytes.into(),
        node: place.0.into(),
        process: place.1.into(),
        op: op as u8,
        flags: 0,
        reserved: 0.into(),
    }
}

#[test]
fn loads_and_stores_of_a_program_become_sends_if_that_is_wanted() {
    let text = b"0 1000 4\n1 2000 4\n2 3000 4\nw 4000 8\n";
    let ops = |as_sends| {
        let options = ImportOptions { as_sends, ..ImportOptions::default() };
        let records = imported(text, Format::Din, &options);
        records.iter().map(|r| r.op().unwrap()).collect::<Vec<_>>()
    };
    use TraceOp::{Fetch, Receive, Send};
    assert_eq!(ops(false), [Send, Receive, Fetch, Receive]);
    assert_eq!(ops(true), [Send; 4]);
}

#[test]
fn a_din_file_is_this_text() {
    let place = (0, 0);
    let records = [
        record(1, place, TraceOp::Export, 0, 4096),
        record(2, place, TraceOp::Send, 0x7f00_0000_0ffc, 8),
        record(3, place, TraceOp::Receive, 0x10, 64),
        record(4, place, TraceOp::Fetch, 0x2000, 4096),
        record(5, place, TraceOp::Send, 0x2000, 0),
    ];
    let (bytes, done) = exported(&records, Format::Din, &ExportOptions::default()).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text, "0 7f0000000ffc 4\n0 7f0000001000 4\n1 10 40\n2 2000 1000\n");
    assert_eq!(done, Exported { not_chosen: 0, records: 5, not_transfers: 1, direct: 0, written: 4 });
}

#[test]
fn nodes_and_processes_can_be_chosen() {
    let send = |node, process| record(1, (node, process), TraceOp::Send, 0, 1);
    let records = [send(0, 0), send(0, 1), send(1, 1), send(1, 0)];
    let chosen = |node, process| {
        let options = ExportOptions { node, process, ..ExportOptions::default() };
        let (bytes, done) = exported(&records, Format::Csv, &options).unwrap();
        let again = imported(&bytes, Format::Csv, &ImportOptions::default());
        assert_eq!(done.records, again.len() as u64);
        again.iter().map(|r| (r.node.get(), r.process.get())).collect::<Vec<_>>()
    };
    assert_eq!(chosen(Some(1), None), [(1, 1), (1, 0)]);
    assert_eq!(chosen(None, Some(1)), [(0, 1), (1, 1)]);
    assert_eq!(chosen(Some(0), Some(1)), [(0, 1)]);
    assert_eq!(chosen(Some(7), None), []);
}

#[test]
fn a_process_without_lookups_takes_no_number_and_is_no_second_process() {
    let records = [record(0, (0, 0), TraceOp::Send, 0, 0), record(1, (0, 1), TraceOp::Send, 0x3000, 8)];
    for (format, tagged) in
        [(Format::Din, false), (Format::Din, true), (Format::OracleGeneral, false), (Format::OracleGeneral, true)]
    {
        let to = ExportOptions { tagged, ..ExportOptions::default() };
        let (bytes, done) = exported(&records, format, &to).unwrap();
        assert_eq!(done.written, 1, "{format}");
        let from = ImportOptions { tagged, ..ImportOptions::default() };
        let again = imported(&bytes, format, &from);
        assert_eq!((again[0].process.get(), again[0].address.get()), (0, 0x3000), "{format}");
    }
}

#[test]
fn what_a_format_cannot_hold_is_an_error_that_says_what_can_be_done() {
    let records = [record(0, (0, 0), TraceOp::Send, 0, 1), record(5_000_000_000, (0, 1), TraceOp::Send, 1 << 48, 1)];
    let defaults = ExportOptions::default();
    for (format, options, says) in [
        (Format::Din, defaults, "t.mwt: the format tells no processes apart"),
        (Format::OracleGeneral, defaults, "--tag-processes"),
        (Format::Din, ExportOptions { tagged: true, ..defaults }, "0x1000000000000 has more than 48 bits"),
        (Format::OracleGeneral, ExportOptions { tagged: true, ..defaults }, "has more than 48 bits"),
        (
            Format::OracleGeneral,
            ExportOptions { tagged: true, time_unit_ns: 1, ..defaults },
            "choose a larger --time-unit",
        ),
    ] {
        let error = exported(&records, format, &options).unwrap_err().to_string();
        assert!(error.contains(says), "{format}: {error}");
    }
}

#[test]
fn a_damaged_trace_is_an_error_unless_only_the_good_part_is_wanted() {
    let file = written(&[record(0, (0, 0), TraceOp::Send, 0, 1)]);
    let cut = &file[..file.len() - 5];
    let mut out = Cursor::new(Vec::new());
    let reader = || TraceReader::new(cut, "t.mwt").unwrap();
    let error = run(reader(), Format::Csv, &mut out, &ExportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("t.mwt is good for 1 records"), "{error}");
    let done = run(reader().keep_good_part(), Format::Csv, &mut out, &ExportOptions::default());
    assert_eq!(done.unwrap().records, 1);
}

/// A disk with room for so many bytes.
struct Small(Cursor<Vec<u8>>, u64);

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.position() + bytes.len() as u64 > self.1 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Small {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Seek for Small {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_full_disk_is_an_error_in_every_format_wherever_it_is_met() {
    let records: Vec<_> = (0..3000).map(|i| record(i, (0, 0), TraceOp::Send, i * i * 64, 4096)).collect();
    let file = written(&records);
    for format in mapwire_trace::convert::Format::ALL {
        let (whole, _) = exported(&records, format, &ExportOptions::default()).unwrap();
        for room in [0, 100, whole.len() as u64 / 2, whole.len() as u64 - 1] {
            let mut out = Small(Cursor::new(Vec::new()), room);
            let reader = TraceReader::new(&file[..], "t.mwt").unwrap();
            let error = run(reader, format, &mut out, &ExportOptions::default()).unwrap_err();
            let ConvertError::Write(error) = error else { panic!("{format}: {error}") };
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{format} {room}");
        }
    }
}

#[test]
fn records_out_of_order_are_told_with_their_place() {
    let text = b"time_ns,node,process,op,address,bytes\n5,0,0,send,0,1\n5,0,0,send,0,1\n4,0,0,send,0,1\n";
    let import = opened(text, Format::Csv, &ImportOptions::default()).unwrap();
    let all: Vec<_> = import.in_order().collect();
    assert!(all[0].is_ok() && all[1].is_ok());
    let error = all[2].as_ref().unwrap_err().to_string();
    assert!(error.contains("in, line 4: its time is 4 ns, before the 5 ns"), "{error}");
}

#[test]
fn long_files_are_read_and_written_in_several_parts() {
    let records: Vec<_> = (0..600_000)
        .map(|i| record(i * 7, (0, 0), TraceOp::Send, i.wrapping_mul(0x9e37_79b9) % 1000 * 4096, 4096))
        .collect();
    for format in [Format::Csv, Format::Parquet, Format::OracleGeneral] {
        let options = ExportOptions { time_unit_ns: 1, ..ExportOptions::default() };
        let (bytes, _) = exported(&records, format, &options).unwrap();
        let again = imported(&bytes, format, &ImportOptions { time_unit_ns: 1, ..ImportOptions::default() });
        assert!(again == records, "{format}");
    }
    let (first, pages) = pages_of(records[1].address.get(), 4096, 4096);
    assert_eq!((first * 4096, pages), (records[1].address.get(), 1));
}
