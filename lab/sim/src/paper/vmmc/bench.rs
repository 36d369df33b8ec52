//! Runs of the machine: two computers whose programs send to each other.

use mapwire_wire::{Endpoint, NodeId, ProcessId};

use crate::computers::{Computers, ComputersError, Do, FIRST_ADDRESS, Moment, Send, Shape};
use crate::hardware::{Profile, Ps};

/// Where each process has what it sends, and what it receives.
const SOURCE: u64 = FIRST_ADDRESS;
const TARGET: u64 = FIRST_ADDRESS + (32 << 20);

pub(in crate::paper) const fn at(node: u16) -> Endpoint {
    Endpoint {
        node: NodeId(node),
        process: ProcessId(0),
    }
}

/// A machine and what its computers are like.
#[derive(Clone, Debug)]
pub(in crate::paper) struct Bench {
    pub(in crate::paper) profile: Profile,
    pub(in crate::paper) shape: Shape,
}

/// Two computers that have imported each other's memory.
pub(in crate::paper) struct Pair {
    pub(in crate::paper) computers: Computers,
    imports: [mapwire_wire::ImportId; 2],
    length: u64,
}

impl Bench {
    pub(in crate::paper) fn pair(&self, length: u64) -> Result<Pair, ComputersError> {
        let mut computers = Computers::new(self.profile.clone(), self.shape.clone())?;
        let bytes = length.next_multiple_of(8) + 8;
        for node in 0..2 {
            computers.export(at(node), "target", TARGET, bytes)?;
        }
        let imports = [
            computers.import(at(0), at(1), "target")?,
            computers.import(at(1), at(0), "target")?,
        ];
        Ok(Pair {
            computers,
            imports,
            length,
        })
    }

    /// Ping-pong (VMMC §5.3): how long a message takes one way, once translations are there.
    pub(in crate::paper) fn one_way(&self, length: u64) -> Result<Ps, ComputersError> {
        let mut pair = self.pair(length)?;
        let rounds = 4;
        for node in 0..2 {
            let program = pair.ping_pong(node, rounds);
            pair.computers.start(at(node), program);
        }
        pair.computers.run()?;
        let marks = pair.computers.marks();
        let of_round = |round| {
            marks
                .iter()
                .find(|mark| mark.of == at(0) && mark.number == round)
        };
        let (from, to) = (of_round(1), of_round(rounds));
        let took = from.zip(to).map(|(from, to)| to.at_ps - from.at_ps);
        Ok(took.unwrap_or(0) / (2 * (rounds - 1)))
    }
}

impl Pair {
    /// The last eight bytes of a message: what its receiver watches, as data of a message come in order.
    fn last(length: u64, round: u64) -> (u64, [u8; 8]) {
        let at = length.max(8) - 8;
        // Of a word only the first bytes travel.
        let value = match length {
            0..8 => round,
            _ => round << 32,
        };
        (at, value.to_le_bytes())
    }

    /// The program of one side: node 0 begins, and marks the begin of each round.
    fn ping_pong(&self, node: u16, rounds: u64) -> impl FnMut(&mut Moment<'_>) -> Do + 'static {
        let (import, length) = (self.imports[usize::from(node)], self.length);
        let mut round = 0;
        let mut phase = if node == 0 { 0 } else { 2 };
        move |moment| loop {
            phase += 1;
            match phase {
                // Sends, and waits until the source may be used again.
                1 => {
                    if node == 0 {
                        moment.mark(round);
                        round += 1;
                    }
                    if round > rounds {
                        return Do::End;
                    }
                    let (offset, bytes) = Self::last(length, round);
                    moment.write(SOURCE + offset, &bytes);
                    return Do::Send(Send::new(import, 0, SOURCE, length));
                }
                2 => {
                    if let Some(word) = moment.posted() {
                        return Do::Await(word);
                    }
                }
                // Waits for the other's.
                3 => {
                    if node == 1 {
                        round += 1;
                        if round > rounds {
                            return Do::End;
                        }
                    }
                    let (offset, bytes) = Self::last(length, round);
                    return Do::Watch {
                        address: TARGET + offset,
                        least: u64::from_le_bytes(bytes),
                    };
                }
                _ => phase = 0,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_takes_what_the_paper_says_one_way_within_a_tenth() {
        let bench = Bench {
            profile: super::super::constants::machine(),
            shape: Shape::default(),
        };
        let took_ps = bench.one_way(4).unwrap();
        assert!(took_ps.abs_diff(9_800_000) < 980_000, "{took_ps}");
        assert_eq!(bench.one_way(4).unwrap(), took_ps, "a run repeats itself");
    }
}
