//! What threads keep for themselves: blocks to give out, and blocks that were freed.
//!
//! The cache of a thread lies in memory of its process alone, so no other process can change it. It is given back when the thread ends. A
//! forked child leaves its parent's caches alone, and begins with empty ones.

use core::cell::RefCell;
use std::sync::{Arc, Weak};

use super::classes::{CLASSES, TABLE};
use super::error::HeapError;
use super::inner::Inner;
use super::slabs::{Slab, Slabs};

/// Bytes of freed blocks of a class that a thread keeps at most, and their number.
const KEPT_BYTES: usize = 256 << 10;
const KEPT_BLOCKS: usize = 64;
/// Slabs that a thread looks at in a row: each has blocks for it, unless another process has overwritten its words.
const STEPS: usize = 256;

/// A block: its slab's offset, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) slab_at: u64,
    pub(super) number: u32,
}

/// What a thread keeps of one class.
#[derive(Debug)]
pub(super) struct Bin {
    class: usize,
    /// Freed last, given out first.
    freed: Vec<Block>,
    most_freed: usize,
    /// The slab that the thread holds.
    slab: Option<Slab>,
    slab_at: u64,
    /// The word of bits last taken from, and the blocks of it that are left.
    word: u32,
    left: u64,
}

impl Bin {
    pub(super) fn new(class: usize) -> Self {
        let most_freed = (KEPT_BYTES / TABLE[class].bytes as usize).clamp(2, KEPT_BLOCKS);
        Self { class, freed: Vec::new(), most_freed, slab: None, slab_at: 0, word: 0, left: 0 }
    }

    /// A block that nobody has. `None`: there are no units left.
    ///
    /// # Errors
    /// The file cannot grow.
    #[inline(always)]
    pub(super) fn take(&mut self, slabs: Slabs<'_>) -> Result<Option<Block>, HeapError> {
        if let Some(block) = self.freed.pop() {
            return Ok(Some(block));
        }
        if self.left == 0 && !self.refill(slabs)? {
            return Ok(None);
        }
        let number = self.word * 64 + self.left.trailing_zeros();
        self.left &= self.left - 1;
        Ok(Some(Block { slab_at: self.slab_at, number }))
    }

    #[cold]
    fn refill(&mut self, slabs: Slabs<'_>) -> Result<bool, HeapError> {
        for _ in 0..STEPS {
            let slab = match self.slab {
                Some(slab) => slab,
                None => {
                    let Some(slab) = slabs.hold(self.class)? else { return Ok(false) };
                    (self.slab, self.slab_at, self.word) = (Some(slab), slab.at, 0);
                    slab
                }
            };
            if let Some((word, blocks)) = slabs.take(slab, self.word) {
                (self.word, self.left) = (word, blocks);
                return Ok(true);
            }
            if slabs.leave_full(slab) {
                self.slab = None;
            }
        }
        Err(HeapError::Damaged { at: self.slab_at })
    }

    /// Keeps a freed block.
    #[inline(always)]
    pub(super) fn keep(&mut self, block: Block, slabs: Slabs<'_>) {
        if self.freed.len() >= self.most_freed {
            self.give_half(slabs);
        }
        self.freed.push(block);
    }

    #[cold]
    fn give_half(&mut self, slabs: Slabs<'_>) {
        let half = self.most_freed.div_ceil(2);
        give(self.class, self.freed.drain(..half), slabs);
    }

    /// Gives back all that the thread keeps.
    pub(super) fn empty(&mut self, slabs: Slabs<'_>) {
        give(self.class, self.freed.drain(..), slabs);
        if let Some(slab) = self.slab.take() {
            if self.left != 0 {
                slabs.give(slab, self.word, self.left);
                self.left = 0;
            }
            slabs.leave(slab);
        }
    }
}

/// Gives blocks back to their slabs: at once those of one word that follow each other.
pub(super) fn give(class: usize, blocks: impl Iterator<Item = Block>, slabs: Slabs<'_>) {
    let (mut at, mut word, mut bits) = (0, 0, 0_u64);
    for block in blocks {
        if bits != 0 && (at, word) != (block.slab_at, block.number / 64) {
            slabs.give(Slab { at, class }, word, bits);
            bits = 0;
        }
        (at, word) = (block.slab_at, block.number / 64);
        bits |= 1 << (block.number % 64);
    }
    if bits != 0 {
        slabs.give(Slab { at, class }, word, bits);
    }
}

/// What a thread keeps of one heap.
#[derive(Debug)]
struct Cache {
    heap: u64,
    /// The process that the cache is of.
    process: u32,
    inner: Weak<Inner>,
    bins: [Bin; CLASSES],
}

impl Cache {
    fn new(heap: &Arc<Inner>) -> Self {
        let bins = core::array::from_fn(Bin::new);
        Self { heap: heap.id(), process: heap.process(), inner: Arc::downgrade(heap), bins }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // After a fork, and when the memory is closed, what it keeps is not this thread's.
        if let Some(heap) = self.inner.upgrade().filter(|heap| heap.process() == self.process) {
            self.bins.iter_mut().for_each(|bin| bin.empty(heap.slabs()));
        }
    }
}

thread_local! {
    static CACHES: RefCell<Vec<Box<Cache>>> = const { RefCell::new(Vec::new()) };
}

/// Works on what the calling thread keeps of a class. `None`, and `work` is not called: the thread ends, or a signal handler has
/// interrupted such work.
#[inline(always)]
pub(super) fn with_bin<T>(heap: &Arc<Inner>, class: usize, work: impl FnOnce(&mut Bin) -> T) -> Option<T> {
    let found = CACHES.try_with(|caches| {
        let mut caches = caches.try_borrow_mut().ok()?;
        let is_it = |cache: &Cache| cache.heap == heap.id() && cache.process == heap.process();
        let at = match caches.first() {
            Some(cache) if is_it(cache) => 0,
            _ => find(&mut caches, heap),
        };
        Some(work(&mut caches[at].bins[class]))
    });
    found.ok().flatten()
}

/// The thread's cache of the heap is the first afterwards.
#[cold]
fn find(caches: &mut Vec<Box<Cache>>, heap: &Arc<Inner>) -> usize {
    let is_it = |cache: &Cache| cache.heap == heap.id() && cache.process == heap.process();
    match caches.iter().position(|cache| is_it(cache)) {
        Some(at) => caches.swap(0, at),
        None => {
            // Those of closed heaps, and a parent's.
            caches.retain(|cache| cache.inner.upgrade().is_some_and(|heap| heap.process() == cache.process));
            caches.insert(0, Box::new(Cache::new(heap)));
        }
    }
    0
}

/// Gives back what the calling thread keeps of a heap.
pub(super) fn empty(heap: &Arc<Inner>) {
    let taken = CACHES.try_with(|caches| {
        let mut caches = caches.try_borrow_mut().ok()?;
        let at = caches.iter().position(|cache| cache.heap == heap.id())?;
        Some(caches.swap_remove(at))
    });
    drop(taken);
}
