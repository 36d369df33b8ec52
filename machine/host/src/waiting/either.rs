//! Sleeping on a word and on descriptors at once: the futex calls cannot do that, but an io_uring can (Linux 6.7).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::Errno;

use super::Woken;
use crate::descriptors::{is_kept_above, make_above_stdio};

/// Most descriptors: those that fit into the queue beside the word and the end of a sleep.
const MOST_DESCRIPTORS: usize = 13;
const ENTRIES: u32 = 16;

/// A word of 32 bits in memory that processes may share (FUTEX2_SIZE_U32).
const FUTEX_FLAGS: u32 = 2;
const ANY_WAKER: u64 = 0xffff_ffff;

const OF_WORD: u64 = 1;
const OF_DESCRIPTOR: u64 = 2;
const OF_END: u64 = 3;

/// Lets one thread at a time sleep until a word is woken or a descriptor is readable.
pub struct EitherWait {
    ring: IoUring,
    descriptors: Vec<OwnedFd>,
}

impl std::fmt::Debug for EitherWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EitherWait").field("descriptors", &self.descriptors).finish_non_exhaustive()
    }
}

impl EitherWait {
    /// Makes one for these descriptors; `None` if the kernel has no such sleep, or there are more than 13.
    #[must_use]
    pub fn new(descriptors: &[BorrowedFd<'_>]) -> Option<Self> {
        // A ring cannot be moved to another number.
        if descriptors.len() > MOST_DESCRIPTORS || is_kept_above() {
            return None;
        }
        let ring = make_above_stdio(|| IoUring::builder().setup_coop_taskrun().build(ENTRIES)).ok()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        let codes = [opcode::FutexWait::CODE, opcode::PollAdd::CODE, opcode::AsyncCancel::CODE];
        if !ring.params().is_feature_ext_arg() || !codes.iter().all(|code| probe.is_supported(*code)) {
            return None;
        }
        let copies: io::Result<Vec<_>> = descriptors.iter().map(BorrowedFd::try_clone_to_owned).collect();
        Some(Self { ring, descriptors: copies.ok()? })
    }

    /// As [`futex_wait`](super::futex_wait), but also wakes when a descriptor is readable, or was already. Allocates nothing.
    pub fn wait(&mut self, word: &AtomicU32, expected: u32, timeout: Duration) -> Woken {
        let futex = opcode::FutexWait::new(word.as_ptr(), expected.into(), ANY_WAKER, FUTEX_FLAGS);
        if !self.push(futex.build().user_data(OF_WORD)) {
            return Woken::Woken;
        }
        let mut open = 1;
        for at in 0..self.descriptors.len() {
            let poll = opcode::PollAdd::new(Fd(self.descriptors[at].as_raw_fd()), libc::POLLIN as u32);
            open += usize::from(self.push(poll.build().user_data(OF_DESCRIPTOR)));
        }
        let time = Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        let args = SubmitArgs::new().timespec(&time);
        let start = Instant::now();
        // If it is interrupted or late, it only says that the operations have begun.
        let _ = self.ring.submitter().submit_with_args(1, &args);
        let (ended, word_changed) = self.reap();
        self.end(open.saturating_sub(ended));
        match ended {
            _ if word_changed => Woken::Changed,
            0 if start.elapsed() >= timeout => Woken::TimedOut,
            // Interrupted, or something came: the caller checks again.
            _ => Woken::Woken,
        }
    }

    fn push(&mut self, entry: squeue::Entry) -> bool {
        // SAFETY: the word and the descriptors outlive the operation: `wait`, which borrows them, cancels it and sees its end before it
        // returns.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    /// Takes completed operations: their number, and whether the word was not as expected.
    fn reap(&mut self) -> (usize, bool) {
        let (mut ended, mut changed) = (0, false);
        for entry in self.ring.completion() {
            ended += 1;
            changed |= entry.user_data() == OF_WORD && entry.result() == -Errno::AGAIN.raw_os_error();
        }
        (ended, changed)
    }

    /// Ends the operations that are still open, and waits until they have ended.
    fn end(&mut self, mut open: usize) {
        if open == 0 {
            return;
        }
        let all = opcode::AsyncCancel2::new(CancelBuilder::any());
        open += usize::from(self.push(all.build().user_data(OF_END)));
        while open > 0 {
            match self.ring.submitter().submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
                // The ring is closed with its open operations: nothing else ends them.
                Err(_) => return,
            }
            open = open.saturating_sub(self.reap().0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;
    use std::thread;

    use super::super::futex_wake;
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn made(socket: &UdpSocket) -> Option<EitherWait> {
        let made = EitherWait::new(&[socket.as_fd()]);
        if made.is_none() {
            mapwire_testing::skip!("this kernel cannot sleep on words and descriptors at once");
        }
        made
    }

    #[test]
    fn a_sleeper_wakes_by_the_word_by_a_descriptor_and_by_time() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let Some(mut either) = made(&socket) else {
            return;
        };
        let word = AtomicU32::new(7);
        for _ in 0..3 {
            let start = Instant::now();
            assert_eq!(either.wait(&word, 6, LONG), Woken::Changed);
            assert_eq!(either.wait(&word, 7, Duration::from_millis(20)), Woken::TimedOut);
            assert!(start.elapsed() >= Duration::from_millis(20));
            thread::scope(|scope| {
                scope.spawn(|| {
                    while futex_wake(&word, 1) == 0 {
                        thread::yield_now();
                    }
                });
                assert_eq!(either.wait(&word, 7, LONG), Woken::Woken);
            });
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
            assert_eq!(either.wait(&word, 7, LONG), Woken::Woken);
            socket.recv(&mut [0; 8]).unwrap();
            assert!(start.elapsed() < LONG);
        }
        assert_eq!(word.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_sleep_that_is_over_takes_no_wake_up_of_others() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let Some(mut either) = made(&socket) else {
            return;
        };
        let word = AtomicU32::new(0);
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        assert_eq!(either.wait(&word, 0, LONG), Woken::Woken);
        assert_eq!(futex_wake(&word, 1), 0, "nobody sleeps on the word");
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(EitherWait::new(&[socket.as_fd(); MOST_DESCRIPTORS + 1]).is_none());
    }
}
