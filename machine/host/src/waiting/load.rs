//! Number of threads that want a processor, according to the kernel.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use crate::descriptors::above_stdio;
use crate::limits;

/// Watches the load of this computer. A check takes one or two microseconds, and allocates nothing.
#[derive(Debug)]
pub(super) struct Load {
    /// `/proc/loadavg`, if readable.
    file: Option<OwnedFd>,
    /// Number of processors of this computer.
    processors: usize,
    /// Whether the job may not use all processors, and has more ranks than it may use. The kernel's count is then useless: it covers all
    /// processors.
    confined: bool,
}

impl Load {
    /// For a process of a job of `ranks`.
    pub(super) fn of_job(ranks: usize) -> Self {
        let (mine, processors) = (limits::processors(), limits::online_processors());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Self {
            file: rustix::fs::open("/proc/loadavg", flags, Mode::empty()).and_then(above_stdio).ok(),
            processors,
            confined: mine < processors && ranks > mine,
        }
    }

    /// Whether more threads are runnable, the calling one included, than there are processors.
    pub(super) fn is_crowded(&self) -> bool {
        self.confined || self.runnable().is_some_and(|runnable| runnable > self.processors)
    }

    fn runnable(&self) -> Option<usize> {
        let mut text = [0_u8; 96];
        let count = rustix::io::pread(self.file.as_ref()?, &mut text, 0).ok()?;
        parse(text.get(..count)?)
    }
}

/// The number of runnable threads in `0.20 0.18 0.12 3/80 11206`.
fn parse(text: &[u8]) -> Option<usize> {
    let field = text.split(|&byte| byte == b' ').nth(3)?;
    let digits = field.split(|&byte| byte == b'/').next()?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_field_has_the_runnable_threads() {
        assert_eq!(parse(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(parse(b"0.20 0.18 0.12"), None);
        assert_eq!(parse(b"0.20 0.18 0.12 x/80 11206\n"), None);
    }

    #[test]
    fn threads_that_spin_beyond_the_processors_are_seen() {
        let load = Load::of_job(1);
        let done = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..=load.processors {
                scope.spawn(|| {
                    while !done.load(core::sync::atomic::Ordering::Relaxed) {
                        core::hint::spin_loop();
                    }
                });
            }
            let seen = (0..1000).any(|_| {
                std::thread::yield_now();
                load.is_crowded()
            });
            done.store(true, core::sync::atomic::Ordering::Relaxed);
            assert!(seen || load.file.is_none());
        });
    }
}
