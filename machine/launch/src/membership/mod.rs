//! A mapwire job among the ranks that a foreign launcher started.
//!
//! `mapwire run` has a process beside the ranks for the rendezvous. Here there is none, so the lowest rank of each host runs the
//! host's broker on a thread. What ranks of several hosts must know of each other goes by the launcher's exchange of values:
//!
//! | key | put by | value |
//! |---|---|---|
//! | `introduction` | every rank | its host, version and whether it seals ([`introduction`]) |
//! | `secret` | rank 0, unless [all know it](Launcher::secret) | the job's secret |
//! | `broker` | the lowest rank of each host | where its broker listens, and the token |
//! | `card` | every rank that has peers on other hosts | how they reach it |
//!
//! A process that can read these values can join the job, unless the secret is not among them.

mod broker;
mod introduction;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mapwire_transport::board::{BoardError, MAX_RANKS};
use mapwire_transport::net::NetConfig;
use mapwire_transport::rendezvous::{Card, JobAddress, Secret, Word};

use crate::{Detected, Event, LaunchError, Launcher};
use broker::{BrokerThread, SharedLauncher};
use introduction::Introduction;

const INTRODUCTION: &str = "introduction";
const SECRET: &str = "secret";
const BROKER: &str = "broker";
const CARD: &str = "card";

/// A rank's membership in a job that another launcher than `mapwire run` started.
///
/// [`Membership::begin`], then join at [`address`](Self::address), then [`exchange_cards`](Self::exchange_cards), and at the end
/// [`finish`](Self::finish); all ranks alike. One that is dropped before ends the job of this host's ranks if this rank has their
/// broker.
#[derive(Debug)]
pub struct Membership {
    launcher: SharedLauncher,
    address: JobAddress,
    rank: u32,
    hosts: Vec<u32>,
    broker: Option<BrokerThread>,
    has_lost_first: AtomicBool,
}

impl Membership {
    /// Joins the launcher, and learns of the other ranks. All must begin within `timeout`. `net`: how this rank reaches other hosts; all
    /// must agree.
    ///
    /// # Errors
    /// The launcher's; ranks of another version, or that disagree; no broker can be started.
    pub fn begin(detected: &Detected, net: &NetConfig, timeout: Duration) -> Result<Self, LaunchError> {
        let mut launcher = detected.join(timeout)?;
        let (rank, size) = (launcher.rank(), launcher.size());
        if size > MAX_RANKS {
            return Err(BoardError::Ranks(size).into());
        }
        let own = Introduction::of_this_process(net);
        launcher.put(INTRODUCTION, own.to_text().as_bytes())?;
        let known = launcher.secret();
        if rank == 0 && known.is_none() {
            launcher.put(SECRET, &mapwire_transport::local::random::<32>()?)?;
        }
        launcher.fence(timeout)?;
        let mut all = Vec::with_capacity(size as usize);
        for peer in 0..size {
            let said = needed(&mut *launcher, peer, INTRODUCTION, timeout)?;
            let said = Introduction::parse(&said).ok_or(LaunchError::Stranger { rank: peer })?;
            own.check(peer, &said)?;
            all.push(said);
        }
        let secret = match known {
            Some(secret) => secret,
            None => {
                let secret = needed(&mut *launcher, 0, SECRET, timeout)?;
                let secret = <[u8; 32]>::try_from(&secret[..]).map(Secret);
                secret.map_err(|_| LaunchError::Stranger { rank: 0 })?
            }
        };
        let hosts = introduction::number_hosts(&all);
        let here = hosts[rank as usize];
        let leader = hosts.iter().position(|host| *host == here).unwrap_or(0) as u32;
        let launcher: SharedLauncher = Arc::new(Mutex::new(launcher));
        let broker = if leader == rank {
            let (broker, address) = BrokerThread::start(hosts.clone(), here, secret, Arc::clone(&launcher))?;
            lock(&launcher).put(BROKER, address.to_string().as_bytes())?;
            Some(broker)
        } else {
            None
        };
        lock(&launcher).fence(timeout)?;
        let address = needed(&mut **lock(&launcher), leader, BROKER, timeout)?;
        let address = std::str::from_utf8(&address).ok();
        let address = address.and_then(|text| text.parse().ok());
        Ok(Self {
            launcher,
            address: address.ok_or(LaunchError::Stranger { rank: leader })?,
            rank,
            hosts,
            broker,
            has_lost_first: AtomicBool::new(false),
        })
    }

    /// Where this rank joins.
    #[must_use]
    pub fn address(&self) -> &JobAddress {
        &self.address
    }

    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether the launcher says that rank 0 has failed, or that the job ends. Where that rank serves those of its host, nobody else tells
    /// them. Who runs a broker learns it from the board.
    pub fn has_lost_first(&self) -> bool {
        if self.broker.is_none()
            && let Ok(mut launcher) = self.launcher.try_lock()
        {
            while let Some(event) = launcher.poll_event() {
                if matches!(event, Event::Aborted | Event::Failed(0)) {
                    self.has_lost_first.store(true, Ordering::Relaxed);
                }
            }
        }
        self.has_lost_first.load(Ordering::Relaxed)
    }

    /// Whether ranks are on several hosts.
    #[must_use]
    pub fn spans_hosts(&self) -> bool {
        self.hosts.iter().any(|host| *host != self.hosts[0])
    }

    /// Exchanges how the ranks are reached from other hosts: `card` says it of this rank. Waits for all ranks, which have joined then.
    ///
    /// # Errors
    /// The launcher's.
    pub fn exchange_cards(&self, card: Option<Card>, timeout: Duration) -> Result<(), LaunchError> {
        let mut launcher = lock(&self.launcher);
        if let Some(card) = card {
            launcher.put(CARD, card.bytes())?;
        }
        launcher.fence(timeout)?;
        let Some(broker) = &self.broker else {
            return Ok(());
        };
        let here = self.hosts[self.rank as usize];
        for (rank, _) in (0..).zip(&self.hosts).filter(|(_, host)| **host != here) {
            let bytes = needed(&mut **launcher, rank, CARD, timeout)?;
            let card = Card::new(&bytes).ok_or(LaunchError::Stranger { rank })?;
            broker.tell(Word::Card { rank, card });
        }
        Ok(())
    }

    /// Leaves the launcher, once this rank has left the job. Who runs a broker waits until the ranks of its host have left too.
    ///
    /// # Errors
    /// The launcher's.
    pub fn finish(mut self, timeout: Duration) -> Result<(), LaunchError> {
        if let Some(broker) = self.broker.take() {
            broker.finish();
        }
        match Arc::into_inner(self.launcher) {
            Some(launcher) => into_inner(launcher).finish(timeout),
            // The broker's thread has ended, and nobody else has it.
            None => Ok(()),
        }
    }
}

/// The launcher, whatever became of the thread that had it before: it checks itself whether it can be used.
fn lock(launcher: &SharedLauncher) -> std::sync::MutexGuard<'_, Box<dyn Launcher>> {
    launcher.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn into_inner(launcher: Mutex<Box<dyn Launcher>>) -> Box<dyn Launcher> {
    launcher.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn needed(launcher: &mut dyn Launcher, rank: u32, key: &str, timeout: Duration) -> Result<Vec<u8>, LaunchError> {
    let value = launcher.get(rank, key, timeout)?;
    value.ok_or(LaunchError::Stranger { rank })
}
