//! Adoptions among threads that are cancelled, forked or interrupted, of memory that others need, and at the limits of the system.

use std::time::{Duration, Instant};

use super::*;
use crate::testing::{lower_limit, refuse_call};

/// Calls `work` in a forked child, which is killed after a timeout.
fn forked(work: impl FnOnce() -> bool) -> std::process::ExitStatus {
    // SAFETY: the child calls `work`, and ends.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(i32::from(!work()));
        }
        let (mut status, begun) = (0, Instant::now());
        while libc::waitpid(pid, &raw mut status, libc::WNOHANG) == 0 {
            if begun.elapsed() > Duration::from_secs(60) {
                libc::kill(pid, libc::SIGKILL);
            }
            std::thread::yield_now();
        }
        std::process::ExitStatus::from_raw(status)
    }
}

fn protect(memory: &Private, page: usize, pages: usize, rights: MprotectFlags) -> bool {
    let place = address_of(memory.start + page * PAGE);
    // SAFETY: pages of a test, which reaches them as they allow.
    unsafe { rustix::mm::mprotect(place, pages * PAGE, rights) }.is_ok()
}

#[test]
fn what_a_thread_needs_is_refused_and_the_thread_goes_on() {
    in_child("threads", || {
        let refused = |start, bytes| {
            let error = SharedBuffer::adopt("test-adoption", start, bytes).unwrap_err();
            assert!(error.to_string().contains("for a thread"), "{error}");
        };
        static AT: AtomicU64 = AtomicU64::new(0);
        static OVER: AtomicBool = AtomicBool::new(false);
        let other = std::thread::spawn(|| {
            let here = 0_u8;
            AT.store((&raw const here).addr() as u64, Ordering::SeqCst);
            let mut rounds = 0_u64;
            while !OVER.load(Ordering::Relaxed) {
                rounds += 1;
                core::hint::black_box([rounds; 700]);
            }
        });
        while AT.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let at = AT.load(Ordering::SeqCst) as usize;
        let stack = Maps::default().at_or_after(at).unwrap();
        for _ in 0..100 {
            refused(stack.start, stack.end - stack.start);
        }
        OVER.store(true, Ordering::Relaxed);
        other.join().unwrap();

        // The page of the calling thread's `errno`, outside a stack only in the first thread: seen by the function alone.
        // SAFETY: gives an address.
        let own = unsafe { libc::__errno_location() }.addr() & !(PAGE - 1);
        assert!(refusals::has_thread(&(own..own + PAGE)));
        let heap = vec![0_u8; 100 * PAGE];
        let start = heap.as_ptr().addr();
        assert!(!refusals::has_thread(&(start..start + heap.len())));
    });
}

#[test]
fn memory_right_above_the_stack_of_its_thread_is_adopted_and_the_stack_is_not() {
    const STACK: usize = 64 * PAGE;
    extern "C" fn exports(memory: *mut c_void) -> *mut c_void {
        // SAFETY: the test's memory; the test waits for this thread.
        let memory = unsafe { &*memory.cast::<Private>() };
        let adopt = |offset, pages: usize| SharedBuffer::adopt("test-adoption", memory.start + offset, pages * PAGE);
        let above = adopt(STACK + PAGE, 8).is_ok();
        let stacks = [(0, 2), (STACK / 2, 4), (STACK - PAGE, 1), (STACK - PAGE, 4)];
        let are_refused = stacks.iter().all(|&(offset, pages)| adopt(offset, pages).is_err());
        ptr::without_provenance_mut(usize::from(above) + 2 * usize::from(are_refused))
    }
    in_child("above", || {
        let memory = Private::new(STACK + 16 * PAGE);
        let mut outcome = ptr::null_mut();
        // SAFETY: the stack is memory of this test, which waits for the thread.
        unsafe {
            let mut attributes = core::mem::zeroed();
            assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
            let stack = address_of(memory.start);
            assert_eq!(libc::pthread_attr_setstack(&raw mut attributes, stack, STACK), 0);
            let (mut thread, argument) = (0, (&raw const memory).cast_mut().cast());
            let begun = libc::pthread_create(&raw mut thread, &raw const attributes, exports, argument);
            assert_eq!(begun, 0);
            assert_eq!(libc::pthread_join(thread, &raw mut outcome), 0);
        }
        assert_eq!(outcome.addr(), 3);
    });
}

#[test]
fn a_thread_that_was_cancelled_does_not_end_where_it_stores() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    extern "C" fn stores(memory: *mut c_void) -> *mut c_void {
        // SAFETY: the test's memory, which outlives the process's last store.
        let memory = unsafe { &*memory.cast::<Private>() };
        loop {
            (0..64).for_each(|page| memory.word(page * PAGE).store(1, Ordering::Relaxed));
            COUNT.fetch_add(1, Ordering::SeqCst);
        }
    }
    in_child("cancelled", || {
        let memory = Private::new(64 * PAGE);
        let mut thread = 0;
        // SAFETY: the thread ends with the process, which the test ends while `memory` lives.
        unsafe {
            let argument = (&raw const memory).cast_mut().cast();
            assert_eq!(libc::pthread_create(&raw mut thread, ptr::null(), stores, argument), 0);
            assert_eq!(libc::pthread_cancel(thread), 0);
        }
        for _ in 0..300 {
            drop(memory.adopt().unwrap());
        }
        let before = COUNT.load(Ordering::SeqCst);
        let begun = Instant::now();
        while COUNT.load(Ordering::SeqCst) == before {
            assert!(begun.elapsed() < Duration::from_secs(60), "it has ended");
        }
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    });
}

#[test]
fn a_child_forked_while_another_thread_asks_what_is_mapped_can_ask_too() {
    in_child("asks", || {
        let memory = Private::new(PAGE);
        let asks = || crate::maps::check_memory(memory.start, PAGE, true).is_ok();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert!(asks());
                }
            });
            for _ in 0..300 {
                let status = forked(asks);
                if status.code() != Some(0) {
                    over.store(true, Ordering::Relaxed);
                    panic!("{status}");
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn importers_are_told_when_only_a_part_of_the_memory_can_move_back() {
    in_child("part", || {
        let memory = Private::new(3000 * PAGE);
        memory.fill();
        let mut buffer = memory.adopt().unwrap();
        let peer = import(&mut buffer);
        // Two parts, of which the first is short.
        // SAFETY: a page of this test, which uses it no more.
        unsafe { rustix::mm::munmap(address_of(memory.start + PAGE), PAGE) }.unwrap();
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = text.split(' ').next().unwrap().parse().unwrap();
        lower_limit(rustix::process::Resource::As, (pages + 1000) * PAGE as u64);
        let error = buffer.revoke().unwrap_err();
        assert!(error.to_string().contains("RLIMIT_AS"), "{error}");
        assert!(!memory.range().shared, "the first part is back");
        // A store made there now would be lost.
        assert!(peer.revoked());
        for at in [8, 2 * PAGE, 2999 * PAGE] {
            assert_eq!(memory.word(at).load(Ordering::Relaxed), !(at as u64));
        }
    });
}

#[test]
fn a_lack_of_mapped_ranges_is_named_and_no_byte_is_lost() {
    in_child("ranges", || {
        let memory = Private::new(64 * PAGE);
        memory.fill();
        let mut buffer = SharedBuffer::adopt("test-adoption", memory.start, 4 * PAGE).unwrap();
        let most = crate::limits::max_map_count().unwrap() as usize;
        if most > 1 << 17 {
            mapwire_testing::skip!("to use up so many mapped ranges takes long");
            return;
        }
        let eater = Private::new(2 * most * PAGE);
        let eaten = (0..most).take_while(|page| protect(&eater, 2 * page + 1, 1, MprotectFlags::READ)).count();
        assert!(eaten > most / 4, "{eaten}");
        let named = |error: MemoryError| {
            let text = error.to_string();
            assert!(text.contains("vm.max_map_count is"), "{text}");
        };
        named(SharedBuffer::adopt("test-adoption", memory.start + 10 * PAGE, PAGE).unwrap_err());
        named(buffer.revoke().unwrap_err());
        assert!(memory.is_filled());
        // Both are open to stores.
        memory.fill();
        protect(&eater, 0, 2 * eaten, MprotectFlags::READ | MprotectFlags::WRITE);
        buffer.revoke().unwrap();
        assert!(memory.is_filled() && !memory.range().shared);
    });
}

#[test]
fn where_all_memory_is_locked_the_limit_on_that_is_named_and_no_byte_is_lost() {
    in_child("locked", || {
        crate::testing::drop_privileges();
        lower_limit(rustix::process::Resource::Memlock, 3 << 20);
        // SAFETY: what is mapped from here on is locked.
        if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
            mapwire_testing::skip!("this process may lock no memory");
            return;
        }
        let here = Private::with(100 * PAGE, MapFlags::PRIVATE);
        let mut buffer = here.adopt().unwrap();
        let more = Private::with(300 * PAGE, MapFlags::PRIVATE);
        here.fill();
        more.fill();
        lower_limit(rustix::process::Resource::Memlock, 1 << 20);
        for error in [more.adopt().unwrap_err(), buffer.revoke().unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains("RLIMIT_MEMLOCK is 1048576"), "{text}");
        }
        assert!(here.is_filled() && more.is_filled());
        here.fill();
        more.fill();
    });
}

#[test]
fn exports_here_and_there_leave_the_program_half_of_its_mapped_ranges() {
    in_child("split", || {
        let most = crate::limits::max_map_count().unwrap() as usize;
        if most > 1 << 17 {
            mapwire_testing::skip!("to split so many mapped ranges takes long");
            return;
        }
        let memory = Private::new(2 * most * PAGE);
        let refused =
            (0..most).find_map(|page| SharedBuffer::adopt("test-adoption", memory.start + 2 * page * PAGE, PAGE).err());
        let refused = refused.expect("too many split ranges are refused").to_string();
        assert!(refused.contains("vm.max_map_count"), "{refused}");
        let mapped = crate::maps::mapped_ranges().len();
        assert!((most / 2..most * 3 / 4).contains(&mapped), "{mapped}");
        protect(&memory, 0, 2 * most, MprotectFlags::empty());
        // SAFETY: memory of this test, which is mapped anew as one range.
        unsafe {
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            rustix::mm::mmap_anonymous(address_of(memory.start), memory.bytes, rights, flags)
        }
        .unwrap();
        assert!(SharedBuffer::adopt("test-adoption", memory.start, PAGE).is_ok());
    });
}

#[test]
fn memory_with_pages_that_fault_is_refused_and_stays_open_to_stores() {
    let refused = |start, bytes| {
        let error = SharedBuffer::adopt("test-adoption", start, bytes).unwrap_err();
        assert!(error.to_string().contains("not there throughout"), "{error}");
    };
    // A private mapping that is longer than its file.
    let file = memfd::create("test", PAGE).unwrap();
    let memory = Private::new(4 * PAGE);
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: pages of this test.
    unsafe { Mapping::over(memory.start, &file, 0, 4 * PAGE, rights, MapFlags::PRIVATE) }.unwrap();
    refused(memory.start, memory.bytes);
    memory.word(0).store(1, Ordering::Relaxed);
    assert!(SharedBuffer::adopt("test-adoption", memory.start, PAGE).is_ok());
    assert_eq!(memory.word(0).load(Ordering::Relaxed), 1);

    /// MADV_GUARD_INSTALL, Linux 6.13.
    const GUARD: i32 = 102;
    for pages in [8, 600] {
        let memory = Private::new(pages * PAGE);
        memory.fill();
        // SAFETY: a page of this test, which uses it no more.
        if unsafe { libc::madvise(address_of(memory.start + 3 * PAGE), PAGE, GUARD) } != 0 {
            mapwire_testing::skip!("this kernel has no guard pages in ordinary memory");
            return;
        }
        refused(memory.start, memory.bytes);
        memory.word(PAGE).store(1, Ordering::Relaxed);
    }
}

#[test]
fn what_the_program_closes_meanwhile_stays_closed_here_and_in_a_forked_child() {
    let rights = |memory: &Private, page: usize| {
        let range = Maps::default().at_or_after(memory.start + page * PAGE);
        range.unwrap().rights()
    };
    let both = MprotectFlags::READ | MprotectFlags::WRITE;
    // Then once more where stores of others cannot be made to wait, for a handler of the program stands before that of mapwire.
    for label in ["closed", "closed, with a handler"] {
        in_child(label, || {
            let memory = Private::new(5 * PAGE);
            memory.fill();
            let buffer = memory.adopt().unwrap();
            if label != "closed" {
                // SAFETY: the default action, which ends the process.
                unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            }
            assert!(protect(&memory, 1, 1, MprotectFlags::READ));
            assert!(protect(&memory, 3, 1, MprotectFlags::empty()));
            let is_kept = || {
                [both, MprotectFlags::READ, both, MprotectFlags::empty(), both]
                    .into_iter()
                    .enumerate()
                    .all(|(page, expected)| rights(&memory, page) == expected)
            };
            assert_eq!(forked(is_kept).code(), Some(0));
            drop(buffer);
            assert!(is_kept() && !memory.range().shared);
            assert!(protect(&memory, 0, 5, both));
            assert!(memory.is_filled());
        });
    }
}

#[test]
fn where_the_system_refuses_a_call_the_memory_stays_as_it_was() {
    let calls = [
        ("memfd_create", libc::SYS_memfd_create),
        ("mprotect", libc::SYS_mprotect),
        ("pwrite", libc::SYS_pwrite64),
        ("mremap", libc::SYS_mremap),
    ];
    for (name, call) in calls {
        in_child(name, || {
            let memory = Private::new(8 * PAGE);
            memory.fill();
            let mut early = SharedBuffer::adopt("test-adoption", memory.start, PAGE).unwrap();
            let peer = import(&mut early);
            refuse_call(call);
            let late = SharedBuffer::adopt("test-adoption", memory.start + 4 * PAGE, PAGE);
            let back = early.revoke();
            let failed = late.err().or(back.err()).expect("the call was refused");
            assert!(failed.to_string().contains(name), "{failed}");
            assert!(peer.revoked() && memory.is_filled());
            memory.fill();
            drop(early);
            assert!(memory.is_filled());
            memory.fill();
        });
    }
}

#[test]
fn without_proc_nothing_is_adopted_and_what_was_adopted_moves_back() {
    for early in [false, true] {
        in_child(if early { "proc, early" } else { "no proc" }, || {
            let memory = Private::new(8 * PAGE);
            memory.fill();
            let buffer = early.then(|| SharedBuffer::adopt("test-adoption", memory.start, PAGE));
            let buffer = buffer.transpose().unwrap();
            // SAFETY: takes /proc from this process alone, whose mounts are its own from here on.
            let gone = unsafe {
                let (root, none) = (c"/".as_ptr(), ptr::null());
                libc::unshare(libc::CLONE_NEWNS) == 0
                    && libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, ptr::null()) == 0
                    && libc::umount2(c"/proc".as_ptr(), libc::MNT_DETACH) == 0
            };
            if !gone {
                mapwire_testing::skip!("this process may not unmount /proc");
                return;
            }
            let late = SharedBuffer::adopt("test-adoption", memory.start + 4 * PAGE, PAGE);
            if let Err(error) = &late {
                assert!(error.to_string().contains("/proc"), "{error}");
            }
            // A process that asked before still can.
            assert_eq!(late.is_ok(), early && procmap_answers());
            assert_eq!(forked(|| memory.is_filled()).code(), Some(0));
            drop((buffer, late));
            assert!(memory.is_filled());
            memory.fill();
        });
    }
}

/// Whether the kernel answers queries about single ranges.
fn procmap_answers() -> bool {
    crate::procmap::range_at_or_after(0).is_ok()
}

/// Threads export neighbours on and off, store across the boundaries, and are interrupted by a handler that stores there too.
#[test]
fn no_store_is_lost_of_handlers_nor_across_the_boundary_of_two_exports() {
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    extern "C" fn counts(_: i32) {
        let address = COUNTER.load(Ordering::Relaxed) as usize;
        // SAFETY: an aligned word of the test's memory, which is only reached by atomics.
        unsafe { AtomicU64::from_ptr(address_of(address).cast()) }.fetch_add(1, Ordering::Relaxed);
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    in_child("handlers", || {
        let memory = Private::new(32 * PAGE);
        let half = 16 * PAGE;
        COUNTER.store((memory.start + half + 8) as u64, Ordering::Relaxed);
        // SAFETY: a handler of the right type, and a timer of this process.
        unsafe {
            libc::signal(libc::SIGALRM, counts as *const () as usize);
            let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
            let timer = libc::itimerval { it_interval: every, it_value: every };
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut());
        }
        let over = AtomicBool::new(false);
        let moves = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            for (offset, moves) in [0, half].into_iter().zip(&moves) {
                let (memory, over) = (&memory, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let start = memory.start + offset;
                        drop(SharedBuffer::adopt("test-adoption", start, half).unwrap());
                        moves.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // Eight bytes across the boundary, and the counter of the handlers behind them.
            let across = address_of(memory.start + half - 4).cast::<u64>();
            let mut value = 0_u64;
            let many = |count: &AtomicU64| count.load(Ordering::Relaxed) > 200;
            while !moves.iter().all(many) || !many(&HANDLED) {
                value = value.wrapping_add(0x1_0000_0001);
                // SAFETY: memory of this test, to which only this thread stores.
                let seen = unsafe {
                    across.write_unaligned(value);
                    across.read_unaligned()
                };
                assert_eq!(core::hint::black_box(seen), value);
            }
            over.store(true, Ordering::Relaxed);
        });
        // SAFETY: takes the handler out.
        unsafe { libc::signal(libc::SIGALRM, libc::SIG_IGN) };
        let counted = memory.word(half + 8).load(Ordering::Relaxed);
        assert!(counted > 100 && counted == HANDLED.load(Ordering::Relaxed), "{counted}");
    });
}
