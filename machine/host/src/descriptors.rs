//! Descriptors of this process above standard input, output and error.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The lowest descriptor that is not a standard stream.
const FIRST: i32 = 3;

/// The lowest descriptor that [`above_stdio`] returns.
static LOWEST: AtomicI32 = AtomicI32::new(FIRST);

/// Size of the table for [`is_ours`]: enough for a process that may have 65,536 descriptors.
const NUMBERS: usize = 1 << 16;

/// A bit for each descriptor made while low numbers belong to the program.
static OURS: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

fn bit(number: i32) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(number).ok()?;
    Some((OURS.get(number / 64)?, 1 << (number % 64)))
}

/// Records a descriptor that a program unaware of mapwire must not close.
fn kept(fd: OwnedFd) -> OwnedFd {
    if is_kept_above()
        && let Some((word, bit)) = bit(fd.as_raw_fd())
    {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    fd
}

/// Whether a descriptor is mapwire's, in a program that owns the low numbers ([`keep_above`]): it was returned by [`above_stdio`] or
/// [`copy_above_stdio`], and not [forgotten](forget) since.
#[must_use]
pub fn is_ours(number: i32) -> bool {
    bit(number).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Marks a descriptor of mapwire as being closed: its number is free from now on.
pub fn forget(number: i32) {
    if let Some((word, bit)) = bit(number) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// The first number from `first` on that [`is_ours`].
#[must_use]
pub fn first_of_ours(first: u32) -> Option<u32> {
    let first_word = first as usize / 64;
    let words = OURS.iter().enumerate().skip(first_word);
    let mut found = words.filter_map(|(at, word)| {
        let before = if at == first_word { first % 64 } else { 0 };
        let bits = word.load(Ordering::Relaxed) >> before << before;
        (bits != 0).then(|| at as u32 * 64 + bits.trailing_zeros())
    });
    found.next()
}

/// Makes [`above_stdio`] return descriptors from `lowest` on: for programs that do not know of mapwire, and use low numbers as they like.
/// If that exceeds the limit, it only avoids the standard streams.
pub fn keep_above(lowest: i32) {
    LOWEST.store(lowest.max(FIRST), Ordering::Relaxed);
}

/// Moves a new descriptor above 2. A program that has closed its standard streams gets their numbers from the next call that makes a
/// descriptor; what it then prints must not land in memory or in a socket of mapwire.
///
/// Every descriptor that mapwire makes or receives goes through here, or through a loop that does the same ([`is_above_stdio`]).
///
/// # Errors
/// No descriptor above 2 is left.
pub fn above_stdio(fd: OwnedFd) -> rustix::io::Result<OwnedFd> {
    let lowest = LOWEST.load(Ordering::Relaxed);
    if fd.as_raw_fd() >= lowest {
        return Ok(kept(fd));
    }
    let moved = match rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), lowest) {
        Err(_) if is_above_stdio(&fd) => Ok(fd),
        Err(_) if lowest > FIRST => rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), FIRST),
        moved => moved,
    };
    moved.map(kept)
}

/// Whether the program owns the low numbers ([`keep_above`]): then no new descriptor may keep its number.
pub fn is_kept_above() -> bool {
    LOWEST.load(Ordering::Relaxed) > FIRST
}

/// Copies a descriptor as [`above_stdio`] returns them. No other copy is made and closed on the way: that would release the process's
/// `fcntl` locks on the file.
///
/// # Errors
/// The descriptor is not open, or no other is left above 2.
pub fn copy_above_stdio(fd: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let copy = |lowest| rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), lowest);
    copy(LOWEST.load(Ordering::Relaxed)).or_else(|_| copy(FIRST)).map(kept)
}

/// Whether a descriptor is not a standard stream.
pub fn is_above_stdio(fd: &impl AsRawFd) -> bool {
    fd.as_raw_fd() >= FIRST
}

/// What `make` makes, above 2 as [`above_stdio`] has it, for what cannot be moved to another number: what took the number of a closed
/// standard stream holds it until there is one above.
///
/// # Errors
/// As of `make`.
pub(crate) fn make_above_stdio<T: AsRawFd, E>(make: impl Fn() -> Result<T, E>) -> Result<T, E> {
    let mut low = Vec::new();
    loop {
        match make()? {
            made if is_above_stdio(&made) => return Ok(made),
            made => low.push(made),
        }
    }
}

/// Opens `/dev/null` for each standard stream that is closed, for good: before a library makes descriptors that does not know of them.
pub fn occupy_stdio() {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    while let Ok(fd) = rustix::fs::open("/dev/null", flags, Mode::empty())
        && !is_above_stdio(&fd)
    {
        core::mem::forget(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_child;

    #[test]
    fn descriptors_stand_where_they_are_kept_or_as_high_as_the_limit_allows() {
        in_child("high", || {
            let open = || {
                let (fd, _) = rustix::pipe::pipe().unwrap();
                above_stdio(fd).unwrap().as_raw_fd()
            };
            let low = open();
            assert!(low < 200 && !is_ours(low));
            keep_above(200);
            assert_eq!(open(), 200);
            assert!(is_ours(200) && !is_ours(201) && !is_ours(-1) && !is_ours(i32::MAX));
            assert_eq!((first_of_ours(0), first_of_ours(201)), (Some(200), None));
            forget(200);
            assert_eq!((is_ours(200), first_of_ours(200)), (false, None));
            let file = std::fs::File::open("/dev/null").unwrap();
            assert_eq!(copy_above_stdio(&file).unwrap().as_raw_fd(), 200);
            crate::testing::lower_limit(rustix::process::Resource::Nofile, 100);
            assert!((FIRST..100).contains(&open()));
            assert!((FIRST..100).contains(&copy_above_stdio(&file).unwrap().as_raw_fd()));
        });
    }
}
