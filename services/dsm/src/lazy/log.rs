//! Write notices and vector time: what this rank knows of the writes of all, and what it has told whom.
//!
//! An *interval* of a rank is what it wrote between two releases; the rank numbers those with writes from 1. A *notice* says that pages
//! were written in an interval. `time` has the number of each rank's last interval of which this rank has all notices. Notices enter the
//! log in the order in which they are learned, and go to another rank in that order, at most once to each, with the next token or arrival;
//! those in excess of a message precede it in messages of their own. A notice is in the log only when the homes have its diffs.
//!
//! A request for a lock carries the requester's time, so that it is not told what it knows, unless the times of all do not fit.
//!
//! The log is bounded. It loses its oldest notices when
//!
//! * all ranks have them: those that this rank knew when it arrived at a barrier, once it passes the *next* round of that barrier. Then all
//!   have arrived at that round, hence have passed this one, and with it got what its manager had gathered;
//! * there is no room: first those that were sent to every rank; and if that is not enough, all notices of a rank are replaced by one that
//!   names all pages. Who gets it fetches more than it needs, which is slow but right.

use crate::{Barrier, Rank, Violation, tables};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of an encoded notice.
const NOTICE_BYTES: usize = 16;
/// Bytes of a rank's time.
const TIME_BYTES: usize = 8;
/// Set with the writer of the last notice of an interval.
const LAST: u16 = 1 << 15;

/// Pages written by a rank in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) writer: Rank,
    /// The writer's interval, from 1; what it names may be of earlier ones too, of which nobody is told apart.
    interval: u64,
    pub(super) pages: Run,
    /// No further notice of the interval follows.
    is_last: bool,
}

/// Consecutive pages; none stands for all pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u16,
}

impl Run {
    pub(super) const ALL: Self = Run { first: 0, count: 0 };
}

impl Notice {
    fn write(&self, bytes: &mut [u8]) {
        let writer = self.writer | if self.is_last { LAST } else { 0 };
        bytes[..2].copy_from_slice(&writer.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.pages.count.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.pages.first.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.interval.to_le_bytes());
    }

    fn read(bytes: &[u8; NOTICE_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, interval @ ..] = *bytes;
        let writer = u16::from_le_bytes([a, b]);
        Notice {
            writer: writer & !LAST,
            interval: u64::from_le_bytes(interval),
            pages: Run { first: u32::from_le_bytes([e, f, g, h]), count: u16::from_le_bytes([c, d]) },
            is_last: writer & LAST != 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Log {
    me: Rank,
    ranks: usize,
    pages: u32,
    time: Vec<u64>,
    /// A row for each rank: the time that it has said to be its own.
    claimed: Vec<u64>,
    /// A row for each rank: the time that it has, or will have before it handles the next message of this rank.
    told: Vec<u64>,
    notices: VecDeque<Notice>,
    most: usize,
    /// Number of notices that are not in the log any more.
    base: u64,
    /// For each rank, the number of the first notice that it may lack.
    cursors: Vec<u64>,
    /// For each barrier, the number of the first notice that was not there when this rank arrived, and when it arrived before that.
    arrivals: Vec<[u64; 2]>,
    /// For each rank, the greatest interval in the log, while it is condensed.
    latest: Vec<u64>,
    condensed: u64,
}

impl Log {
    /// Nothing has been written; `None` if the machine refuses memory.
    pub(super) fn new(me: Rank, ranks: u16, pages: u32, barriers: u32, most: u32) -> Option<Self> {
        let (ranks, most) = (usize::from(ranks), most as usize);
        Some(Log {
            me,
            ranks,
            pages,
            time: vec![0; ranks],
            claimed: tables::zeroes(ranks * ranks)?,
            told: tables::zeroes(ranks * ranks)?,
            notices: VecDeque::with_capacity(most),
            most,
            base: 0,
            cursors: vec![0; ranks],
            arrivals: vec![[0; 2]; barriers as usize + 1],
            latest: vec![0; ranks],
            condensed: 0,
        })
    }

    /// What this rank knows: the last interval of each rank.
    pub(super) fn time(&self) -> &[u64] {
        &self.time
    }

    /// The number of the interval that this rank publishes next.
    pub(super) fn next_interval(&self) -> u64 {
        self.time[usize::from(self.me)] + 1
    }

    /// How often notices were replaced by such of all pages.
    pub(super) fn condensed(&self) -> u64 {
        self.condensed
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.notices.len()
    }

    fn end(&self) -> u64 {
        self.base + self.notices.len() as u64
    }

    /// Ends this rank's interval: whoever acquires from now on learns that these pages were written.
    pub(super) fn publish(&mut self, runs: &[Run]) {
        let interval = self.next_interval();
        self.make_room(runs.len());
        for (at, &pages) in runs.iter().enumerate() {
            let is_last = at + 1 == runs.len();
            self.notices.push_back(Notice { writer: self.me, interval, pages, is_last });
        }
        if !runs.is_empty() {
            self.time[usize::from(self.me)] = interval;
        }
    }

    /// Checks notices of a message.
    pub(super) fn check(&self, payload: &[u8]) -> Result<(), Violation> {
        let (notices, rest) = payload.as_chunks();
        if !rest.is_empty() {
            return Err(Violation::Payload);
        }
        for notice in notices.iter().map(Notice::read) {
            let Notice { writer, interval, pages, .. } = notice;
            let Run { first, count } = pages;
            let end = first.checked_add(u32::from(count)).filter(|&end| end <= self.pages);
            if usize::from(writer) >= self.ranks || interval == 0 || end.is_none() || (count == 0 && first != 0) {
                return Err(Violation::OutOfRange);
            }
            if writer == self.me && interval > self.time[usize::from(self.me)] {
                return Err(Violation::Time);
            }
        }
        Ok(())
    }

    /// Enters checked notices that `from` has sent, and calls `written` with those that are news.
    pub(super) fn learn(&mut self, from: Rank, payload: &[u8], mut written: impl FnMut(Run)) {
        let (notices, _) = payload.as_chunks();
        self.make_room(notices.len());
        for notice in notices.iter().map(Notice::read) {
            let writer = usize::from(notice.writer);
            if notice.is_last {
                let told = &mut self.told[usize::from(from) * self.ranks + writer];
                *told = (*told).max(notice.interval);
            }
            if notice.interval <= self.time[writer] {
                continue;
            }
            if notice.is_last {
                self.time[writer] = notice.interval;
            }
            self.notices.push_back(notice);
            written(notice.pages);
        }
    }

    fn knows(&self, rank: Rank, notice: &Notice) -> bool {
        notice.interval <= self.told[usize::from(rank) * self.ranks + usize::from(notice.writer)]
    }

    /// The notices that a rank lacks, with their numbers.
    fn lacked_by(&self, rank: Rank) -> impl Iterator<Item = (u64, &Notice)> {
        let from = self.cursors[usize::from(rank)].max(self.base);
        let notices = self.notices.range((from - self.base) as usize..);
        (from..).zip(notices).filter(move |(_, notice)| !self.knows(rank, notice))
    }

    /// Whether that rank lacks more notices than a message of so many bytes holds.
    pub(super) fn lacks_more(&mut self, rank: Rank, bytes: usize) -> bool {
        let next = self.lacked_by(rank).next().map_or(self.end(), |(number, _)| number);
        self.cursors[usize::from(rank)] = next;
        self.lacked_by(rank).nth(bytes / NOTICE_BYTES).is_some()
    }

    /// Writes the next notices that a rank lacks, as many as there is room for, and returns their length.
    pub(super) fn write(&mut self, to: Rank, bytes: &mut [u8]) -> usize {
        let room = bytes.len() / NOTICE_BYTES;
        let (mut at, mut next) = (0, self.end());
        for (number, notice) in self.lacked_by(to) {
            if at == room {
                next = number;
                break;
            }
            notice.write(&mut bytes[at * NOTICE_BYTES..][..NOTICE_BYTES]);
            at += 1;
        }
        self.cursors[usize::from(to)] = next;
        let (written, _) = bytes[..at * NOTICE_BYTES].as_chunks();
        for notice in written.iter().map(Notice::read).filter(|notice| notice.is_last) {
            let told = &mut self.told[usize::from(to) * self.ranks + usize::from(notice.writer)];
            *told = (*told).max(notice.interval);
        }
        at * NOTICE_BYTES
    }

    /// Writes the time of a rank, as it has said last or as it is here; nothing if there is not room for all.
    pub(super) fn write_time(&self, of: Rank, bytes: &mut [u8]) -> usize {
        let row =
            if of == self.me { &self.time[..] } else { &self.claimed[usize::from(of) * self.ranks..][..self.ranks] };
        if bytes.len() < row.len() * TIME_BYTES {
            return 0;
        }
        for (time, bytes) in row.iter().zip(bytes.chunks_exact_mut(TIME_BYTES)) {
            bytes.copy_from_slice(&time.to_le_bytes());
        }
        row.len() * TIME_BYTES
    }

    /// Takes note of the time of rank `of`, which `from` has sent.
    pub(super) fn note_time(&mut self, from: Rank, of: Rank, payload: &[u8]) -> Result<(), Violation> {
        if payload.is_empty() {
            return Ok(());
        }
        let (times, rest) = payload.as_chunks();
        if !rest.is_empty() || times.len() != self.ranks {
            return Err(Violation::Payload);
        }
        let times = || times.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let me = usize::from(self.me);
        if times().nth(me) > Some(self.time[me]) {
            return Err(Violation::Time);
        }
        let row = usize::from(of) * self.ranks..(usize::from(of) + 1) * self.ranks;
        if from == of {
            if times().zip(&self.claimed[row.clone()]).any(|(new, old)| new < *old) {
                return Err(Violation::Time);
            }
            self.claimed[row.clone()].iter_mut().zip(times()).for_each(|(old, new)| *old = new);
        }
        self.told[row].iter_mut().zip(times()).for_each(|(old, new)| *old = (*old).max(new));
        Ok(())
    }

    pub(super) fn arrive(&mut self, barrier: Barrier) {
        let end = self.end();
        let [last, before] = &mut self.arrivals[barrier as usize];
        *before = *last;
        *last = end;
    }

    pub(super) fn pass(&mut self, barrier: Barrier) {
        self.forget(self.arrivals[barrier as usize][1]);
    }

    /// Drops the notices before that number.
    fn forget(&mut self, end: u64) {
        let count = end.saturating_sub(self.base).min(self.notices.len() as u64);
        self.notices.drain(..count as usize);
        self.base += count;
    }

    fn make_room(&mut self, count: usize) {
        if self.notices.len() + count <= self.most {
            return;
        }
        let others = (0..self.ranks).filter(|&rank| rank != usize::from(self.me));
        let sent = others.map(|rank| self.cursors[rank]).min();
        self.forget(sent.unwrap_or(u64::MAX));
        if self.notices.len() + count > self.most {
            self.condense();
        }
    }

    /// Replaces the notices of each rank by one that names all pages, and one of an interval that is not known to its end.
    fn condense(&mut self) {
        self.condensed += 1;
        self.latest.fill(0);
        for notice in &self.notices {
            let latest = &mut self.latest[usize::from(notice.writer)];
            *latest = (*latest).max(notice.interval);
        }
        self.forget(u64::MAX);
        for writer in 0..self.ranks {
            let (latest, time) = (self.latest[writer], self.time[writer]);
            let mut push = |interval, is_last| {
                let notice = Notice { writer: writer as Rank, interval, pages: Run::ALL, is_last };
                self.notices.push_back(notice);
            };
            if latest > 0 && time > 0 {
                push(time, true);
            }
            if latest > time {
                push(latest, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u32, count: u16) -> Run {
        Run { first, count }
    }

    /// Sends all that one log has and another lacks, in messages of so many notices; returns what was news.
    fn tell(from: &mut Log, to: &mut Log, most: usize) -> Vec<Run> {
        let mut news = Vec::new();
        loop {
            let more = from.lacks_more(to.me, most * NOTICE_BYTES);
            let mut bytes = vec![0; most * NOTICE_BYTES];
            let length = from.write(to.me, &mut bytes);
            to.check(&bytes[..length]).unwrap();
            to.learn(from.me, &bytes[..length], |pages| news.push(pages));
            if !more {
                return news;
            }
        }
    }

    fn logs(most: u32) -> [Log; 3] {
        [0, 1, 2].map(|rank| Log::new(rank, 3, 100, 1, most).unwrap())
    }

    #[test]
    fn a_rank_learns_what_it_lacks_once_and_also_what_the_teller_was_told() {
        let [mut a, mut b, mut c] = logs(200);
        a.publish(&[run(1, 2), run(7, 1)]);
        a.publish(&[]);
        assert_eq!(tell(&mut a, &mut b, 1), [run(1, 2), run(7, 1)]);
        assert_eq!(tell(&mut a, &mut b, 1), []);
        b.publish(&[run(9, 1)]);
        assert_eq!(tell(&mut b, &mut c, 5), [run(1, 2), run(7, 1), run(9, 1)]);
        assert_eq!(tell(&mut a, &mut c, 5), [], "what it knows from others is no news");
        assert_eq!(c.time, [1, 1, 0]);
        assert_eq!(tell(&mut b, &mut a, 5), [run(9, 1)], "nobody is told of its own writes");
    }

    #[test]
    fn who_says_its_time_is_told_no_more_than_it_lacks() {
        let [mut a, mut b, mut c] = logs(200);
        a.publish(&[run(1, 1)]);
        tell(&mut a, &mut b, 5);
        tell(&mut a, &mut c, 5);
        let mut bytes = [0; 3 * TIME_BYTES];
        assert_eq!(c.write_time(2, &mut [0; 23]), 0, "no part of a time");
        let length = c.write_time(2, &mut bytes);
        b.note_time(2, 2, &bytes[..length]).unwrap();
        assert!(!b.lacks_more(2, 0), "nothing is lacked");
        c.publish(&[run(3, 1)]);
        let length = c.write_time(2, &mut bytes);
        b.note_time(2, 2, &bytes[..length]).unwrap();
        assert_eq!(b.note_time(2, 2, &[0; 24]), Err(Violation::Time), "it runs backwards");
        let mut of_b = bytes;
        of_b[TIME_BYTES] = 1;
        assert_eq!(b.note_time(2, 2, &of_b), Err(Violation::Time), "it knows what was not published");
        assert_eq!(b.note_time(2, 2, &[0; 16]), Err(Violation::Payload));
    }

    #[test]
    fn a_full_log_forgets_which_pages_were_written_and_not_that_they_were() {
        let [mut a, mut b, mut c] = logs(8);
        for page in 0..8 {
            a.publish(&[run(2 * page, 1)]);
        }
        tell(&mut a, &mut b, 3);
        b.publish(&[run(50, 1)]);
        assert_eq!((b.condensed(), b.len()), (1, 2));
        assert_eq!(tell(&mut b, &mut c, 3), [Run::ALL, run(50, 1)]);
        assert_eq!(c.time, [8, 1, 0]);
    }

    #[test]
    fn notices_are_dropped_when_every_rank_has_passed_the_barrier_behind_them() {
        let [mut a, mut b, mut c] = logs(200);
        for round in 1..9 {
            b.publish(&[run(round, 1)]);
            b.arrive(0);
            tell(&mut b, &mut a, 5);
            c.arrive(0);
            tell(&mut c, &mut a, 5);
            a.arrive(0);
            for other in [&mut b, &mut c] {
                tell(&mut a, other, 5);
                other.pass(0);
                assert!(other.len() <= 2, "{} in round {round}", other.len());
            }
            a.pass(0);
            assert!(a.len() <= 2);
            assert_eq!(c.time, [0, u64::from(round), 0]);
        }
    }

    #[test]
    fn notices_that_no_rank_could_send_are_refused() {
        let [_, b, _] = logs(200);
        let encoded = |writer, interval, pages| {
            let mut bytes = [0; NOTICE_BYTES];
            Notice { writer, interval, pages, is_last: true }.write(&mut bytes);
            bytes
        };
        assert_eq!(b.check(&encoded(0, 1, run(99, 1))), Ok(()));
        for bad in [
            encoded(3, 1, run(0, 1)),
            encoded(0, 0, run(0, 1)),
            encoded(0, 1, run(99, 2)),
            encoded(0, 1, run(u32::MAX, 1)),
            encoded(0, 1, run(1, 0)),
        ] {
            assert_eq!(b.check(&bad), Err(Violation::OutOfRange));
        }
        assert_eq!(b.check(&encoded(1, 1, run(0, 1))), Err(Violation::Time));
        assert_eq!(b.check(&[0; 15]), Err(Violation::Payload));
    }
}
