//! What threads keep for themselves: blocks to give out, and a few runs that were freed.
//!
//! The cache of a thread lies in memory of its process alone, so no other process can change it. It is given back when the thread ends, and
//! then serves the next thread. The words that say how much it keeps are wiped in a forked child, which so begins with empty caches.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use mapwire_host::own_words;

use super::classes::{CLASSES, GRAIN_BYTES, TABLE};
use super::error::HeapError;
use super::inner::Inner;
use super::slabs::{Slab, Slabs};
use super::units::UNIT_BYTES;

/// Blocks of a class that a thread keeps at most: as many as a word has bits.
const KEPT_BLOCKS: usize = 64;
/// Bytes of freed blocks of a class that a thread keeps at most, unless it is two blocks.
const KEPT_BYTES: usize = 256 << 10;
/// Freed runs that a thread keeps at most, each of so many units: to give them to the kernel, and to fetch pages anew, takes hundreds of
/// times as long as to use them again.
const KEPT_RUNS: usize = 4;
const KEPT_RUN_UNITS: u64 = (4 << 20) / UNIT_BYTES;
/// A run that a thread keeps is at most this part of the memory.
const KEPT_SHARE: u64 = 200;
/// Slabs that a thread looks at in a row: each has blocks for it, unless another process has overwritten its words.
const STEPS: usize = 256;

/// A block: its offset, and that of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) offset: u64,
    pub(super) state_at: u64,
}

impl Block {
    /// The block of this number in a slab.
    pub(super) fn of(slab_at: u64, class: usize, number: u32) -> Self {
        let kind = &TABLE[class];
        Self { offset: slab_at + kind.offset_of(number), state_at: slab_at + kind.state_of(number) }
    }

    /// The small block at this offset, counted in grains.
    #[inline(always)]
    pub(super) fn small(grain: u32) -> Self {
        const GRAINS: u64 = UNIT_BYTES / GRAIN_BYTES;
        let grain = u64::from(grain);
        Self { offset: grain * GRAIN_BYTES, state_at: grain / GRAINS * UNIT_BYTES + grain % GRAINS }
    }

    /// Its slab, and its number there.
    fn slab(self, class: usize) -> (Slab, u32) {
        // All states lie in the slab's first unit.
        let at = self.state_at & !(UNIT_BYTES - 1);
        (Slab { at, class }, TABLE[class].block_at(self.offset.wrapping_sub(at)).unwrap_or(0))
    }
}

/// A run of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) unit: u64,
    pub(super) units: u64,
}

/// Words of a thread that forked children find 0: four a class, two a run.
const WORDS: usize = 4 * CLASSES + 2 * KEPT_RUNS;

/// A kept block, in words that threads use one after the other.
type Kept = (AtomicU64, AtomicU64);

/// What a thread keeps of each class. Never freed: a thread that ends leaves it to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bins {
    /// The blocks. The last is given out first.
    blocks: &'static [[Kept; KEPT_BLOCKS]; CLASSES],
    /// Words that a forked child finds 0.
    words: &'static [AtomicU32; WORDS],
}

impl Bins {
    /// Those of threads that have not used a heap yet.
    const NONE: Self = {
        static BLOCKS: [[Kept; KEPT_BLOCKS]; CLASSES] =
            [const { [const { (AtomicU64::new(0), AtomicU64::new(0)) }; KEPT_BLOCKS] }; CLASSES];
        static NONE: [AtomicU32; WORDS] = [const { AtomicU32::new(0) }; WORDS];
        Self { blocks: &BLOCKS, words: &NONE }
    };

    /// Empty ones. `None`: no memory.
    fn new() -> Option<Self> {
        // A parent may have been forked while one of its threads held the lock.
        if let Some(spare) = SPARE.try_lock().ok().and_then(|mut spare| spare.pop()) {
            return Some(spare);
        }
        // Not by way of the stack, which may be small.
        let class = || [const { (AtomicU64::new(0), AtomicU64::new(0)) }; KEPT_BLOCKS];
        let blocks: Vec<[Kept; KEPT_BLOCKS]> = core::iter::repeat_with(class).take(CLASSES).collect();
        let blocks: Box<[[Kept; KEPT_BLOCKS]; CLASSES]> = blocks.try_into().ok()?;
        let words = own_words::unfreed().ok()?;
        Some(Self { blocks: Box::leak(blocks), words })
    }

    #[inline(always)]
    pub(super) fn bin(self, class: usize) -> Option<Bin> {
        let blocks = self.blocks.get(class)?;
        let [hot, length, unit, word] = [0, 1, 2, 3].map(|nth| &self.words[nth * CLASSES + class]);
        Some(Bin { hot, length, blocks, unit, word, class })
    }

    fn all(self) -> impl Iterator<Item = Bin> {
        (0..CLASSES).filter_map(move |class| self.bin(class))
    }

    /// The place of a kept run: the number of its first unit plus one, or 0; and its length.
    fn run_words(self, nth: usize) -> [&'static AtomicU32; 2] {
        [0, 1].map(|word| &self.words[4 * CLASSES + nth * 2 + word])
    }

    fn swap_run(self, nth: usize, run: Option<Run>) -> Option<Run> {
        let [first, length] = self.run_words(nth);
        let of = |run: Run| (run.unit as u32 + 1, run.units as u32);
        let (unit, units) = run.map_or((0, 0), of);
        let before = (first.swap(unit, Relaxed), length.swap(units, Relaxed));
        let unit = u64::from(before.0).checked_sub(1)?;
        Some(Run { unit, units: before.1.into() })
    }

    /// Keeps a freed run, unless it is a large part of `all_units`. What is not kept, this one or the oldest.
    pub(super) fn keep_run(self, run: Run, all_units: u64) -> Option<Run> {
        if run.units > KEPT_RUN_UNITS.min(all_units / KEPT_SHARE) || run.unit >= u32::MAX.into() {
            return Some(run);
        }
        let mut left = Some(run);
        for nth in 0..KEPT_RUNS {
            if left.is_some() {
                left = self.swap_run(nth, left);
            }
        }
        left
    }

    /// A kept run of so many units, or some more, that `suits`.
    pub(super) fn take_run(self, units: u64, suits: impl Fn(Run) -> bool) -> Option<Run> {
        (0..KEPT_RUNS).find_map(|nth| {
            let run = self.swap_run(nth, None)?;
            if (units..=units + units / 8).contains(&run.units) && suits(run) {
                return Some(run);
            }
            self.swap_run(nth, Some(run));
            None
        })
    }

    /// Gives back all that the thread keeps.
    fn empty(self, slabs: Slabs<'_>) {
        self.all().for_each(|bin| bin.empty(slabs));
        for run in (0..KEPT_RUNS).filter_map(|nth| self.swap_run(nth, None)) {
            slabs.units.give(slabs.segment, run.unit, run.units);
        }
    }

    /// Forgets what the thread kept of a heap that is closed.
    fn forget(self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// Bins that no thread uses: all are empty.
static SPARE: Mutex<Vec<Bins>> = Mutex::new(Vec::new());

/// What a thread keeps of one class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bin {
    /// Of small blocks, that which was freed last: its offset in grains, or 0. It is at a fixed place, and so found sooner than those whose
    /// place depends on their number.
    hot: &'static AtomicU32,
    /// Number of other blocks.
    length: &'static AtomicU32,
    blocks: &'static [Kept; KEPT_BLOCKS],
    /// The slab that the thread holds: its offset in units, or 0; and the word of bits last taken from.
    unit: &'static AtomicU32,
    word: &'static AtomicU32,
    class: usize,
}

impl Bin {
    /// A block that is kept.
    #[inline(always)]
    pub(super) fn pop(self) -> Option<Block> {
        let hot = self.hot.load(Relaxed);
        if hot != 0 {
            self.hot.store(0, Relaxed);
            return Some(Block::small(hot));
        }
        let length = self.length.load(Relaxed).wrapping_sub(1);
        let (offset, state_at) = self.blocks.get(length as usize)?;
        let block = Block { offset: offset.load(Relaxed), state_at: state_at.load(Relaxed) };
        self.length.store(length, Relaxed);
        Some(block)
    }

    /// Keeps the small block at this offset, counted in grains, if there is room.
    #[inline(always)]
    pub(super) fn push_small(self, grain: u32) -> bool {
        let is_free = self.hot.load(Relaxed) == 0;
        if is_free {
            self.hot.store(grain, Relaxed);
        }
        is_free || self.push(Block::small(grain))
    }

    /// Keeps a block, if there is room.
    #[inline(always)]
    fn push(self, block: Block) -> bool {
        let length = self.length.load(Relaxed);
        let Some((offset, state_at)) = self.blocks.get(length as usize) else { return false };
        offset.store(block.offset, Relaxed);
        state_at.store(block.state_at, Relaxed);
        self.length.store(length + 1, Relaxed);
        true
    }

    fn slab(self) -> Option<Slab> {
        let unit = self.unit.load(Relaxed);
        (unit != 0).then(|| Slab { at: u64::from(unit) * UNIT_BYTES, class: self.class })
    }

    fn set_slab(self, slab: Option<Slab>) {
        self.unit.store(slab.map_or(0, |slab| (slab.at / UNIT_BYTES) as u32), Relaxed);
        self.word.store(0, Relaxed);
    }

    /// A block that is kept, or taken from a slab with others. `None`: there are no units left.
    ///
    /// # Errors
    /// The file cannot grow.
    pub(super) fn take(self, slabs: Slabs<'_>) -> Result<Option<Block>, HeapError> {
        let kept = self.pop();
        if kept.is_none() {
            self.refill(slabs)?;
            return Ok(self.pop());
        }
        Ok(kept)
    }

    fn refill(self, slabs: Slabs<'_>) -> Result<(), HeapError> {
        for _ in 0..STEPS {
            let slab = match self.slab() {
                Some(slab) => slab,
                None => {
                    let Some(slab) = slabs.hold(self.class)? else { return Ok(()) };
                    self.set_slab(Some(slab));
                    slab
                }
            };
            if let Some((word, mut bits)) = slabs.take(slab, self.word.load(Relaxed)) {
                self.word.store(word, Relaxed);
                let count = bits.count_ones() as usize;
                // The first block is the last kept, and given first.
                for (offset, state_at) in self.blocks[..count].iter().rev() {
                    let block = Block::of(slab.at, self.class, word * 64 + bits.trailing_zeros());
                    offset.store(block.offset, Relaxed);
                    state_at.store(block.state_at, Relaxed);
                    bits &= bits - 1;
                }
                self.length.store(count as u32, Relaxed);
                return Ok(());
            }
            if slabs.leave_full(slab) {
                self.set_slab(None);
            }
        }
        Err(HeapError::Damaged { at: self.slab().map_or(0, |slab| slab.at) })
    }

    /// Keeps a block, and gives others back if there is no room.
    pub(super) fn keep(self, block: Block, slabs: Slabs<'_>) {
        let most = (KEPT_BYTES / TABLE[self.class].bytes as usize).clamp(2, KEPT_BLOCKS);
        let length = (self.length.load(Relaxed) as usize).min(KEPT_BLOCKS);
        if length >= most {
            let half = length.div_ceil(2);
            self.give(0..half, slabs);
            for (to, from) in self.blocks[..length - half].iter().zip(&self.blocks[half..length]) {
                to.0.store(from.0.load(Relaxed), Relaxed);
                to.1.store(from.1.load(Relaxed), Relaxed);
            }
            self.length.store((length - half) as u32, Relaxed);
        }
        self.push(block);
    }

    fn give(self, range: Range<usize>, slabs: Slabs<'_>) {
        let block =
            |(offset, state_at): &Kept| Block { offset: offset.load(Relaxed), state_at: state_at.load(Relaxed) };
        give(self.class, self.blocks[range].iter().map(block), slabs);
    }

    /// Gives back all that the thread keeps.
    fn empty(self, slabs: Slabs<'_>) {
        let length = (self.length.swap(0, Relaxed) as usize).min(KEPT_BLOCKS);
        self.give(0..length, slabs);
        match self.hot.swap(0, Relaxed) {
            0 => {}
            hot => give(self.class, core::iter::once(Block::small(hot)), slabs),
        }
        if let Some(slab) = self.slab() {
            self.set_slab(None);
            slabs.leave(slab);
        }
    }
}

/// Gives blocks back to their slabs: at once those of one word that follow each other.
fn give(class: usize, blocks: impl Iterator<Item = Block>, slabs: Slabs<'_>) {
    let mut last = None;
    let mut bits = 0_u64;
    for block in blocks {
        let (slab, number) = block.slab(class);
        let place = (slab, number / 64);
        if let Some((slab, word)) = last.filter(|&last| last != place) {
            slabs.give(slab, word, bits);
            bits = 0;
        }
        last = Some(place);
        bits |= 1 << (number % 64);
    }
    if let Some((slab, word)) = last {
        slabs.give(slab, word, bits);
    }
}

/// What a thread keeps of one heap.
#[derive(Debug)]
struct Cache {
    /// While this exists, no other heap has the same address.
    inner: Weak<Inner>,
    bins: Bins,
}

impl Drop for Cache {
    fn drop(&mut self) {
        match self.inner.upgrade() {
            Some(heap) => self.bins.empty(heap.slabs()),
            None => self.bins.forget(),
        }
        LAST.set((0, Bins::NONE));
        if let Ok(mut spare) = SPARE.try_lock() {
            spare.push(self.bins);
        }
    }
}

thread_local! {
    /// The address of the heap that the thread used last, and its bins for that.
    static LAST: Cell<(usize, Bins)> = const { Cell::new((0, Bins::NONE)) };
    /// All caches of the thread.
    static CACHES: RefCell<Vec<Cache>> = const { RefCell::new(Vec::new()) };
}

/// Works on what the calling thread keeps of each class, if it has used this heap last.
#[inline(always)]
pub(super) fn with_last<T>(heap: &Arc<Inner>, work: impl FnOnce(Bins) -> Option<T>) -> Option<T> {
    LAST.with(|last| {
        let (last, bins) = last.get();
        if last == Arc::as_ptr(heap).addr() { work(bins) } else { None }
    })
}

/// Works on what the calling thread keeps of a class of this heap. `None`: the thread is at its end, and keeps nothing.
pub(super) fn with_bin<T>(heap: &Arc<Inner>, class: usize, work: impl FnOnce(Bin) -> T) -> Option<T> {
    Some(work(bins_of(heap)?.bin(class)?))
}

/// The thread's bins for this heap, which are the last used afterwards. `None`: the thread is at its end.
pub(super) fn bins_of(heap: &Arc<Inner>) -> Option<Bins> {
    if let Some(bins) = with_last(heap, Some) {
        return Some(bins);
    }
    let bins = CACHES.try_with(|caches| {
        let mut caches = caches.try_borrow_mut().ok()?;
        if let Some(cache) = caches.iter().find(|cache| cache.inner.as_ptr() == Arc::as_ptr(heap)) {
            return Some(cache.bins);
        }
        caches.retain(|cache| cache.inner.strong_count() > 0);
        let bins = Bins::new()?;
        caches.push(Cache { inner: Arc::downgrade(heap), bins });
        Some(bins)
    });
    let bins = bins.ok().flatten()?;
    // In debug mode nothing is given or taken without checks.
    if !heap.is_debug() {
        LAST.set((Arc::as_ptr(heap).addr(), bins));
    }
    Some(bins)
}

/// Gives back what the calling thread keeps of a heap.
pub(super) fn empty(heap: &Arc<Inner>) {
    if let Some(bins) = bins_of(heap) {
        bins.empty(heap.slabs());
    }
}

/// Takes a block, or gives one back, for a thread that keeps nothing any more.
pub(super) mod uncached {
    use super::{Block, HeapError, Slabs, give};

    /// See [`Bin::take`](super::Bin::take).
    pub(in super::super) fn take(class: usize, slabs: Slabs<'_>) -> Result<Option<Block>, HeapError> {
        let Some(slab) = slabs.hold(class)? else { return Ok(None) };
        let taken = slabs.take(slab, 0).map(|(word, bits)| {
            slabs.give(slab, word, bits & (bits - 1));
            Block::of(slab.at, class, word * 64 + bits.trailing_zeros())
        });
        slabs.leave(slab);
        taken.map_or(Err(HeapError::Damaged { at: slab.at }), |block| Ok(Some(block)))
    }

    pub(in super::super) fn keep(class: usize, block: Block, slabs: Slabs<'_>) {
        give(class, core::iter::once(block), slabs);
    }
}
