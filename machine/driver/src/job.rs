//! The job that this process is a rank of: by a launcher's broker, or alone.

use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mapwire_transport::board::{Board, BrokersBoard};
use mapwire_transport::rendezvous::{Client, Event, JobAddress, RendezvousError};
use mapwire_transport::shm::ring::RingConfig;
use mapwire_wire::NodeId;

use crate::error::DriverError;

/// A process's place in its job.
#[derive(Debug)]
pub struct Job {
    client: Option<Client>,
    board: Arc<Board>,
    rank: u32,
    size: u32,
    ring: RingConfig,
    /// Peers that a connection has been asked for.
    requested: Vec<bool>,
    uid: u32,
    /// What a process alone has passed to itself.
    own_events: VecDeque<Event>,
}

impl Job {
    /// Joins the job at `address` as `rank`.
    ///
    /// # Errors
    /// When there is no broker, or it refuses, or does not answer within `timeout`.
    pub fn join(address: &JobAddress, rank: u32, timeout: Duration) -> Result<Self, DriverError> {
        let client = Client::join(address, rank, timeout)?;
        let board = Arc::clone(client.board());
        let (rank, size) = (client.rank(), client.size());
        Ok(Self::new(Some(client), board, rank, size))
    }

    /// A job of this process alone.
    ///
    /// # Errors
    /// When its board cannot be made.
    pub fn alone() -> Result<Self, DriverError> {
        let (board, _files) = BrokersBoard::create(1).map_err(RendezvousError::from)?;
        Ok(Self::new(None, Arc::new(board.into_board()), 0, 1))
    }

    /// A job of several ranks in which nobody connects them.
    #[cfg(test)]
    pub(crate) fn without_broker(size: u32) -> Self {
        let (board, _files) = BrokersBoard::create(size).unwrap();
        Self::new(None, Arc::new(board.into_board()), 0, size)
    }

    fn new(client: Option<Client>, board: Arc<Board>, rank: u32, size: u32) -> Self {
        Self {
            client,
            board,
            rank,
            size,
            ring: RingConfig::default(),
            requested: vec![false; size as usize],
            own_events: VecDeque::new(),
            uid: rustix::process::getuid().as_raw(),
        }
    }

    /// This process's number.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Processes in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The board.
    #[must_use]
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The sizes of the rings between ranks.
    #[must_use]
    pub fn ring(&self) -> &RingConfig {
        &self.ring
    }

    /// The user of every rank.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Whether the broker has something to say. No system call.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.own_events.is_empty() || self.client.as_ref().is_some_and(Client::has_news)
    }

    /// What it has to say.
    pub fn poll(&mut self) -> Option<Event> {
        match self.own_events.pop_front() {
            Some(event) => Some(event),
            None => self.client.as_mut()?.poll(),
        }
    }

    /// Asks for a channel to a peer, once.
    ///
    /// # Errors
    /// When the broker is gone or the kernel refuses.
    pub fn request_connection(&mut self, to: NodeId) -> Result<(), RendezvousError> {
        let Some(requested) = self.requested.get_mut(usize::from(to.0)) else {
            return Ok(());
        };
        if !*requested && let Some(client) = &self.client {
            *requested = true;
            client.connect(u32::from(to.0))?;
        }
        Ok(())
    }

    /// Passes a descriptor to a peer.
    ///
    /// # Errors
    /// When the broker is gone or the kernel refuses; a process alone passes to itself only.
    pub fn pass(
        &mut self,
        to: NodeId,
        tag: u64,
        fd: BorrowedFd<'_>,
    ) -> Result<(), RendezvousError> {
        if let Some(client) = &self.client {
            return client.pass(u32::from(to.0), tag, fd);
        }
        if u32::from(to.0) != self.rank {
            return Err(RendezvousError::JobEnded);
        }
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(|errno| RendezvousError::Os {
            call: "fcntl(F_DUPFD_CLOEXEC)",
            errno,
        })?;
        let from = self.rank;
        self.own_events.push_back(Event::Passed { from, tag, fd });
        Ok(())
    }

    /// Leaves the job in good order: peers learn that this rank left, rather than died.
    ///
    /// # Errors
    /// When the broker is gone; the job is left all the same.
    pub(crate) fn leave(&mut self) -> Result<(), RendezvousError> {
        self.client.take().map_or(Ok(()), Client::leave)
    }
}
