//! The end that sends.

use super::super::prefetch::{LINE_BYTES, prefetch_write};
use super::*;

/// Longest payload whose place is fetched ahead. Between two cores the next message of 1 KB then takes a tenth less; the copy of a
/// longer one finds its lines faster than they can be asked for.
const MOST_PREPARED_BYTES: u32 = 2048;

#[derive(Debug)]
pub struct Producer {
    memory: Memory,
    cursor: ProducerCursor,
}

impl Producer {
    pub(in crate::shm) fn new(region: Arc<Mapping>, base: usize, config: &RingConfig) -> Self {
        Self { memory: Memory::new(region, base, config), cursor: ProducerCursor::new(shape(config)) }
    }

    /// Makes the slots present in memory, so that the first packets take no page faults.
    pub(in crate::shm) fn prefault(&self) {
        let memory = &self.memory;
        memory.region.prefault(memory.base, memory.bulk_base - memory.base);
    }

    /// Copies header and payload into the ring and hands them to the consumer. The sources may be reused at once.
    #[inline]
    pub fn try_push(&mut self, header: &[u8; HEADER_BYTES], pieces: &[Piece<'_>]) -> Result<(), PushError> {
        let memory = &self.memory;
        let len_bytes = total_bytes(pieces);
        if len_bytes > memory.max_payload_bytes {
            return Err(PushError::TooLong { len_bytes, max_bytes: memory.max_payload_bytes });
        }
        let payload_bytes = len_bytes as u32;
        let bulk_bytes = if len_bytes > INLINE_BYTES { payload_bytes } else { 0 };
        let Some(reserved) = self.cursor.reserve(memory, bulk_bytes)? else {
            return Err(PushError::Full);
        };
        let slot = memory.slot_at(reserved.slot);
        if let ([piece], Some(mut line)) = (pieces, packed::line_of(header, len_bytes)) {
            // SAFETY: a `Piece` is readable while it lives and lies in no ring; `line_of` has room for so many bytes. A line is
            // what a slot's first cache line holds behind its first word.
            unsafe {
                let to = line.as_mut_ptr().cast::<u8>().add(packed::HEAD_BYTES);
                piece.copy_to(to);
                store_words(slot.add(HEADER_OFFSET), &line);
            }
            self.cursor.publish(memory, reserved, payload_bytes | PACKED);
            return Ok(());
        }
        // SAFETY: a slot holds a header behind its first word, and no header lies in a ring.
        unsafe {
            let words: &[[u8; 8]; HEADER_BYTES / 8] = zerocopy::transmute_ref!(header);
            store_words(slot.add(HEADER_OFFSET), &words.map(u64::from_ne_bytes));
        }
        if bulk_bytes == 0 {
            let mut to = PAYLOAD_OFFSET;
            for piece in pieces {
                // SAFETY: a `Piece` is readable while it lives and lies in no ring; all pieces together have at most
                // INLINE_BYTES, which is what a slot holds from PAYLOAD_OFFSET on.
                unsafe { piece.copy_to(slot.add(to)) };
                to += piece.len();
            }
        } else {
            let mut to = memory.bulk_base + reserved.bulk_offset;
            for piece in pieces {
                // SAFETY: a `Piece` is readable while it lives and lies in no ring.
                unsafe { piece.copy_to(memory.region.at(to, piece.len())) };
                to += piece.len();
            }
        }
        self.cursor.publish(memory, reserved, payload_bytes);
        if (1..=MOST_PREPARED_BYTES).contains(&bulk_bytes) {
            self.prepare(bulk_bytes);
        }
        Ok(())
    }

    /// Fetches the lines of the next bulk payload out of the consumer's cache, where they stay since it read them.
    /// Messages of one size tend to follow one another, and the wait for an answer pays for the transfer.
    #[inline]
    fn prepare(&self, bulk_bytes: u32) {
        if let Some(offset) = self.cursor.next_bulk_offset(bulk_bytes) {
            let len_bytes = bulk_bytes as usize;
            let next = self.memory.region.at(self.memory.bulk_base + offset, len_bytes);
            for line in (0..len_bytes).step_by(LINE_BYTES) {
                prefetch_write(next.wrapping_add(line));
            }
        }
    }

    /// Whether the consumer has released every packet.
    pub fn drained(&mut self) -> Result<bool, PeerCorrupt> {
        self.cursor.drained(&self.memory)
    }

    /// Whether the consumer has said that it will take no more packets.
    #[inline(always)]
    pub fn consumer_closed(&self) -> bool {
        self.memory.is_set(CONSUMER_CLOSED_OFFSET)
    }

    /// Tells the consumer that no packet will follow those already pushed.
    pub fn close(&mut self) {
        self.memory.set(PRODUCER_CLOSED_OFFSET);
    }
}

/// Stores words into a slot.
///
/// # Safety
/// As many words lie at `to`, aligned, in a slot that is the producer's.
#[inline(always)]
unsafe fn store_words(to: *mut u8, words: &[u64]) {
    for (index, &word) in words.iter().enumerate() {
        // SAFETY: the caller's promise; the consumer loads these words as atomics.
        unsafe { AtomicU64::from_ptr(to.cast::<u64>().add(index)) }.store(word, Ordering::Relaxed);
    }
}
