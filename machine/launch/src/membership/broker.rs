//! The broker of a host's ranks, on a thread of the lowest of them.

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use mapwire_host::log_limit::LogLimit;
use mapwire_transport::board::RankState;
use mapwire_transport::job::channels;
use mapwire_transport::rendezvous::{Broker, JobAddress, Secret, Word};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::worker::{Bell, Worker};
use crate::{Event, LaunchError, Launcher};

/// The launcher, which the broker's thread asks for news while no other thread needs it.
pub(super) type SharedLauncher = Arc<Mutex<Box<dyn Launcher>>>;

const NEWS: Duration = Duration::from_millis(200);

/// What brokers of other hosts can have said without end.
const REFUSED_WORDS: &str = "words of other hosts' brokers that were refused";

#[derive(Debug)]
enum Order {
    /// The broker must hear this.
    Hear(Word),
    /// End when the ranks here have gone.
    Finish,
}

/// The thread. It ends with this.
#[derive(Debug)]
pub(super) struct BrokerThread(Worker<Order>);

impl BrokerThread {
    /// Starts it for the ranks of host `here`. Gives where they join.
    pub(super) fn start(
        hosts: Vec<u32>,
        here: u32,
        secret: Secret,
        launcher: SharedLauncher,
    ) -> Result<(Self, JobAddress), LaunchError> {
        let (tell, told) = mpsc::channel();
        let worker = Worker::start("mapwire-broker", move |orders, bell| {
            // It stays on this thread, as it counts references without atomics.
            match Broker::of_host(&hosts, here, secret, channels()) {
                Ok(broker) => {
                    let _ = tell.send(Ok(broker.address().clone()));
                    let ranks = (0..).zip(hosts).filter(|(_, host)| *host == here);
                    let ranks = ranks.map(|(rank, _)| rank).collect();
                    serve(broker, ranks, orders, bell, &launcher);
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        })?;
        match told.recv() {
            Ok(address) => Ok((Self(worker), address?)),
            Err(_) => {
                let source = io::Error::other("its thread has ended");
                Err(LaunchError::Os { call: "starting a broker", source })
            }
        }
    }

    pub(super) fn tell(&self, word: Word) {
        self.0.order(Order::Hear(word));
    }

    /// Waits until the ranks of this host have gone.
    pub(super) fn finish(self) {
        self.0.order(Order::Finish);
    }
}

fn serve(mut broker: Broker, ranks: Vec<u32>, orders: &Receiver<Order>, bell: &Bell, launcher: &SharedLauncher) {
    let mut is_finishing = false;
    let mut sparing = LogLimit::default();
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
        bell.clear();
    }
}

/// Passes failures that the launcher reports on to the broker. Returns whether the launcher ends the job.
fn hear_launcher(broker: &mut Broker, ranks: &[u32], launcher: &SharedLauncher, now: Instant) -> bool {
    let mut launcher = match launcher.try_lock() {
        Ok(launcher) => launcher,
        Err(TryLockError::Poisoned(launcher)) => launcher.into_inner(),
        // The thread that holds it notices the end of the job.
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
