//! Synchronisation objects anywhere in the shared memory, in each coherence, between ranks and threads of each.

use std::time::Duration;

use mapwire::sync::{Condition, Mutex, Reduce, Steal, now_ns};
use mapwire::{Shared, SharedSlice};

use crate::harness::{Rank, eventually, job, refusal};

/// Bytes between two objects.
const APART: u64 = 64;

/// Runs `body` in each coherence, on rings and as if each rank were on a host of its own.
fn everywhere(ranks: u32, body: fn(&Rank, &Shared, &Place)) {
    for (coherence, transport) in
        [("auto", "shm"), ("minipages", "shm"), ("hlrc", "shm"), ("minipages", "udp"), ("hlrc", "udp")]
    {
        job(ranks)
            .called(format!("{coherence} {transport}"))
            .option("--coherence", coherence)
            .option("--transport", transport)
            .option("--shared", "64M")
            .run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                let place = Place::new(rank, &shared);
                body(rank, &shared, &place);
                shared.close().unwrap();
            })
            .succeeds();
    }
}

/// Memory with room for objects, and words beside it.
struct Place {
    objects: SharedSlice<u64>,
    words: SharedSlice<u64>,
}

impl Place {
    fn new(rank: &Rank, shared: &Shared) -> Self {
        let new = |length| {
            let mine = (rank.number == 0).then(|| shared.alloc::<u64>(length).unwrap());
            shared.broadcast_slice(0, mine).unwrap()
        };
        Self { objects: new(1024), words: new(1024) }
    }

    fn offset(&self, shared: &Shared, number: u64) -> u64 {
        shared.objects().offset((self.objects.address() + number * APART) as usize)
    }

    fn mutex<'a>(&self, shared: &'a Shared, number: u64) -> Mutex<'a> {
        shared.objects().mutex(self.offset(shared, number)).unwrap()
    }

    fn condition<'a>(&self, shared: &'a Shared, number: u64) -> Condition<'a> {
        shared.objects().condition(self.offset(shared, number)).unwrap()
    }

    fn add(&self, at: usize, by: u64) {
        self.words.set(at, self.words.get(at) + by);
    }
}

#[test]
fn mutexes_and_locks_lose_no_increment_of_any_thread() {
    const THREADS: u64 = 2;
    const TURNS: u64 = 60;
    everywhere(3, |rank, shared, place| {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        let which = (turn + thread) % 3;
                        let mutex = place.mutex(shared, which);
                        mutex.lock().unwrap();
                        place.add(which as usize * 16, 1);
                        mutex.unlock().unwrap();
                        let lock = shared.objects().rwlock(place.offset(shared, 8)).unwrap();
                        lock.read().unwrap();
                        let seen = [100, 600].map(|at| place.words.get(at));
                        assert_eq!(seen[0], seen[1]);
                        lock.unlock().unwrap();
                        lock.write().unwrap();
                        [100, 600].into_iter().for_each(|at| place.add(at, 1));
                        lock.unlock().unwrap();
                    }
                });
            }
        });
        shared.barrier().unwrap();
        let all = THREADS * TURNS * rank.size as u64;
        assert_eq!((0..3).map(|which| place.words.get(which * 16)).sum::<u64>(), all);
        assert_eq!(place.words.get(600), all);
    });
}

#[test]
fn what_was_stored_before_an_object_was_given_is_read_by_who_takes_it() {
    everywhere(3, |rank, shared, place| {
        let objects = shared.objects();
        let at = |number| place.offset(shared, number);
        let (flag, semaphore) = (objects.flag(at(1)).unwrap(), objects.semaphore(at(2)).unwrap());
        let (barrier, reduction) = (objects.barrier_at(at(3)).unwrap(), objects.reduction(at(4)).unwrap());
        if rank.number == 0 {
            barrier.init(rank.size as u32).unwrap();
            reduction.init(rank.size as u32).unwrap();
        }
        shared.barrier().unwrap();
        let (me, all) = (rank.number as u64, rank.size as u64);
        for round in 1..8_u64 {
            // By a flag, from rank to rank.
            flag.wait((round - 1) * all + me).unwrap();
            assert_eq!(place.words.get(0), (round - 1) * all + me);
            [0, 700].into_iter().for_each(|at| place.add(at, 1));
            assert_eq!(flag.add(1).unwrap(), (round - 1) * all + me);
            // By a barrier, and a reduction.
            barrier.wait().unwrap();
            assert_eq!(place.words.get(700), round * all);
            place.words.set(100 + rank.number * 7, round);
            let sum = reduction.reduce(Reduce::Sum, me as i64 - 1).unwrap();
            assert_eq!(sum, (0..all as i64).map(|rank| rank - 1).sum::<i64>());
            assert!((0..rank.size).all(|other| place.words.get(100 + other * 7) == round));
            assert_eq!(reduction.reduce(Reduce::Max, 0.5 * me as f64).unwrap(), 0.5 * (all - 1) as f64);
            // By a semaphore, from the first to all others.
            if rank.number == 0 {
                place.words.set(300, 9 * round);
                semaphore.post(rank.size as u32 - 1).unwrap();
            } else {
                semaphore.take().unwrap();
                assert_eq!(place.words.get(300), 9 * round);
            }
            // Once.
            let once = objects.once(at(10 + round)).unwrap();
            if once.begin().unwrap() {
                place.add(400, 1);
                once.end(true).unwrap();
            }
            assert!(once.is_done().unwrap());
            assert_eq!(place.words.get(400), round);
            shared.barrier().unwrap();
        }
        assert_eq!(semaphore.value().unwrap(), 0);
    });
}

#[test]
fn threads_that_wait_on_a_condition_are_woken_with_the_mutex() {
    everywhere(3, |rank, shared, place| {
        let (mutex, turned) = (place.mutex(shared, 0), place.condition(shared, 5));
        let (me, all) = (rank.number as u64, rank.size as u64);
        for _ in 0..40 {
            mutex.lock().unwrap();
            while place.words.get(0) % all != me {
                turned.wait(&mutex).unwrap();
            }
            place.add(0, 1);
            turned.broadcast().unwrap();
            mutex.unlock().unwrap();
        }
        shared.barrier().unwrap();
        assert_eq!(place.words.get(0), 40 * all);
        // Nobody signals any more.
        mutex.lock().unwrap();
        assert!(!turned.wait_until(&mutex, now_ns() + 3_000_000).unwrap());
        place.add(1, 1);
        mutex.unlock().unwrap();
        shared.barrier().unwrap();
        assert_eq!(place.words.get(1), all);
    });
}

#[test]
fn whoever_waits_too_long_gives_up_and_leaves_the_queue() {
    everywhere(2, |rank, shared, place| {
        let lock = shared.objects().rwlock(place.offset(shared, 3)).unwrap();
        let soon = || now_ns() + 5_000_000;
        if rank.number == 0 {
            lock.read().unwrap();
        }
        shared.barrier().unwrap();
        if rank.number == 1 {
            assert!(!lock.write_until(soon()).unwrap());
            // The writer that has left is in no reader's way.
            assert!(lock.read_until(soon()).unwrap());
            assert!(!lock.try_write().unwrap() && lock.try_read().unwrap());
            (0..2).for_each(|_| lock.unlock().unwrap());
            assert!(!shared.objects().semaphore(place.offset(shared, 4)).unwrap().take_until(soon()).unwrap());
            let flag = shared.objects().flag(place.offset(shared, 5)).unwrap();
            assert_eq!(flag.wait_until(1, soon()).unwrap(), None);
        }
        shared.barrier().unwrap();
        if rank.number == 0 {
            lock.unlock().unwrap();
        }
    });
}

#[test]
fn a_value_of_a_queue_is_taken_once_by_its_owner_or_a_thief() {
    everywhere(3, |rank, shared, place| {
        const COUNT: u64 = 60;
        let queue = shared.objects().queue(place.offset(shared, 2)).unwrap();
        if rank.number == 0 {
            queue.init(64).unwrap();
            (1..=COUNT).for_each(|value| assert!(queue.push(value).unwrap()));
        }
        shared.barrier().unwrap();
        let mut sum = 0;
        loop {
            let taken = match rank.number {
                0 => queue.pop().unwrap(),
                _ => match queue.steal().unwrap() {
                    Steal::Taken(value) => Some(value),
                    Steal::Empty => None,
                    Steal::Lost => continue,
                },
            };
            let Some(value) = taken else { break };
            sum += value;
        }
        let mutex = place.mutex(shared, 0);
        mutex.lock().unwrap();
        place.add(0, sum);
        mutex.unlock().unwrap();
        shared.barrier().unwrap();
        assert_eq!(place.words.get(0), COUNT * (COUNT + 1) / 2);
        if rank.number == 1 {
            assert!(refusal(queue.push(1)).contains("does not hold the queue"));
        }
        shared.barrier().unwrap();
    });
}

#[test]
fn misuse_is_named_and_changes_nothing() {
    everywhere(2, |rank, shared, place| {
        let objects = shared.objects();
        let mutex = place.mutex(shared, 0);
        if rank.number == 0 {
            mutex.lock().unwrap();
        }
        shared.barrier().unwrap();
        if rank.number == 1 {
            let told = refusal(mutex.unlock());
            assert!(told.contains("does not hold the mutex") && told.contains("of rank 0"), "{told}");
            assert!(refusal(mutex.destroy()).contains("is locked"));
            let turned = place.condition(shared, 5);
            assert!(refusal(turned.wait(&mutex)).contains("does not hold the mutex"));
            assert!(!mutex.try_lock().unwrap() && !mutex.lock_until(now_ns() + 1_000_000).unwrap());
            let wild = objects.offset(place.objects.address() as usize) + 3;
            assert!(refusal(objects.mutex(wild).map(drop)).contains("not aligned"));
            assert!(refusal(objects.mutex(u64::MAX - 7).map(drop)).contains("not aligned"));
            let barrier = objects.barrier_at(place.offset(shared, 6)).unwrap();
            assert!(refusal(barrier.init(0)).contains("a count of 0"));
            assert!(refusal(barrier.wait().map(drop)).contains("never initialised"));
            let semaphore = objects.semaphore(place.offset(shared, 7)).unwrap();
            assert!(refusal(semaphore.init(u32::MAX)).contains("2147483647"));
            let gone = place.mutex(shared, 9);
            gone.destroy().unwrap();
            assert!(refusal(gone.lock()).contains("is destroyed"));
            gone.init().unwrap();
            gone.lock().unwrap();
            assert!(refusal(gone.lock()).contains("already holds"));
            gone.unlock().unwrap();
        }
        shared.barrier().unwrap();
        if rank.number == 0 {
            mutex.unlock().unwrap();
        }
    });
}

#[test]
fn a_rank_that_dies_with_objects_ends_all_that_wait_with_its_name_and_what_it_held() {
    for coherence in ["minipages", "hlrc"] {
        for step in ["holds", "waits", "reads", "meets", "does once"] {
            let name = format!("{coherence} {step}");
            let job = job(3).called(name).option("--coherence", coherence).option("--shared", "64M");
            let done = job.with("MAPWIRE_TEST_STEP", step).run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                let place = Place::new(rank, &shared);
                let objects = shared.objects();
                // Of several one is kept by each rank.
                let mutexes: Vec<Mutex<'_>> = (0..16).map(|number| place.mutex(&shared, number)).collect();
                let lock = objects.rwlock(place.offset(&shared, 20)).unwrap();
                let barrier = objects.barrier_at(place.offset(&shared, 21)).unwrap();
                let once = objects.once(place.offset(&shared, 22)).unwrap();
                let all = |outcome: Vec<Result<(), mapwire::Error>>| {
                    outcome.into_iter().collect::<Result<(), mapwire::Error>>()
                };
                let step = std::env::var("MAPWIRE_TEST_STEP").unwrap();
                if rank.number == 0 {
                    barrier.init(3).unwrap();
                }
                shared.barrier().unwrap();
                if rank.number == 2 {
                    all(mutexes.iter().map(Mutex::lock).collect()).unwrap();
                    match &step[..] {
                        "reads" => lock.read().unwrap(),
                        "does once" => assert!(once.begin().unwrap()),
                        _ => {}
                    }
                }
                if rank.number == 1 && step == "waits" {
                    lock.write().unwrap();
                }
                shared.barrier().unwrap();
                if rank.number == 2 {
                    rank.note("ready", "");
                    let pid = rustix::process::getpid();
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(50));
                        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                    });
                    if step == "waits" {
                        let _ = lock.read();
                    }
                    std::thread::sleep(Duration::from_secs(60));
                }
                crate::harness::denials::outlive_sigterm();
                eventually("the victim is ready", || rank.path("ready").exists());
                let outcome = match &step[..] {
                    "reads" => lock.write(),
                    "meets" => barrier.wait().map(drop),
                    "does once" => once.begin().map(drop),
                    _ => mutexes[rank.number].lock(),
                };
                eprintln!("survivor {}: {}", rank.number, refusal(outcome));
                std::process::exit(7);
            });
            let done = done.soon().code(137);
            let _ = done
                .says("survivor 0: rank 2 is gone")
                .says("survivor 1: rank 2 is gone")
                .says("it held the mutex at 0x");
        }
    }
}
