//! What a process sends to a node arrives once and in order, byte for byte, with its signal and notification last.

use std::collections::VecDeque;

use mapwire_wire::{Signal, SignalOp};

use super::{Violation, violation};
use crate::random::mix;

/// Writes the bytes that a seed names, from number `first` on.
pub(crate) fn pattern(seed: u64, first: u64, into: &mut [u8]) {
    let mut at = first;
    let mut rest = into;
    while !rest.is_empty() {
        let word = mix(seed ^ (at / 8)).to_le_bytes();
        let within = (at % 8) as usize;
        let length = rest.len().min(8 - within);
        let (now, later) = rest.split_at_mut(length);
        now.copy_from_slice(&word[within..within + length]);
        (at, rest) = (at + length as u64, later);
    }
}

/// The first byte that is not what [`pattern`] writes.
pub(crate) fn differs(seed: u64, first: u64, bytes: &[u8]) -> Option<usize> {
    let mut expected = [0; 256];
    for (chunk, start) in bytes.chunks(256).zip((0..).step_by(256)) {
        let expected = &mut expected[..chunk.len()];
        pattern(seed, first + start as u64, expected);
        if let Some(at) = (0..chunk.len()).find(|&at| chunk[at] != expected[at]) {
            return Some(start + at);
        }
    }
    None
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Its number in the stream.
    pub(crate) number: u64,
    /// The export, by the workload's number.
    pub(crate) instance: usize,
    /// First byte in the export.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) arrived: u64,
    pub(crate) signal: Option<Signal>,
    pub(crate) notify: bool,
    pub(crate) seed: u64,
    pub(crate) is_given_up: bool,
    /// How often its sender had restarted.
    pub(crate) incarnation: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    pub(crate) instance: usize,
    /// First byte in the export.
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// Where in the export a signal was written, what and how.
    pub(crate) signal: Option<(u64, u64, SignalOp)>,
}

/// All that one process sends to one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    waiting: VecDeque<Sent>,
    pub(crate) sent: u64,
    /// How often the sender of what has arrived had restarted.
    arrived_of: u32,
}

impl Stream {
    /// The process has submitted a message; gives its number.
    pub(crate) fn submit(&mut self, sent: Sent) {
        debug_assert_eq!(sent.number, self.sent);
        self.sent += 1;
        self.waiting.push_back(sent);
    }

    /// The process is gone: what it had not sent never comes.
    pub(crate) fn give_up(&mut self) {
        for sent in &mut self.waiting {
            sent.is_given_up = true;
        }
    }

    /// The node has learnt that the process's node has started anew: nothing of the former self that it knew may arrive any more. Whether
    /// anything was under way.
    pub(crate) fn restart(&mut self) -> bool {
        let first = self.waiting.front().map_or(0, |sent| sent.incarnation);
        let known = self.arrived_of.max(first);
        let before = self.waiting.len();
        self.waiting.retain(|sent| !sent.is_given_up || sent.incarnation > known);
        self.waiting.len() < before
    }

    /// Bytes have arrived. Messages that `may_fail` allows to be lost may be missing before them, and parts of such a message too where
    /// the transport `may_lose` packets: those that are not acked when it fails are not sent again. Gives the message if this was its
    /// end.
    pub(crate) fn arrive(
        &mut self,
        arrived: Arrived<'_>,
        may_lose: bool,
        may_fail: impl Fn(&Sent) -> bool,
    ) -> Result<Option<Sent>, Violation> {
        let wrong = |text| Err(violation("delivery", text));
        let Arrived { instance, offset, bytes, signal } = arrived;
        let length = bytes.len() as u64;
        // What a message lacks before bytes that have arrived; none if they are not its own.
        let gap_of = |sent: &Sent| {
            let gap = offset.checked_sub(sent.offset + sent.arrived)?;
            let is_own = sent.instance == instance
                && gap + length <= sent.length - sent.arrived
                && differs(sent.seed, sent.arrived + gap, bytes).is_none();
            is_own.then_some(gap)
        };
        let find = |is_due: &dyn Fn(&Sent) -> bool| {
            let found = self.waiting.iter().position(|sent| is_due(sent) || !may_fail(sent))?;
            is_due(&self.waiting[found]).then_some(found)
        };
        // A byte of a gap may be that of a later message by chance.
        let due = find(&|sent| gap_of(sent) == Some(0)).or_else(|| {
            let is_due = |sent: &Sent| gap_of(sent).is_some() && may_fail(sent);
            find(&is_due).filter(|_| may_lose)
        });
        let Some(due) = due else {
            let first = self.waiting.iter().find(|sent| !may_fail(sent));
            let Some(sent) = first else {
                return wrong(format!("{length} bytes at offset {offset} arrived, and nothing is under way"));
            };
            let differs = differs(sent.seed, sent.arrived, bytes);
            return wrong(format!(
                "{length} bytes at offset {offset} arrived; due was message {} of {} bytes at offset {}, of which {} have \
                 arrived (first byte that differs: {differs:?})",
                sent.number, sent.length, sent.offset, sent.arrived
            ));
        };
        let gap = gap_of(&self.waiting[due]).unwrap_or_default();
        self.waiting.drain(..due);
        let Some(sent) = self.waiting.front_mut() else { return Ok(None) };
        self.arrived_of = sent.incarnation;
        sent.arrived += gap;
        sent.arrived += length;
        let is_whole = sent.arrived == sent.length;
        let due = sent.signal.filter(|_| is_whole).map(|signal| (signal.offset, signal.value, signal.op));
        if signal != due {
            return wrong(format!(
                "message {} of {} bytes, of which {} have arrived, has signal {signal:?}; due is {due:?}",
                sent.number, sent.length, sent.arrived
            ));
        }
        Ok(if is_whole { self.waiting.pop_front() } else { None })
    }

    /// The first message before number `before` that has not arrived and may not be lost.
    pub(crate) fn missing(&self, before: u64, may_fail: impl Fn(&Sent) -> bool) -> Option<&Sent> {
        let mut waiting = self.waiting.iter().take_while(|sent| sent.number < before);
        waiting.find(|sent| !may_fail(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        let mut stream = Stream::default();
        for number in 0..2 {
            stream.submit(Sent {
                number,
                instance: 0,
                offset: 100 * number,
                length: 20,
                arrived: 0,
                signal: None,
                notify: false,
                seed: number,
                is_given_up: false,
                incarnation: 0,
            });
        }
        stream
    }

    fn arrive(stream: &mut Stream, number: u64, from: u64, may_fail: bool) -> bool {
        let mut bytes = [0; 10];
        pattern(number, from, &mut bytes);
        let arrived = Arrived { instance: 0, offset: 100 * number + from, bytes: &bytes, signal: None };
        stream.arrive(arrived, false, |_| may_fail).is_ok()
    }

    #[test]
    fn messages_that_arrive_once_and_in_order_are_fine() {
        let mut stream = stream();
        for (number, from) in [(0, 0), (0, 10), (1, 0), (1, 10)] {
            assert!(arrive(&mut stream, number, from, false));
        }
        assert!(stream.missing(2, |_| false).is_none());
    }

    #[test]
    fn nothing_of_a_former_self_arrives_once_its_restart_is_known() {
        let mut stream = stream();
        stream.give_up();
        stream.submit(Sent {
            incarnation: 1,
            number: 2,
            is_given_up: false,
            offset: 200,
            seed: 2,
            ..stream.waiting[0].clone()
        });
        let mut unknown = stream.clone();
        assert!(arrive(&mut unknown, 0, 0, true), "it may be late");
        assert!(stream.restart() && !stream.restart());
        assert!(!arrive(&mut stream, 0, 0, true));
        assert!(arrive(&mut stream, 2, 0, false));
    }

    #[test]
    fn what_arrives_twice_early_or_changed_is_found() {
        let mut twice = stream();
        assert!(arrive(&mut twice, 0, 0, false) && !arrive(&mut twice, 0, 0, false));
        let mut early = stream();
        assert!(!arrive(&mut early, 1, 0, false));
        assert!(arrive(&mut stream(), 1, 0, true), "what may fail may be missing");
        let bytes = [0; 10];
        let arrived = Arrived { instance: 0, offset: 0, bytes: &bytes, signal: None };
        assert!(stream().arrive(arrived, false, |_| false).is_err());
        assert_eq!(stream().missing(1, |_| false).map(|sent| sent.number), Some(0));
    }
}
