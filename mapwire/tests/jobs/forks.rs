//! Forked children of a rank. What every call of the C library says there is in `bindings/c/tests/c/forks.c`; here is what only Rust has.

use std::time::Duration;

use mapwire::rpc::{Rpc, RpcConfig};
use mapwire::services::endpoint;
use mapwire::{Error, ErrorKind, Node, Rights};

use crate::harness::{job, refused};
use crate::services::counter::{COUNTER, Counter};

const BYTES: usize = 1 << 16;
const LONG: Option<Duration> = Some(Duration::from_secs(60));
const SAYS: &str = "a child by fork()";
const PROGRAM: u32 = 0x2000_0001;
const DOUBLE: u32 = 1;

/// What `body` ends with in a child.
pub(crate) fn in_child(body: impl FnOnce()) -> i32 {
    // SAFETY: the child does what children of programs do, with no other thread; the C library's memory is in order there.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: it has no preconditions. A child that hangs ends by it.
        unsafe { libc::alarm(60) };
        body();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

#[track_caller]
fn is_forked<T>(outcome: Result<T, Error>) {
    match outcome {
        Ok(_) => panic!("this should have been refused"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Forked, "{error}"),
    }
}

/// Calls that give no error are as if nothing had ever been there.
fn says_nothing_of_its_parent(node: &Node) {
    is_forked(node.check_process());
    assert!(!node.poll());
    assert_eq!(node.wait_until(None, || None::<()>), None);
    assert_eq!(node.nic_counters(), Default::default());
    assert_eq!(node.translation_counters(), Default::default());
    assert!(node.links().is_empty());
    assert!(node.rejections().is_none());
    assert_eq!(node.refused_stores(), 0);
    drop(node.polling());
}

/// Datagrams that this rank has refused.
fn rejected(node: &Node) -> u64 {
    node.rejections().map_or(0, |counted| counted.rejections())
}

/// Ranks that call each other, export, import and send; between forks of rank 0 all of it goes on.
fn go_on_beside_children(label: &str, transport: &[(&str, &str)]) {
    let mut job = job(2).called(label);
    for (name, value) in transport {
        job = job.option(name, value);
    }
    job.run(|rank| {
        let node = rank.node();
        let buffer = node.alloc(BYTES).unwrap();
        let export = node.export_buffer(&buffer).name("box").start().unwrap();
        let peer = 1 - rank.number;
        let import = node.import(peer, "box").rights(Rights::ALL).start().unwrap();
        let rpc = Rpc::open(&node, RpcConfig::default()).unwrap();
        let server = rpc.serve(PROGRAM, 1).unwrap();
        node.register_service(COUNTER, Counter::default()).unwrap();
        rank.meet("registered");
        let caller = rpc.caller(peer, PROGRAM, 1).unwrap();
        let mut step = 0;
        let mut exchange = || {
            for _ in 0..10 {
                step += 1;
                import.put_signal(&[step as u8; 100], 64, 0, step).unwrap();
                let came = export.wait_signal_for(0, step, LONG).unwrap();
                // The other rank may be one step ahead.
                assert!(came.is_some_and(|seen| seen >= step), "{came:?} of {step}");
            }
            let answer = || {
                let mut request = server.next(LONG).unwrap().expect("a call");
                let number: u32 = request.arguments().unwrap();
                request.reply(&(2 * number)).unwrap();
            };
            let ask = || assert_eq!(caller.call::<u32>(DOUBLE, &21_u32).unwrap(), 42);
            if rank.number == 0 {
                ask();
                answer();
            } else {
                answer();
                ask();
            }
        };
        exchange();
        rank.meet("met");
        let rejected_before = rejected(&node);
        // All of it stands while children are forked, and a fetch is under way.
        for kind in 0..3 {
            if rank.number == 0 {
                let under_way = import.fetch_async(1024, vec![0; 40_000]).unwrap();
                let status = in_child(|| match kind {
                    0 => {
                        is_forked(import.put_signal(&[0; 8], 64, 0, u64::MAX));
                        is_forked(import.fetch(64, &mut [0; 8]));
                        is_forked(import.fetch_add_u64(0, 1 << 40));
                        is_forked(import.send_from(&buffer, 0..8, 64));
                        is_forked(buffer.write(0, &[1; 8]));
                        is_forked(buffer.read(0, &mut [0; 8]));
                        is_forked(buffer.load_u64(0));
                        is_forked(buffer.store_u64(0, 1));
                        is_forked(node.register_service(COUNTER, Counter::default()));
                        is_forked(node.call_service(COUNTER, |counter: &mut Counter| counter.add(endpoint(1), 1)));
                        let nothing = |_: &mut Counter| None::<()>;
                        is_forked(node.wait_for_service(COUNTER, None, nothing));
                        assert!(node.deregister_service(COUNTER).is_none());
                        refused(caller.call::<u32>(DOUBLE, &1_u32), &[SAYS]);
                        refused(caller.begin(DOUBLE, &1_u32), &[SAYS]);
                        refused(caller.one_way(DOUBLE, &1_u32), &[SAYS]);
                        refused(server.next(None), &[SAYS]);
                        refused(server.register(PROGRAM, 2), &[SAYS]);
                        refused(rpc.caller(peer, PROGRAM, 1), &[SAYS]);
                        refused(rpc.counters(), &[SAYS]);
                        refused(rpc.disconnect(peer), &[SAYS]);
                        assert!(!caller.is_connected());
                        assert!(under_way.is_done());
                        is_forked(under_way.wait());
                        says_nothing_of_its_parent(&node);
                    }
                    1 => {
                        // As a function that returns does, with copies of what the parent goes on to use.
                        drop(under_way);
                        // SAFETY: the child ends without using or dropping them again.
                        unsafe {
                            std::ptr::drop_in_place(std::ptr::from_ref(&caller).cast_mut());
                            std::ptr::drop_in_place(std::ptr::from_ref(&server).cast_mut());
                            std::ptr::drop_in_place(std::ptr::from_ref(&rpc).cast_mut());
                            std::ptr::drop_in_place(std::ptr::from_ref(&import).cast_mut());
                            std::ptr::drop_in_place(std::ptr::from_ref(&export).cast_mut());
                            std::ptr::drop_in_place(std::ptr::from_ref(&buffer).cast_mut());
                            std::ptr::drop_in_place(std::ptr::from_ref(&node).cast_mut());
                        }
                    }
                    // SAFETY: runs handlers of atexit and destructors, as every program that ends.
                    _ => unsafe { libc::exit(0) },
                });
                assert_eq!(status, 0, "of child {kind}");
            }
            exchange();
        }
        // Nothing has come that was sealed under a number which was used before.
        assert_eq!(rejected(&node), rejected_before);
        rank.meet("end");
    })
    .succeeds();
}

#[test]
fn a_rank_goes_on_unharmed_beside_forked_children_that_call_drop_and_exit() {
    go_on_beside_children("near", &[]);
    go_on_beside_children("ring", &[("--path", "ring")]);
}

#[test]
fn it_does_so_over_sealed_datagrams() {
    go_on_beside_children("udp", &[("--transport", "udp")]);
}

#[test]
fn it_does_so_over_libfabric() {
    go_on_beside_children("ofi", &[("--transport", "ofi:tcp")]);
}

#[test]
fn a_slice_of_shared_memory_is_an_error_in_a_forked_child_and_its_values_end_it() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            let slice = (rank.number == 0).then(|| shared.alloc::<u64>(4).unwrap());
            let slice = shared.broadcast_slice(0, slice).unwrap();
            if rank.number == 0 {
                slice.set(1, 42);
                let status = in_child(|| {
                    is_forked(slice.read_into(0, &mut [0; 4]));
                    is_forked(slice.write_from(0, &[0; 4]));
                    is_forked(shared.alloc::<u64>(1));
                    is_forked(shared.lock(3));
                });
                assert_eq!(status, 0);
                let status = in_child(|| slice.set(1, 7));
                assert_eq!(status & 0x7f, libc::SIGSEGV);
            }
            shared.barrier().unwrap();
            assert_eq!(slice.get(1), 42);
            shared.close().unwrap();
        })
        .succeeds()
        .says("touched shared memory");
}
