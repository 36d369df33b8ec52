//! A rank that takes more than its place at the launcher: another's number, descriptors, connections.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mapwire_transport::rendezvous::message::Refusal;
use mapwire_transport::rendezvous::{Client, JobAddress, RendezvousError};

use crate::harness::hostile::Outlaw;
use crate::harness::job;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_rank_cannot_join_as_another_that_is_late() {
    let done = job(2).run(|rank| {
        if rank.number == 0 {
            rank.read("tried");
            let node = rank.node();
            let buffer = node.alloc(4096).unwrap();
            let _export = node.export_buffer(&buffer).name("own").start().unwrap();
            rank.read("end");
            return;
        }
        let address = std::env::var(JobAddress::VARIABLE).unwrap();
        let address = address.parse().unwrap();
        match Client::join(&address, 0, LONG) {
            Err(RendezvousError::Refused { rank: 0, why: Refusal::Process }) => {}
            other => panic!("{other:?}"),
        }
        rank.note("tried", "");
        let node = rank.node();
        node.import(0, "own").start().unwrap();
        rank.note("end", "");
    });
    done.succeeds().soon();
}

/// Descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed_and_the_launcher_keeps_few() {
    let done = job(3).run(|rank| {
        if rank.number == 2 {
            let outlaw = Outlaw::join(rank);
            rank.read("ready");
            let file = std::fs::File::open("/dev/null").unwrap();
            for tag in 0..5000 {
                // The first numbers are those that the victim's next requests will have.
                outlaw.client.pass(0, tag, file.as_fd()).unwrap();
            }
            rank.note("passed", "");
            rank.read("end");
            outlaw.client.leave().unwrap();
            return;
        }
        let node = rank.node();
        let buffer = node.alloc(4096).unwrap();
        let _export = node.export_buffer(&buffer).name("own").start().unwrap();
        let import = node.import(1 - rank.number, "own").start().unwrap();
        if rank.number == 0 {
            let before = descriptors();
            rank.note("ready", "");
            rank.read("passed");
            let end = Instant::now() + Duration::from_millis(500);
            while Instant::now() < end {
                import.send(&[1; 100], 0).unwrap();
                assert!(descriptors() <= before + 8, "{} now, {before} before", descriptors());
            }
            // Another import of the honest rank still gets its memory.
            let again = node.import(1, "own").start().unwrap();
            assert!(again.is_direct());
            rank.note("end", "");
        }
        rank.read("end");
    });
    done.succeeds().soon();
}
