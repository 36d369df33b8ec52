//! A job of a server and guests of one user.

use std::time::{Duration, Instant};

use mapwire_transport::job::channels;
use mapwire_transport::rendezvous::{Broker, JobAddress};

use super::{Credentials, MeetingError};

/// A guest that has not joined by then is given up.
const JOINING: Duration = Duration::from_secs(10);

/// How far the server is with its own place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The server joins.
    Opening,
    /// It is rank 0.
    Open,
    /// It could not join, or has left.
    Over,
}

#[derive(Debug)]
struct Guest {
    rank: u32,
    process: u32,
    since: Instant,
}

/// One job. The server's process runs its broker.
pub(super) struct HostedJob {
    pub(super) id: u64,
    pub(super) user: u32,
    pub(super) broker: Broker,
    pub(super) stage: Stage,
    pub(super) size: u32,
    next: u32,
    guests: Vec<Guest>,
}

impl HostedJob {
    pub(super) fn new(id: u64, user: u32, size: u32) -> Result<Self, MeetingError> {
        let mut broker = Broker::new(&vec![0; size as usize], channels())?;
        broker.admit_user(user);
        broker.set_process(0, std::process::id());
        Ok(Self { id, user, broker, stage: Stage::Opening, size, next: 1, guests: Vec::new() })
    }

    pub(super) fn address(&self) -> &JobAddress {
        self.broker.address()
    }

    /// Whether it may take one more guest, now or once it is open.
    pub(super) fn has_room(&self) -> bool {
        self.stage != Stage::Over && self.next < self.size
    }

    /// Number of guests that are not known to be gone.
    pub(super) fn guests(&self) -> usize {
        self.guests.len()
    }

    /// Guests that this process has knocked for, and that have not joined yet.
    pub(super) fn joining_of(&self, process: u32) -> usize {
        let joining =
            self.guests.iter().filter(|guest| guest.process == process && !self.broker.has_joined(guest.rank));
        joining.count()
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.next == self.size && self.guests.is_empty()
    }

    pub(super) fn admit(&mut self, who: &Credentials, now: Instant) -> u32 {
        let rank = self.next;
        self.next += 1;
        if who.process != 0 {
            self.broker.set_process(rank, who.process);
        }
        self.guests.push(Guest { rank, process: who.process, since: now });
        rank
    }

    pub(super) fn give_up(&mut self, rank: u32, now: Instant) {
        self.broker.handle_rank_exited(rank, false, now);
        self.guests.retain(|guest| guest.rank != rank);
    }

    /// Serves the broker. The guests that are gone since.
    pub(super) fn serve(&mut self, now: Instant) -> Vec<u32> {
        self.broker.handle_ready(now);
        let broker = &mut self.broker;
        let mut gone = Vec::new();
        self.guests.retain(|guest| {
            if now >= guest.since + JOINING && !broker.has_joined(guest.rank) {
                broker.handle_rank_exited(guest.rank, false, now);
            }
            let is_gone = broker.board().state(guest.rank).is_gone();
            if is_gone {
                gone.push(guest.rank);
            }
            !is_gone
        });
        gone
    }

    /// When it wants to be [served](Self::serve) though its descriptor is not readable.
    pub(super) fn poll_at(&self, now: Instant) -> Option<Instant> {
        let joining = self.guests.iter().filter(|g| !self.broker.has_joined(g.rank));
        let joining = joining.map(|guest| guest.since + JOINING);
        joining.chain(self.broker.poll_at(now)).min()
    }
}
