//! A rank that exits, is killed or stops in the middle of something. The others are told which rank it is, and the job ends
//! soon, with the code of what ended it.

use std::io::IoSlice;
use std::time::Duration;

use mapwire::{Export, Node, Rights, Rows, Shared};
use rustix::process::Signal;

use crate::harness::denials::outlive_sigterm;
use crate::harness::{Job, Rank, eventually, job};

const WAYS: [&str; 4] = ["exits with 0", "exits with 3", "is killed", "is stopped"];

/// The rank that dies.
const VICTIM: usize = 2;

/// What those are told who miss it; on one host whoever wants its lock is told of the thread that held it.
const GONE: &str = "rank 2 is gone";

/// What a survivor says, on standard error, and with which code it then ends.
fn survive(rank: &Rank, outcome: Result<(), mapwire::Error>) {
    match outcome {
        Ok(()) => panic!("rank {} missed the end of another", rank.number),
        Err(error) => {
            eprintln!("survivor {}: {error}", rank.number);
            std::process::exit(7);
        }
    }
}

/// Ends this process in the given way, from a thread of its own, once all ranks are in the middle of it.
fn die_soon(rank: &Rank, way: &'static str) {
    let pid = rustix::process::getpid();
    let ready = rank.path("ready");
    std::thread::spawn(move || {
        eventually("the ranks are at it", || ready.exists());
        std::thread::sleep(Duration::from_millis(30));
        let signal = match way {
            "exits with 0" => std::process::exit(0),
            "exits with 3" => std::process::exit(3),
            "is killed" => Signal::KILL,
            _ => Signal::STOP,
        };
        rustix::process::kill_process(pid, signal).unwrap();
    });
}

/// Runs `body` as every rank while rank 2 dies in each of the ways. `body` says how it fared; in the victim it may go on for
/// ever.
///
/// A survivor that is told by an error ends with 7; one that was in a page fault, with 70.
fn each_way(what: &str, survivors_code: i32, body: fn(&Rank, &Node) -> Result<(), mapwire::Error>) {
    each_way_with(what, "minipages", survivors_code, &[GONE], body);
}

/// As [`each_way`], with shared memory that is kept coherent so; survivors say one of `told`.
fn each_way_with(
    what: &str,
    coherence: &str,
    survivors_code: i32,
    told: &[&str],
    body: fn(&Rank, &Node) -> Result<(), mapwire::Error>,
) {
    for way in WAYS {
        let job = job(3).called(format!("{what} {coherence} {way}")).option("--coherence", coherence);
        let done = settings(job).run(|rank| {
            let node = rank.node();
            if rank.number == VICTIM {
                die_soon(rank, way);
                let _ = body(rank, &node);
                // It dies later than it could go on.
                std::thread::sleep(Duration::from_secs(60));
            } else {
                outlive_sigterm();
                let outcome = body(rank, &node);
                survive(rank, outcome);
            }
        });
        let done = done.soon();
        match way {
            // A clean end is no reason to end the job: the survivors end it, for their own reasons.
            "exits with 0" => done.code(survivors_code).says_one_of(told),
            "exits with 3" => done.code(3).says("rank 2 (process ").says("exited with code 3").says_one_of(told),
            "is killed" => done.code(137).says("was killed by SIGKILL").says_one_of(told),
            _ => done.code(128 + 19).says("rank 2 (process ").says("was stopped by SIGSTOP"),
        };
    }
}

fn settings(job: Job) -> Job {
    job.option("--stop-grace", "0.2").option("--shared", "64M")
}

/// All ranks are where they should be when the victim dies.
fn all_ready(rank: &Rank) {
    rank.note(&format!("at-{}", rank.number), "");
    if rank.number == 0 {
        for other in 0..rank.size {
            rank.read(&format!("at-{other}"));
        }
        rank.note("ready", "");
    }
}

/// Every rank's inbox on the ring path. The victim then does nothing more, and has none in the end.
fn inbox_of_survivor(rank: &Rank, node: &Node) -> Result<Option<Export>, mapwire::Error> {
    let buffer = node.alloc(200_000)?;
    let export = node.export_buffer(&buffer).ring_only().name("inbox").start()?;
    if rank.number == VICTIM {
        all_ready(rank);
        std::thread::sleep(Duration::from_secs(60));
        return Ok(None);
    }
    Ok(Some(export))
}

#[test]
fn a_rank_that_dies_while_others_send_to_it_is_named() {
    each_way("send", 7, |rank, node| {
        let Some(_inbox) = inbox_of_survivor(rank, node)? else {
            return Ok(());
        };
        let import = node.import(VICTIM, "inbox").start()?;
        all_ready(rank);
        let data = vec![1; 150_000];
        loop {
            import.send(&data, 0)?;
            import.send(&data[..100], 0)?;
        }
    });
}

#[test]
fn a_rank_that_dies_while_requests_to_it_are_under_way_is_named_by_each() {
    each_way("requests", 7, |rank, node| {
        let Some(_inbox) = inbox_of_survivor(rank, node)? else {
            return Ok(());
        };
        let import = node.import(VICTIM, "inbox").rights(Rights::ALL).start()?;
        all_ready(rank);
        loop {
            let mut requests = Vec::new();
            let mut outcome = Ok(());
            while requests.len() < 200 && outcome.is_ok() {
                let begun = match requests.len() % 2 {
                    0 => import.fetch_async(0, vec![0; 9000]),
                    _ => import.put_signal_async(vec![1; 9000], 8, 0, 1),
                };
                outcome = begun.map(|request| requests.push(request));
            }
            // Each ends, with the bytes or with the error.
            for request in requests {
                outcome = outcome.and(request.wait().map(drop));
            }
            outcome?;
        }
    });
}

#[test]
fn a_rank_that_dies_while_many_parts_move_to_and_from_it_is_named() {
    each_way("parts", 7, |rank, node| {
        let Some(_inbox) = inbox_of_survivor(rank, node)? else {
            return Ok(());
        };
        let import = node.import(VICTIM, "inbox").rights(Rights::ALL).start()?;
        all_ready(rank);
        let (parts, mut into) = (vec![vec![1; 3000]; 60], vec![0; 150_000]);
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let rows = Rows { count: 1000, bytes: 100, local_stride: 150, remote_stride: 200 };
        loop {
            import.send_vectored(&slices, 0)?;
            import.fetch_strided(0, &mut into, &rows)?;
            import.send_strided(&into, 0, &rows)?;
        }
    });
}

#[test]
fn a_rank_that_dies_while_others_fetch_from_it_is_named() {
    each_way("fetch", 7, |rank, node| {
        let Some(_inbox) = inbox_of_survivor(rank, node)? else {
            return Ok(());
        };
        let import = node.import(VICTIM, "inbox").rights(Rights::ALL).start()?;
        all_ready(rank);
        let mut data = vec![1; 150_000];
        loop {
            import.fetch(0, &mut data)?;
        }
    });
}

#[test]
fn a_rank_that_dies_with_a_lock_is_named() {
    let body = |rank: &Rank, node: &Node| {
        let shared = Shared::open(node, 1)?;
        if rank.number == VICTIM {
            let held = shared.lock(9)?;
            rank.note("locked", "");
            all_ready(rank);
            std::thread::sleep(Duration::from_secs(60));
            drop(held);
            return Ok(());
        }
        rank.read("locked");
        all_ready(rank);
        shared.lock(9).map(drop)
    };
    ["auto", "minipages", "hlrc"]
        .into_iter()
        .for_each(|coherence| each_way_with("lock", coherence, 7, &[GONE, " of rank 2 (process "], body));
}

#[test]
fn a_rank_that_dies_before_a_barrier_is_named() {
    let body = |rank: &Rank, node: &Node| {
        let shared = Shared::open(node, 1)?;
        shared.barrier()?;
        all_ready(rank);
        if rank.number == VICTIM {
            std::thread::sleep(Duration::from_secs(60));
        }
        shared.barrier()
    };
    ["auto", "minipages", "hlrc"]
        .into_iter()
        .for_each(|coherence| each_way_with("barrier", coherence, 7, &[GONE], body));
}

#[test]
fn a_rank_that_dies_in_the_midst_of_page_faults_is_named() {
    each_way("fault", 70, |rank, node| {
        let shared = Shared::open(node, 1)?;
        let slice = (rank.number == 0).then(|| shared.alloc::<u64>(8)).transpose()?;
        let slice = shared.broadcast_slice(0, slice)?;
        all_ready(rank);
        loop {
            for index in 0..slice.len() {
                slice.set(index, slice.get(index) + 1);
            }
        }
    });
}

#[test]
fn a_rank_that_is_gone_before_the_shared_memory_is_opened_is_named() {
    for transport in ["shm", "udp"] {
        let job = job(2).called(transport).option("--transport", transport);
        // Without news of the rank, what is opened waits for it so long.
        let job = settings(job).with("MAPWIRE_TIMEOUT", "5");
        let done = job.run(|rank| {
            let node = rank.node();
            if rank.number == 1 {
                return;
            }
            // Ends with an error as soon as the rank is known to be gone.
            let import = node.import(1, "none").start();
            assert!(import.is_err());
            survive(rank, Shared::open(&node, 1).map(drop));
        });
        let _ = done.code(7).says("survivor 0: rank 1 is gone");
    }
}

#[test]
fn an_access_that_a_dead_rank_would_have_to_serve_ends_the_rank_with_a_word() {
    for faults in ["userfaultfd", "sigsegv"] {
        let done = settings(job(2)).called(faults).option("--faults", faults).run(|rank| {
            let node = rank.node();
            let shared = Shared::open(&node, 1).unwrap();
            let slice = (rank.number == 1).then(|| shared.alloc::<u64>(8).unwrap());
            let slice = shared.broadcast_slice(1, slice).unwrap();
            slice.set(0, 7);
            shared.barrier().unwrap();
            if rank.number == 1 {
                slice.set(0, 8);
                rank.note("owned", "");
                std::process::exit(0);
            }
            rank.read("owned");
            std::thread::sleep(Duration::from_millis(100));
            println!("read {}", slice.get(0));
        });
        // EX_SOFTWARE, with the reason: no crash.
        done.code(70)
            .soon()
            .says("mapwire: rank 0: access to shared memory at 0x")
            .says("rank 1 is gone")
            .prints("read", 0);
    }
}

#[test]
fn a_rank_that_leaves_while_others_wait_for_its_export_or_signal_is_named() {
    let done = job(2).run(|rank| {
        let node = rank.node();
        if rank.number == 1 {
            rank.read("waiting");
            return;
        }
        rank.note("waiting", "");
        let outcome = node.import(1, "never").start();
        eprintln!("survivor: {}", crate::harness::refusal(outcome.map(drop)));
    });
    done.succeeds().soon().says("node 1 is gone").says("never");
}

#[test]
fn a_signal_that_nobody_is_left_to_store_is_not_waited_for() {
    let done = job(2).run(|rank| {
        let node = rank.node();
        if rank.number == 0 {
            let buffer = node.alloc(4096).unwrap();
            let export = node.export_buffer(&buffer).name("inbox").start().unwrap();
            export.wait_signal(0, 1).unwrap();
            eprintln!("survivor: {}", crate::harness::refusal(export.wait_signal(0, 2)));
        } else {
            let inbox = node.import(0, "inbox").start().unwrap();
            inbox.put_signal(&[], 0, 0, 1).unwrap();
        }
    });
    done.succeeds().soon().says("`inbox` will not come").says("1 Left");
}

#[test]
fn a_signal_is_not_waited_for_when_the_ranks_that_may_store_it_have_left_though_others_live() {
    let done = job(3).run(|rank| {
        let node = rank.node();
        match rank.number {
            0 => {
                let buffer = node.alloc(4096).unwrap();
                let only = mapwire::Importers::Nodes(vec![mapwire_wire::NodeId(1)]);
                let export = node.export_buffer(&buffer).name("inbox").importers(only);
                let export = export.start().unwrap();
                // What was stored before the end is still found.
                export.wait_signal(0, 1).unwrap();
                eprintln!("survivor: {}", crate::harness::refusal(export.wait_signal(0, 2)));
                rank.note("told", "");
            }
            1 => {
                let inbox = node.import(0, "inbox").start().unwrap();
                inbox.put_signal(&[], 0, 0, 1).unwrap();
                // Leaves without giving its import up.
                std::process::exit(0);
            }
            _ => _ = rank.read("told"),
        }
    });
    done.succeeds().soon().says("`inbox` will not come").says("1 Left");
}

#[test]
fn a_signal_that_a_rank_may_yet_store_is_waited_for_though_its_importer_has_left() {
    let done = job(3).run(|rank| {
        let node = rank.node();
        match rank.number {
            0 => {
                let buffer = node.alloc(4096).unwrap();
                let export = node.export_buffer(&buffer).name("inbox").start().unwrap();
                assert_eq!(export.wait_signal(0, 1).unwrap(), 1);
                rank.note("first", "");
                assert_eq!(export.wait_signal(0, 2).unwrap(), 2);
            }
            1 => {
                let inbox = node.import(0, "inbox").start().unwrap();
                inbox.put_signal(&[], 0, 0, 1).unwrap();
            }
            _ => {
                rank.read("first");
                std::thread::sleep(Duration::from_millis(600));
                let inbox = node.import(0, "inbox").start().unwrap();
                inbox.put_signal(&[], 0, 0, 2).unwrap();
            }
        }
    });
    done.succeeds().soon();
}

#[test]
fn a_handler_that_panics_ends_its_rank_and_the_job() {
    let done = job(2).run(|rank| {
        let node = rank.node();
        if rank.number == 0 {
            let buffer = node.alloc(4096).unwrap();
            let export = node.export_buffer(&buffer).name("inbox");
            let _export = export.on_notify(|_| panic!("the handler's own")).start().unwrap();
            // The service thread runs it.
            std::thread::sleep(Duration::from_secs(60));
        } else {
            node.import(0, "inbox").start().unwrap().send_notify(&[1], 0).unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
    });
    done.code(101).soon().says("the handler's own").says("rank 0 (process ");
}

#[test]
fn ctrl_c_in_the_midst_of_it_all_leaves_nothing() {
    for (label, signal, code) in [("INT", Signal::INT, 130), ("TERM", Signal::TERM, 143)] {
        let job = settings(job(3)).called(label).signalled("ready", signal);
        let done = job.run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            let word = (rank.number == 0).then(|| shared.alloc::<u64>(1).unwrap());
            let word = shared.broadcast_slice(0, word).unwrap();
            let buffer = node.alloc(100_000).unwrap();
            let _export = node.export_buffer(&buffer).ring_only().name("inbox").start().unwrap();
            let next = node.import((rank.number + 1) % rank.size, "inbox").start().unwrap();
            all_ready(rank);
            loop {
                next.send(&[1; 90_000], 0).unwrap();
                let held = shared.lock(0).unwrap();
                word.set(0, word.get(0) + 1);
                drop(held);
                shared.barrier().unwrap();
            }
        });
        done.code(code).soon();
    }
}
