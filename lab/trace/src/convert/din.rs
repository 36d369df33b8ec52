//! DineroIV's `din`: a line `label address size` for each lookup, address and size hexadecimal.
//!
//! | label when written | read too | op |
//! |---|---|---|
//! | 0 (a read) | `r` | `send`: the NIC reads memory |
//! | 1 (a write) | `w` | `recv`: a peer's data arrives there, or leaves from there for a peer that fetches |
//! | 2 (an instruction fetch) | `i` | `fetch`: memory into which a peer's data is fetched |
//!
//! Three labels keep the three ops apart; a unified cache (`-l1-usize`) treats them alike. **A line is a lookup**: an operation is cut
//! at the borders of pages, a line for each page with the bytes on it, and one of no bytes has no line; so a cache of blocks of a page counts
//! what a NIC would. `-informat d` takes label and address, and each line for 4 bytes. Records that are no transfers are no
//! accesses, and have no lines. Addresses have up to 64 bits: build DineroIV with 64-bit addresses (`D4ADDR`), or it drops the upper ones.
//!
//! The labels are what the export writes, so that a trace comes back as it was. The lines of another program's trace are loads, stores and
//! instruction fetches of a process: a NIC that is to have the memory of them looks all of them up on the send side, and
//! [`ImportOptions::as_sends`] makes all of them sends. Otherwise studies of sends and fetches leave the stores out.
//!
//! A line that is read becomes a record, with its number (from 0) for a time. Without a size (or with something that is no
//! hexadecimal number behind a digit label, which the format takes for a remark) it has 4 bytes, DineroIV's word. What follows the size
//! is a remark. Labels 3 and 4, `m`, `c` and `v` (unknown, flush, miscellaneous, copy back, invalidate) are errors: no op of a NIC
//! is like them.

use std::io::{BufWriter, Read, Write};

use mapwire_wire::{TraceOp, TraceRecord};

use super::error::{ConvertError, shown};
use super::import::{Fault, Import, ImportOptions, Reader};
use super::tags::Tags;
use super::text::{Lines, TEXT_BYTES, take_hexadecimal, take_prefix};
use super::{ExportOptions, Sink, looked_up};
use crate::pages::cut;

/// Bytes of an access that tells none.
const WORD_BYTES: u64 = 4;

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trimmed(text: &[u8]) -> &[u8] {
    let begin = text.iter().position(|byte| !is_space(*byte)).unwrap_or(text.len());
    &text[begin..]
}

/// Takes a word and the spaces behind it off the front.
fn take_word<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let length = text.iter().position(|byte| is_space(*byte)).unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    *text = trimmed(rest);
    word
}

/// A word that is a hexadecimal number as a whole, with or without `0x`.
fn number(mut word: &[u8]) -> Option<u64> {
    take_prefix(&mut word);
    let value = take_hexadecimal(&mut word)?;
    word.is_empty().then_some(value)
}

struct DinReader<R> {
    lines: Lines<R>,
    options: ImportOptions,
    records: u64,
}

/// Reads a `din` file, which errors call `file`.
pub fn read<'a>(input: impl Read + 'a, file: &str, options: &ImportOptions) -> Import<'a> {
    let reader = DinReader { lines: Lines::new(input), options: *options, records: 0 };
    Import::new(file, |records| format!("line {}", records + 1), reader)
}

impl<R: Read> Reader for DinReader<R> {
    fn next(&mut self) -> Result<Option<TraceRecord>, Fault> {
        let Some(line) = self.lines.next()? else { return Ok(None) };
        let (op, address, bytes) = parse(line)?;
        let op = if self.options.as_sends { TraceOp::Send } else { op };
        let record = self.options.record(self.records, op, address, bytes);
        self.records += 1;
        Ok(Some(record))
    }
}

fn parse(line: &[u8]) -> Result<(TraceOp, u64, u64), String> {
    let mut rest = trimmed(line);
    let label = take_word(&mut rest);
    let op = match label {
        b"0" | b"r" => TraceOp::Send,
        b"1" | b"w" => TraceOp::Receive,
        b"2" | b"i" => TraceOp::Fetch,
        b"" => return Err("the line is empty".to_owned()),
        _ => {
            return Err(format!(
                "the label is {}; it must be 0 or r (send), 1 or w (recv), 2 or i (fetch)",
                shown(label)
            ));
        }
    };
    let word = take_word(&mut rest);
    let address = number(word)
        .ok_or_else(|| format!("the address is {}; it must be a hexadecimal number below 2^64", shown(word)))?;
    let word = take_word(&mut rest);
    let bytes = match number(word) {
        Some(bytes) => bytes,
        None if word.is_empty() || label[0].is_ascii_digit() => WORD_BYTES,
        None => {
            return Err(format!("the size is {}; it must be a hexadecimal number below 2^64", shown(word)));
        }
    };
    Ok((op, address, bytes))
}

pub(super) struct DinWriter<W: Write> {
    out: BufWriter<W>,
    tags: Tags,
    page_bytes: u64,
    lines: u64,
}

impl<W: Write> DinWriter<W> {
    /// Begins a file of the lookups of the trace `file`, as errors call it.
    pub(super) fn new(out: W, file: &str, options: &ExportOptions) -> Self {
        let (out, tags) = (BufWriter::with_capacity(TEXT_BYTES, out), Tags::new(file, options.tagged));
        Self { out, tags, page_bytes: options.page_bytes, lines: 0 }
    }
}

impl<W: Write> Sink for DinWriter<W> {
    fn push(&mut self, record: &TraceRecord) -> Result<(), ConvertError> {
        let Some(op) = looked_up(record) else { return Ok(()) };
        let above = self.tags.above(record.node.get(), record.process.get())?;
        let label = match op {
            TraceOp::Send => 0,
            TraceOp::Receive => 1,
            _ => 2,
        };
        for (address, bytes) in cut(record.address.get(), record.bytes.get(), self.page_bytes) {
            writeln!(self.out, "{label} {:x} {bytes:x}", self.tags.address(above, address)?)?;
            self.lines += 1;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<u64, ConvertError> {
        self.out.flush()?;
        Ok(self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, options: &ImportOptions) -> Result<Vec<TraceRecord>, String> {
        super::read(text.as_bytes(), "f.din", options).map(|r| r.map_err(|e| e.to_string())).collect()
    }

    #[test]
    fn lines_of_both_dialects_read_as_they_say() {
        let text = "0 7f00 1000\n  1\t0xABC   20 a remark\r\n2 10\n0 10 what?\nr 8 8\nw 8 0x8\ni 8 8";
        let records = read(text, &ImportOptions { node: 3, process: 4, ..ImportOptions::default() }).unwrap();
        let all: Vec<_> =
            records.iter().map(|r| (r.time_ns.get(), r.op().unwrap().name(), r.address.get(), r.bytes.get())).collect();
        assert_eq!(
            all,
            [
                (0, "send", 0x7f00, 0x1000),
                (1, "recv", 0xabc, 0x20),
                (2, "fetch", 0x10, 4),
                (3, "send", 0x10, 4),
                (4, "send", 8, 8),
                (5, "recv", 8, 8),
                (6, "fetch", 8, 8)
            ]
        );
        assert!(records.iter().all(|r| (r.node.get(), r.process.get()) == (3, 4)));
    }

    #[test]
    fn tagged_addresses_name_processes() {
        let records = read("0 5000000001000 8\n", &ImportOptions { tagged: true, ..ImportOptions::default() }).unwrap();
        assert_eq!((records[0].process.get(), records[0].address.get()), (5, 0x1000));
    }

    #[test]
    fn what_is_wrong_is_told_with_file_line_and_value() {
        for (line, says) in [
            ("", "f.din, line 2: the line is empty"),
            ("3 100 4", "the label is `3`; it must be 0 or r (send)"),
            ("c 100 4", "the label is `c`"),
            ("00 100 4", "the label is `00`"),
            ("0", "the address is ``"),
            ("0 xyz 4", "the address is `xyz`; it must be a hexadecimal number below 2^64"),
            ("0 10000000000000000 4", "the address is `10000000000000000`"),
            ("r 100 z", "the size is `z`"),
        ] {
            let error = read(&format!("0 0\n{line}\n"), &ImportOptions::default()).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
