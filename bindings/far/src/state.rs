//! Whether far memory is on.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use mapwire_host::descriptors;

use crate::fork;
use crate::maps;
use crate::report;
use crate::settings::Settings;
use crate::space::Space;
use crate::threads;

/// Not null when far memory is on. Until then all calls go to the C library, including those of the start. Its target is never freed: a
/// forked child gets another.
static SPACE: AtomicPtr<Space> = AtomicPtr::new(ptr::null_mut());

/// Lowest descriptor of this library: programs that use low numbers as they like would close it. A process may have 1,024 by default, and
/// each layer of the file takes one.
const DESCRIPTORS: i32 = 768;

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

/// Runs before the program does, when the C library is ready.
#[used]
// SAFETY: the section is an array of functions without results, which the loader calls one after the other.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let settings = match Settings::read(|name| std::env::var_os(name)) {
        Ok(Some(settings)) => settings,
        Ok(None) => return,
        Err(error) => refuse(&error),
    };
    descriptors::keep_above(DESCRIPTORS);
    match threads::serving(|| Space::start(&settings)) {
        Ok(space) => {
            maps::close(&space);
            fork::register();
            set_space(space);
        }
        Err(error) => refuse(&error),
    }
    if let Some(first) = settings.stats {
        report::ask(first);
        // SAFETY: the function has the form that is asked for, and this library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
}

extern "C" fn at_exit() {
    report::at_end();
}

/// A program that requests far memory does not run without it: it would take all RAM.
fn refuse(error: &dyn std::error::Error) -> ! {
    report::line(format_args!("mapwire far: {error}"));
    // SAFETY: nothing of the program has run, so that nothing is left undone.
    unsafe { libc::_exit(CANNOT_START) }
}
