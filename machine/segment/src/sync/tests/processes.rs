//! Objects that processes share, some of which are killed.

use core::time::Duration;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;
use crate::sync::SyncError;

const AT: u64 = 9 << 20;
const DATA: u64 = AT + (64 << 10);

/// Random numbers; the seed is printed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new() -> Self {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        println!("seed {seed}");
        Self(seed | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Locks, changes two words one after the other, and unlocks, again and again.
fn work(objects: &Objects, offset: u64, kind: u64, times: u64) -> Result<(), SyncError> {
    let segment = objects.segment();
    let (a, b) = (segment.word64(DATA).unwrap(), segment.word64(DATA + 8).unwrap());
    for turn in 0..times {
        let reads = kind == 2 && turn % 2 == 0;
        match kind {
            0 => objects.mutex(offset)?.lock()?,
            _ if reads => objects.rwlock(offset)?.read()?,
            _ => objects.rwlock(offset)?.write()?,
        }
        let (x, y) = (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
        assert_eq!(x, y);
        if !reads {
            a.store(x + 1, Ordering::Relaxed);
            (0..300).for_each(|_| core::hint::spin_loop());
            b.store(y + 1, Ordering::Relaxed);
        }
        match kind {
            0 => objects.mutex(offset)?.unlock()?,
            _ => objects.rwlock(offset)?.unlock()?,
        }
    }
    Ok(())
}

#[test]
fn processes_exclude_each_other() {
    let segment = segment();
    let objects = &ranks(&segment, 1, 1)[0];
    for kind in 0..3 {
        let offset = AT + 64 * kind;
        let body = || if work(objects, offset, kind, 1_000).is_ok() { 0 } else { 1 };
        let mut children: Vec<_> = (0..4).map(|_| Child::start(body)).collect();
        assert!(children.iter_mut().all(|child| child.code() == 0), "kind {kind}");
    }
    assert_eq!(segment.word64(DATA).unwrap().load(Ordering::Relaxed), 10_000);
}

#[test]
fn whoever_waits_for_a_killed_process_gets_an_error_that_names_it_and_nobody_waits_for_ever() {
    let segment = segment();
    let objects = &ranks(&segment, 1, 1)[0];
    let mut random = Random::new();
    let mut named = 0;
    for round in 0..40 {
        let (offset, kind) = (AT + 64 * round, round % 3);
        for word in [DATA, DATA + 8] {
            segment.word64(word).unwrap().store(0, Ordering::Relaxed);
        }
        let body = || if work(objects, offset, kind, u64::MAX).is_ok() { 0 } else { 1 };
        let mut victims = [Child::start(body), Child::start(body)];
        thread::sleep(Duration::from_micros(500 + random.below(3_000)));
        victims.iter().for_each(Child::kill);
        victims.iter_mut().for_each(|victim| assert_eq!(victim.code(), -1));
        thread::scope(|scope| {
            let waiters = [(); 2].map(|()| scope.spawn(|| work(objects, offset, kind, 10)));
            for waiter in waiters {
                if let Err(error) = waiter.join().unwrap() {
                    let error = error.to_string();
                    let names =
                        |victim: &Child| error.contains(&format!("(process {}), which has ended", victim.pid()));
                    assert!(victims.iter().any(names), "{error}");
                    named += 1;
                }
            }
        });
    }
    println!("{named} of 80 waiters got an error");
    assert!(named > 0);
}

#[test]
fn processes_wait_for_conditions_semaphores_flags_and_barriers_of_each_other() {
    let segment = segment();
    let objects = &ranks(&segment, 1, 1)[0];
    objects.barrier_at(AT).unwrap().init(3).unwrap();
    let body = |number: u64| {
        move || {
            let (mutex, condition) = (objects.mutex(AT + 64).unwrap(), objects.condition(AT + 128).unwrap());
            let turn = objects.segment().word64(DATA).unwrap();
            for round in 0..200 {
                objects.barrier_at(AT).unwrap().wait().unwrap();
                mutex.lock().unwrap();
                while turn.load(Ordering::Relaxed) % 3 != number {
                    condition.wait(&mutex).unwrap();
                }
                turn.fetch_add(1, Ordering::Relaxed);
                condition.broadcast().unwrap();
                mutex.unlock().unwrap();
                objects.semaphore(AT + 192).unwrap().post(1).unwrap();
                objects.flag(AT + 256).unwrap().wait(round).unwrap();
            }
            0
        }
    };
    let mut children = [0, 1, 2].map(|number| Child::start(body(number)));
    for round in 0..200 {
        (0..3).for_each(|_| objects.semaphore(AT + 192).unwrap().take().unwrap());
        objects.flag(AT + 256).unwrap().set(round);
    }
    assert!(children.iter_mut().all(|child| child.code() == 0));
    assert_eq!(segment.word64(DATA).unwrap().load(Ordering::Relaxed), 600);
}

#[test]
fn the_lines_of_killed_processes_are_given_again() {
    let objects = alone();
    let mutex = objects.mutex(AT).unwrap();
    // More than the table has lines would take too long: the next line to try is moved instead.
    let next = objects.segment().word64(crate::layout::THREADS_AT).unwrap();
    for _ in 0..20 {
        let mut child = Child::start(|| {
            mutex.lock().unwrap();
            mutex.unlock().unwrap();
            0
        });
        assert_eq!(child.code(), 0);
    }
    let used = next.load(Ordering::Relaxed);
    for line in 1..32_768 {
        let given = objects.segment().word64(crate::layout::THREADS_AT + 64 * line).unwrap();
        given.fetch_or(1, Ordering::Relaxed);
    }
    thread::scope(|scope| scope.spawn(|| mutex.lock().and_then(|()| mutex.unlock())).join().unwrap()).unwrap();
    assert!(next.load(Ordering::Relaxed) > used);
}

#[test]
fn a_line_that_a_thread_fills_is_nobody_elses() {
    let objects = alone();
    let word = |line: u64| objects.segment().word64(crate::layout::THREADS_AT + 64 * line).unwrap();
    // All lines but one are being filled, as they stay if their takers die.
    (1..32_768).filter(|&line| line != 77).for_each(|line| word(line).store(1 << 63 | 4, Ordering::Relaxed));
    let lock = || objects.mutex(AT).unwrap().lock();
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            lock()?;
            scope.spawn(lock).join().unwrap()
        });
        assert!(matches!(holder.join().unwrap(), Err(crate::sync::SyncError::TooManyThreads(_))));
    });
    // The first thread's line was given back.
    assert!((1..32_768).all(|line| word(line).load(Ordering::Relaxed) == if line == 77 { 2 } else { 1 << 63 | 4 }));
}
