//! The program's view of its memory while it is adopted, and after.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use super::*;
use crate::maps::Maps;
use crate::memory::{MappedBuffer, SharedBuffer, Writers};
use crate::testing::{child, in_child, lower_limit, store_word};

mod trouble;

const PAGE: usize = PAGE_BYTES;

/// Private memory of the test, unmapped at its end.
struct Private {
    start: usize,
    bytes: usize,
}

impl Private {
    fn new(bytes: usize) -> Self {
        Self::with(bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    fn with(bytes: usize, flags: MapFlags) -> Self {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks unused address space.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, rights, flags) }.unwrap();
        Self { start: start.expose_provenance(), bytes }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.bytes);
        // SAFETY: an aligned word of this memory, which is only reached by atomics.
        unsafe { AtomicU64::from_ptr(address_of(self.start + offset).cast()) }
    }

    fn fill(&self) {
        for at in (0..self.bytes).step_by(8) {
            self.word(at).store(!(at as u64), Ordering::Relaxed);
        }
    }

    fn is_filled(&self) -> bool {
        (0..self.bytes).step_by(8).all(|at| self.word(at).load(Ordering::Relaxed) == !(at as u64))
    }

    fn adopt(&self) -> Result<SharedBuffer, MemoryError> {
        SharedBuffer::adopt("test-adoption", self.start, self.bytes)
    }

    fn range(&self) -> MappedRange {
        Maps::default().at_or_after(self.start).unwrap()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: memory of this value.
        unsafe { rustix::mm::munmap(address_of(self.start), self.bytes) }.unwrap();
    }
}

fn import(buffer: &mut SharedBuffer) -> MappedBuffer {
    let bytes = buffer.len();
    buffer.share(Writers::All).unwrap();
    let (file, status) = buffer.descriptors().unwrap();
    let own = |fd: std::os::fd::BorrowedFd<'_>| -> OwnedFd { fd.try_clone_to_owned().unwrap() };
    MappedBuffer::map(own(file), own(status), 0..bytes, true).unwrap()
}

#[test]
fn memory_keeps_its_bytes_and_its_place_and_importers_store_into_it() {
    for pages in [1, 3, 700] {
        let memory = Private::new(pages * PAGE);
        memory.fill();
        let mut buffer = memory.adopt().unwrap();
        assert!(memory.is_filled() && memory.range().shared);
        assert_eq!((buffer.as_ptr().addr(), buffer.len()), (memory.start, memory.bytes));
        let peer = import(&mut buffer);
        assert!(store_word(&peer, PAGE - 8, 7));
        assert_eq!(memory.word(PAGE - 8).load(Ordering::Acquire), 7);
        memory.word(0).store(8, Ordering::Release);
        let mut seen = [0; 8];
        peer.read(0, &mut seen).unwrap();
        assert_eq!(seen, 8_u64.to_ne_bytes());

        buffer.revoke().unwrap();
        assert!(peer.revoked() && !memory.range().shared);
        assert!(store_word(&peer, PAGE - 8, 9));
        assert_eq!(memory.word(PAGE - 8).load(Ordering::Acquire), 7);
        memory.word(0).store(!0, Ordering::Relaxed);
        memory.word(PAGE - 8).store(!(PAGE as u64 - 8), Ordering::Relaxed);
        assert!(memory.is_filled());
        // Dropped after that, it leaves the memory alone.
        drop(buffer);
        assert!(memory.is_filled());
    }
}

#[test]
fn only_whole_pages_of_heap_and_statics_are_adopted_and_may_be_again() {
    static STATICS: [AtomicU64; 4096] = [const { AtomicU64::new(5) }; 4096];
    let heap: Vec<AtomicU64> = (0..100_000).map(AtomicU64::new).collect();
    for words in [&STATICS[1..], &heap[1..]] {
        let before: Vec<u64> = words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        for _ in 0..3 {
            let address = words.as_ptr().expose_provenance();
            let bytes = size_of_val(words);
            let mut buffer = SharedBuffer::adopt("test-adoption", address, bytes).unwrap();
            assert!(buffer.as_ptr().addr() >= address && buffer.as_ptr().addr().is_multiple_of(PAGE));
            assert!(buffer.len() > bytes - 2 * PAGE && buffer.len() <= bytes);
            let peer = import(&mut buffer);
            let word = (buffer.as_ptr().addr() - address) / 8;
            assert!(store_word(&peer, 0, 77));
            assert_eq!(words[word].load(Ordering::Acquire), 77);
            words[word].store(before[word], Ordering::Relaxed);
        }
        let after: Vec<u64> = words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        assert_eq!(before, after);
    }
}

#[test]
fn no_store_of_another_thread_is_lost_while_memory_moves() {
    let memory = Private::new(64 * PAGE);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counts: Vec<_> = (0..2)
            .map(|thread| {
                let (memory, over) = (&memory, &over);
                scope.spawn(move || {
                    let mut stored = 0;
                    while !over.load(Ordering::Relaxed) {
                        stored += 1;
                        // A plain load and store: a lost one is missed by the next.
                        for page in 0..64 {
                            let word = memory.word(page * PAGE + thread * 8);
                            let before = word.load(Ordering::Relaxed);
                            assert_eq!(before, stored - 1, "page {page}");
                            word.store(stored, Ordering::Relaxed);
                        }
                    }
                    stored
                })
            })
            .collect();
        let begun = std::time::Instant::now();
        let mut moves = 0;
        while moves < 300 && begun.elapsed().as_secs() < 20 {
            let mut buffer = memory.adopt().unwrap();
            import(&mut buffer);
            drop(buffer);
            moves += 1;
        }
        over.store(true, Ordering::Relaxed);
        for (thread, count) in counts.into_iter().enumerate() {
            let count = count.join().unwrap();
            assert!(count > 0);
            for page in 0..64 {
                let word = memory.word(page * PAGE + thread * 8);
                assert_eq!(word.load(Ordering::Relaxed), count);
            }
        }
    });
}

#[test]
fn a_store_to_constant_memory_kills_as_ever_after_an_adoption() {
    let (status, text) = child("constant", || {
        let memory = Private::new(2 * PAGE);
        drop(memory.adopt().unwrap());
        // SAFETY: a page of this test.
        unsafe { rustix::mm::mprotect(address_of(memory.start), PAGE, MprotectFlags::READ) }.unwrap();
        println!("so far, so good");
        memory.word(0).store(1, Ordering::Relaxed);
    });
    if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
        assert!(text.contains("so far, so good"), "{text}");
    }
}

#[test]
fn a_forked_child_has_the_memory_for_itself() {
    in_child("fork", || {
        let memory = Private::new(3 * PAGE);
        memory.fill();
        let mut buffer = memory.adopt().unwrap();
        let peer = import(&mut buffer);
        // SAFETY: the child stores to its memory, drops a value and ends.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let sees = memory.is_filled();
                memory.word(0).store(1, Ordering::Relaxed);
                drop(buffer);
                libc::_exit(i32::from(!sees || memory.range().shared));
            }
            let mut status = 0;
            libc::waitpid(pid, &raw mut status, 0);
            std::process::ExitStatus::from_raw(status)
        };
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(memory.is_filled() && memory.range().shared && !peer.revoked());
        assert!(store_word(&peer, 0, 4));
        assert_eq!(memory.word(0).load(Ordering::Acquire), 4);
    });
}

#[test]
fn threads_fork_while_memory_moves() {
    in_child("forks", || {
        let memory = Private::new(512 * PAGE);
        memory.fill();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    drop(memory.adopt().unwrap());
                }
            });
            for _ in 0..100 {
                // SAFETY: the child looks at its memory, stores to it and ends.
                let status = unsafe {
                    let pid = libc::fork();
                    if pid == 0 {
                        let sees = memory.is_filled();
                        memory.word(8).store(1, Ordering::Relaxed);
                        libc::_exit(i32::from(!sees || memory.range().shared));
                    }
                    let mut status = 0;
                    libc::waitpid(pid, &raw mut status, 0);
                    std::process::ExitStatus::from_raw(status)
                };
                assert_eq!(status.code(), Some(0), "{status}");
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(memory.is_filled());
    });
}

#[test]
fn locked_memory_stays_locked() {
    fn is_locked_now(memory: &Private) -> bool {
        is_locked(memory.start, memory.bytes)
    }
    let memory = Private::new(4 * PAGE);
    memory.fill();
    assert!(!is_locked_now(&memory));
    // SAFETY: keeps pages in memory.
    if unsafe { rustix::mm::mlock(address_of(memory.start), memory.bytes) }.is_err() {
        mapwire_testing::skip!("this process may lock no memory");
        return;
    }
    assert!(is_locked_now(&memory));
    let buffer = memory.adopt().unwrap();
    assert!(memory.range().shared && is_locked_now(&memory));
    drop(buffer);
    assert!(!memory.range().shared && is_locked_now(&memory));
    assert!(memory.is_filled());
}

#[test]
fn what_the_program_unmaps_and_maps_anew_is_left_alone() {
    let memory = Private::new(6 * PAGE);
    memory.fill();
    let buffer = memory.adopt().unwrap();
    let over = |page: usize, flags| {
        // SAFETY: pages of this test.
        unsafe {
            rustix::mm::mmap_anonymous(
                address_of(memory.start + page * PAGE),
                PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                flags | MapFlags::FIXED,
            )
        }
        .unwrap();
    };
    over(1, MapFlags::PRIVATE);
    over(3, MapFlags::SHARED);
    memory.word(PAGE).store(1, Ordering::Relaxed);
    memory.word(3 * PAGE).store(3, Ordering::Relaxed);
    // SAFETY: a page of this test.
    unsafe { rustix::mm::munmap(address_of(memory.start + 5 * PAGE), PAGE) }.unwrap();
    drop(buffer);
    assert_eq!(memory.word(PAGE).load(Ordering::Relaxed), 1);
    assert_eq!(memory.word(3 * PAGE).load(Ordering::Relaxed), 3);
    for page in [0, 2, 4] {
        let word = memory.word(page * PAGE + 8).load(Ordering::Relaxed);
        assert_eq!(word, !(page as u64 * PAGE as u64 + 8));
    }
    let shared = |page: usize| {
        let range = Maps::default().at_or_after(memory.start + page * PAGE);
        range.unwrap().shared
    };
    assert!(!shared(0) && !shared(2) && shared(3) && !shared(4));
    over(5, MapFlags::PRIVATE);
}

#[test]
fn sparse_memory_stays_sparse_both_ways() {
    const BYTES: usize = 64 << 30;
    let resident = |start: usize| {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = format!("{start:x}-");
        let lines = text.lines().skip_while(|line| !line.starts_with(&begin));
        let rss = lines.skip(1).find_map(|line| line.strip_prefix("Rss:"));
        rss.unwrap().trim().trim_end_matches(" kB").parse::<u64>()
    };
    let memory = Private::new(BYTES);
    let places = [0, 5 * PAGE, BYTES / 2 + 8, BYTES - 8];
    for at in places {
        memory.word(at).store(at as u64 + 1, Ordering::Relaxed);
    }
    let intact = || {
        let same = |&at: &usize| memory.word(at).load(Ordering::Relaxed) == at as u64 + 1;
        places.iter().all(same)
    };
    let buffer = memory.adopt().unwrap();
    assert!(intact());
    drop(buffer);
    assert!(intact());
    assert!(resident(memory.start).unwrap() <= 4 * 2048);
}

#[test]
fn what_is_no_private_data_is_refused_with_its_reason() {
    let refused = |address, bytes, reason: &str| {
        let error = SharedBuffer::adopt("test-adoption", address, bytes).unwrap_err();
        assert!(matches!(error, MemoryError::NotAdoptable { .. }) && error.to_string().contains(reason), "{error}");
    };
    let memory = Private::new(8 * PAGE);
    refused(memory.start + 1, 2 * PAGE - 2, "without a whole page");
    refused(usize::MAX - 5, 20, "end of the address space");
    let local = [0_u8; 4 * PAGE];
    refused(local.as_ptr().expose_provenance(), local.len(), "on a stack");
    let shared = Private::with(2 * PAGE, MapFlags::SHARED);
    refused(shared.start, shared.bytes, "shared");
    let once = memory.adopt().unwrap();
    refused(memory.start + PAGE, 2 * PAGE, "exported already");
    drop(once);
    for (rights, reason) in [
        (MprotectFlags::READ, "loads and stores"),
        (MprotectFlags::empty(), "loads and stores"),
        (MprotectFlags::READ | MprotectFlags::WRITE | MprotectFlags::EXEC, "executable"),
    ] {
        let page = address_of(memory.start + 3 * PAGE);
        // SAFETY: a page of this test.
        unsafe { rustix::mm::mprotect(page, PAGE, rights) }.unwrap();
        refused(memory.start, memory.bytes, reason);
    }
    // SAFETY: a page of this test, which is mapped again.
    unsafe { rustix::mm::munmap(address_of(memory.start + 3 * PAGE), PAGE) }.unwrap();
    refused(memory.start, memory.bytes, "not all mapped");
}

#[test]
fn adoptions_leave_no_descriptor_and_no_mapping_and_stop_before_they_take_all() {
    in_child("many", || {
        lower_limit(rustix::process::Resource::Nofile, 1024);
        let memory = Private::new(2000 * PAGE);
        memory.fill();
        let mut buffers = Vec::new();
        let error = loop {
            let start = memory.start + buffers.len() * PAGE;
            match SharedBuffer::adopt("test-many", start, PAGE) {
                Ok(buffer) => buffers.push(buffer),
                Err(error) => break error,
            }
            assert!(buffers.len() < 2000, "the limit is 1024");
        };
        assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
        assert_eq!(buffers.len(), refusals::most_adoptions());
        drop(buffers);
        assert_eq!(crate::testing::count_of("test-many"), (0, 0));
        assert!(memory.is_filled());
    });
}

#[test]
fn advice_to_drop_pages_leaves_adopted_bytes() {
    let memory = Private::new(3 * PAGE);
    memory.fill();
    let buffer = memory.adopt().unwrap();
    let dropped =
        // SAFETY: memory of this test, reached by atomics only.
        unsafe { rustix::mm::madvise(address_of(memory.start), memory.bytes, Advice::LinuxDontNeed) };
    dropped.unwrap();
    assert!(memory.is_filled());
    drop(buffer);
    assert!(memory.is_filled());
}

#[test]
fn what_is_left_of_locked_memory_moves_back_and_what_replaced_the_rest_stays_unlocked() {
    let memory = Private::new(4 * PAGE);
    memory.fill();
    // SAFETY: keeps pages in memory.
    if unsafe { rustix::mm::mlock(address_of(memory.start), memory.bytes) }.is_err() {
        mapwire_testing::skip!("this process may lock no memory");
        return;
    }
    let mut buffer = memory.adopt().unwrap();
    let peer = import(&mut buffer);
    let place = address_of(memory.start + 3 * PAGE);
    // SAFETY: pages of this test, of which the last is mapped anew.
    unsafe {
        rustix::mm::munmap(address_of(memory.start + PAGE), PAGE).unwrap();
        rustix::mm::mmap_anonymous(
            place,
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED,
        )
        .unwrap();
    }
    buffer.revoke().unwrap();
    assert!(peer.revoked());
    assert!(is_locked(memory.start, PAGE) && is_locked(memory.start + 2 * PAGE, PAGE));
    assert!(!is_locked(memory.start + 3 * PAGE, PAGE));
}

#[test]
fn memory_is_locked_after_an_adoption_if_it_was_at_its_end() {
    let lock = |memory: &Private| {
        // SAFETY: keeps pages in memory.
        unsafe { rustix::mm::mlock(address_of(memory.start), memory.bytes) }
    };
    let memory = Private::new(2 * PAGE);
    let buffer = memory.adopt().unwrap();
    if lock(&memory).is_err() {
        mapwire_testing::skip!("this process may lock no memory");
        return;
    }
    drop(buffer);
    assert!(is_locked(memory.start, memory.bytes));
    let buffer = memory.adopt().unwrap();
    // SAFETY: changes no byte.
    unsafe { rustix::mm::munlock(address_of(memory.start), memory.bytes) }.unwrap();
    drop(buffer);
    assert!(!is_locked(memory.start, memory.bytes));
}

#[test]
fn a_forked_child_has_what_is_left_of_memory_that_was_mapped_and_adopted_anew_in_part() {
    in_child("anew", || {
        let memory = Private::new(4 * PAGE);
        let first = memory.adopt().unwrap();
        // SAFETY: a page of this test.
        unsafe {
            rustix::mm::mmap_anonymous(
                address_of(memory.start),
                PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
            )
        }
        .unwrap();
        drop(SharedBuffer::adopt("test-adoption", memory.start, PAGE).unwrap());
        // SAFETY: the child stores to its memory and ends.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                memory.word(2 * PAGE).store(1, Ordering::Relaxed);
                libc::_exit(0);
            }
            libc::waitpid(pid, ptr::null_mut(), 0);
        }
        assert_eq!(memory.word(2 * PAGE).load(Ordering::Relaxed), 0);
        drop(first);
    });
}

#[test]
fn memory_beyond_the_limit_on_files_is_refused_and_its_owner_lives() {
    let (status, text) = child("fsize", || {
        let memory = Private::new(64 * PAGE);
        memory.fill();
        let limit = libc::rlimit { rlim_cur: 32 * PAGE as u64, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: reads a valid structure.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
        let error = memory.adopt().unwrap_err();
        assert!(error.to_string().contains("RLIMIT_FSIZE"), "{error}");
        assert!(SharedBuffer::allocate("test", memory.bytes).is_err());
        assert!(SharedBuffer::adopt("test-adoption", memory.start, 32 * PAGE).is_ok());
        assert!(memory.is_filled());
        println!("lives");
    });
    if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
        assert!(status.success() && text.contains("lives"), "{status} {text}");
    }
}

#[test]
fn a_handler_forks_while_its_thread_asks_what_is_mapped() {
    static FORKED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn forks(_: i32) {
        // SAFETY: the child ends at once.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(0);
            }
            libc::waitpid(pid, ptr::null_mut(), 0);
        }
        FORKED.fetch_add(1, Ordering::Relaxed);
    }
    in_child("handler", || {
        let memory = Private::new(PAGE);
        let _buffer = memory.adopt().unwrap();
        // SAFETY: a handler of the right type.
        unsafe { libc::signal(libc::SIGALRM, forks as *const () as usize) };
        // SAFETY: all fields are integers.
        let mut once: libc::itimerval = unsafe { core::mem::zeroed() };
        once.it_value.tv_usec = 200;
        // Ends this process if it hangs where no handler could.
        std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(60));
            std::process::abort();
        });
        while FORKED.load(Ordering::Relaxed) < 200 {
            // Reset each time, so that something is queried between two forks however long these take.
            // SAFETY: a timer of this process.
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const once, ptr::null_mut()) };
            for _ in 0..1000 {
                crate::maps::check_memory(memory.start, PAGE, true).unwrap();
            }
        }
    });
}
