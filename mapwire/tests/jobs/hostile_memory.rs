//! A rank that writes what it likes into all the memory that it shares with others. They may be told that it is broken, and
//! may lose what they shared with it; they neither crash nor are written to outside of what they exported.

use std::time::{Duration, Instant};

use mapwire::{Rights, Shared};

use crate::harness::hostile::{Dice, Scratch};
use crate::harness::{Rank, job};

const OWN: u8 = 0xa5;
const LENGTH: usize = 6000;

/// Writes into all mappings called `name` for a while.
fn go_mad(rank: &Rank, name: &str, time: Duration) {
    let mut dice = Dice::of(rank);
    let memory = Scratch::mapped_here(name);
    assert!(!memory.is_empty(), "{name}");
    let end = Instant::now() + time;
    while Instant::now() < end {
        for part in &memory {
            part.scribble(&mut dice, 50);
        }
        if dice.below(20) == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn random_words_in_a_channel_harm_nobody_but_their_writer() {
    // Rank 0 is the victim, rank 1 honest, the others write into their channels with the victim.
    job(4)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let mut heap = vec![OWN; LENGTH + 2 * 4096];
                let start = heap.as_mut_ptr().wrapping_add(4096);
                // SAFETY: the memory outlives the export and is read when that is over.
                let lent = unsafe { node.export_range(start, LENGTH) };
                let lent = lent.ring_only().name("lent").on_notify(|_| {}).start().unwrap();
                let buffer = node.alloc(4096).unwrap();
                let honest = node.export_buffer(&buffer).ring_only().name("honest").start().unwrap();
                let imports: Vec<_> =
                    (1..rank.size).map(|peer| node.import(peer, "own").rights(Rights::ALL).start().unwrap()).collect();
                rank.meet("start");
                // Sends to all and fetches from all, whatever comes of it.
                let mut told = vec![String::new(); rank.size];
                let mut turn = 0;
                while !(2..rank.size).all(|mad| rank.has(&format!("mad-{mad}"))) {
                    turn += 1;
                    for (peer, import) in (1..).zip(&imports) {
                        let size = [5, 100, 1000, 9000][turn % 4];
                        let mut data = vec![7; size];
                        let outcome = if peer > 1 && turn % 3 == 0 && told[peer].is_empty() {
                            // A fetch that the mad rank leaves unanswered would wait for it to end.
                            import.send_notify(&data, 0)
                        } else if peer == 1 && turn % 3 == 0 {
                            import.fetch(0, &mut data)
                        } else {
                            import.send(&data, 0)
                        };
                        if let Err(error) = outcome {
                            assert!(peer > 1, "the honest rank: {error}");
                            told[peer] = error.to_string();
                        }
                    }
                }
                for (peer, told) in told.iter().enumerate().skip(2) {
                    println!("rank {peer}: {told}");
                    assert!(told.is_empty() || told.contains(&format!("rank {peer}")), "{told}");
                }
                // The honest rank's messages came all the while, and come still.
                assert_eq!(honest.wait_signal_for(8, 1000, Some(Duration::from_secs(30))).unwrap(), Some(1000));
                rank.note("end", "");
                drop((lent, honest));
                assert!(heap[..4096].iter().all(|byte| *byte == OWN), "before the export");
                assert!(heap[4096 + LENGTH..].iter().all(|byte| *byte == OWN), "behind the export");
                // What is left of the mad ranks must not hold this one up.
                drop(imports);
            } else {
                let own = node.alloc(16_384).unwrap();
                let _own = node.export_buffer(&own).ring_only().name("own").start().unwrap();
                let lent = node.import(0, "lent").rights(Rights::ALL).start().unwrap();
                let honest = node.import(0, "honest").start().unwrap();
                lent.send_notify(&[1; 300], 0).unwrap();
                rank.meet("start");
                if rank.number == 1 {
                    for number in 1..=1000 {
                        lent.send(&vec![2; 1 + number % 3000], 0).unwrap();
                        honest.put_signal(&[], 0, 8, number as u64).unwrap();
                    }
                } else {
                    go_mad(rank, "mapwire-channel", Duration::from_millis(700));
                    rank.note(&format!("mad-{}", rank.number), "");
                }
                rank.read("end");
                if rank.number > 1 {
                    // Its own memory is what it made of it: it cannot be trusted to leave in good order.
                    std::process::exit(0);
                }
            }
        })
        .succeeds()
        .soon();
}

/// Writes all of the board that this rank may write: every word as what would be "dead" or "no mail", and random words.
fn deface_board(rank: &Rank, time: Duration) {
    let news = Scratch::mapped_here("mapwire-news");
    assert!(news.is_empty(), "a rank may write the states of others");
    let bells = Scratch::mapped_here("mapwire-bells");
    assert!(!bells.is_empty());
    let mut dice = Dice::of(rank);
    let end = Instant::now() + time;
    while Instant::now() < end {
        for word in [3 << 32 | 3, 0, 1 << 32, 1] {
            (0..2048).for_each(|at| bells[0].store(at * 8, word));
        }
        bells[0].scribble(&mut dice, 50);
    }
    // The last thing that it says is that everybody polls, so that nobody needs to be woken.
    (0..2048).for_each(|at| bells[0].store(at * 8, 1));
}

#[test]
fn a_rank_that_writes_what_it_can_of_the_board_parts_nobody_and_keeps_no_late_rank_out() {
    job(4)
        .run(|rank| {
            if rank.number == 3 {
                rank.read("mad");
            }
            let node = rank.node();
            if rank.number == 2 {
                rank.read("start-0");
                rank.read("start-1");
                deface_board(rank, Duration::from_millis(500));
                rank.note("mad", "");
                for peer in [0, 1, 3] {
                    rank.read(&format!("end-{peer}"));
                }
                std::process::exit(0);
            }
            let buffer = node.alloc(LENGTH).unwrap();
            let _export = node.export_buffer(&buffer).ring_only().name("own").start().unwrap();
            if rank.number < 2 {
                let import = node.import(1 - rank.number, "own").rights(Rights::ALL).start().unwrap();
                rank.note(&format!("start-{}", rank.number), "");
                let mut rounds = 0;
                while !rank.has("mad") {
                    import.send(&[3; 2000], 0).unwrap();
                    import.fetch(0, &mut [0; 3000]).unwrap();
                    rounds += 1;
                }
                println!("{rounds} rounds");
            }
            // A late rank finds the others, and they it: its channels and memory come by mail.
            for peer in [0, 1, 3] {
                if peer != rank.number {
                    let import = node.import(peer, "own").rights(Rights::ALL).start().unwrap();
                    import.send(&[4; 2000], 0).unwrap();
                    import.fetch(0, &mut [0; 3000]).unwrap();
                }
            }
            rank.note(&format!("end-{}", rank.number), "");
            for peer in [0, 1, 3] {
                rank.read(&format!("end-{peer}"));
            }
        })
        .succeeds()
        .soon();
}

#[test]
fn a_rank_that_writes_what_it_can_of_the_board_ends_no_shared_memory() {
    job(3)
        .option("--shared", "64M")
        .run(|rank| {
            let node = rank.node();
            let shared = Shared::open(&node, 1).unwrap();
            let word = (rank.number == 0).then(|| shared.alloc::<u64>(1).unwrap());
            let word = shared.broadcast_slice(0, word).unwrap();
            std::thread::scope(|scope| {
                if rank.number == 2 {
                    scope.spawn(|| deface_board(rank, Duration::from_millis(300)));
                }
                for _ in 0..50 {
                    let held = shared.lock(1).unwrap();
                    word.set(0, word.get(0) + 1);
                    drop(held);
                    shared.barrier().unwrap();
                }
            });
            shared.barrier().unwrap();
            assert_eq!(word.get(0), 150);
            // Who closes the shared memory ends the barriers of others, and they may hear of it before their release.
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn a_slice_that_is_told_with_a_wrong_place_or_length_is_refused() {
    job(2)
        .option("--shared", "64M")
        .run(|rank| {
            let node = rank.node();
            let shared = Shared::open(&node, 1).unwrap();
            let bytes = shared.alloc::<u8>(100).unwrap();
            let wrong = [
                (0, 1),
                (bytes.address() + 1, 1),
                (bytes.address(), u64::MAX),
                (bytes.address() + 8, u64::MAX / 8),
                (bytes.address() + 8, (64 << 20) / 8),
                (bytes.address() + (64 << 20), 1),
                (u64::MAX, 1),
            ];
            for (address, length) in wrong {
                if rank.number == 0 {
                    shared.broadcast(0, address).unwrap();
                    shared.broadcast(0, length).unwrap();
                } else {
                    let slice = shared.broadcast_slice::<u64>(0, None);
                    assert!(slice.is_err(), "{length} at {address:#x}: {slice:?}");
                }
            }
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn a_rank_that_garbles_the_shared_memorys_messages_is_named_and_ends_it() {
    for faults in ["userfaultfd", "sigsegv"] {
        job(3)
            .called(faults)
            .option("--faults", faults)
            .option("--shared", "64M")
            .run(|rank| {
                crate::harness::denials::outlive_sigterm();
                let node = rank.node();
                let shared = Shared::open(&node, 1).unwrap();
                let words = (rank.number == 0).then(|| shared.alloc::<u64>(64).unwrap());
                let words = shared.broadcast_slice(0, words).unwrap();
                shared.barrier().unwrap();
                if rank.number == 2 {
                    words.set(0, 1);
                    go_mad(rank, "mapwire-channel", Duration::from_millis(400));
                    rank.note("mad", "");
                    rank.read("end-0");
                    rank.read("end-1");
                    std::process::exit(0);
                }
                // Locks and barriers until one fails; nothing is read or written, since what cannot be served ends a rank.
                let mut error = None;
                let end = Instant::now() + Duration::from_secs(30);
                while error.is_none() && Instant::now() < end {
                    let locked = shared.lock(5).map(drop);
                    error = locked.and_then(|()| shared.barrier()).err();
                    if error.is_none() && rank.has("mad") {
                        break;
                    }
                }
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                println!("survivor: {error}");
                assert!(error.is_empty() || error.contains("rank "), "{error}");
                rank.note(&format!("end-{}", rank.number), "");
                std::process::exit(0);
            })
            .succeeds()
            .soon();
    }
}
