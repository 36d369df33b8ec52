//! The first programs of the README, run as jobs.

use crate::harness::job;

mod messages {
    include!("../../examples/messages.rs");

    pub(super) fn run() {
        main().unwrap();
    }
}

mod shared_memory {
    include!("../../examples/shared_memory.rs");

    pub(super) fn run() {
        main().unwrap();
    }
}

#[test]
fn every_rank_is_greeted_by_the_one_before() {
    let done = job(3).run(|_| messages::run()).succeeds();
    (0..3).fold(done, |done, rank| {
        done.prints(&format!("greetings from rank {rank}\n"), 1)
    });
}

#[test]
fn all_ranks_count_in_one_word() {
    job(3)
        .run(|_| shared_memory::run())
        .succeeds()
        .prints("all ranks have counted to 3000\n", 1);
}

#[test]
fn first_programs_refuse_one_rank_and_say_how_to_start_more() {
    for (label, program) in [
        ("messages", messages::run as fn()),
        ("memory", shared_memory::run),
    ] {
        job(1)
            .called(label)
            .run(|_| program())
            .code(2)
            .says("start several: mapwire run -n 4");
    }
}
