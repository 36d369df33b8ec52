//! Stores and fetches that are under way.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mapwire_wire::NodeId;

use super::rma::{Direction, LocalPiece, RemoteMemory, RmaDone, RmaError};
use super::sys::{Endpoint, FabricAddress, OPERATIONS, PostError};

/// Polls between two looks at the clock.
const LOOK: u32 = 256;

#[derive(Clone, Copy, Debug)]
struct Operation {
    token: u64,
    peer: NodeId,
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
enum OperationState {
    Free,
    UnderWay(Operation),
    /// Reported as failed; the library has not yet given it back.
    Abandoned,
}

#[derive(Debug)]
enum Outcome {
    Done,
    PeerGone,
    TimedOut,
    Failed(i32),
}

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Operations {
    states: Vec<OperationState>,
    free: Vec<usize>,
    over: VecDeque<(Operation, Outcome)>,
    polls: u32,
    /// How long an operation may take: some providers say nothing of one that the peer refuses. `None`: until the library says more.
    patience: Option<Duration>,
}

impl Operations {
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self {
            patience,
            states: vec![OperationState::Free; OPERATIONS],
            free: (0..OPERATIONS).rev().collect(),
            over: VecDeque::with_capacity(OPERATIONS),
            polls: 0,
        }
    }

    pub(super) fn begin(
        &mut self,
        endpoint: &mut Endpoint,
        direction: Direction,
        (peer, address): (NodeId, FabricAddress),
        (remote, offset): (&RemoteMemory, u64),
        pieces: &[LocalPiece<'_>],
        token: u64,
    ) -> Result<(), RmaError> {
        if !endpoint.info().has_rma() {
            return Err(RmaError::NotOffered);
        }
        let (count, max) = (pieces.len(), endpoint.max_pieces());
        if count > max {
            return Err(RmaError::TooManyPieces { count, max });
        }
        if !endpoint.owns(pieces) {
            return Err(RmaError::BadPiece);
        }
        // Each is the length of memory of this process, and they are few.
        let bytes: u64 = pieces.iter().map(|piece| piece.bytes as u64).sum();
        let at = remote.place(offset, bytes).ok_or(RmaError::Outside { offset, bytes, region_bytes: remote.bytes })?;
        let number = self.free.pop().ok_or(RmaError::WouldBlock)?;
        match endpoint.transfer(number, direction, address, (remote.key, at), pieces) {
            Ok(()) => {
                self.states[number] = OperationState::UnderWay(Operation { token, peer, since: Instant::now() });
                Ok(())
            }
            Err(error) => {
                self.free.push(number);
                Err(match error {
                    PostError::Again => RmaError::WouldBlock,
                    PostError::Failed(code) => RmaError::Failed(endpoint.error(code)),
                })
            }
        }
    }

    /// The library has given an operation back.
    pub(super) fn handle_moved(&mut self, number: usize, error: i32) {
        let state = core::mem::replace(&mut self.states[number], OperationState::Free);
        self.free.push(number);
        if let OperationState::UnderWay(operation) = state {
            let end = match error {
                0 => Outcome::Done,
                error => Outcome::Failed(error),
            };
            self.over.push_back((operation, end));
        }
    }

    /// Reports what is under way to the peer as failed, unless `patience` is `None`: then the library reports it.
    pub(super) fn handle_gone(&mut self, peer: NodeId) {
        if self.patience.is_none() {
            return;
        }
        self.abandon(|operation| operation.peer == peer, || Outcome::PeerGone);
    }

    /// Reports operations as failed. The library may still use their memory, which stays registered until it says more.
    fn abandon(&mut self, which: impl Fn(&Operation) -> bool, end: impl Fn() -> Outcome) {
        for state in &mut self.states {
            if let OperationState::UnderWay(operation) = *state
                && which(&operation)
            {
                *state = OperationState::Abandoned;
                self.over.push_back((operation, end()));
            }
        }
    }

    pub(super) fn has_over(&self) -> bool {
        !self.over.is_empty()
    }

    pub(super) fn poll_done(&mut self, endpoint: &Endpoint) -> Option<RmaDone> {
        self.polls = self.polls.wrapping_add(1);
        if let Some(patience) = self.patience
            && self.polls.is_multiple_of(LOOK)
            && self.free.len() < OPERATIONS
        {
            let now = Instant::now();
            self.abandon(|operation| now - operation.since > patience, || Outcome::TimedOut);
        }
        let (Operation { token, peer, .. }, end) = self.over.pop_front()?;
        let result = match end {
            Outcome::Done => Ok(()),
            Outcome::PeerGone => Err(RmaError::PeerGone(peer)),
            Outcome::TimedOut => Err(RmaError::TimedOut { peer, seconds: self.patience.unwrap_or_default().as_secs() }),
            Outcome::Failed(code) => Err(RmaError::Failed(endpoint.error(code))),
        };
        Some(RmaDone { token, peer, result })
    }
}
