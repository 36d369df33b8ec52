//! What mapwire did for a rank.

pub(super) const TRAFFIC_FIELDS: usize = 6;

/// What mapwire did for a rank during a run, all zero in a plain crew, and what it had to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Page faults on reading shared memory.
    pub read_faults: u64,
    /// Page faults on writing it.
    pub write_faults: u64,
    /// Blocks requested before their use.
    pub prefetches: u64,
    /// Messages sent to other ranks.
    pub messages: u64,
    /// Bytes of shared memory stored into other ranks or fetched from them.
    pub bytes: u64,
    /// Bytes that the rank's workers read and another worker had written last, once for each write: what any memory must move if every
    /// worker is on a host of its own. The programs count it.
    pub must_move_bytes: u64,
}

impl Traffic {
    /// The difference from `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, |now, then| now - then)
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        self.with(other, |one, two| one + two)
    }

    fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        let (ours, theirs) = (self.fields(), other.fields());
        Self::from_fields(std::array::from_fn(|at| each(ours[at], theirs[at])))
    }

    pub(super) fn fields(self) -> [u64; TRAFFIC_FIELDS] {
        [self.read_faults, self.write_faults, self.prefetches, self.messages, self.bytes, self.must_move_bytes]
    }

    pub(super) fn from_fields(
        [read_faults, write_faults, prefetches, messages, bytes, must_move_bytes]: [u64; TRAFFIC_FIELDS],
    ) -> Self {
        Self { read_faults, write_faults, prefetches, messages, bytes, must_move_bytes }
    }
}
