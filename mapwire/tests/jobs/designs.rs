//! Every translation design under real transfers, in shapes so small that translations fight for room.

use std::sync::Arc;

use mapwire::Rights;

use crate::harness::{Rank, job, pattern};
use crate::paths::every_size;

/// Designs with caches of a few pages; tables of a process hold the largest transfer.
const DESIGNS: [&str; 10] = [
    "hierarchical,entries=16",
    "hierarchical,entries=64,ways=4,line=4,prefetch=8",
    "hierarchical,entries=16,tables=1",
    "shared-cache,entries=32,ways=2",
    "per-process,entries=1K",
    "interrupt,entries=32",
    "interrupt,entries=64,ways=2,offset=off",
    "interrupt,variant=vmmc,entries=64,fill=32",
    "dynamic-handle,entries=64,ways=2,line=8",
    "dynamic-handle,entries=16,ways=1,line=1",
];

#[test]
fn every_size_arrives_whole_under_every_design() {
    for design in DESIGNS {
        job(2).called(design).option("--translation", design).run(every_size).succeeds();
    }
}

#[test]
fn all_ranks_send_to_all_and_fetch_from_all_at_once_under_every_design() {
    for design in DESIGNS {
        job(3).called(design).option("--translation", design).run(everybody_with_everybody).succeeds();
    }
}

/// Data and signal of one packet are in pages that share a place of the cache; so are those that a fetch fills.
fn far_apart(rank: &Rank) {
    const APART: u64 = 64 * 4096;
    const BYTES: usize = 200;
    let node = rank.node();
    if rank.number == 0 {
        let inbox = node.alloc(2 * APART as usize).unwrap();
        let inbox = node.export_buffer(&inbox).ring_only().name("inbox");
        let inbox = inbox.rights(Rights::ALL).start().unwrap();
        for turn in 1..=20 {
            inbox.wait_signal(APART, turn).unwrap();
            let mut found = vec![0; BYTES];
            inbox.read(4096 - 100, &mut found).unwrap();
            assert!(found == pattern(turn, BYTES), "turn {turn}");
            rank.note(&format!("seen-{turn}"), "");
        }
        rank.meet("end");
        return;
    }
    let import = node.import(0, "inbox").rights(Rights::ALL).start().unwrap();
    let mut into = vec![0; 3 * 4096];
    let at = into.as_ptr().align_offset(4096) + 4096 - 100;
    for turn in 1..=20 {
        let data = pattern(turn, BYTES);
        import.put_signal(&data, 4096 - 100, APART, turn).unwrap();
        rank.read(&format!("seen-{turn}"));
        import.fetch(4096 - 100, &mut into[at..at + BYTES]).unwrap();
        assert!(into[at..at + BYTES] == data, "turn {turn}");
    }
    rank.meet("end");
}

#[test]
fn pages_of_one_packet_may_share_a_place_of_the_cache() {
    for design in [
        "dynamic-handle,entries=64,line=1,ways=1",
        "dynamic-handle,entries=1,line=1,ways=1",
        "interrupt,entries=1",
        "hierarchical,entries=1,tables=1",
    ] {
        job(2).called(design).option("--translation", design).run(far_apart).succeeds();
    }
}

#[test]
fn under_a_limit_on_pinned_pages_every_design_unpins_and_goes_on() {
    for design in DESIGNS {
        few_pages(design, "lru");
    }
}

#[test]
fn under_a_limit_every_policy_unpins_and_goes_on() {
    for policy in ["mru", "lfu", "mfu", "random"] {
        few_pages("hierarchical,entries=16", policy);
    }
}

fn few_pages(design: &str, policy: &str) {
    job(2)
        .called(format!("{design} {policy}"))
        .option("--translation", design)
        .option("--pin-limit", "256K")
        .option("--policy", policy)
        .option("--prepin", "4")
        .run(few_pages_at_a_time)
        .succeeds();
}

/// Rounds of messages of each rank to each other, from many pages, with fetches in between.
pub(crate) fn everybody_with_everybody(rank: &Rank) {
    const ROUNDS: u64 = 12;
    const BYTES: usize = 3 * 4096 + 300;
    let node = rank.node();
    let (own, size) = (rank.number, node.size());
    let inboxes: Vec<_> = (0..size).map(|_| node.alloc(BYTES + 4096).unwrap()).collect();
    let exports: Vec<_> = inboxes
        .iter()
        .enumerate()
        .map(|(from, inbox)| {
            let export = node.export_buffer(inbox).ring_only();
            export.name(format!("from-{from}")).start().unwrap()
        })
        .collect();
    let library = pattern(own as u64 + 77, 8 * 4096);
    let shown = node.alloc(library.len()).unwrap();
    let shown = node.export_buffer(&shown).ring_only().name("library");
    let shown = shown.start().unwrap();
    shown.write(0, &library).unwrap();
    rank.meet("exported");
    let peers: Vec<_> = (0..size)
        .filter(|&peer| peer != own)
        .map(|peer| {
            let inbox = node.import(peer, &format!("from-{own}")).start().unwrap();
            let library = node.import(peer, "library").rights(Rights::FETCH);
            (peer, inbox, library.start().unwrap())
        })
        .collect();
    let key = |from: usize, to: usize, round: u64| ((from * 8 + to) as u64) << 32 | round;
    for round in 1..=ROUNDS {
        for (peer, inbox, library) in &peers {
            // From another place each time: many pages.
            let data = pattern(key(own, *peer, round), BYTES);
            inbox.put_signal(&data, 8, 0, round).unwrap();
            let at = 1000 * round as usize;
            // Within a command.
            inbox.send(&round.to_le_bytes(), BYTES as u64 + 8).unwrap();
            let mut some = vec![0; 5000];
            library.fetch(at as u64, &mut some).unwrap();
            let expected = pattern(*peer as u64 + 77, 8 * 4096);
            assert!(some == expected[at..at + 5000], "round {round}");
        }
        for (peer, _, _) in &peers {
            exports[*peer].wait_signal(0, round).unwrap();
            let mut found = vec![0; BYTES];
            exports[*peer].read(8, &mut found).unwrap();
            let expected = pattern(key(*peer, own, round), BYTES);
            assert!(found == expected, "round {round} from rank {peer}");
        }
        rank.meet(&format!("round {round}"));
    }
    rank.meet("end");
}

/// Sends from 64 pages in turn, of which 256 KiB allow all but the export's, some at a time.
fn few_pages_at_a_time(rank: &Rank) {
    const PAGES: usize = 80;
    let node = rank.node();
    if rank.number == 0 {
        let inbox = node.alloc(4096).unwrap();
        let inbox = node.export_buffer(&inbox).ring_only().name("inbox");
        let inbox = inbox.start().unwrap();
        for turn in 1..=PAGES as u64 {
            inbox.wait_signal(0, turn).unwrap();
            let mut found = vec![0; 3000];
            inbox.read(8, &mut found).unwrap();
            assert!(found == pattern(turn, 3000), "turn {turn}");
            rank.note(&format!("seen-{turn}"), "");
        }
        rank.meet("end");
    } else {
        let import = node.import(0, "inbox").start().unwrap();
        let mut sources = vec![0; PAGES * 4096];
        for turn in 1..=PAGES as u64 {
            let start = (turn as usize * 37 % PAGES) * 4096;
            let source = &mut sources[start..start + 3000];
            source.copy_from_slice(&pattern(turn, 3000));
            import.put_signal(source, 8, 0, turn).unwrap();
            rank.read(&format!("seen-{turn}"));
        }
        let limit = (256 << 10) / 4096;
        assert!(node.translation_counters().pinned_pages <= limit);
        rank.meet("end");
    }
}

/// Gives up the page with the highest address first, and notes what it was told.
#[derive(Debug)]
struct Highest(std::sync::Arc<std::sync::atomic::AtomicU64>);

impl mapwire::ChooseVictims for Highest {
    fn choose(&mut self, count: u64, candidates: &mapwire::Candidates<'_>, victims: &mut Vec<mapwire::Page>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut pages: Vec<_> = candidates.oldest_first().collect();
        pages.sort_unstable();
        victims.extend(pages.iter().rev().take(count as usize));
    }
}

#[test]
fn a_program_may_choose_its_victims_itself_but_only_before_it_pins() {
    job(2)
        .option("--pin-limit", "32K")
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let inbox = node.alloc(4096).unwrap();
                let inbox = node.export_buffer(&inbox).ring_only().name("inbox");
                let inbox = inbox.start().unwrap();
                inbox.wait_signal(0, 1).unwrap();
                let late = node.choose_victims(Highest(Default::default()));
                assert!(late.unwrap_err().to_string().contains("1 pages are pinned"));
                rank.meet("end");
                return;
            }
            let asked = std::sync::Arc::default();
            node.choose_victims(Highest(std::sync::Arc::clone(&asked))).unwrap();
            let import = node.import(0, "inbox").start().unwrap();
            let sources = vec![0_u8; 40 * 4096];
            let skip = sources.as_ptr().align_offset(4096);
            for page in 0..30 {
                import.send(&sources[skip + page * 4096..][..200], 0).unwrap();
            }
            // Eight pages fit; each one more takes the place of the one before it.
            let counters = node.translation_counters();
            assert_eq!((counters.pins, counters.unpins), (30, 22));
            assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 22);
            // The first seven have stayed.
            for page in 0..7 {
                import.send(&sources[skip + page * 4096..][..200], 0).unwrap();
            }
            assert_eq!(node.translation_counters().pins, 30);
            import.put_signal(&[], 0, 0, 1).unwrap();
            rank.meet("end");
        })
        .succeeds();
}

/// A handler that runs on the service thread sends more than fits the cache, and reads what the other rank stores to, while the
/// program computes and calls nothing.
fn a_handler_that_works(rank: &Rank) {
    const BYTES: usize = 80_000;
    let node = rank.node();
    let shared = rank.shared(&node);
    let words = crate::sharing::one_each(rank, &shared, 1);
    let inbox = node.alloc(BYTES + 8).unwrap();
    let inbox = node.export_buffer(&inbox).ring_only().name("inbox");
    let inbox = inbox.start().unwrap();
    let other = 1 - rank.number;
    let theirs = words[other];
    let import = Arc::new(node.import(other, "inbox").start().unwrap());
    let (answer, calls) = (Arc::clone(&import), node.alloc(4096).unwrap());
    let mut calls = node.export_buffer(&calls).ring_only().name("calls");
    if rank.number == 0 {
        calls = calls.on_notify(move |notification| {
            assert_eq!(theirs.get(0), notification.offset + 1);
            answer.send(&pattern(notification.offset, BYTES), 0).unwrap();
            answer.put_signal(&[], 0, BYTES as u64, notification.offset + 1).unwrap();
        });
    }
    let _calls = calls.start().unwrap();
    let call = node.import(other, "calls").start().unwrap();
    shared.barrier().unwrap();
    for turn in 0..5 {
        if rank.number == 0 {
            rank.read(&format!("answered-{turn}"));
        } else {
            words[1].set(0, turn + 1);
            call.send_notify(&[1], turn).unwrap();
            inbox.wait_signal(BYTES as u64, turn + 1).unwrap();
            let mut found = vec![0; BYTES];
            inbox.read(0, &mut found).unwrap();
            assert!(found == pattern(turn, BYTES), "turn {turn}");
            rank.note(&format!("answered-{turn}"), "");
        }
    }
    shared.barrier().unwrap();
    shared.close().unwrap();
}

#[test]
fn a_notification_handler_sends_and_reads_shared_memory_under_every_design() {
    for design in DESIGNS {
        job(2).called(design).option("--translation", design).run(a_handler_that_works).succeeds();
    }
}
