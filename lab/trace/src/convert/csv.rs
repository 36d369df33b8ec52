//! CSV: a header line, then a line for each record.
//!
//! The columns are `time_ns,node,process,op,address,bytes`, in any order when read, in this one when written. Times and bytes are
//! decimal numbers, addresses decimal or hexadecimal behind `0x` (written so), an op is `send`, `fetch`, `recv`, `export`, `unexport`,
//! `hold`, `release`, `absent` or `present`. A seventh column `direct`, 0 or 1, may tell which operations went by mapped memory or
//! within a command, so that no NIC translated anything; without it none did. There are no quotes, spaces or empty lines.

use std::io::{BufWriter, Read, Write};

use mapwire_wire::{TRACE_FLAG_DIRECT, TraceOp, TraceRecord};

use super::Sink;
use super::error::{ConvertError, shown};
use super::import::{Fault, Import, Reader};
use super::text::{Lines, TEXT_BYTES, take_decimal, take_hexadecimal, take_prefix};

/// The columns that a file must have, in the order in which they are written.
pub const COLUMNS: [&str; 6] = ["time_ns", "node", "process", "op", "address", "bytes"];
pub const DIRECT: &str = "direct";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Time,
    Node,
    Process,
    Op,
    Address,
    Bytes,
    Direct,
}

const ALL: [(&str, Column); 7] = [
    (COLUMNS[0], Column::Time),
    (COLUMNS[1], Column::Node),
    (COLUMNS[2], Column::Process),
    (COLUMNS[3], Column::Op),
    (COLUMNS[4], Column::Address),
    (COLUMNS[5], Column::Bytes),
    (DIRECT, Column::Direct),
];

struct CsvReader<R> {
    lines: Lines<R>,
    columns: Vec<Column>,
}

/// Reads the header of a CSV file, which errors call `file`.
///
/// # Errors
/// The file is empty, lacks a column or has one that is unknown or there twice; it cannot be read.
pub fn read<'a>(input: impl Read + 'a, file: &str) -> Result<Import<'a>, ConvertError> {
    let mut lines = Lines::new(input);
    let columns = match lines.next().and_then(|header| header.map(columns).transpose()) {
        Ok(columns) => columns.ok_or_else(|| {
            let what = format!("the file is empty; its first line must name the columns: {}", COLUMNS.join(","));
            ConvertError::File { file: file.to_owned(), what }
        })?,
        Err(fault) => return Err(fault.at(file, "line 1".to_owned())),
    };
    Ok(Import::new(file, |records| format!("line {}", records + 2), CsvReader { lines, columns }))
}

fn columns(header: &[u8]) -> Result<Vec<Column>, Fault> {
    let wanted = COLUMNS.join(",");
    let header = header.strip_prefix("\u{feff}".as_bytes()).unwrap_or(header);
    let mut columns = Vec::new();
    for name in header.split(|byte| *byte == b',') {
        let column = ALL.iter().find(|(known, _)| known.as_bytes() == name);
        let (_, column) =
            column.ok_or_else(|| format!("there is no column {}; the header must be {wanted}", shown(name)))?;
        if columns.contains(column) {
            return Err(Fault::from(format!("the column {} is there twice", shown(name))));
        }
        columns.push(*column);
    }
    match ALL[..COLUMNS.len()].iter().find(|(_, column)| !columns.contains(column)) {
        None => Ok(columns),
        Some((name, _)) => Err(Fault::from(format!("the column `{name}` is missing; the header must be {wanted}"))),
    }
}

impl<R: Read> Reader for CsvReader<R> {
    fn next(&mut self) -> Result<Option<TraceRecord>, Fault> {
        let Some(line) = self.lines.next()? else { return Ok(None) };
        let record = parse(line, &self.columns).ok_or_else(|| explain(line, &self.columns))?;
        Ok(Some(record))
    }
}

#[inline]
fn take_value(rest: &mut &[u8], column: Column, record: &mut TraceRecord) -> Option<()> {
    match column {
        Column::Time => record.time_ns = take_decimal(rest)?.into(),
        Column::Node => record.node = u16::try_from(take_decimal(rest)?).ok()?.into(),
        Column::Process => record.process = u16::try_from(take_decimal(rest)?).ok()?.into(),
        Column::Address => {
            record.address = if take_prefix(rest) { take_hexadecimal(rest)?.into() } else { take_decimal(rest)?.into() }
        }
        Column::Bytes => record.bytes = take_decimal(rest)?.into(),
        Column::Op => {
            let length = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
            let (name, behind) = rest.split_at(length);
            let op = TraceOp::ALL.into_iter().find(|op| op.name().as_bytes() == name);
            record.op = op? as u8;
            *rest = behind;
        }
        Column::Direct => {
            record.flags = match take_decimal(rest)? {
                0 => 0,
                1 => TRACE_FLAG_DIRECT,
                _ => return None,
            }
        }
    }
    Some(())
}

const EMPTY: TraceRecord = zerocopy::transmute!([0_u8; 32]);

/// The record of a line; `None` if the line is malformed.
#[inline]
fn parse(line: &[u8], columns: &[Column]) -> Option<TraceRecord> {
    let mut record = EMPTY;
    let mut rest = line;
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b",")?;
        }
        take_value(&mut rest, *column, &mut record)?;
    }
    rest.is_empty().then_some(record)
}

/// What is wrong with a line that is no record.
#[cold]
fn explain(line: &[u8], columns: &[Column]) -> String {
    if line.is_empty() {
        return "the line is empty".to_owned();
    }
    let values: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
    for (value, column) in values.iter().zip(columns) {
        let mut rest = *value;
        let mut record = EMPTY;
        if take_value(&mut rest, *column, &mut record).is_none() || !rest.is_empty() {
            let name = ALL.iter().find(|(_, c)| c == column).map_or("", |(name, _)| name);
            let wanted = match column {
                Column::Time | Column::Bytes => "a number below 2^64".to_owned(),
                Column::Node | Column::Process => "a number from 0 to 65535".to_owned(),
                Column::Address => "a number below 2^64, decimal or hexadecimal behind 0x".to_owned(),
                Column::Op => format!("one of {}", TraceOp::ALL.map(TraceOp::name).join(", ")),
                Column::Direct => "0 or 1".to_owned(),
            };
            return format!("{name} is {}; it must be {wanted}", shown(value));
        }
    }
    format!("there are {} values for {} columns", values.len(), columns.len())
}

pub(super) struct CsvWriter<W: Write> {
    out: BufWriter<W>,
    direct: bool,
    lines: u64,
}

impl<W: Write> CsvWriter<W> {
    /// Begins with the header; `direct` asks for the seventh column.
    pub(super) fn new(out: W, direct: bool) -> Result<Self, ConvertError> {
        let mut out = BufWriter::with_capacity(TEXT_BYTES, out);
        let columns = COLUMNS.iter().chain(direct.then_some(&DIRECT));
        writeln!(out, "{}", columns.copied().collect::<Vec<_>>().join(","))?;
        Ok(Self { out, direct, lines: 0 })
    }
}

impl<W: Write> Sink for CsvWriter<W> {
    fn push(&mut self, record: &TraceRecord) -> Result<(), ConvertError> {
        let TraceRecord { time_ns, address, bytes, node, process, .. } = record;
        let op = record.op().map_or("?", TraceOp::name);
        write!(self.out, "{time_ns},{node},{process},{op},{:#x},{bytes}", address.get())?;
        let end: &[u8] = match (self.direct, record.is_direct() || record.is_inline()) {
            (false, _) => b"\n",
            (_, false) => b",0\n",
            (_, true) => b",1\n",
        };
        self.lines += 1;
        Ok(self.out.write_all(end)?)
    }

    fn finish(&mut self) -> Result<u64, ConvertError> {
        self.out.flush()?;
        Ok(self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<TraceRecord>, String> {
        let import = super::read(text.as_bytes(), "f.csv").map_err(|e| e.to_string())?;
        import.map(|r| r.map_err(|e| e.to_string())).collect()
    }

    const HEADER: &str = "time_ns,node,process,op,address,bytes\n";

    #[test]
    fn a_file_written_by_hand_reads_as_it_says() {
        let text = "\u{feff}time_ns,node,process,op,address,bytes\r\n5,1,2,send,0x7f00,4096\r\n18446744073709551615,65535,0,unexport,12,0";
        let records = read(text).unwrap();
        assert_eq!(records.len(), 2);
        let first = records[0];
        assert_eq!((first.time_ns.get(), first.node.get(), first.process.get()), (5, 1, 2));
        assert_eq!((first.op(), first.address.get(), first.bytes.get()), (Some(TraceOp::Send), 0x7f00, 4096));
        let second = records[1];
        assert_eq!((second.time_ns.get(), second.node.get()), (u64::MAX, 65535));
        assert_eq!((second.op(), second.address.get()), (Some(TraceOp::Unexport), 12));
    }

    #[test]
    fn columns_may_come_in_any_order_and_tell_what_was_direct() {
        let records =
            read("op,bytes,address,direct,process,node,time_ns\nrecv,8,64,1,3,2,9\nrecv,8,64,0,3,2,9\n").unwrap();
        assert_eq!((records[0].time_ns.get(), records[0].node.get(), records[0].address.get()), (9, 2, 64));
        assert!(records[0].is_direct() && !records[1].is_direct());
    }

    #[test]
    fn what_is_wrong_is_told_with_file_line_and_value() {
        for (text, says) in [
            ("", "f.csv: the file is empty; its first line must name the columns: time_ns,node"),
            ("5,1,2,send,0,0\n", "f.csv, line 1: there is no column `5`"),
            ("time_ns,node,process,op,address,length\n", "there is no column `length`"),
            ("time_ns,node,process,op,address\n", "the column `bytes` is missing"),
            ("time_ns,time_ns\n", "the column `time_ns` is there twice"),
            ("time_ns,,node\n", "there is no column ``"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        for (line, says) in [
            ("x,0,0,send,0,0", "f.csv, line 3: time_ns is `x`; it must be a number below 2^64"),
            ("-5,0,0,send,0,0", "time_ns is `-5`"),
            ("18446744073709551616,0,0,send,0,0", "time_ns is `18446744073709551616`"),
            ("1,65536,0,send,0,0", "node is `65536`; it must be a number from 0 to 65535"),
            ("1,0,1.5,send,0,0", "process is `1.5`"),
            (
                "1,0,0,store,0,0",
                "op is `store`; it must be one of send, fetch, recv, export, unexport, hold, release, absent, present",
            ),
            ("1,0,0,send,0xg,0", "address is `0xg`; it must be a number below 2^64, decimal or hexadecimal"),
            ("1,0,0,send,7f00,0", "address is `7f00`"),
            ("1,0,0,send,0x10000000000000000,0", "address is `0x10000000000000000`"),
            ("1,0,0,send,0, 4", "bytes is ` 4`"),
            ("1,0,0,send,0,", "bytes is ``"),
            ("1,0,0,send,0", "there are 5 values for 6 columns"),
            ("1,0,0,send,0,4,5", "there are 7 values for 6 columns"),
            ("", "the line is empty"),
            ("\u{7}", "time_ns is `\\x07`"),
        ] {
            let error = read(&format!("{HEADER}1,0,0,send,0,0\n{line}\n")).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_is_written_is_this_text() {
        let records = read(&format!("{HEADER}5,1,2,send,0x7f00,4096\n6,0,0,export,0,1\n")).unwrap();
        for (direct, header, end) in [(false, HEADER.to_owned(), ""), (true, HEADER.replace('\n', ",direct\n"), ",0")] {
            let mut writer = CsvWriter::new(Vec::new(), direct).unwrap();
            records.iter().for_each(|r| writer.push(r).unwrap());
            assert_eq!(writer.finish().unwrap(), 2);
            let text = String::from_utf8(writer.out.into_inner().unwrap()).unwrap();
            assert_eq!(text, format!("{header}5,1,2,send,0x7f00,4096{end}\n6,0,0,export,0x0,1{end}\n"));
        }
    }
}
