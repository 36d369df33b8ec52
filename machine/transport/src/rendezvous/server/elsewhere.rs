//! Ranks of other hosts, which have brokers of their own. What the brokers of a job tell each other are its [`Word`]s; who
//! carries them sees to their order.

use std::time::Instant;

use super::super::message::{Card, Secret};
use super::{Broker, MakeChannel};
use crate::board::{BoardError, RankState};

/// What brokers tell each other about their own ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// How ranks of other hosts reach `rank`.
    Card { rank: u32, card: Card },
    /// What has become of `rank`.
    State { rank: u32, state: RankState },
}

impl Word {
    #[must_use]
    pub fn rank(&self) -> u32 {
        match self {
            Self::Card { rank, .. } | Self::State { rank, .. } => *rank,
        }
    }
}

/// A word about a rank that its sender does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a word of rank {0}, which is on this host or not in the job")]
pub struct NotElsewhere(pub u32);

impl Broker {
    /// The broker of the ranks of one host, `here`, in a job with a rank on each of `hosts`. All brokers of the job have the same
    /// secret. Give the words of [`poll_word`](Self::poll_word) to the others' [`handle_word`](Self::handle_word), in order.
    ///
    /// # Errors
    /// As [`Broker::new`].
    pub fn of_host(hosts: &[u32], here: u32, secret: Secret, make_channel: MakeChannel) -> Result<Self, BoardError> {
        let mut broker = Self::with_secret(hosts, secret, make_channel)?;
        broker.here = Some(here);
        Ok(broker)
    }

    /// Whether another broker serves `rank`.
    pub(super) fn is_elsewhere(&self, rank: u32) -> bool {
        self.here.is_some_and(|here| self.board.host(rank) != here)
    }

    /// The next word for the brokers of all other hosts.
    pub fn poll_word(&mut self) -> Option<Word> {
        self.words.pop_front()
    }

    /// Takes a word of the broker of another host.
    ///
    /// # Errors
    /// The word is of a rank that no other broker serves.
    pub fn handle_word(&mut self, word: Word, now: Instant) -> Result<(), NotElsewhere> {
        let rank = word.rank();
        if !self.is_rank(rank) || !self.is_elsewhere(rank) {
            return Err(NotElsewhere(rank));
        }
        match word {
            // A second card is the first one's, come twice.
            Word::Card { card, .. } => {
                if self.ranks[rank as usize].card.is_none() {
                    self.publish(rank, card, now);
                }
            }
            Word::State { state, .. } if state.is_gone() => self.gone(rank, state, now),
            Word::State { state, .. } => {
                if !self.board.state(rank).is_gone() {
                    self.set_state(rank, state);
                }
            }
        }
        Ok(())
    }

    /// Notes the state of a rank, and that other brokers must hear of it.
    pub(super) fn set_state(&mut self, rank: u32, state: RankState) {
        let is_new = self.board.state(rank) != state;
        self.board.set_state(rank, state);
        if is_new && self.here.is_some() && !self.is_elsewhere(rank) {
            self.words.push_back(Word::State { rank, state });
        }
    }

    /// Notes that other brokers must have the card of `rank`.
    pub(super) fn tell_card(&mut self, rank: u32, card: &Card) {
        if self.here.is_some() && !self.is_elsewhere(rank) {
            let card = card.clone();
            self.words.push_back(Word::Card { rank, card });
        }
    }
}
