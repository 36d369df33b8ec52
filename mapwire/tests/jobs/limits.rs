//! What the operating system or a setting denies: an error that names it and how to mend it, and nothing left half-made.

use std::time::Duration;

use mapwire::{FaultBackend, Node, NodeConfig, Shared};
use rustix::process::Resource;

use crate::harness::denials::{lower_limit, map_at, outlive_sigterm, refuse_call, refuse_userfaultfd, use_up_ranges};
use crate::harness::{job, pattern, refused};

const PINNERS: [&str; 2] = ["mlock", "io_uring"];

#[test]
fn shared_memory_beyond_the_address_space_is_refused_and_names_the_limit() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            lower_limit(Resource::As, 2 << 30);
            refused(Shared::open(&node, 1).map(drop), &["RLIMIT_AS", "2147483648", "ulimit -v", "MAPWIRE_SHARED"]);
            refused(node.alloc(3 << 30).map(drop), &["RLIMIT_AS", "ulimit -v"]);
            // What there is room for can still be allocated.
            let buffer = node.alloc(1 << 20).unwrap();
            buffer.write(0, &[1]).unwrap();
        })
        .succeeds();
    // More than any address space holds, by the settings.
    job(1)
        .called("huge")
        .option("--shared", "60T")
        .run(|rank| {
            let node = rank.node();
            refused(Shared::open(&node, 1).map(drop), &["MAPWIRE_SHARED", "MAPWIRE_VIEWS"]);
        })
        .succeeds();
}

#[test]
fn one_rank_without_address_space_ends_the_job_and_says_why() {
    job(3)
        .run(|rank| {
            outlive_sigterm();
            let node = rank.node();
            if rank.number == 1 {
                lower_limit(Resource::As, 2 << 30);
            }
            if let Err(error) = Shared::open(&node, 1) {
                eprintln!("error: {error}");
                std::process::exit(4);
            }
        })
        .code(4)
        .soon()
        .says("RLIMIT_AS")
        .says("rank 1 (process ");
}

#[test]
fn more_mapped_ranges_than_the_kernel_allows_are_refused_and_name_the_setting() {
    let parts = ["mapped ranges", "sysctl vm.max_map_count="];
    job(1)
        .option("--views", "512")
        .run(|rank| {
            let node = rank.node();
            use_up_ranges(300);
            refused(Shared::open(&node, 1).map(drop), &parts);
        })
        .succeeds();
}

#[test]
fn pages_of_too_many_protections_end_the_rank_and_name_the_setting() {
    job(1)
        .option("--faults", "sigsegv")
        .option("--shared", "1G")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            use_up_ranges(400);
            // Each is a page of its own, and a range of its own: every second one is open.
            let error =
                (0..4000).filter_map(|_| shared.alloc_bytes(4096).and_then(|_| shared.alloc_bytes(16)).err()).next();
            let text = error.expect("an error").to_string();
            assert!(text.contains("mapped ranges") && text.contains("vm.max_map_count"), "{text}");
            assert!(text.contains("MAPWIRE_FAULTS=userfaultfd"), "{text}");
            crate::harness::denials::end_at_once();
        })
        .succeeds();
}

#[test]
fn more_locked_memory_than_the_limit_is_refused_and_names_it() {
    for pinner in PINNERS {
        job(2)
            .called(pinner)
            .unprivileged()
            .option("--pinner", pinner)
            .run(|rank| {
                if rank.number == 0 {
                    lower_limit(Resource::Memlock, 256 << 10);
                }
                let node = rank.node();
                if rank.number == 1 {
                    let import = node.import(0, "small").start().unwrap();
                    import.put_signal(&pattern(1, 9000), 8, 0, 1).unwrap();
                    rank.meet("end");
                    return;
                }
                let buffer = node.alloc(1 << 20).unwrap();
                let outcome = node.export_buffer(&buffer).ring_only().name("large").start();
                refused(outcome.map(drop), &["RLIMIT_MEMLOCK", "262144", "ulimit -l"]);
                let heap = vec![0_u8; 1 << 20];
                // SAFETY: nothing is exported.
                let outcome = unsafe { node.export_range(heap.as_ptr().cast_mut(), heap.len()) };
                refused(outcome.name("heap").ring_only().start().map(drop), &["RLIMIT_MEMLOCK", "262144"]);
                // SAFETY: nobody stores to it before it is dropped.
                let mapped = unsafe { node.export_range(heap.as_ptr().cast_mut(), heap.len()) };
                drop(mapped.name("heap").start().unwrap());
                // What fits is exported and works, and the direct path locks nothing.
                let direct = node.export_buffer(&buffer).name("direct").start().unwrap();
                let small = node.alloc(64 << 10).unwrap();
                let small = node.export_buffer(&small).ring_only().name("small").start().unwrap();
                small.wait_signal(0, 1).unwrap();
                let mut found = vec![0; 9000];
                small.read(8, &mut found).unwrap();
                assert!(found == pattern(1, 9000));
                rank.meet("end");
                drop(direct);
            })
            .succeeds();
    }
}

#[test]
fn without_userfaultfd_faults_are_caught_by_sigsegv_unless_told_otherwise() {
    job(2)
        .run(|rank| {
            refuse_userfaultfd();
            let node = rank.node();
            let shared = rank.shared(&node);
            assert_eq!(shared.faults(), Some(FaultBackend::Sigsegv));
            let slice = (rank.number == 0).then(|| shared.alloc::<u64>(10).unwrap());
            let slice = shared.broadcast_slice(0, slice).unwrap();
            slice.set(rank.number, 7);
            shared.barrier().unwrap();
            assert_eq!(slice.get(0) + slice.get(1), 14);
            shared.close().unwrap();
        })
        .succeeds();
    job(1)
        .called("forced")
        .option("--faults", "userfaultfd")
        .run(|rank| {
            refuse_userfaultfd();
            let node = rank.node();
            let parts = ["userfaultfd is refused", "/dev/userfaultfd", "MAPWIRE_FAULTS=sigsegv"];
            refused(Shared::open(&node, 1).map(drop), &parts);
        })
        .succeeds();
}

#[test]
fn without_io_uring_its_pinner_is_refused_and_the_other_named() {
    for (label, errno) in [("EPERM", libc::EPERM), ("ENOSYS", libc::ENOSYS)] {
        job(1)
            .called(label)
            .option("--pinner", "io_uring")
            .run(|_| {
                refuse_call(libc::SYS_io_uring_setup, None, errno);
                let parts = ["io_uring is refused", "kernel.io_uring_disabled", "MAPWIRE_PINNER=mlock"];
                refused(Node::join().map(drop), &parts);
            })
            .succeeds();
    }
}

#[test]
fn a_shared_base_that_is_taken_is_refused_and_names_who_has_it() {
    const BASE: usize = 0x3000_0000_0000;
    job(1)
        .run(|rank| {
            // In the midst of where the views would lie.
            map_at(BASE + (5 << 30), 4096);
            let node = rank.node();
            let parts = ["is taken by anonymous memory", "0x300140000000", "MAPWIRE_SHARED_BASE"];
            refused(Shared::open(&node, 1).map(drop), &parts);
        })
        .succeeds();
    job(2)
        .called("elsewhere")
        .with("MAPWIRE_SHARED_BASE", "0x2000_0000_0000")
        .run(|rank| {
            map_at(BASE, 4096);
            let node = rank.node();
            let shared = rank.shared(&node);
            let slice = shared.alloc::<u64>(1).unwrap();
            assert!(slice.address() >= 0x2000_0000_0000 && slice.address() < BASE as u64);
            // Open already: not a clash with itself.
            refused(Shared::open(&node, 1).map(drop), &["open already"]);
            shared.close().unwrap();
        })
        .succeeds();
    for (label, base, part) in [
        ("odd", "0x300000001000", "2 MiB"),
        ("zero", "0", "2 MiB"),
        ("beyond", "0x7fffffe00000", "MAPWIRE_SHARED_BASE"),
    ] {
        job(1)
            .called(label)
            .with("MAPWIRE_SHARED_BASE", base)
            .run(|rank| {
                let node = rank.node();
                refused(Shared::open(&node, 1).map(drop), &[part]);
            })
            .succeeds();
    }
}

#[test]
fn ranks_with_different_shared_memories_are_told_so() {
    for (label, change) in [
        ("MAPWIRE_SHARED", (|config| config.shared.bytes = 32 << 20) as fn(&mut NodeConfig)),
        ("MAPWIRE_VIEWS", |config| config.shared.views = 16),
        ("MAPWIRE_SHARED_BASE", |config| config.shared.base = Some(0x2000_0000_0000)),
    ] {
        let done = job(3).called(label).option("--shared", "64M").run(|rank| {
            outlive_sigterm();
            let mut config = NodeConfig::from_env().unwrap();
            if rank.number == 1 {
                change(&mut config);
            }
            let node = Node::with(config).unwrap();
            match Shared::open(&node, 1) {
                Ok(_) => std::process::exit(0),
                Err(error) => {
                    eprintln!("error: {error}");
                    std::process::exit(4);
                }
            }
        });
        done.code(4).soon().says(label).says("give all ranks the same");
    }
}

#[test]
fn seventy_ranks_on_few_processors_share_memory_and_pass_barriers() {
    job(70)
        .option("--shared", "64M")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            let sum = (rank.number == 0).then(|| shared.alloc::<u64>(1).unwrap());
            let sum = shared.broadcast_slice(0, sum).unwrap();
            for _ in 0..3 {
                let held = shared.lock(0).unwrap();
                sum.set(0, sum.get(0) + rank.number as u64);
                drop(held);
                shared.barrier().unwrap();
            }
            assert_eq!(sum.get(0), 3 * 69 * 70 / 2);
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn too_little_nic_memory_is_refused_and_says_what_needs_it() {
    job(1)
        .with("MAPWIRE_NIC_MEMORY", "4K")
        .run(|_| refused(Node::join().map(drop), &["NIC memory", "raise the budget"]))
        .succeeds();
    job(1)
        .called("exports")
        .with("MAPWIRE_NIC_MEMORY", "256K")
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(100).unwrap();
            let mut exports = Vec::new();
            let error = loop {
                let name = format!("e{}", exports.len());
                match node.export_buffer(&buffer).ring_only().name(name).start() {
                    Ok(export) => exports.push(export),
                    Err(error) => break error.to_string(),
                }
                assert!(exports.len() < 100_000);
            };
            assert!(error.contains("NIC memory") || error.contains("table is full"), "{error}");
            // When one goes there is room for another.
            exports.pop();
            exports.push(node.export_buffer(&buffer).ring_only().name("again").start().unwrap());
        })
        .succeeds();
}

#[test]
fn a_setting_that_is_none_is_refused_by_the_name_of_its_variable() {
    for (name, value) in [("MAPWIRE_DRIVER", "daemon"), ("MAPWIRE_SHARED_BASE", "here"), ("MAPWIRE_NIC_MEMORY", "much")]
    {
        job(1).called(name).with(name, value).run(|_| refused(Node::join().map(drop), &[name, value])).succeeds();
    }
}

#[test]
fn a_rank_that_never_comes_is_named_when_the_time_is_over() {
    let done = job(2).option("--timeout", "0.5").run(|rank| {
        if rank.number == 1 {
            // Never joins.
            rank.read("told");
            return;
        }
        let node = rank.node();
        let error = crate::harness::refusal(Shared::open(&node, 1).map(drop));
        eprintln!("error: {error}");
        rank.note("told", "");
        std::thread::sleep(Duration::from_millis(10));
    });
    done.succeeds().soon().says("rank 1 has not opened the shared memory");
}

#[test]
fn a_rank_that_is_stopped_while_it_is_asked_over_and_over_stays_a_peer() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                rank.note("process", &std::process::id().to_string());
                rank.read("asked");
                let buffer = node.alloc(4096).unwrap();
                let _export = node.export_buffer(&buffer).name("late").start().unwrap();
                rank.meet("end");
            } else {
                let signal = |which| {
                    let pid = rank.read("process").parse().unwrap();
                    let pid = rustix::process::Pid::from_raw(pid).unwrap();
                    rustix::process::kill_process(pid, which).unwrap();
                };
                signal(rustix::process::Signal::STOP);
                let ask = |timeout| node.import(0, "late").timeout(timeout).start();
                for _ in 0..10_000 {
                    let error = ask(Duration::from_nanos(1)).unwrap_err();
                    assert_eq!(error.kind(), mapwire::ErrorKind::Timeout, "{error}");
                }
                signal(rustix::process::Signal::CONT);
                rank.note("asked", "");
                let import = ask(Duration::from_secs(30)).unwrap();
                import.send(&[1], 0).unwrap();
                import.flush().unwrap();
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn forty_ranks_share_memory_where_the_launcher_has_few_descriptors() {
    // 64 and three a rank are what it needs: 16 are left.
    job(40)
        .descriptors(200)
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            let word = (rank.number == 0).then(|| shared.alloc::<u64>(1).unwrap());
            let word = shared.broadcast_slice(0, word).unwrap();
            for _ in 0..3 {
                let held = shared.lock(0).unwrap();
                word.set(0, word.get(0) + 1);
                drop(held);
            }
            shared.barrier().unwrap();
            assert_eq!(word.get(0), 3 * 40);
            shared.close().unwrap();
        })
        .succeeds();
}
