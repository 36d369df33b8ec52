//! Programs against times that are calculated by hand, and traces that no job writes.

use mapwire_wire::{TraceOp, TraceRecord};

use super::*;
use crate::hardware::{Constant, Cost, Origin, Profile, US};

/// A machine of round numbers.
fn machine(notice: Notice) -> Machine {
    let costs = [
        (Cost::AccessFault, 100 * US),
        (Cost::SetProtection, 10 * US),
        (Cost::LookupMinipage, 3 * US),
        (Cost::HandleRequest, 20 * US),
        (Cost::HandleSync, 5 * US),
        (Cost::LocalCall, US),
        (Cost::SendMessage, 4 * US),
        (Cost::WireLatency, 7 * US),
        (Cost::ReceiveMessage, 6 * US),
        (Cost::Signal, 2 * US),
        (Cost::WakeDelay, 8 * US),
        (Cost::ThreadSwitch, 0),
        (Cost::ThreadTurn, 20_000 * US),
        (Cost::PollPeriod, 1_000 * US),
        (Cost::PollNothing, 9 * US),
        (Cost::Spin, 10_000 * US),
    ];
    let constants = costs.map(|(cost, value)| Constant { cost, value, origin: Origin::Input, source: "round" });
    Machine {
        profile: Profile::new("round numbers", 0, &constants),
        processors: 1,
        ranks_per_host: 1,
        notice,
        hold_ns: 0,
    }
}

/// What the only load of rank 1 takes.
fn read_us(notice: Notice, backgrounds: &[u16]) -> u64 {
    let program = reads(2, 1, 64, 0);
    let outcome = run(&machine(notice), &program, backgrounds).unwrap();
    assert_eq!(outcome.ranks[1].faults, 1);
    outcome.ranks[1].spent.faults_ps / US
}

#[test]
fn a_load_takes_what_its_steps_take_one_after_the_other() {
    // Fault and request: 100 + 4, wire 7. The owner, which manages the minipage too, wakes (8), takes in (6), handles (20), looks up (3),
    // gives up its right to write (10), sends data and grant (2 * 4). Wire 7. The reader wakes (8), takes both in (2 * 6), handles (20),
    // opens (10), signals (2), and its thread wakes (8).
    let to_owner = 100 + 4 + 7 + 8;
    let owner = 6 + 20 + 3 + 10 + 8;
    let back = 7 + 8 + 12 + 20 + 10 + 2 + 8;
    let took = read_us(Notice::Interrupts, &[]);
    assert_eq!(took, to_owner + owner + back);
    // Who polls is not woken, and who waits finds its outcome itself.
    let polling = read_us(Notice::Polling, &[]);
    assert_eq!(took - polling, 8 + 8);
    let waiters = read_us(Notice::Waiters, &[]);
    assert!(waiters < took, "{waiters} us");
}

#[test]
fn a_busy_host_answers_at_the_next_beat_of_its_timer_if_it_polls_and_at_once_if_it_is_interrupted() {
    let (idle, busy) = (read_us(Notice::Interrupts, &[]), read_us(Notice::Interrupts, &[0]));
    assert_eq!(idle, busy);
    let busy = read_us(Notice::Polling, &[0]);
    assert!(busy > idle && busy < 1_000 + 2 * idle, "{busy} us");
}

#[test]
fn the_same_program_takes_the_same_time_twice() {
    let shape = Water { ranks: 8, molecules: 64, bytes: 672, chunk: 1, steps: 2, computing_ps: 100_000 * US };
    let program = water(&shape);
    for notice in [Notice::Polling, Notice::Interrupts, Notice::Waiters] {
        let once = run(&millipage(notice), &program, &[]).unwrap();
        let again = run(&millipage(notice), &program, &[]).unwrap();
        assert_eq!(once, again);
        let eighth = 100_000 * US / 8;
        assert!(once.total_ps > eighth, "{}", once.total_ps);
    }
}

#[test]
fn more_ranks_than_processors_take_turns() {
    let mut program = Program { ranks: 4, pages: 64, views: 1, participants: 1, ..Program::default() };
    program.add_to_all(Deed::Compute(10_000 * US));
    let crowded = Machine { ranks_per_host: 0, processors: 2, ..machine(Notice::Waiters) };
    let outcome = run(&crowded, &program, &[]).unwrap();
    assert_eq!(outcome.total_ps, 20_000 * US);
}

fn record(time_ns: u64, node: u16, op: TraceOp, address: u64, bytes: u64) -> TraceRecord {
    TraceRecord {
        time_ns: time_ns.into(),
        node: node.into(),
        process: 0.into(),
        op: op as u8,
        flags: 0,
        reserved: 0.into(),
        address: address.into(),
        bytes: bytes.into(),
    }
}

const BASE: u64 = 0x4000_0000_0000;

/// Two ranks open a memory of 64 pages in 4 views.
fn opened() -> Vec<TraceRecord> {
    let of_rank = |node| {
        [
            record(1, node, TraceOp::Compute, 0, 0),
            record(1, node, TraceOp::OpenShared, BASE, 64 << 12),
            record(1, node, TraceOp::ShapeShared, 4, 1),
        ]
    };
    [of_rank(0), of_rank(1)].concat()
}

fn captured(more: &[TraceRecord]) -> Result<(Program, Live), CapturedError> {
    let mut captured = Captured::default();
    for record in opened().iter().chain(more) {
        captured.push(record)?;
    }
    captured.finish(&Scale::default())
}

#[test]
fn a_trace_is_replayed_in_the_time_that_its_steps_take() {
    use TraceOp::{Allocate, Barrier, Compute, WriteFault};
    let at = BASE + 0x2040;
    let trace = [
        record(10, 0, Allocate, at, 64),
        record(20, 0, Barrier, 0, 0),
        record(21, 1, Barrier, 0, 0),
        record(30, 1, Compute, 0, 3_000_000),
        record(3_000_500, 1, WriteFault, at + 8, 64),
        record(3_000_900, 0, Compute, 0, 1_000),
        record(3_001_000, 0, Barrier, 0, 0),
        record(3_001_100, 1, Barrier, 0, 0),
    ];
    let (program, live) = captured(&trace).unwrap();
    assert_eq!((program.ranks, program.minipages), (2, 1));
    assert_eq!(live.work_ns, Some(3_001_000 - 20));
    assert_eq!((live.computed_ns, live.work_computed_ns), (3_001_000, 3_001_000));
    let outcome = run(&machine(Notice::Interrupts), &program, &[]).unwrap();
    // The word that the barrier is open interrupts it: taken in (6) and handled (5).
    assert_eq!(outcome.ranks[1].spent.computing_ps, 3_011 * US);
    assert_eq!(outcome.ranks[1].faults, 1);
    let work_us = outcome.work_ps.unwrap() / US;
    // 3 ms of computing, a store that takes as long as a load, and the messages of a barrier.
    let store_us = outcome.ranks[1].spent.faults_ps / US;
    assert!((3_000 + store_us..3_100 + store_us).contains(&work_us), "{work_us} us");
}

#[test]
fn what_no_job_does_is_refused_by_the_record_that_does_it() {
    use TraceOp::{Allocate, Barrier, Compute, Lock, OpenShared, ReadFault, ShapeShared};
    let nothing = Captured::default().finish(&Scale::default()).unwrap_err();
    assert!(nothing.to_string().contains("no shared memory is opened"));
    let cases = [
        (
            record(9, 1, ReadFault, BASE, 1),
            "record 6: read-fault at 0x400000000000, where the trace allocates no minipage",
        ),
        (record(9, 1, OpenShared, BASE, 64 << 12), "record 6: rank 1 opens"),
        (record(9, 1, ShapeShared, 4, 65), "with 65 threads of a rank in barriers"),
        (record(9, 1, ShapeShared, 513, 1), "in 513 views"),
        (record(9, 1, Compute, 64, 1), "record 6 is of thread 64"),
        (record(9, 1, Lock, u64::MAX, 0), "record 6: lock 18446744073709551615 is beyond"),
        (record(9, 1, Lock, 4096, 0), "a replay has 4096 locks"),
        (record(9, 1, Barrier, 256, 0), "barrier 256 is beyond"),
        (record(9, 1024, Barrier, 0, 0), "record 6 is of node 1024"),
        (record(9, 1000, Barrier, 0, 0), "records of node 1000 and none of node 2"),
        (record(9, 1, Compute, 0, u64::MAX), "compute for more than 30 days"),
    ];
    for (record, says) in cases {
        let error = captured(&[record]).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let twice = [record(9, 0, Allocate, BASE, u64::MAX), record(9, 1, Allocate, BASE + 8, 16)];
    let error = captured(&twice).unwrap_err().to_string();
    assert!(error.contains("record 7 allocates 16 bytes"), "{error}");
}

#[test]
fn a_trace_that_hangs_is_an_error_which_names_who_waits_for_what() {
    use TraceOp::{Barrier, Lock, Unlock};
    let cases: [(&[TraceRecord], &str); 3] = [
        (&[record(9, 0, Barrier, 0, 0)], "rank 0 waits for a barrier at record 6"),
        (&[record(9, 0, Lock, 5, 0), record(9, 1, Lock, 5, 0)], "waits for a lock at"),
        (&[record(9, 1, Unlock, 5, 0)], "rank 1: an unlock at record 6 is refused"),
    ];
    for (trace, says) in cases {
        let (program, _) = captured(trace).unwrap();
        for notice in [Notice::Polling, Notice::Interrupts, Notice::Waiters] {
            let error = run(&machine(notice), &program, &[]).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

#[test]
fn a_touch_waits_until_the_minipage_is_allocated() {
    let mut program = reads(2, 1, 64, 0);
    // Without the barrier between.
    for script in &mut program.scripts {
        script.entries.retain(|entry| entry.deed != Deed::Barrier(0));
        if script.rank == 0 {
            let deed = Deed::Compute(500 * US);
            script.entries.insert(0, Entry { deed, number: 0 });
        }
    }
    let outcome = run(&machine(Notice::Interrupts), &program, &[]).unwrap();
    assert!(outcome.total_ps > 500 * US);
    assert_eq!(outcome.ranks[1].faults, 1);
}

#[test]
fn threads_of_a_rank_begin_where_the_trace_has_them() {
    use TraceOp::{Barrier, Compute};
    let trace = [
        record(10, 0, Barrier, 0, 0),
        record(10, 1, Barrier, 0, 0),
        record(20, 0, Compute, 0, 5_000),
        record(20, 0, Barrier, 1, 0),
        record(30, 0, Compute, 1, 7_000),
        record(40, 1, Compute, 0, 0),
        record(50, 1, Barrier, 1, 0),
    ];
    let (program, _) = captured(&trace).unwrap();
    assert_eq!(program.scripts.len(), 3);
    // By rank, whoever came first.
    let second = &program.scripts[1];
    assert_eq!((second.rank, second.entries.len()), (0, 1));
    // Behind the first thread's opening, barrier, computing and barrier.
    assert_eq!(second.after, Some((0, 4)));
    let outcome = run(&machine(Notice::Interrupts), &program, &[]).unwrap();
    assert!(outcome.total_ps >= 12 * US);
}

#[test]
fn ranks_that_wait_by_polling_and_by_sleeping_lose_no_word() {
    for computing_us in [10_000, 50_000, 200_000] {
        let shape = Water { ranks: 8, molecules: 343, bytes: 672, chunk: 1, steps: 1, computing_ps: computing_us * US };
        for ranks_per_host in [1, 4] {
            let machine = Machine { ranks_per_host, ..today() };
            let outcome = run(&machine, &water(&shape), &[]).unwrap();
            assert!(outcome.total_ps > computing_us * US / 8);
        }
    }
}

#[test]
fn of_several_traces_the_least_computing_between_barriers_counts() {
    let program = |times: [u64; 3]| {
        let mut program = Program { ranks: 1, ..Program::default() };
        program.add(0, Deed::Compute(times[0]));
        program.add(0, Deed::Barrier(0));
        program.add(0, Deed::Compute(times[1]));
        program.add(0, Deed::Lock(1));
        program.add(0, Deed::Compute(times[2]));
        program
    };
    let least = Program::least(&[program([50, 30, 90]), program([70, 20, 40])]).unwrap();
    let computed = least.scripts[0].entries.iter().filter_map(|it| match it.deed {
        Deed::Compute(ps) => Some(ps),
        _ => None,
    });
    // Of the second phase 60 instead of 120.
    assert_eq!(computed.collect::<Vec<_>>(), [50, 15, 45]);
    let mut other = program([1, 1, 1]);
    other.add(0, Deed::Barrier(0));
    assert_eq!(Program::least(&[program([1, 1, 1]), other]), None);
}
