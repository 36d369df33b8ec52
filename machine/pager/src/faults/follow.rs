//! Keeps a handler thread on the processor of the threads that fault.
//!
//! A thread that faults sleeps, so its processor is free. A handler on another must be woken there, and must wake the thread in turn: on
//! virtual machines that takes tens of microseconds each way (here 55 µs a fault, and 10 µs on one processor).

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Time from one look at the other thread's processor to the next, at least. A look takes some 5 µs.
const PERIOD: Duration = Duration::from_micros(200);

/// Processor of the calling thread, and those on which it may run.
#[derive(Debug)]
pub(crate) struct Follower {
    allowed: Option<CpuSet>,
    now: Option<usize>,
    looked: Option<Instant>,
}

impl Follower {
    /// For the calling thread, which runs anywhere at first.
    pub(crate) fn new() -> Self {
        let allowed = sched_getaffinity(None).ok();
        Self {
            // With one processor there is nothing to follow.
            allowed: allowed.filter(|allowed| allowed.count() > 1),
            now: None,
            looked: None,
        }
    }

    /// Notes a fault of `thread`, and from time to time moves to its processor.
    pub(crate) fn fault(&mut self, thread: u32) {
        let Some(allowed) = &self.allowed else {
            return;
        };
        if self.looked.is_some_and(|looked| looked.elapsed() < PERIOD) {
            return;
        }
        self.looked = Some(Instant::now());
        let Some(processor) = processor_of(thread) else {
            return;
        };
        if self.now == Some(processor) || processor >= CpuSet::MAX_CPU || !allowed.is_set(processor) {
            return;
        }
        let mut set = CpuSet::new();
        set.set(processor);
        if sched_setaffinity(None, &set).is_ok() {
            self.now = Some(processor);
        }
    }
}

/// The processor on which a thread of this process last ran. Allocates nothing: the program's allocator may be in a region.
fn processor_of(thread: u32) -> Option<usize> {
    /// Number of the field, counted from the first behind the thread's name.
    const FIELD: usize = 36;
    let mut path = [0; 40];
    let mut left = &mut path[..];
    write!(left, "/proc/self/task/{thread}/stat").ok()?;
    let unused = left.len();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path[..path.len() - unused], flags, Mode::empty()).ok()?;
    let mut text = [0; 1024];
    let read = rustix::io::read(&file, &mut text).ok()?;
    let text = core::str::from_utf8(&text[..read]).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split(' ').nth(FIELD)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_of_a_thread_is_found() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let found = processor_of(thread).unwrap();
        assert!(found < mapwire_host::limits::online_processors());
        assert_eq!(processor_of(u32::MAX), None);
    }

    #[test]
    fn a_handler_goes_to_the_thread_that_faults() {
        std::thread::spawn(|| {
            let all = sched_getaffinity(None).unwrap();
            let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|&n| all.is_set(n)) else {
                return;
            };
            let mut follower = Follower::new();
            let mut set = CpuSet::new();
            set.set(last);
            sched_setaffinity(None, &set).unwrap();
            let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            follower.fault(thread);
            assert_eq!(follower.now, (all.count() > 1).then_some(last));
        })
        .join()
        .unwrap();
    }
}
