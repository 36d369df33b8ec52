//! The fabric of a job: to ranks of this host rings in shared memory, and descriptors that the broker passes; to those of others
//! datagrams. The broker's news, and the board's bells.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use mapwire_host::masking;
use mapwire_host::waiting::{EitherWait, Woken};
use mapwire_wire::{Header, NodeId};

use crate::bells::{Sleeper, Slept, Wake};
use crate::board::{Board, BrokersBoard, Figures, RankState};
use crate::fabric::{Doorbells, Fabric, News, Unrung};
use crate::far::Far;
use crate::net::{Alarm, Carrier, Net, NetConfig, NetError};
use crate::ofi::{Ofi, OfiError};
use crate::payload::Payload;
use crate::rendezvous::{Card, Client, Event, JobAddress, MakeChannel, RendezvousError};
use crate::rousing::Rousing;
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

/// What makes the memory of channels, for a broker.
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

/// The board, with the rank whose threads sleep by it.
#[derive(Debug)]
pub struct JobBells {
    board: Arc<Board>,
    rank: u32,
    rousing: Rousing,
    /// There where datagrams come.
    alarm: Option<Alarm>,
    /// Where a thread sleeps on its bell and on the sockets at once, if the kernel can do that.
    either: Option<Mutex<EitherWait>>,
    /// What comes is libfabric's: a thread in the page-fault handler must leave it to others.
    is_far: bool,
}

impl Doorbells for JobBells {
    #[inline]
    fn enter_polling(&self) {
        self.board.enter_polling(self.rank);
    }

    #[inline]
    fn keep_polling(&self) {
        self.board.keep_polling(self.rank);
    }

    #[inline]
    fn leave_polling(&self) -> bool {
        let is_last = self.board.leave_polling(self.rank);
        if is_last && let Some(alarm) = &self.alarm {
            if !masking::is_library_thread() {
                alarm.count_leave();
            }
            alarm.handle_left();
        }
        is_last
    }

    fn is_polling(&self) -> bool {
        self.board.is_polling()
    }

    #[inline]
    fn ring(&self, peer: NodeId) {
        let peer = u32::from(peer.0);
        self.rousing.handle_rung(peer, self.board.ring(peer));
    }

    #[inline]
    fn hint(&self, peer: NodeId) {
        let peer = u32::from(peer.0);
        self.rousing.handle_rung(peer, self.board.hint(peer));
    }

    fn rouse(&self, peer: NodeId) {
        let peer = u32::from(peer.0);
        if self.rousing.is_wise() && self.board.rouse(peer) {
            self.rousing.handle_roused(peer);
        }
    }

    fn wake(&self, peer: NodeId, who: Wake) {
        self.board.wake(u32::from(peer.0), who);
    }

    fn service_rings(&self) -> u32 {
        self.board.service_rings(self.rank)
    }

    fn sleep(
        &self,
        sleeper: Sleeper,
        mut recheck: impl FnMut(bool) -> bool,
        timeout: Option<Duration>,
        nap: impl FnMut() -> Duration,
    ) -> Slept {
        let Some(alarm) = &self.alarm else {
            return self.board.sleep(self.rank, sleeper, recheck, timeout, nap);
        };
        let may_attend = !(self.is_far && masking::is_in_fault_handler());
        if sleeper == Sleeper::Waiting
            && may_attend
            && let Some(mut either) = self.attend()
        {
            alarm.begin_attending();
            let wait = |bell: &AtomicU32, seen, limit| {
                let woken = either.wait(bell, seen, limit);
                if woken == Woken::Woken {
                    alarm.set_due();
                }
                woken
            };
            let slept = (self.board).sleep_by(wait, self.rank, sleeper, recheck, timeout, nap);
            alarm.end_attending();
            return slept;
        }
        let recheck = |was_nap| {
            // Whatever the thread does next: what comes from here on is heard.
            let found = recheck(was_nap);
            match sleeper {
                Sleeper::Waiting => alarm.arm(self.board.is_polling()),
                Sleeper::Service => alarm.arm_for_service(self.board.is_polling()),
            }
            found
        };
        self.board.sleep(self.rank, sleeper, recheck, timeout, nap)
    }

    fn state(&self, peer: NodeId) -> RankState {
        self.board.state(u32::from(peer.0))
    }

    fn show_openings(&self, count: u32) {
        self.board.show_openings(self.rank, count);
    }

    fn openings(&self, peer: NodeId) -> Option<u32> {
        let (peer, board) = (u32::from(peer.0), &self.board);
        (board.host(peer) == board.host(self.rank)).then(|| board.openings(peer))
    }

    fn publish(&self, figures: &Figures) {
        self.board.publish(self.rank, figures);
    }
}

impl JobBells {
    /// Takes the place of the thread that sleeps on the sockets, unless another has it.
    fn attend(&self) -> Option<MutexGuard<'_, EitherWait>> {
        match self.either.as_ref()?.try_lock() {
            Ok(either) => Some(either),
            Err(TryLockError::Poisoned(either)) => Some(either.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A process's place in a job: by a launcher's broker, or alone.
#[derive(Debug)]
pub struct JobFabric {
    client: Option<Client>,
    bells: Arc<JobBells>,
    size: u32,
    ring: RingConfig,
    transport: ShmTransport,
    /// Which ranks are on other hosts. One of the next two is there when any is.
    others: Box<[bool]>,
    net: Option<Box<Net>>,
    far: Option<Box<Far>>,
    /// Peers that a connection has been asked for.
    requested: Vec<bool>,
    /// Peers that have left or died, as the board was read.
    lost: Vec<bool>,
    uid: u32,
    seen_events: u32,
    /// The broker's socket has something, though the board does not say so.
    has_silent_news: bool,
    /// What was found in the board, and what a process alone has passed to itself.
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
        let (mut datagrams, mut far) = (None, None);
        match &net.carrier {
            _ if !others.contains(&true) => {}
            Carrier::Datagrams => {
                let net = Net::open(net, me, size as usize, client.secret())?;
                client.publish(net.card())?;
                datagrams = Some(Box::new(net));
            }
            Carrier::Libfabric { provider } => {
                let opened = Far::open(provider.as_deref(), net, me)?;
                client.publish(opened.card())?;
                far = Some(Box::new(opened));
            }
        }
        Self::new(Some(client), board, rank, others, (datagrams, far))
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
        let (board, _files) = BrokersBoard::create(&vec![0; size as usize]).map_err(RendezvousError::from)?;
        let board = Arc::new(board.into_board());
        Self::new(None, board, 0, vec![false; size as usize].into(), (None, None))
    }

    fn new(
        client: Option<Client>,
        board: Arc<Board>,
        rank: u32,
        others: Box<[bool]>,
        (net, far): (Option<Box<Net>>, Option<Box<Far>>),
    ) -> Result<Self, JoinError> {
        let is_far = far.is_some();
        let fds = match (&net, &far) {
            (Some(net), _) => net.fds(),
            (None, far) => far.iter().filter_map(|far| far.fd()).collect(),
        };
        let alarm = match &fds[..] {
            [] => None,
            fds => {
                let (rung, polled) = (Arc::clone(&board), Arc::clone(&board));
                let ring = move || {
                    if !is_far {
                        rung.ring(rank);
                    } else if !rung.is_polling() {
                        // A thread that waits in the page-fault handler may not take what has come.
                        rung.wake(rank, Wake::All);
                    }
                };
                let is_polling = move || polled.is_polling();
                Some(Alarm::start(fds, ring, is_polling).map_err(NetError::Watch)?)
            }
        };
        let either = match &fds[..] {
            [] => None,
            fds => EitherWait::new(fds),
        };
        let ring = RingConfig::default();
        let mut transport = ShmTransport::new(&ring);
        transport.connect_self(NodeId(rank as u16), &ring)?;
        Ok(Self {
            client,
            seen_events: board.events(),
            has_silent_news: false,
            bells: Arc::new(JobBells {
                board,
                rank,
                rousing: Rousing::default(),
                alarm,
                either: either.map(Mutex::new),
                is_far,
            }),
            size: others.len() as u32,
            ring,
            transport,
            requested: vec![false; others.len()],
            lost: vec![false; others.len()],
            others,
            net,
            far,
            uid: rustix::process::getuid().as_raw(),
            found: VecDeque::new(),
        })
    }

    /// How ranks of other hosts reach this one; `None` where there are none.
    #[must_use]
    pub fn card(&self) -> Option<Card> {
        let far = self.far.as_ref().map(|far| far.card());
        far.or_else(|| self.net.as_ref().map(|net| net.card()))
    }

    fn board(&self) -> &Board {
        &self.bells.board
    }

    /// Looks who has left or died since the last look.
    fn look_at_board(&mut self) {
        let events = self.board().events();
        if events == self.seen_events {
            return;
        }
        self.seen_events = events;
        for rank in (0..self.size).filter(|rank| *rank != self.bells.rank) {
            let is_lost = self.board().state(rank).is_gone();
            if is_lost && !core::mem::replace(&mut self.lost[rank as usize], true) {
                self.found.push_back(News::Lost(NodeId(rank as u16)));
            }
        }
    }

    /// Asks for the cards of ranks that have spoken, each once: their broker does not tell this rank's own.
    fn meet_strangers(&mut self) {
        while let Some(stranger) = self.far.as_mut().and_then(|far| far.poll_stranger()) {
            if !self.abilities(stranger).rings && self.request_connection(stranger).is_err() {
                // The job has ended, which is news of its own.
                return;
            }
        }
    }

    fn news_of(&mut self, event: Event) -> News {
        let node = |rank: u32| NodeId(rank as u16);
        match event {
            Event::Channel { peer, fd } => {
                let side = Side::of(self.bells.rank, peer);
                match Channel::open(&fd, side, &self.ring) {
                    Ok(channel) => {
                        self.transport.connect(node(peer), channel);
                        News::Connected(node(peer))
                    }
                    Err(error) => News::Unusable(node(peer), error),
                }
            }
            Event::Passed { from, tag, fd } => News::Passed { from: node(from), tag, fd: Some(fd) },
            Event::NoDescriptor { from, tag: Some(tag) } => News::Passed { from: node(from), tag, fd: None },
            Event::NoDescriptor { from, tag: None } => News::NoDescriptor(node(from)),
            Event::PassLost { to, tag } => News::PassLost { to: node(to), tag },
            Event::PassAgain { to, tag } => News::PassAgain { to: node(to), tag },
            Event::PeerGone { peer } => News::Gone(node(peer)),
            Event::Card { peer, card } => match (&mut self.net, &mut self.far) {
                (_, Some(far)) => match far.introduce(node(peer), &card) {
                    Ok(()) => News::Connected(node(peer)),
                    Err(error) => News::BadCard(node(peer), error),
                },
                (Some(net), None) => match net.introduce(node(peer), &card) {
                    Ok(bytes) => News::Reached(node(peer), bytes),
                    Err(error) => News::BadCard(node(peer), error),
                },
                // Of a rank on this host, which a broker does not say.
                (None, None) => News::Gone(node(peer)),
            },
            Event::JobEnded => {
                let all = (0..self.size).map(|rank| News::Gone(node(rank)));
                self.found.extend(all.skip(1));
                News::Gone(node(0))
            }
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
        match (&self.far, &self.net) {
            (None, None) => Abilities::RINGS,
            _ if !is_in(&self.others, peer) => Abilities::RINGS,
            (Some(far), _) => far.abilities(peer),
            (None, Some(_)) => Abilities::DATAGRAMS,
        }
    }

    #[inline]
    fn max_payload_bytes(&self) -> usize {
        let ring = self.transport.max_payload_bytes();
        match (&self.net, &self.far) {
            (Some(_), _) => ring.min(Net::max_payload_bytes()),
            (None, Some(far)) => ring.min(far.max_payload_bytes()),
            (None, None) => ring,
        }
    }

    #[inline(always)]
    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        match &mut self.far {
            Some(far) if is_in(&self.others, to) => far.send(to, header, payload),
            _ => self.transport.send(to, header, payload),
        }
    }

    #[inline(always)]
    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        let Some(far) = &mut self.far else {
            return self.transport.poll_receive();
        };
        if let Some(alarm) = &self.bells.alarm
            && !far.is_confined()
        {
            alarm.begin_look();
        }
        match far.is_next(self.transport.has_input()) {
            true => far.poll_receive(),
            false => self.transport.poll_receive(),
        }
    }

    #[inline(always)]
    fn release(&mut self, from: NodeId) {
        match &mut self.far {
            Some(far) if is_in(&self.others, from) => far.release(from),
            _ => self.transport.release(from),
        }
    }

    #[inline]
    fn has_input(&self) -> bool {
        self.transport.has_input()
            || self.bells.alarm.as_ref().is_some_and(Alarm::is_due)
            || self.far.as_ref().is_some_and(|far| far.has_input())
    }

    #[inline]
    fn flush(&mut self) {
        self.transport.flush();
        if let Some(far) = &mut self.far {
            far.flush();
        }
    }

    #[inline]
    fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        match &mut self.far {
            Some(far) if is_in(&self.others, to) => far.drained(to),
            _ => self.transport.drained(to),
        }
    }

    fn disconnect(&mut self, peer: NodeId) {
        match &mut self.far {
            Some(far) if is_in(&self.others, peer) => far.disconnect(peer),
            _ => self.transport.disconnect(peer),
        }
    }
}

impl Fabric for JobFabric {
    type Bells = JobBells;

    #[inline]
    fn me(&self) -> NodeId {
        NodeId(self.bells.rank as u16)
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
        self.net.as_deref_mut()
    }

    #[inline]
    fn library(&mut self) -> Option<&mut Ofi> {
        self.far.as_mut()?.memory()
    }

    fn provider(&self) -> Option<&str> {
        self.far.as_ref().map(|far| far.provider())
    }

    fn unrung(&self) -> Option<Unrung> {
        self.far.as_ref().map(|far| match far.fd() {
            Some(_) => Unrung::Watched,
            None => Unrung::Blind,
        })
    }

    fn look(&mut self) {
        if let Some(far) = &self.far {
            far.look();
        }
    }

    #[inline]
    fn has_packet(&self) -> bool {
        self.far.is_some() || self.transport.has_packet()
    }

    fn set_confined(&mut self, on: bool) {
        if let Some(far) = &mut self.far {
            far.set_confined(on);
        }
    }

    #[inline]
    fn begin_look(&self) {
        if let Some(alarm) = &self.bells.alarm {
            alarm.begin_look();
        }
    }

    #[inline]
    fn has_news(&self) -> bool {
        !self.found.is_empty()
            || self.has_silent_news
            || self.client.as_ref().is_some_and(Client::has_news)
            || self.board().events() != self.seen_events
            || self.far.as_ref().is_some_and(|far| far.has_strangers())
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
        self.meet_strangers();
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
        if let Some(far) = &mut self.far {
            peers.extend(far.peers());
        }
        if let Some(net) = &self.net {
            peers.extend((0..self.size).map(|rank| NodeId(rank as u16)).filter(|&peer| net.knows(peer)));
        }
        peers
    }

    fn most_waiting(&self) -> usize {
        self.ring.slots as usize
    }

    #[inline]
    fn has_next(&mut self, from: NodeId) -> bool {
        match &mut self.far {
            Some(far) if is_in(&self.others, from) => far.has_next(from),
            _ => self.transport.has_next(from),
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
