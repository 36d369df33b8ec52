//! Moves bytes: what a DMA engine does on a NIC. Frames are resolved to addresses of this process here, and nowhere else.
//! Also the few calls of the operating system that have no safe form.

use core::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use mapwire_host::memory::changes::PageBytes;
use mapwire_host::memory::{SharedBuffer, raw, words};
use mapwire_host::views::MultiView;
use mapwire_nic::{Dma, Piece, Source, Transmit};
use mapwire_translation::{Frame, PAGE_BYTES};
use mapwire_transport::ofi::OfiPinner;
use mapwire_transport::ofi::rma::Registrar;
use mapwire_transport::payload::{Payload, Piece as Bytes, Received};
use mapwire_wire::{Atomic, CHUNK_BYTES, Width};

use crate::pages::Pins;

/// A payload of the transport, for the node.
pub(crate) struct Taken<'a>(Received<'a>);

impl<'a> From<Received<'a>> for Taken<'a> {
    #[inline(always)]
    fn from(payload: Received<'a>) -> Self {
        Self(payload)
    }
}

impl mapwire_node::Payload for Taken<'_> {
    #[inline(always)]
    fn len_bytes(&self) -> usize {
        self.0.len_bytes()
    }

    #[inline(always)]
    fn private(&self) -> &[u8] {
        match self.0 {
            Received::Inline(bytes) => bytes,
            Received::Bulk(_) => &[],
        }
    }

    #[inline]
    fn copy_to_slice(&self, offset: usize, into: &mut [u8]) {
        self.0.copy_to_slice(offset, into);
    }
}

/// Bytes of the longest piece, wherever it begins in its first frame.
const GARBAGE_BYTES: usize = CHUNK_BYTES + PAGE_BYTES;

/// Where frames are in this process. For the garbage frame (UTLB §4.2) that is memory that nobody reads for what is stored there, and other
/// memory, of zeros, for what is sent from there, so that no peer gets what another has stored. Each holds a longest piece.
#[derive(Debug)]
pub(crate) struct Frames {
    pins: Pins,
    sink: Box<[u8]>,
    zeros: Box<[u8]>,
}

/// The first page of a piece, behind which its others lie. Where the pinner does not know a frame, the piece is garbage like the
/// garbage frame, and has none.
#[inline]
fn page_of(pins: &Pins, piece: &Piece) -> Option<*mut u8> {
    assert!(piece.length as usize <= CHUNK_BYTES && (piece.offset as usize) < PAGE_BYTES);
    let Frame(first) = piece.frame;
    let page = match piece.frame {
        Frame::GARBAGE => None,
        frame => pins.address_of(frame),
    }?;
    // The pinner's promise, which all that is copied rests on.
    let follow = (1..u64::from(piece.frames())).all(|index| {
        let expected = page.wrapping_add(index as usize * PAGE_BYTES);
        pins.address_of(Frame(first + index)) == Some(expected)
    });
    debug_assert!(follow, "{piece:?} is not in consecutive pages");
    follow.then_some(page)
}

impl Frames {
    pub(crate) fn new(pins: Pins) -> Self {
        Self { pins, sink: vec![0; GARBAGE_BYTES].into(), zeros: vec![0; GARBAGE_BYTES].into() }
    }

    /// Who pins them.
    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    #[inline]
    pub(crate) fn pins_mut(&mut self) -> &mut Pins {
        &mut self.pins
    }

    /// Where a piece is stored.
    #[inline]
    fn address(&mut self, piece: &Piece) -> *mut u8 {
        let page = page_of(&self.pins, piece).unwrap_or(self.sink.as_mut_ptr());
        page.wrapping_add(piece.offset as usize)
    }

    /// Carries out a DMA: the payload's bytes to their frames, then the signal, then the update of a word, whose old value it gives.
    #[inline]
    pub(crate) fn deliver(&mut self, dma: &Dma, Taken(payload): &Taken<'_>) -> u64 {
        let length = dma.piece.length as usize;
        if length > 0 {
            let to = self.address(&dma.piece);
            // SAFETY: the piece lies within the garbage memory, which holds the longest, or within consecutive pages that are all pinned
            // by this process, so mapped and writable (`page_of` has checked each); `copy_to` checks the range within the payload.
            unsafe { payload.copy_to(dma.at as usize, to, length) };
        }
        if let Some(signal) = dma.signal {
            let to = self.address(&signal.piece).cast::<u64>();
            debug_assert!(to.is_aligned());
            // SAFETY: eight aligned bytes (the NIC refuses others) of a page as above, which others reach by atomics too.
            let word = unsafe { AtomicU64::from_ptr(to) };
            words::signal(word, signal.op, signal.value);
        }
        dma.update.as_ref().map_or(0, |update| self.apply(&update.piece, update.atomic))
    }

    /// Updates a word, and gives what it held.
    #[cold]
    fn apply(&self, piece: &Piece, atomic: Atomic) -> u64 {
        let Some(page) = page_of(&self.pins, piece) else {
            return 0;
        };
        let word = page.wrapping_add(piece.offset as usize);
        // SAFETY: aligned bytes of the word's width (the NIC refuses others) of a pinned page, mapped and writable, which others reach by
        // atomics too.
        unsafe {
            match atomic.width {
                Width::Four => words::update_u32(AtomicU32::from_ptr(word.cast()), atomic),
                Width::Eight => words::update_u64(AtomicU64::from_ptr(word.cast()), atomic),
            }
        }
    }

    /// The payload that a packet is sent with.
    #[inline(always)]
    pub(crate) fn payload_of<'a>(&'a self, packet: &'a Transmit) -> Payload<'a> {
        match self.parts_of(packet) {
            (None, inside) => Payload::one(inside),
            (Some(bytes), []) => Payload::one(bytes),
            (Some(bytes), trailer) => Payload::two(bytes, trailer),
        }
    }

    /// The memory that a packet is sent from, and the bytes behind it that travel inside it.
    #[inline(always)]
    pub(crate) fn parts_of<'a, 'b>(&'a self, packet: &'b Transmit) -> (Option<Bytes<'a>>, &'b [u8]) {
        match &packet.source {
            Source::Inline { bytes, length } => (None, &bytes[..usize::from(*length)]),
            Source::Message(bytes) => (None, &bytes[..]),
            Source::Memory { piece, trailer, .. } => {
                let trailer = trailer.as_ref().map_or(&[][..], |trailer| trailer);
                let page = page_of(&self.pins, piece).map_or(self.zeros.as_ptr(), <*mut u8>::cast_const);
                // SAFETY: the piece lies within the zeros, which hold the longest, or within consecutive pages that are all pinned by this
                // process (`page_of` has checked each), so mapped and readable while `pins` is borrowed; rings are never pinned.
                let bytes = unsafe { Bytes::from_raw(page.wrapping_add(piece.offset as usize), piece.length as usize) };
                (Some(bytes), trailer)
            }
        }
    }
}

/// Memory of this process that a service stores from.
#[derive(Debug)]
pub(crate) enum OwnBytes {
    /// A buffer, reached without its lock: that is taken before the driver's, by whoever takes both.
    Buffer { address: usize, bytes: usize, _buffer: Arc<Mutex<SharedBuffer>> },
    /// The privileged view of memory with several.
    Views(Arc<MultiView>),
}

impl OwnBytes {
    /// The bytes of a buffer with memory of its own.
    pub(crate) fn of_buffer(buffer: Arc<Mutex<SharedBuffer>>) -> Self {
        let held = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let (address, bytes) = (held.as_ptr().addr(), held.len());
        drop(held);
        Self::Buffer { address, bytes, _buffer: buffer }
    }

    /// The `bytes` bytes from `offset` on, to be copied elsewhere; peers may change them meanwhile. `None`: they are not all there.
    #[inline]
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Option<raw::Source<'_>> {
        let first = match self {
            Self::Buffer { address, bytes: all, .. } => {
                let is_in = offset <= *all && bytes <= *all - offset;
                is_in.then(|| (address + offset) as *const u8)?
            }
            Self::Views(views) => views.privileged(offset, bytes).ok()?.cast_const(),
        };
        // SAFETY: the range lies in the buffer, which stays mapped at its address while it lives, also when it is revoked, or in the
        // privileged view, which is mapped while the views live.
        Some(unsafe { raw::Source::from_raw(first, bytes) })
    }
}

impl OwnBytes {
    /// Copies the page at `offset` out.
    pub(crate) fn page(&self, offset: u64) -> Option<PageBytes> {
        let mut page = [0; PAGE_BYTES];
        self.part(offset as usize, PAGE_BYTES)?.copy_to_slice(&mut page);
        Some(page)
    }

    /// Stores a page at `offset`; false: it is not all there.
    pub(crate) fn set_page(&self, offset: u64, page: &PageBytes) -> bool {
        let Some(place) = self.part(offset as usize, PAGE_BYTES) else { return false };
        // SAFETY: the range is mapped, as for `part`, and for stores; the process's threads have no access to the page now, and peers may
        // change it at any time, for which `copy_in` is made.
        unsafe { raw::copy_in(place.as_ptr().cast_mut(), page) };
        true
    }

    /// Copies a page from one offset to another.
    pub(crate) fn copy_page(&self, from: u64, to: u64) -> bool {
        let (from, to) = (self.part(from as usize, PAGE_BYTES), self.part(to as usize, PAGE_BYTES));
        let Some((from, to)) =
            from.zip(to).filter(|(from, to)| from.as_ptr().addr().abs_diff(to.as_ptr().addr()) >= PAGE_BYTES)
        else {
            return false;
        };
        // SAFETY: both ranges are mapped, as for `part`, and do not overlap, as was just checked.
        unsafe { raw::copy(from.as_ptr(), to.as_ptr().cast_mut(), PAGE_BYTES) };
        true
    }
}

/// What registers memory of transfers.
pub(crate) fn pinner(registrar: Registrar) -> OfiPinner {
    // SAFETY: an operation uses memory of a transfer only, whose caller waits until it is over: it lends the memory for as long, and
    // looks whether it is mapped. Without hardware a region of other memory is a note that nobody reads; with it, pages are given back as
    // the transfer ends.
    unsafe { OfiPinner::new(registrar) }
}

/// Ends the process at once: no destructor runs, as befits a signal handler.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: `_exit` is async-signal-safe and does not return.
    unsafe { libc::_exit(status) }
}

/// Whether a thread of this process still runs.
pub(crate) fn thread_lives(tid: i32) -> bool {
    // SAFETY: signal 0 is sent to nobody; the call only checks that the thread is there.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) == 0 }
}
