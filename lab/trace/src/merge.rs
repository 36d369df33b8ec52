//! Several streams of records, each in order of time, as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use mapwire_wire::TraceRecord;

use crate::error::ReadError;
use crate::raw::{RawError, RawReader};
use crate::reader::Records;

/// How far a stream may step back in time: threads of a rank take their time before their turn to write, so a thread that lost its
/// processor in between writes an older time. A step of more is an error: a clock was set, or the file is damaged.
pub const STEP_BACK_NS: u64 = 1_000_000_000;

/// A stream of valid records with a name.
pub trait RecordStream: Iterator<Item = Result<TraceRecord, Self::Error>> {
    type Error;

    fn file(&self) -> &str;
}

impl<R: Read> RecordStream for RawReader<R> {
    type Error = RawError;

    fn file(&self) -> &str {
        Self::file(self)
    }
}

impl<R: Read> RecordStream for Records<R> {
    type Error = ReadError;

    fn file(&self) -> &str {
        self.reader().file()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MergeError<E> {
    #[error(transparent)]
    Stream(E),
    /// One of them steps back in time by more than [`STEP_BACK_NS`].
    #[error(
        "record {record} of {file} is of {time_ns} ns, the one before it of {last_ns} ns: {} ms earlier, which is more than threads that \
         wait for their turn explain", (last_ns - time_ns) / 1_000_000
    )]
    StepBack { file: String, record: u64, time_ns: u64, last_ns: u64 },
}

#[derive(Debug)]
struct Source<S> {
    stream: S,
    next: Option<TraceRecord>,
    records: u64,
    last_ns: u64,
}

/// Merges streams into one that is in order of time; records of equal times come in the order of the streams, and those of one
/// stream in its own. It holds one record of each stream.
///
/// A record that is up to a second older than the one before it in its stream gets that one's time
/// ([`clamped`](Self::clamped) counts them): the order in which a rank wrote is the order of the trace. One that is older still is an error.
#[derive(Debug)]
pub struct Merge<S> {
    sources: Vec<Source<S>>,
    /// (time, source) of every source that has a next record.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    clamped: u64,
    started: bool,
    failed: bool,
}

impl<S: RecordStream> Merge<S> {
    pub fn new(streams: Vec<S>) -> Self {
        let source = |stream| Source { stream, next: None, records: 0, last_ns: 0 };
        Self {
            sources: streams.into_iter().map(source).collect(),
            order: BinaryHeap::new(),
            clamped: 0,
            started: false,
            failed: false,
        }
    }

    /// Records that got the time of the one before them.
    pub fn clamped(&self) -> u64 {
        self.clamped
    }

    pub fn streams(&self) -> impl Iterator<Item = &S> {
        self.sources.iter().map(|source| &source.stream)
    }

    /// Takes the next record of a source into `next`, and puts it in order.
    fn advance(&mut self, index: usize) -> Result<(), MergeError<S::Error>> {
        let source = &mut self.sources[index];
        let Some(next) = source.stream.next() else {
            source.next = None;
            return Ok(());
        };
        let mut record = next.map_err(MergeError::Stream)?;
        let (time_ns, last_ns) = (record.time_ns.get(), source.last_ns);
        if time_ns < last_ns {
            if last_ns - time_ns > STEP_BACK_NS {
                return Err(MergeError::StepBack {
                    file: source.stream.file().to_owned(),
                    record: source.records,
                    time_ns,
                    last_ns,
                });
            }
            record.time_ns = last_ns.into();
            self.clamped += 1;
        }
        source.last_ns = record.time_ns.get();
        source.records += 1;
        source.next = Some(record);
        self.order.push(Reverse((source.last_ns, index)));
        Ok(())
    }

    fn try_next(&mut self) -> Result<Option<TraceRecord>, MergeError<S::Error>> {
        if !self.started {
            self.started = true;
            for index in 0..self.sources.len() {
                self.advance(index)?;
            }
        }
        let Some(Reverse((_, index))) = self.order.pop() else { return Ok(None) };
        let record = self.sources[index].next.take();
        self.advance(index)?;
        Ok(record)
    }
}

impl<S: RecordStream> Iterator for Merge<S> {
    type Item = Result<TraceRecord, MergeError<S::Error>>;

    /// The next record; after an error there is none.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.try_next().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_wire::TraceOp;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn record(time_ns: u64, node: u16, number: u64) -> TraceRecord {
        TraceRecord {
            time_ns: time_ns.into(),
            address: number.into(),
            bytes: 8.into(),
            node: node.into(),
            process: 0.into(),
            op: TraceOp::Send as u8,
            flags: 0,
            reserved: 0.into(),
        }
    }

    fn merged(times: &[Vec<u64>]) -> (Vec<TraceRecord>, Option<String>, u64) {
        let files: Vec<Vec<u8>> = (0..)
            .zip(times)
            .map(|(node, times)| {
                let records = (0..).zip(times).map(|(i, t)| record(*t, node, i));
                records.flat_map(|r| r.as_bytes().to_vec()).collect()
            })
            .collect();
        let readers = (0..).zip(&files).map(|(i, f)| RawReader::new(&f[..], format!("rank-{i}")));
        let mut merge = Merge::new(readers.collect());
        let (mut records, mut error) = (Vec::new(), None);
        for next in &mut merge {
            match next {
                Ok(record) => records.push(record),
                Err(found) => error = Some(found.to_string()),
            }
        }
        (records, error, merge.clamped())
    }

    #[test]
    fn equal_times_come_in_the_order_of_the_streams() {
        let (records, error, clamped) = merged(&[vec![5, 5], vec![1, 5], vec![], vec![5]]);
        let order: Vec<_> = records.iter().map(|r| (r.node.get(), r.address.get())).collect();
        assert_eq!(order, [(1, 0), (0, 0), (0, 1), (1, 1), (3, 0)]);
        assert_eq!((error, clamped), (None, 0));
    }

    #[test]
    fn a_small_step_back_is_clamped_and_counted_and_a_great_one_is_an_error() {
        let second = STEP_BACK_NS;
        let (records, error, clamped) = merged(&[vec![second + 7, 7, second + 8]]);
        let times: Vec<_> = records.iter().map(|r| r.time_ns.get()).collect();
        assert_eq!((times, clamped), (vec![second + 7, second + 7, second + 8], 1));
        assert_eq!(error, None);
        let (records, error, _) = merged(&[vec![1], vec![second + 8, 7]]);
        assert_eq!(records.len(), 1, "what is sure to come first came");
        let error = error.unwrap();
        assert!(error.contains("record 1 of rank-1 is of 7 ns"), "{error}");
    }

    proptest! {
        #[test]
        fn a_merge_is_the_stable_sort_of_all_streams(
            steps in prop::collection::vec(prop::collection::vec(0..5_u64, 0..50), 0..6),
        ) {
            let times: Vec<Vec<u64>> = steps
                .iter()
                .map(|s| s.iter().scan(0, |now, step| { *now += step; Some(*now) }).collect())
                .collect();
            let mut expected: Vec<TraceRecord> = (0..)
                .zip(&times)
                .flat_map(|(node, t)| (0..).zip(t).map(move |(i, t)| record(*t, node, i)))
                .collect();
            expected.sort_by_key(|r| r.time_ns.get());
            let (records, error, clamped) = merged(&times);
            prop_assert_eq!(records, expected);
            prop_assert_eq!((error, clamped), (None, 0));
        }
    }
}
