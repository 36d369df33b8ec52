//! Counters of a rank.

/// Counters since [`Dsm::new`](crate::Dsm::new), of this rank only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Read faults handled by the protocol.
    pub read_faults: u64,
    /// Write faults handled by the protocol.
    pub write_faults: u64,
    /// Minipages that the program requested before any access.
    pub prefetches: u64,
    /// Minipages requested because the faults of a thread led there.
    pub read_ahead: u64,
    /// Copies of them that another rank took away before anything showed that they were of use.
    pub read_ahead_lost: u64,
    /// Faults on minipages that were already accessible when the fault was handled.
    pub spurious_faults: u64,
    /// Write rights obtained without data because this rank held a valid copy.
    pub upgrades: u64,
    /// Copies that this rank dropped so that another could write.
    pub invalidations: u64,
    /// Write rights that this rank reduced so that another could read.
    pub downgrades: u64,
    /// Requests delayed so that a thread could use what it had just been granted.
    pub held_back: u64,
    /// Messages sent to other ranks, those that follow data included.
    pub messages_sent: u64,
    /// Messages sent that were about several minipages or pages.
    pub sets_sent: u64,
    /// Messages of other ranks that were handled.
    pub messages_received: u64,
    /// Minipages stored into other ranks.
    pub minipages_sent: u64,
    /// Bytes of those minipages.
    pub bytes_sent: u64,
    /// Locks obtained without a message because the token was here.
    pub lock_acquires_local: u64,
    /// Locks obtained by waiting for the token of another rank.
    pub lock_acquires_remote: u64,
    /// Barriers passed by this rank (once per rank, not per thread).
    pub barriers: u64,
    /// Allocations that succeeded here.
    pub allocations: u64,
    /// Bytes of those allocations, as requested.
    pub allocated_bytes: u64,
    /// Pages of which twins were made.
    pub twins: u64,
    /// Diffs sent to homes.
    pub diffs: u64,
    /// Bytes that those stored there.
    pub bytes_stored: u64,
    /// Pages fetched from homes.
    pub pages_fetched: u64,
    /// Bytes of those pages.
    pub bytes_fetched: u64,
    /// Intervals with writes that were published.
    pub intervals: u64,
    /// Write notices of other ranks, those that were known already not counted.
    pub notices: u64,
    /// Homes that moved, counted by the page's manager.
    pub home_moves: u64,
}

impl Counters {
    /// Bytes of shared memory that this rank has stored into others or fetched from them.
    #[must_use]
    pub fn bytes_moved(&self) -> u64 {
        self.bytes_sent + self.bytes_fetched + self.bytes_stored
    }
}

impl core::ops::Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            read_faults: self.read_faults + other.read_faults,
            write_faults: self.write_faults + other.write_faults,
            prefetches: self.prefetches + other.prefetches,
            read_ahead: self.read_ahead + other.read_ahead,
            read_ahead_lost: self.read_ahead_lost + other.read_ahead_lost,
            spurious_faults: self.spurious_faults + other.spurious_faults,
            upgrades: self.upgrades + other.upgrades,
            invalidations: self.invalidations + other.invalidations,
            downgrades: self.downgrades + other.downgrades,
            held_back: self.held_back + other.held_back,
            messages_sent: self.messages_sent + other.messages_sent,
            sets_sent: self.sets_sent + other.sets_sent,
            messages_received: self.messages_received + other.messages_received,
            minipages_sent: self.minipages_sent + other.minipages_sent,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            lock_acquires_local: self.lock_acquires_local + other.lock_acquires_local,
            lock_acquires_remote: self.lock_acquires_remote + other.lock_acquires_remote,
            barriers: self.barriers + other.barriers,
            allocations: self.allocations + other.allocations,
            allocated_bytes: self.allocated_bytes + other.allocated_bytes,
            twins: self.twins + other.twins,
            diffs: self.diffs + other.diffs,
            bytes_stored: self.bytes_stored + other.bytes_stored,
            pages_fetched: self.pages_fetched + other.pages_fetched,
            bytes_fetched: self.bytes_fetched + other.bytes_fetched,
            intervals: self.intervals + other.intervals,
            notices: self.notices + other.notices,
            home_moves: self.home_moves + other.home_moves,
        }
    }
}
