//! The limits of memory that cannot be mapped by its senders: a copy into memory that both processes have mapped, and another out of
//! it, with nothing between the two but flags.

use crate::words::Words;

/// Bytes of a piece at most.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Pieces that the ring holds.
const PIECES: usize = 8;

/// The sender's count of pieces and the receiver's, each in a cache line of its own (two, for prefetchers that take pairs).
const SENT: usize = 0;
const TAKEN: usize = 128;
const FIRST_PIECE: usize = 4096;

/// Bytes of shared memory that a [`Pipe`] takes.
pub(super) const PIPE_BYTES: usize = FIRST_PIECE + PIECES * PIECE_BYTES;

/// One end of a ring of pieces from one process to another.
#[derive(Debug)]
pub(super) struct Pipe {
    shared: Words,
    /// Pieces that have passed this end, and what was last seen of the other's.
    passed: u64,
    seen: u64,
}

impl Pipe {
    /// An end in `shared`, [`PIPE_BYTES`] that were zeros when either end began.
    pub(super) fn new(shared: Words) -> Self {
        Self { shared, passed: 0, seen: 0 }
    }

    fn piece(&self) -> usize {
        FIRST_PIECE + (self.passed % PIECES as u64) as usize * PIECE_BYTES
    }

    /// Copies `data` in, piece by piece, as room comes.
    #[inline(always)]
    pub(super) fn send(&mut self, data: &[u8]) {
        for piece in data.chunks(PIECE_BYTES) {
            while self.passed - self.seen == PIECES as u64 {
                self.seen = self.shared.load(TAKEN);
            }
            self.shared.put(self.piece(), piece);
            self.passed += 1;
            self.shared.store(SENT, self.passed);
        }
    }

    /// Copies what was sent out to `offset` of `to`, piece by piece, as it comes.
    #[inline(always)]
    pub(super) fn take(&mut self, to: Words, offset: usize, bytes: usize) {
        let mut done = 0;
        while done < bytes {
            while self.seen == self.passed {
                self.seen = self.shared.load(SENT);
            }
            let piece = PIECE_BYTES.min(bytes - done);
            to.copy_from(offset + done, self.shared.part(self.piece(), piece));
            self.passed += 1;
            self.shared.store(TAKEN, self.passed);
            done += piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Heap;

    #[test]
    fn messages_of_all_lengths_pass_whole_and_in_order_between_two_threads() {
        let lengths = [
            8,
            64,
            4096,
            PIECE_BYTES - 8,
            PIECE_BYTES,
            PIECE_BYTES + 8,
            3 * PIECE_BYTES,
            // More than the ring holds.
            2 * PIPE_BYTES / 8 * 8,
        ];
        let (shared_memory, own_memory) = (Heap::new(0, PIPE_BYTES), Heap::new(0, *lengths.iter().max().unwrap()));
        let (shared, own) = (shared_memory.words, own_memory.words);
        let message = |bytes: usize, turn: u64| -> Vec<u8> {
            (0..bytes as u64 / 8).flat_map(|word| (word * 31 + turn).to_ne_bytes()).collect()
        };
        std::thread::scope(|scope| {
            let mut sender = Pipe::new(shared);
            scope.spawn(move || {
                for turn in 0..20 {
                    for bytes in lengths {
                        sender.send(&message(bytes, turn));
                    }
                }
            });
            let mut receiver = Pipe::new(shared);
            for turn in 0..20 {
                for bytes in lengths {
                    receiver.take(own, 0, bytes);
                    let mut came = vec![0; bytes];
                    own.get(0, &mut came);
                    assert!(came == message(bytes, turn), "{bytes} bytes, turn {turn}");
                }
            }
        });
    }
}
