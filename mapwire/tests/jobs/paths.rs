//! Sends, fetches and signals on the direct path and on the ring path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mapwire::Rights;

use crate::harness::{Rank, eventually, job, pattern, refused};

/// Around every size at which something else happens: short sends, pages, chunks.
const SIZES: [usize; 12] = [0, 1, 7, 8, 127, 128, 129, 4095, 4096, 4097, (64 << 10) + 3, 1 << 20];

/// Room for the largest behind a signal, and for a neighbour.
const ROOM: usize = (1 << 20) + 4096;

/// Where data goes: on no boundary of anything.
const AT: u64 = 101;

#[test]
fn every_size_arrives_whole_on_both_paths_and_comes_back_by_fetch() {
    job(2).run(every_size).succeeds();
}

/// Sends and fetches every size of [`SIZES`] from rank 1 to rank 0 and back, on both paths.
pub(crate) fn every_size(rank: &Rank) {
    let node = rank.node();
    if rank.number == 0 {
        let (direct, ring) = (node.alloc(ROOM).unwrap(), node.alloc(ROOM).unwrap());
        let direct = node.export_buffer(&direct).name("direct").start().unwrap();
        let ring = node.export_buffer(&ring).ring_only();
        let ring = ring.name("ring").start().unwrap();
        for (name, export) in [("direct", &direct), ("ring", &ring)] {
            for (turn, size) in (1..).zip(SIZES) {
                export.wait_signal(0, turn).unwrap();
                let mut found = vec![0; size + 2];
                export.read(AT - 1, &mut found).unwrap();
                assert_eq!(found[0], 0, "the byte before {size} by {name}");
                assert_eq!(found[size + 1], 0, "the byte after {size} by {name}");
                assert!(found[1..=size] == pattern(turn, size), "{size} by {name}");
                export.write(AT, &vec![0; size]).unwrap();
                rank.note(&format!("seen-{name}-{turn}"), "");
            }
        }
        rank.meet("end");
    } else {
        for (name, is_direct) in [("direct", true), ("ring", false)] {
            let import = node.import(0, name).rights(Rights::ALL).start().unwrap();
            assert_eq!(import.is_direct(), is_direct);
            assert_eq!(import.len(), ROOM as u64);
            for (turn, size) in (1..).zip(SIZES) {
                let data = pattern(turn, size);
                import.send(&data, AT).unwrap();
                let mut back = vec![0; size];
                import.fetch(AT, &mut back).unwrap();
                assert!(back == data, "{size} bytes came back by {name}");
                import.put_signal(&[], 0, 0, turn).unwrap();
                rank.read(&format!("seen-{name}-{turn}"));
            }
        }
        rank.meet("end");
    }
}

#[test]
fn whoever_sees_a_signal_sees_the_data_that_was_put_before_it() {
    const TURNS: u64 = 2000;
    const WORDS: usize = 700;
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                for name in ["direct", "ring"] {
                    let buffer = node.alloc(8 * (WORDS + 1)).unwrap();
                    let mut export = node.export_buffer(&buffer).name(name);
                    if name == "ring" {
                        export = export.ring_only();
                    }
                    let export = export.start().unwrap();
                    let mut seen = 0;
                    while seen < TURNS {
                        seen = export.wait_signal(0, seen + 1).unwrap();
                        for word in [1, 2, WORDS / 2, WORDS] {
                            // Later turns may be there already, earlier ones not any more.
                            assert!(buffer.load_u64(8 * word).unwrap() >= seen || word > WORDS / 2);
                        }
                    }
                    // The last turn was a long one.
                    assert_eq!(buffer.load_u64(8 * WORDS).unwrap(), TURNS);
                    rank.meet(name);
                }
            } else {
                for name in ["direct", "ring"] {
                    let import = node.import(0, name).start().unwrap();
                    for turn in 1..=TURNS {
                        let words = if turn % 10 == 0 { WORDS } else { WORDS / 2 };
                        let data: Vec<u8> = turn.to_le_bytes().repeat(words);
                        import.put_signal(&data, 8, 0, turn).unwrap();
                    }
                    rank.meet(name);
                }
            }
        })
        .succeeds();
}

#[test]
fn a_handler_runs_after_delivery_and_may_itself_send() {
    const MESSAGES: u64 = 50;
    job(2)
        .run(|rank| {
            let node = rank.node();
            let (own, other) = (rank.number, 1 - rank.number);
            for (turn, name) in (1..).zip(["direct", "ring"]) {
                let replies = node.alloc(64).unwrap();
                let replies = node.export_buffer(&replies).name(format!("replies-{name}"));
                let replies = replies.start().unwrap();
                let answer = format!("replies-{name}");
                let answer = Arc::new(node.import(other, &answer).start().unwrap());
                let buffer = node.alloc(20_000).unwrap();
                let told = Arc::new(AtomicU64::new(0));
                let mut export = node.export_buffer(&buffer).name(name);
                if name == "ring" {
                    export = export.ring_only();
                }
                let export = {
                    let (told, buffer, answer) = (told.clone(), buffer.clone(), answer.clone());
                    export.on_notify(move |notification| {
                        let number = told.fetch_add(1, Ordering::Relaxed) + 1;
                        assert_eq!(usize::from(notification.from.0), other);
                        // The message is there, all of it: its first and its last word say which it is.
                        let (first, last) =
                            (notification.offset as usize, (notification.offset + notification.length) as usize - 8);
                        assert_eq!(buffer.load_u64(first).unwrap(), number);
                        assert_eq!(buffer.load_u64(last).unwrap(), number);
                        answer.put_signal(&[], 0, 8, number).unwrap();
                    })
                };
                let export = export.start().unwrap();
                let import = node.import(other, name).start().unwrap();
                for number in 1..=MESSAGES {
                    let length = if number % 2 == 0 { 16 } else { 9000 };
                    let data = number.to_le_bytes().repeat(length / 8);
                    import.send_notify(&data, 8 * (number % 4)).unwrap();
                    // The next message overwrites this one, so it waits for the answer.
                    replies.wait_signal(8, number).unwrap();
                }
                node.wait_until(None, || (told.load(Ordering::Relaxed) == MESSAGES).then_some(()));
                rank.meet(&format!("turn{turn}"));
                drop((export, own));
            }
        })
        .succeeds();
}

#[test]
fn a_buffer_stands_for_a_redirected_export_until_it_comes_back() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let own = node.alloc(9_000).unwrap();
                own.write(0, &pattern(5, 9_000)).unwrap();
                own.store_u64(8192, 0).unwrap();
                let (landing, short) = (node.alloc(16_384).unwrap(), node.alloc(8_999).unwrap());
                let mut export = node.export_buffer(&own).ring_only().name("inbox").start().unwrap();
                let direct = node.alloc(4096).unwrap();
                let mut direct = node.export_buffer(&direct).name("direct").start().unwrap();
                refused(direct.redirect(&landing), &["ring path"]);
                refused(export.redirect(&short), &["8999 B", "9000 B"]);
                export.redirect(&landing).unwrap();
                rank.meet("redirected");
                // The signal lands where the data does, and is watched there.
                export.wait_signal(8192, 7).unwrap();
                let mut found = vec![0; 8000];
                landing.read(100, &mut found).unwrap();
                assert!(found == pattern(1, 8000));
                export.read(100, &mut found).unwrap();
                assert!(found == pattern(1, 8000));
                own.read(100, &mut found).unwrap();
                assert!(found == pattern(5, 9_000)[100..8100], "the exported memory is untouched");
                rank.read("sent");
                export.redirect_back().unwrap();
                rank.meet("back");
                export.wait_signal(8192, 8).unwrap();
                own.read(100, &mut found).unwrap();
                assert!(found == pattern(2, 8000));
                assert_eq!(landing.load_u64(8192).unwrap(), 7);
                rank.meet("end");
            } else {
                let import = node.import(0, "inbox").rights(Rights::ALL).start().unwrap();
                rank.meet("redirected");
                import.put_signal(&pattern(1, 8000), 100, 8192, 7).unwrap();
                let mut back = vec![1; 8000];
                import.fetch(100, &mut back).unwrap();
                assert!(back == pattern(1, 8000), "a fetch reads the landing");
                rank.note("sent", "");
                rank.meet("back");
                import.fetch(0, &mut back).unwrap();
                assert!(back == pattern(5, 9_000)[..8000], "and the export again");
                import.put_signal(&pattern(2, 8000), 100, 8192, 8).unwrap();
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn redirections_under_fetches_leave_no_page_pinned_and_give_one_place_or_the_other() {
    const LENGTH: usize = 64 * 4096;
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let own = node.alloc(LENGTH).unwrap();
                own.write(0, &vec![1; LENGTH]).unwrap();
                let mut export = node.export_buffer(&own).ring_only().name("inbox").start().unwrap();
                rank.meet("exported");
                for turn in 0..200_u32 {
                    let landing = node.alloc(LENGTH).unwrap();
                    landing.write(0, &vec![(turn % 250 + 2) as u8; LENGTH]).unwrap();
                    export.redirect(&landing).unwrap();
                    // Unmapped as soon as nobody reads it: what still does must not fault.
                    drop(landing);
                    if turn % 3 == 0 {
                        export.redirect_back().unwrap();
                    }
                    node.poll();
                }
                rank.note("over", "");
                rank.meet("end");
            } else {
                let import = node.import(0, "inbox").rights(Rights::FETCH).start().unwrap();
                rank.meet("exported");
                let mut fetches = 0;
                while !rank.has("over") {
                    let mut found = vec![0; LENGTH];
                    import.fetch(0, &mut found).unwrap();
                    for page in found.chunks(4096) {
                        assert!(page[0] != 0 && page.iter().all(|byte| *byte == page[0]));
                    }
                    fetches += 1;
                }
                assert!(fetches > 0);
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn sends_that_nobody_waits_for_arrive_in_order_and_give_their_data_back() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(64 * 8192).unwrap();
                let export = node.export_buffer(&buffer).ring_only().name("ring").start().unwrap();
                export.wait_signal(0, 1).unwrap();
                for number in 0..60_usize {
                    let mut found = vec![0; 5000 + number];
                    buffer.read(8192 * (number + 1), &mut found).unwrap();
                    assert!(found == pattern(number as u64, 5000 + number), "{number}");
                }
                rank.meet("end");
            } else {
                let ring = node.import(0, "ring").start().unwrap();
                let sendings: Vec<_> = (0..60_usize)
                    .map(|number| {
                        let data = pattern(number as u64, 5000 + number);
                        ring.send_async(data, 8192 * (number as u64 + 1)).unwrap()
                    })
                    .collect();
                ring.put_signal(&[], 0, 0, 1).unwrap();
                for (number, sending) in sendings.into_iter().enumerate() {
                    eventually("the send is done", || sending.is_done());
                    assert!(sending.wait().unwrap() == pattern(number as u64, 5000 + number));
                }
                let shared: Arc<[u8]> = pattern(3, 300).into();
                let back = ring.send_async(shared.clone(), 8).unwrap().wait().unwrap();
                assert!(Arc::ptr_eq(&shared, &back));
                drop(ring.send_async(&b"static"[..], 8).unwrap());
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn heap_stack_and_static_memory_can_be_exported() {
    static WORDS: [AtomicU64; 100] = [const { AtomicU64::new(0) }; 100];
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let mut heap = vec![0_u64; 3000];
                let mut stack = [0_u64; 300];
                let statics = WORDS.as_ptr().cast_mut().cast::<u8>();
                let places = [
                    ("heap", heap.as_mut_ptr().cast::<u8>(), 8 * heap.len()),
                    ("stack", stack.as_mut_ptr().cast::<u8>(), 8 * stack.len()),
                    ("static", statics, size_of_val(&WORDS)),
                ];
                for (name, start, length) in places {
                    // SAFETY: the memory outlives the export, which is dropped in this round, and is read through it.
                    let export = unsafe { node.export_range(start, length) };
                    let export = export.name(name).start().unwrap();
                    export.wait_signal(8, 5).unwrap();
                    let mut found = vec![0; length - 16];
                    export.read(16, &mut found).unwrap();
                    assert!(found == pattern(length as u64, length - 16), "{name}");
                    rank.meet(name);
                }
            } else {
                for name in ["heap", "stack", "static"] {
                    let import = node.import(0, name).rights(Rights::ALL).start().unwrap();
                    assert_eq!(import.direct_range().is_empty(), name != "heap");
                    let data = pattern(import.len(), import.len() as usize - 16);
                    import.put_signal(&data, 16, 8, 5).unwrap();
                    rank.meet(name);
                }
            }
        })
        .succeeds();
}

#[test]
fn a_rank_can_import_its_own_exports_with_and_without_a_launcher() {
    job(1)
        .run(|rank| {
            for config in [mapwire::NodeConfig::from_env().unwrap(), mapwire::NodeConfig::default()] {
                let node = mapwire::Node::with(config).unwrap();
                for name in ["direct", "ring"] {
                    let buffer = node.alloc(20_000).unwrap();
                    let mut export = node.export_buffer(&buffer).name(name);
                    if name == "ring" {
                        export = export.ring_only();
                    }
                    let export = export.start().unwrap();
                    let import = node.import(0, name).rights(Rights::ALL);
                    let import = import.timeout(Duration::from_secs(5)).start().unwrap();
                    let data = pattern(1, 10_001);
                    import.put_signal(&data, 11, 16_000, 3).unwrap();
                    export.wait_signal(16_000, 3).unwrap();
                    let mut found = vec![0; data.len()];
                    buffer.read(11, &mut found).unwrap();
                    assert!(found == data, "{name}");
                    import.fetch(11, &mut found).unwrap();
                    assert!(found == data, "{name}");
                }
            }
            assert_eq!(rank.size, 1);
        })
        .succeeds();
}

#[test]
fn proxy_addresses_name_the_bytes_of_imports_and_nothing_between() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(10_000).unwrap();
            let _a = node.export_buffer(&buffer).ring_only().name("a").start().unwrap();
            let _b = node.export_buffer(&buffer).ring_only().name("b").start().unwrap();
            let a = node.import(0, "a").start().unwrap();
            let b = node.import(0, "b").start().unwrap();
            let (start, next) = (a.proxy_address(), b.proxy_address());
            assert!(start.offset(10_000).unwrap() < next, "{start} {next}");
            drop(a);
            let a = node.import(0, "a").start().unwrap();
            assert!(a.proxy_address() > next, "addresses are given once");
        })
        .succeeds();
}
