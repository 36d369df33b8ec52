//! Random operations of one thread, beside what the standard library would do.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::sync::{Steal, SyncError};

const AT: u64 = 9 << 20;

/// A lock as its users see it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lock {
    Free,
    Read(u32),
    Written,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_does_what_a_double_ended_queue_does(
        capacity in 0_u32..5,
        operations in prop::collection::vec((0_u8..4, any::<u64>()), 1..200),
    ) {
        let objects = alone();
        let queue = objects.queue(AT).unwrap();
        queue.init(1 << capacity).unwrap();
        let mut oracle = VecDeque::new();
        for (operation, value) in operations {
            match operation {
                0 | 1 => {
                    let has_room = oracle.len() < 1 << capacity;
                    prop_assert_eq!(queue.push(value).unwrap(), has_room);
                    oracle.extend(has_room.then_some(value));
                }
                2 => prop_assert_eq!(queue.pop().unwrap(), oracle.pop_back()),
                _ => {
                    let wanted = oracle.pop_front().map_or(Steal::Empty, Steal::Taken);
                    prop_assert_eq!(queue.steal().unwrap(), wanted);
                }
            }
        }
    }

    #[test]
    fn a_semaphore_counts(operations in prop::collection::vec((any::<bool>(), 0_u32..5), 1..100), first in 0_u32..4) {
        let objects = alone();
        let semaphore = objects.semaphore(AT).unwrap();
        semaphore.init(first).unwrap();
        let mut oracle = first;
        for (posts, count) in operations {
            if posts {
                semaphore.post(count).unwrap();
                oracle += count;
            } else {
                prop_assert_eq!(semaphore.try_take().unwrap(), oracle > 0);
                oracle = oracle.saturating_sub(1);
            }
            prop_assert_eq!(semaphore.value().unwrap(), oracle);
        }
    }

    #[test]
    fn a_reader_writer_lock_is_free_read_or_written(operations in prop::collection::vec(0_u8..4, 1..100)) {
        let objects = alone();
        let lock = objects.rwlock(AT).unwrap();
        let mut oracle = Lock::Free;
        for operation in operations {
            match operation {
                0 => {
                    let may = oracle != Lock::Written;
                    prop_assert_eq!(lock.try_read().unwrap(), may);
                    oracle = match oracle {
                        Lock::Free => Lock::Read(1),
                        Lock::Read(count) => Lock::Read(count + 1),
                        Lock::Written => Lock::Written,
                    };
                }
                1 => {
                    prop_assert_eq!(lock.try_write().unwrap(), oracle == Lock::Free);
                    oracle = if oracle == Lock::Free { Lock::Written } else { oracle };
                }
                // That would be for ever: it is an error, not a wait.
                2 => {
                    let held = oracle != Lock::Free;
                    match lock.write() {
                        Ok(()) => prop_assert!(!held),
                        Err(SyncError::Held(_)) => prop_assert!(held),
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    }
                    oracle = if held { oracle } else { Lock::Written };
                }
                _ => {
                    prop_assert_eq!(lock.unlock().is_ok(), oracle != Lock::Free);
                    oracle = match oracle {
                        Lock::Read(count) if count > 1 => Lock::Read(count - 1),
                        _ => Lock::Free,
                    };
                }
            }
        }
    }
}
