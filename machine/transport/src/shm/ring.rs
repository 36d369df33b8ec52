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
//!   from the lengths alone; no offset crosses the memory.
//! * Instead of bytes a slot may carry a reference to memory that the producer lent ([`super::lent`]).
//! * The consumer announces released slots seldom (a quarter ring, or when idle); the producer looks only when its
//!   own account says full.
//!
//! The peer may write anything anywhere at any time. The worst outcome is a packet with wrong bytes, a ring that
//! seems full or empty (like that of a peer that does nothing), or [`PeerCorrupt`].

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use mapwire_wire::{HEADER_BYTES, INLINE_BYTES};

use super::PeerCorrupt;
use super::cursor::{ConsumerCursor, ProducerCursor, RingWords, Shape, Stall};
use super::lent::{Borrowed, MAX_TAIL_BYTES, REFERENCE_BYTES, Reference};
use super::packed;
use super::prefetch::{LINE_BYTES, prefetch_write};
use super::region::{Region, copy_short};
use crate::payload::{BulkPayload, Piece, Received, total_bytes};

const SLOT_BYTES: usize = 192;
const HEADER_OFFSET: usize = 8;
const PAYLOAD_OFFSET: usize = HEADER_OFFSET + HEADER_BYTES;
/// Words of a slot's first cache line behind its first word: the header and the first 8 bytes of payload.
const FIRST_LINE_WORDS: usize = 7;
const _: () = assert!(PAYLOAD_OFFSET + INLINE_BYTES == SLOT_BYTES);

// Each control word has 128 bytes to itself: processors fetch lines in pairs.
const RELEASED_OFFSET: usize = 0;
const PRODUCER_CLOSED_OFFSET: usize = 128;
/// The producer's word: bit for each memory that it lends.
const LIVE_OFFSET: usize = PRODUCER_CLOSED_OFFSET + 8;
const CONSUMER_CLOSED_OFFSET: usize = 256;
/// The consumer's word: bit for each lent memory that it has mapped.
const MAPPED_OFFSET: usize = CONSUMER_CLOSED_OFFSET + 8;
const SLOTS_OFFSET: usize = 384;
const PAGE_BYTES: usize = 4096;
/// Bit of a slot's payload length: the payload is a reference and its tail.
const LENT: u32 = 1 << 31;
/// Bit of a slot's payload length: header and payload are packed.
const PACKED: u32 = 1 << 30;

/// The sizes of a ring; both ends must agree on them beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Packets in flight; a power of two from 2 to 65536.
    pub slots: u32,
    /// Size of the bulk area; a power of two from 4096 to 2³⁰.
    pub bulk_bytes: u32,
    /// Longest payload; at most half of the bulk area, or [`INLINE_BYTES`] if that is more.
    pub max_payload_bytes: u32,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            slots: 64,
            bulk_bytes: 256 << 10,
            max_payload_bytes: mapwire_wire::MAX_PAYLOAD_BYTES as u32,
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
        if !self.bulk_bytes.is_power_of_two() || !(4096..=1 << 30).contains(&self.bulk_bytes) {
            return bad(
                "bulk bytes",
                self.bulk_bytes,
                "a power of two from 4096 to 2^30",
            );
        }
        if self.max_payload_bytes > self.bulk_bytes / 2 {
            return bad(
                "longest payload in bytes",
                self.max_payload_bytes,
                "at most half of the bulk area",
            );
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
    #[error(
        "a payload of {len_bytes} bytes exceeds the longest of {max_bytes}; cut it into several packets"
    )]
    TooLong {
        /// The payload's length.
        len_bytes: usize,
        /// The longest allowed.
        max_bytes: usize,
    },
    /// The consumer's words make no sense; the ring is of no more use.
    #[error(transparent)]
    Corrupt(#[from] PeerCorrupt),
}

/// The ring's place in a region. The addresses that every packet needs are computed once.
#[derive(Debug)]
struct Memory {
    region: Arc<Region>,
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
    fn new(region: Arc<Region>, base: usize, config: &RingConfig) -> Self {
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
        unsafe {
            self.slots
                .as_ptr()
                .add((slot & self.slot_mask) * SLOT_BYTES)
        }
    }

    fn is_set(&self, offset: usize) -> bool {
        self.region
            .word32(self.base + offset)
            .load(Ordering::Acquire)
            != 0
    }

    fn set(&self, offset: usize) {
        self.region
            .word32(self.base + offset)
            .store(1, Ordering::Release);
    }

    fn bits(&self, offset: usize) -> u64 {
        self.region
            .word64(self.base + offset)
            .load(Ordering::Acquire)
    }

    fn set_bits(&self, offset: usize, bits: u64) {
        self.region
            .word64(self.base + offset)
            .store(bits, Ordering::Release);
    }
}

impl RingWords for Memory {
    type Slot = AtomicU64;
    type Count = AtomicU32;
    #[inline(always)]
    fn slot(&self, index: usize) -> &AtomicU64 {
        // SAFETY: a slot's first 8 bytes, aligned, inside the region, and accessed as an atomic only.
        unsafe { AtomicU64::from_ptr(self.slot_at(index).cast()) }
    }
    #[inline(always)]
    fn released(&self) -> &AtomicU32 {
        self.region.word32(self.base + RELEASED_OFFSET)
    }
}

fn shape(config: &RingConfig) -> Shape {
    Shape {
        slots: config.slots,
        bulk_bytes: u64::from(config.bulk_bytes),
    }
}

/// The sending end.
#[derive(Debug)]
pub struct Producer {
    memory: Memory,
    cursor: ProducerCursor,
    /// What this end lends, bit for each number.
    live: u64,
    /// Of that, what the consumer is known to have mapped.
    mapped: u64,
}

impl Producer {
    pub(super) fn new(region: Arc<Region>, base: usize, config: &RingConfig) -> Self {
        Self {
            memory: Memory::new(region, base, config),
            cursor: ProducerCursor::new(shape(config)),
            live: 0,
            mapped: 0,
        }
    }

    /// Makes the slots present in memory, so that the first packets take no page faults.
    pub(super) fn prefault(&self) {
        let memory = &self.memory;
        memory
            .region
            .prefault(memory.base, memory.bulk_base - memory.base);
    }

    /// Copies header and payload into the ring and hands them to the consumer. The sources may be reused at once.
    #[inline]
    pub fn try_push(
        &mut self,
        header: &[u8; HEADER_BYTES],
        pieces: &[Piece<'_>],
    ) -> Result<(), PushError> {
        let memory = &self.memory;
        let len_bytes = total_bytes(pieces);
        if len_bytes > memory.max_payload_bytes {
            return Err(PushError::TooLong {
                len_bytes,
                max_bytes: memory.max_payload_bytes,
            });
        }
        let payload_bytes = len_bytes as u32;
        let bulk_bytes = if len_bytes > INLINE_BYTES {
            payload_bytes
        } else {
            0
        };
        let (place, bulk_end) = match self.cursor.reserve(memory, bulk_bytes) {
            Ok(reserved) => reserved,
            Err(Stall::Full) => return Err(PushError::Full),
            Err(Stall::Corrupt(corrupt)) => return Err(PushError::Corrupt(corrupt)),
        };
        let slot = memory.slot_at(place.slot);
        if let ([piece], Some(mut line)) = (pieces, packed::line_of(header, len_bytes)) {
            // SAFETY: a `Piece` is readable while it lives and lies in no ring; `line_of` has room for so many bytes. A line is
            // what a slot's first cache line holds behind its first word.
            unsafe {
                let to = line.as_mut_ptr().cast::<u8>().add(packed::HEAD_BYTES);
                copy_short(piece.address, to, len_bytes);
                let to = slot.add(HEADER_OFFSET).cast();
                core::ptr::copy_nonoverlapping(line.as_ptr(), to, line.len());
            }
            self.cursor
                .publish(memory, bulk_end, payload_bytes | PACKED);
            return Ok(());
        }
        // SAFETY: a slot holds a header behind its first word, and no header lies in a ring.
        unsafe {
            let to = slot.add(HEADER_OFFSET);
            core::ptr::copy_nonoverlapping(header.as_ptr(), to, HEADER_BYTES);
        }
        if bulk_bytes == 0 {
            let mut to = PAYLOAD_OFFSET;
            for piece in pieces {
                // SAFETY: a `Piece` is readable while it lives and lies in no ring; all pieces together have at most
                // INLINE_BYTES, which is what a slot holds from PAYLOAD_OFFSET on.
                unsafe { copy_short(piece.address, slot.add(to), piece.len_bytes) };
                to += piece.len_bytes;
            }
        } else {
            let mut to = memory.bulk_base + place.bulk_offset;
            for piece in pieces {
                // SAFETY: a `Piece` is readable while it lives and lies in no ring.
                unsafe { memory.region.copy_in(to, piece.address, piece.len_bytes) };
                to += piece.len_bytes;
            }
        }
        self.cursor.publish(memory, bulk_end, payload_bytes);
        if bulk_bytes != 0 {
            self.prepare(bulk_bytes);
        }
        Ok(())
    }

    /// As [`Self::try_push`], for a payload that is in lent memory which the consumer has mapped, and up to 16 bytes behind
    /// it. The memory must stay as it is until the packet is released.
    #[inline]
    pub fn try_push_lent(
        &mut self,
        header: &[u8; HEADER_BYTES],
        reference: Reference,
        tail: &[u8],
    ) -> Result<(), PushError> {
        let memory = &self.memory;
        let len_bytes = reference.len_bytes as usize + tail.len();
        if len_bytes > memory.max_payload_bytes || tail.len() > MAX_TAIL_BYTES {
            return Err(PushError::TooLong {
                len_bytes,
                max_bytes: memory.max_payload_bytes,
            });
        }
        let (place, bulk_end) = match self.cursor.reserve(memory, 0) {
            Ok(reserved) => reserved,
            Err(Stall::Full) => return Err(PushError::Full),
            Err(Stall::Corrupt(corrupt)) => return Err(PushError::Corrupt(corrupt)),
        };
        let mut bytes = [0; HEADER_BYTES + REFERENCE_BYTES + MAX_TAIL_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(header);
        bytes[HEADER_BYTES..][..REFERENCE_BYTES].copy_from_slice(&reference.to_bytes());
        bytes[HEADER_BYTES + REFERENCE_BYTES..][..tail.len()].copy_from_slice(tail);
        // SAFETY: a slot holds so many bytes behind its first word, and `bytes` lies in no ring.
        unsafe {
            let to = memory.slot_at(place.slot).add(HEADER_OFFSET);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.cursor
            .publish(memory, bulk_end, len_bytes as u32 | LENT);
        Ok(())
    }

    /// Tells the consumer whether this end lends memory under `number`.
    pub(super) fn set_live(&mut self, number: u32, live: bool) {
        let bit = 1 << number;
        self.live = self.live & !bit | if live { bit } else { 0 };
        self.mapped &= self.live;
        self.memory.set_bits(LIVE_OFFSET, self.live);
    }

    /// Whether the consumer has mapped the memory lent under `number`.
    #[inline]
    pub(super) fn is_mapped(&mut self, number: u32) -> bool {
        let bit = 1 << number;
        if self.mapped & bit == 0 {
            self.mapped = self.memory.bits(MAPPED_OFFSET) & self.live;
        }
        self.mapped & bit != 0
    }

    /// Whether the consumer still has mapped what was lent under `number`, live or not.
    pub(super) fn is_kept(&self, number: u32) -> bool {
        self.memory.bits(MAPPED_OFFSET) & 1 << number != 0
    }

    /// Packets that the consumer has released, as far as it has said.
    #[inline]
    pub fn released(&mut self) -> Result<u64, PeerCorrupt> {
        if self.cursor.outstanding() > 0 {
            self.cursor.refresh(&self.memory)?;
        }
        Ok(self.cursor.position() - self.cursor.outstanding())
    }

    /// Whether the consumer has released packets of which this end has taken no note.
    pub(super) fn has_released(&self) -> bool {
        self.cursor.has_released(&self.memory)
    }

    /// Fetches the lines of the next bulk payload out of the consumer's cache, where they stay since it read them.
    /// Messages of one size tend to follow one another, and the wait for an answer pays for the transfer.
    #[inline]
    fn prepare(&self, bulk_bytes: u32) {
        if let Some(offset) = self.cursor.next_bulk_offset(bulk_bytes) {
            let len_bytes = bulk_bytes as usize;
            let next = self
                .memory
                .region
                .at(self.memory.bulk_base + offset, len_bytes);
            for line in (0..len_bytes).step_by(LINE_BYTES) {
                prefetch_write(next.wrapping_add(line));
            }
        }
    }

    /// Whether the consumer has released every packet.
    pub fn drained(&mut self) -> Result<bool, PeerCorrupt> {
        if self.cursor.outstanding() > 0 {
            self.cursor.refresh(&self.memory)?;
        }
        Ok(self.cursor.outstanding() == 0)
    }

    /// Packets pushed since the ring was made.
    pub fn pushed(&self) -> u64 {
        self.cursor.position()
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

/// A packet at the head of the ring.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// A private copy of the header.
    pub header: &'a [u8; HEADER_BYTES],
    /// The payload, whose length is checked.
    pub payload: Received<'a>,
}

/// The packet at the head, once it was looked at.
#[derive(Clone, Copy, Debug)]
struct Head {
    len_bytes: usize,
    payload: Whereabouts,
    bulk_end: u64,
}

/// Where a payload is.
#[derive(Clone, Copy, Debug)]
enum Whereabouts {
    /// In the slot, so in the private copy.
    Slot,
    /// In the region from this offset on.
    Bulk(usize),
    /// In lent memory, checked; its tail is in the private copy.
    Lent(Reference),
}

/// The receiving end.
#[derive(Debug)]
pub struct Consumer {
    memory: Memory,
    cursor: ConsumerCursor,
    /// Private copy of header and inline payload of the packet at the head.
    scratch: [u64; (HEADER_BYTES + INLINE_BYTES) / 8],
    head: Option<Head>,
    borrowed: Borrowed,
}

impl Consumer {
    pub(super) fn new(region: Arc<Region>, base: usize, config: &RingConfig) -> Self {
        Self {
            memory: Memory::new(region, base, config),
            cursor: ConsumerCursor::new(shape(config)),
            scratch: [0; (HEADER_BYTES + INLINE_BYTES) / 8],
            head: None,
            borrowed: Borrowed::default(),
        }
    }

    /// Looks for a packet at the head and takes private copies of what must not change; [`Self::head`] then shows
    /// it. It stays at the head until [`Self::release`]. An error means that the ring is of no more use.
    #[inline]
    pub fn poll(&mut self) -> Result<bool, PeerCorrupt> {
        let memory = &self.memory;
        let Some((slot, payload_bytes)) = self.cursor.ready(memory) else {
            if self.cursor.unannounced() {
                self.cursor.announce(memory);
            }
            return Ok(false);
        };
        let is_lent = payload_bytes & LENT != 0;
        let is_packed = payload_bytes & PACKED != 0;
        let len_bytes = (payload_bytes & !(LENT | PACKED)) as usize;
        if len_bytes > memory.max_payload_bytes
            || is_packed && (is_lent || len_bytes > packed::PAYLOAD_BYTES)
        {
            return Err(PeerCorrupt {
                what: "payload length in bytes",
                value: u64::from(payload_bytes),
            });
        }
        let in_slot = if is_packed {
            0
        } else if is_lent {
            REFERENCE_BYTES + MAX_TAIL_BYTES
        } else if len_bytes <= INLINE_BYTES {
            len_bytes
        } else {
            0
        };
        let from = memory.slot_at(slot);
        let (first_line, rest) = self.scratch.split_at_mut(FIRST_LINE_WORDS);
        let rest_words = in_slot.saturating_sub(8).div_ceil(8);
        // SAFETY: the first line of a slot, then as many further words of it as the payload has, at most
        // INLINE_BYTES. Each is read once, so what was checked is what is used.
        unsafe {
            let from = from.add(HEADER_OFFSET).cast::<u64>();
            for (index, word) in first_line.iter_mut().enumerate() {
                *word = AtomicU64::from_ptr(from.add(index)).load(Ordering::Relaxed);
            }
            let from = from.add(FIRST_LINE_WORDS);
            for (index, word) in rest[..rest_words].iter_mut().enumerate() {
                *word = AtomicU64::from_ptr(from.add(index)).load(Ordering::Relaxed);
            }
        }
        if is_packed {
            packed::unpack(&mut self.scratch);
        }
        let (payload, bulk_end) = if is_lent {
            let bytes: &[u8; HEADER_BYTES + INLINE_BYTES] = zerocopy::transmute_ref!(&self.scratch);
            let reference = bytes[HEADER_BYTES..].first_chunk().copied();
            let reference = Reference::from_bytes(reference.expect("a slot holds a reference"));
            self.borrowed.check(reference, len_bytes)?;
            (Whereabouts::Lent(reference), self.cursor.place(0).1)
        } else if len_bytes <= INLINE_BYTES {
            (Whereabouts::Slot, self.cursor.place(0).1)
        } else {
            let (offset, end) = self.cursor.place(payload_bytes);
            (Whereabouts::Bulk(memory.bulk_base + offset), end)
        };
        self.head = Some(Head {
            len_bytes,
            payload,
            bulk_end,
        });
        Ok(true)
    }

    /// The packet that [`Self::poll`] found, until it is released.
    #[inline]
    pub fn head(&self) -> Option<Incoming<'_>> {
        let head = self.head?;
        let scratch: &[u8; HEADER_BYTES + INLINE_BYTES] = zerocopy::transmute_ref!(&self.scratch);
        let (header, rest) = scratch
            .split_first_chunk()
            .expect("a header fits the scratch");
        let payload = match head.payload {
            Whereabouts::Slot => Received::Inline(&rest[..head.len_bytes]),
            Whereabouts::Bulk(offset) => Received::Bulk(BulkPayload {
                region: &self.memory.region,
                offset,
                body_bytes: head.len_bytes,
                tail: &[],
                lent: false,
            }),
            Whereabouts::Lent(reference) => {
                let body_bytes = reference.len_bytes as usize;
                Received::Bulk(BulkPayload {
                    region: self.borrowed.region(reference.number)?,
                    offset: reference.offset as usize,
                    body_bytes,
                    tail: &rest[REFERENCE_BYTES..][..head.len_bytes - body_bytes],
                    lent: true,
                })
            }
        };
        Some(Incoming { header, payload })
    }

    /// [`Self::poll`] and [`Self::head`] in one.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Incoming<'_>>, PeerCorrupt> {
        Ok(if self.poll()? { self.head() } else { None })
    }

    /// Whether a packet waits at the head; touches nothing but its slot's word.
    #[inline(always)]
    pub fn has_packet(&self) -> bool {
        self.cursor.ready(&self.memory).is_some()
    }

    /// Gives the room of the packet at the head back to the producer. Does nothing when [`Self::poll`] has found no
    /// packet since the last release.
    #[inline]
    pub fn release(&mut self) {
        if let Some(head) = self.head.take() {
            self.cursor.release(&self.memory, head.bulk_end);
        }
    }

    /// Lets the producer know of all releases now. `peek` does so whenever it finds nothing.
    #[inline]
    pub fn announce(&mut self) {
        if self.cursor.unannounced() {
            self.cursor.announce(&self.memory);
        }
    }

    /// Packets released since the ring was made.
    pub fn released(&self) -> u64 {
        self.cursor.position()
    }

    /// Takes in memory that the producer lends under `number`; drops it when it does not, or has lent other memory so.
    pub(super) fn borrow(&mut self, number: u32, region: super::region::Region) {
        if self.memory.bits(LIVE_OFFSET) & 1 << number != 0 {
            self.borrowed.accept(number, region);
            self.memory.set_bits(MAPPED_OFFSET, self.borrowed.mapped());
        }
    }

    /// Unmaps what the producer has taken back.
    pub(super) fn give_back(&mut self) {
        if self.borrowed.mapped() != 0
            && self.head.is_none()
            && self.borrowed.retain(self.memory.bits(LIVE_OFFSET))
        {
            self.memory.set_bits(MAPPED_OFFSET, self.borrowed.mapped());
        }
    }

    /// Whether the producer has said that no packet follows those in the ring.
    pub fn producer_closed(&self) -> bool {
        self.memory.is_set(PRODUCER_CLOSED_OFFSET)
    }

    /// Tells the producer that no more packets will be taken.
    pub fn close(&mut self) {
        self.announce();
        self.memory.set(CONSUMER_CLOSED_OFFSET);
    }
}
