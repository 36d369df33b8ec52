//! A one-way packet ring in memory shared by two processes: one producer, one consumer, no system call.
//!
//! ```text
//! slot, 192 B = 3 cache lines:  [ sequence u32 | payload length u32 | header 48 B | payload ≤ 136 B ]
//! ```
//!
//! * A packet with up to 8 bytes of payload costs one cache line in one direction and nothing in the other: the
//!   consumer polls the word of the slot that comes next, never a shared index, and the word is written last.
//! * So does one with up to 36 bytes whose header has neither key, export nor offset, as those of handlers: it is
//!   packed without these fields, and they are zero again where it arrives.
//! * A longer payload than [`INLINE_BYTES`] lies in the ring's bulk area, contiguous. Both ends compute its place
//!   from the lengths, and from a bit that sends it to the begin of the area; no offset crosses the memory.
//! * While the consumer keeps up, payloads stay within the first 16 KB of the bulk area, which caches hold.
//! * The consumer announces released slots seldom (a quarter ring, or when idle); the producer looks only when its
//!   own account says full.
//!
//! The peer may write anything anywhere at any time. The worst outcome is a packet with wrong bytes, a ring that
//! seems full or empty (like that of a peer that does nothing), or [`PeerCorrupt`].

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mapwire_host::mapping::Mapping;
pub use mapwire_wire::{HEADER_BYTES, INLINE_BYTES};

use super::PeerCorrupt;
use super::cursor::{ConsumerCursor, ProducerCursor, RESTARTED, RingWords, Shape};
use super::packed;
use crate::payload::{BulkPayload, Piece, Received, total_bytes};

mod consumer;
mod producer;

pub use consumer::{Consumer, Incoming};
pub use producer::Producer;

const SLOT_BYTES: usize = 192;
const HEADER_OFFSET: usize = 8;
const PAYLOAD_OFFSET: usize = HEADER_OFFSET + HEADER_BYTES;
/// Words of a slot's first cache line behind its first word: the header and the first 8 bytes of payload.
const FIRST_LINE_WORDS: usize = 7;
const _: () = assert!(PAYLOAD_OFFSET + INLINE_BYTES == SLOT_BYTES);

// Each control word has 128 bytes to itself: processors fetch lines in pairs.
const RELEASED_OFFSET: usize = 0;
const PRODUCER_CLOSED_OFFSET: usize = 128;
const CONSUMER_CLOSED_OFFSET: usize = 256;
const SLOTS_OFFSET: usize = 384;
const PAGE_BYTES: usize = 4096;
/// Bit of a slot's payload length: header and payload are packed.
const PACKED: u32 = 1 << 30;
const _: () = assert!(PACKED & RESTARTED == 0);
/// The largest bulk area: no length of a payload, half of it at most, has one of the bits.
const MOST_BULK_BYTES: u32 = 1 << 29;
const _: () = assert!(MOST_BULK_BYTES / 2 < RESTARTED && RESTARTED < PACKED);

/// Bytes of the bulk area in use while the consumer keeps up, which stay in a first-level cache.
const NEAR_BYTES: u64 = 16 << 10;

/// Most data in a packet of the default ring: several are in its bulk area at a time, so that the consumer copies one out while the
/// producer copies another in.
const LONGEST_CHUNK_BYTES: u32 = 64 << 10;

/// The sizes of a ring; both ends must agree on them beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Packets in flight; a power of two from 2 to 65536.
    pub slots: u32,
    /// Size of the bulk area; a power of two from 4096 to 2²⁹.
    pub bulk_bytes: u32,
    /// Longest payload; at most half of the bulk area, or [`INLINE_BYTES`] if that is more.
    pub max_payload_bytes: u32,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            slots: 64,
            bulk_bytes: 256 << 10,
            max_payload_bytes: LONGEST_CHUNK_BYTES + mapwire_wire::SIGNAL_TRAILER_BYTES as u32,
        }
    }
}

/// A ring cannot have these sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring {what} is {value}; it must be {must}")]
pub struct BadRingConfig {
    what: &'static str,
    value: u32,
    must: &'static str,
}

impl RingConfig {
    /// Checks the sizes.
    pub fn check(&self) -> Result<(), BadRingConfig> {
        let bad = |what, value, must| Err(BadRingConfig { what, value, must });
        if !self.slots.is_power_of_two() || !(2..=1 << 16).contains(&self.slots) {
            return bad("slots", self.slots, "a power of two from 2 to 65536");
        }
        if !self.bulk_bytes.is_power_of_two() || !(4096..=MOST_BULK_BYTES).contains(&self.bulk_bytes) {
            return bad("bulk bytes", self.bulk_bytes, "a power of two from 4096 to 2^29");
        }
        if self.max_payload_bytes > self.bulk_bytes / 2 {
            return bad("longest payload in bytes", self.max_payload_bytes, "at most half of the bulk area");
        }
        Ok(())
    }

    /// Bytes that a ring of these sizes takes, a multiple of the page size.
    pub fn layout_bytes(&self) -> usize {
        self.bulk_offset() + self.bulk_bytes as usize
    }

    fn bulk_offset(&self) -> usize {
        (SLOTS_OFFSET + self.slots as usize * SLOT_BYTES).next_multiple_of(PAGE_BYTES)
    }
}

/// Why a packet was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// No room now; try again when the consumer has released packets.
    #[error("the ring to the peer is full; try again when it has released packets")]
    Full,
    /// The payload is longer than the ring's configuration allows.
    #[error("a payload of {len_bytes} bytes exceeds the longest of {max_bytes}; cut it into several packets")]
    TooLong { len_bytes: usize, max_bytes: usize },
    /// The consumer's words are impossible; the ring cannot be used any more.
    #[error(transparent)]
    Corrupt(#[from] PeerCorrupt),
}

/// The ring's place in a region. The addresses that every packet needs are computed once.
#[derive(Debug)]
struct Memory {
    region: Arc<Mapping>,
    base: usize,
    /// Address of slot 0; `slot_mask + 1` slots from here on lie inside the region.
    slots: NonNull<u8>,
    slot_mask: usize,
    bulk_base: usize,
    max_payload_bytes: usize,
}

// SAFETY: the address points into the region, which the value keeps alive and which is itself `Send`.
unsafe impl Send for Memory {}
// SAFETY: as above; through `&Memory` slots are only reached as atomics, or by the one producer or consumer.
unsafe impl Sync for Memory {}

impl Memory {
    /// Panics when the ring does not fit into the region at `base`, a multiple of 128.
    fn new(region: Arc<Mapping>, base: usize, config: &RingConfig) -> Self {
        assert!(base.is_multiple_of(128), "ring not aligned");
        region.at(base, config.layout_bytes());
        let slots = region.at(base + SLOTS_OFFSET, config.slots as usize * SLOT_BYTES);
        Self {
            base,
            slots: NonNull::new(slots).expect("a mapping is not at address 0"),
            slot_mask: config.slots as usize - 1,
            bulk_base: base + config.bulk_offset(),
            max_payload_bytes: config.max_payload_bytes as usize,
            region,
        }
    }

    /// Address of a slot: [`SLOT_BYTES`] of the region, aligned to 64. The index is taken modulo the slots.
    #[inline(always)]
    fn slot_at(&self, slot: usize) -> *mut u8 {
        // SAFETY: the masked index is one of the slots that `new` found inside the region.
        unsafe { self.slots.as_ptr().add((slot & self.slot_mask) * SLOT_BYTES) }
    }

    /// The word of a slot.
    #[inline(always)]
    fn slot(&self, index: usize) -> &AtomicU64 {
        // SAFETY: a slot's first 8 bytes, aligned, inside the region, and accessed as an atomic only.
        unsafe { AtomicU64::from_ptr(self.slot_at(index).cast()) }
    }

    fn is_set(&self, offset: usize) -> bool {
        self.region.word32(self.base + offset).load(Ordering::Acquire) != 0
    }

    fn set(&self, offset: usize) {
        self.region.word32(self.base + offset).store(1, Ordering::Release);
    }
}

impl RingWords for Memory {
    #[inline(always)]
    fn load_slot(&self, index: usize, order: Ordering) -> u64 {
        self.slot(index).load(order)
    }
    #[inline(always)]
    fn store_slot(&self, index: usize, word: u64, order: Ordering) {
        self.slot(index).store(word, order);
    }
    #[inline(always)]
    fn load_released(&self, order: Ordering) -> u32 {
        self.region.word32(self.base + RELEASED_OFFSET).load(order)
    }
    #[inline(always)]
    fn store_released(&self, count: u32, order: Ordering) {
        self.region.word32(self.base + RELEASED_OFFSET).store(count, order);
    }
}

fn shape(config: &RingConfig) -> Shape {
    Shape { slots: config.slots, bulk_bytes: u64::from(config.bulk_bytes), near_bytes: NEAR_BYTES }
}
