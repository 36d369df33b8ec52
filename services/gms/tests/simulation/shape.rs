//! What a seed decides, and what came of it.

use crate::random::Random;

/// What a seed decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: u16,
    /// Of them, those that are members at the start.
    pub(crate) members: u16,
    pub(crate) pool_frames: u32,
    pub(crate) pages: u64,
    pub(crate) shared_pages: u64,
    pub(crate) directory_bytes: usize,
    pub(crate) steps: u32,
    /// Deaths, at most.
    pub(crate) crashes: u32,
    /// Of 100 steps, those in which a message is delivered.
    pub(crate) deliver_percent: u64,
    pub(crate) on_disk_percent: u64,
    /// Stores land as they are asked for, rather than in order with messages.
    pub(crate) is_mapped: bool,
    /// Nodes join and leave.
    pub(crate) moves: bool,
    pub(crate) epoch_ms: u32,
}

impl Shape {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let nodes = 2 + random.below(6) as u16;
        Self {
            nodes,
            members: 1 + random.below(u64::from(nodes)) as u16,
            pool_frames: [4, 16, 64][random.below(3) as usize],
            pages: 1 + random.below(12),
            shared_pages: 1 + random.below(6),
            directory_bytes: [256, 2048, 1 << 16][random.below(3) as usize],
            steps: 400 + random.below(1200) as u32,
            crashes: [0, 0, 1, 3][random.below(4) as usize],
            deliver_percent: [40, 70, 90][random.below(3) as usize],
            on_disk_percent: [0, 50, 100][random.below(3) as usize],
            is_mapped: random.chance(50),
            moves: random.chance(60),
            epoch_ms: [1, 20, 5_000][random.below(3) as usize],
        }
    }
}

/// What happened, so that a test that shows nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) pages: u64,
    pub(crate) here: u64,
    pub(crate) absent: u64,
    pub(crate) stored: u64,
    pub(crate) stored_twice: u64,
    pub(crate) refused: u64,
    pub(crate) dropped: u64,
    pub(crate) shrunk: u64,
    pub(crate) joined: u64,
    pub(crate) left: u64,
    pub(crate) crashed: u64,
    pub(crate) moved: u64,
    pub(crate) epochs: u64,
    pub(crate) maps: u64,
}

impl Seen {
    fn counts(&self) -> [u64; 14] {
        [
            self.pages,
            self.here,
            self.absent,
            self.stored,
            self.stored_twice,
            self.refused,
            self.dropped,
            self.shrunk,
            self.joined,
            self.left,
            self.crashed,
            self.moved,
            self.epochs,
            self.maps,
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let sums = self.counts();
        let mut sums = sums.iter().zip(other.counts()).map(|(a, b)| a + b);
        let mut next = || sums.next().unwrap();
        *self = Self {
            pages: next(),
            here: next(),
            absent: next(),
            stored: next(),
            stored_twice: next(),
            refused: next(),
            dropped: next(),
            shrunk: next(),
            joined: next(),
            left: next(),
            crashed: next(),
            moved: next(),
            epochs: next(),
            maps: next(),
        };
    }

    /// All of it happened.
    pub(crate) fn check(&self) {
        assert!(self.counts().iter().all(|&count| count > 0), "{self:?}");
    }
}
