//! The broker: the launcher's side of the rendezvous, as a state machine over one descriptor.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::JobAddress;
use super::message::{ParseError, Record, Refusal, ToBroker, ToRank};
use super::socket::{self, Received};
use crate::board::{Board, BoardError, RankState};

/// Makes the memory of the channel between two ranks, the lower rank first. The descriptor must
/// stay valid when it is sent to both.
pub type MakeChannel = Box<dyn FnMut(u32, u32) -> io::Result<OwnedFd>>;

/// A connection that has not said hello is closed after this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Between the end of a connection without `Leave` and the rank being declared dead: the launcher
/// learns in this time how the process ended, which tells an exit from a death.
const LOST_GRACE: Duration = Duration::from_millis(150);
/// When the kernel has too many descriptors under way, try again after this time.
const CROWDED_RETRY: Duration = Duration::from_millis(5);
/// Records that wait for one rank, sent to it or held until it joins. More is `PassLost`.
const QUEUE_LIMIT: usize = 8192;
/// Records read from one connection before the others get their turn.
const BURST: usize = 64;
/// Strangers and late comers that may be connected at once, beside the ranks.
const SPARE_CONNECTIONS: usize = 64;

const LISTENER: u64 = u64::MAX;

/// What the broker counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerStats {
    /// Ranks that joined.
    pub joined: u64,
    /// Connections of processes of another user.
    pub refused_user: u64,
    /// Hellos with a wrong token.
    pub refused_token: u64,
    /// Hellos of another version, for no rank of the job, or for a rank that is taken.
    pub refused_other: u64,
    /// Connections closed because they broke the protocol, said nothing, or were too many.
    pub broken: u64,
    /// Channels made.
    pub channels: u64,
    /// Descriptors handed on.
    pub passed: u64,
    /// Descriptors that could not be handed on.
    pub pass_lost: u64,
}

struct Outgoing {
    record: Record,
    fd: Option<Rc<OwnedFd>>,
    counts_as_mail: bool,
}

struct Connection {
    socket: OwnedFd,
    pid: u32,
    rank: Option<u32>,
    queue: VecDeque<Outgoing>,
    wants_out: bool,
    since: Instant,
    /// Close when the queue is empty (after a refusal).
    closing: bool,
}

#[derive(Default)]
struct Rank {
    joined: bool,
    left: bool,
    connection: Option<usize>,
    held: VecDeque<Outgoing>,
    lost_at: Option<Instant>,
}

/// The broker of one job.
///
/// Getters: [`Broker::address`], [`Broker::board`], [`Broker::stats`], [`Broker::has_joined`].
/// Inputs: [`Broker::handle_ready`] when the descriptor ([`AsFd`]) is readable or the time that
/// [`Broker::poll_at`] names has come, and `handle_rank_*` for what the launcher sees of its
/// children. Never blocks. Dropping it ends the job: every client sees [`super::Event::JobEnded`].
pub struct Broker {
    address: JobAddress,
    board: Board,
    board_fd: Rc<OwnedFd>,
    epoll: OwnedFd,
    listener: OwnedFd,
    connections: Vec<Option<Connection>>,
    ranks: Vec<Rank>,
    pairs: HashSet<(u32, u32)>,
    make_channel: MakeChannel,
    crowded: bool,
    stats: BrokerStats,
}

impl Broker {
    /// Opens the rendezvous of a job of `ranks` ranks.
    ///
    /// # Errors
    /// A number of ranks that the board refuses, or no descriptors left.
    pub fn new(ranks: u32, make_channel: MakeChannel) -> Result<Self, BoardError> {
        let os = |call| move |errno| BoardError::Os { call, errno };
        let (board, board_fd) = Board::create(ranks)?;
        let address = JobAddress::random().map_err(os("getrandom"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .map_err(os("socket"))?;
        let place = address.socket().map_err(os("abstract address"))?;
        rustix::net::bind(&listener, &place).map_err(os("bind"))?;
        rustix::net::listen(&listener, 4096).map_err(os("listen"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os("epoll_create1"))?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN).map_err(os("epoll_ctl"))?;
        Ok(Self {
            address,
            board,
            board_fd: Rc::new(board_fd),
            epoll,
            listener,
            connections: Vec::new(),
            ranks: (0..ranks).map(|_| Rank::default()).collect(),
            pairs: HashSet::new(),
            make_channel,
            crowded: false,
            stats: BrokerStats::default(),
        })
    }

    /// What ranks need to join: the value of `MAPWIRE_JOB`.
    #[must_use]
    pub fn address(&self) -> &JobAddress {
        &self.address
    }

    /// The job's board.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> BrokerStats {
        self.stats
    }

    /// Whether `rank` has joined, now or before.
    #[must_use]
    pub fn has_joined(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).is_some_and(|r| r.joined)
    }

    /// Whether `rank` said that it leaves.
    #[must_use]
    pub fn has_left(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).is_some_and(|r| r.left)
    }

    /// When [`Broker::handle_ready`] wants to be called even if the descriptor is not readable.
    #[must_use]
    pub fn poll_at(&self, now: Instant) -> Option<Instant> {
        let lost = self
            .ranks
            .iter()
            .filter_map(|r| r.lost_at)
            .map(|t| t + LOST_GRACE);
        let silent = self
            .connections
            .iter()
            .flatten()
            .filter(|c| c.rank.is_none())
            .map(|c| c.since + HELLO_TIMEOUT);
        let crowded = self.crowded.then(|| now + CROWDED_RETRY);
        lost.chain(silent).chain(crowded).min()
    }

    /// Serves whatever is ready.
    pub fn handle_ready(&mut self, now: Instant) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let zero = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // An interrupted look is repeated by the caller's loop: the descriptor stays readable.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&zero));
        for event in events {
            let data = event.data;
            match data.u64() {
                LISTENER => self.accept(now),
                at => {
                    let at = usize::try_from(at).unwrap_or(usize::MAX);
                    self.flush(at, now);
                    self.read(at, now, BURST);
                }
            }
        }
        if std::mem::take(&mut self.crowded) {
            for at in 0..self.connections.len() {
                self.flush(at, now);
            }
        }
        self.expire(now);
    }

    /// The process of `rank` has ended, `clean` if with exit code 0. What it sent before is still
    /// handed on.
    pub fn handle_rank_exited(&mut self, rank: u32, clean: bool, now: Instant) {
        let Some(record) = self.ranks.get(rank as usize) else {
            return;
        };
        if let Some(at) = record.connection {
            self.read(at, now, usize::MAX);
        }
        self.gone(
            rank,
            if clean {
                RankState::Left
            } else {
                RankState::Dead
            },
        );
    }

    /// The process of `rank` was stopped by a signal.
    pub fn handle_rank_stopped(&mut self, rank: u32) {
        if !self.board.state(rank).is_gone() {
            self.board.set_state(rank, RankState::Stopped);
        }
    }

    /// The process of `rank` runs again.
    pub fn handle_rank_continued(&mut self, rank: u32) {
        if self.board.state(rank) == RankState::Stopped {
            let state = if self.has_joined(rank) {
                RankState::Joined
            } else {
                RankState::Absent
            };
            self.board.set_state(rank, state);
        }
    }

    fn accept(&mut self, now: Instant) {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // AGAIN: all taken. Anything else (no descriptors left) is tried at the next turn.
                Err(_) => return,
            };
            let Ok(peer) = sockopt::socket_peercred(&socket) else {
                continue;
            };
            if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
                self.stats.refused_user += 1;
                continue;
            }
            let open = self.connections.iter().flatten().count();
            if open >= self.ranks.len() + SPARE_CONNECTIONS {
                self.stats.broken += 1;
                continue;
            }
            let at = self
                .connections
                .iter()
                .position(Option::is_none)
                .unwrap_or_else(|| {
                    self.connections.push(None);
                    self.connections.len() - 1
                });
            let data = epoll::EventData::new_u64(at as u64);
            if epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).is_err() {
                continue;
            }
            let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0);
            self.connections[at] = Some(Connection {
                socket,
                pid,
                rank: None,
                queue: VecDeque::new(),
                wants_out: false,
                since: now,
                closing: false,
            });
        }
    }

    fn read(&mut self, at: usize, now: Instant, limit: usize) {
        for _ in 0..limit {
            let Some(Some(connection)) = self.connections.get(at) else {
                return;
            };
            if connection.closing {
                return;
            }
            match socket::receive(&connection.socket) {
                Received::Record { record, fd, fds } => {
                    self.handle_record(at, ToBroker::parse(&record, fds), fd, now);
                }
                Received::Empty => return,
                Received::Garbage => self.broken(at, now),
                Received::Closed => self.closed(at, now),
            }
        }
    }

    fn handle_record(
        &mut self,
        at: usize,
        message: Result<ToBroker, ParseError>,
        fd: Option<OwnedFd>,
        now: Instant,
    ) {
        let Some(Some(connection)) = self.connections.get(at) else {
            return;
        };
        match (connection.rank, message, fd) {
            (None, Ok(ToBroker::Hello { rank, token, .. }), None) => {
                self.hello(at, rank, &token, now);
            }
            (None, Err(ParseError::Version(_)), _) => self.refuse(at, Refusal::Version, now),
            (Some(rank), Ok(ToBroker::Connect { peer }), None) if self.is_peer(rank, peer) => {
                self.connect(rank, peer, now);
            }
            (Some(rank), Ok(ToBroker::Pass { to, tag }), Some(fd)) if self.is_rank(to) => {
                self.pass(rank, to, tag, fd, now);
            }
            (Some(rank), Ok(ToBroker::Leave), None) => {
                self.ranks[rank as usize].left = true;
                self.gone(rank, RankState::Left);
            }
            _ => self.broken(at, now),
        }
    }

    fn is_rank(&self, rank: u32) -> bool {
        (rank as usize) < self.ranks.len()
    }

    fn is_peer(&self, rank: u32, peer: u32) -> bool {
        self.is_rank(peer) && peer != rank
    }

    fn hello(&mut self, at: usize, rank: u32, token: &[u8; 16], now: Instant) {
        if !self.address.admits(token) {
            return self.refuse(at, Refusal::Token, now);
        }
        if !self.is_rank(rank) {
            return self.refuse(at, Refusal::Rank, now);
        }
        if self.ranks[rank as usize].joined || self.board.state(rank).is_gone() {
            return self.refuse(at, Refusal::Taken, now);
        }
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return;
        };
        connection.rank = Some(rank);
        let size = self.ranks.len() as u32;
        connection.queue.push_back(Outgoing {
            record: ToRank::Welcome { rank, size }.encode(),
            fd: Some(self.board_fd.clone()),
            counts_as_mail: false,
        });
        let record = &mut self.ranks[rank as usize];
        record.joined = true;
        record.connection = Some(at);
        connection.queue.append(&mut record.held);
        self.stats.joined += 1;
        self.board.set_pid(rank, connection.pid);
        self.board.set_state(rank, RankState::Joined);
        self.flush(at, now);
    }

    fn refuse(&mut self, at: usize, why: Refusal, now: Instant) {
        match why {
            Refusal::Token => self.stats.refused_token += 1,
            _ => self.stats.refused_other += 1,
        }
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return;
        };
        connection.closing = true;
        connection.queue.push_back(Outgoing {
            record: ToRank::Refused(why).encode(),
            fd: None,
            counts_as_mail: false,
        });
        self.flush(at, now);
    }

    fn connect(&mut self, rank: u32, peer: u32, now: Instant) {
        if self.board.state(peer).is_gone() {
            self.deliver(rank, &ToRank::PeerGone { peer }, None, now);
            return;
        }
        let pair = (rank.min(peer), rank.max(peer));
        if self.pairs.contains(&pair) {
            return;
        }
        let fd = match (self.make_channel)(pair.0, pair.1) {
            Ok(fd) => Rc::new(fd),
            Err(error) => {
                tracing::error!(
                    "no channel between ranks {} and {}: {error}",
                    pair.0,
                    pair.1
                );
                self.deliver(rank, &ToRank::PeerGone { peer }, None, now);
                return;
            }
        };
        self.pairs.insert(pair);
        self.stats.channels += 1;
        self.deliver(rank, &ToRank::Channel { peer }, Some(fd.clone()), now);
        self.deliver(peer, &ToRank::Channel { peer: rank }, Some(fd), now);
    }

    fn pass(&mut self, from: u32, to: u32, tag: u64, fd: OwnedFd, now: Instant) {
        if self.deliver(to, &ToRank::Passed { from, tag }, Some(Rc::new(fd)), now) {
            self.stats.passed += 1;
        } else {
            self.stats.pass_lost += 1;
            self.deliver(from, &ToRank::PassLost { to, tag }, None, now);
        }
    }

    /// Queues a message for `rank`, or holds it until `rank` joins. `false` if it has gone, or its
    /// queue is full.
    fn deliver(
        &mut self,
        rank: u32,
        message: &ToRank,
        fd: Option<Rc<OwnedFd>>,
        now: Instant,
    ) -> bool {
        let record = &mut self.ranks[rank as usize];
        let outgoing = Outgoing {
            record: message.encode(),
            fd,
            counts_as_mail: true,
        };
        match record.connection {
            Some(at) => {
                let Some(Some(connection)) = self.connections.get_mut(at) else {
                    return false;
                };
                if connection.queue.len() >= QUEUE_LIMIT {
                    return false;
                }
                connection.queue.push_back(outgoing);
                self.flush(at, now);
                true
            }
            None if record.joined || self.board.state(rank).is_gone() => false,
            None if record.held.len() >= QUEUE_LIMIT => false,
            None => {
                record.held.push_back(outgoing);
                true
            }
        }
    }

    fn flush(&mut self, at: usize, now: Instant) {
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

    /// The peer talks nonsense.
    fn broken(&mut self, at: usize, now: Instant) {
        self.stats.broken += 1;
        tracing::warn!(
            pid = self
                .connections
                .get(at)
                .and_then(Option::as_ref)
                .map(|c| c.pid),
            "a connection broke the rendezvous protocol and was closed"
        );
        self.closed(at, now);
    }

    /// The connection has ended, without `Leave` if it was a rank's.
    fn closed(&mut self, at: usize, now: Instant) {
        let Some(connection) = self.connections.get_mut(at).and_then(Option::take) else {
            return;
        };
        if let Some(rank) = connection.rank {
            let record = &mut self.ranks[rank as usize];
            record.connection = None;
            record.lost_at.get_or_insert(now);
        }
    }

    fn gone(&mut self, rank: u32, state: RankState) {
        let record = &mut self.ranks[rank as usize];
        record.lost_at = None;
        record.held.clear();
        if let Some(at) = record.connection.take() {
            self.connections[at] = None;
        }
        // Who left cleanly stays so, unless its process then fails.
        if self.board.state(rank) != RankState::Left || state == RankState::Dead {
            self.board.set_state(rank, state);
        }
    }

    fn expire(&mut self, now: Instant) {
        for rank in 0..self.ranks.len() {
            if self.ranks[rank]
                .lost_at
                .is_some_and(|t| now >= t + LOST_GRACE)
            {
                self.gone(rank as u32, RankState::Dead);
            }
        }
        for at in 0..self.connections.len() {
            let silent = self.connections[at]
                .as_ref()
                .is_some_and(|c| c.rank.is_none() && now >= c.since + HELLO_TIMEOUT);
            if silent {
                self.broken(at, now);
            }
        }
    }
}

impl AsFd for Broker {
    /// Readable when [`Broker::handle_ready`] has work.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
