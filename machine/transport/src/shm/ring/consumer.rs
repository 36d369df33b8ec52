//! The end that receives.

use super::*;

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
    /// Where in the region the payload begins; `None` for one in the slot, and so in the private copy.
    bulk: Option<usize>,
    bulk_end: u64,
}

#[derive(Debug)]
pub struct Consumer {
    memory: Memory,
    cursor: ConsumerCursor,
    /// Private copy of header and inline payload of the packet at the head.
    scratch: [u64; (HEADER_BYTES + INLINE_BYTES) / 8],
    head: Option<Head>,
}

impl Consumer {
    pub(in crate::shm) fn new(region: Arc<Mapping>, base: usize, config: &RingConfig) -> Self {
        Self {
            memory: Memory::new(region, base, config),
            cursor: ConsumerCursor::new(shape(config)),
            scratch: [0; (HEADER_BYTES + INLINE_BYTES) / 8],
            head: None,
        }
    }

    /// Looks for a packet at the head and takes private copies of what must not change; [`Self::head`] then shows
    /// it. It stays at the head until [`Self::release`]. An error means that the ring cannot be used any more.
    #[inline]
    pub fn poll(&mut self) -> Result<bool, PeerCorrupt> {
        let memory = &self.memory;
        let Some((slot, payload_bytes)) = self.cursor.ready(memory) else {
            if self.cursor.unannounced() {
                self.cursor.announce(memory);
            }
            return Ok(false);
        };
        let is_packed = payload_bytes & PACKED != 0;
        let restarted = payload_bytes & RESTARTED != 0;
        let len_bytes = (payload_bytes & !(PACKED | RESTARTED)) as usize;
        if len_bytes > memory.max_payload_bytes || is_packed && len_bytes > packed::PAYLOAD_BYTES {
            return Err(PeerCorrupt { what: "payload length in bytes", value: u64::from(payload_bytes) });
        }
        let in_slot = if is_packed || len_bytes > INLINE_BYTES { 0 } else { len_bytes };
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
        let bulk_bytes = if len_bytes <= INLINE_BYTES { 0 } else { len_bytes as u32 };
        let (offset, bulk_end) = self.cursor.place(bulk_bytes, restarted);
        let bulk = (bulk_bytes > 0).then_some(memory.bulk_base + offset);
        self.head = Some(Head { len_bytes, bulk, bulk_end });
        Ok(true)
    }

    /// The packet that [`Self::poll`] found, until it is released.
    #[inline]
    pub fn head(&self) -> Option<Incoming<'_>> {
        let head = self.head?;
        let scratch: &[u8; HEADER_BYTES + INLINE_BYTES] = zerocopy::transmute_ref!(&self.scratch);
        let (header, rest) = scratch.split_first_chunk().expect("a header fits the scratch");
        let payload = match head.bulk {
            None => Received::Inline(&rest[..head.len_bytes]),
            Some(offset) => {
                Received::Bulk(BulkPayload { region: &self.memory.region, offset, len_bytes: head.len_bytes })
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
