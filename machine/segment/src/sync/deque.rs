//! A work-stealing queue: its owner pushes and pops at one end, all others steal at the other.
//!
//! Chase and Lev, "Dynamic Circular Work-Stealing Deque", SPAA 2005, with the fences of Lê, Pop, Cohen and Zappa Nardelli, "Correct and
//! Efficient Work-Stealing for Weak Memory Models", PPoPP 2013. It does not grow.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// A word that threads share, with orders as the paper names them.
pub(crate) trait Word64 {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    /// Whether `old` was there and is replaced.
    fn replace(&self, old: u64, new: u64) -> bool;
    fn full_fence();
    fn release_fence();
}

impl Word64 for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn full_fence() {
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn release_fence() {
        fence(Ordering::Release);
    }
}

/// The words of a queue. All zero: empty.
pub(crate) trait DequeWords {
    type Word: Word64;

    fn top(&self) -> &Self::Word;
    fn bottom(&self) -> &Self::Word;
    /// Values that have room.
    fn capacity(&self) -> u64;
    /// Where a value lies, by its number; `None` if damaged words say that it is nowhere.
    fn slot(&self, number: u64) -> Option<&Self::Word>;
}

/// The queue is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// What a thief got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steal {
    /// A value.
    Taken(u64),
    /// There is nothing.
    Empty,
    /// Another took it first: there may be more.
    Lost,
}

/// Values from top to bottom, as a thread sees it.
fn length(top: u64, bottom: u64) -> i64 {
    bottom.wrapping_sub(top) as i64
}

/// Adds a value at the bottom; false: there is no room.
#[inline]
pub(crate) fn push(queue: &impl DequeWords, value: u64) -> Result<bool, Broken> {
    fn release_fence<W: Word64>(_: &W) {
        W::release_fence();
    }
    let bottom = queue.bottom().load(Ordering::Relaxed);
    let top = queue.top().load(Ordering::Acquire);
    if length(top, bottom) >= queue.capacity() as i64 {
        return Ok(false);
    }
    queue.slot(bottom).ok_or(Broken)?.store(value, Ordering::Relaxed);
    release_fence(queue.bottom());
    queue.bottom().store(bottom.wrapping_add(1), Ordering::Release);
    Ok(true)
}

/// Takes the value at the bottom.
#[inline]
pub(crate) fn pop(queue: &impl DequeWords) -> Result<Option<u64>, Broken> {
    let before = queue.bottom().load(Ordering::Relaxed);
    let bottom = before.wrapping_sub(1);
    queue.bottom().store(bottom, Ordering::Relaxed);
    full_fence(queue.bottom());
    let top = queue.top().load(Ordering::Relaxed);
    let left = length(top, bottom);
    if left < 0 {
        queue.bottom().store(before, Ordering::Relaxed);
        return Ok(None);
    }
    let value = queue.slot(bottom).ok_or(Broken)?.load(Ordering::Relaxed);
    if left > 0 {
        return Ok(Some(value));
    }
    // The last: a thief may want it.
    let is_mine = queue.top().replace(top, top.wrapping_add(1));
    queue.bottom().store(before, Ordering::Relaxed);
    Ok(is_mine.then_some(value))
}

/// Takes the value at the top.
#[inline]
pub(crate) fn steal(queue: &impl DequeWords) -> Result<Steal, Broken> {
    let top = queue.top().load(Ordering::Acquire);
    full_fence(queue.top());
    let bottom = queue.bottom().load(Ordering::Acquire);
    if length(top, bottom) <= 0 {
        return Ok(Steal::Empty);
    }
    let value = queue.slot(top).ok_or(Broken)?.load(Ordering::Relaxed);
    Ok(if queue.top().replace(top, top.wrapping_add(1)) { Steal::Taken(value) } else { Steal::Lost })
}

#[inline(always)]
fn full_fence<W: Word64>(_: &W) {
    W::full_fence();
}
