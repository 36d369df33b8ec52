//! Remote procedure calls between ranks.

use mapwire::rpc::{CallError, Caller, Error, Opaque, Request, Rpc, RpcConfig, Server};

use crate::harness::{Rank, job};

const PROGRAM: u32 = 0x2000_0001;
const VERSION: u32 = 3;

const NOTHING: u32 = 0;
const ADD: u32 = 1;
const ECHO: u32 = 2;
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
            request.reply(&bytes).unwrap();
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

fn end(caller: &Caller) {
    caller.call::<()>(END, &()).unwrap();
}

#[test]
fn calls_of_all_lengths_come_back_with_their_own_results() {
    for (label, options) in [
        ("near", &[][..]),
        ("event", &[("--wait", "event")][..]),
        ("udp", &[("--transport", "udp")][..]),
    ] {
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
