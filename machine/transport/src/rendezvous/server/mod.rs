//! The broker: the launcher's side of the rendezvous, as a state machine over one descriptor.

mod descent;
mod door;
mod elsewhere;
mod outgoing;
mod saying;
mod stats;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mapwire_host::descriptors::above_stdio;
use mapwire_host::log_limit::LogLimit;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::JobAddress;
use super::message::{Card, ParseError, Record, Refusal, Secret, ToBroker, ToRank};
use super::socket::{self, Received};
use crate::board::{Board, BoardError, BoardFiles, BrokersBoard, RankState};
use crate::local::random;
pub use elsewhere::{NotElsewhere, Word};
pub use stats::BrokerStats;

/// Makes the memory of the channel between two ranks, the lower rank first. The descriptor must
/// stay valid when it is sent to both.
pub type MakeChannel = Box<dyn FnMut(u32, u32) -> io::Result<OwnedFd>>;

/// Between the end of a connection without `Leave` and the rank being declared dead: the launcher
/// learns in this time how the process ended, which tells an exit from a death.
const LOST_GRACE: Duration = Duration::from_millis(150);
/// When the kernel has too many descriptors under way, try again after this time.
const CROWDED_RETRY: Duration = Duration::from_millis(5);
/// When this process has no descriptor left, try again after this time.
const SHORT_RETRY: Duration = Duration::from_millis(50);
/// Records read from one connection per turn.
const BURST: usize = 64;
/// More records than a socket holds: what a process sent before its end, though a child of its may go on.
const LAST_WORDS: usize = 4096;

/// A connection that has not said hello is closed after this time: a process that has just been started on a busy machine may take
/// seconds from one system call to the next.
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(30);
/// The listener's number among the events.
const LISTENER: u64 = u64::MAX;

struct Door {
    listener: OwnedFd,
}

/// A record on its way to a rank.
struct Outgoing {
    record: Record,
    fd: Option<Rc<OwnedFd>>,
    counts_as_mail: bool,
}

/// A descriptor that is owed to a rank.
#[derive(Clone, Copy)]
struct Owed {
    from: u32,
    tag: u64,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A connection of this rank that broke the protocol; `None`: of a process that belongs to no rank.
    Broken(Option<u32>),
    /// No descriptor was left.
    Short,
    /// A channel of this rank that cannot be made.
    NoChannel(u32),
}

struct Connection {
    socket: OwnedFd,
    pid: u32,
    /// The process from which the connecting one descends, of those that were started for ranks.
    origin: Option<u32>,
    rank: Option<u32>,
    queue: VecDeque<Outgoing>,
    wants_out: bool,
    since: Instant,
    /// Close when the queue is empty (after a refusal).
    closing: bool,
}

#[derive(Default)]
struct Rank {
    /// The process that was started for it.
    process: Option<u32>,
    joined: bool,
    connection: Option<usize>,
    held: VecDeque<Outgoing>,
    /// Descriptors that others have passed to it and must pass again.
    owed: VecDeque<Owed>,
    lost_at: Option<Instant>,
    /// Channels that wait until it has read others: who asked, and for whom.
    channels_due: Vec<(u32, u32)>,
    /// How ranks of other hosts reach it.
    card: Option<Card>,
    /// Ranks that wait for its card.
    awaited_by: Vec<u32>,
}

/// The broker of one job.
///
/// Getters: [`Broker::address`], [`Broker::board`], [`Broker::stats`], [`Broker::has_joined`].
/// Inputs: [`Broker::set_process`] when a rank was started, [`Broker::handle_ready`] when the descriptor ([`AsFd`]) is readable or the time that
/// [`Broker::poll_at`] names has come, and `handle_rank_*` for what the launcher sees of its
/// children. Never blocks. Dropping it ends the job: every client sees [`super::Event::JobEnded`].
pub struct Broker {
    address: JobAddress,
    secret: Secret,
    board: BrokersBoard,
    bells: Rc<OwnedFd>,
    news: Rc<OwnedFd>,
    segment: Rc<OwnedFd>,
    epoll: OwnedFd,
    door: Door,
    connections: Vec<Option<Connection>>,
    ranks: Vec<Rank>,
    /// The user whose processes may join besides those of this process's user and of root.
    guests: Option<u32>,
    /// The host whose ranks this broker serves; `None`: it serves all.
    here: Option<u32>,
    /// Queued for the brokers of other hosts.
    words: VecDeque<Word>,
    /// Pairs that have been connected, or will be as their channel can be made.
    pairs: HashSet<(u32, u32)>,
    /// Channels that wait for room or a descriptor here: who asked, and for whom.
    channels_due: VecDeque<(u32, u32)>,
    make_channel: MakeChannel,
    /// Channels whose memory waits in a queue, counted for each end, and how many may.
    waiting_channels: usize,
    most_channels: usize,
    crowded: bool,
    /// Until then no connection is accepted and no channel made, for lack of descriptors.
    short_until: Option<Instant>,
    stats: BrokerStats,
    /// Lines of the log that ranks and strangers cause.
    sparing: LogLimit<Cause>,
}

impl Broker {
    /// Opens the rendezvous of a job with a rank on each of `hosts`, by rank: numbers that are equal for ranks of one host. Ranks of one
    /// host are given channels, others each other's cards.
    ///
    /// # Errors
    /// A number of ranks that the board refuses, or no descriptors left.
    pub fn new(hosts: &[u32], make_channel: MakeChannel) -> Result<Self, BoardError> {
        Self::with_secret(hosts, Secret(random()?), make_channel)
    }

    fn with_secret(hosts: &[u32], secret: Secret, make_channel: MakeChannel) -> Result<Self, BoardError> {
        let (board, BoardFiles { bells, news, segment }) = BrokersBoard::create(hosts)?;
        let ranks = board.ranks();
        let address = JobAddress::random()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .and_then(above_stdio)
            .map_err(|errno| ("epoll_create1", errno))?;
        let door = Door::open(&address, &epoll)?;
        Ok(Self {
            address,
            secret,
            board,
            bells: Rc::new(bells),
            news: Rc::new(news),
            segment: Rc::new(segment),
            epoll,
            door,
            connections: Vec::new(),
            ranks: (0..ranks).map(|_| Rank::default()).collect(),
            guests: None,
            here: None,
            words: VecDeque::new(),
            pairs: HashSet::new(),
            channels_due: VecDeque::new(),
            make_channel,
            waiting_channels: 0,
            most_channels: Self::most_channels(u64::from(ranks)),
            crowded: false,
            short_until: None,
            stats: BrokerStats::default(),
            sparing: LogLimit::default(),
        })
    }

    #[cfg(test)]
    pub(super) fn set_most_channels(&mut self, most: usize) {
        self.most_channels = most;
    }

    /// Notes that `pid` was started for `rank`: from now on only it and its descendants join as `rank`.
    /// Until then any process of this user does that shows the token.
    pub fn set_process(&mut self, rank: u32, pid: u32) {
        if let Some(rank) = self.ranks.get_mut(rank as usize) {
            rank.process = Some(pid);
        }
    }

    /// Lets processes of user `user` join too, which [name this process's user](JobAddress::of_user) in turn. Ranks are hostile to each
    /// other anyway; what differs is that those of one user can stop each other as debuggers.
    pub fn admit_user(&mut self, user: u32) {
        self.guests = Some(user);
    }

    /// What ranks need to join: the value of `MAPWIRE_JOB`.
    #[must_use]
    pub fn address(&self) -> &JobAddress {
        &self.address
    }

    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Counters since the broker's start.
    #[must_use]
    pub fn stats(&self) -> BrokerStats {
        self.stats
    }

    /// Connections that are open: those of ranks, and those that have not said hello yet.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    /// Whether `rank` has joined, now or before.
    #[must_use]
    pub fn has_joined(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).is_some_and(|r| r.joined)
    }

    /// When [`Broker::handle_ready`] wants to be called even if the descriptor is not readable.
    #[must_use]
    pub fn poll_at(&self, now: Instant) -> Option<Instant> {
        let lost = self.ranks.iter().filter_map(|r| r.lost_at).map(|t| t + LOST_GRACE);
        let silent = self.connections.iter().flatten().filter(|c| c.rank.is_none()).map(|c| c.since + HELLO_TIMEOUT);
        let crowded = (self.crowded || self.owes()).then(|| now + CROWDED_RETRY);
        let short = self.short_until;
        let said = self.sparing.poll_at();
        let others = crowded.into_iter().chain(short).chain(said);
        lost.chain(silent).chain(others).min()
    }

    /// Serves whatever is ready.
    pub fn handle_ready(&mut self, now: Instant) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        // An interrupted look is repeated by the caller's loop: the descriptor stays readable.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&Timespec::default()));
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
        if self.short_until.is_some_and(|until| now >= until) {
            self.short_until = None;
            self.door.watch(&self.epoll, true);
        }
        while self.short_until.is_none() && self.has_room_for_channel() {
            let Some((rank, peer)) = self.channels_due.pop_front() else {
                break;
            };
            self.join_pair(rank, peer, now);
        }
        // When the kernel was out of room, wait before asking again.
        if !self.crowded {
            self.ask_for_all(now);
        }
        self.expire(now);
        self.tell_left_out(now);
    }

    /// The process of `rank` has ended, `clean` if with exit code 0. What it sent before is still
    /// handed on.
    pub fn handle_rank_exited(&mut self, rank: u32, clean: bool, now: Instant) {
        let Some(record) = self.ranks.get(rank as usize) else {
            return;
        };
        if let Some(at) = record.connection {
            self.read(at, now, LAST_WORDS);
        }
        self.gone(rank, if clean { RankState::Left } else { RankState::Dead }, now);
    }

    /// The process of `rank` was stopped by a signal.
    pub fn handle_rank_stopped(&mut self, rank: u32) {
        if !self.board.state(rank).is_gone() {
            self.set_state(rank, RankState::Stopped);
        }
    }

    /// The process of `rank` runs again.
    pub fn handle_rank_continued(&mut self, rank: u32) {
        if self.board.state(rank) == RankState::Stopped {
            let state = if self.has_joined(rank) { RankState::Joined } else { RankState::Absent };
            self.set_state(rank, state);
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
                Received::NoDescriptor(record) => self.handle_cut_record(at, &record, now),
                Received::Empty => return,
                Received::Garbage => self.broken(at, now),
                Received::Closed => self.closed(at, now),
            }
        }
    }

    fn handle_record(&mut self, at: usize, message: Result<ToBroker, ParseError>, fd: Option<OwnedFd>, now: Instant) {
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
                self.gone(rank, RankState::Left, now);
            }
            (Some(rank), Ok(ToBroker::Publish { card }), None) if self.ranks[rank as usize].card.is_none() => {
                self.publish(rank, card, now);
            }
            _ => self.broken(at, now),
        }
    }

    /// A record came without its descriptor, since this process has none left.
    fn handle_cut_record(&mut self, at: usize, record: &Record, now: Instant) {
        let rank = self.connections[at].as_ref().and_then(|c| c.rank);
        match (rank, ToBroker::parse(record, 1)) {
            (Some(rank), Ok(ToBroker::Pass { to, tag })) if self.is_rank(to) => {
                self.run_short("a descriptor of a rank must wait", now);
                self.owe(to, Owed { from: rank, tag }, now);
            }
            _ => self.broken(at, now),
        }
    }

    /// Reports that this process has no descriptor left, and pauses what needs one.
    fn run_short(&mut self, what: &str, now: Instant) {
        if self.short_until.is_none() {
            if self.may_say(Cause::Short, now) {
                tracing::error!("the launcher has no file descriptor left: {what}; raise the limit (`ulimit -n`)");
            }
            self.short_until = Some(now + SHORT_RETRY);
            self.door.watch(&self.epoll, false);
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
        let origin = self.connections[at].as_ref().and_then(|c| c.origin);
        let process = self.ranks[rank as usize].process;
        if process.is_some() && origin.is_none() {
            return self.refuse(at, Refusal::Stranger, now);
        }
        if self.ranks[rank as usize].joined || self.board.state(rank).is_gone() {
            return self.refuse(at, Refusal::Taken, now);
        }
        if self.is_elsewhere(rank) || (process.is_some() && origin != process) {
            return self.refuse(at, Refusal::Process, now);
        }
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return;
        };
        connection.rank = Some(rank);
        let size = self.ranks.len() as u32;
        let secret = self.secret;
        let welcome = ToRank::Welcome { rank, size, secret };
        let welcome = Outgoing::new(&welcome, Some(self.news.clone()));
        let bells = Outgoing::new(&ToRank::Bells, Some(self.bells.clone()));
        let segment = Outgoing::new(&ToRank::Segment, Some(self.segment.clone()));
        connection.queue.extend([welcome, bells, segment]);
        let record = &mut self.ranks[rank as usize];
        record.joined = true;
        record.connection = Some(at);
        connection.queue.append(&mut record.held);
        self.stats.joined += 1;
        self.board.set_pid(rank, connection.pid);
        self.set_state(rank, RankState::Joined);
        self.flush(at, now);
    }

    fn refuse(&mut self, at: usize, why: Refusal, now: Instant) {
        match why {
            Refusal::Token => self.stats.refused_token += 1,
            Refusal::Process | Refusal::Stranger => self.stats.refused_process += 1,
            _ => self.stats.refused_other += 1,
        }
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return;
        };
        connection.closing = true;
        let refusal = Outgoing::new(&ToRank::Refused(why), None);
        connection.queue.push_back(refusal);
        self.flush(at, now);
    }

    fn connect(&mut self, rank: u32, peer: u32, now: Instant) {
        let pair = (rank.min(peer), rank.max(peer));
        if self.pairs.insert(pair) || self.board.state(peer).is_gone() {
            self.join_pair(rank, peer, now);
        }
    }

    /// Gives both ranks what they need to reach each other, or has them wait until there is room for it. `rank` has asked.
    fn join_pair(&mut self, rank: u32, peer: u32, now: Instant) {
        for (to, peer) in [(rank, peer), (peer, rank)] {
            if self.board.state(peer).is_gone() {
                self.deliver(to, &ToRank::PeerGone { peer }, None, now);
                return;
            }
        }
        if self.board.host(rank) != self.board.host(peer) {
            self.introduce(peer, rank, now);
            self.introduce(rank, peer, now);
            return;
        }
        if !self.has_room_for_channel() {
            self.channels_due.push_back((rank, peer));
            return;
        }
        if let Some(full) = [rank, peer].into_iter().find(|&it| self.is_full(it)) {
            self.ranks[full as usize].channels_due.push((rank, peer));
            return;
        }
        let pair = (rank.min(peer), rank.max(peer));
        let fd = match (self.make_channel)(pair.0, pair.1) {
            Ok(fd) => Rc::new(fd),
            Err(error) if is_short(&error) => {
                self.run_short("a channel waits to be made", now);
                self.channels_due.push_back((rank, peer));
                return;
            }
            Err(error) => {
                if self.may_say(Cause::NoChannel(rank), now) {
                    let (low, high) = pair;
                    tracing::error!("no channel between ranks {low} and {high}: {error}");
                }
                self.pairs.remove(&pair);
                self.deliver(rank, &ToRank::PeerGone { peer }, None, now);
                return;
            }
        };
        self.stats.channels += 1;
        self.deliver(rank, &ToRank::Channel { peer }, Some(fd.clone()), now);
        self.deliver(peer, &ToRank::Channel { peer: rank }, Some(fd), now);
    }

    /// Gives the card of `peer` to `rank`, now or when it is published.
    fn introduce(&mut self, peer: u32, rank: u32, now: Instant) {
        let record = &mut self.ranks[peer as usize];
        match record.card.clone() {
            Some(card) => {
                self.stats.cards += 1;
                self.deliver(rank, &ToRank::Card { peer, card }, None, now);
            }
            None => record.awaited_by.push(rank),
        }
    }

    fn publish(&mut self, rank: u32, card: Card, now: Instant) {
        self.tell_card(rank, &card);
        let record = &mut self.ranks[rank as usize];
        record.card = Some(card);
        for other in std::mem::take(&mut record.awaited_by) {
            self.introduce(rank, other, now);
        }
    }

    fn pass(&mut self, from: u32, to: u32, tag: u64, fd: OwnedFd, now: Instant) {
        self.hand_on(to, Owed { from, tag }, &fd, now);
    }

    /// Tells `from` that what it passed to `to` does not arrive. Who has left, or lets its whole queue wait, is not told: it would only
    /// log it, as the import of `to` ends with an error of its own.
    fn lose_pass(&mut self, from: u32, to: u32, tag: u64, now: Instant) {
        self.stats.pass_lost += 1;
        self.deliver(from, &ToRank::PassLost { to, tag }, None, now);
    }

    fn broken(&mut self, at: usize, now: Instant) {
        self.stats.broken += 1;
        self.say_broken(at, now);
        self.closed(at, now);
    }

    /// The connection has ended, without `Leave` if it was a rank's.
    fn closed(&mut self, at: usize, now: Instant) {
        let Some(connection) = self.drop_connection(at) else {
            return;
        };
        if let Some(rank) = connection.rank {
            let record = &mut self.ranks[rank as usize];
            record.connection = None;
            record.lost_at.get_or_insert(now);
        }
    }

    fn gone(&mut self, rank: u32, state: RankState, now: Instant) {
        let record = &mut self.ranks[rank as usize];
        record.lost_at = None;
        record.owed.clear();
        self.channels_due.extend(record.channels_due.drain(..));
        let held = std::mem::take(&mut record.held);
        self.forget_channels(&held);
        let record = &mut self.ranks[rank as usize];
        for other in std::mem::take(&mut record.awaited_by) {
            self.deliver(other, &ToRank::PeerGone { peer: rank }, None, now);
        }
        let record = &mut self.ranks[rank as usize];
        if let Some(at) = record.connection.take() {
            self.drop_connection(at);
        }
        // A rank that left cleanly stays so, unless its process then fails.
        if self.board.state(rank) != RankState::Left || state == RankState::Dead {
            self.set_state(rank, state);
        }
    }

    fn expire(&mut self, now: Instant) {
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].lost_at.is_some_and(|t| now >= t + LOST_GRACE) {
                self.gone(rank as u32, RankState::Dead, now);
            }
        }
        self.expire_silent(now);
    }
}

/// Whether the call may succeed once descriptors are free.
fn is_short(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE];
    Errno::from_io_error(error).is_some_and(|errno| short.contains(&errno))
}

impl AsFd for Broker {
    /// Readable when [`Broker::handle_ready`] has work.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
