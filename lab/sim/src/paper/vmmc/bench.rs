//! Runs of a machine: two computers whose programs send to each other (VMMC §5.3, §5.4).

use mapwire_wire::{Endpoint, ImportId, NodeId, ProcessId};

use crate::computers::{Computers, ComputersError, Do, FIRST_ADDRESS, Mark, Send, Shape};
use crate::hardware::{Profile, Ps, Span, US};

/// Where each process has what it sends, what it receives, and what it copies that to: apart also in a cache of 8 K pages.
const SOURCE: u64 = FIRST_ADDRESS;
const TARGET: u64 = FIRST_ADDRESS + (40 << 20);
const COPY: u64 = FIRST_ADDRESS + (80 << 20);
/// Rounds of a run; the first finds no translation and is not counted.
const ROUNDS: u64 = 4;
/// Rounds of a run whose sources change; the first two are not counted.
const ROUNDS_OF_SOURCES: u64 = 6;

pub(in crate::paper) const fn at(node: u16) -> Endpoint {
    Endpoint { node: NodeId(node), process: ProcessId(0) }
}

/// A machine and what its computers are like.
#[derive(Clone, Debug)]
pub(in crate::paper) struct Bench {
    pub(in crate::paper) profile: Profile,
    pub(in crate::paper) shape: Shape,
}

/// What a program sends from, round after round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::paper) enum Sources {
    Same,
    /// Two pieces of memory, in turn.
    InTurn,
    /// Memory that was not used before.
    Fresh,
}

impl Sources {
    /// Where a message of a round lies.
    const fn address(self, bytes: u64, round: u64) -> u64 {
        // One interrupt fills no more than 32 pages.
        let step = bytes.next_multiple_of(32 << 12);
        match self {
            Self::Same => SOURCE,
            Self::InTurn => SOURCE + round % 2 * step,
            Self::Fresh => SOURCE + round * step,
        }
    }
}

/// How a remote procedure call goes (VMMC §5.4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rpc {
    /// Bytes of a call, and of its answer.
    pub(super) call_bytes: u64,
    pub(super) answer_bytes: u64,
    /// What the library takes on both sides together.
    pub(super) software_ps: Ps,
    /// Messages of a word that follow each message: how far the sender has written, and how far the receiver has read.
    pub(super) controls: u8,
}

impl Bench {
    /// Two computers that have imported each other's memory.
    fn pair(&self, bytes: u64) -> Result<(Computers, [ImportId; 2]), ComputersError> {
        let mut computers = Computers::new(self.profile.clone(), self.shape.clone())?;
        for node in 0..2 {
            computers.export(at(node), "target", TARGET, bytes.next_multiple_of(8) + 64)?;
        }
        let imports = [computers.import(at(0), at(1), "target")?, computers.import(at(1), at(0), "target")?];
        Ok((computers, imports))
    }

    /// Ping-pong: how long a message takes one way, once translations are there.
    pub(in crate::paper) fn one_way(&self, bytes: u64) -> Result<Ps, ComputersError> {
        let (mut computers, imports) = self.pair(bytes)?;
        computers.start(at(0), exchange(imports[0], bytes, true));
        computers.start(at(1), exchange(imports[1], bytes, false));
        computers.run()?;
        Ok(per_round(computers.marks()) / 2)
    }

    /// The same of messages that come from changing memory, once the first two rounds are over. The rounds are few, so that sources
    /// and targets lie apart.
    pub(in crate::paper) fn one_way_from(&self, bytes: u64, sources: Sources) -> Result<Ps, ComputersError> {
        let (mut computers, imports) = self.pair(bytes)?;
        let rounds = ROUNDS_OF_SOURCES;
        for (node, import) in (0..).zip(imports) {
            let program = exchange_from(import, bytes, node == 0, (sources, rounds));
            computers.start(at(node), program);
        }
        computers.run()?;
        let marks = computers.marks();
        Ok((mark(marks, rounds) - mark(marks, 2)) / (2 * (rounds - 2)))
    }

    /// What both computers do while a message goes one way.
    pub(super) fn one_way_spans(&self, bytes: u64) -> Result<Vec<Span>, ComputersError> {
        let (mut computers, imports) = self.pair(bytes)?;
        computers.start(at(0), exchange(imports[0], bytes, true));
        computers.start(at(1), exchange(imports[1], bytes, false));
        computers.timeline.begin();
        computers.run()?;
        let from_ps = mark(computers.marks(), ROUNDS - 1);
        let to_ps = from_ps + per_round(computers.marks()) / 2;
        let spans = computers.timeline.take().into_iter();
        let shifted = spans.filter(|span| span.to_ps > from_ps && span.from_ps < to_ps).map(|span| Span {
            from_ps: span.from_ps.saturating_sub(from_ps),
            to_ps: span.to_ps - from_ps,
            ..span
        });
        Ok(shifted.collect())
    }

    /// Both send at the same time, and go on when the other's message is there: how long that takes.
    pub(super) fn both_ways(&self, bytes: u64) -> Result<Ps, ComputersError> {
        let (mut computers, imports) = self.pair(bytes)?;
        for node in 0..2 {
            computers.start(at(node), exchange(imports[usize::from(node)], bytes, true));
        }
        computers.run()?;
        Ok(per_round(computers.marks()))
    }

    /// One-way traffic: how long a send takes its program.
    pub(super) fn overhead(&self, bytes: u64, is_synchronous: bool) -> Result<Ps, ComputersError> {
        let (mut computers, imports) = self.pair(bytes)?;
        let import = imports[0];
        computers.start(
            at(0),
            (0..2).flat_map(move |round| {
                let send = [Do::Mark(2 * round), Do::Send(Send { import, offset: 0, address: SOURCE, bytes })];
                let complete = is_synchronous.then_some(Do::Await(0));
                // Until all is quiet.
                let rest = [Do::Mark(2 * round + 1), Do::Compute(10_000 * US, "computes")];
                send.into_iter().chain(complete).chain(rest)
            }),
        );
        computers.run()?;
        let marks = computers.marks();
        Ok(mark(marks, 3) - mark(marks, 2))
    }

    /// How long a remote procedure call takes.
    pub(super) fn call(&self, rpc: Rpc) -> Result<Ps, ComputersError> {
        let bytes = rpc.call_bytes.max(rpc.answer_bytes);
        let (mut computers, imports) = self.pair(bytes)?;
        computers.start(at(0), speaks(imports[0], bytes, rpc, true));
        computers.start(at(1), speaks(imports[1], bytes, rpc, false));
        computers.run()?;
        Ok(per_round(computers.marks()))
    }
}

/// When the program of node 0 made a mark.
fn mark(marks: &[Mark], number: u64) -> Ps {
    let mut marks = marks.iter();
    marks.find(|mark| mark.of == at(0) && mark.number == number).map_or(0, |mark| mark.at_ps)
}

/// How long a round took, but the first.
fn per_round(marks: &[Mark]) -> Ps {
    (mark(marks, ROUNDS) - mark(marks, 1)) / (ROUNDS - 1)
}

/// The last eight bytes of a message, which its receiver watches, as data of a message come in order.
fn last(bytes: u64, round: u64) -> (u64, u64) {
    // Of a shorter message only the first bytes travel.
    match bytes {
        0..8 => (0, round),
        _ => (bytes - 8, round << 32),
    }
}

fn watch(bytes: u64, round: u64) -> Do {
    let (at, least) = last(bytes, round);
    Do::Watch { address: TARGET + at, least }
}

/// A message of a round, with its number in its last bytes.
fn message(import: ImportId, address: u64, bytes: u64, round: u64) -> [Do; 2] {
    let (at, value) = last(bytes, round);
    [Do::Write(address + at, value), Do::Send(Send { import, offset: 0, address, bytes })]
}

/// Sends, synchronously, and waits for the other's message, or the other way round. Node 0 marks the begin of each round.
fn exchange(import: ImportId, bytes: u64, begins: bool) -> impl Iterator<Item = Do> {
    exchange_from(import, bytes, begins, (Sources::Same, ROUNDS))
}

/// The same of messages from such sources, in so many rounds.
fn exchange_from(
    import: ImportId,
    bytes: u64,
    begins: bool,
    (sources, rounds): (Sources, u64),
) -> impl Iterator<Item = Do> {
    let of_round = move |round| {
        let watch = Some(watch(bytes, round));
        let (before, after) = if begins { (None, watch) } else { (watch, None) };
        let sends = message(import, sources.address(bytes, round), bytes, round);
        [Do::Mark(round - 1)].into_iter().chain(before).chain(sends).chain([Do::Await(0)]).chain(after)
    };
    (1..=rounds).flat_map(of_round).chain([Do::Mark(rounds)])
}

/// One side of remote procedure calls: each message is copied out when it has come. A word behind the message tells how far it is
/// written, if such are sent, and another how far it has been read.
fn speaks(import: ImportId, bytes: u64, rpc: Rpc, is_client: bool) -> impl Iterator<Item = Do> {
    let (out_bytes, in_bytes) =
        if is_client { (rpc.call_bytes, rpc.answer_bytes) } else { (rpc.answer_bytes, rpc.call_bytes) };
    let written = bytes.next_multiple_of(8);
    let control = move |offset| Do::Send(Send { import, offset, address: SOURCE + written, bytes: 8 });
    // A quarter of the library's time lies before each message, and behind it.
    let library = Do::Compute(rpc.software_ps / 4, "library");
    let of_round = move |round| {
        let says = [Do::Write(SOURCE + written, round), control(written)];
        let says = says.into_iter().filter(move |_| rpc.controls > 0);
        let sends = [library].into_iter().chain(message(import, SOURCE, out_bytes, round)).chain(says);
        let comes = match rpc.controls {
            0 => watch(in_bytes, round),
            _ => Do::Watch { address: TARGET + written, least: round },
        };
        let read = (rpc.controls > 1).then_some(control(written + 8));
        let hears = [comes, Do::Copy { from: TARGET, to: COPY, bytes: in_bytes }].into_iter().chain(read);
        let hears = hears.chain([library]);
        let (first, then): (Vec<Do>, Vec<Do>) = match is_client {
            true => ([Do::Mark(round - 1)].into_iter().chain(sends).collect(), hears.collect()),
            false => (hears.collect(), sends.collect()),
        };
        first.into_iter().chain(then)
    };
    (1..=ROUNDS).flat_map(of_round).chain([Do::Mark(ROUNDS)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::vmmc::machine;

    #[test]
    fn a_word_takes_what_the_paper_says_one_way_within_a_tenth() {
        let bench = Bench { profile: machine(), shape: Shape::default() };
        let took_ps = bench.one_way(4).unwrap();
        assert!(took_ps.abs_diff(9_800_000) < 980_000, "{took_ps}");
        assert_eq!(bench.one_way(4).unwrap(), took_ps, "a run repeats itself");
    }
}
