//! Wakes threads of this process that sleep when datagrams come.
//!
//! Threads sleep on the words of the board, which peers on this host ring. Nobody rings for a datagram, so a thread of the alarm waits
//! for the sockets, once they are [armed](Alarm::arm), and rings. A thread that polls finds datagrams itself, and so does one that sleeps on
//! the sockets: it *attends* them. While one does, the alarm rests once it has rung. After a [`PAUSE`] it looks whether that is still so, then
//! after longer ones, and at last only when the last one has gone. What comes after that is heard when the pause is over.
//!
//! A thread that makes or serves calls polls only while it waits: it [comes and goes](MANY_LEAVES). It too finds datagrams itself, so the
//! alarm rests. Else it would wake for every few datagrams, and displace a thread that polls. Once such a thread has gone for good, the alarm
//! rests for one more pause.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use mapwire_host::descriptors::above_stdio;
use mapwire_host::masking;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

/// How long the alarm rests after it has rung, unless a thread that is about to sleep arms it.
const PAUSE: Duration = Duration::from_micros(500);
/// The longest of its pauses, which double while a thread polls or attends. Then it rests until that one has gone.
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

/// Threads of the program come and go if they stop polling at least so often in a pause. They are likely to look again in the next one.
const MANY_LEAVES: u32 = 8;

/// The events of the descriptors by which the thread is told to end, and that nobody polls or attends any more.
const END: u64 = u64::MAX;
const LEFT: u64 = u64::MAX - 1;

#[derive(Debug)]
struct Sockets {
    epoll: OwnedFd,
    /// It has rung, and nobody has looked since.
    is_due: AtomicBool,
    /// It has rung, and looks by itself whether it is to be armed again.
    rests: AtomicBool,
    /// It rests in long pauses.
    is_slow: AtomicBool,
    /// A thread sleeps on the sockets.
    is_attended: AtomicBool,
    /// How often the program stopped polling since this was last set to 0; approximate, as two threads may count at once. The
    /// service thread does not count: it looks for others.
    leaves: AtomicU32,
    /// Threads came and went in the last pause.
    was_visited: AtomicBool,
    sockets: Vec<Socket>,
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// Its next datagram ends the thread's wait, or has ended it and the thread is about to ring. Most who arm it find it so.
    is_armed: AtomicBool,
}

impl Sockets {
    /// Lets the next datagram end the thread's wait, also one that is there already. False if the kernel has no room to watch for it.
    fn arm(&self) -> bool {
        let mut are_armed = true;
        for (number, socket) in self.sockets.iter().enumerate() {
            if socket.is_armed.swap(true, Ordering::SeqCst) {
                continue;
            }
            are_armed &= self.watch_for_one(number, socket);
        }
        are_armed
    }

    /// Has the kernel tell of the next datagram of a socket, whether or not it [forgot](Self::forget) that. Else the socket is not armed.
    fn watch_for_one(&self, number: usize, socket: &Socket) -> bool {
        let data = epoll::EventData::new_u64(number as u64);
        let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        let modify = || epoll::modify(&self.epoll, &socket.fd, data, once);
        let watched = match modify() {
            Err(Errno::NOENT) => match epoll::add(&self.epoll, &socket.fd, data, once) {
                // Another thread was faster.
                Err(Errno::EXIST) => modify(),
                added => added,
            },
            modified => modified,
        };
        if watched.is_err() {
            socket.is_armed.store(false, Ordering::SeqCst);
        }
        watched.is_ok()
    }

    /// Takes sockets that are not armed off the kernel's list. On it, each datagram costs its sender a tenth more time, armed or not.
    fn forget(&self) {
        for (number, socket) in self.sockets.iter().enumerate() {
            if socket.is_armed.load(Ordering::SeqCst) {
                continue;
            }
            let _ = epoll::delete(&self.epoll, &socket.fd);
            // Another thread may have armed it just before it was taken off.
            if socket.is_armed.load(Ordering::SeqCst) {
                self.watch_for_one(number, socket);
            }
        }
    }

    /// Whether threads that poll come and go.
    fn is_visited(&self) -> bool {
        self.was_visited.load(Ordering::Relaxed) || self.leaves.load(Ordering::Relaxed) >= MANY_LEAVES
    }

    /// Restarts the count. Returns whether threads came and went since the last restart.
    fn begin_pause(&self) -> bool {
        let is_visited = self.leaves.swap(0, Ordering::Relaxed) >= MANY_LEAVES;
        self.was_visited.store(is_visited, Ordering::Relaxed);
        is_visited
    }

    /// Marks sockets as disarmed. The thread rings after this.
    fn handle_events(&self, events: &[epoll::Event]) {
        for event in events {
            let data = event.data;
            if let Some(socket) = self.sockets.get(data.u64() as usize) {
                socket.is_armed.store(false, Ordering::SeqCst);
            }
        }
    }
}

/// See [the module](self).
#[derive(Debug)]
pub(crate) struct Alarm {
    sockets: std::sync::Arc<Sockets>,
    end: OwnedFd,
    left: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Alarm {
    /// An alarm for `sockets` that calls `ring`. `is_polling`: whether threads find datagrams themselves.
    pub(crate) fn start(
        sockets: &[BorrowedFd<'_>],
        ring: impl Fn() + Send + 'static,
        is_polling: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let epoll = above_stdio(epoll::create(epoll::CreateFlags::CLOEXEC)?)?;
        let end = above_stdio(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?;
        let left = above_stdio(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?;
        for (fd, number, edge) in [(&end, END, epoll::EventFlags::empty()), (&left, LEFT, epoll::EventFlags::ET)] {
            let data = epoll::EventData::new_u64(number);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN | edge)?;
        }
        let copies: io::Result<Vec<Socket>> = sockets
            .iter()
            .map(|socket| {
                let fd = socket.try_clone_to_owned()?;
                let data = epoll::EventData::new_u64(0);
                epoll::add(&epoll, &fd, data, epoll::EventFlags::ONESHOT)?;
                let is_armed = AtomicBool::new(false);
                Ok(Socket { fd, is_armed })
            })
            .collect();
        let sockets = std::sync::Arc::new(Sockets {
            epoll,
            is_due: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            is_attended: AtomicBool::new(false),
            leaves: AtomicU32::new(0),
            was_visited: AtomicBool::new(false),
            sockets: copies?,
        });
        let watched = std::sync::Arc::clone(&sockets);
        // The thread starts with signals blocked: handlers of the program run on threads of the program.
        let masked = masking::mask();
        let thread = std::thread::Builder::new().name("mapwire-net".to_owned()).spawn(move || {
            masking::mask_for_good();
            watch(&watched, ring, is_polling);
        })?;
        drop(masked);
        Ok(Self { sockets, end, left, thread: Some(thread) })
    }

    /// Rings for the next datagram, or at once where one waits: for a thread that is about to sleep, and has looked. Where another
    /// polls (`is_polling`), an alarm that rests goes on to do so. What the kernel cannot watch for yet is tried again after the pause.
    pub(crate) fn arm(&self, is_polling: bool) {
        if !is_polling || !self.sockets.rests.load(Ordering::Acquire) {
            self.sockets.arm();
        }
    }

    /// As [`arm`](Self::arm), for the service thread, which nobody waits for: where others attend, or come and go, an alarm that rests
    /// goes on as well.
    pub(crate) fn arm_for_service(&self, is_polling: bool) {
        self.arm(is_polling || self.is_attended() || self.sockets.is_visited());
    }

    /// The calling thread sleeps on the sockets, until [`end_attending`](Self::end_attending).
    pub(crate) fn begin_attending(&self) {
        self.sockets.is_attended.store(true, Ordering::Release);
    }

    pub(crate) fn end_attending(&self) {
        self.sockets.is_attended.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        self.handle_left();
    }

    /// Whether a thread attends.
    pub(crate) fn is_attended(&self) -> bool {
        self.sockets.is_attended.load(Ordering::Acquire)
    }

    /// A thread that polled or attended has gone; a full fence was made since.
    #[inline]
    pub(crate) fn handle_left(&self) {
        if self.sockets.is_slow.load(Ordering::Relaxed) {
            self.hurry();
        }
    }

    /// Counts that a thread of the program has stopped polling.
    #[inline]
    pub(crate) fn count_leave(&self) {
        let leaves = &self.sockets.leaves;
        leaves.store(leaves.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    #[cold]
    fn hurry(&self) {
        if self.sockets.is_slow.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.left, &1_u64.to_ne_bytes());
        }
    }

    pub(crate) fn set_due(&self) {
        self.sockets.is_due.store(true, Ordering::Release);
    }

    /// Whether it has rung since the sockets were last looked at.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.sockets.is_due.load(Ordering::Acquire)
    }

    /// Called before the sockets are looked at.
    #[inline]
    pub(crate) fn begin_look(&self) {
        if self.is_due() {
            self.sockets.is_due.store(false, Ordering::Release);
        }
    }
}

fn watch(sockets: &Sockets, ring: impl Fn(), is_polling: impl Fn() -> bool) {
    let mut events: Vec<epoll::Event> = Vec::with_capacity(16);
    let mut pause = PAUSE;
    let finds_itself = || is_polling() || sockets.is_attended.load(Ordering::Relaxed);
    loop {
        events.clear();
        let rests = sockets.rests.load(Ordering::Relaxed);
        let mut limit = Timespec::try_from(pause).ok().filter(|_| rests);
        if rests && pause >= LONGEST_PAUSE {
            sockets.is_slow.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // A thread that goes from here on wakes this one.
            if finds_itself() {
                limit = None;
            } else {
                pause = PAUSE;
                limit = Timespec::try_from(pause).ok();
            }
        }
        match epoll::wait(&sockets.epoll, spare_capacity(&mut events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Nothing else can be wrong with a descriptor of ours.
            Err(_) => return,
        }
        let has = |number: u64| {
            events.iter().any(|event| {
                let data = event.data;
                data.u64() == number
            })
        };
        if has(END) {
            return;
        }
        sockets.is_slow.store(false, Ordering::Relaxed);
        let was_left = has(LEFT);
        sockets.handle_events(&events);
        if events.len() > usize::from(was_left) {
            sockets.is_due.store(true, Ordering::Release);
            sockets.rests.store(true, Ordering::Release);
            if !rests {
                // Those of the time when it was armed.
                sockets.leaves.store(0, Ordering::Relaxed);
            }
            pause = PAUSE;
            ring();
        } else if rests && sockets.begin_pause() || was_left {
            sockets.forget();
            pause = PAUSE;
        } else if rests && finds_itself() {
            sockets.forget();
            pause *= 2;
        } else if rests {
            pause = PAUSE;
            // Before it is armed: who sees that it rests may rely on what comes next.
            sockets.rests.store(false, Ordering::Release);
            if !sockets.arm() {
                sockets.rests.store(true, Ordering::Release);
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use super::*;

    /// A count, and what adds one to it.
    fn counter() -> (Arc<AtomicU32>, impl Fn() + Send + 'static) {
        let rings = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&rings);
        let ring = move || {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        (rings, ring)
    }

    /// Waits until it has not rung for many pauses, and gives how often it has.
    fn rests(rings: &AtomicU32) -> u32 {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let before = rings.load(Ordering::SeqCst);
            std::thread::sleep(100 * PAUSE);
            if rings.load(Ordering::SeqCst) == before {
                return before;
            }
            assert!(Instant::now() < end, "it rings on");
        }
    }

    fn rings_at_least(rings: &AtomicU32, least: u32) {
        let end = Instant::now() + Duration::from_secs(60);
        while rings.load(Ordering::SeqCst) < least {
            assert!(Instant::now() < end, "nobody rings");
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_alarm_rings_for_datagrams_that_come_once_it_is_armed_and_for_those_that_wait() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let (rings, ring) = counter();
        let polls = Arc::new(AtomicBool::new(false));
        let polled = Arc::clone(&polls);
        let is_polling = move || polled.load(Ordering::SeqCst);
        let alarm = Alarm::start(&[socket.as_fd()], ring, is_polling).unwrap();
        socket.send_to(b"one", to).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(rings.load(Ordering::SeqCst), 0, "it is not armed");
        alarm.arm(false);
        rings_at_least(&rings, 1);
        // Nobody takes the datagram: it rings again after each pause, and not more often.
        let start = Instant::now();
        let before = rings.load(Ordering::SeqCst);
        rings_at_least(&rings, before + 5);
        assert!(start.elapsed() >= 4 * PAUSE);
        // While a thread polls it rests.
        polls.store(true, Ordering::SeqCst);
        let before = rests(&rings);
        alarm.arm(true);
        std::thread::sleep(20 * PAUSE);
        assert_eq!(rings.load(Ordering::SeqCst), before);
        polls.store(false, Ordering::SeqCst);
        alarm.handle_left();
        rings_at_least(&rings, before + 1);
        // The same while a thread attends.
        alarm.begin_attending();
        let before = rests(&rings);
        alarm.end_attending();
        rings_at_least(&rings, before + 1);
        socket.recv_from(&mut [0; 8]).unwrap();
        drop(alarm);
    }

    #[test]
    fn an_alarm_rests_where_threads_come_and_go_and_rings_once_they_have_gone() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let (rings, ring) = counter();
        let alarm = Alarm::start(&[socket.as_fd()], ring, || false).unwrap();
        // It rings, and rests. What comes next nobody takes.
        alarm.arm(false);
        socket.send_to(b"one", to).unwrap();
        rings_at_least(&rings, 1);
        let visit = |length: Duration| {
            let end = Instant::now() + length;
            let mut visits = 0;
            while Instant::now() < end {
                alarm.count_leave();
                alarm.arm_for_service(false);
                visits += 1;
            }
            visits
        };
        visit(10 * PAUSE);
        let before = rings.load(Ordering::SeqCst);
        let visits = visit(100 * PAUSE);
        // At times this thread does not run for some pauses, and the alarm rings.
        let meanwhile = rings.load(Ordering::SeqCst) - before;
        assert!(meanwhile < visits / 10, "{meanwhile} rings in {visits} visits");
        let before = rings.load(Ordering::SeqCst);
        rings_at_least(&rings, before + 2);
        // The kernel was told to forget the socket meanwhile, and to watch it again.
        socket.recv_from(&mut [0; 8]).unwrap();
        std::thread::sleep(10 * PAUSE);
        let before = rings.load(Ordering::SeqCst);
        socket.send_to(b"two", to).unwrap();
        alarm.arm(false);
        rings_at_least(&rings, before + 1);
        drop(alarm);
    }
}
