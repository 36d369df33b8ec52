//! Descriptors that become readable when something has come: programs that sleep in `epoll`.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use mapwire::{ErrorKind, EventFd, Export, Node, Rights};
use rustix::event::{Timespec, epoll};

use crate::harness::hostile::Scratch;
use crate::harness::{Rank, eventually, job, pattern, refused};

/// A descriptor, and the `epoll` that it is in.
struct Loop {
    fd: EventFd,
    epoll: OwnedFd,
}

impl Loop {
    fn new(node: &Node) -> Self {
        let fd = node.event_fd().unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let data = epoll::EventData::new_u64(7);
        epoll::add(&epoll, &fd, data, epoll::EventFlags::IN).unwrap();
        Self { fd, epoll }
    }

    /// Sleeps until the descriptor is readable; whether it became so in time.
    fn sleep(&self, most: Duration) -> bool {
        let most = Timespec::try_from(most).unwrap();
        let mut events = Vec::with_capacity(4);
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&self.epoll, room, Some(&most)).unwrap();
        events.iter().all(|event| event.data.u64() == 7) && !events.is_empty()
    }

    /// Arms, looks and sleeps until `check` holds, as an event loop does. How often it slept, and for how long at most.
    fn until(&self, node: &Node, mut check: impl FnMut() -> bool) -> (u32, Duration) {
        let (mut sleeps, mut longest) = (0, Duration::ZERO);
        loop {
            self.fd.arm().unwrap();
            node.poll();
            if check() {
                return (sleeps, longest);
            }
            let begun = Instant::now();
            assert!(self.sleep(Duration::from_secs(20)), "nothing comes");
            (sleeps, longest) = (sleeps + 1, longest.max(begun.elapsed()));
        }
    }
}

/// An inbox of one path; the name says which.
fn inbox(node: &Node, path: &str) -> Export {
    let buffer = node.alloc(4096).unwrap();
    let export = node.export_buffer(&buffer).name(path);
    let export = match path {
        "ring" => export.ring_only(),
        _ => export,
    };
    export.start().unwrap()
}

#[test]
fn no_store_is_missed_by_ranks_that_sleep_in_epoll_for_each() {
    let settings = [("event", "inline", 3000), ("adaptive", "inline", 3000), ("poll", "thread", 100)];
    for path in ["direct", "ring"] {
        for (wait, mode, rounds) in settings {
            job(2)
                .called(format!("{path} {wait} {mode}"))
                .with("MAPWIRE_WAIT", wait)
                .with("MAPWIRE_DRIVER", mode)
                .run(|rank| bounce(rank, path, rounds))
                .succeeds();
        }
    }
}

fn bounce(rank: &Rank, path: &str, rounds: u64) {
    let node = rank.node();
    let mine = inbox(&node, path);
    let theirs = node.import(1 - rank.number, path).rights(Rights::ALL);
    let theirs = theirs.start().unwrap();
    assert_eq!(theirs.is_direct(), path == "direct");
    let events = Loop::new(&node);
    // Each direct store that rings counts in the bell of this rank's service thread.
    let board = Scratch::mapped_here("mapwire-bells");
    let rings = || board[0].load(128 * rank.number + 8) as u32 >> 2;
    let (mut slow, mut state) = (0, 99 + rank.number as u64);
    for round in 0..rounds {
        if round % 2 == rank.number as u64 {
            // At any time after the other rank began to wait, or before.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let pause = Duration::from_nanos((state >> 33) % 60_000);
            let begun = Instant::now();
            while begun.elapsed() < pause {
                std::hint::spin_loop();
            }
            theirs.put_signal(&[1; 50], 8, 0, round + 1).unwrap();
        } else {
            let mut before = None;
            let (_, longest) = events.until(&node, || {
                // Read first: a store that this look does not find yet rings later.
                let rings = rings();
                let has_come = mine.signal(0).unwrap() > round;
                if !has_come {
                    before = Some(rings);
                }
                has_come
            });
            // What was stored after a look in vain rang, however the sleep ended. A packet rings only who sleeps.
            if let Some(before) = before.filter(|_| theirs.is_direct()) {
                eventually("the store has rung", || rings() != before);
            }
            // A ring that nobody hears is made good after 200 ms.
            slow += u64::from(longest > Duration::from_millis(150));
        }
    }
    // Load beside makes some late; what was stored directly is judged by its rings.
    assert!(theirs.is_direct() || slow * 4 <= rounds, "{slow} of {rounds} rings were not heard");
    rank.meet("end");
}

#[test]
fn an_end_of_a_request_or_of_a_rank_and_a_notification_make_it_readable() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(1 << 20).unwrap();
                let export = node.export_buffer(&buffer).ring_only().name("ring");
                // Nobody serves rank 1 until it has begun.
                let (paused, begun) = (rank.path("paused"), rank.path("begun"));
                let pause = move |_| {
                    std::fs::write(&paused, "").unwrap();
                    eventually("rank 1 has begun", || begun.exists());
                };
                let _export = export.on_notify(pause).start().unwrap();
                let back = node.import(1, "back").start().unwrap();
                rank.read("told");
                std::thread::sleep(Duration::from_millis(50));
                back.send_notify(&[], 0).unwrap();
                rank.read("go");
                std::thread::sleep(Duration::from_millis(100));
                return;
            }
            let (sender, heard) = std::sync::mpsc::channel();
            let buffer = node.alloc(4096).unwrap();
            let back = node.export_buffer(&buffer).ring_only().name("back");
            // Long after the packet, for which the descriptor becomes readable too.
            let back = back.on_notify(move |_| {
                std::thread::sleep(Duration::from_millis(20));
                sender.send(()).unwrap();
            });
            let _back = back.start().unwrap();
            let ring = node.import(0, "ring").rights(Rights::ALL).start().unwrap();
            let events = Loop::new(&node);
            ring.send_notify(&[], 0).unwrap();
            rank.read("paused");
            let fetch = ring.fetch_async(0, vec![1; 100_000]).unwrap();
            let send = ring.send_async(pattern(1, 1 << 20), 0).unwrap();
            let mut looks = 0;
            let (sleeps, _) = events.until(&node, || {
                looks += 1;
                if looks == 2 {
                    rank.note("begun", "");
                }
                fetch.is_done() && send.is_done()
            });
            assert!(sleeps > 0 && sleeps < 2000, "{sleeps}");
            fetch.wait().unwrap();
            send.wait().unwrap();

            rank.note("told", "");
            events.until(&node, || heard.try_recv().is_ok());

            rank.note("go", "");
            events.until(&node, || ring.send(&[1], 0).is_err());
        })
        .succeeds();
}

#[test]
fn it_sleeps_while_nothing_comes_and_wakes_for_late_exports_and_after_long_naps() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 1 {
                rank.read("exported");
                let import = node.import(0, "direct").rights(Rights::ALL).start().unwrap();
                rank.note("imported", "");
                rank.read("armed");
                std::thread::sleep(Duration::from_millis(20));
                import.put_signal(&[], 0, 0, 1).unwrap();
                rank.meet("end");
                return;
            }
            let (one, other) = (Loop::new(&node), Loop::new(&node));
            let quiet = Duration::from_millis(600);
            assert!(!one.sleep(quiet), "never armed");
            one.fd.arm().unwrap();
            node.poll();
            // What this process did itself may count once.
            let _ = one.sleep(Duration::from_millis(50));
            one.fd.arm().unwrap();
            other.fd.arm().unwrap();
            assert!(!one.sleep(quiet), "nothing has come");

            // Made after the arming.
            let export = inbox(&node, "direct");
            rank.note("exported", "");
            rank.read("imported");
            one.fd.arm().unwrap();
            other.fd.arm().unwrap();
            let began = Instant::now();
            let mut turns = 0;
            rank.note("armed", "");
            while export.signal(0).unwrap() == 0 {
                assert!(one.sleep(Duration::from_secs(10)));
                assert!(other.sleep(Duration::from_secs(10)), "both are armed");
                one.fd.arm().unwrap();
                other.fd.arm().unwrap();
                turns += 1;
            }
            assert!(turns < 20, "{turns} in {:?}", began.elapsed());
            // A store by a mere pointer rings nobody: while importers may make one, the program looks again now and then.
            assert!(one.sleep(Duration::from_secs(10)));
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn after_the_last_node_has_gone_it_stays_readable_and_arming_says_why() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            let (events, dropped) = (Loop::new(&node), Loop::new(&node));
            drop(dropped);
            events.fd.arm().unwrap();
            drop(node);
            for _ in 0..3 {
                assert!(events.sleep(Duration::from_secs(10)));
                let error = events.fd.arm().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Gone);
                refused(Err::<(), _>(error), &["has left the job"]);
            }
        })
        .succeeds();
}
