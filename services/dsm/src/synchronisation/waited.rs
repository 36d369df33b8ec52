//! A rank's knowledge of barriers with waiting threads, as text.

use core::fmt;

use alloc::vec::Vec;

use crate::{Barrier, Rank};

/// A barrier with waiting threads, as one rank knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitedBarrier {
    /// Number of the barrier; `None`: a broadcast.
    pub barrier: Option<Barrier>,
    /// Threads of this rank that have arrived.
    pub threads: u16,
    /// Threads of each rank that must arrive; 1 for a broadcast.
    pub participants: u16,
    /// Rank that counts the arrivals.
    pub manager: Rank,
    /// At the manager: ranks all of whose threads have arrived.
    pub come: Vec<Rank>,
    /// At the manager: the other ranks.
    pub missing: Vec<Rank>,
}

impl fmt::Display for WaitedBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let participants = match self.barrier {
            Some(barrier) => {
                write!(f, "barrier {barrier}")?;
                self.participants
            }
            None => {
                write!(f, "a broadcast")?;
                1
            }
        };
        match (&self.come[..], &self.missing[..]) {
            ([], []) => write!(f, ", which rank {} counts", self.manager)?,
            (come, missing) => {
                write!(f, ":{} come,{} not", Ranks(come), Ranks(missing))?;
            }
        }
        match self.threads > 0 && self.threads < participants {
            true => write!(f, " ({} of {participants} threads here)", self.threads),
            false => Ok(()),
        }
    }
}

/// The first ranks of a list, and the number of the others.
struct Ranks<'a>(&'a [Rank]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        let (name, has) = match self.0.len() {
            0 => return write!(f, " none have"),
            1 => ("rank", "has"),
            _ => ("ranks", "have"),
        };
        write!(f, " {name}")?;
        for rank in self.0.iter().take(SHOWN) {
            write!(f, " {rank}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => write!(f, " {has}"),
            more => write!(f, " and {more} more {has}"),
        }
    }
}
