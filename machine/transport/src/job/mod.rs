//! The fabric of a job: to ranks of this host rings in shared memory, and descriptors that the broker passes; to those of others
//! datagrams. The broker's news, and the board's bells.

mod bells;

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mapwire_wire::{Header, NodeId};

pub use self::bells::JobBells;
use crate::board::{Board, BrokersBoard};
use crate::fabric::{Fabric, News, Unrung};
use crate::net::{Carrier, Net, NetConfig, NetError};
use crate::ofi::{Ofi, OfiError};
use crate::payload::Payload;
use crate::rendezvous::{Card, Client, Event, JobAddress, MakeChannel, RendezvousError, ToRank};
use crate::shm::ShmTransport;
use crate::shm::channel::{Channel, ChannelError, Side};
use crate::shm::ring::RingConfig;
use crate::transport::{Abilities, Packet, ReceiveError, SendError, Transport};

/// Why a process has no place in a job.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The broker, or the board.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The ring by which a process sends to itself.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The way to other hosts.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The way to other hosts by libfabric.
    #[error(transparent)]
    Far(#[from] OfiError),
}

/// Makes the memory of channels for a broker.
#[must_use]
pub fn channels() -> MakeChannel {
    Box::new(|_, _| Channel::create(&RingConfig::default()).map_err(as_io))
}

/// The system's own error where there is one: the broker waits while there are no descriptors.
fn as_io(error: ChannelError) -> io::Error {
    match error {
        ChannelError::System { source, .. } => source.into(),
        ChannelError::Memory(error) if error.is_of_descriptors() => rustix::io::Errno::MFILE.into(),
        error => io::Error::other(error),
    }
}

/// What leads to ranks of other hosts.
#[derive(Debug)]
enum Elsewhere {
    Nowhere,
    Datagrams(Box<Net>),
    Libfabric(Box<Ofi>),
}

/// A process's place in a job: by a launcher's broker, or alone.
#[derive(Debug)]
pub struct JobFabric {
    client: Option<Client>,
    bells: Arc<JobBells>,
    size: u32,
    ring: RingConfig,
    transport: ShmTransport,
    /// Which ranks are on other hosts.
    others: Box<[bool]>,
    elsewhere: Elsewhere,
    /// Peers that a connection has been asked for.
    requested: Vec<bool>,
    /// Peers that have left or died, as the board was read.
    lost: Vec<bool>,
    uid: u32,
    seen_events: u32,
    /// The broker's socket has something, though the board does not say so.
    has_silent_news: bool,
    /// News found on the board, and descriptors that a process alone has passed to itself.
    found: VecDeque<News>,
}

impl JobFabric {
    /// Joins the job at `address` as `rank`. `net` is for ranks on other hosts, if there are any.
    ///
    /// # Errors
    /// When there is no broker, or it refuses, or does not answer within `timeout`; where the job has other hosts, [`NetError`].
    pub fn join(address: &JobAddress, rank: u32, timeout: Duration, net: &NetConfig) -> Result<Self, JoinError> {
        let client = Client::join(address, rank, timeout)?;
        let board = Arc::clone(client.board());
        let (rank, size) = (client.rank(), client.size());
        let here = board.host(rank);
        let others: Box<[bool]> = (0..size).map(|peer| board.host(peer) != here).collect();
        let me = NodeId(rank as u16);
        let elsewhere = match &net.carrier {
            _ if !others.contains(&true) => Elsewhere::Nowhere,
            Carrier::Datagrams => Elsewhere::Datagrams(Box::new(Net::open(net, me, size as usize, client.secret())?)),
            Carrier::Libfabric { provider } => {
                Elsewhere::Libfabric(Box::new(Ofi::open_for_rank(provider.as_deref(), net, me)?))
            }
        };
        if let Some(card) = elsewhere.card() {
            client.publish(card)?;
        }
        Self::new(Some(client), board, rank, others, elsewhere)
    }

    /// A job of this process alone.
    ///
    /// # Errors
    /// When its board cannot be made.
    pub fn alone() -> Result<Self, JoinError> {
        Self::without_broker(1)
    }

    /// A job of several ranks in which nobody connects them.
    ///
    /// # Errors
    /// When its board cannot be made.
    pub fn without_broker(size: u32) -> Result<Self, JoinError> {
        let (board, _) = BrokersBoard::create(&vec![0; size as usize]).map_err(RendezvousError::from)?;
        let board = Arc::new(board.into_board());
        Self::new(None, board, 0, vec![false; size as usize].into(), Elsewhere::Nowhere)
    }

    fn new(
        client: Option<Client>,
        board: Arc<Board>,
        rank: u32,
        others: Box<[bool]>,
        elsewhere: Elsewhere,
    ) -> Result<Self, JoinError> {
        let (fds, is_libfabric) = match &elsewhere {
            Elsewhere::Nowhere => (Vec::new(), false),
            Elsewhere::Datagrams(net) => (net.fds(), false),
            Elsewhere::Libfabric(ofi) => (ofi.fd().into_iter().collect(), true),
        };
        let bells = Arc::new(JobBells::new(board, rank, &fds, is_libfabric)?);
        let ring = RingConfig::default();
        let mut transport = ShmTransport::new(&ring);
        transport.connect_self(NodeId(rank as u16), &ring)?;
        Ok(Self {
            client,
            // Ranks may have left before this one joined.
            seen_events: 0,
            has_silent_news: false,
            bells,
            size: others.len() as u32,
            ring,
            transport,
            requested: vec![false; others.len()],
            lost: vec![false; others.len()],
            others,
            elsewhere,
            uid: rustix::process::getuid().as_raw(),
            found: VecDeque::new(),
        })
    }

    /// How ranks of other hosts reach this one; `None` where there are none.
    #[must_use]
    pub fn card(&self) -> Option<Card> {
        self.elsewhere.card()
    }

    fn board(&self) -> &Board {
        self.bells.board()
    }

    /// libfabric, if it leads to `peer`.
    #[inline(always)]
    fn libfabric_to(&mut self, peer: NodeId) -> Option<&mut Ofi> {
        match &mut self.elsewhere {
            Elsewhere::Libfabric(ofi) if is_in(&self.others, peer) => Some(ofi),
            _ => None,
        }
    }

    /// Looks who has left or died since the last look.
    fn look_at_board(&mut self) {
        let events = self.board().events();
        if events == self.seen_events {
            return;
        }
        self.seen_events = events;
        for rank in (0..self.size).filter(|rank| *rank != self.bells.rank()) {
            let is_lost = self.board().state(rank).is_gone();
            if is_lost && !core::mem::replace(&mut self.lost[rank as usize], true) {
                self.found.push_back(News::Lost(NodeId(rank as u16)));
            }
        }
    }

    /// Asks for the cards of ranks that have spoken, each once: their broker does not tell this rank's own.
    fn ask_for_strangers(&mut self) {
        while let Elsewhere::Libfabric(ofi) = &mut self.elsewhere
            && let Some(stranger) = ofi.poll_stranger()
        {
            if !self.abilities(stranger).rings && self.request_connection(stranger).is_err() {
                // The job has ended, which is news of its own.
                return;
            }
        }
    }

    fn news_of(&mut self, event: Event) -> News {
        let node = |rank: u32| NodeId(rank as u16);
        let (message, fd) = match event {
            Event::Message(message, fd) => (message, fd),
            Event::JobEnded => {
                let all = (0..self.size).map(|rank| News::Gone(node(rank)));
                self.found.extend(all.skip(1));
                return News::Gone(node(0));
            }
        };
        match message {
            ToRank::Channel { peer } => {
                match fd.map(|fd| Channel::open(&fd, Side::of(self.bells.rank(), peer), &self.ring)) {
                    Some(Ok(channel)) => {
                        self.transport.connect(node(peer), channel);
                        News::Connected(node(peer))
                    }
                    Some(Err(error)) => News::Unusable(node(peer), error),
                    None => News::NoDescriptor(node(peer)),
                }
            }
            ToRank::Passed { from, tag } => News::Passed { from: node(from), tag, fd },
            ToRank::PassLost { to, tag } => News::PassLost { to: node(to), tag },
            ToRank::PassAgain { to, tag } => News::PassAgain { to: node(to), tag },
            ToRank::PeerGone { peer } => News::Gone(node(peer)),
            ToRank::Card { peer, card } => match &mut self.elsewhere {
                Elsewhere::Libfabric(ofi) => match ofi.introduce(node(peer), &card) {
                    Ok(()) => News::Connected(node(peer)),
                    Err(error) => News::BadCard(node(peer), error),
                },
                Elsewhere::Datagrams(net) => match net.introduce(node(peer), &card) {
                    Ok(bytes) => News::Reached(node(peer), bytes),
                    Err(error) => News::BadCard(node(peer), error),
                },
                // Of a rank on this host: a broker does not send such a card.
                Elsewhere::Nowhere => News::Gone(node(peer)),
            },
            // The client reports no such message.
            ToRank::Welcome { .. } | ToRank::Bells | ToRank::Segment | ToRank::Refused(_) => News::Gone(self.me()),
        }
    }
}

impl Elsewhere {
    fn card(&self) -> Option<Card> {
        match self {
            Self::Nowhere => None,
            Self::Datagrams(net) => Some(net.card()),
            Self::Libfabric(ofi) => Some(ofi.card()),
        }
    }
}

/// Whether a peer is one of `others`.
#[inline(always)]
fn is_in(others: &[bool], peer: NodeId) -> bool {
    others.get(usize::from(peer.0)).is_some_and(|is_other| *is_other)
}

impl Transport for JobFabric {
    #[inline(always)]
    fn abilities(&self, peer: NodeId) -> Abilities {
        match &self.elsewhere {
            Elsewhere::Nowhere => Abilities::RINGS,
            _ if !is_in(&self.others, peer) => Abilities::RINGS,
            Elsewhere::Datagrams(_) => Abilities::DATAGRAMS,
            Elsewhere::Libfabric(ofi) => ofi.abilities(peer),
        }
    }

    #[inline]
    fn max_payload_bytes(&self) -> usize {
        self.transport.max_payload_bytes().min(match &self.elsewhere {
            Elsewhere::Nowhere => usize::MAX,
            Elsewhere::Datagrams(_) => Net::max_payload_bytes(),
            Elsewhere::Libfabric(ofi) => ofi.max_payload_bytes(),
        })
    }

    #[inline(always)]
    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        match self.libfabric_to(to) {
            Some(ofi) => ofi.send(to, header, payload),
            None => self.transport.send(to, header, payload),
        }
    }

    #[inline(always)]
    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        let Elsewhere::Libfabric(ofi) = &mut self.elsewhere else {
            return self.transport.poll_receive();
        };
        if !ofi.is_confined() {
            self.bells.begin_look();
        }
        match ofi.is_next(self.transport.has_input()) {
            true => ofi.poll_receive(),
            false => self.transport.poll_receive(),
        }
    }

    #[inline(always)]
    fn release(&mut self, from: NodeId) {
        match self.libfabric_to(from) {
            Some(ofi) => ofi.release(from),
            None => self.transport.release(from),
        }
    }

    #[inline]
    fn has_input(&mut self) -> bool {
        let has_input = self.transport.has_input() || self.bells.is_due();
        match &mut self.elsewhere {
            Elsewhere::Libfabric(ofi) => has_input || ofi.has_input(),
            _ => has_input,
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.transport.flush();
        if let Elsewhere::Libfabric(ofi) = &mut self.elsewhere {
            ofi.flush();
        }
    }

    #[inline]
    fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        match self.libfabric_to(to) {
            Some(ofi) => ofi.drained(to),
            None => self.transport.drained(to),
        }
    }

    fn disconnect(&mut self, peer: NodeId) {
        match self.libfabric_to(peer) {
            Some(ofi) => ofi.disconnect(peer),
            None => self.transport.disconnect(peer),
        }
    }
}

impl Fabric for JobFabric {
    type Bells = JobBells;

    #[inline]
    fn me(&self) -> NodeId {
        NodeId(self.bells.rank() as u16)
    }

    fn size(&self) -> usize {
        self.size as usize
    }

    fn uid(&self) -> u32 {
        self.uid
    }

    fn bells(&self) -> &Arc<JobBells> {
        &self.bells
    }

    #[inline]
    fn datagrams(&mut self) -> Option<&mut Net> {
        match &mut self.elsewhere {
            Elsewhere::Datagrams(net) => Some(net),
            _ => None,
        }
    }

    #[inline]
    fn library(&mut self) -> Option<&mut Ofi> {
        match &mut self.elsewhere {
            Elsewhere::Libfabric(ofi) if ofi.may_reach_memory() => Some(ofi),
            _ => None,
        }
    }

    fn provider(&self) -> Option<&str> {
        match &self.elsewhere {
            Elsewhere::Libfabric(ofi) => Some(ofi.provider()),
            _ => None,
        }
    }

    fn unrung(&self) -> Option<Unrung> {
        match &self.elsewhere {
            Elsewhere::Libfabric(ofi) if ofi.fd().is_some() => Some(Unrung::Watched),
            Elsewhere::Libfabric(_) => Some(Unrung::Blind),
            _ => None,
        }
    }

    fn look(&mut self) {
        if let Elsewhere::Libfabric(ofi) = &mut self.elsewhere {
            ofi.progress();
        }
    }

    #[inline]
    fn has_packet(&mut self) -> bool {
        matches!(self.elsewhere, Elsewhere::Libfabric(_)) || self.transport.has_packet()
    }

    fn set_confined(&mut self, on: bool) {
        if let Elsewhere::Libfabric(ofi) = &mut self.elsewhere {
            ofi.set_confined(on);
        }
    }

    #[inline]
    fn begin_look(&self) {
        self.bells.begin_look();
    }

    #[inline]
    fn has_news(&self) -> bool {
        !self.found.is_empty()
            || self.has_silent_news
            || self.client.as_ref().is_some_and(Client::has_news)
            || self.board().events() != self.seen_events
            || matches!(&self.elsewhere, Elsewhere::Libfabric(ofi) if ofi.has_strangers())
    }

    fn look_for_end(&mut self) {
        let has_something = self.client.as_ref().is_some_and(Client::is_readable);
        self.has_silent_news |= has_something;
    }

    fn poll_news(&mut self) -> Option<News> {
        if let Some(found) = self.found.pop_front() {
            return Some(found);
        }
        if self.has_silent_news {
            match self.client.as_mut().and_then(Client::poll_socket) {
                Some(event) => return Some(self.news_of(event)),
                None => self.has_silent_news = false,
            }
        }
        if let Some(event) = self.client.as_mut().and_then(Client::poll) {
            return Some(self.news_of(event));
        }
        self.ask_for_strangers();
        self.look_at_board();
        self.found.pop_front()
    }

    fn request_connection(&mut self, to: NodeId) -> Result<(), RendezvousError> {
        let Some(requested) = self.requested.get_mut(usize::from(to.0)) else {
            return Ok(());
        };
        if !*requested && let Some(client) = &self.client {
            *requested = true;
            client.connect(u32::from(to.0))?;
        }
        Ok(())
    }

    fn pass(&mut self, to: NodeId, tag: u64, fd: BorrowedFd<'_>) -> Result<(), RendezvousError> {
        if let Some(client) = &self.client {
            return client.pass(u32::from(to.0), tag, fd);
        }
        if to != self.me() {
            return Err(RendezvousError::JobEnded);
        }
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 3)
            .map_err(|errno| RendezvousError::Os { call: "fcntl(F_DUPFD_CLOEXEC)", errno })?;
        self.found.push_back(News::Passed { from: to, tag, fd: Some(fd) });
        Ok(())
    }

    fn leave(&mut self) -> Result<(), RendezvousError> {
        self.client.take().map_or(Ok(()), Client::leave)
    }

    fn peers(&self) -> &[NodeId] {
        self.transport.peers()
    }

    fn acquaintances(&mut self) -> Vec<NodeId> {
        let mut peers = self.transport.peers().to_vec();
        match &self.elsewhere {
            Elsewhere::Nowhere => {}
            Elsewhere::Datagrams(net) => {
                peers.extend((0..self.size).map(|rank| NodeId(rank as u16)).filter(|&peer| net.knows(peer)));
            }
            Elsewhere::Libfabric(ofi) => peers.extend(ofi.peers()),
        }
        peers
    }

    fn most_waiting(&self) -> usize {
        self.ring.slots as usize
    }

    #[inline]
    fn has_next(&mut self, from: NodeId) -> bool {
        match self.libfabric_to(from) {
            Some(ofi) => ofi.has_next(from),
            None => self.transport.has_next(from),
        }
    }

    fn bury(&mut self) {
        self.transport.bury();
    }
}

#[cfg(test)]
mod tests {
    use mapwire_host::memory::MemoryError;

    use super::*;

    #[test]
    fn a_channel_without_a_descriptor_is_known_as_such() {
        let of_memory = ChannelError::Memory(MemoryError::of_call("memfd_create", 1, rustix::io::Errno::MFILE));
        let of_system = ChannelError::System { len_bytes: 1, source: rustix::io::Errno::MFILE };
        for error in [of_memory, of_system] {
            assert_eq!(as_io(error).raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
        }
    }
}
