//! A launcher that speaks PMI-1 or PMI-2.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::dialect::Dialect;
use super::pieces::{self, Joined, NoPiece};
use super::v1;
use super::v1::V1;
use super::v2::V2;
use super::wire::{Limit, Wire};
use crate::error::excerpt;
use crate::launcher::{check_get, check_put};
use crate::{Event, LaunchError, Launcher};

/// Most ranks that a launcher may report: more than a job can have, few enough to count.
const MAX_RANKS: u32 = 1 << 20;

/// How long the launcher may take for what it can answer at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Pmi {
    wire: Wire,
    dialect: Box<dyn Dialect>,
    rank: u32,
    size: u32,
    has_reported_end: bool,
}

impl Pmi {
    /// Begins the conversation over `socket` as `rank` of `size`: PMI-2 where the launcher speaks it, else PMI-1.
    pub(crate) fn join(socket: OwnedFd, rank: u32, size: u32, timeout: Duration) -> Result<Self, LaunchError> {
        let limit = Limit::new("joining the launcher (PMI)", timeout);
        let mut wire = Wire::new(socket);
        if size > MAX_RANKS {
            return Err(LaunchError::Variable {
                name: "PMI_SIZE",
                value: size.to_string(),
                expected: "at most 1048576 ranks",
            });
        }
        let dialect: Box<dyn Dialect> = if v1::offer(&mut wire, 2, limit)? {
            Box::new(V2::begin(&mut wire, rank, size, limit)?)
        } else {
            Box::new(V1::begin(&mut wire, limit)?)
        };
        Ok(Self { wire, dialect, rank, size, has_reported_end: false })
    }

    fn piece(&mut self, rank: u32, key: &str, at: usize, limit: Limit) -> Result<Option<String>, LaunchError> {
        let name = pieces::name(rank, key, at);
        self.dialect.get(&mut self.wire, rank, &name, limit)
    }

    fn no_piece<T>(&self, piece: &str) -> Result<T, LaunchError> {
        Err(LaunchError::Protocol {
            protocol: self.dialect.protocol(),
            answer: excerpt(piece.as_bytes()),
            expected: "a piece of a value",
        })
    }
}

impl Launcher for Pmi {
    fn protocol(&self) -> &str {
        self.dialect.protocol()
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        check_put(key, value)?;
        let limit = Limit::new("putting a value", ANSWER_TIMEOUT);
        let longest = self.dialect.longest_value();
        for (at, piece) in pieces::cut(value, longest).iter().enumerate() {
            let name = pieces::name(self.rank, key, at);
            self.dialect.put(&mut self.wire, &name, piece, limit)?;
        }
        Ok(())
    }

    fn fence(&mut self, timeout: Duration) -> Result<(), LaunchError> {
        let limit = Limit::new("a fence of all ranks", timeout);
        self.dialect.fence(&mut self.wire, limit)
    }

    fn get(&mut self, rank: u32, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, LaunchError> {
        check_get(rank, self.size, key)?;
        let limit = Limit::new("getting a value", timeout);
        let Some(first) = self.piece(rank, key, 0, limit)? else {
            return Ok(None);
        };
        let Ok(mut joined) = Joined::begin(&first) else {
            return self.no_piece(&first);
        };
        for at in 1.. {
            if joined.is_whole() {
                break;
            }
            let piece = self.piece(rank, key, at, limit)?.unwrap_or_default();
            let added = if piece.is_empty() { Err(NoPiece) } else { joined.add(&piece) };
            if added.is_err() {
                return self.no_piece(&piece);
            }
        }
        Ok(Some(joined.into_bytes()))
    }

    fn poll_event(&mut self) -> Option<Event> {
        if self.has_reported_end || !self.wire.is_closed() {
            return None;
        }
        self.has_reported_end = true;
        Some(Event::Aborted)
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError> {
        let limit = Limit::new("aborting the job", ANSWER_TIMEOUT);
        let command = self.dialect.abort(code, message);
        self.wire.send_anyway(&command, limit)
    }

    fn finish(mut self: Box<Self>, timeout: Duration) -> Result<(), LaunchError> {
        let limit = Limit::new("leaving the launcher", timeout);
        self.dialect.finish(&mut self.wire, limit)
    }
}
