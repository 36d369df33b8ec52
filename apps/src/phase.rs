//! Views of shared memory: the only module of the programs that holds `unsafe`.
//!
//! A parallel program lays out *blocks* of shared memory, and then runs phase after phase, separated by barriers: in a phase a block is
//! read by any number of workers or written by one. [`Blocks`] checks that rule at run time. Every block counts its views, and a second
//! writer, or a writer beside readers, panics. In plain threads this makes the views sound by itself. Over mapwire each rank counts only
//! its own views; there the same program, with the same workers in the same phases, relies on the checks of the plain run, and on the
//! barrier between the phases.
//!
//! [`Words`] are 64-bit words that several workers read and write at any time; they are atomics.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut, Index, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mapwire::{Sharable, Shared, SharedSlice};

use crate::error::{Failure, while_doing};

/// An element of a block: plain old data for which zero bytes are a value.
pub trait Element: Sharable + Sync {}
impl<T: Sharable + Sync> Element for T {}

/// A block's length in elements, and the rank that makes it and first owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// Number of elements; at least one.
    pub length: usize,
    /// The rank in whose memory the block is created.
    pub owner: usize,
}

/// The count in [`Block::views`] for one writer.
const WRITER: u32 = u32::MAX;

/// One block of shared memory. Obtained from [`Blocks`] by index. Its count of views has a cache line of its own, so that threads that use
/// neighbouring blocks do not slow each other.
#[repr(align(64))]
pub struct Block<T> {
    start: NonNull<T>,
    length: usize,
    /// Present views of this block in this process: number of readers, or [`WRITER`].
    views: AtomicU32,
}

// SAFETY: a `Block` gives access to its memory only through `read` and `write`, which keep, across threads,
// to many readers or one writer; `T: Element` may itself move between threads.
unsafe impl<T: Element> Send for Block<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Block<T> {}

impl<T: Element> Block<T> {
    /// # Safety
    /// `start` is aligned for `T` and heads `length` elements that are initialised, stay mapped and are reached through
    /// this block alone for as long as it lives, save by other processes that keep to the phases.
    unsafe fn new(start: NonNull<T>, length: usize) -> Self {
        Self { start, length, views: AtomicU32::new(0) }
    }

    /// A view for reading. Panics if a worker of this process is writing to the block.
    #[inline]
    pub fn read(&self) -> Reading<'_, T> {
        let mut seen = self.views.load(Ordering::Relaxed);
        loop {
            assert!(seen < WRITER - 1, "a block is read while a worker writes to it: two phases overlap");
            match self.views.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return View { block: self },
                Err(now) => seen = now,
            }
        }
    }

    /// A view for writing. Panics if the block has any other view in this process.
    #[inline]
    pub fn write(&self) -> Writing<'_, T> {
        let taken = self.views.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed);
        assert!(taken.is_ok(), "a block is written while another view of it is out: two phases overlap");
        View { block: self }
    }
}

/// A view of a block for reading.
pub type Reading<'b, T> = View<'b, T, false>;
/// A view of a block for reading and writing.
pub type Writing<'b, T> = View<'b, T, true>;

/// A view of a block, counted in its `views`.
pub struct View<'b, T: Element, const WRITES: bool> {
    block: &'b Block<T>,
}

impl<T: Element, const WRITES: bool> Deref for View<'_, T, WRITES> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` heads `length` live elements (`Block::new`), and while this view is counted in `views` no other
        // writer's view exists.
        unsafe { std::slice::from_raw_parts(self.block.start.as_ptr(), self.block.length) }
    }
}

impl<T: Element> DerefMut for Writing<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `views` holds `WRITER`, so this is the only view, and `&mut self` makes this the only slice
        // made from it.
        unsafe { std::slice::from_raw_parts_mut(self.block.start.as_ptr(), self.block.length) }
    }
}

impl<T: Element, const WRITES: bool> Drop for View<'_, T, WRITES> {
    #[inline]
    fn drop(&mut self) {
        match WRITES {
            true => self.block.views.store(0, Ordering::Release),
            false => _ = self.block.views.fetch_sub(1, Ordering::Release),
        }
    }
}

/// Blocks of one layout, by number. They live no longer than the crew (`'c`) whose memory they are.
pub struct Blocks<'c, T> {
    blocks: Vec<Block<T>>,
    memory: Memory<'c>,
}

impl<T> Index<usize> for Blocks<'_, T> {
    type Output = Block<T>;
    #[inline]
    fn index(&self, number: usize) -> &Block<T> {
        &self.blocks[number]
    }
}

impl<'c, T: Element> Blocks<'c, T> {
    /// Zeroed blocks of memory that all ranks share, each a minipage. Every rank allocates those that it owns and tells the
    /// others their addresses, in a table of its own. Collective, with the same shapes in every rank.
    pub(crate) fn shared(shared: &'c Shared, shapes: &[BlockShape]) -> Result<Self, mapwire::Error> {
        let node = shared.node();
        let mut addresses = vec![0; shapes.len()];
        for root in 0..node.size() {
            let theirs = || (0..shapes.len()).filter(|&at| shapes[at].owner == root);
            let count = theirs().count();
            if count == 0 {
                continue;
            }
            let table = if root == node.rank() {
                let mut own = Vec::with_capacity(count);
                for at in theirs() {
                    own.push(shared.alloc::<T>(shapes[at].length)?.address());
                }
                let table = shared.alloc::<u64>(count)?;
                table.write_from(0, &own)?;
                shared.broadcast_slice(root, Some(table))?
            } else {
                shared.broadcast_slice(root, None)?
            };
            let mut told = vec![0; count];
            table.read_into(0, &mut told)?;
            for (at, address) in theirs().zip(told) {
                addresses[at] = address;
            }
        }
        let mut blocks = Vec::with_capacity(shapes.len());
        for (shape, address) in shapes.iter().zip(addresses) {
            // SAFETY: the owner got `address` from `alloc` for this very shape, and `Blocks` borrows `shared` for as long as it
            // lives.
            let slice = unsafe { SharedSlice::<T>::from_address(shared, address, shape.length)? };
            let start = NonNull::new(slice.as_ptr()).expect("shared memory is not at address 0");
            // SAFETY: `from_address` has checked that the block is mapped and aligned; it was zeroed when it was allocated, and
            // any bytes are a `T`; each allocation is one block.
            blocks.push(unsafe { Block::new(start, shape.length) });
        }
        Ok(Self { blocks, memory: Memory::Shared(shared) })
    }
}

impl<'c, T: Element> Blocks<'c, T> {
    /// Zeroed blocks of one allocation that all ranks share, with nothing between them. Collective.
    pub(crate) fn shared_adjacent(shared: &'c Shared, lengths: &[usize]) -> Result<Self, mapwire::Error> {
        let mine = (shared.node().rank() == 0).then(|| shared.alloc::<T>(lengths.iter().sum())).transpose()?;
        let all = shared.broadcast_slice(0, mine)?;
        let mut blocks = Vec::with_capacity(lengths.len());
        let mut next = 0;
        for &length in lengths {
            let start = NonNull::new(all.part(next, length)?.as_ptr()).expect("shared memory is not at address 0");
            // SAFETY: `part` has checked that the block is within the allocation, which `Blocks` keeps mapped by its borrow of `shared`;
            // it was zeroed when it was allocated, and any bytes are a `T`; blocks do not overlap.
            blocks.push(unsafe { Block::new(start, length) });
            next += length;
        }
        Ok(Self { blocks, memory: Memory::Shared(shared) })
    }
}

impl<T: Element> Blocks<'_, T> {
    /// Zeroed blocks in this process's own memory, one after another, each from a cache line of its own.
    pub(crate) fn plain(shapes: &[BlockShape]) -> Self {
        Self::plain_each(shapes.iter().map(|shape| shape.length), CACHE_LINE_BYTES)
    }

    /// Zeroed blocks in this process's own memory, with nothing between them.
    pub(crate) fn plain_adjacent(lengths: &[usize]) -> Self {
        Self::plain_each(lengths.iter().copied(), size_of::<T>())
    }

    /// `unit` is a multiple of `T`'s alignment: each block takes whole ones.
    fn plain_each(lengths: impl Iterator<Item = usize> + Clone, unit: usize) -> Self {
        let mut offsets = Vec::new();
        let mut bytes = 0usize;
        for length in lengths.clone() {
            offsets.push(bytes);
            bytes += (length * size_of::<T>()).next_multiple_of(unit);
        }
        let slab = Slab::zeroed(bytes);
        let blocks = lengths
            .zip(offsets)
            .map(|(length, offset)| {
                // SAFETY: `offset` lies within the slab's `bytes`, as the sum above has it.
                let start = unsafe { slab.start.add(offset) }.cast::<T>();
                // SAFETY: the slab is zeroed, and zero bytes are a value of `T` (`FromBytes`); offsets are multiples of
                // `unit`, so of `T`'s alignment; blocks do not overlap; the slab moves into `Blocks`.
                unsafe { Block::new(start, length) }
            })
            .collect();
        Self { blocks, memory: Memory::Plain(slab) }
    }
}

impl<T: Element> Blocks<'_, T> {
    /// Requests blocks before their use, each for writing if it `writes`; does nothing in plain memory.
    pub fn prefetch(&self, asked: &[(usize, bool)]) -> Result<(), Failure> {
        let Memory::Shared(shared) = self.memory else {
            return Ok(());
        };
        let run = |&(number, writes): &(usize, bool)| {
            let Block { start, length, .. } = &self.blocks[number];
            let (address, bytes) = (start.as_ptr().addr(), length * size_of::<T>());
            (address as u64, bytes as u64, writes)
        };
        let runs: Vec<_> = asked.iter().map(run).collect();
        let asked = shared.prefetch_all(&runs);
        asked.map_err(while_doing("asking for blocks"))
    }
}

impl<T> Blocks<'_, T> {
    /// Number of blocks.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }
}

/// Groups of 64-bit words that any worker may read and write at any time, by number.
pub struct Words<'c> {
    groups: Vec<(NonNull<AtomicU64>, usize)>,
    memory: Memory<'c>,
}

// SAFETY: the words are reached only as `AtomicU64`s, which threads may share.
unsafe impl Send for Words<'_> {}
// SAFETY: as above.
unsafe impl Sync for Words<'_> {}

impl Index<usize> for Words<'_> {
    type Output = [AtomicU64];
    #[inline]
    fn index(&self, number: usize) -> &[AtomicU64] {
        let (start, length) = self.groups[number];
        // SAFETY: `start` heads `length` zeroed, mapped words for as long as `Words` lives (both constructors take them
        // from blocks of `u64` whose memory moves in here), and nothing reaches them but as atomics.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }
}

impl Words<'_> {
    /// Says that this worker overwrites these runs of a group before it next comes to a barrier; does nothing in plain memory.
    pub fn overwrite(&self, group: usize, runs: impl Iterator<Item = Range<usize>>) -> Result<(), Failure> {
        let Memory::Shared(shared) = self.memory else {
            return Ok(());
        };
        let start = self.groups[group].0.as_ptr().addr();
        let runs = runs.map(|run| ((start + run.start * WORD_BYTES) as u64, (run.len() * WORD_BYTES) as u64));
        let said = shared.overwrite_all(&runs.collect::<Vec<_>>());
        said.map_err(while_doing("saying what is overwritten"))
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.groups.len()
    }
}

impl<'c> From<Blocks<'c, u64>> for Words<'c> {
    fn from(blocks: Blocks<'c, u64>) -> Self {
        Self {
            groups: blocks.blocks.iter().map(|block| (block.start.cast(), block.length)).collect(),
            memory: blocks.memory,
        }
    }
}

const CACHE_LINE_BYTES: usize = 64;
const WORD_BYTES: usize = size_of::<u64>();
const PAGE_BYTES: usize = 4096;

/// Upper bound on the shared memory of a block of `bytes`: whole pages from a page on, whole cache lines below; blocks of a few bytes take
/// less.
pub fn room_for(bytes: usize) -> u64 {
    let unit = if bytes < PAGE_BYTES { CACHE_LINE_BYTES } else { PAGE_BYTES };
    bytes.next_multiple_of(unit) as u64
}

/// Keeps blocks mapped.
enum Memory<'c> {
    Plain(#[expect(dead_code, reason = "held to be dropped with the blocks")] Slab),
    Shared(&'c Shared),
}

/// Zeroed memory from the heap, aligned to pages as shared blocks are. As with shared memory, the first touch of a page makes it.
struct Slab {
    /// On a page.
    start: NonNull<u8>,
    allocated: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a slab owns its memory, and nothing is read or written through it.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    fn zeroed(bytes: usize) -> Self {
        // An allocation that asks for the alignment of a page is cleared at once, and so all its pages touched by this thread.
        let layout = Layout::from_size_align(bytes + PAGE_BYTES, align_of::<u64>())
            .expect("a program checks its sizes before it lays out memory");
        // SAFETY: the layout's size is not zero.
        let Some(allocated) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let skipped = allocated.addr().get().next_multiple_of(PAGE_BYTES) - allocated.addr().get();
        // SAFETY: less than a page is skipped, which the layout has beyond `bytes`.
        Self { start: unsafe { allocated.add(skipped) }, allocated, layout }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout, and freed once.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks<'c>(lengths: &[usize]) -> Blocks<'c, u32> {
        let shapes: Vec<_> = lengths.iter().map(|&length| BlockShape { length, owner: 0 }).collect();
        Blocks::plain(&shapes)
    }

    #[test]
    fn blocks_are_zeroed_and_do_not_overlap() {
        let blocks = blocks(&[3, 16, 1]);
        assert_eq!(blocks.count(), 3);
        for number in 0..3 {
            assert!(blocks[number].read().iter().all(|&x| x == 0));
            blocks[number].write().fill(number as u32 + 1);
        }
        assert_eq!(&blocks[0].read()[..], [1; 3]);
        assert_eq!(&blocks[1].read()[..], [2; 16]);
        assert_eq!(&blocks[2].read()[..], [3; 1]);
    }

    #[test]
    fn adjacent_blocks_have_nothing_between_them() {
        let blocks = Blocks::<u32>::plain_adjacent(&[3, 5, 1]);
        let starts: Vec<_> = (0..3).map(|number| blocks[number].read().as_ptr().addr()).collect();
        assert_eq!((starts[1] - starts[0], starts[2] - starts[1]), (12, 20));
        blocks[1].write().fill(7);
        assert_eq!((&blocks[0].read()[..], &blocks[2].read()[..]), (&[0; 3][..], &[0; 1][..]));
    }

    #[test]
    fn blocks_from_a_page_on_take_whole_pages() {
        let rooms = [1, 64, 65, 4095, 4096, 4097, 8192].map(room_for);
        assert_eq!(rooms, [64, 64, 128, 4096, 4096, 8192, 8192]);
    }

    #[test]
    fn many_may_read_at_once() {
        let blocks = blocks(&[4]);
        let (first, second) = (blocks[0].read(), blocks[0].read());
        assert_eq!(first[..], second[..]);
    }

    #[test]
    #[should_panic(expected = "two phases overlap")]
    fn a_writer_beside_a_reader_panics() {
        let blocks = blocks(&[4]);
        let _reader = blocks[0].read();
        let _writer = blocks[0].write();
    }

    #[test]
    #[should_panic(expected = "two phases overlap")]
    fn a_reader_beside_a_writer_panics() {
        let blocks = blocks(&[4]);
        let _writer = blocks[0].write();
        let _reader = blocks[0].read();
    }

    #[test]
    #[should_panic(expected = "two phases overlap")]
    fn a_second_writer_panics() {
        let blocks = blocks(&[4]);
        let _first = blocks[0].write();
        let _second = blocks[0].write();
    }

    #[test]
    fn a_dropped_view_frees_its_block() {
        let blocks = blocks(&[4]);
        drop(blocks[0].write());
        drop(blocks[0].read());
        blocks[0].write()[3] = 7;
        assert_eq!(blocks[0].read()[3], 7);
    }

    #[test]
    fn words_are_shared_by_threads() {
        let words = Words::from(Blocks::<u64>::plain(&[
            BlockShape { length: 1, owner: 0 },
            BlockShape { length: 2, owner: 0 },
        ]));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        words[1][1].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(words[0][0].load(Ordering::Relaxed), 0);
        assert_eq!(words[1][1].load(Ordering::Relaxed), 4000);
    }
}
