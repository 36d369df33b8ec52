//! Ranks that reach each other through libfabric, as ranks of different hosts may.

use mapwire::Rights;
use mapwire_transport::ofi::providers;

use crate::datagrams::a_lock_comes_at_once_over;
use crate::harness::denials::outlive_sigterm;
use crate::harness::{eventually, is_rank, job};
use crate::sharing::on_both_over;

const BYTES: usize = 3 << 20;

/// Whether libfabric has a provider whose name begins so; says why not.
fn has(provider: &str) -> bool {
    match providers() {
        Ok(all) if all.iter().any(|one| one.name.starts_with(provider)) => return true,
        Ok(_) => mapwire_testing::skip!("libfabric has no provider {provider} here"),
        Err(error) => mapwire_testing::skip!("{error}"),
    }
    false
}

#[test]
fn messages_of_all_lengths_arrive_whole_and_in_order_over_libfabric() {
    for provider in ["tcp", "udp;ofi_rxd", "shm"] {
        if !has(provider) {
            continue;
        }
        job(3)
            .called(provider)
            .option("--transport", &format!("ofi:{provider}"))
            .run(|rank| {
                let node = rank.node();
                let (next, before) = ((rank.number + 1) % 3, (rank.number + 2) % 3);
                let buffer = node.alloc(BYTES + 64).unwrap();
                let export = node.export_buffer(&buffer).name("ring").start().unwrap();
                let import = node.import(next, "ring").rights(Rights::ALL);
                let import = import.start().unwrap();
                assert!(!import.is_direct());
                let lengths = [1, 8, 127, 129, 4096, 65_536, 65_537, 1 << 20, BYTES];
                for (turn, length) in lengths.into_iter().enumerate() {
                    let number = turn as u64 + 1;
                    let byte = |at: usize, of: usize| (at as u64 * 7 + number + of as u64) as u8;
                    let data: Vec<u8> = (0..length).map(|at| byte(at, rank.number)).collect();
                    (import.put_signal(&data, 0, BYTES as u64, number)).unwrap();
                    export.wait_signal(BYTES as u64, number).unwrap();
                    let mut got = vec![0; length];
                    export.read(0, &mut got).unwrap();
                    let wrong = (0..length).find(|&at| got[at] != byte(at, before));
                    assert_eq!(wrong, None, "of {length} bytes");
                    node.barrier().unwrap();
                    let mut back = vec![0; length];
                    import.fetch(0, &mut back).unwrap();
                    assert!(back == data, "{length} bytes fetched");
                    node.barrier().unwrap();
                }
                let before = import.fetch_add_u64(BYTES as u64 + 8, 5).unwrap();
                assert_eq!(before, 0);
                node.barrier().unwrap();
            })
            .succeeds();
    }
}

/// Bytes that libfabric has moved past the NICs in a job of two ranks that run `body`.
fn moved_by(test: &str, body: impl FnOnce(&crate::harness::Rank)) -> Option<u64> {
    let name = format!("mapwire-moved-{test}-{}.json", std::process::id());
    let path = std::env::temp_dir().join(name);
    let summary = format!("--summary={}", path.display());
    job(2).option(&summary, "--transport=ofi:tcp").run(body).succeeds();
    if is_rank() {
        return None;
    }
    let summary = std::fs::read_to_string(&path).expect("a summary");
    std::fs::remove_file(path).unwrap();
    let figures = summary.split("\"moved_bytes\":").skip(1);
    let figures = figures.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
        rest[..end].parse::<u64>().expect("a figure")
    });
    Some(figures.sum())
}

#[test]
fn long_transfers_over_libfabric_go_past_the_nic_and_keep_their_order_with_packets() {
    if !has("tcp") {
        return;
    }
    const LONG: usize = 300_000;
    const ROUNDS: u64 = 40;
    let moved = moved_by("transfers", |rank| {
        let node = rank.node();
        let buffer = node.alloc(LONG + 64).unwrap();
        let export = node.export_buffer(&buffer).name("ring").start().unwrap();
        let import = node.import(1 - rank.number, "ring").rights(Rights::ALL);
        let import = import.start().unwrap();
        node.barrier().unwrap();
        let flag = LONG as u64;
        for round in 1..=ROUNDS {
            let byte = round as u8;
            if rank.number == 0 {
                // Each is partly stored over by the next.
                import.send(&[byte; 200], 1000).unwrap();
                import.send(&[byte + 1; 5000], 4000).unwrap();
                import.send(&[byte + 2; LONG], 0).unwrap();
                import.send(&[byte + 3; 8], 100_001).unwrap();
                import.put_signal(&[byte + 4; 100_000], 7, flag, round).unwrap();
                import.send(&[byte + 5; 3], 8).unwrap();
                let mut back = vec![0; LONG];
                import.fetch(0, &mut back).unwrap();
                assert_eq!((back[0], back[6], back[7], back[8]), (byte + 2, byte + 2, byte + 4, byte + 5));
                assert_eq!(
                    (back[11], back[100_001], back[100_006], back[100_007]),
                    (byte + 4, byte + 4, byte + 4, byte + 3)
                );
                assert!(back[100_009..].iter().all(|&is| is == byte + 2));
                import.put_signal(&[], 0, flag + 8, round).unwrap();
            } else {
                export.wait_signal(flag, round).unwrap();
                let mut got = vec![0; LONG];
                export.read(0, &mut got).unwrap();
                assert!(got[11..100_007].iter().all(|&is| is == byte + 4));
                assert!(got[100_009..].iter().all(|&is| is == byte + 2));
                export.wait_signal(flag + 8, round).unwrap();
            }
            node.barrier().unwrap();
        }
    });
    let all = ROUNDS * (2 * LONG as u64 + 100_000);
    assert!(moved.is_none_or(|moved| moved >= all), "{moved:?} of {all}");
}

#[test]
fn exports_revoked_under_long_stores_over_libfabric_take_nothing_more_and_the_job_goes_on() {
    if !has("tcp") {
        return;
    }
    const LONG: usize = 1 << 20;
    const ROUNDS: usize = 80;
    let moved = moved_by("exports", |rank| {
        let node = rank.node();
        let flags = node.alloc(64).unwrap();
        let told = node.export_buffer(&flags).name("told").start().unwrap();
        let tell = node.import(1 - rank.number, "told").start().unwrap();
        for round in 1..=ROUNDS as u64 {
            let name = format!("buffer {round}");
            if rank.number == 0 {
                let import = node.import(1, &name).start().unwrap();
                let data = vec![round as u8; LONG];
                let sent = (1..).find_map(|count| {
                    let outcome = import.send(&data, 0).and_then(|()| import.flush());
                    if count == 3 {
                        tell.put_signal(&[], 0, 0, round).unwrap();
                    }
                    outcome.err()
                });
                let error = sent.unwrap();
                assert!(error.to_string().contains("revoked"), "{error}");
                told.wait_signal(8, round).unwrap();
            } else {
                let buffer = node.alloc(LONG).unwrap();
                let export = node.export_buffer(&buffer).name(&name).start().unwrap();
                told.wait_signal(0, round).unwrap();
                export.revoke().unwrap();
                let mut now = vec![0; LONG];
                buffer.read(0, &mut now).unwrap();
                assert_eq!(now[LONG - 1], round as u8);
                buffer.write(0, &vec![0; LONG]).unwrap();
                tell.put_signal(&[], 0, 8, round).unwrap();
                buffer.read(0, &mut now).unwrap();
                assert!(now.iter().all(|&is| is == 0), "a store came after the revocation");
            }
        }
        node.barrier().unwrap();
    });
    assert!(moved.is_none_or(|moved| moved >= (ROUNDS * LONG) as u64), "{moved:?}");
}

#[test]
fn a_fetch_that_a_revocation_crosses_over_libfabric_gives_the_bytes_or_an_error() {
    if !has("tcp") {
        return;
    }
    const LONG: usize = 1 << 20;
    let moved = moved_by("fetch", |rank| {
        let node = rank.node();
        let flags = node.alloc(64).unwrap();
        let told = node.export_buffer(&flags).name("told").start().unwrap();
        let tell = node.import(1 - rank.number, "told").start().unwrap();
        for round in 1..=40 {
            let name = format!("buffer {round}");
            if rank.number == 0 {
                let import = node.import(1, &name).rights(Rights::ALL);
                let import = import.start().unwrap();
                let mut data = vec![0; LONG];
                for count in 1.. {
                    data.fill(9);
                    if let Err(error) = import.fetch(0, &mut data) {
                        assert!(error.to_string().contains("revoked"), "{error}");
                        break;
                    }
                    assert!(data.iter().all(|&is| is == 7), "other bytes than the export's");
                    if count == 3 {
                        tell.put_signal(&[], 0, 0, round).unwrap();
                    }
                }
                told.wait_signal(8, round).unwrap();
            } else {
                let buffer = node.alloc(LONG).unwrap();
                buffer.write(0, &vec![7; LONG]).unwrap();
                let export = node.export_buffer(&buffer).name(&name).start().unwrap();
                told.wait_signal(0, round).unwrap();
                export.revoke().unwrap();
                buffer.write(0, &vec![1; LONG]).unwrap();
                tell.put_signal(&[], 0, 8, round).unwrap();
            }
        }
        node.barrier().unwrap();
    });
    assert!(moved.is_none_or(|moved| moved > 0));
}

#[test]
fn many_revocations_under_one_long_store_over_libfabric_end_no_connection() {
    if !has("tcp") {
        return;
    }
    const LONG: usize = 128 << 20;
    const SMALL: usize = 300;
    let moved = moved_by("revocations", |rank| {
        let node = rank.node();
        let flags = node.alloc(64).unwrap();
        let told = node.export_buffer(&flags).name("told").start().unwrap();
        let tell = node.import(1 - rank.number, "told").start().unwrap();
        let name = |number| format!("small {number}");
        if rank.number == 0 {
            let long = node.import(1, "long").rights(Rights::ALL).start().unwrap();
            let small = (0..SMALL).map(|number| node.import(1, &name(number)).start().unwrap());
            let _small: Vec<_> = small.collect();
            let data = vec![5; LONG];
            tell.put_signal(&[], 0, 0, 1).unwrap();
            // One is under way as the export is revoked.
            while long.send(&data, 0).is_ok() {}
            tell.put_signal(&[], 0, 8, 1).unwrap();
            tell.flush().unwrap();
        } else {
            let export = |name: String, bytes| {
                let buffer = node.alloc(bytes).unwrap();
                node.export_buffer(&buffer).name(name).start().unwrap()
            };
            let long = export("long".into(), LONG);
            let small: Vec<_> = (0..SMALL).map(|number| export(name(number), 4096)).collect();
            told.wait_signal(0, 1).unwrap();
            eventually("the long store has begun", || {
                let mut first = [0];
                long.read(0, &mut first).unwrap();
                first == [5]
            });
            long.revoke().unwrap();
            for export in small {
                export.revoke().unwrap();
            }
            told.wait_signal(8, 1).unwrap();
        }
        node.barrier().unwrap();
    });
    assert!(moved.is_none_or(|moved| moved > 0));
}

#[test]
fn a_rank_that_leaves_under_a_long_store_over_libfabric_fails_the_store_and_not_the_sender() {
    if !has("tcp") {
        return;
    }
    const LONG: usize = 32 << 20;
    let done = job(2).option("--transport", "ofi:tcp").run(|rank| {
        let node = rank.node();
        let buffer = node.alloc(LONG).unwrap();
        let export = node.export_buffer(&buffer).name("here").start().unwrap();
        let import = node.import(1 - rank.number, "here").start().unwrap();
        import.put_signal(&[], 0, 0, 1).unwrap();
        export.wait_signal(0, 1).unwrap();
        if rank.number == 1 {
            std::thread::sleep(std::time::Duration::from_millis(30));
            std::process::exit(0);
        }
        let data = vec![1; LONG];
        let error = (0..1000).find_map(|_| import.send(&data, 0).err());
        eprintln!("survivor: {}", error.expect("the other rank is gone"));
    });
    done.says("survivor: ").says("rank 1").soon();
}

#[test]
fn long_stores_of_one_thread_over_libfabric_do_not_wait_for_others_that_sleep() {
    if !has("tcp") {
        return;
    }
    let done = job(2).option("--transport", "ofi:tcp").run(|rank| {
        const LONG: usize = 256 << 10;
        let node = rank.node();
        let buffer = node.alloc(LONG + 64).unwrap();
        let export = node.export_buffer(&buffer).name("here").start().unwrap();
        let import = node.import(1 - rank.number, "here").start().unwrap();
        node.barrier().unwrap();
        let flag = LONG as u64;
        if rank.number == 0 {
            std::thread::scope(|scope| {
                scope.spawn(|| export.wait_signal(flag, 1).unwrap());
                let data = vec![1; LONG];
                let mut took: Vec<_> = (0..200)
                    .map(|_| {
                        let start = std::time::Instant::now();
                        import.send(&data, 0).unwrap();
                        start.elapsed()
                    })
                    .collect();
                took.sort();
                // A thread that nobody wakes sleeps for 50 ms; load beside makes some late.
                assert!(took[50].as_millis() < 40, "{took:?}");
                import.put_signal(&[], 0, flag, 1).unwrap();
            });
        } else {
            export.wait_signal(flag, 1).unwrap();
            import.put_signal(&[], 0, flag, 1).unwrap();
        }
        node.barrier().unwrap();
    });
    done.succeeds();
}

#[test]
fn a_rank_that_dies_over_libfabric_is_named_to_those_that_wait_for_it() {
    if !has("tcp") {
        return;
    }
    let done = job(2).option("--transport", "ofi:tcp").run(|rank| {
        let node = rank.node();
        let buffer = node.alloc(4096).unwrap();
        let export = node.export_buffer(&buffer).name("here").start().unwrap();
        let import = node.import(1 - rank.number, "here").start().unwrap();
        import.send(&[1], 0).unwrap();
        outlive_sigterm();
        rank.meet("sent");
        if rank.number == 1 {
            std::process::abort();
        }
        let error = export.wait_signal(8, 1).unwrap_err();
        eprintln!("survivor: {error}");
        std::process::exit(7);
    });
    done.code(128 + 6).says("survivor: ").says("rank 1").soon();
}

#[test]
fn shared_memory_is_shared_over_libfabric_and_its_faults_leave_the_library_to_another_thread() {
    if !has("tcp") {
        return;
    }
    on_both_over("ofi:tcp", 3, |rank, shared| {
        let words = match rank.number {
            0 => Some(shared.alloc::<u64>(3000).unwrap()),
            _ => None,
        };
        let words = shared.broadcast_slice(0, words).unwrap();
        for turn in 0..20 {
            if turn % 3 == rank.number {
                for at in 0..3000 {
                    assert_eq!(words.get(at), (at * turn) as u64);
                    words.set(at, (at * (turn + 1)) as u64);
                }
            }
            shared.barrier().unwrap();
        }
    });
}

#[test]
fn ranks_that_sleep_are_woken_by_what_comes_over_libfabric_whatever_they_wait_for() {
    if !has("tcp") {
        return;
    }
    a_lock_comes_at_once_over("ofi:tcp");
}

#[test]
fn shared_memory_is_refused_beside_a_provider_that_catches_page_faults_itself() {
    if !has("shm") {
        return;
    }
    job(2)
        .option("--transport", "ofi:shm")
        .run(|rank| {
            let node = rank.node();
            let error = mapwire::Shared::open(&node, 1).unwrap_err().to_string();
            assert!(error.contains("`shm`") && error.contains("ofi:tcp"), "{error}");
            node.barrier().unwrap();
        })
        .succeeds();
}

#[test]
fn ranks_that_are_killed_leave_nothing_of_libfabrics_shared_memory() {
    if !has("shm") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("mapwire-killed-{}", std::process::id()));
    if !is_rank() {
        std::fs::create_dir(&folder).unwrap();
    }
    let done = job(2).option("--transport", "ofi:shm").with("KILLED", folder.display().to_string()).run(|rank| {
        let node = rank.node();
        node.barrier().unwrap();
        let number = std::process::id();
        let file = format!("/dev/shm/{number}:0:0");
        assert!(std::fs::exists(file).unwrap(), "no file of this process");
        let folder = std::path::PathBuf::from(std::env::var_os("KILLED").unwrap());
        std::fs::write(folder.join(number.to_string()), "").unwrap();
        node.barrier().unwrap();
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
    });
    if is_rank() {
        return;
    }
    done.code(128 + 9);
    let killed: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(killed.len(), 2);
    for rank in killed {
        let file = format!("/dev/shm/{}:0:0", rank.file_name().display());
        assert!(!std::fs::exists(&file).unwrap(), "{file} is left");
    }
}

#[test]
fn a_provider_that_there_is_not_is_named_with_those_that_there_are() {
    if !has("tcp") {
        return;
    }
    let done = job(2).option("--transport", "ofi:nonsense").run(|rank| {
        let error = mapwire::Node::join().unwrap_err();
        eprintln!("rank {}: {error}", rank.number);
        std::process::exit(3);
    });
    done.code(3).says("`nonsense`").says("there are: ").says("tcp");
}
