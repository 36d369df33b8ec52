//! Where connections come in: who may connect, how many may be silent, and for how long.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt;

use super::super::message::{Refusal, ToRank};
use super::super::socket;
use super::{Broker, Connection, Door, HELLO_TIMEOUT, JobAddress, LISTENER, descent};
use crate::board::BoardError;
use crate::local::{self, Credentials};

/// Silent connections of one rank's processes: the oldest goes first, so that nobody keeps others out.
const SILENT_PER_RANK: usize = 4;
/// Silent connections of processes that belong to no rank, or of all if no rank's process is known.
const SILENT_OF_OTHERS: usize = 64;
/// The same where guests of a server join: each of them by one connection, and another user's silent ones take descriptors of the server.
const SILENT_PER_GUEST: usize = 1;
/// Silent connections there of processes that are not known: guests of another process namespace.
const SILENT_OF_UNKNOWN_GUESTS: usize = 8;
/// Connections accepted before the others get their turn.
const ACCEPT_BURST: usize = 64;
/// Unread bytes of one rank, as the kernel counts them: some dozens of records. Descriptors in them count
/// against a limit of the user, so that one rank that reads nothing must not take it all.
const SEND_BUFFER_BYTES: usize = 16 * 1024;

impl Door {
    pub(super) fn open(address: &JobAddress, epoll: &OwnedFd) -> Result<Self, BoardError> {
        let listener = local::listen(&address.socket(), 4096)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(epoll, &listener, data, epoll::EventFlags::IN).map_err(|errno| ("epoll_ctl", errno))?;
        Ok(Self { listener })
    }

    /// Whether connections that wait make the broker's descriptor readable.
    pub(super) fn watch(&self, epoll: &OwnedFd, wanted: bool) {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, wanted);
        let data = epoll::EventData::new_u64(LISTENER);
        let _ = epoll::modify(epoll, &self.listener, data, flags);
    }
}

impl Broker {
    /// Takes connections that wait; what is left makes the descriptor readable again.
    pub(super) fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPT_BURST {
            match local::accept(&self.door.listener) {
                Ok(socket) => self.admit(socket, now),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    let what = format!("a connection waits ({errno})");
                    return self.run_short(&what, now);
                }
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd, now: Instant) {
        let Ok(Credentials { user, process: pid, .. }) = Credentials::of(&socket) else {
            return;
        };
        if !local::is_own(user) && self.guests != Some(user) {
            self.stats.refused_user += 1;
            return turn_away(&socket, Refusal::User);
        }
        // If refused, the kernel's default size stays, which costs more.
        let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
        let origin = self.origin_of(pid);
        self.make_room(origin, now);
        let free = self.connections.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let data = epoll::EventData::new_u64(at as u64);
        if epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).is_err() {
            return;
        }
        self.connections[at] = Some(Connection {
            socket,
            pid,
            origin,
            rank: None,
            queue: VecDeque::new(),
            wants_out: false,
            since: now,
            closing: false,
        });
    }

    /// The process of a rank, or of several, that `pid` is or descends from.
    fn origin_of(&self, pid: u32) -> Option<u32> {
        if self.ranks.iter().all(|rank| rank.process.is_none()) {
            return None;
        }
        let mut line = descent::line_of(pid).into_iter();
        line.find(|&ancestor| self.ranks_of(ancestor).next().is_some())
    }

    /// The ranks for which process `pid` was started.
    fn ranks_of(&self, pid: u32) -> impl Iterator<Item = &super::Rank> {
        let of = move |rank: &&super::Rank| rank.process == Some(pid);
        self.ranks.iter().filter(of)
    }

    /// Closes the oldest silent connection of this origin, if there are too many. What it may have said by now is
    /// heard first.
    fn make_room(&mut self, origin: Option<u32>, now: Instant) {
        let (per_rank, of_others) = match self.guests {
            Some(_) => (SILENT_PER_GUEST, SILENT_OF_UNKNOWN_GUESTS),
            None => (SILENT_PER_RANK, SILENT_OF_OTHERS),
        };
        let limit = match origin {
            Some(process) => per_rank * self.ranks_of(process).count(),
            None => of_others,
        };
        let is_silent = |broker: &Self, at: usize| {
            let connection = broker.connections[at].as_ref();
            connection.is_some_and(|c| c.rank.is_none() && c.origin == origin)
        };
        let all = 0..self.connections.len();
        let silent: Vec<usize> = all.filter(|&at| is_silent(self, at)).collect();
        if silent.len() < limit {
            return;
        }
        let since = |at: &usize| self.connections[*at].as_ref().map(|c| c.since);
        if let Some(oldest) = silent.into_iter().min_by_key(since) {
            self.read(oldest, now, 1);
            if is_silent(self, oldest) {
                self.close_silent(oldest);
            }
        }
    }

    /// Closes connections that have been silent for too long. What they have said while this process did not look is heard first.
    pub(super) fn expire_silent(&mut self, now: Instant) {
        let is_late = |broker: &Self, at: usize| {
            let connection = broker.connections[at].as_ref();
            connection.is_some_and(|c| c.rank.is_none() && now >= c.since + HELLO_TIMEOUT)
        };
        for at in 0..self.connections.len() {
            if is_late(self, at) {
                self.read(at, now, 1);
            }
            if is_late(self, at) {
                self.close_silent(at);
            }
        }
    }

    fn close_silent(&mut self, at: usize) {
        self.stats.silent += 1;
        if let Some(connection) = self.connections[at].take() {
            turn_away(&connection.socket, Refusal::Silent);
        }
    }
}

/// Tells the peer why its connection is closed, if its socket has room.
fn turn_away(socket: &OwnedFd, why: Refusal) {
    let _ = socket::send(socket, &ToRank::Refused(why).encode(), None);
}
