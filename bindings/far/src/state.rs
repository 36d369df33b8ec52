//! Whether far memory is on.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::space::Space;

/// Not null when far memory is on. Until then all calls go to the C library, including those of the start. Its target is never freed: a
/// forked child gets another.
static SPACE: AtomicPtr<Space> = AtomicPtr::new(ptr::null_mut());

/// The exit code if far memory cannot start: that of a program that cannot be started.
pub(crate) const CANNOT_START: i32 = 126;

/// Far memory, if it is on.
#[inline]
pub(crate) fn space() -> Option<&'static Space> {
    // SAFETY: null, or what `set_space` leaked.
    unsafe { SPACE.load(Ordering::Acquire).as_ref() }
}

/// Turns far memory on, or replaces the parent's in a forked child.
pub(crate) fn set_space(space: Space) {
    SPACE.store(Box::leak(Box::new(space)), Ordering::Release);
}

/// Turns far memory off, so that allocations come from the C library. Nothing of the old one may be freed until another is set.
pub(crate) fn clear_space() {
    SPACE.store(ptr::null_mut(), Ordering::Release);
}

/// Far memory, if this address is in it.
#[inline]
pub(crate) fn space_of(address: usize) -> Option<&'static Space> {
    space().filter(|space| space.has(address))
}

/// Far memory, and what of these addresses is in it, if any is.
pub(crate) fn part_of_space(start: usize, bytes: usize) -> Option<(&'static Space, Range<usize>)> {
    let space = space()?;
    Some((space, space.part(start, bytes)?))
}
