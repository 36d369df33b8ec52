//! A service of a program's own, the same file as in virtual time.

#[path = "../../../tests/counter.rs"]
pub(crate) mod counter;

use std::time::Duration;

use mapwire::services::{HandlerId, endpoint};

use crate::harness::{job, refused};
use counter::{COUNTER, Counter};

#[test]
fn every_addition_to_a_counter_of_another_rank_is_done_and_answered_once() {
    const ADDITIONS: u64 = 200;
    for wait in ["adaptive", "event"] {
        job(4)
            .called(wait)
            .option("--wait", wait)
            .run(|rank| {
                let node = rank.node();
                node.register_service(COUNTER, Counter::default()).unwrap();
                rank.meet("registered");
                for amount in 1..=ADDITIONS {
                    let add = |counter: &mut Counter| {
                        for to in (0..rank.size).filter(|&to| to != rank.number) {
                            counter.add(endpoint(to as u16), amount);
                        }
                    };
                    node.call_service(COUNTER, add).unwrap();
                }
                let others = rank.size as u64 - 1;
                let timeout = Some(Duration::from_secs(30));
                let answered =
                    |counter: &mut Counter| (counter.answers().len() as u64 == others * ADDITIONS).then_some(());
                node.wait_for_service(COUNTER, timeout, answered).unwrap();
                // The service thread serves those that still wait for answers.
                rank.meet("answered");
                let value = |counter: &mut Counter| counter.value();
                let value = node.call_service(COUNTER, value).unwrap();
                assert_eq!(value, others * ADDITIONS * (ADDITIONS + 1) / 2);
                rank.meet("end");
            })
            .succeeds();
    }
}

#[test]
fn an_id_is_given_once_and_those_of_the_library_never_and_what_is_not_there_is_named() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            for (handler, why) in [(1, "node's own"), (15, "node's own"), (256, "256")] {
                let made = node.register_service(HandlerId(handler), Counter::default());
                refused(made, &[why]);
            }
            refused(
                node.call_service(COUNTER, |counter: &mut Counter| counter.value()),
                &["no service of this type under handler 40", "register it first"],
            );
            node.register_service(COUNTER, Counter::default()).unwrap();
            refused(node.register_service(COUNTER, Counter::default()), &["handler 40 has a service already"]);
            let nothing = |_: &mut Counter| None::<()>;
            let timeout = Some(Duration::from_millis(20));
            let waited = node.wait_for_service(COUNTER, timeout, nothing);
            refused(waited, &["the service under handler 40", "20ms"]);
            assert!(node.deregister_service(COUNTER).is_some());
            assert!(node.deregister_service(COUNTER).is_none());
            assert!(node.deregister_service(HandlerId(1)).is_none());
        })
        .succeeds();
}
