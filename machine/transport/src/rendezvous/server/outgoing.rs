//! What waits for ranks: how much of it, and how it is sent.
//!
//! Descriptors of ranks do not wait here: whoever passed one has it still. One that its receiver's socket does not take at once is closed,
//! and *owed*: its passer is [asked](super::super::message::ToRank::PassAgain) for it again when the receiver has read. So no rank that
//! reads nothing uses up this process's descriptors, however many ranks there are.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::super::message::ToRank;
use super::super::socket;
use super::{Broker, Connection, Outgoing, Owed};

/// Records that wait for one rank, sent to it or held until it joins; and descriptors owed to it. More is `PassLost`.
const QUEUE_LIMIT: usize = 8192;
/// Descriptors of one rank that may be owed to another.
const OWED_BY_ONE: usize = 1024;
/// Owed descriptors that are asked for at a time: a socket that is writable again holds as many.
const ASKED_AT_A_TIME: usize = 8;
/// The part of the channels that may wait which may wait for one rank: who reads nothing keeps no others apart.
const SHARE_OF_ONE: usize = 8;
/// Descriptors that are kept for the launcher's own needs: so many, and for each rank its connection and two pipes.
const RESERVED: u64 = 64;
const RESERVED_PER_RANK: u64 = 3;
/// Channels of all ranks that may wait, where the limit on descriptors would allow none.
const LEAST_CHANNELS: u64 = 4;

impl Outgoing {
    pub(super) fn new(message: &ToRank, fd: Option<Rc<OwnedFd>>) -> Self {
        Self {
            record: message.encode(),
            fd,
            counts_as_mail: !matches!(
                message,
                ToRank::Welcome { .. } | ToRank::Bells | ToRank::Segment | ToRank::Refused(_)
            ),
        }
    }

    /// Whether it carries the memory of a channel.
    fn is_channel(&self) -> bool {
        self.fd.is_some() && self.counts_as_mail
    }
}

/// Result of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Yes,
    /// The receiver must read first.
    Full,
    /// The kernel has too much under way.
    Crowded,
    /// The receiver has closed its end.
    Broken,
}

impl Broker {
    /// Channels that may wait in the queues of ranks: a descriptor each.
    pub(super) fn most_channels(ranks: u64) -> usize {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let free = limit.saturating_sub(RESERVED + RESERVED_PER_RANK * ranks);
        usize::try_from(free.max(LEAST_CHANNELS)).unwrap_or(usize::MAX)
    }

    /// Queue of records for `rank`, which may not have joined; `None` if it has gone, or another broker serves it.
    fn queue_of(&mut self, rank: u32) -> Option<&mut VecDeque<Outgoing>> {
        if self.is_elsewhere(rank) {
            return None;
        }
        let is_gone = self.board.state(rank).is_gone();
        let record = &mut self.ranks[rank as usize];
        match record.connection {
            Some(at) => Some(&mut self.connections.get_mut(at)?.as_mut()?.queue),
            None if record.joined || is_gone => None,
            None => Some(&mut record.held),
        }
    }

    /// Queues a message for `rank`, or holds it until `rank` joins. `false` if it has gone, its queue is
    /// full, or another broker serves it.
    pub(super) fn deliver(&mut self, rank: u32, message: &ToRank, fd: Option<Rc<OwnedFd>>, now: Instant) -> bool {
        let Some(queue) = self.queue_of(rank) else {
            return false;
        };
        if queue.len() >= QUEUE_LIMIT {
            return false;
        }
        self.waiting_channels += usize::from(fd.is_some());
        if let Some(queue) = self.queue_of(rank) {
            queue.push_back(Outgoing::new(message, fd));
        }
        if let Some(at) = self.ranks[rank as usize].connection {
            self.flush(at, now);
        }
        true
    }

    /// Whether the memory of one more channel may wait for two ranks.
    pub(super) fn has_room_for_channel(&self) -> bool {
        self.waiting_channels + 2 <= self.most_channels
    }

    /// Whether as many channels wait for `rank` as may.
    pub(super) fn is_full(&mut self, rank: u32) -> bool {
        let most = (self.most_channels / SHARE_OF_ONE).max(1);
        let queue = self.queue_of(rank);
        queue.is_some_and(|queue| queue.iter().filter(|it| it.is_channel()).count() >= most)
    }

    /// Uncounts the channels in this queue.
    pub(super) fn forget_channels(&mut self, queue: &VecDeque<Outgoing>) {
        let waited = queue.iter().filter(|next| next.is_channel()).count();
        self.waiting_channels = self.waiting_channels.saturating_sub(waited);
    }

    /// Takes a connection out, with what waits for it.
    pub(super) fn drop_connection(&mut self, at: usize) -> Option<Connection> {
        let connection = self.connections.get_mut(at)?.take()?;
        self.forget_channels(&connection.queue);
        Some(connection)
    }

    /// Hands a descriptor on if `to` takes it at once; otherwise notes that it is owed.
    pub(super) fn hand_on(&mut self, to: u32, owed: Owed, fd: &OwnedFd, now: Instant) {
        let Owed { from, tag } = owed;
        let Some(queue) = self.queue_of(to) else {
            return self.lose_pass(from, to, tag, now);
        };
        let is_clear = queue.is_empty();
        let at = self.ranks[to as usize].connection;
        let connection = at.and_then(|at| self.connections.get(at)?.as_ref());
        let Some((at, connection)) = at.zip(connection) else {
            // It has not joined.
            return self.owe(to, owed, now);
        };
        if !is_clear || connection.wants_out {
            return self.owe(to, owed, now);
        }
        let record = ToRank::Passed { from, tag }.encode();
        match outcome(socket::send(&connection.socket, &record, Some(fd.as_fd()))) {
            Sent::Yes => {
                self.board.add_mail(to);
                self.stats.passed += 1;
                self.ask_again(to, 1, now);
            }
            Sent::Full => {
                self.set_wants_out(at, true);
                self.owe(to, owed, now);
            }
            Sent::Crowded => {
                self.crowded = true;
                self.owe(to, owed, now);
            }
            Sent::Broken => self.lose_pass(from, to, tag, now),
        }
    }

    /// Notes a descriptor that `to` must get later.
    pub(super) fn owe(&mut self, to: u32, owed: Owed, now: Instant) {
        let is_served = self.queue_of(to).is_some();
        let all = &mut self.ranks[to as usize].owed;
        let of_one = all.iter().filter(|other| other.from == owed.from).count();
        if is_served && all.len() < QUEUE_LIMIT && of_one < OWED_BY_ONE {
            all.push_back(owed);
        } else {
            self.lose_pass(owed.from, to, owed.tag, now);
        }
    }

    /// Asks for some of what is owed to a rank that has room.
    pub(super) fn ask_again(&mut self, to: u32, most: usize, now: Instant) {
        for _ in 0..most {
            let Some(owed) = self.ranks[to as usize].owed.pop_front() else {
                return;
            };
            let Owed { from, tag } = owed;
            let asks = ToRank::PassAgain { to, tag };
            if !self.deliver(from, &asks, None, now) && self.queue_of(from).is_some() {
                // It is to be asked when it has read what waits for it.
                self.ranks[to as usize].owed.push_front(owed);
                return;
            }
        }
    }

    /// Whether a rank that is owed descriptors is not known to be full.
    fn may_take(&self, rank: u32) -> bool {
        let record = &self.ranks[rank as usize];
        let connection = record.connection.and_then(|at| self.connections.get(at));
        !record.owed.is_empty() && matches!(connection, Some(Some(connection)) if !connection.wants_out)
    }

    /// Whether a descriptor is owed that can be asked for: its passer may have given up an earlier request.
    pub(super) fn owes(&self) -> bool {
        self.short_until.is_none() && (0..self.ranks.len()).any(|rank| self.may_take(rank as u32))
    }

    /// Asks for descriptors that are owed to ranks with room.
    pub(super) fn ask_for_all(&mut self, now: Instant) {
        if self.short_until.is_some() {
            return;
        }
        for rank in 0..self.ranks.len() as u32 {
            if self.may_take(rank) {
                self.ask_again(rank, ASKED_AT_A_TIME, now);
            }
        }
    }

    pub(super) fn flush(&mut self, at: usize, now: Instant) {
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return;
        };
        let mut last = Sent::Yes;
        while let Some(next) = connection.queue.front() {
            let fd = next.fd.as_ref().map(|fd| fd.as_fd());
            last = outcome(socket::send(&connection.socket, &next.record, fd));
            match last {
                Sent::Yes => {
                    if let (true, Some(rank)) = (next.counts_as_mail, connection.rank) {
                        self.board.add_mail(rank);
                    }
                    if let (true, Some(rank)) = (next.is_channel(), connection.rank) {
                        self.waiting_channels = self.waiting_channels.saturating_sub(1);
                        let due = &mut self.ranks[rank as usize].channels_due;
                        self.channels_due.extend(due.drain(..));
                    }
                    connection.queue.pop_front();
                }
                Sent::Full => break,
                Sent::Crowded => {
                    self.crowded = true;
                    break;
                }
                Sent::Broken => {
                    // It has closed. What it sent before is still read.
                    let queue = std::mem::take(&mut connection.queue);
                    self.forget_channels(&queue);
                    break;
                }
            }
        }
        self.set_wants_out(at, last == Sent::Full);
        let Some(Some(connection)) = self.connections.get(at) else {
            return;
        };
        if connection.closing && connection.queue.is_empty() {
            self.connections[at] = None;
        } else if last == Sent::Broken && connection.rank.is_none() {
            self.closed(at, now);
        }
    }

    fn set_wants_out(&mut self, at: usize, wanted: bool) {
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return;
        };
        if connection.wants_out != wanted {
            connection.wants_out = wanted;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, wanted);
            let data = epoll::EventData::new_u64(at as u64);
            let _ = epoll::modify(&self.epoll, &connection.socket, data, flags);
        }
    }
}

fn outcome(sent: Result<(), Errno>) -> Sent {
    match sent {
        Ok(()) => Sent::Yes,
        Err(Errno::AGAIN) => Sent::Full,
        Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => Sent::Crowded,
        Err(_) => Sent::Broken,
    }
}
