//! Writes the datagrams of links, as they are before sealing and after opening, to a file that Wireshark opens (pcapng,
//! draft-ietf-opsawg-pcapng), with the dissector in contrib/wireshark.
//!
//! A datagram stands in a plain envelope, behind headers of UDP and IPv4 (LINKTYPE_RAW). `10.P.H.L` stands for path P of the
//! node 256 × H + L, and the checksums are 0: not computed. The file is bounded: datagrams are cut to [`SNAP_BYTES`], and what
//! would exceed [`MAX_FILE_BYTES`] is not written. It holds keys of exports and data of the program, so its owner alone may read it.
//!
//! Times are those of the monotonic clock, moved to the time of day at which the file began, so that none is before the one above it.
//! A comment of the interface says by how much they are moved; [`merge`](fn@merge) needs it for files of several hosts.

mod merge;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use mapwire_host::private_folder::PrivateFolder;
use mapwire_host::waiting::now_ns;
use mapwire_seal::{PLAIN_FRONT_BYTES, Plain};
use mapwire_wire::NodeId;

pub use merge::{Merged, Source, merge};

use crate::payload::Payload;

/// Bytes of a link's datagram that are written: those of all headers and of each control message, and the begin of long data.
pub const SNAP_BYTES: usize = 512;
/// Bytes of one rank's file at most.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// IP without a link layer.
const LINKTYPE_RAW: u16 = 101;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const HEADERS_BYTES: usize = 28;
/// What the comment of an interface begins and ends with, around a number of nanoseconds.
const MOVED: [&str; 2] = ["times are of the monotonic clock, moved by ", " ns"];
/// Options of an interface: a comment, its name, the resolution of times.
const COMMENT: u16 = 1;
const NAME: u16 = 2;
const RESOLUTION: u16 = 9;
/// No registered service has it.
const PORT: u16 = 47011;

/// Flags of a packet that came in, and of one that goes out.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// The file of this rank in `folder`.
#[must_use]
pub fn file_of(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("rank-{rank}.pcapng"))
}

/// A capture file that is being written.
pub(super) struct Capture {
    file: File,
    me: NodeId,
    job: u32,
    left_bytes: u64,
    /// By how much times are moved, in nanoseconds.
    moved_ns: i64,
    /// A datagram of a link, up to [`SNAP_BYTES`] or to the end of a payload.
    datagram: Vec<u8>,
    /// The end of the capture was reported.
    is_over: bool,
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let total = (12 + padded) as u32;
    let mut bytes = Vec::with_capacity(12 + padded);
    bytes.extend(kind.to_le_bytes());
    bytes.extend(total.to_le_bytes());
    bytes.extend(body);
    bytes.resize(8 + padded, 0);
    bytes.extend(total.to_le_bytes());
    bytes
}

/// An option of a block.
fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(code.to_le_bytes());
    bytes.extend((value.len() as u16).to_le_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// By how many nanoseconds the time of day is ahead of the monotonic clock.
fn time_of_day_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX));
    now.saturating_sub_unsigned(now_ns())
}

/// What a capture file begins with; packets of `ranks` follow, each on the interface of its place there, at times of the monotonic
/// clock that are moved by `moved_ns`.
fn preamble(ranks: impl IntoIterator<Item = u32>, moved_ns: i64) -> Vec<u8> {
    // Byte order, version 1.0, length unknown.
    let head = [0x1a2b_3c4d_u32, 1, u32::MAX, u32::MAX].map(u32::to_le_bytes);
    let mut bytes = block(SECTION, head.as_flattened());
    for rank in ranks {
        let mut body = Vec::new();
        body.extend(LINKTYPE_RAW.to_le_bytes());
        body.extend([0; 2]);
        body.extend(((HEADERS_BYTES + PLAIN_FRONT_BYTES + SNAP_BYTES) as u32).to_le_bytes());
        let [before, after] = MOVED;
        body.extend(option(COMMENT, format!("{before}{moved_ns}{after}").as_bytes()));
        body.extend(option(NAME, format!("rank {rank}").as_bytes()));
        // Nanoseconds.
        body.extend(option(RESOLUTION, &[9]));
        body.extend(option(0, &[]));
        bytes.extend(block(INTERFACE, &body));
    }
    bytes
}

impl Capture {
    /// Begins the file of the node `me` of a job in `folder`, into which no other user can reach.
    pub(super) fn create(folder: &Path, me: NodeId, job: u32) -> io::Result<Self> {
        let path = file_of(folder, me.0.into());
        let mut file = PrivateFolder::open(folder)?.create(&path)?;
        let moved_ns = time_of_day_ns();
        let head = preamble([me.0.into()], moved_ns);
        file.write_all(&head)?;
        Ok(Self {
            file,
            me,
            job,
            left_bytes: MAX_FILE_BYTES - head.len() as u64,
            is_over: false,
            moved_ns,
            datagram: Vec::with_capacity(SNAP_BYTES),
        })
    }

    /// Notes a datagram that `from` has sent.
    #[cold]
    pub(super) fn take(&mut self, from: NodeId, datagram: &[u8]) {
        self.datagram.clear();
        let there = &datagram[..datagram.len().min(SNAP_BYTES)];
        self.datagram.extend_from_slice(there);
        self.write(INBOUND, from, self.me, datagram.len());
    }

    /// Notes a datagram to `to`: `head`, `payload`, `tail`.
    #[cold]
    pub(super) fn send(&mut self, to: NodeId, head: &[u8], payload: &Payload<'_>, tail: &[u8]) {
        self.datagram.clear();
        self.datagram.extend_from_slice(head);
        for piece in payload.pieces() {
            let before = self.datagram.len();
            self.datagram.resize(before + piece.len(), 0);
            piece.copy_to_slice(&mut self.datagram[before..]);
        }
        self.datagram.extend_from_slice(tail);
        let length = self.datagram.len();
        self.datagram.truncate(SNAP_BYTES);
        self.write(OUTBOUND, self.me, to, length);
    }

    /// Writes what `datagram` holds, of a datagram of `length` bytes. A file that is full, or cannot be written, takes no more.
    fn write(&mut self, direction: u32, from: NodeId, to: NodeId, length: usize) {
        let path = self.datagram.get(2).copied().unwrap_or(0);
        let whole = HEADERS_BYTES + PLAIN_FRONT_BYTES + length;
        let cut = HEADERS_BYTES + PLAIN_FRONT_BYTES + self.datagram.len();
        let now_ns = now_ns().wrapping_add_signed(self.moved_ns);
        let mut body = Vec::with_capacity(32 + cut);
        let fields = [0, (now_ns >> 32) as u32, now_ns as u32, cut as u32, whole as u32];
        body.extend(fields.map(u32::to_le_bytes).as_flattened());
        let short = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
        body.extend([0x45, 0]);
        body.extend(short(whole));
        // No fragment, 64 hops, UDP, no checksum.
        body.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        for node in [from, to] {
            let [high, low] = node.0.to_be_bytes();
            body.extend([10, path, high, low]);
        }
        body.extend(PORT.to_be_bytes());
        body.extend(PORT.to_be_bytes());
        body.extend(short(whole - 20));
        body.extend([0; 2]);
        let length = (PLAIN_FRONT_BYTES + length).min(usize::from(u16::MAX)) as u16;
        body.extend(Plain::front(from, self.job, length));
        body.extend(&self.datagram);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(option(2, &direction.to_le_bytes()));
        body.extend(option(0, &[]));
        let block = block(PACKET, &body);
        let left = self.left_bytes.checked_sub(block.len() as u64);
        // One call, so that a rank that is killed leaves whole blocks.
        self.left_bytes = match left.map(|left| self.file.write_all(&block).map(|()| left)) {
            Some(Ok(left)) => left,
            Some(Err(error)) => {
                // A part of the block would spoil the file.
                let _ = self.file.set_len(MAX_FILE_BYTES - self.left_bytes);
                self.end(&error.to_string())
            }
            None => self.end("the file has reached its greatest length"),
        };
    }

    /// Ends the capture, and reports why, once.
    #[cold]
    fn end(&mut self, why: &str) -> u64 {
        if !core::mem::replace(&mut self.is_over, true) {
            let rank = self.me.0;
            mapwire_host::stderr::say(format_args!("rank {rank}: the capture ends here: {why}"));
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(capture: &mut Capture) {
        let datagram = [1, 3, 4, 0, 9];
        capture.take(NodeId(258), &datagram);
        let head = [1, 3, 4, 0];
        capture.send(NodeId(3), &head, &Payload::one(&[7; 2000][..]), &[8; 16]);
    }

    #[test]
    fn a_capture_has_both_ways_with_their_nodes_and_is_cut_to_what_headers_need() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::create(folder.path(), NodeId(2), 0x0403_0201).unwrap();
        record(&mut capture);
        let bytes = std::fs::read(file_of(folder.path(), 2)).unwrap();
        let head = preamble([2], capture.moved_ns);
        let packets = bytes.strip_prefix(&head[..]).unwrap();
        let word = |at: usize| u32::from_le_bytes(packets[at..at + 4].try_into().unwrap()) as usize;
        let first = word(4);
        assert_eq!((word(0), word(20), word(24)), (6, 28 + 12 + 5, 28 + 12 + 5));
        assert_eq!(packets[28 + 12..][..8], [10, 4, 1, 2, 10, 4, 0, 2]);
        assert_eq!(packets[28 + 28..][..12], [5, 0, 17, 0, 2, 1, 0, 0, 1, 2, 3, 4]);
        assert_eq!(packets[28 + 40..][..5], [1, 3, 4, 0, 9]);
        assert_eq!(packets[first - 16..][..8], [2, 0, 4, 0, 1, 0, 0, 0]);
        let whole = 28 + 12 + 4 + 2000 + 16;
        assert_eq!((word(first + 20), word(first + 24)), (28 + 12 + SNAP_BYTES, whole));
        assert_eq!(packets[first + 28 + 2..][..2], (whole as u16).to_be_bytes());
        assert_eq!(packets[first + 28 + 12..][..8], [10, 4, 0, 2, 10, 4, 0, 3]);
        assert_eq!(packets.len(), first + word(first + 4));
    }

    #[test]
    fn a_capture_ends_with_a_whole_datagram_before_its_file_is_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::create(folder.path(), NodeId(2), 1).unwrap();
        capture.left_bytes = 100;
        record(&mut capture);
        record(&mut capture);
        let length = std::fs::metadata(file_of(folder.path(), 2)).unwrap().len();
        let head = preamble([2], capture.moved_ns);
        assert_eq!(length - head.len() as u64, 92);
    }

    #[test]
    fn a_disk_that_is_full_ends_the_capture_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::create(folder.path(), NodeId(2), 1).unwrap();
        record(&mut capture);
        assert!(capture.left_bytes > 0 && !capture.is_over);
        capture.file = File::options().write(true).open("/dev/full").unwrap();
        for _ in 0..2 {
            record(&mut capture);
            assert!(capture.left_bytes == 0 && capture.is_over);
        }
    }

    #[test]
    fn a_file_that_is_there_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let rights = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(folder.path(), mode).unwrap();
        };
        // Others could replace the file, or have put a link there.
        rights(0o777);
        assert!(Capture::create(folder.path(), NodeId(2), 1).is_err());
        rights(0o700);
        let _first = Capture::create(folder.path(), NodeId(2), 1).unwrap();
        assert!(Capture::create(folder.path(), NodeId(2), 1).is_err());
    }
}
