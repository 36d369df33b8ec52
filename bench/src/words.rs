//! Raw memory for baselines: what a program without mapwire would do with two mappings of one memory.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mapwire::{Buffer, ExportBuilder, Import, Node};
use mapwire_host::waiting::{futex_wait, futex_wake};
use mapwire_translation::PAGE_BYTES;

use super::BenchError;

/// Memory of a program's own, that begins so many bytes before a page.
pub(crate) struct Heap {
    pub(crate) words: Words,
    _memory: Vec<u64>,
}

impl Heap {
    pub(crate) fn new(before_page: usize, bytes: usize) -> Self {
        let mut memory = vec![0_u64; (bytes + 2 * PAGE_BYTES) / 8];
        let whole = Words::new(memory.as_mut_ptr().cast(), memory.len() * 8);
        let page = whole.start.align_offset(PAGE_BYTES);
        let start = if page < before_page { page + PAGE_BYTES - before_page } else { page - before_page };
        Self { words: whole.part(start, bytes), _memory: memory }
    }
}

/// Memory that this process has mapped for as long as the bench keeps what it came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: processes share such memory, and so may threads; each access says what makes it sound.
unsafe impl Send for Words {}

impl Words {
    /// Memory that the caller keeps mapped.
    pub(crate) fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start, bytes }
    }

    pub(crate) fn of_buffer(buffer: &Buffer) -> Self {
        Self::new(buffer.as_ptr(), buffer.len())
    }

    /// The mapping of an import on the direct path.
    pub(crate) fn of_import(import: &Import) -> Result<Self, BenchError> {
        let start = import.pointer(0, import.len()).ok_or("the import is not on the direct path")?;
        Ok(Self::new(start, usize::try_from(import.len())?))
    }

    /// Stores `byte` everywhere.
    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: within the mapping; nobody else uses the bench's memory meanwhile.
        unsafe { self.start.write_bytes(byte, self.bytes) };
    }

    /// Begins an export of all of it, as memory that the program owns already.
    pub(crate) fn export<'a>(&self, node: &'a Node) -> ExportBuilder<'a> {
        // SAFETY: whoever made this value keeps the memory until the export has ended, and reads what others store there by atomic
        // loads, or once a flag says that it is complete.
        unsafe { node.export_range(self.start, self.bytes) }
    }

    /// `bytes` from byte `offset` on.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Self {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "range outside the bench's memory");
        Self::new(self.start.wrapping_add(offset), bytes)
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "word outside the bench's memory");
        // SAFETY: within the mapping and aligned, as just checked (memory of a bench starts at a multiple of 8); whoever made this
        // value keeps the mapping while it is used, and all processes access such words atomically.
        unsafe { &*self.start.add(offset).cast::<AtomicU64>() }
    }

    /// A word to sleep on.
    #[inline(always)]
    pub(crate) fn futex(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "word outside the bench's memory");
        // SAFETY: as in `word`.
        unsafe { &*self.start.add(offset).cast::<AtomicU32>() }
    }

    /// Stores a word that others sleep on, and wakes them.
    pub(crate) fn wake(&self, offset: usize, value: u32) {
        let word = self.futex(offset);
        word.store(value, Ordering::Release);
        futex_wake(word, u32::MAX);
    }

    /// Sleeps until a word that counts up has come to `value`.
    pub(crate) fn sleep_until(&self, offset: usize, value: u32) {
        let word = self.futex(offset);
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen.wrapping_sub(value) < 1 << 31 {
                return;
            }
            futex_wait(word, seen, None);
        }
    }

    /// An acquiring load.
    #[inline(always)]
    pub(crate) fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// A releasing store.
    #[inline(always)]
    pub(crate) fn store(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// An atomic addition.
    #[inline(always)]
    pub(crate) fn add(&self, offset: usize, value: u64) -> u64 {
        self.word(offset).fetch_add(value, Ordering::SeqCst)
    }

    /// Adds up the words of `bytes` from `offset` on, which must be complete: a flag has said so. `bytes` is a multiple of 8.
    #[inline(always)]
    pub(crate) fn sum(&self, offset: usize, bytes: usize) -> u64 {
        assert!(
            offset.is_multiple_of(8) && offset <= self.bytes && bytes <= self.bytes - offset,
            "range outside the bench's memory"
        );
        // SAFETY: within the mapping and aligned, as in `word`; whoever stored there has said by a flag that he is done, and stores
        // again only when the bench has answered.
        let words = unsafe { core::slice::from_raw_parts(self.start.add(offset).cast::<u64>(), bytes / 8) };
        words.iter().fold(0, |sum: u64, &word| sum.wrapping_add(word))
    }

    /// The plain put: memcpy.
    #[inline(always)]
    pub(crate) fn put(&self, offset: usize, from: &[u8]) {
        assert!(offset <= self.bytes && from.len() <= self.bytes - offset, "range outside the bench's memory");
        // SAFETY: the range is within the mapping, as just checked, and `from` is private memory.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(offset), from.len()) };
    }

    /// Takes a datagram into all of it. Its bytes.
    pub(crate) fn receive(&self, socket: &std::net::UdpSocket) -> std::io::Result<usize> {
        // SAFETY: within the mapping; nobody else uses the bench's memory meanwhile.
        let bytes = unsafe { core::slice::from_raw_parts_mut(self.start, self.bytes) };
        socket.recv(bytes)
    }

    /// Copies all of `from`, other memory of the bench, to `offset`: memcpy.
    #[inline(always)]
    pub(crate) fn copy_from(&self, offset: usize, from: Self) {
        assert!(offset <= self.bytes && from.bytes <= self.bytes - offset, "range outside the bench's memory");
        // SAFETY: both ranges are within their mappings, as just checked here and in `part`, and a bench's memories are apart.
        unsafe { core::ptr::copy_nonoverlapping(from.start, self.start.add(offset), from.bytes) };
    }

    /// The plain get: memcpy.
    #[inline(always)]
    pub(crate) fn get(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= self.bytes && to.len() <= self.bytes - offset, "range outside the bench's memory");
        // SAFETY: as in `put`; what a peer stores meanwhile may come in part, which a bench does not mind.
        unsafe { core::ptr::copy_nonoverlapping(self.start.add(offset), to.as_mut_ptr(), to.len()) };
    }
}
