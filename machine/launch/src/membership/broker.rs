//! The broker of a host's ranks, on a thread of the lowest of them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mapwire_host::descriptors::above_stdio;
use mapwire_host::masking;
use mapwire_host::sparing::Sparing;
use mapwire_transport::board::RankState;
use mapwire_transport::job::channels;
use mapwire_transport::rendezvous::{Broker, JobAddress, Secret, Word};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::SharedLauncher;
use crate::{Event, LaunchError};

/// How often the launcher is asked for news.
const NEWS: Duration = Duration::from_millis(200);

/// What brokers of other hosts can have said without end.
const REFUSED_WORDS: &str = "words of other hosts' brokers that were refused";

enum Order {
    /// The broker must hear this.
    Hear(Word),
    /// End when the ranks here have gone.
    Finish,
}

/// The thread. It ends with this.
#[derive(Debug)]
pub(super) struct BrokerThread {
    orders: Option<Sender<Order>>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl BrokerThread {
    /// Starts it for the ranks of host `here`. Gives where they join.
    pub(super) fn start(
        hosts: Vec<u32>,
        here: u32,
        secret: Secret,
        launcher: SharedLauncher,
    ) -> Result<(Self, JobAddress), LaunchError> {
        let os = |call| move |source| LaunchError::Os { call, source };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).and_then(above_stdio).map_err(|errno| os("eventfd")(errno.into()))?;
        let bell = Arc::new(bell);
        let (orders, heard) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let rung = Arc::clone(&bell);
        // Handlers of the program run on threads of the program.
        let masked = masking::mask();
        let thread = std::thread::Builder::new()
            .name("mapwire-broker".to_owned())
            .spawn(move || {
                masking::mask_for_good();
                // It stays on this thread, as it counts references without atomics.
                match Broker::of_host(&hosts, here, secret, channels()) {
                    Ok(broker) => {
                        let _ = tell.send(Ok(broker.address().clone()));
                        let ranks = (0..).zip(hosts).filter(|(_, host)| *host == here);
                        let ranks = ranks.map(|(rank, _)| rank).collect();
                        serve(broker, ranks, &heard, &rung, &launcher);
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                    }
                }
            })
            .map_err(os("starting a thread"))?;
        drop(masked);
        let this = Self { orders: Some(orders), bell, thread: Some(thread) };
        match told.recv() {
            Ok(address) => Ok((this, address?)),
            Err(_) => Err(os("starting a broker")(io::Error::other("its thread has ended"))),
        }
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders
            && orders.send(order).is_ok()
        {
            self.ring();
        }
    }

    fn ring(&self) {
        // It fails only when it has been rung 2^64 times.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Lets the broker hear a word of another host's rank.
    pub(super) fn tell(&self, word: Word) {
        self.order(Order::Hear(word));
    }

    /// Waits until the ranks of this host have gone.
    pub(super) fn finish(mut self) {
        self.order(Order::Finish);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for BrokerThread {
    fn drop(&mut self) {
        self.orders = None;
        self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut broker: Broker, ranks: Vec<u32>, orders: &Receiver<Order>, bell: &OwnedFd, launcher: &SharedLauncher) {
    let mut is_finishing = false;
    let mut sparing = Sparing::default();
    loop {
        let now = Instant::now();
        while let Some(left_out) = sparing.poll(now) {
            tracing::warn!("{left_out}");
        }
        broker.handle_ready(now);
        // Ranks of other hosts hear of those here by their links, and of failures by the launcher.
        while broker.poll_word().is_some() {}
        loop {
            match orders.try_recv() {
                Ok(Order::Hear(word)) => {
                    if let Err(error) = broker.handle_word(word, now)
                        && sparing.admit(REFUSED_WORDS, now)
                    {
                        tracing::warn!("{error}");
                    }
                }
                Ok(Order::Finish) => is_finishing = true,
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) if is_finishing => break,
                Err(mpsc::TryRecvError::Disconnected) => return,
            }
        }
        if hear_launcher(&mut broker, &ranks, launcher, now) {
            return;
        }
        let is_gone = |rank: &u32| broker.board().state(*rank).is_gone();
        if is_finishing && ranks.iter().all(is_gone) {
            return;
        }
        let due = broker.poll_at(now).map_or(NEWS, |at| at - now);
        let limit = Timespec::try_from(due.min(NEWS)).ok();
        let mut fds = [
            PollFd::from_borrowed_fd(broker.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN),
        ];
        // Interrupted or not, everything is looked at again.
        let _ = poll(&mut fds, limit.as_ref());
        let _ = rustix::io::read(bell, &mut [0; 8]);
    }
}

/// Passes on whose failure the launcher reports. Whether it ends the job.
fn hear_launcher(broker: &mut Broker, ranks: &[u32], launcher: &SharedLauncher, now: Instant) -> bool {
    let mut launcher = match launcher.try_lock() {
        Ok(launcher) => launcher,
        Err(TryLockError::Poisoned(launcher)) => launcher.into_inner(),
        // Whoever has it fails when the job ends.
        Err(TryLockError::WouldBlock) => return false,
    };
    while let Some(event) = launcher.poll_event() {
        match event {
            Event::Aborted => return true,
            Event::Failed(rank) if ranks.contains(&rank) => {
                broker.handle_rank_exited(rank, false, now);
            }
            Event::Failed(rank) => {
                let state = RankState::Dead;
                // It cannot fail: the rank is one of the job, and of another host.
                let _ = broker.handle_word(Word::State { rank, state }, now);
            }
        }
    }
    false
}
