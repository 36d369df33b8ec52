//! What was sent arrives, though its sender gives the import up or leaves at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mapwire::{Key, Rights};
use mapwire_transport::rendezvous::{Event, ToRank};
use mapwire_wire::{ControlMessage, ExportId, HandlerId, Repr};

use crate::harness::hostile::Outlaw;
use crate::harness::{Rank, eventually, job};

/// More than a ring and the NIC's queue hold, so that the last of them wait as commands.
const SENDS: u64 = 120;

#[test]
fn what_was_sent_arrives_though_the_import_is_given_up_at_once_or_the_sender_leaves() {
    for (mode, leaves) in [("inline", false), ("inline", true), ("thread", false), ("thread", true)] {
        job(2)
            .called(format!("{mode}-{leaves}"))
            .with("MAPWIRE_DRIVER", mode)
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let buffer = node.alloc(4096).unwrap();
                    let export = node.export_buffer(&buffer).ring_only().name("slow");
                    // Nobody takes what comes meanwhile.
                    let export = export.on_notify(|_| std::thread::sleep(Duration::from_millis(300)));
                    let export = export.start().unwrap();
                    rank.read("given up");
                    let most = Some(Duration::from_secs(20));
                    assert_eq!(export.wait_signal_for(0, SENDS, most).unwrap(), Some(SENDS));
                    rank.meet("end");
                    return;
                }
                let import = node.import(0, "slow").start().unwrap();
                import.send_notify(&[], 0).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                for _ in 0..SENDS {
                    import.put_signal_add(&[1; 100], 64, 0, 1).unwrap();
                }
                drop(import);
                let stays = (!leaves).then_some(node);
                rank.note("given up", "");
                rank.meet("end");
                drop(stays);
            })
            .succeeds();
    }
}

#[test]
fn what_was_sent_arrives_though_its_sender_leaks_its_node_or_exits_with_it() {
    static KEPT: std::sync::OnceLock<mapwire::Node> = std::sync::OnceLock::new();
    for way in ["forgotten", "static", "exit", "dropped"] {
        job(2)
            .called(way)
            .option("--transport", "udp")
            .with("MAPWIRE_LOSS", "40%")
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let buffer = node.alloc(4096).unwrap();
                    let export = node.export_buffer(&buffer).name("inbox").start().unwrap();
                    assert_eq!(export.wait_signal(0, SENDS).unwrap(), SENDS);
                    println!("all came");
                    return;
                }
                let import = node.import(0, "inbox").start().unwrap();
                for _ in 0..SENDS {
                    import.put_signal_add(&[1; 100], 64, 0, 1).unwrap();
                }
                match way {
                    "forgotten" => core::mem::forget((import, node)),
                    "static" => drop(KEPT.set(node)),
                    "exit" => std::process::exit(0),
                    // The last clone of the node goes with the import.
                    _ => return drop((node, import)),
                }
                // Past the harness, which looks for what a rank leaves.
                std::process::exit(0);
            })
            .succeeds()
            .prints("all came", 1);
    }
}

/// Set when the process has left its job and will end.
static HAS_LEFT: AtomicBool = AtomicBool::new(false);

/// The thread that the end of the process waits for, if one is to be waited for.
static AWAITED: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Has the end of the process wait for others that end, and give its threads time for what they do.
#[allow(unsafe_code)]
fn end_late() {
    extern "C" fn wait() {
        HAS_LEFT.store(true, Ordering::Release);
        let awaited = AWAITED.lock().unwrap().take();
        match awaited {
            Some(thread) => drop(thread.join()),
            None => std::thread::sleep(Duration::from_millis(500)),
        }
    }
    // SAFETY: the function is here until the process has ended.
    assert_eq!(unsafe { libc::atexit(wait) }, 0);
}

#[test]
fn a_thread_that_uses_shared_memory_while_its_process_exits_does_not_make_it_fail() {
    for transport in ["shm", "udp"] {
        let job = job(2).called(transport).option("--transport", transport);
        let job = job.option("--shared", "64M");
        job.run(|rank| counts_on(rank, false)).succeeds();
    }
}

#[test]
fn a_process_whose_exit_waits_for_a_thread_that_needs_a_rank_that_left_ends_as_failed() {
    let job = job(2).with("MAPWIRE_TIMEOUT", "3").option("--shared", "64M");
    let done = job.run(|rank| counts_on(rank, true));
    done.code(70).says("access to shared memory at");
}

/// Rank 0 exits with a thread that wants memory of rank 1, which ends as it sees that. The exit waits for the thread if `joins`.
fn counts_on(rank: &Rank, joins: bool) {
    if rank.number == 0 {
        // Before the node: it is done after the node has left.
        end_late();
    }
    let node = rank.node();
    let shared = rank.shared(&node);
    let buffer = node.alloc(4096).unwrap();
    let export = node.export_buffer(&buffer).name("inbox").start().unwrap();
    let counter = (rank.number == 1).then(|| shared.alloc::<u64>(1).unwrap());
    let counter = shared.broadcast_slice(1, counter).unwrap();
    let import = node.import(1 - rank.number, "inbox").start().unwrap();
    shared.barrier().unwrap();
    if rank.number == 1 {
        assert!(export.wait_signal(0, 1).is_err(), "rank 0 leaves");
        return;
    }
    let thread = std::thread::spawn(move || {
        while !HAS_LEFT.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        counter.set(0, 1);
        drop((node, shared, export, buffer, import));
    });
    if joins {
        *AWAITED.lock().unwrap() = Some(thread);
    }
    std::process::exit(0);
}

#[test]
fn a_thread_that_sends_while_its_process_exits_does_not_make_it_fail() {
    for transport in ["shm", "udp"] {
        let job = job(2).called(transport).option("--transport", transport);
        job.with("MAPWIRE_TIMEOUT", "10").run(sends_on).succeeds();
    }
}

/// Rank 0 exits with a thread that sends without end.
fn sends_on(rank: &Rank) {
    let node = rank.node();
    let buffer = node.alloc(4096).unwrap();
    let export = node.export_buffer(&buffer).ring_only().name("inbox");
    let export = export.start().unwrap();
    if rank.number == 1 {
        rank.read("sent");
        // Comes with rank 0's end.
        assert!(export.wait_signal(0, u64::MAX).is_err());
        return;
    }
    let import = Arc::new(node.import(1, "inbox").start().unwrap());
    let sent = Arc::new(AtomicU64::new(0));
    for _ in 0..4 {
        let (import, sent) = (Arc::clone(&import), Arc::clone(&sent));
        std::thread::spawn(move || {
            while import.put_signal_add(&[1; 100], 64, 0, 1).is_ok() {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    eventually("all are at it", || sent.load(Ordering::Relaxed) > SENDS);
    rank.note("sent", "");
    std::process::exit(0);
}

#[test]
fn a_rank_that_leaves_behind_a_barrier_lets_all_others_pass_it() {
    for wait in ["event", "adaptive", "poll"] {
        for round in 0..5 {
            job(3)
                .called(format!("{wait}-{round}"))
                .option("--wait", wait)
                .option("--path", "ring")
                .run(leaves_first)
                .succeeds();
        }
    }
}

fn leaves_first(rank: &Rank) {
    let node = rank.node();
    let buffer = node.alloc(4096).unwrap();
    let export = node.export_buffer(&buffer).name("inbox").start().unwrap();
    if rank.number > 0 {
        node.barrier().unwrap();
        assert_eq!(export.signal(0).unwrap(), 3 * SENDS);
        return;
    }
    let inboxes = [1, 2].map(|rank| node.import(rank, "inbox").start().unwrap());
    for _ in 0..3 * SENDS {
        for inbox in &inboxes {
            inbox.put_signal_add(&[1; 100], 64, 0, 1).unwrap();
        }
    }
    node.barrier().unwrap();
}

#[test]
fn a_peer_that_takes_nothing_keeps_no_rank_from_leaving_which_says_so() {
    job(2)
        .with("MAPWIRE_TIMEOUT", "1")
        .run(|rank| {
            if rank.number == 0 {
                let node = rank.node();
                let import = node.import(1, "never taken").start().unwrap();
                for _ in 0..SENDS {
                    import.send(&[1; 100], 0).unwrap();
                }
                let begun = Instant::now();
                drop((import, node));
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(60), "{took:?}");
                rank.note("left", "");
                return;
            }
            let mut outlaw = Outlaw::join(rank);
            let memory = outlaw.wait_for(|event| match event {
                Event::Message(ToRank::Channel { peer: 0 }, Some(fd)) => Some(fd),
                _ => None,
            });
            let mut channel = outlaw.channel_in(0, &memory);
            let request = loop {
                let (header, payload) = channel.receive();
                if let Ok(Repr::Handler { handler: HandlerId::CONTROL, .. }) = Repr::parse(&header, &payload)
                    && let Ok(ControlMessage::ImportRequest { request, .. }) = ControlMessage::parse(&payload)
                {
                    break request;
                }
            };
            channel.control(&ControlMessage::ImportGranted {
                request,
                export: ExportId(1),
                key: Key([7; 16]),
                length: 4096,
                rights: Rights::STORE,
                direct: None,
            });
            rank.read("left");
        })
        .code(70)
        .says("rank 0: what was sent to rank 1 last is lost: rank 1 took nothing of it for 1s");
}
