//! A rank's side of the rendezvous.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::message::{Card, ParseError, Refusal, Secret, ToBroker, ToRank};
use super::socket::{self, Received};
use super::{JobAddress, RendezvousError};
use crate::board::{Board, RankState};
use crate::local::{self, Credentials};

/// How long a request may wait for a broker that does not take it. It always takes them, unless it
/// is stopped.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections that a rank makes, one after the other, where the broker closes them without a word.
const ATTEMPTS: usize = 3;

#[derive(Debug)]
pub enum Event {
    /// A message about peers, and the descriptor that it carries. Nothing of what a descriptor names is checked. `None` where the message
    /// carries one: it was lost, since this process has no free one (`ulimit -n`).
    Message(ToRank, Option<OwnedFd>),
    /// The broker has gone: the job is over. Reported once.
    JobEnded,
}

/// A rank's connection to the broker.
///
/// [`Client::poll`] is free of system calls while nothing waits. Requests ([`Client::connect`],
/// [`Client::pass`]) return at once; their answers are events. Dropping the client without
/// [`Client::leave`] tells the job that this rank died.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    board: Arc<Board>,
    rank: u32,
    secret: Secret,
    /// The board's mail count up to which the socket has been emptied.
    seen_mail: u32,
    /// The broker has gone, and that was said.
    reported_end: bool,
}

impl Client {
    /// Joins the job at `address` as `rank`. Blocks until the broker answers.
    ///
    /// # Errors
    /// No broker, one that refuses, one that is silent for `timeout`, or an unusable board.
    pub fn join(address: &JobAddress, rank: u32, timeout: Duration) -> Result<Self, RendezvousError> {
        let deadline = Instant::now() + timeout;
        for _ in 1..ATTEMPTS {
            match Self::attempt(address, rank, deadline, timeout) {
                // It may have been taken for one that says nothing. If the launcher has ended nobody listens now.
                Err(RendezvousError::JobEnded) => {}
                outcome => return outcome,
            }
        }
        Self::attempt(address, rank, deadline, timeout)
    }

    fn attempt(address: &JobAddress, rank: u32, deadline: Instant, timeout: Duration) -> Result<Self, RendezvousError> {
        let socket = local::connect(&address.socket(), timeout).map_err(|(call, errno)| match call {
            "connect" => RendezvousError::Unreachable(errno),
            call => RendezvousError::Os { call, errno },
        })?;
        let broker = Credentials::of(&socket)?;
        if !address.trusts(broker.user) {
            return Err(RendezvousError::ForeignBroker(broker.user));
        }
        let hello = ToBroker::Hello { rank, pid: std::process::id(), token: *address.token() }.encode();
        match socket::send(&socket, &hello, None) {
            // A broker that refuses at the door has closed by now; its answer may still wait.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => return Err(RendezvousError::Unreachable(errno)),
        }
        let next = || Self::read_admission(&socket, rank, deadline, timeout);
        let (ToRank::Welcome { rank: named, size, secret }, news) = next()? else {
            return Err(RendezvousError::Protocol("no welcome"));
        };
        let (ToRank::Bells, bells) = next()? else {
            return Err(RendezvousError::Protocol("no bells"));
        };
        let (ToRank::Segment, segment) = next()? else {
            return Err(RendezvousError::Protocol("no shared memory"));
        };
        if named != rank {
            return Err(RendezvousError::Protocol("welcome for another rank"));
        }
        let board = Board::open(bells.as_fd(), news.as_fd(), Some(segment))?;
        if board.ranks() != size || rank >= size {
            return Err(RendezvousError::Protocol("board and welcome disagree on the job's size"));
        }
        Ok(Self { socket, board: Arc::new(board), rank, secret, seen_mail: 0, reported_end: false })
    }

    /// The next message of those that admit a rank; each carries a descriptor.
    fn read_admission(
        socket: &OwnedFd,
        rank: u32,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<(ToRank, OwnedFd), RendezvousError> {
        loop {
            match socket::receive(socket) {
                Received::Empty => {}
                Received::Closed => return Err(RendezvousError::JobEnded),
                Received::Garbage => return Err(RendezvousError::Protocol("garbage")),
                Received::NoDescriptor(_) => return Err(("recvmsg", Errno::MFILE).into()),
                Received::Record { record, fd, fds } => {
                    return match (ToRank::parse(&record, fds), fd) {
                        (Ok(message), Some(fd)) => Ok((message, fd)),
                        (Ok(ToRank::Refused(why)), _) => Err(RendezvousError::Refused { rank, why }),
                        (Err(ParseError::Version(_)), _) => {
                            Err(RendezvousError::Refused { rank, why: Refusal::Version })
                        }
                        _ => Err(RendezvousError::Protocol("no admission")),
                    };
                }
            }
            if !local::wait_for(socket, PollFlags::IN, Some(deadline))? {
                return Err(RendezvousError::Timeout {
                    what: "joining the job".into(),
                    rank,
                    after: timeout,
                    states: "unknown".into(),
                });
            }
        }
    }

    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.board.ranks()
    }

    #[must_use]
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Whether [`Client::poll`] would look at the socket: the cheap test for polling loops and for
    /// the recheck of a sleep.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.board.mail(self.rank) != self.seen_mail
    }

    /// The next event, if one waits. No system call while the board's mail count stands still;
    /// call it until it gives `None`.
    pub fn poll(&mut self) -> Option<Event> {
        if self.has_news() { self.poll_socket() } else { None }
    }

    /// Whether the socket has something: a message, or the end of a broker that could not say so any more. A system call.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        !self.reported_end && matches!(local::wait_for(&self.socket, PollFlags::IN, Some(Instant::now())), Ok(true))
    }

    /// Like [`Client::poll`], but always looks at the socket: for a loop that sleeps in the kernel
    /// on [`Client::as_fd`].
    pub fn poll_socket(&mut self) -> Option<Event> {
        // The broker broke the protocol: nothing that follows is read.
        if self.reported_end {
            return None;
        }
        let mail = self.board.mail(self.rank);
        let (message, fd) = match socket::receive(&self.socket) {
            Received::Record { record, fd, fds } => (ToRank::parse(&record, fds), fd),
            Received::NoDescriptor(record) => (ToRank::parse(&record, 1), None),
            Received::Empty => {
                // What was counted before this look has been read.
                self.seen_mail = mail;
                return None;
            }
            Received::Garbage | Received::Closed => return self.closed(),
        };
        match message {
            Ok(message) if self.is_news(&message) => Some(Event::Message(message, fd)),
            // A broker that breaks the protocol is as good as gone.
            _ => self.closed(),
        }
    }

    /// Whether a message is about peers, and they are of this job.
    fn is_news(&self, message: &ToRank) -> bool {
        match *message {
            ToRank::Channel { peer } | ToRank::PeerGone { peer } | ToRank::Card { peer, .. } => self.is_peer(peer),
            ToRank::Passed { from: rank, .. }
            | ToRank::PassLost { to: rank, .. }
            | ToRank::PassAgain { to: rank, .. } => rank < self.size(),
            ToRank::Welcome { .. } | ToRank::Bells | ToRank::Segment | ToRank::Refused(_) => false,
        }
    }

    fn closed(&mut self) -> Option<Event> {
        self.seen_mail = self.board.mail(self.rank);
        if std::mem::replace(&mut self.reported_end, true) { None } else { Some(Event::JobEnded) }
    }

    fn is_peer(&self, peer: u32) -> bool {
        peer < self.size() && peer != self.rank
    }

    fn check_peer(&self, peer: u32) -> Result<(), RendezvousError> {
        if self.is_peer(peer) {
            return Ok(());
        }
        Err(RendezvousError::NoSuchPeer { peer, rank: self.rank, size: self.size() })
    }

    /// The job's secret, known to its ranks alone.
    #[must_use]
    pub fn secret(&self) -> Secret {
        self.secret
    }

    /// Tells the job how ranks of other hosts reach this one: once.
    ///
    /// # Errors
    /// The broker has gone.
    pub fn publish(&self, card: Card) -> Result<(), RendezvousError> {
        self.request(&ToBroker::Publish { card }, None)
    }

    /// Asks for the channel to `peer`, or for its card where it is on another host: [`ToRank::Channel`], [`ToRank::Card`] or
    /// [`ToRank::PeerGone`] follows, unless it has been reported already. `peer` need not have joined: the channel can be filled
    /// before.
    ///
    /// # Errors
    /// No such peer, or the broker has gone.
    pub fn connect(&self, peer: u32) -> Result<(), RendezvousError> {
        self.check_peer(peer)?;
        self.request(&ToBroker::Connect { peer }, None)
    }

    /// Hands a copy of `fd` to rank `to` under `tag`. It arrives, or one of [`ToRank::PassLost`] and [`ToRank::PassAgain`] comes: while
    /// `to` reads too little, or has not joined, the broker keeps nothing of it but the tag, and asks for it later. The rank may
    /// pass to itself.
    ///
    /// # Errors
    /// No such rank, or the broker has gone. That `to` has gone is reported later, by
    /// [`ToRank::PassLost`].
    pub fn pass(&self, to: u32, tag: u64, fd: BorrowedFd<'_>) -> Result<(), RendezvousError> {
        if to != self.rank {
            self.check_peer(to)?;
        }
        self.request(&ToBroker::Pass { to, tag }, Some(fd))
    }

    /// Tells the job that this rank is done. Peers see [`RankState::Left`].
    ///
    /// # Errors
    /// The broker has gone, which a leaving rank may ignore.
    pub fn leave(self) -> Result<(), RendezvousError> {
        self.request(&ToBroker::Leave, None)
    }

    fn request(&self, message: &ToBroker, fd: Option<BorrowedFd<'_>>) -> Result<(), RendezvousError> {
        let deadline = Instant::now() + SEND_TIMEOUT;
        loop {
            match socket::send(&self.socket, &message.encode(), fd) {
                Ok(()) => return Ok(()),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                    return Err(RendezvousError::JobEnded);
                }
                Err(Errno::AGAIN) => {
                    if !local::wait_for(&self.socket, PollFlags::OUT, Some(deadline))? {
                        return Err(self.timeout("handing a request to the launcher", SEND_TIMEOUT));
                    }
                }
                // Too many descriptors of this user are under way; the broker takes them off soon.
                Err(Errno::TOOMANYREFS) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(errno) => return Err(("sendmsg", errno).into()),
            }
        }
    }

    /// Waits for the next event, asleep in the kernel.
    ///
    /// # Errors
    /// [`RendezvousError::Timeout`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Event, RendezvousError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(event) = self.poll_socket() {
                return Ok(event);
            }
            if self.reported_end {
                return Err(RendezvousError::JobEnded);
            }
            if !local::wait_for(&self.socket, PollFlags::IN, Some(deadline))? {
                return Err(self.timeout("an answer of the launcher", timeout));
            }
        }
    }

    fn timeout(&self, what: &str, after: Duration) -> RendezvousError {
        RendezvousError::Timeout { what: what.into(), rank: self.rank, after, states: describe_states(&self.board) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Not only closed: a forked child may still hold the socket.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

impl AsFd for Client {
    /// Readable when events wait; for loops that sleep in the kernel.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Ranks by state, for messages that must say which rank is missing: "joined 0 1, absent 3".
fn describe_states(board: &Board) -> String {
    let mut parts = Vec::new();
    let all = [RankState::Joined, RankState::Absent, RankState::Left, RankState::Dead, RankState::Stopped];
    for state in all {
        let ranks: Vec<String> =
            (0..board.ranks()).filter(|r| board.state(*r) == state).map(|r| r.to_string()).collect();
        if !ranks.is_empty() {
            parts.push(format!("{state} {}", ranks.join(" ")));
        }
    }
    parts.join(", ")
}
