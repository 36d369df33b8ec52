//! One capture of several, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::path::Path;

use super::{COMMENT, INTERFACE, MAX_FILE_BYTES, MOVED, PACKET, SECTION};
use super::{preamble, time_of_day_ns};

/// No block of a capture is longer, in bytes.
const LONGEST_BLOCK: usize = 2048;
/// A file that is so near to its most bytes was full: no block of a packet is longer.
const NEARLY_FULL_BYTES: u64 = MAX_FILE_BYTES - LONGEST_BLOCK as u64;

/// The capture of one rank, as it is read.
#[derive(Debug)]
pub struct Source {
    file: BufReader<File>,
    rank: u32,
    /// By how many nanoseconds its times are ahead of this host's monotonic clock.
    ahead_ns: i64,
    read_bytes: u64,
    /// It ends within a block.
    is_torn: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Datagrams: each as its sender has it, and as its receiver has it if it came.
    pub datagrams: u64,
    /// Ranks whose capture ends in part of a datagram, since they were killed.
    pub torn: Vec<u32>,
    /// Ranks whose capture was full, so that later datagrams are missing.
    pub full: Vec<u32>,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The number in the comment of an interface.
fn moved_of(interface: &[u8]) -> Option<i64> {
    let mut options = interface.get(8..)?;
    loop {
        let code = word(options, 0) as u16;
        let length = (word(options, 0) >> 16) as usize;
        let value = options.get(4..4 + length)?;
        if code == COMMENT {
            let text = str::from_utf8(value).ok()?;
            let [before, after] = MOVED;
            let number = text.strip_prefix(before)?.strip_suffix(after)?;
            return number.parse().ok();
        }
        options = options.get(4 + length.next_multiple_of(4)..)?;
    }
}

impl Source {
    /// Opens the capture of `rank`, whose host's monotonic clock was ahead of this host's by `clock_ahead_ns`.
    ///
    /// # Errors
    /// The file cannot be read, or does not begin as a rank begins it.
    pub fn open(path: &Path, rank: u32, clock_ahead_ns: i64) -> io::Result<Self> {
        let mut source =
            Self { file: BufReader::new(File::open(path)?), rank, ahead_ns: 0, read_bytes: 0, is_torn: false };
        let no_capture = || wrong("no capture of a rank");
        let (kind, _) = source.read()?.ok_or_else(no_capture)?;
        let (next, interface) = source.read()?.ok_or_else(no_capture)?;
        if (kind, next) != (SECTION, INTERFACE) {
            return Err(no_capture());
        }
        let moved_ns = moved_of(&interface).ok_or_else(no_capture)?;
        source.ahead_ns = moved_ns.wrapping_add(clock_ahead_ns);
        Ok(source)
    }

    /// The next block: its type, and what it holds. `None` at the end, also where the file ends within one.
    fn read(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let mut head = [0; 8];
        match self.fill(&mut head)? {
            0 => return Ok(None),
            8 => {}
            _ => return Ok(self.tear()),
        }
        let length = word(&head, 4) as usize;
        if !length.is_multiple_of(4) || !(12..=LONGEST_BLOCK).contains(&length) {
            return Ok(self.tear());
        }
        let mut body = vec![0; length - 8];
        let count = self.fill(&mut body)?;
        if count < body.len() || word(&body, count - 4) as usize != length {
            return Ok(self.tear());
        }
        body.truncate(count - 4);
        Ok(Some((word(&head, 0), body)))
    }

    fn tear<T>(&mut self) -> Option<T> {
        self.is_torn = true;
        None
    }

    /// Reads as many bytes as there are.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.read_bytes += filled as u64;
        Ok(filled)
    }

    /// The next packet: when it was captured, by this host's monotonic clock, and its block's body.
    fn packet(&mut self) -> io::Result<Option<(i64, Vec<u8>)>> {
        while let Some((kind, body)) = self.read()? {
            if kind == PACKET && body.len() >= 20 {
                let time = u64::from(word(&body, 4)) << 32 | u64::from(word(&body, 8));
                return Ok(Some(((time as i64).wrapping_sub(self.ahead_ns), body)));
            }
        }
        Ok(None)
    }
}

/// Writes one capture of all `sources`, in which times are those of this host.
///
/// # Errors
/// A source cannot be read, or `into` not written.
pub fn merge(mut sources: Vec<Source>, into: &mut impl Write) -> io::Result<Merged> {
    let moved_ns = time_of_day_ns();
    into.write_all(&preamble(sources.iter().map(|source| source.rank), moved_ns))?;
    let mut merged = Merged::default();
    let mut next = BinaryHeap::new();
    for (place, source) in (0..).zip(&mut sources) {
        let packet = source.packet()?;
        next.extend(packet.map(|(at_ns, body)| Reverse((at_ns, place, body))));
    }
    while let Some(Reverse((at_ns, place, mut body))) = next.pop() {
        let time = at_ns.wrapping_add(moved_ns) as u64;
        let fields = [place, (time >> 32) as u32, time as u32].map(u32::to_le_bytes);
        body[..12].copy_from_slice(fields.as_flattened());
        into.write_all(&super::block(PACKET, &body))?;
        merged.datagrams += 1;
        let packet = sources[place as usize].packet()?;
        next.extend(packet.map(|(at_ns, body)| Reverse((at_ns, place, body))));
    }
    let of = |is: fn(&Source) -> bool| {
        let some = sources.iter().filter(|source| is(source));
        some.map(|source| source.rank).collect()
    };
    merged.torn = of(|source| source.is_torn);
    merged.full = of(|source| source.read_bytes >= NEARLY_FULL_BYTES);
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::super::{Capture, file_of};
    use super::*;
    use crate::payload::Payload;
    use mapwire_wire::NodeId;

    /// Ranks and interfaces of a capture's packets in their order, whose times must not go back.
    fn senders(bytes: &[u8]) -> Vec<(u8, u32)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all");
        std::fs::write(&path, bytes).unwrap();
        let mut source = Source {
            file: BufReader::new(File::open(path).unwrap()),
            rank: 0,
            ahead_ns: 0,
            read_bytes: 0,
            is_torn: false,
        };
        let (mut senders, mut last) = (Vec::new(), 0);
        while let Some((at_ns, body)) = source.packet().unwrap() {
            assert!(at_ns >= last, "time goes back");
            last = at_ns;
            senders.push((body[20 + 15], word(&body, 0)));
        }
        assert!(!source.is_torn);
        senders
    }

    /// Captures of ranks 1 and 2, whose datagrams to another come in turn.
    fn captures(folder: &Path) {
        let mut of = [1, 2].map(|me| Capture::create(folder, NodeId(me), 7).unwrap());
        // As of a host whose clock is an hour late, and whose time of day is a year late.
        let hour_ns = 3_600_000_000_000;
        of[1].moved_ns -= 365 * 24 * hour_ns;
        let at = preamble([2], of[1].moved_ns);
        std::fs::write(file_of(folder, 2), at).unwrap();
        of[1].file = File::options().append(true).open(file_of(folder, 2)).unwrap();
        for _ in 0..3 {
            for capture in &mut of {
                capture.send(NodeId(9), &[1, 3, 0, 0], &Payload::one(&[0; 3][..]), &[]);
            }
        }
    }

    #[test]
    fn datagrams_of_all_ranks_are_in_order_of_time_whatever_their_hosts_clocks_say() {
        let folder = tempfile::tempdir().unwrap();
        captures(folder.path());
        let open = |rank| Source::open(&file_of(folder.path(), rank), rank, 0).unwrap();
        let mut bytes = Vec::new();
        let merged = merge(vec![open(1), open(2)], &mut bytes).unwrap();
        let expected = Merged { datagrams: 6, ..Merged::default() };
        assert_eq!(merged, expected);
        let turn = [(1, 0), (2, 1)];
        assert_eq!(senders(&bytes), [turn; 3].as_flattened());
        // A clock that was ahead by a second: its rank comes first.
        let late = Source::open(&file_of(folder.path(), 2), 2, 1_000_000_000).unwrap();
        let mut bytes = Vec::new();
        merge(vec![open(1), late], &mut bytes).unwrap();
        assert_eq!(senders(&bytes), [[(2, 1); 3], [(1, 0); 3]].as_flattened());
    }

    #[test]
    fn a_file_that_ends_within_a_datagram_is_read_so_far_and_another_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        captures(folder.path());
        let path = file_of(folder.path(), 1);
        let bytes = std::fs::read(&path).unwrap();
        let mut all = Vec::new();
        for (missing, datagrams) in [(1, 2), (91, 2), (93, 1)] {
            std::fs::write(&path, &bytes[..bytes.len() - missing]).unwrap();
            let source = Source::open(&path, 1, 0).unwrap();
            let merged = merge(vec![source], &mut all).unwrap();
            assert_eq!((merged.datagrams, merged.torn), (datagrams, vec![1]));
        }
        for false_bytes in [84, 92] {
            let mut lies = bytes.clone();
            let end = lies.len();
            lies[end - false_bytes..].fill(0xff);
            std::fs::write(&path, &lies).unwrap();
            let merged = merge(vec![Source::open(&path, 1, 0).unwrap()], &mut all).unwrap();
            assert_eq!((merged.datagrams, merged.torn), (2, vec![1]));
        }
        for foreign in [&b""[..], b"no capture", &bytes[28..]] {
            std::fs::write(&path, foreign).unwrap();
            assert!(Source::open(&path, 1, 0).is_err());
        }
    }
}
