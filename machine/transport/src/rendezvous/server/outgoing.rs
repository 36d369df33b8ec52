//! What waits for ranks: how much of it, and how it is sent.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::super::message::{Record, ToRank};
use super::super::socket;
use super::Broker;

/// Records that wait for one rank, sent to it or held until it joins. More is `PassLost`.
const QUEUE_LIMIT: usize = 8192;
/// Most descriptors of one rank that may wait for another, two for each import. More is `PassLost`.
const PAIR_QUOTA: u64 = 128;
/// Descriptors that are kept for the launcher's own needs: so many, and so many for each rank.
const RESERVED: u64 = 64;
const RESERVED_PER_RANK: u64 = 8;

/// A record on its way to a rank.
pub(super) struct Outgoing {
    record: Record,
    fd: Option<Rc<OwnedFd>>,
    /// The rank that passed the descriptor.
    from: Option<u32>,
    counts_as_mail: bool,
}

impl Outgoing {
    pub(super) fn new(message: &ToRank, fd: Option<Rc<OwnedFd>>) -> Self {
        let from = match message {
            ToRank::Passed { from, .. } => Some(*from),
            _ => None,
        };
        Self {
            record: message.encode(),
            fd,
            from,
            counts_as_mail: !matches!(
                message,
                ToRank::Welcome { .. } | ToRank::Bells | ToRank::Refused(_)
            ),
        }
    }
}

/// Descriptors of one rank that may wait for another: all pairs together must leave this process some.
pub(super) fn pair_quota(ranks: u64) -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let shared = limit.saturating_sub(RESERVED + RESERVED_PER_RANK * ranks);
    (shared / (ranks * ranks)).clamp(1, PAIR_QUOTA) as usize
}

impl Broker {
    /// Queues a message for `rank`, or holds it until `rank` joins. `false` if it has gone, its queue is
    /// full, too many descriptors of one rank wait for it, or another broker serves it.
    pub(super) fn deliver(
        &mut self,
        rank: u32,
        message: &ToRank,
        fd: Option<Rc<OwnedFd>>,
        now: Instant,
    ) -> bool {
        if self.is_elsewhere(rank) {
            return false;
        }
        let record = &mut self.ranks[rank as usize];
        let outgoing = Outgoing::new(message, fd);
        let (queue, connected) = match record.connection {
            Some(at) => match self.connections.get_mut(at) {
                Some(Some(connection)) => (&mut connection.queue, Some(at)),
                _ => return false,
            },
            None if record.joined || self.board.state(rank).is_gone() => return false,
            None => (&mut record.held, None),
        };
        let waiting = |from| queue.iter().filter(|o| o.from == Some(from)).count();
        if queue.len() >= QUEUE_LIMIT
            || outgoing
                .from
                .is_some_and(|from| waiting(from) >= self.pair_quota)
        {
            return false;
        }
        queue.push_back(outgoing);
        if let Some(at) = connected {
            self.flush(at, now);
        }
        true
    }

    pub(super) fn flush(&mut self, at: usize, now: Instant) {
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return;
        };
        let mut broken = false;
        let mut full = false;
        while let Some(next) = connection.queue.front() {
            let fd = next.fd.as_ref().map(|fd| fd.as_fd());
            match socket::send(&connection.socket, &next.record, fd) {
                Ok(()) => {
                    if let (true, Some(rank)) = (next.counts_as_mail, connection.rank) {
                        self.board.add_mail(rank);
                    }
                    connection.queue.pop_front();
                }
                Err(Errno::AGAIN) => {
                    full = true;
                    break;
                }
                Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                    self.crowded = true;
                    break;
                }
                Err(_) => {
                    // It has closed. What it sent before is read, then its end is met.
                    connection.queue.clear();
                    broken = true;
                    break;
                }
            }
        }
        if connection.wants_out != full {
            connection.wants_out = full;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, full);
            let data = epoll::EventData::new_u64(at as u64);
            let _ = epoll::modify(&self.epoll, &connection.socket, data, flags);
        }
        if connection.closing && (connection.queue.is_empty() || broken) {
            self.connections[at] = None;
        } else if broken && connection.rank.is_none() {
            self.closed(at, now);
        }
    }
}
