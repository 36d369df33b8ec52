//! Patterns of communication: what each rank of a program does next.

use std::str::FromStr;

use mapwire_wire::TraceOp;

use super::random::Random;
use super::zipf::Zipf;

mapwire_wire::codes! {
    pub enum Pattern: u8 {
        /// Each rank sends its buffer piece by piece to the next rank, again and again.
        Sequential = 0 => "sequential",
        /// As sequential, but every n-th piece first, then those beside them: the columns of a matrix.
        Strided = 1 => "strided",
        /// Each rank sends pieces to, and fetches pieces from, any other; few pieces are popular, by Zipf's law.
        Zipf = 2 => "zipf",
        /// Ranks fetch the next task from rank 0's queue, the task's data from some rank, and send that one a result.
        TaskQueue = 3 => "task-queue",
        /// All ranks send to all others, block by block in turn, as a parallel transposition does (FFT).
        Transpose = 4 => "transpose",
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Pattern::ALL.into_iter().find(|pattern| pattern.name() == text).ok_or_else(|| {
            let names = Pattern::ALL.map(Self::name).join(", ");
            format!("`{text}` is not a pattern; choose one of: {names}")
        })
    }
}

/// One transfer, as a rank decides on it. Places are bytes from the begin of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) op: TraceOp,
    /// Where the rank's own memory is: in its buffer.
    pub(super) local: u64,
    pub(super) peer: usize,
    /// Where the peer's memory is: in its export.
    pub(super) remote: u64,
    pub(super) bytes: u64,
    /// Before the rank's next transfer it computes for so many mean gaps.
    pub(super) gaps: u64,
}

#[derive(Debug)]
pub(super) struct Program {
    pattern: Pattern,
    ranks: usize,
    pieces: u64,
    piece_bytes: u64,
    stride: u64,
    popular: Zipf,
    tasks: u64,
}

#[derive(Debug, Default)]
pub(super) struct Position {
    step: u64,
    /// Where its task's data is, and how many pieces.
    task: (usize, u64, u64),
}

const TASK_BYTES: u64 = 64;
const TASK_PIECES: u64 = 8;

/// Scatters popularity over the buffer: a bijection of the numbers below `pieces`.
fn scattered(place: u64, pieces: u64) -> u64 {
    // Close to the golden section, so that neighbours come far apart.
    let mut factor = (pieces as f64 * 0.618_033_988_75) as u64 | 1;
    while gcd(factor, pieces) != 1 {
        factor += 2;
    }
    (u128::from(place) * u128::from(factor) % u128::from(pieces)) as u64
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Program {
    pub(super) fn new(
        pattern: Pattern,
        ranks: usize,
        (buffer_bytes, piece_bytes): (u64, u64),
        stride: u64,
        skew: f64,
    ) -> Self {
        let pieces = (buffer_bytes / piece_bytes).max(1);
        Self {
            pattern,
            ranks,
            pieces,
            piece_bytes,
            stride: stride.clamp(1, pieces),
            popular: Zipf::new(pieces, skew),
            tasks: 0,
        }
    }

    /// Any rank but `rank`, if there is another.
    fn other(&self, rank: usize, random: &mut Random) -> usize {
        match self.ranks {
            1 => 0,
            ranks => (rank + 1 + random.below(ranks as u64 - 1) as usize) % ranks,
        }
    }

    pub(super) fn next(&mut self, rank: usize, position: &mut Position, random: &mut Random) -> Transfer {
        let step = position.step;
        position.step += 1;
        let to_next = |piece: u64| Transfer {
            op: TraceOp::Send,
            local: piece * self.piece_bytes,
            peer: (rank + 1) % self.ranks,
            remote: piece * self.piece_bytes,
            bytes: self.piece_bytes,
            gaps: 1,
        };
        match self.pattern {
            Pattern::Sequential => to_next(step % self.pieces),
            Pattern::Strided => to_next(self.strided(step % self.pieces)),
            Pattern::Zipf => {
                let place = self.popular.draw(random);
                let piece = scattered(place, self.pieces) * self.piece_bytes;
                let op = if random.below(4) == 0 { TraceOp::Fetch } else { TraceOp::Send };
                Transfer {
                    op,
                    local: piece,
                    peer: self.other(rank, random),
                    remote: piece,
                    bytes: self.piece_bytes,
                    gaps: 1,
                }
            }
            Pattern::TaskQueue => self.task(rank, step, position, random),
            Pattern::Transpose => self.transposed(rank, step),
        }
    }

    /// The `step`-th piece, column by column.
    fn strided(&self, step: u64) -> u64 {
        // Columns that begin before the remainder have one row more.
        let (rows, longer) = (self.pieces / self.stride, self.pieces % self.stride);
        let in_longer = longer * (rows + 1);
        let (column, row) = if step < in_longer {
            (step / (rows + 1), step % (rows + 1))
        } else {
            (longer + (step - in_longer) / rows, (step - in_longer) % rows)
        };
        row * self.stride + column
    }

    fn task(&mut self, rank: usize, step: u64, position: &mut Position, random: &mut Random) -> Transfer {
        let buffer_bytes = self.pieces * self.piece_bytes;
        match step % 3 {
            0 => {
                let place = self.tasks % (buffer_bytes / TASK_BYTES).max(1) * TASK_BYTES;
                self.tasks += 1;
                let pieces = (1 + random.below(TASK_PIECES)).min(self.pieces);
                let first = random.below(self.pieces - pieces + 1);
                position.task = (self.other(rank, random), first, pieces);
                Transfer {
                    op: TraceOp::Fetch,
                    local: 0,
                    peer: 0,
                    remote: place,
                    bytes: TASK_BYTES.min(buffer_bytes),
                    gaps: 1,
                }
            }
            1 => {
                let (peer, first, pieces) = position.task;
                Transfer {
                    op: TraceOp::Fetch,
                    local: (step / 3 * TASK_PIECES) % (self.pieces - pieces + 1) * self.piece_bytes,
                    peer,
                    remote: first * self.piece_bytes,
                    bytes: pieces * self.piece_bytes,
                    gaps: 20,
                }
            }
            _ => {
                let (peer, first, _) = position.task;
                Transfer {
                    op: TraceOp::Send,
                    local: first * self.piece_bytes,
                    peer,
                    remote: first * self.piece_bytes,
                    bytes: self.piece_bytes,
                    gaps: 1,
                }
            }
        }
    }

    fn transposed(&self, rank: usize, step: u64) -> Transfer {
        let (ranks, own) = (self.ranks as u64, rank as u64);
        // One block for each rank. What stays with this rank is not sent, unless there is no other.
        let block = (self.pieces / ranks).max(1);
        let phases = (ranks - 1).max(1);
        let (phase, piece) = (step / block % phases + 1, step % block);
        let peer = (own + phase) % ranks;
        let place = |of: u64| (of * block + piece) % self.pieces * self.piece_bytes;
        let is_last = phase == phases && piece == block - 1;
        Transfer {
            op: TraceOp::Send,
            local: place(peer),
            peer: peer as usize,
            remote: place(own),
            bytes: self.piece_bytes,
            gaps: if is_last { block * phases } else { 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(pattern: Pattern, ranks: usize, pieces: u64) -> Program {
        Program::new(pattern, ranks, (pieces * 100, 100), 4, 0.99)
    }

    fn steps(pattern: Pattern, (ranks, pieces): (usize, u64), rank: usize, count: usize) -> Vec<Transfer> {
        let mut program = program(pattern, ranks, pieces);
        let (mut position, mut random) = (Position::default(), Random::new(1, 2));
        (0..count).map(|_| program.next(rank, &mut position, &mut random)).collect()
    }

    fn pieces(transfers: &[Transfer]) -> Vec<u64> {
        transfers.iter().map(|t| t.local / 100).collect()
    }

    #[test]
    fn sequential_ranks_send_to_the_next_piece_by_piece() {
        let transfers = steps(Pattern::Sequential, (3, 4), 2, 6);
        assert_eq!(pieces(&transfers), [0, 1, 2, 3, 0, 1]);
        assert!(transfers.iter().all(|t| t.peer == 0 && t.local == t.remote));
    }

    #[test]
    fn strided_ranks_send_columns_and_leave_no_piece_out() {
        let transfers = steps(Pattern::Strided, (2, 10), 0, 11);
        assert_eq!(pieces(&transfers), [0, 4, 8, 1, 5, 9, 2, 6, 3, 7, 0]);
    }

    #[test]
    fn a_transposition_sends_every_block_to_its_rank_and_computes_then() {
        let transfers = steps(Pattern::Transpose, (3, 6), 1, 5);
        let row: Vec<_> = transfers.iter().map(|t| (t.local / 100, t.peer, t.remote / 100, t.gaps)).collect();
        assert_eq!(row, [(4, 2, 2, 1), (5, 2, 3, 1), (0, 0, 2, 1), (1, 0, 3, 4), (4, 2, 2, 1)]);
    }

    #[test]
    fn tasks_come_from_rank_0_in_order_and_their_data_goes_back_where_it_was() {
        let transfers = steps(Pattern::TaskQueue, (4, 50), 3, 6);
        assert_eq!((transfers[0].peer, transfers[0].remote), (0, 0));
        assert_eq!((transfers[3].peer, transfers[3].remote), (0, 64));
        for task in transfers.chunks(3) {
            assert_eq!(task.iter().map(|t| t.op).collect::<Vec<_>>(), [TraceOp::Fetch, TraceOp::Fetch, TraceOp::Send]);
            assert_eq!((task[1].peer, task[1].remote), (task[2].peer, task[2].remote));
            assert!((100..=800).contains(&task[1].bytes));
        }
    }

    #[test]
    fn popular_pieces_lie_apart_and_every_piece_can_be_drawn() {
        for pieces in [1, 2, 3, 10, 64, 999] {
            let mut all: Vec<_> = (0..pieces).map(|p| scattered(p, pieces)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..pieces).collect::<Vec<_>>());
        }
        let first = scattered(0, 1000).abs_diff(scattered(1, 1000));
        assert!(first > 100, "{first}");
    }

    #[test]
    fn whatever_the_sizes_transfers_stay_inside_the_buffers() {
        for pattern in Pattern::ALL {
            for ranks in [1, 2, 5] {
                for pieces in [1, 2, 3, 7, 100] {
                    for rank in 0..ranks {
                        for t in steps(pattern, (ranks, pieces), rank, 300) {
                            let end = pieces * 100;
                            assert!(t.local + t.bytes <= end, "{pattern} {ranks} {pieces} {t:?}");
                            assert!(t.remote + t.bytes <= end, "{pattern} {ranks} {pieces} {t:?}");
                            assert!(t.peer < ranks && t.bytes > 0 && t.gaps > 0);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn names_read_back_and_others_are_refused_with_the_choices() {
        for pattern in Pattern::ALL {
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
        let error = "random".parse::<Pattern>().unwrap_err();
        assert!(error.contains("`random`") && error.contains("task-queue"), "{error}");
    }
}
