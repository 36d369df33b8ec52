//! Writes down what this process communicates while it runs: raw records, in order of time, one file for each rank. The launcher
//! makes one trace of them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use mapwire_host::waiting::now_ns;
use mapwire_translation::{PAGE_BYTES, PageRange, TranslationDesign};
use mapwire_wire::{TRACE_RECORD_BYTES, TraceOp, TraceRecord};
use zerocopy::IntoBytes;

use crate::driver::Driver;
use crate::error::DriverError;
use crate::log::Line;

/// Records that wait in memory: what is lost when the process is killed.
const WAITING: usize = 128;

/// The file of this rank.
#[derive(Debug)]
pub(crate) struct Capture {
    file: File,
    waiting: Vec<TraceRecord>,
    node: u16,
    /// Where its counters go at the end.
    counters: PathBuf,
    /// Written already, in bytes: what a write that failed halfway has left is taken back.
    written: u64,
}

/// The file of rank `rank` in the folder that the launcher names.
#[must_use]
pub fn file_of(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("{rank}.raw"))
}

/// The file in which a rank that has left the job says what it counted, as one line.
#[must_use]
pub fn counters_of(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("{rank}.counters"))
}

impl Capture {
    /// Begins the file of `rank`, which must not be there.
    pub(crate) fn create(folder: &Path, rank: u32) -> Result<Self, DriverError> {
        let path = file_of(folder, rank);
        let file = File::create_new(&path).map_err(|error| DriverError::Trace { path, error })?;
        Ok(Self {
            file,
            waiting: Vec::with_capacity(WAITING),
            node: rank as u16,
            counters: counters_of(folder, rank),
            written: 0,
        })
    }

    /// Notes an operation of now. Allocates nothing. An error ends the trace.
    #[inline]
    pub(crate) fn record(
        &mut self,
        time_ns: u64,
        op: TraceOp,
        flags: u8,
        address: u64,
        bytes: u64,
    ) -> std::io::Result<()> {
        self.waiting.push(TraceRecord {
            time_ns: time_ns.into(),
            address: address.into(),
            bytes: bytes.into(),
            node: self.node.into(),
            process: 0.into(),
            op: op as u8,
            flags,
            reserved: 0.into(),
        });
        if self.waiting.len() == WAITING {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes the record that came last longer, if this continues it from the start of a page on: the same operation on memory that
    /// follows. It stands for the same lookups.
    #[inline]
    fn extend(&mut self, op: TraceOp, address: u64, length: u32) -> bool {
        let Some(last) = self.waiting.last_mut() else {
            return false;
        };
        let follows = last.op == op as u8
            && last.flags == 0
            && address.is_multiple_of(PAGE_BYTES as u64)
            && last.address.get().wrapping_add(last.bytes.get()) == address;
        if follows {
            last.bytes += u64::from(length);
        }
        follows
    }

    /// Writes what waits.
    pub(crate) fn flush(&mut self) -> std::io::Result<()> {
        let outcome = self.file.write_all(self.waiting.as_bytes());
        if outcome.is_ok() {
            self.written += (self.waiting.len() * TRACE_RECORD_BYTES) as u64;
        } else {
            // No half record.
            let _ = self.file.set_len(self.written);
        }
        self.waiting.clear();
        outcome
    }
}

impl Driver {
    /// Whether what is communicated is written down.
    #[inline]
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.capture.is_some()
    }

    /// Notes an operation that the NIC takes no part in, or does not translate: see the flags of [`TraceRecord`].
    #[cold]
    pub fn trace(&mut self, op: TraceOp, flags: u8, address: u64, bytes: u64) {
        if let Some(capture) = &mut self.capture
            && let Err(error) = capture.record(now_ns(), op, flags, address, bytes)
        {
            self.end_trace(error);
        }
    }

    /// Notes that pages are pinned for an export, or no longer.
    pub(crate) fn trace_pages(&mut self, op: TraceOp, range: PageRange) {
        if self.is_traced() {
            let bytes = range.count * PAGE_BYTES as u64;
            self.trace(op, 0, range.first.address(), bytes);
        }
    }

    /// Notes what the NIC has translated since.
    #[cold]
    pub(crate) fn take_traced(&mut self) {
        let Some(capture) = &mut self.capture else {
            return;
        };
        let mut at_ns = None;
        while let Some(traced) = self.nic.poll_traced() {
            if capture.extend(traced.op, traced.address, traced.length) {
                continue;
            }
            let at_ns = *at_ns.get_or_insert_with(now_ns);
            let length = u64::from(traced.length);
            if let Err(error) = capture.record(at_ns, traced.op, 0, traced.address, length) {
                return self.end_trace(error);
            }
        }
    }

    /// Writes what waits: before a sleep, and at the end.
    pub(crate) fn flush_trace(&mut self) {
        if let Some(capture) = &mut self.capture
            && !capture.waiting.is_empty()
            && let Err(error) = capture.flush()
        {
            self.end_trace(error);
        }
    }

    /// Ends the trace, with what this rank has counted itself: a study of the trace must come to the same.
    pub(crate) fn close_trace(&mut self) {
        self.take_traced();
        self.flush_trace();
        if let Some(capture) = self.capture.take() {
            // What exports have let go of, and nobody has come by to unpin.
            self.reclaim();
            let counters = self.nic.translation().counters() + self.pages.counters();
            // The trace is whole without it.
            let _ = std::fs::write(&capture.counters, counters.to_string());
        }
    }

    /// The program goes on without its trace, and its log says so.
    #[cold]
    pub(crate) fn end_trace(&mut self, error: std::io::Error) {
        self.capture = None;
        self.nic.set_tracing(false);
        self.log.push(Line::TraceEnded(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn records(folder: &Path) -> Vec<(u64, u64)> {
        let bytes = std::fs::read(file_of(folder, 3)).unwrap();
        <[TraceRecord]>::ref_from_bytes(&bytes)
            .unwrap()
            .iter()
            .map(|record| (record.address.get(), record.bytes.get()))
            .collect()
    }

    #[test]
    fn pieces_of_one_transfer_are_one_record_only_where_that_means_the_same_lookups() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::create(folder.path(), 3).unwrap();
        let mut note = |op, address, length: u32| {
            if !capture.extend(op, address, length) {
                capture.record(1, op, 0, address, length.into()).unwrap();
            }
        };
        note(TraceOp::Send, 100, 3996);
        note(TraceOp::Send, 4096, 4096);
        note(TraceOp::Send, 8192, 8);
        // The same page once more is another lookup.
        note(TraceOp::Send, 8200, 8);
        note(TraceOp::Receive, 8208, 8);
        note(TraceOp::Receive, 0, 8);
        capture.flush().unwrap();
        assert_eq!(
            records(folder.path()),
            [(100, 8100), (8200, 8), (8208, 8), (0, 8)]
        );
    }

    #[test]
    fn records_are_written_as_they_fill_the_buffer_and_none_is_there_twice() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::create(folder.path(), 3).unwrap();
        for number in 0..WAITING as u64 + 5 {
            capture
                .record(number, TraceOp::Send, 0, number * 8192, 1)
                .unwrap();
        }
        assert_eq!(records(folder.path()).len(), WAITING);
        capture.flush().unwrap();
        let expected: Vec<_> = (0..WAITING as u64 + 5).map(|n| (n * 8192, 1)).collect();
        assert_eq!(records(folder.path()), expected);
    }

    #[test]
    fn a_file_that_is_there_is_not_overwritten_and_a_folder_that_is_not_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Capture::create(folder.path(), 3).unwrap();
        assert!(Capture::create(folder.path(), 3).is_err());
        let error = Capture::create(&folder.path().join("absent"), 3).unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    }
}
