//! Ranks that reach each other through libfabric, as ranks of different hosts may.

use mapwire::Rights;
use mapwire_transport::ofi::providers;

use crate::datagrams::a_lock_comes_at_once_over;
use crate::harness::denials::outlive_sigterm;
use crate::harness::job;
use crate::sharing::on_both_over;

const BYTES: usize = 3 << 20;

/// Whether libfabric has a provider whose name begins so; says why not.
fn has(provider: &str) -> bool {
    match providers() {
        Ok(all) if all.iter().any(|one| one.name.starts_with(provider)) => return true,
        Ok(_) => println!("skipped: libfabric has no provider {provider} here"),
        Err(error) => println!("skipped: {error}"),
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
            assert!(
                error.contains("`shm`") && error.contains("ofi:tcp"),
                "{error}"
            );
            node.barrier().unwrap();
        })
        .succeeds();
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
    done.code(3)
        .says("`nonsense`")
        .says("there are: ")
        .says("tcp");
}
