use std::path::Path;

use mapwire_trace::{Metadata, TraceWriter};
use mapwire_wire::{TraceOp, TraceRecord};
use serde_json::Value;
use zerocopy::IntoBytes;

use super::*;

fn record(time_ns: u64, rank: u16, op: TraceOp, address: u64, bytes: u64) -> TraceRecord {
    TraceRecord {
        time_ns: time_ns.into(),
        address: address.into(),
        bytes: bytes.into(),
        node: rank.into(),
        process: 0.into(),
        op: op as u8,
        flags: 0,
        reserved: 0.into(),
    }
}

/// Rank 1 faults on a minipage of rank 0, takes a lock, and both pass a barrier; rank 0 also sends 100 bytes elsewhere.
fn small() -> Vec<TraceRecord> {
    use TraceOp::*;
    vec![
        record(1_000, 1, Compute, 0, 500),
        record(1_500, 0, Send, 0x9000, 100),
        record(2_000, 0, Send, 0x7000, 64),
        record(2_000, 0, Give, 1, 64),
        record(2_500, 1, Receive, 0x7000, 64),
        record(3_000, 1, ReadFault, 0x7010, 64),
        record(3_500, 1, Lock, 5, 0),
        record(4_000, 0, Compute, 2, 10),
        record(1_005_000, 0, Barrier, 0, 0),
        record(1_006_000, 1, Fetch, 0x8000, 4096),
        record(1_006_000, 1, Take, 0, 4096),
    ]
}

fn write(path: &Path, records: &[TraceRecord]) {
    let metadata = Metadata { command: vec!["sor".to_owned()], ..Metadata::default() };
    let mut writer = TraceWriter::new(std::fs::File::create(path).unwrap(), &metadata).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    writer.finish().unwrap();
}

fn folder() -> PathBuf {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("mapwire-timeline-{}-{count}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn drawn(path: &Path) -> (String, Matrix) {
    let input = Input::find(path).unwrap();
    let shape = input.shape().unwrap();
    let mut matrix = Matrix::new(shape.ranks.len());
    let mut timeline = Timeline::new(Vec::new(), &shape);
    input
        .each(|record| {
            matrix.count(&shape, record);
            timeline.record(record).unwrap();
        })
        .unwrap();
    (String::from_utf8(timeline.finish().unwrap()).unwrap(), matrix)
}

#[test]
fn a_small_trace_has_its_golden_json() {
    let folder = folder();
    write(&folder.join("t.mwt"), &small());
    let (json, _) = drawn(&folder);
    assert_eq!(json, include_str!("golden.json"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_json_is_read_back_with_every_call_and_arrow() {
    let folder = folder();
    write(&folder.join("t.mwt"), &small());
    let (json, matrix) = drawn(&folder.join("t.mwt"));
    let json: Value = serde_json::from_str(&json).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |ph: &str, name: &str| events.iter().filter(|it| it["ph"] == ph && it["name"] == name).count();
    assert_eq!((of("X", "read-fault"), of("i", "lock"), of("X", "barrier")), (1, 1, 1), "{json:#}");
    assert_eq!((of("s", "moved"), of("f", "moved")), (2, 2));
    let fault = events.iter().find(|it| it["name"] == "read-fault").unwrap();
    assert_eq!((fault["ts"].as_f64(), fault["dur"].as_f64()), (Some(0.0), Some(2.0)));
    let told: u64 = events.iter().filter_map(|it| it["args"]["bytes"].as_u64().filter(|_| it["ph"] == "C")).sum();
    assert_eq!(told, 100 + 64 + 4096);
    let rows: Vec<Value> = matrix.json_lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let moved = |row: &Value| [&row["from"], &row["to"], &row["bytes"]].map(|it| it.as_u64().unwrap());
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert_eq!(moved(&rows[0]), [0, 1, 64 + 4096]);
    let rank = |row: &Value| ["given_bytes", "got_bytes", "without_peer_bytes"].map(|it| row[it].as_u64().unwrap());
    assert_eq!((rank(&rows[1]), rank(&rows[2])), ([4160, 0, 100], [0, 4160, 0]));
    assert!(matrix.text().contains("4,160"), "{}", matrix.text());
    let drawing = matrix.drawing();
    assert!(drawing.contains("rank 0 to rank 1: 4,160 bytes") && drawing.ends_with("</svg>\n"), "{drawing}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn folders_that_are_empty_or_of_different_jobs_are_named() {
    let folder = folder();
    let fails = |says: &str| {
        let error = Input::find(&folder).and_then(|input| input.shape()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    fails("has neither a trace (.mwt) nor files of ranks (.raw)");
    let raw = |name: &str, records: &[TraceRecord]| {
        let bytes: Vec<u8> = records.iter().flat_map(|it| it.as_bytes().to_vec()).collect();
        std::fs::write(folder.join(name), bytes).unwrap();
    };
    raw("0.raw", &[]);
    fails("no records are there");
    raw("0.raw", &[record(1, 0, TraceOp::OpenShared, 4096, 8192), record(9, 0, TraceOp::Barrier, 0, 0)]);
    raw("1.raw", &[record(2, 1, TraceOp::OpenShared, 4096, 8192), record(9, 1, TraceOp::Barrier, 0, 0)]);
    assert_eq!(Input::find(&folder).unwrap().shape().unwrap().ranks.len(), 2);
    raw("1.raw", &[record(2, 1, TraceOp::OpenShared, 4096, 4096)]);
    fails("are of different jobs");
    raw("1.raw", &[record(20, 1, TraceOp::Barrier, 0, 0)]);
    fails("are of different jobs");
    raw("1.raw", &[record(2, 2, TraceOp::Barrier, 0, 0)]);
    fails("1.raw has records of rank 2");
    write(&folder.join("t.mwt"), &small());
    fails("has traces of different jobs");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trace_that_is_cut_off_gives_its_good_part_and_says_so() {
    let folder = folder();
    let path = folder.join("t.mwt");
    write(&path, &small());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let mut count = 0;
    let damaged = Input::find(&path).unwrap().each(|_| count += 1).unwrap();
    assert_eq!(count, small().len());
    assert!(damaged[0].contains("is cut off"), "{damaged:?}");
    let bytes: Vec<u8> = small().iter().take(2).flat_map(|it| it.as_bytes().to_vec()).collect();
    std::fs::write(folder.join("1.raw"), &bytes[..50]).unwrap();
    let damaged = Input::find(&folder.join("1.raw")).unwrap().each(|_| ()).unwrap();
    assert!(damaged[0].contains("torn record"), "{damaged:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_end_of_time_and_thousands_of_ranks_are_shown_in_lines_of_readable_length() {
    use TraceOp::*;
    let folder = folder();
    let path = folder.join("t.mwt");
    let first = [record(0, 0, ReadFault, 0x7000, 64), record(1, 0, Send, 0x7000, 64), record(1, 0, Give, 4095, 64)];
    write(&path, &[&first[..], &[record(u64::MAX, 4095, WriteFault, 0x7000, 64)]].concat());
    let (json, matrix) = drawn(&path);
    assert!(serde_json::from_str::<Value>(&json).is_ok());
    let text = matrix.text();
    assert!(text.lines().count() >= 4096 && text.lines().all(|line| line.len() < 200));
    let numbers = |rank: &str| {
        let line = text.lines().find(|line| line.contains(rank)).unwrap();
        line.rsplit(rank).next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(numbers("rank 0 ").contains("64 0 0") && numbers("rank 4095").contains("0 64 0"), "{}", numbers("rank 0 "));
    std::fs::remove_dir_all(folder).unwrap();
}
