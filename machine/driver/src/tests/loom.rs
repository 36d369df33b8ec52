//! Model checks of the spin lock and of the completion words: every interleaving, and every value that a relaxed load may give.
//!
//! What a lock or a word must order is a word of its own here, stored and loaded without order: a load that gives an old value is
//! an order that is missing.

use core::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use loom::thread;
use mapwire_nic::CommandError;
use mapwire_wire::NodeId;

use crate::completions::{CommandFailure, CompletionWords};
use crate::spin::SpinLock;

/// Adds 1 in two steps, which only a lock makes one.
fn add(count: &AtomicU64) {
    let before = count.load(Ordering::Relaxed);
    count.store(before + 1, Ordering::Relaxed);
}

/// Tries twice, as waiting for the lock tries without end: no model ends while a load may give an old value for ever.
#[test]
fn loom_who_takes_the_spin_lock_sees_what_was_done_under_it() {
    loom::model(|| {
        let shared = Arc::new((SpinLock::new(()), AtomicU64::new(0)));
        let turns = |shared: &(SpinLock<()>, AtomicU64)| {
            let turn = |_| shared.0.try_lock().map(|_held| add(&shared.1));
            (0..2).filter_map(turn).count() as u64
        };
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || turns(&theirs));
        let mine = turns(&shared);
        let turns = mine + other.join().unwrap();
        assert!(turns >= 1);
        assert_eq!(shared.1.load(Ordering::Relaxed), turns);
    });
}

/// A lock whose release orders nothing.
#[test]
#[should_panic(expected = "a turn is lost")]
fn loom_finds_a_lock_that_is_released_without_order() {
    loom::model(|| {
        let shared = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
        let turn = |shared: &(AtomicBool, AtomicU64)| {
            while shared.0.swap(true, Ordering::Acquire) {
                loom::hint::spin_loop();
            }
            add(&shared.1);
            shared.0.store(false, Ordering::Relaxed);
        };
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || turn(&theirs));
        turn(&shared);
        other.join().unwrap();
        let count = shared.1.load(Ordering::Relaxed);
        drop(shared);
        if count != 2 {
            panic!("a turn is lost");
        }
    });
}

/// A command that failed before anything was sent.
fn failure(error: CommandError) -> CommandFailure {
    CommandFailure { error, sent_bytes: 0 }
}

/// Waits for a command to be over.
fn finish(words: &CompletionWords, word: u32) -> Result<(), CommandFailure> {
    loop {
        if let Some(outcome) = words.finish(word) {
            return outcome;
        }
        thread::yield_now();
    }
}

#[test]
fn loom_a_finished_command_touches_its_memory_no_more_and_says_how_it_ended() {
    for error in [None, Some(CommandError::PeerGone(NodeId(3)))] {
        loom::model(move || {
            let words = Arc::new(CompletionWords::new());
            let memory = Arc::new(AtomicU64::new(0));
            let word = words.take().unwrap();
            let (their_words, their_memory) = (Arc::clone(&words), Arc::clone(&memory));
            let driver = thread::spawn(move || {
                their_memory.store(1, Ordering::Relaxed);
                match error {
                    None => their_words.complete(word),
                    Some(error) => their_words.fail(word, failure(error)),
                }
            });
            assert_eq!(finish(&words, word).err().map(|failure| failure.error), error);
            assert_eq!(memory.load(Ordering::Relaxed), 1);
            driver.join().unwrap();
        });
    }
}

#[test]
fn loom_a_word_is_one_threads_at_a_time_and_starts_anew() {
    loom::model(|| {
        let words = Arc::new(CompletionWords::new());
        let theirs = Arc::clone(&words);
        let other = thread::spawn(move || {
            let word = theirs.take().unwrap();
            theirs.fail(word, failure(CommandError::PeerGone(NodeId(1))));
            assert!(theirs.finish(word).unwrap().is_err());
        });
        let mine = words.take().unwrap();
        assert_eq!(words.finish(mine), None, "another's failure");
        words.complete(mine);
        assert_eq!(words.finish(mine), Some(Ok(())));
        other.join().unwrap();
    });
}

/// A word that is told before what it tells of.
#[test]
#[should_panic(expected = "the memory is still in use")]
fn loom_finds_a_word_that_is_told_without_order() {
    loom::model(|| {
        let shared = Arc::new((AtomicU32::new(0), AtomicU64::new(0)));
        let theirs = Arc::clone(&shared);
        let driver = thread::spawn(move || {
            theirs.1.store(1, Ordering::Relaxed);
            theirs.0.store(1, Ordering::Relaxed);
        });
        let over = shared.0.load(Ordering::Acquire) == 1;
        let memory = shared.1.load(Ordering::Relaxed);
        driver.join().unwrap();
        drop(shared);
        if over && memory == 0 {
            panic!("the memory is still in use");
        }
    });
}
