//! Signal handlers of the program that touch shared memory, while every thread waits, sends, locks and allocates.

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use mapwire::{Shared, SharedSlice};

use crate::harness::{Rank, job, pattern};
use crate::sharing::one_each;

const THREADS: usize = 3;
/// From the end of a handler to the next signal of its thread.
const PERIOD_NS: i64 = 700_000;
/// Signals that a thread takes at most: a machine so slow that handlers take all its time still gets through.
const SIGNALS_A_THREAD: u64 = 1500;

/// What the handler touches: a word that the handlers of all ranks add to, and one that threads store to.
static ADDED: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
static STORED: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// Handlers run by each thread of this process.
static HANDLED: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
static TIMERS: [AtomicPtr<libc::c_void>; THREADS] = [const { AtomicPtr::new(null_mut()) }; THREADS];
static OVER: AtomicBool = AtomicBool::new(false);

fn arm(timer: *mut libc::c_void) {
    // SAFETY: zero is a valid `itimerspec`: a timer that is off.
    let mut time: libc::itimerspec = unsafe { zeroed() };
    time.it_value.tv_nsec = PERIOD_NS;
    // SAFETY: the timer was created and is never deleted. The call is async-signal-safe.
    unsafe { libc::timer_settime(timer, 0, &raw const time, null_mut()) };
}

extern "C" fn on_alarm(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over the siginfo of a timer, whose value is the thread's number here.
    let thread = unsafe { (*info).si_value() }.sival_ptr.addr();
    let (added, stored) = (ADDED.load(Ordering::Relaxed), STORED.load(Ordering::Relaxed));
    // SAFETY: both are words of shared memory that is open until every timer is off; atomics of it are as of any memory.
    unsafe {
        (*stored).load(Ordering::Relaxed);
        (*added).fetch_add(1, Ordering::Relaxed);
    }
    let handled = HANDLED[thread].fetch_add(1, Ordering::Relaxed);
    if handled < SIGNALS_A_THREAD && !OVER.load(Ordering::Relaxed) {
        arm(TIMERS[thread].load(Ordering::Relaxed));
    }
}

/// Installs the handler.
fn handle_alarms() {
    // SAFETY: zero is valid for every field.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_alarm as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler has the type that SA_SIGINFO asks for.
    let installed = unsafe { libc::sigaction(libc::SIGALRM, &raw const action, null_mut()) };
    assert_eq!(installed, 0);
}

/// Sends the calling thread, number `thread` of this rank, signals from here on.
fn alarm_this_thread(thread: usize) {
    // SAFETY: zero is valid for every field.
    let mut event: libc::sigevent = unsafe { zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGALRM;
    event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(thread);
    event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
    let mut timer: libc::timer_t = null_mut();
    // SAFETY: the event is complete; the kernel writes the timer's id.
    let created = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
    assert_eq!(created, 0);
    TIMERS[thread].store(timer, Ordering::Relaxed);
    arm(timer);
}

/// Runs `body` as two ranks with each way of catching faults. Rank 0 installs the handler before shared memory is opened, rank 1
/// afterwards, and says so.
fn with_handler(body: fn(&Rank, &Shared)) {
    for faults in ["userfaultfd", "sigsegv"] {
        job(2)
            .called(faults)
            .option("--faults", faults)
            .option("--shared", "256M")
            .run(|rank| {
                let is_late = rank.number == 1;
                if !is_late {
                    handle_alarms();
                }
                let node = rank.node();
                let shared = rank.shared(&node);
                if is_late {
                    handle_alarms();
                    shared.notice_handlers();
                }
                assert_eq!(shared.faults().unwrap().to_string(), faults);
                body(rank, &shared);
                shared.close().unwrap();
            })
            .succeeds();
    }
}

/// Stops the signals, and waits for the last handlers: what they did is in shared memory then.
fn quiet() {
    OVER.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(50));
}

pub(crate) fn word(slice: &SharedSlice<u64>) -> *mut AtomicU64 {
    std::ptr::with_exposed_provenance_mut(slice.address() as usize)
}

/// Every handler of every rank has added one.
fn check_handled(rank: &Rank, shared: &Shared, added: &SharedSlice<u64>) {
    let own: u64 = HANDLED.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert!(own >= 20, "rank {} took only {own} signals", rank.number);
    shared.barrier().unwrap();
    let all: u64 = (0..rank.size).map(|root| shared.broadcast(root, own).unwrap()).sum();
    assert_eq!(added.get(0), all);
}

/// The words that handlers touch, known to every rank.
fn words_for_handlers(rank: &Rank, shared: &Shared) -> [SharedSlice<u64>; 2] {
    let words = [0, 1].map(|root| one_each(rank, shared, 1)[root]);
    let [added, stored] = words;
    ADDED.store(word(&added), Ordering::Relaxed);
    STORED.store(word(&stored), Ordering::Relaxed);
    words
}

#[test]
fn handlers_that_touch_shared_memory_interrupt_threads_that_send_lock_and_wait() {
    const ROUNDS: u64 = 120;
    with_handler(|rank, shared| {
        let node = shared.node();
        let counter = one_each(rank, shared, 1)[0];
        let [added, stored] = words_for_handlers(rank, shared);
        let inbox = node.alloc(4096).unwrap();
        let inbox = node.export_buffer(&inbox).ring_only().name("inbox").start().unwrap();
        let next = (rank.number + 1) % rank.size;
        let import = node.import(next, "inbox").start().unwrap();
        shared.set_threads(THREADS).unwrap();
        let work = |thread: usize| {
            alarm_this_thread(thread);
            for round in 0..ROUNDS {
                let held = shared.lock(7).unwrap();
                counter.set(0, counter.get(0) + 1);
                drop(held);
                import.send(&pattern(round, 100), 128 * thread as u64).unwrap();
                if round % 8 == 0 {
                    stored.set(0, round);
                    shared.barrier_of(1).unwrap();
                }
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || work(thread));
            }
        });
        quiet();
        shared.set_threads(1).unwrap();
        check_handled(rank, shared, &added);
        let threads = (rank.size * THREADS) as u64;
        assert_eq!(counter.get(0), threads * ROUNDS);
        import.put_signal(&[], 0, 4088, 1).unwrap();
        inbox.wait_signal(4088, 1).unwrap();
        for thread in 0..THREADS {
            let mut found = [0; 100];
            inbox.read(128 * thread as u64, &mut found).unwrap();
            assert_eq!(found[..], pattern(ROUNDS - 1, 100));
        }
        shared.barrier().unwrap();
    });
}
#[test]
fn handlers_that_interrupt_malloc_and_fault_do_not_hang_ranks_that_export_and_import() {
    const ROUNDS: usize = 25;
    with_handler(|rank, shared| {
        let node = shared.node();
        let [added, stored] = words_for_handlers(rank, shared);
        let next = (rank.number + 1) % rank.size;
        let is_over = AtomicBool::new(false);
        let allocate = |thread: usize| {
            alarm_this_thread(thread);
            let mut kept = vec![Vec::new(); 64];
            let mut turn = thread;
            while !is_over.load(Ordering::Relaxed) {
                turn = turn.wrapping_mul(25_214_903_917).wrapping_add(11) & 0xffff_ffff;
                kept[(turn >> 4) % 64] = vec![turn as u8; (turn >> 12) % 30_000];
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let allocate = &allocate;
                scope.spawn(move || allocate(thread));
            }
            for round in 0..ROUNDS {
                let name = format!("inbox-{round}");
                let inbox = node.alloc(4096).unwrap();
                let ring = round % 2 == 0;
                let export = node.export_buffer(&inbox);
                let export = if ring { export.ring_only() } else { export };
                let export = export.name(&name).start().unwrap();
                let import = node.import(next, &name).start().unwrap();
                import.put_signal(&pattern(round as u64, 500), 0, 4088, 1).unwrap();
                export.wait_signal(4088, 1).unwrap();
                let mut found = [0; 500];
                export.read(0, &mut found).unwrap();
                assert_eq!(found[..], pattern(round as u64, 500));
                stored.set(0, round as u64);
                shared.barrier().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        quiet();
        check_handled(rank, shared, &added);
        shared.barrier().unwrap();
    });
}
