//! The figures of one rank at one time.

use std::sync::LazyLock;

use mapwire_driver::metrics::{Metric, metrics};
use mapwire_transport::board::{Board, RankState};
use serde_json::{Map, Value, json};

/// The figures, in the order in which ranks publish them.
pub(crate) static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(metrics);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) rank: u32,
    pub(crate) host: u32,
    /// 0 before it joined.
    pub(crate) pid: u32,
    pub(crate) state: RankState,
    /// When it published, by the clock of its host; 0 if it has not.
    pub(crate) at_ns: u64,
    /// As many as there are metrics, all 0 if it has not published.
    pub(crate) words: Vec<u64>,
}

impl Sample {
    /// A rank that nothing is known of.
    pub(crate) fn absent(rank: u32, host: u32) -> Self {
        Self { rank, host, pid: 0, state: RankState::Absent, at_ns: 0, words: vec![0; METRICS.len()] }
    }

    /// The sample of a rank by its host's board.
    pub(crate) fn of(board: &Board, rank: u32) -> Self {
        let mut sample =
            Self { pid: board.pid(rank), state: board.state(rank), ..Self::absent(rank, board.host(rank)) };
        if let Some(figures) = board.figures(rank) {
            sample.publish(figures.at_ns, &figures.words);
        }
        sample
    }

    pub(crate) fn publish(&mut self, at_ns: u64, words: &[u64]) {
        self.at_ns = at_ns;
        for (word, published) in self.words.iter_mut().zip(words) {
            *word = *published;
        }
    }

    /// The figure of this name, summed over its labels.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let named = METRICS.iter().zip(&self.words).filter(|(metric, _)| metric.name == name);
        debug_assert!(named.clone().next().is_some(), "unknown figure {name}");
        named.fold(0, |sum: u64, (_, word)| sum.wrapping_add(*word))
    }

    pub(crate) fn json(&self) -> Value {
        let mut figures = Map::new();
        for (metric, word) in METRICS.iter().zip(&self.words) {
            match metric.label {
                None => {
                    figures.insert(metric.name.to_owned(), json!(word));
                }
                Some((_, value)) => {
                    let parts = figures.entry(metric.name).or_insert_with(|| json!({}));
                    parts[value] = json!(word);
                }
            }
        }
        json!({
            "kind": "rank",
            "rank": self.rank,
            "host": self.host,
            "pid": self.pid,
            "state": self.state.to_string(),
            "at_ns": self.at_ns,
            "figures": figures,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_one_name_are_summed_and_told_apart_for_programs() {
        let mut sample = Sample::absent(3, 1);
        let words: Vec<u64> = (0..METRICS.len() as u64).collect();
        sample.publish(7, &words);
        let of = |name| METRICS.iter().position(|it| it.name == name).unwrap() as u64;
        assert_eq!(sample.figure("bytes_sent"), of("bytes_sent"));
        let first = of("datagrams_rejected");
        let count = METRICS.len() as u64 - first;
        assert_eq!(sample.figure("datagrams_rejected"), (first..first + count).sum::<u64>());
        let json = sample.json();
        assert_eq!(json["figures"]["bytes_sent"], of("bytes_sent"));
        assert_eq!(json["figures"]["datagrams_rejected"]["malformed"], first);
        assert_eq!((&json["rank"], &json["state"]), (&json!(3), &json!("absent")));
    }
}
