//! Apache Parquet: a row for each record.
//!
//! | column | type when written | read too |
//! |---|---|---|
//! | `time_ns` | INT64, unsigned | any integer that is not negative, or a timestamp of any unit (INT96 too); also named `time` or `timestamp` then |
//! | `address`, `bytes` | INT64, unsigned | any integer that is not negative |
//! | `node`, `process` | INT32, unsigned 16 bits | any integer from 0 to 65535 |
//! | `op` | string: `send`, `fetch`, `recv`, `export`, `unexport`, `hold`, `release`, `absent`, `present` | |
//! | `direct` | boolean | may be missing: then nothing was direct |
//!
//! Columns may come in any order, and may be nullable, but hold no null; others are passed over. The trace's metadata stand under
//! the key `mapwire`. Written files are compressed by Snappy; read are also LZ4, gzip, Zstandard and Brotli. Row groups have
//! 262,144 rows, and a row group of a file that is read is never in memory as a whole.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use mapwire_wire::{TRACE_FLAG_DIRECT, TraceOp, TraceRecord};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, SortOrder, Type as Physical};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};

use super::Sink;
use super::csv::{COLUMNS, DIRECT};
use super::error::{ConvertError, shown};
use super::import::{Fault, Import, Reader};
use super::parquet_pages::Checked;
use super::parquet_types::{is_integer, since_1970_ns, timestamp_ns};
use crate::metadata::Metadata;

const KEY: &str = "mapwire";
const GROUP_ROWS: usize = 256 << 10;
const BATCH_ROWS: usize = 16 << 10;

fn schema() -> Result<Type, ParquetError> {
    let unsigned = |name: &str, physical, bits| {
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::integer(bits, false)))
            .build()
            .map(Arc::new)
    };
    let op = Type::primitive_type_builder("op", Physical::BYTE_ARRAY)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::String))
        .build()?;
    let direct =
        Type::primitive_type_builder(DIRECT, Physical::BOOLEAN).with_repetition(Repetition::REQUIRED).build()?;
    Type::group_type_builder("trace")
        .with_fields(vec![
            unsigned("time_ns", Physical::INT64, 64)?,
            unsigned("node", Physical::INT32, 16)?,
            unsigned("process", Physical::INT32, 16)?,
            Arc::new(op),
            unsigned("address", Physical::INT64, 64)?,
            unsigned("bytes", Physical::INT64, 64)?,
            Arc::new(direct),
        ])
        .build()
}

pub(super) struct ParquetWriter<W: Write + Send> {
    out: SerializedFileWriter<W>,
    names: [ByteArray; TraceOp::ALL.len()],
    rows: u64,
    time_ns: Vec<i64>,
    node: Vec<i32>,
    process: Vec<i32>,
    op: Vec<ByteArray>,
    address: Vec<i64>,
    bytes: Vec<i64>,
    direct: Vec<bool>,
}

/// What the library says, as what the system says if that is the cause.
fn failed(error: ParquetError) -> ConvertError {
    let error = match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(error) => *error,
            Err(cause) => std::io::Error::other(cause),
        },
        other => std::io::Error::other(other),
    };
    ConvertError::Write(error)
}

impl<W: Write + Send> ParquetWriter<W> {
    pub(super) fn new(out: W, metadata: &Metadata) -> Result<Self, ConvertError> {
        let text = serde_json::to_string(metadata).map_err(std::io::Error::from)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(Metadata::default().made_by)
            .set_key_value_metadata(Some(vec![KeyValue::new(KEY.to_owned(), text)]));
        // Differences are small; of addresses there may be too many for a dictionary.
        for name in ["time_ns", "address"] {
            let path = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let schema = Arc::new(schema().map_err(failed)?);
        let out = SerializedFileWriter::new(out, schema, Arc::new(properties.build())).map_err(failed)?;
        Ok(Self {
            out,
            names: TraceOp::ALL.map(|op| ByteArray::from(op.name())),
            rows: 0,
            time_ns: Vec::new(),
            node: Vec::new(),
            process: Vec::new(),
            op: Vec::new(),
            address: Vec::new(),
            bytes: Vec::new(),
            direct: Vec::new(),
        })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.out.next_row_group()?;
        column::<_, Int64Type>(&mut group, &mut self.time_ns)?;
        column::<_, Int32Type>(&mut group, &mut self.node)?;
        column::<_, Int32Type>(&mut group, &mut self.process)?;
        column::<_, ByteArrayType>(&mut group, &mut self.op)?;
        column::<_, Int64Type>(&mut group, &mut self.address)?;
        column::<_, Int64Type>(&mut group, &mut self.bytes)?;
        column::<_, BoolType>(&mut group, &mut self.direct)?;
        group.close()?;
        Ok(())
    }
}

/// Writes the next column of a group, and empties it.
fn column<W: Write + Send, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(values, None, None)?;
        column.close()?;
    }
    values.clear();
    Ok(())
}

impl<W: Write + Send> Sink for ParquetWriter<W> {
    fn push(&mut self, record: &TraceRecord) -> Result<(), ConvertError> {
        self.time_ns.push(record.time_ns.get() as i64);
        self.node.push(record.node.get().into());
        self.process.push(record.process.get().into());
        self.op.push(self.names[usize::from(record.op) - 1].clone());
        self.address.push(record.address.get() as i64);
        self.bytes.push(record.bytes.get() as i64);
        self.direct.push(record.is_direct() || record.is_inline());
        self.rows += 1;
        if self.time_ns.len() >= GROUP_ROWS {
            self.write_group().map_err(failed)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<u64, ConvertError> {
        if !self.time_ns.is_empty() {
            self.write_group().map_err(failed)?;
        }
        self.out.finish().map_err(failed)?;
        self.out.inner_mut().flush()?;
        Ok(self.rows)
    }
}

/// What `read` gives. Pages are [`Checked`]; should the library panic all the same on a file that is damaged, that is an error of the
/// file, behind what the panic prints.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    read.unwrap_or_else(|_| Err(ParquetError::General("the file is damaged: the library gave up".to_owned())))
}

fn fits(known: usize, column: &ColumnDescriptor) -> (bool, &'static str) {
    match known {
        OP => (column.physical_type() == Physical::BYTE_ARRAY, "a string"),
        DIRECT_AT => (column.physical_type() == Physical::BOOLEAN, "a boolean"),
        TIME => (is_integer(column) || timestamp_ns(column).is_some(), "an integer or a timestamp"),
        _ => (is_integer(column), "an integer"),
    }
}

/// Which of our columns that is, if it is one.
fn known_as(column: &ColumnDescriptor) -> Option<usize> {
    let name = column.path().string();
    let is_time = TIMESTAMPS.contains(&name.as_str()) && timestamp_ns(column).is_some();
    ALL.iter().position(|known| *known == name).or(is_time.then_some(TIME))
}

struct ParquetReader {
    reader: SerializedFileReader<File>,
    /// Where each of the columns stands in the file; `direct` may be missing.
    places: [Option<usize>; 7],
    unsigned: [bool; 7],
    /// Nanoseconds of the unit of times.
    time_unit_ns: u64,
    next_group: usize,
    /// Columns of the row group that is being read, and its rows that are left.
    columns: Vec<Option<ColumnReader>>,
    left: usize,
    values: Vec<Vec<u64>>,
    at: usize,
}

const ALL: [&str; 7] = [COLUMNS[0], COLUMNS[1], COLUMNS[2], COLUMNS[3], COLUMNS[4], COLUMNS[5], DIRECT];
/// Names that a column of timestamps may have besides.
const TIMESTAMPS: [&str; 2] = ["time", "timestamp"];
const TIME: usize = 0;
const OP: usize = 3;
const DIRECT_AT: usize = 6;

/// Reads the head of `input`, which errors call `file`.
///
/// # Errors
/// It is no Parquet file; a column is missing, there twice, nested or of another type.
pub fn read(input: File, file: &str) -> Result<Import<'static>, ConvertError> {
    let wrong = |what: String| ConvertError::File { file: file.to_owned(), what };
    let reader = guarded(|| SerializedFileReader::new(input))
        .map_err(|error| wrong(format!("it is not a Parquet file that can be read: {error}")))?;
    let about = reader.metadata().file_metadata();
    let schema = about.schema_descr();
    let (mut places, mut unsigned) = ([None; 7], [false; 7]);
    let mut time_unit_ns = 1;
    for (place, column) in schema.columns().iter().enumerate() {
        // Other columns are none of a trace's business.
        let Some(known) = known_as(column) else { continue };
        let name = column.path().string();
        let (fits, wanted) = fits(known, column);
        if !fits || column.max_rep_level() > 0 {
            return Err(wrong(format!("the column `{name}` is not {wanted}")));
        }
        if places[known].replace(place).is_some() {
            return Err(wrong(format!("the column `{}` is there twice", ALL[known])));
        }
        if known == TIME {
            time_unit_ns = timestamp_ns(column).unwrap_or(1);
        }
        unsigned[known] = column.sort_order() == SortOrder::UNSIGNED;
    }
    if let Some(missing) = (0..DIRECT_AT).find(|known| places[*known].is_none()) {
        return Err(wrong(format!("the column `{}` is missing; the columns are {}", ALL[missing], ALL.join(", "))));
    }
    let metadata = about.key_value_metadata().and_then(|all| {
        let text = all.iter().find(|pair| pair.key == KEY)?.value.as_ref()?;
        serde_json::from_str(text).ok()
    });
    let rows = u64::try_from(about.num_rows()).unwrap_or(0);
    let reader = ParquetReader {
        reader,
        places,
        unsigned,
        time_unit_ns,
        next_group: 0,
        columns: Vec::new(),
        left: 0,
        values: vec![Vec::new(); ALL.len()],
        at: 0,
    };
    Ok(Import::new(file, |records| format!("row {records}"), reader).with_head(metadata, rows))
}

impl ParquetReader {
    fn refill(&mut self) -> Result<bool, Fault> {
        self.at = 0;
        self.values.iter_mut().for_each(Vec::clear);
        while self.left == 0 {
            if self.next_group == self.reader.num_row_groups() {
                return Ok(false);
            }
            guarded(|| self.open_group()).map_err(damaged)?;
        }
        let rows = self.left.min(BATCH_ROWS);
        for known in 0..ALL.len() {
            self.read_column(known, rows)?;
        }
        self.left -= rows;
        Ok(true)
    }

    fn open_group(&mut self) -> Result<(), ParquetError> {
        let group = self.reader.get_row_group(self.next_group)?;
        self.next_group += 1;
        self.left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let open = |place: usize| {
            let about = group.metadata().column(place);
            let begin = about.dictionary_page_offset().unwrap_or(about.data_page_offset());
            if begin < 0 || about.compressed_size() < 0 {
                let what = "a column stands before the file's begin";
                return Err(ParquetError::General(what.to_owned()));
            }
            let column = about.column_descr_ptr();
            let pages = Checked::new(group.get_column_page_reader(place)?, column.clone());
            Ok(get_column_reader(column, Box::new(pages)))
        };
        self.columns = self.places.map(|place| place.map(open).transpose()).into_iter().collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Reads `rows` values of a column into `values`.
    fn read_column(&mut self, known: usize, rows: usize) -> Result<(), Fault> {
        let unsigned = self.unsigned[known];
        let values = &mut self.values[known];
        // What is wrong with a value, by its place.
        let mut wrong = None;
        let mut push = |index: usize, value: Result<u64, String>| {
            values.push(*value.as_ref().unwrap_or(&0));
            if let Err(what) = value {
                wrong.get_or_insert((index, what));
            }
        };
        let negative = |value: i64| Err(format!("{} is {value}; it must not be negative", ALL[known]));
        let column = &mut self.columns[known];
        let read = guarded(|| match column {
            None => {
                (0..rows).for_each(|index| push(index, Ok(0)));
                Ok(None)
            }
            Some(ColumnReader::Int64ColumnReader(column)) => take(column, rows, |index, value| {
                let fits = unsigned || *value >= 0;
                push(index, if fits { Ok(*value as u64) } else { negative(*value) });
            }),
            Some(ColumnReader::Int32ColumnReader(column)) => take(column, rows, |index, value| {
                let fits = unsigned || *value >= 0;
                push(index, if fits { Ok(u64::from(*value as u32)) } else { negative((*value).into()) });
            }),
            Some(ColumnReader::Int96ColumnReader(column)) => take(column, rows, |index, value| {
                push(index, since_1970_ns(value));
            }),
            Some(ColumnReader::BoolColumnReader(column)) => {
                take(column, rows, |index, value| push(index, Ok(u64::from(*value))))
            }
            Some(ColumnReader::ByteArrayColumnReader(column)) => take(column, rows, |index, value| {
                let op = TraceOp::ALL.into_iter().find(|op| op.name().as_bytes() == value.data());
                push(
                    index,
                    op.map(|op| op as u64).ok_or_else(|| {
                        let names = TraceOp::ALL.map(TraceOp::name).join(", ");
                        format!("op is {}; it must be one of {names}", shown(value.data()))
                    }),
                );
            }),
            // Other types were refused with the schema.
            Some(_) => Ok(Some(0)),
        });
        let null = read.map_err(damaged)?;
        let null = null.map(|index| (index, format!("{} is null", ALL[known])));
        match wrong.into_iter().chain(null).min_by_key(|(index, _)| *index) {
            None => Ok(()),
            Some((index, what)) => Err(Fault::Value { behind: index as u64, what }),
        }
    }
}

fn damaged(error: ParquetError) -> String {
    format!("it cannot be read from here on: {error}")
}

impl Reader for ParquetReader {
    fn next(&mut self) -> Result<Option<TraceRecord>, Fault> {
        if self.at == self.values[0].len() && !self.refill()? {
            return Ok(None);
        }
        let at = self.at;
        let [time, node, process, op, address, bytes, direct] = std::array::from_fn(|known| self.values[known][at]);
        let small = |known: usize, value: u64| {
            u16::try_from(value).map_err(|_| format!("{} is {value}; it must be from 0 to 65535", ALL[known]))
        };
        let time_ns = time
            .checked_mul(self.time_unit_ns)
            .ok_or_else(|| format!("time_ns is {time} units of {} ns; it must be below 2^64 ns", self.time_unit_ns))?;
        let record = TraceRecord {
            time_ns: time_ns.into(),
            address: address.into(),
            bytes: bytes.into(),
            node: small(1, node)?.into(),
            process: small(2, process)?.into(),
            op: op as u8,
            flags: if direct == 0 { 0 } else { TRACE_FLAG_DIRECT },
            reserved: 0.into(),
        };
        self.at += 1;
        Ok(Some(record))
    }
}

/// Takes `rows` values of a column, one by one with their places; gives the place of the first null.
fn take<T: DataType>(
    column: &mut parquet::column::reader::ColumnReaderImpl<T>,
    rows: usize,
    mut each: impl FnMut(usize, &T::T),
) -> Result<Option<usize>, ParquetError> {
    let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::new());
    let mut done = 0;
    while done < rows {
        values.clear();
        levels.clear();
        let (records, found, _) = column.read_records(rows - done, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            return Err(ParquetError::EOF("a column ends before the others".to_owned()));
        }
        for (index, value) in values.iter().enumerate() {
            each(done + index, value);
        }
        if found < records {
            let first = levels.iter().position(|level| *level == 0);
            return Ok(Some(done + first.unwrap_or(found)));
        }
        done += records;
    }
    Ok(None)
}
