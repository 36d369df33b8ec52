//! Remote procedure calls between ranks.

use std::time::Duration;

use mapwire::rpc::{
    AuthSys, CallError, Caller, Credential, Error, Opaque, PeerCredentials, Request, Rpc, RpcConfig, Server,
};
use rustix::process::{Signal, getpid, kill_process};

use crate::harness::denials::outlive_sigterm;
use crate::harness::{Rank, job};

const PROGRAM: u32 = 0x2000_0001;
const VERSION: u32 = 3;

const NOTHING: u32 = 0;
const ADD: u32 = 1;
const ECHO: u32 = 2;
/// Not answered before another call comes.
const LAST: u32 = 3;
const END: u32 = 9;

fn rpc(rank: &Rank) -> Rpc {
    Rpc::open(&rank.node(), RpcConfig::default()).expect("calls")
}

/// Answers one call; false at the end.
fn answer(mut request: Request) -> bool {
    match request.procedure() {
        NOTHING => request.reply(&()).unwrap(),
        ADD => {
            let (a, b): (u32, u32) = request.arguments().unwrap();
            request.reply(&a.wrapping_add(b)).unwrap();
        }
        ECHO => {
            let bytes: Opaque = request.arguments().unwrap();
            // A caller that was killed waits for nothing.
            if let Err(error) = request.reply(&bytes) {
                assert!(matches!(error, Error::Refused(_)), "{error}");
            }
        }
        END => {
            request.reply(&()).unwrap();
            return false;
        }
        _ => drop(request),
    }
    true
}

fn serve(server: &Server, callers: usize) {
    let mut left = callers;
    while left > 0 {
        if !answer(server.next(None).unwrap().expect("a call")) {
            left -= 1;
        }
    }
}

/// As [`serve`], by a thread that never waits. How often it found nothing.
fn serve_by_polling(server: &Server, callers: usize) -> u64 {
    let (mut left, mut idle) = (callers, 0);
    while left > 0 {
        match server.poll().unwrap() {
            Some(request) => left -= usize::from(!answer(request)),
            None => {
                idle += 1;
                std::thread::yield_now();
            }
        }
    }
    idle
}

fn end(caller: &Caller) {
    caller.call::<()>(END, &()).unwrap();
}

#[test]
fn calls_of_all_lengths_come_back_with_their_own_results() {
    for (label, options) in
        [("near", &[][..]), ("event", &[("--wait", "event")][..]), ("udp", &[("--transport", "udp")][..])]
    {
        let mut job = job(3).called(label);
        for (name, value) in options {
            job = job.option(name, value);
        }
        job.run(|rank| {
            let rpc = rpc(rank);
            if rank.number == 0 {
                let server = rpc.serve(PROGRAM, VERSION).unwrap();
                serve(&server, rank.size - 1);
            } else {
                let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                for round in 0..50 {
                    let sum: u32 = caller.call(ADD, &(round, 1_u32)).unwrap();
                    assert_eq!(sum, round + 1);
                }
                for bytes in [0, 1, 1023, 1024, 2048, 4096, 70_001, 1 << 20, (4 << 20) - 8] {
                    let sent = Opaque((0..bytes).map(|at| (at * 7 + rank.number) as u8).collect());
                    let got: Opaque = caller.call(ECHO, &sent).unwrap();
                    assert!(got == sent, "{bytes} B come back changed");
                }
                end(&caller);
            }
            rank.meet("end");
        })
        .succeeds();
    }
}

#[test]
fn a_server_that_polls_takes_what_has_come_and_goes_on_at_once() {
    for wait in ["poll", "event", "adaptive"] {
        job(3)
            .called(wait)
            .option("--wait", wait)
            .run(|rank| {
                let rpc = rpc(rank);
                if rank.number == 0 {
                    let server = rpc.serve(PROGRAM, VERSION).unwrap();
                    let idle = serve_by_polling(&server, rank.size - 1);
                    assert!(idle > 0, "it has waited for calls");
                } else {
                    let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                    for round in 0..200 {
                        let sum: u32 = caller.call(ADD, &(round, 2_u32)).unwrap();
                        assert_eq!(sum, round + 2);
                    }
                    end(&caller);
                }
                rank.meet("end");
            })
            .succeeds();
    }
}

#[test]
fn errors_of_the_server_and_of_the_caller_say_what_was_wrong() {
    job(2)
        .run(|rank| {
            let rpc = rpc(rank);
            if rank.number == 0 {
                let server = rpc.serve(PROGRAM, VERSION).unwrap();
                server.register(PROGRAM, VERSION + 2).unwrap();
                serve(&server, 1);
            } else {
                let error = |program, version, procedure| {
                    let caller = rpc.caller(0, program, version).unwrap();
                    let failed = caller.call::<u32>(procedure, &7_u32).unwrap_err();
                    failed.call().unwrap_or_else(|| panic!("{failed}"))
                };
                assert_eq!(error(1, 1, 1), CallError::ProgramUnavailable);
                let (low, high) = (VERSION, VERSION + 2);
                let mismatch = CallError::ProgramMismatch { low, high };
                assert_eq!(error(PROGRAM, 1, 1), mismatch);
                assert_eq!(error(PROGRAM, VERSION, 77), CallError::SystemError);
                let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                let long = Opaque(vec![0; 5 << 20]);
                let refused = caller.call::<Opaque>(ECHO, &long).unwrap_err();
                assert!(refused.to_string().contains("4194304 B"), "{refused}");
                assert!(matches!(refused, Error::Refused(_)));
                end(&caller);
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn replies_come_in_any_order_from_any_thread_and_each_goes_to_its_own_call() {
    const CALLS: u32 = 40;
    job(2)
        .run(|rank| {
            let rpc = rpc(rank);
            if rank.number == 0 {
                let server = rpc.serve(PROGRAM, VERSION).unwrap();
                let mut held = Vec::new();
                while held.len() < CALLS as usize {
                    held.push(server.next(None).unwrap().expect("a call"));
                }
                std::thread::scope(|scope| {
                    for mut request in held.into_iter().rev() {
                        scope.spawn(move || {
                            let (a, b): (u32, u32) = request.arguments().unwrap();
                            request.reply(&(a + b)).unwrap();
                        });
                    }
                });
                serve(&server, 1);
            } else {
                let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                let pending: Vec<_> =
                    (0..CALLS).map(|number| caller.begin(ADD, &(number, 1000_u32)).unwrap()).collect();
                for (number, pending) in (0..CALLS).zip(pending) {
                    let sum: u32 = pending.wait().unwrap().value().unwrap();
                    assert_eq!(sum, number + 1000);
                }
                end(&caller);
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn a_late_reply_is_dropped_and_the_next_call_gets_its_own() {
    job(2)
        .run(|rank| {
            let rpc = rpc(rank);
            if rank.number == 0 {
                let server = rpc.serve(PROGRAM, VERSION).unwrap();
                let mut late = server.next(None).unwrap().expect("a call");
                // The caller has given it up.
                rank.meet("given up");
                late.reply(&7_u32).unwrap();
                let mut next = server.next(None).unwrap().expect("a call");
                next.reply(&8_u32).unwrap();
                serve(&server, 1);
            } else {
                let mut caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                caller.set_timeout(Some(Duration::from_millis(20)));
                let failed = caller.call::<u32>(LAST, &()).unwrap_err();
                assert_eq!(failed.call(), Some(CallError::TimedOut));
                rank.meet("given up");
                caller.set_timeout(Some(Duration::from_secs(60)));
                let pending = caller.begin(LAST, &5_u32).unwrap();
                assert_eq!(pending.wait().unwrap().value::<u32>().unwrap(), 8);
                assert_eq!(rpc.counters().unwrap().late_replies, 1);
                end(&caller);
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn long_replies_wait_for_room_while_their_caller_keeps_others() {
    job(2)
        .run(|rank| {
            let rpc = rpc(rank);
            if rank.number == 0 {
                let server = rpc.serve(PROGRAM, VERSION).unwrap();
                serve(&server, 1);
            } else {
                let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                let sent = |seed: u8| Opaque(vec![seed; 3 << 20]);
                let pending: Vec<_> = (0..6).map(|seed| caller.begin(ECHO, &sent(seed)).unwrap()).collect();
                let mut kept = Vec::new();
                for (seed, pending) in (0..6).zip(pending) {
                    let record = pending.wait().unwrap();
                    assert!(record.is_lent());
                    kept.push((seed, record));
                    if kept.len() == 2 {
                        for (seed, record) in kept.drain(..) {
                            assert!(record.value::<Opaque>().unwrap() == sent(seed));
                            let mut last = [0; 2];
                            record.read(record.len() - 2, &mut last).unwrap();
                            assert_eq!(last, [seed; 2]);
                        }
                    }
                }
                end(&caller);
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn sixty_four_callers_are_served_at_once_and_each_gets_its_own_results() {
    job(65)
        .option("--wait", "event")
        .run(|rank| {
            let rpc = rpc(rank);
            if rank.number == 0 {
                let server = rpc.serve(PROGRAM, VERSION).unwrap();
                serve(&server, rank.size - 1);
            } else {
                let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                let number = rank.number as u32;
                for round in 0..50_u32 {
                    let sum: u32 = caller.call(ADD, &(number, round)).unwrap();
                    assert_eq!(sum, number + round);
                }
                let sent = Opaque(vec![number as u8; 10_000]);
                assert!(caller.call::<Opaque>(ECHO, &sent).unwrap() == sent);
                end(&caller);
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn credentials_are_held_against_what_the_kernel_says() {
    job(2)
        .run(|rank| {
            let rpc = rpc(rank);
            let known = PeerCredentials { uid: 1234, gid: 5, pid: 6 };
            if rank.number == 0 {
                rpc.set_credentials(1, Some(known)).unwrap();
                let server = rpc.serve(PROGRAM, VERSION).unwrap();
                let mut request = server.next(None).unwrap().expect("a call");
                assert_eq!(request.peer(), Some(known));
                let Credential::Sys(sys) = request.credential() else {
                    panic!("no credential");
                };
                assert_eq!((sys.uid, sys.gid), (1234, 5));
                request.reply(&()).unwrap();
                serve(&server, 1);
            } else {
                let mut caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                let sys = |uid| Credential::Sys(AuthSys { uid, gid: 5, ..AuthSys::default() });
                caller.set_credential(sys(0)).unwrap();
                let refused = caller.call::<()>(NOTHING, &()).unwrap_err();
                assert!(matches!(refused.call(), Some(CallError::AuthError(_))));
                caller.set_credential(sys(1234)).unwrap();
                caller.call::<()>(NOTHING, &()).unwrap();
                let long = Credential::Sys(AuthSys { gids: vec![0; 17], ..AuthSys::default() });
                assert!(matches!(caller.set_credential(long), Err(Error::BadCredential)));
                end(&caller);
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn closed_ends_are_told_of_and_new_callers_connect_anew() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            let open = || Rpc::open(&node, RpcConfig::default()).expect("calls");
            if rank.number == 0 {
                let rpc = open();
                let server = rpc.serve(PROGRAM, VERSION).unwrap();
                let held = server.next(None).unwrap().expect("a call");
                rpc.disconnect(1).unwrap();
                rank.meet("disconnected");
                drop(held);
                serve(&server, 1);
                drop(server);
                drop(rpc);
                rank.meet("closed");
                let rpc = open();
                serve(&rpc.serve(PROGRAM, VERSION).unwrap(), 1);
            } else {
                let rpc = open();
                let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                let pending = caller.begin(LAST, &()).unwrap();
                rank.meet("disconnected");
                let failed = pending.wait().unwrap_err();
                assert_eq!(failed.call(), Some(CallError::Closed));
                assert!(!caller.is_connected());
                let failed = caller.call::<()>(NOTHING, &()).unwrap_err();
                assert_eq!(failed.call(), Some(CallError::Closed));
                let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                end(&caller);
                rank.meet("closed");
                let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                end(&caller);
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn a_server_killed_in_a_call_ends_it_with_an_error_and_a_killed_caller_leaves_the_server_serving() {
    for victim in ["server", "caller"] {
        let done = job(3).called(victim).option("--stop-grace", "2").run(|rank| {
            let die = || {
                kill_process(getpid(), Signal::KILL).unwrap();
                loop {
                    std::thread::park();
                }
            };
            let rpc = rpc(rank);
            outlive_sigterm();
            match (victim, rank.number) {
                ("server", 0) => {
                    let server = rpc.serve(PROGRAM, VERSION).unwrap();
                    let _first = server.next(None).unwrap();
                    let _other = server.next(None).unwrap();
                    die();
                }
                ("server", _) => {
                    let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                    let failed = caller.call::<()>(LAST, &()).unwrap_err();
                    eprintln!("survivor {}: {failed}", rank.number);
                    assert_eq!(failed.call(), Some(CallError::Gone));
                    assert!(matches!(rpc.caller(0, PROGRAM, VERSION), Err(Error::Gone(0))));
                    eprintln!("survivor {} knows", rank.number);
                }
                (_, 0) => {
                    let server = rpc.serve(PROGRAM, VERSION).unwrap();
                    serve(&server, 1);
                    eprintln!("survivor 0 has served rank 2");
                }
                (_, 1) => {
                    let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                    let _pending = caller.begin(ECHO, &Opaque(vec![1; 1 << 20])).unwrap();
                    die();
                }
                _ => {
                    // Rank 1 may be gone before this begins.
                    let caller = rpc.caller(0, PROGRAM, VERSION).unwrap();
                    for _ in 0..100 {
                        caller.call::<()>(NOTHING, &()).unwrap();
                    }
                    end(&caller);
                    eprintln!("survivor 2 was served");
                }
            }
            // The launcher ends the job.
            std::thread::sleep(Duration::from_secs(1));
        });
        let done = done.code(137);
        match victim {
            "server" => done.says("survivor 1 knows").says("survivor 2 knows").says("the server is gone"),
            _ => done.says("survivor 0 has served rank 2").says("survivor 2 was served"),
        };
    }
}
