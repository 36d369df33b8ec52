//! Parquet files of other writers.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type, Int96, Int96Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;

enum Values {
    Long(Vec<i64>),
    Int(Vec<i32>),
    Stamp(Vec<Int96>),
    Text(Vec<&'static str>),
}

fn table(schema: &str, columns: &[(Values, Option<Vec<i16>>)]) -> Vec<u8> {
    packed_table(schema, columns, Compression::UNCOMPRESSED)
}

fn packed_table(schema: &str, columns: &[(Values, Option<Vec<i16>>)], compression: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder().set_compression(compression);
    written(schema, columns, properties.build())
}

fn written(schema: &str, columns: &[(Values, Option<Vec<i16>>)], properties: WriterProperties) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (values, levels) in columns {
        let mut column = group.next_column().unwrap().unwrap();
        fn put<T: DataType>(
            column: &mut parquet::file::writer::SerializedColumnWriter<'_>,
            values: &[T::T],
            levels: Option<&[i16]>,
        ) {
            column.typed::<T>().write_batch(values, levels, None).unwrap();
        }
        let levels = levels.as_deref();
        match values {
            Values::Long(values) => put::<Int64Type>(&mut column, values, levels),
            Values::Int(values) => put::<Int32Type>(&mut column, values, levels),
            Values::Stamp(values) => put::<Int96Type>(&mut column, values, levels),
            Values::Text(values) => {
                let values: Vec<_> = values.iter().map(|v| ByteArray::from(*v)).collect();
                put::<ByteArrayType>(&mut column, &values, levels);
            }
        }
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    out
}

const PLAIN: &str = "message m { required binary op (UTF8); required int64 bytes; required int64 address; optional int64 process; \
    required int32 node; required int64 time_ns; }";

fn two(op: &'static str, address: i64, process: Vec<i64>, levels: Vec<i16>, node: i32) -> Vec<u8> {
    table(
        PLAIN,
        &[
            (Values::Text(vec!["send", op]), None),
            (Values::Long(vec![1, 2]), None),
            (Values::Long(vec![3, address]), None),
            (Values::Long(process), Some(levels)),
            (Values::Int(vec![5, node]), None),
            (Values::Long(vec![7, 8]), None),
        ],
    )
}

fn read(bytes: &[u8]) -> Result<Vec<Kept>, String> {
    let import = opened(bytes, Format::Parquet, &ImportOptions::default()).map_err(|e| e.to_string())?;
    import.map(|r| r.map(|r| kept(&r)).map_err(|e| e.to_string())).collect()
}

#[test]
fn signed_nullable_columns_in_any_order_are_read() {
    let rows = read(&two("unexport", i64::MAX, vec![0, 65535], vec![1, 1], 6)).unwrap();
    assert_eq!(rows, [(7, 5, 0, 1, 3, 1, 0), (8, 6, 65535, 5, i64::MAX as u64, 2, 0)]);
}

#[test]
fn values_that_cannot_be_are_told_with_their_row() {
    for (bytes, says) in [
        (two("send", -1, vec![0, 0], vec![1, 1], 6), "in, row 1: address is -1; it must not be negative"),
        (two("store", 1, vec![0, 0], vec![1, 1], 6), "in, row 1: op is `store`; it must be one of send, fetch"),
        (two("send", 1, vec![0, 65536], vec![1, 1], 6), "in, row 1: process is 65536; it must be from 0 to 65535"),
        (two("send", 1, vec![0], vec![1, 0], 6), "in, row 1: process is null"),
        (two("send", 1, vec![0], vec![0, 1], 6), "in, row 0: process is null"),
        (two("send", 1, vec![0, 0], vec![1, 1], -6), "in, row 1: node is -6; it must not be negative"),
    ] {
        assert_eq!(read(&bytes).map_err(|e| e.contains(says).then_some(()).ok_or(e)), Err(Ok(())), "{says}");
    }
}

#[test]
fn schemas_that_do_not_fit_are_told_with_the_column() {
    let one = |schema: &str, values| table(schema, &[(values, None)]);
    for (bytes, says) in [
        (
            one("message m { required int64 when; }", Values::Long(vec![1])),
            "in: the column `time_ns` is missing; the columns are time_ns",
        ),
        (one("message m { required int64 time_ns; }", Values::Long(vec![1])), "in: the column `node` is missing"),
        (one("message m { required int64 op; }", Values::Long(vec![1])), "in: the column `op` is not a string"),
        (
            one("message m { required int64 address (TIMESTAMP_MILLIS); }", Values::Long(vec![1])),
            "`address` is not an integer",
        ),
        (b"PAR1 is not enough".to_vec(), "in: it is not a Parquet file that can be read"),
    ] {
        let error = read(&bytes).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_table_cut_anywhere_or_changed_at_any_byte_is_refused_or_read_without_harm() {
    let whole = two("recv", 9, vec![0, 1], vec![1, 1], 6);
    for length in 0..whole.len() {
        assert!(read(&whole[..length]).is_err(), "{length}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x11;
        let _ = read(&changed);
    }
}

/// The library's decoders panic on what is damaged; here pages are refused before they are decoded.
#[test]
fn damage_of_any_kind_is_an_error_and_no_panic() {
    let ops = vec!["send", "recv", "fetch", "export", "send", "send"];
    let many = |values: &[i64]| values.iter().copied().cycle().take(6).collect::<Vec<_>>();
    let plain = |levels| {
        [
            (Values::Text(ops.clone()), None),
            (Values::Long(many(&[1, 2])), None),
            (Values::Long(many(&[3])), None),
            (Values::Long(many(&[0, 4])), levels),
            (Values::Int(vec![5; 6]), None),
            (Values::Long(many(&[7])), None),
        ]
    };
    let v1 = WriterProperties::builder();
    let v2 = || WriterProperties::builder().set_writer_version(WriterVersion::PARQUET_2_0);
    let files = [
        written(PLAIN, &plain(Some(vec![1; 6])), v1.build()),
        written(PLAIN, &plain(Some(vec![1; 6])), v2().build()),
        written(PLAIN, &plain(Some(vec![1; 6])), v2().set_dictionary_enabled(false).build()),
        written(PLAIN, &plain(Some(vec![1; 6])), WriterProperties::builder().set_dictionary_enabled(false).build()),
    ];
    let mut random = 1_u64;
    let mut below = |most: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % most
    };
    let (mut refused, mut taken) = (0, 0);
    for whole in &files {
        assert!(read(whole).is_ok());
        for _ in 0..1500 {
            let mut bytes = whole.clone();
            for _ in 0..1 + below(3) {
                let at = below(bytes.len());
                bytes[at] ^= 1 + below(255) as u8;
            }
            match read(&bytes) {
                Ok(_) => taken += 1,
                Err(why) => {
                    assert!(!why.contains("the library gave up"), "{why}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1000 && taken > 100, "{refused} {taken}");
}

#[test]
fn tables_of_other_programs_with_other_columns_timestamps_and_compressions_are_read() {
    let columns = |time_name: &str, unit: &str| {
        format!(
            "message m {{ required binary host (UTF8); required binary op (UTF8); required int64 bytes; required int64 address; \
             required int64 process; required int32 node; required int64 {time_name} ({unit}); required int32 colour; }}"
        )
    };
    let values = || {
        [
            (Values::Text(vec!["here", "there"]), None),
            (Values::Text(vec!["send", "recv"]), None),
            (Values::Long(vec![1, 2]), None),
            (Values::Long(vec![3, 4]), None),
            (Values::Long(vec![0, 1]), None),
            (Values::Int(vec![5, 6]), None),
            (Values::Long(vec![7, 8]), None),
            (Values::Int(vec![0, 0]), None),
        ]
    };
    for (name, unit, ns) in [
        ("time_ns", "TIMESTAMP_MILLIS", 1_000_000),
        ("timestamp", "TIMESTAMP_MICROS", 1_000),
        ("time", "TIMESTAMP(NANOS,true)", 1),
    ] {
        for compression in
            [Compression::UNCOMPRESSED, Compression::ZSTD(Default::default()), Compression::BROTLI(Default::default())]
        {
            let bytes = packed_table(&columns(name, unit), &values(), compression);
            let rows = read(&bytes).unwrap();
            let expected = [(7 * ns, 5, 0, 1, 3, 1, 0), (8 * ns, 6, 1, 3, 4, 2, 0)];
            assert_eq!(rows, expected, "{name} {unit} {compression}");
        }
    }
}

#[test]
fn a_timestamp_past_the_end_of_time_is_told_with_its_row() {
    let schema = PLAIN.replace("int64 time_ns", "int64 time_ns (TIMESTAMP_MILLIS)");
    let bytes = table(
        &schema,
        &[
            (Values::Text(vec!["send"]), None),
            (Values::Long(vec![1]), None),
            (Values::Long(vec![3]), None),
            (Values::Long(vec![0]), Some(vec![1])),
            (Values::Int(vec![5]), None),
            (Values::Long(vec![i64::MAX]), None),
        ],
    );
    let error = read(&bytes).unwrap_err();
    assert!(error.contains("row 0") && error.contains("2^64 ns"), "{error}");
}

#[test]
fn timestamps_of_96_bits_are_read() {
    let schema = PLAIN.replace("int64 time_ns", "int96 time_ns");
    let stamp = |of_day: u64, day: u32| {
        let mut stamp = Int96::new();
        stamp.set_data(of_day as u32, (of_day >> 32) as u32, day);
        stamp
    };
    let read_at = |stamp| {
        read(&table(
            &schema,
            &[
                (Values::Text(vec!["send"]), None),
                (Values::Long(vec![1]), None),
                (Values::Long(vec![3]), None),
                (Values::Long(vec![0]), Some(vec![1])),
                (Values::Int(vec![5]), None),
                (Values::Stamp(vec![stamp]), None),
            ],
        ))
    };
    // The day after 1 January 1970, and 5 seconds.
    let rows = read_at(stamp(5_000_000_000, 2_440_589)).unwrap();
    assert_eq!(rows[0].0, 86_405_000_000_000);
    for outside in [stamp(0, 2_440_587), stamp(0, u32::MAX)] {
        let error = read_at(outside).unwrap_err();
        assert!(error.contains("row 0: time_ns is "), "{error}");
    }
}
