//! Runs of the machine: two nodes, of which the second misses as often as is wanted (§V.B).

use mapwire_nic::link::LinkConfig;
use mapwire_translation::{CacheConfig, DesignConfig, DynamicHandleConfig};
use mapwire_wire::ImportId;

use crate::computers::{Computers, ComputersError, Do, FIRST_ADDRESS, Missed, OnMiss, Send, Shape};
use crate::hardware::{Cost, Profile, Ps};
use crate::paper::vmmc::bench::at;

/// Bytes of the longest message, and from one place of a message to the next.
pub(in crate::paper) const MOST_BYTES: u64 = 64 << 10;
/// Where each process has what it sends.
const SOURCE: u64 = FIRST_ADDRESS;
const TARGET: u64 = 0x4000_0000;
/// Messages before those that are timed, which find everything cold.
const WARM: u64 = 2;

/// The machine, and what its links do about misses.
#[derive(Clone, Debug)]
pub(in crate::paper) struct Bench {
    pub(in crate::paper) profile: Profile,
    pub(in crate::paper) link: Link,
    pub(in crate::paper) design: DesignConfig,
    /// Packets whose data NICs read at a time, and may have on their way out.
    pub(in crate::paper) loads: u16,
    /// Seed of the times that the host takes for misses; `None` if the profile says them.
    pub(in crate::paper) drawn_by: Option<u64>,
}

/// What sends packets again that were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::paper) enum Link {
    /// A link of another kind than the firmware's.
    Other(OnMiss),
    /// The firmware's own, with acks, timers and a window of its own.
    Firmware,
}

#[derive(Clone, Debug)]
pub(in crate::paper) struct Timed {
    /// From the first timed message to the end of the last.
    pub(in crate::paper) took_ps: Ps,
    pub(in crate::paper) missed: Vec<Missed>,
}

/// Dynamic handles with lines of one entry, so that as many lookups miss as are wanted, whatever the size of messages.
pub(super) fn dynamic_handles() -> DesignConfig {
    let cache =
        CacheConfig::default().with_entries(16 << 10).with_ways(4).with_line_entries(1).with_offset_per_process(false);
    DesignConfig::DynamicHandle(DynamicHandleConfig::default().with_cache(cache))
}

/// Messages, of which some go where nothing was before, so that all of their pages miss.
#[derive(Clone, Copy, Debug)]
struct Messages {
    bytes: u64,
    count: u64,
    miss_percent: u64,
}

impl Messages {
    /// How many of the first `messages` miss.
    const fn misses(self, messages: u64) -> u64 {
        messages * self.miss_percent / 100
    }

    /// Where the message goes: to the first place, or to one of its own.
    const fn offset(self, message: u64) -> u64 {
        let Some(timed) = message.checked_sub(WARM) else { return 0 };
        let before = self.misses(timed);
        if self.misses(timed + 1) > before { (before + 1) * MOST_BYTES } else { 0 }
    }

    const fn all(self) -> u64 {
        WARM + self.count
    }

    /// Where the last eight bytes of a message are, behind its first.
    const fn last(self) -> u64 {
        self.bytes - 8
    }
}

impl Bench {
    fn shape(&self) -> Shape {
        Shape {
            processors: 2,
            design: self.design,
            loads: self.loads,
            send_buffers: (2 * self.loads).max(2),
            links: match self.link {
                // The number of the node and the size of datagrams are set by the computers.
                Link::Firmware => Some(LinkConfig::new(1, 0)),
                Link::Other(_) => None,
            },
            on_miss: match self.link {
                Link::Firmware => OnMiss::Waits,
                Link::Other(on_miss) => on_miss,
            },
            window: (self.profile.of(Cost::LinkWindow) / 4096).max(1) as u16,
            miss_seed: self.drawn_by,
            ..Shape::default()
        }
    }

    /// Two nodes that have imported each other's memory, of which the messages need so much.
    fn pair(&self, messages: Messages) -> Result<(Computers, [ImportId; 2]), ComputersError> {
        let mut computers = Computers::new(self.profile.clone(), self.shape())?;
        let places = 2 + messages.misses(messages.count);
        for node in 0..2 {
            computers.export(at(node), "target", TARGET, places * MOST_BYTES)?;
        }
        let imports = [computers.import(at(0), at(1), "target")?, computers.import(at(1), at(0), "target")?];
        Ok((computers, imports))
    }

    /// Ping-pong: of the requests so many percent miss at the second node; answers never miss.
    pub(in crate::paper) fn ping_pong(
        &self,
        bytes: u64,
        count: u64,
        miss_percent: u64,
    ) -> Result<Timed, ComputersError> {
        let messages = Messages { bytes, count, miss_percent };
        let (mut computers, imports) = self.pair(messages)?;
        for node in 0..2 {
            let program = ping_pong(node, imports[usize::from(node)], messages);
            computers.start(at(node), program);
        }
        computers.run()?;
        Ok(timed(&computers))
    }

    /// Messages one way, one behind the other.
    pub(in crate::paper) fn stream(&self, bytes: u64, count: u64, miss_percent: u64) -> Result<Timed, ComputersError> {
        let messages = Messages { bytes, count, miss_percent };
        let (mut computers, imports) = self.pair(messages)?;
        computers.start(at(0), stream_out(imports[0], messages));
        computers.start(at(1), stream_in(imports[1], messages));
        computers.run()?;
        Ok(timed(&computers))
    }
}

/// The time between the marks 0 and 1.
fn timed(computers: &Computers) -> Timed {
    let marks = computers.marks();
    let of = |number| marks.iter().find(|mark| mark.number == number);
    let took = of(0).zip(of(1)).map(|(from, to)| to.at_ps - from.at_ps);
    let missed = computers.missed().iter();
    let since = of(0).map_or(0, |mark| mark.at_ps);
    Timed { took_ps: took.unwrap_or(0), missed: missed.filter(|it| it.at_ps >= since).copied().collect() }
}

/// A message with its number at its end, from one of two sources: the message before may still be read.
fn send(import: ImportId, messages: Messages, offset: u64, number: u64) -> [Do; 2] {
    let address = SOURCE + number % 2 * MOST_BYTES;
    let send = Send { import, offset, address, bytes: messages.bytes };
    [Do::Write(address + messages.last(), number), Do::Send(send)]
}

/// Until the end of a message is there.
fn watch(messages: Messages, offset: u64, number: u64) -> Do {
    Do::Watch { address: TARGET + offset + messages.last(), least: number }
}

/// One side of a ping-pong: the first sends to where messages go, and answers come to the first place.
fn ping_pong(node: u16, import: ImportId, messages: Messages) -> impl Iterator<Item = Do> {
    let is_first = node == 0;
    let of_message = move |message| {
        let (offset, number) = (messages.offset(message), message + 1);
        let begins = (is_first && message == WARM).then_some(Do::Mark(0));
        let (to, from) = if is_first { (offset, 0) } else { (0, offset) };
        let comes = Some(watch(messages, from, number));
        let (before, after) = if is_first { (begins, comes) } else { (comes, None) };
        before.into_iter().chain(send(import, messages, to, number)).chain([Do::Await(0)]).chain(after)
    };
    (0..messages.all()).flat_map(of_message).chain(is_first.then_some(Do::Mark(1)))
}

/// Sends all messages; each is complete before the next but one. The receiver says when the warm ones are there.
fn stream_out(import: ImportId, messages: Messages) -> impl Iterator<Item = Do> {
    (0..messages.all()).flat_map(move |message| {
        let begins =
            [Do::Watch { address: TARGET, least: 1 }, Do::Mark(0)].into_iter().filter(move |_| message == WARM);
        begins.chain(send(import, messages, messages.offset(message), message + 1)).chain([Do::Await(1)])
    })
}

/// Waits for the warm ones, says so, and waits for the last.
fn stream_in(import: ImportId, messages: Messages) -> impl Iterator<Item = Do> {
    let last = messages.all() - 1;
    let says = Do::Send(Send { import, offset: 0, address: SOURCE, bytes: 8 });
    let comes = watch(messages, messages.offset(last), last + 1);
    [watch(messages, 0, WARM), Do::Write(SOURCE, 1), says, comes, Do::Mark(1)].into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::constants::testbed;
    use super::*;

    fn bench(on_miss: OnMiss) -> Bench {
        Bench { profile: testbed(), link: Link::Other(on_miss), design: dynamic_handles(), loads: 1, drawn_by: Some(1) }
    }

    #[test]
    fn as_many_messages_miss_as_are_wanted_whatever_the_link_does() {
        let timeout = OnMiss::TimesOut(1_000_000_000);
        for on_miss in [timeout, OnMiss::AsksForAll, OnMiss::AsksForOne] {
            for percent in [0, 25, 100] {
                let timed = bench(on_miss).ping_pong(4096, 20, percent).unwrap();
                assert_eq!(timed.missed.len() as u64, percent / 5, "{on_miss:?}");
                for missed in timed.missed {
                    let (filled, taken) = (missed.filled_ps.unwrap(), missed.taken_ps.unwrap());
                    assert!(missed.at_ps < filled && filled < taken, "{missed:?}");
                }
            }
        }
    }

    #[test]
    fn the_firmwares_link_brings_everything_and_is_asked_for_each_miss() {
        let bench = Bench { link: Link::Firmware, ..bench(OnMiss::Waits) };
        let without = bench.stream(MOST_BYTES, 10, 0).unwrap();
        let with = bench.stream(MOST_BYTES, 10, 50).unwrap();
        assert!(with.took_ps > without.took_ps + 80 * 50_000_000);
        let pings = bench.ping_pong(4096, 20, 100).unwrap();
        assert!(pings.took_ps > bench.ping_pong(4096, 20, 0).unwrap().took_ps);
    }

    #[test]
    fn nothing_that_is_dropped_in_the_middle_of_a_stream_is_lost() {
        let timeout = OnMiss::TimesOut(1_000_000_000);
        for on_miss in [timeout, OnMiss::AsksForAll, OnMiss::AsksForOne] {
            let timed = bench(on_miss).stream(MOST_BYTES, 10, 50).unwrap();
            let without = bench(on_miss).stream(MOST_BYTES, 10, 0).unwrap();
            assert!(timed.took_ps > without.took_ps);
            assert_eq!(timed.missed.len(), 5 * 16, "{on_miss:?}");
            assert_eq!(without.missed.len(), 0);
        }
    }
}
