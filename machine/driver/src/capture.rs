//! Writes down what this process communicates while it runs: raw records, in order of time, one file for each rank. The launcher
//! makes one trace of them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use mapwire_host::private_folder::PrivateFolder;
use mapwire_host::waiting::now_ns;
use mapwire_nic::Traced;
use mapwire_node::Event;
use mapwire_translation::{Counters, PAGE_BYTES, PageRange};
use mapwire_wire::{TRACE_RECORD_BYTES, TraceOp, TraceRecord};
use zerocopy::IntoBytes;

use crate::error::DriverError;

/// Records that wait in memory: what is lost when the process is killed.
const WAITING: usize = 128;

/// Holds that have records at a time, without memory being allocated for them.
const HELD: usize = 1024;

/// The file of this rank.
#[derive(Debug)]
pub(crate) struct Capture {
    file: File,
    waiting: Vec<TraceRecord>,
    node: u16,
    /// Where its counters go at the end: the folder, and the file.
    folder: PrivateFolder,
    counters: PathBuf,
    /// Written already, in bytes: what a write that failed halfway has left is taken back.
    written: u64,
    /// The hold that came last, until its transfer is over or anything comes between: if nothing does, the transfer's record stands
    /// for its lookups, the hold and the release.
    pending: Option<Pending>,
    /// Holds that have records, and are to have a release.
    held: Vec<PageRange>,
    /// Whether the last record may grow.
    open: bool,
    /// The thread of which the calls of the shared memory are that follow.
    thread: Option<u16>,
}

/// A transfer whose pages are held, and of which the last record tells as far as it has been looked up.
#[derive(Debug)]
struct Pending {
    time_ns: u64,
    range: PageRange,
    /// Pages that were looked up, which the last record tells of.
    looked_up: u64,
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
    /// Begins the file of `rank`, which must not be there, in a folder that no other user can reach into.
    pub(crate) fn create(folder: &Path, rank: u32) -> Result<Self, DriverError> {
        let path = file_of(folder, rank);
        let counters = counters_of(folder, rank);
        let opened = PrivateFolder::open(folder).and_then(|folder| Ok((folder.create(&path)?, folder)));
        let (file, folder) = opened.map_err(|error| DriverError::Trace { path, error })?;
        Ok(Self {
            file,
            folder,
            waiting: Vec::with_capacity(WAITING),
            node: rank as u16,
            counters,
            written: 0,
            pending: None,
            held: Vec::with_capacity(HELD),
            open: false,
            thread: None,
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
        self.settle();
        self.push(time_ns, op, flags, address, bytes)
    }

    #[inline]
    fn push(&mut self, time_ns: u64, op: TraceOp, flags: u8, address: u64, bytes: u64) -> std::io::Result<()> {
        if self.waiting.len() + 2 > WAITING {
            self.flush()?;
        }
        let record = self.made(time_ns, op, flags, address, bytes);
        self.waiting.push(record);
        self.open = true;
        Ok(())
    }

    fn made(&self, time_ns: u64, op: TraceOp, flags: u8, address: u64, bytes: u64) -> TraceRecord {
        TraceRecord {
            time_ns: time_ns.into(),
            address: address.into(),
            bytes: bytes.into(),
            node: self.node.into(),
            process: 0.into(),
            op: op as u8,
            flags,
            reserved: 0.into(),
        }
    }

    /// Notes that the pages of a transfer are held from now on.
    #[inline]
    fn hold(&mut self, time_ns: u64, range: PageRange) {
        self.settle();
        self.open = false;
        self.pending = Some(Pending { time_ns, range, looked_up: 0 });
    }

    /// Notes that the transfer of those pages is over.
    #[inline]
    fn release(&mut self, time_ns: u64, range: PageRange) -> std::io::Result<()> {
        if let Some(pending) = &self.pending
            && pending.range == range
        {
            if pending.looked_up == range.count {
                // Nothing has come between: the transfer's record says it all.
                self.pending = None;
                self.open = false;
                return Ok(());
            }
            self.settle();
        }
        if let Some(at) = self.held.iter().position(|held| *held == range) {
            self.held.swap_remove(at);
            self.pages(time_ns, TraceOp::Release, range)?;
        }
        Ok(())
    }

    fn pages(&mut self, time_ns: u64, op: TraceOp, range: PageRange) -> std::io::Result<()> {
        let bytes = range.count * PAGE_BYTES as u64;
        self.record(time_ns, op, 0, range.first.address(), bytes)
    }

    /// Something comes between a hold and the end of its transfer: the hold gets a record of its own, before the transfer's.
    #[inline]
    fn settle(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.settle_now(pending);
        }
    }

    #[cold]
    fn settle_now(&mut self, pending: Pending) {
        let Pending { time_ns, range, looked_up } = pending;
        let bytes = range.count * PAGE_BYTES as u64;
        let hold = self.made(time_ns, TraceOp::Hold, 0, range.first.address(), bytes);
        // A record that is being extended is the last one that waits: nothing is written out before this is settled. There is room
        // as a rule: a record is only added where two have room.
        let at = self.waiting.len() - usize::from(looked_up > 0);
        self.waiting.insert(at, hold);
        self.held.push(range);
    }

    /// Notes a lookup of the NIC.
    #[inline]
    fn lookup(&mut self, time_ns: &mut Option<u64>, traced: Traced) -> std::io::Result<()> {
        let (op, address, length) = (traced.op, traced.address, traced.length);
        if let Some(pending) = &mut self.pending {
            let page = address / PAGE_BYTES as u64;
            if op != TraceOp::Receive && page == pending.range.first.0 + pending.looked_up {
                pending.looked_up += 1;
                let is_first = pending.looked_up == 1;
                let goes_on = is_first || self.extend(op, address, length);
                if goes_on {
                    if is_first {
                        let now_ns = *time_ns.get_or_insert_with(now_ns);
                        let pending = self.pending.take();
                        self.push(now_ns, op, 0, address, u64::from(length))?;
                        self.pending = pending;
                    }
                    return Ok(());
                }
                if let Some(pending) = &mut self.pending {
                    pending.looked_up -= 1;
                }
            }
            self.settle();
        }
        if self.open && self.extend(op, address, length) {
            return Ok(());
        }
        let now_ns = *time_ns.get_or_insert_with(now_ns);
        self.push(now_ns, op, 0, address, u64::from(length))
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

    pub(crate) fn flush(&mut self) -> std::io::Result<()> {
        self.settle();
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

    /// Notes what the node has communicated.
    #[cold]
    pub(crate) fn take(&mut self, events: impl FnMut() -> Option<Event>) -> std::io::Result<()> {
        let mut time_ns = None;
        let mut outcome = Ok(());
        for event in core::iter::from_fn(events) {
            outcome = outcome.and_then(|()| match event {
                Event::Lookup(traced) => self.lookup(&mut time_ns, traced),
                Event::Pages { op, range, .. } => {
                    let now_ns = *time_ns.get_or_insert_with(now_ns);
                    match op {
                        TraceOp::Hold => {
                            self.hold(now_ns, range);
                            Ok(())
                        }
                        TraceOp::Release => self.release(now_ns, range),
                        op => self.pages(now_ns, op, range),
                    }
                }
            });
        }
        outcome
    }

    /// Notes that a thread has computed, and that the calls of the shared memory that follow are its.
    pub(crate) fn note_thread(&mut self, time_ns: u64, thread: u16, computed_ns: u64) -> std::io::Result<()> {
        self.thread = Some(thread);
        self.record(time_ns, TraceOp::Compute, 0, u64::from(thread), computed_ns)
    }

    /// Notes a call of the shared memory that a thread has made.
    pub(crate) fn note_call(
        &mut self,
        time_ns: u64,
        thread: u16,
        op: TraceOp,
        address: u64,
        bytes: u64,
    ) -> std::io::Result<()> {
        if self.thread != Some(thread) {
            self.note_thread(time_ns, thread, 0)?;
        }
        self.record(time_ns, op, 0, address, bytes)
    }

    /// Writes what waits, if anything does.
    pub(crate) fn flush_if_any(&mut self) -> std::io::Result<()> {
        match self.waiting.is_empty() && self.pending.is_none() {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// Writes down what this rank has counted itself: a study of the trace must come to the same. The trace is whole without it.
    pub(crate) fn write_counters(self, counters: &Counters) {
        let created = self.folder.create(&self.counters);
        let _ = created.and_then(|mut file| file.write_all(counters.to_string().as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use mapwire_translation::Page;
    use mapwire_wire::ProcessId;
    use zerocopy::FromBytes;

    fn private_tempdir() -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt;
        let private = std::fs::Permissions::from_mode(0o700);
        tempfile::Builder::new().permissions(private).tempdir().unwrap()
    }

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
        let folder = private_tempdir();
        let mut capture = Capture::create(folder.path(), 3).unwrap();
        let mut note = |op, address, length| look_up(&mut capture, op, address, length);
        note(TraceOp::Send, 100, 3996);
        note(TraceOp::Send, 4096, 4096);
        note(TraceOp::Send, 8192, 8);
        // The same page once more is another lookup.
        note(TraceOp::Send, 8200, 8);
        note(TraceOp::Receive, 8208, 8);
        note(TraceOp::Receive, 0, 8);
        capture.flush().unwrap();
        assert_eq!(records(folder.path()), [(100, 8100), (8200, 8), (8208, 8), (0, 8)]);
    }

    fn look_up(capture: &mut Capture, op: TraceOp, address: u64, length: u32) {
        let process = ProcessId(0);
        let traced = Traced { op, process, address, length };
        capture.lookup(&mut Some(1), traced).unwrap();
    }

    /// Operations of the file, each with its first page and its bytes.
    fn operations(folder: &Path) -> Vec<(TraceOp, u64, u64)> {
        let bytes = std::fs::read(file_of(folder, 3)).unwrap();
        let records = <[TraceRecord]>::ref_from_bytes(&bytes).unwrap();
        let fields = |it: &TraceRecord| (it.op().unwrap(), it.address.get() >> 12, it.bytes.get());
        records.iter().map(fields).collect()
    }

    #[test]
    fn a_hold_has_a_record_only_if_something_comes_before_its_release() {
        use TraceOp::{Hold, Receive, Release, Send};
        let folder = private_tempdir();
        let mut capture = Capture::create(folder.path(), 3).unwrap();
        let pages = |first, count| PageRange { first: Page(first), count };
        let transfer = pages(2, 2);
        // Nothing between.
        capture.hold(1, transfer);
        look_up(&mut capture, Send, 2 << 12, 4096);
        look_up(&mut capture, Send, 3 << 12, 96);
        capture.release(1, transfer).unwrap();
        // Another transfer goes on where this one stopped, and is another.
        capture.hold(1, pages(4, 1));
        look_up(&mut capture, Send, 4 << 12, 96);
        capture.release(1, pages(4, 1)).unwrap();
        // Something in the middle, before the start, and no lookup at all.
        capture.hold(1, transfer);
        look_up(&mut capture, Send, 2 << 12, 4096);
        look_up(&mut capture, Receive, 7 << 12, 5);
        look_up(&mut capture, Send, 3 << 12, 96);
        capture.release(1, transfer).unwrap();
        // The last page once more.
        capture.hold(1, transfer);
        look_up(&mut capture, Send, 2 << 12, 4096);
        look_up(&mut capture, Send, 3 << 12, 96);
        look_up(&mut capture, Send, (3 << 12) + 96, 4);
        capture.release(1, transfer).unwrap();
        capture.hold(1, transfer);
        capture.hold(1, pages(9, 1));
        capture.release(1, pages(9, 1)).unwrap();
        capture.release(1, transfer).unwrap();
        capture.flush().unwrap();
        let expected = [
            (Send, 2, 4192),
            (Send, 4, 96),
            (Hold, 2, 8192),
            (Send, 2, 4096),
            (Receive, 7, 5),
            (Send, 3, 96),
            (Release, 2, 8192),
            (Hold, 2, 8192),
            (Send, 2, 4192),
            (Send, 3, 4),
            (Release, 2, 8192),
            (Hold, 2, 8192),
            (Hold, 9, 4096),
            (Release, 9, 4096),
            (Release, 2, 8192),
        ];
        assert_eq!(operations(folder.path()), expected);
    }

    #[test]
    fn records_are_written_as_they_fill_the_buffer_and_none_is_there_twice() {
        let folder = private_tempdir();
        let mut capture = Capture::create(folder.path(), 3).unwrap();
        for number in 0..WAITING as u64 + 5 {
            capture.record(number, TraceOp::Send, 0, number * 8192, 1).unwrap();
        }
        assert_eq!(records(folder.path()).len(), WAITING - 1);
        capture.flush().unwrap();
        let expected: Vec<_> = (0..WAITING as u64 + 5).map(|n| (n * 8192, 1)).collect();
        assert_eq!(records(folder.path()), expected);
    }

    #[test]
    fn a_folder_that_others_can_write_to_and_a_link_in_place_of_the_file_are_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = private_tempdir();
        let target = folder.path().join("target");
        symlink(&target, file_of(folder.path(), 3)).unwrap();
        assert!(Capture::create(folder.path(), 3).is_err());
        assert!(!target.exists());
        let link = folder.path().join("link");
        symlink(folder.path(), &link).unwrap();
        assert!(Capture::create(&link, 4).is_err());
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let error = Capture::create(folder.path(), 4).unwrap_err();
        assert!(error.to_string().contains("others can write to it"), "{error}");
    }

    #[test]
    fn a_file_that_is_there_is_not_overwritten_and_a_folder_that_is_not_is_named() {
        let folder = private_tempdir();
        let _first = Capture::create(folder.path(), 3).unwrap();
        assert!(Capture::create(folder.path(), 3).is_err());
        let error = Capture::create(&folder.path().join("absent"), 3).unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    }
}
