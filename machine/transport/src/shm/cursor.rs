//! The ring's protocol without its memory: who owns which slot, where a bulk payload lies, when a slot is free.
//!
//! Both ends run this code over [`RingWords`], so that loom can check the very same orderings which run over
//! shared memory. Positions count packets since the ring was made and never wrap (64 bits); only their low 32 bits
//! ever stand in shared memory. All state that decides an address is private to its process: of the peer's words
//! only the fullness of a slot, a payload length and a release count are read, and each is checked.

use core::sync::atomic::Ordering;

use super::PeerCorrupt;

/// Payloads in the bulk area begin on a multiple of this many bytes, one cache line.
pub const BULK_ALIGN_BYTES: u64 = 64;

/// Bit of a slot's payload length: the payload lies at the begin of the bulk area.
pub const RESTARTED: u32 = 1 << 29;

/// The words that the two ends of a ring share: of each slot its sequence number in the low half and its payload's length in the high half,
/// and the consumer's count of released slots, modulo 2³². Indices are below the number of slots.
pub trait RingWords {
    /// Loads the word of a slot.
    fn load_slot(&self, index: usize, order: Ordering) -> u64;
    /// Stores the word of a slot.
    fn store_slot(&self, index: usize, word: u64, order: Ordering);
    /// Loads the count of released slots.
    fn load_released(&self, order: Ordering) -> u32;
    /// Stores the count of released slots.
    fn store_released(&self, count: u32, order: Ordering);
}

/// Number of slots and size of the bulk area; both powers of two.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Slots, a power of two from 2.
    pub slots: u32,
    /// Bytes of the bulk area, a power of two from [`BULK_ALIGN_BYTES`].
    pub bulk_bytes: u64,
    /// A payload of at most so many bytes that would cross a multiple of them goes to the begin of the bulk area if the consumer has
    /// released all others. A power of two.
    pub near_bytes: u64,
}

impl Shape {
    #[inline(always)]
    fn slot_of(self, position: u64) -> usize {
        (position & u64::from(self.slots - 1)) as usize
    }

    /// Start and end of a payload of `len_bytes` when `head` bytes went before: contiguous, else at the next lap's
    /// begin. `len_bytes` must not exceed the area.
    #[inline(always)]
    fn place(self, head: u64, len_bytes: u32) -> (u64, u64) {
        let len = u64::from(len_bytes);
        let offset = head & (self.bulk_bytes - 1);
        let start = if offset + len > self.bulk_bytes { head + (self.bulk_bytes - offset) } else { head };
        (start, start + len.next_multiple_of(BULK_ALIGN_BYTES))
    }

    /// As [`place`](Self::place), at the next lap's begin.
    #[inline(always)]
    fn place_at_begin(self, head: u64, len_bytes: u32) -> (u64, u64) {
        self.place(head.next_multiple_of(self.bulk_bytes), len_bytes)
    }

    /// Whether a payload of `len_bytes` at `start` should restart at the begin: caches hold that part of the area, and in
    /// a ring that is little used only that part takes memory.
    #[inline(always)]
    fn goes_far(self, start: u64, len_bytes: u32) -> bool {
        let (len, mask) = (u64::from(len_bytes), self.near_bytes - 1);
        len <= self.near_bytes && (start & mask) + len > self.near_bytes
    }
}

/// The sequence number in the word of the slot at `position`; 0 marks a slot never written.
#[inline(always)]
fn sequence_of(position: u64) -> u32 {
    match (position as u32).wrapping_add(1) {
        0 => u32::MAX,
        sequence => sequence,
    }
}

/// Room for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Index of the slot, below the number of slots.
    pub slot: usize,
    /// Offset in the bulk area; offset plus length stays within the area. 0 for a payload inside the slot.
    pub bulk_offset: usize,
    /// Bytes of the bulk area that went before, and those with it.
    bulk: (u64, u64),
    restarts: bool,
}

#[derive(Debug)]
pub struct ProducerCursor {
    shape: Shape,
    position: u64,
    released: u64,
    bulk_head: u64,
    bulk_tail: u64,
    /// Per slot: `bulk_head` after its packet, so that one shared count releases both.
    bulk_ends: Box<[u64]>,
}

impl ProducerCursor {
    /// A producer at the start of an empty ring.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            position: 0,
            released: 0,
            bulk_head: 0,
            bulk_tail: 0,
            bulk_ends: vec![0; shape.slots as usize].into_boxed_slice(),
        }
    }

    /// Finds room for a packet with `bulk_bytes` of payload outside its slot; 0 when it fits inside. `None` until the consumer has
    /// released enough. Repeating the call before [`Self::publish`] gives the same place. `bulk_bytes` must not exceed half of the bulk area, so
    /// that an empty ring has room wherever its head stands.
    #[inline]
    pub fn reserve<W: RingWords>(&mut self, words: &W, bulk_bytes: u32) -> Result<Option<Reserved>, PeerCorrupt> {
        if self.position - self.released == u64::from(self.shape.slots) {
            self.refresh(words)?;
            if self.position - self.released == u64::from(self.shape.slots) {
                return Ok(None);
            }
        }
        let slot = self.shape.slot_of(self.position);
        if bulk_bytes == 0 {
            let bulk = (self.bulk_head, self.bulk_head);
            return Ok(Some(Reserved { slot, bulk_offset: 0, bulk, restarts: false }));
        }
        let mut bulk = self.shape.place(self.bulk_head, bulk_bytes);
        let restarts = self.shape.goes_far(bulk.0, bulk_bytes) && self.drained(words)?;
        if restarts {
            bulk = self.shape.place_at_begin(self.bulk_head, bulk_bytes);
        } else if bulk.1 - self.bulk_tail > self.shape.bulk_bytes {
            self.refresh(words)?;
            if bulk.1 - self.bulk_tail > self.shape.bulk_bytes {
                return Ok(None);
            }
        }
        let bulk_offset = (bulk.0 & (self.shape.bulk_bytes - 1)) as usize;
        Ok(Some(Reserved { slot, bulk_offset, bulk, restarts }))
    }

    /// Hands the reserved slot to the consumer. `payload` is the payload's length, with bits of which this knows nothing.
    #[inline]
    pub fn publish<W: RingWords>(&mut self, words: &W, reserved: Reserved, payload: u32) {
        let slot = self.shape.slot_of(self.position);
        let restarted = if reserved.restarts { RESTARTED } else { 0 };
        let word = u64::from(payload | restarted) << 32 | u64::from(sequence_of(self.position));
        words.store_slot(slot, word, Ordering::Release);
        let (start, end) = reserved.bulk;
        if reserved.restarts {
            // Nothing lies before it.
            self.bulk_tail = start;
        }
        self.bulk_ends[slot] = end;
        self.bulk_head = end;
        self.position += 1;
    }

    /// Offset in the bulk area where a payload of `bulk_bytes` would come next, if that room is known to be free.
    #[inline]
    pub fn next_bulk_offset(&self, bulk_bytes: u32) -> Option<usize> {
        let (start, end) = self.shape.place(self.bulk_head, bulk_bytes);
        (end - self.bulk_tail <= self.shape.bulk_bytes).then_some((start & (self.shape.bulk_bytes - 1)) as usize)
    }

    /// Reads how much the consumer has released.
    #[cold]
    pub fn refresh<W: RingWords>(&mut self, words: &W) -> Result<(), PeerCorrupt> {
        let shared = words.load_released(Ordering::Acquire);
        let newly = u64::from(shared.wrapping_sub(self.released as u32));
        if newly > self.position - self.released {
            return Err(PeerCorrupt { what: "count of released slots", value: u64::from(shared) });
        }
        if newly > 0 {
            self.released += newly;
            self.bulk_tail = self.bulk_ends[self.shape.slot_of(self.released - 1)];
        }
        Ok(())
    }

    /// Whether the consumer has released every packet.
    #[inline]
    pub fn drained<W: RingWords>(&mut self, words: &W) -> Result<bool, PeerCorrupt> {
        if self.position != self.released {
            self.refresh(words)?;
        }
        Ok(self.position == self.released)
    }
}

#[derive(Debug)]
pub struct ConsumerCursor {
    shape: Shape,
    position: u64,
    announced: u64,
    bulk_head: u64,
    bulk_announced: u64,
}

impl ConsumerCursor {
    /// A consumer at the start of an empty ring. It announces what was released once a quarter of the
    /// slots or of the bulk area has gathered, or when told to.
    pub fn new(shape: Shape) -> Self {
        Self { shape, position: 0, announced: 0, bulk_head: 0, bulk_announced: 0 }
    }

    /// Slot and payload length of the next packet, if it is there. The length is the peer's word: unchecked.
    /// It has bits of the producer, and [`RESTARTED`] for [`Self::place`].
    #[inline(always)]
    pub fn ready<W: RingWords>(&self, words: &W) -> Option<(usize, u32)> {
        let slot = self.shape.slot_of(self.position);
        let word = words.load_slot(slot, Ordering::Acquire);
        (word as u32 == sequence_of(self.position)).then_some((slot, (word >> 32) as u32))
    }

    /// Offset in the bulk area of the next packet's payload of `bulk_bytes`, at most half of the area (0: the
    /// payload is in the slot), and the value that [`Self::release`] takes.
    #[inline(always)]
    pub fn place(&self, bulk_bytes: u32, restarted: bool) -> (usize, u64) {
        if bulk_bytes == 0 {
            return (0, self.bulk_head);
        }
        let (start, end) = match restarted {
            true => self.shape.place_at_begin(self.bulk_head, bulk_bytes),
            false => self.shape.place(self.bulk_head, bulk_bytes),
        };
        ((start & (self.shape.bulk_bytes - 1)) as usize, end)
    }

    /// Gives the next packet's slot and payload back; the producer learns of it later.
    #[inline]
    pub fn release<W: RingWords>(&mut self, words: &W, bulk_end: u64) {
        self.position += 1;
        self.bulk_head = bulk_end;
        if 4 * (self.position - self.announced) >= u64::from(self.shape.slots)
            || 4 * (self.bulk_head - self.bulk_announced) >= self.shape.bulk_bytes
        {
            self.announce(words);
        }
    }

    /// Whether slots were released of which the producer does not know.
    #[inline(always)]
    pub fn unannounced(&self) -> bool {
        self.position != self.announced
    }

    /// Tells the producer of all released slots.
    #[inline]
    pub fn announce<W: RingWords>(&mut self, words: &W) {
        words.store_released(self.position as u32, Ordering::Release);
        self.announced = self.position;
        self.bulk_announced = self.bulk_head;
    }
}
