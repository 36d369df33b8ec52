//! One suite for both backends: real faults, served by a handler that consults an oracle.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::*;
use crate::page::PAGE_BYTES;
use crate::testing::{count_of, free_base, in_child};
use crate::views::ViewLayout;

const VIEWS: usize = 3;
const PAGES: usize = 16;

/// Views under protection, with a handler that opens what was requested and records it.
pub(super) struct Fixture {
    pub(super) protection: PageProtection,
    /// The handler's view of each page's access, of each view: 0, 1, 2 as `Access`.
    state: Vec<AtomicUsize>,
    loads: AtomicU64,
    stores: AtomicU64,
    last: AtomicUsize,
    spin: std::sync::atomic::AtomicBool,
}

const ACCESSES: [Access; 3] = [Access::None, Access::Read, Access::Write];

impl Fixture {
    pub(super) fn new(backend: FaultBackend, name: &str) -> Box<Self> {
        let layout = ViewLayout::new(free_base(), PAGES * PAGE_BYTES, VIEWS).unwrap();
        let views = Arc::new(MultiView::new(name, layout).unwrap());
        Box::new(Self {
            protection: PageProtection::new(backend, views).unwrap(),
            state: (0..VIEWS * PAGES).map(|_| AtomicUsize::new(0)).collect(),
            loads: AtomicU64::new(0),
            stores: AtomicU64::new(0),
            last: AtomicUsize::new(0),
            spin: false.into(),
        })
    }

    pub(super) fn watch(&self) -> Watch {
        watch(
            self.protection.views.layout().views_range(),
            self.protection.backend().signal(),
            std::ptr::from_ref(self).addr(),
            serve,
        )
        .unwrap()
    }

    pub(super) fn address(&self, view: usize, page: usize, offset: usize) -> *mut u64 {
        self.protection.views.application(view, page * PAGE_BYTES + offset).cast()
    }

    pub(super) fn load(&self, view: usize, page: usize) -> u64 {
        // SAFETY: mapped; the handler opens it.
        unsafe { self.address(view, page, 64).read_volatile() }
    }

    pub(super) fn store(&self, view: usize, page: usize, value: u64) {
        // SAFETY: mapped; the handler opens it.
        unsafe { self.address(view, page, 64).write_volatile(value) }
    }

    pub(super) fn faults(&self) -> (u64, u64) {
        (self.loads.load(Ordering::SeqCst), self.stores.load(Ordering::SeqCst))
    }

    fn access(&self, view: usize, page: usize) -> Access {
        ACCESSES[self.state[view * PAGES + page].load(Ordering::SeqCst)]
    }

    /// Sets pages that need not all have the same access now.
    fn set(&self, view: usize, first: usize, pages: usize, to: Access) {
        let from = self.access(view, first);
        self.protection.set(view, first, pages, from, to).unwrap();
        for page in first..first + pages {
            self.state[view * PAGES + page].store(to as usize, Ordering::SeqCst);
        }
    }
}

/// Opens the faulting page for the access that was made.
pub(super) fn serve(fault: &FaultInfo) -> Resolution {
    // SAFETY: the context is a `Fixture` that outlives its watch.
    let fixture = unsafe { &*std::ptr::with_exposed_provenance::<Fixture>(fault.context) };
    let (view, offset) = fixture.protection.views.locate(fault.address).unwrap();
    let page = offset / PAGE_BYTES;
    fixture.last.store(fault.address, Ordering::SeqCst);
    let to = match fault.kind {
        FaultKind::Write => Access::Write,
        FaultKind::Read | FaultKind::Unknown => Access::Read,
    };
    let counter = if to == Access::Write { &fixture.stores } else { &fixture.loads };
    counter.fetch_add(1, Ordering::SeqCst);
    let state = &fixture.state[view * PAGES + page];
    // Several threads may have faulted on the page: one opens it, the others look again.
    const BUSY: usize = 3;
    let from = loop {
        let from = state.load(Ordering::SeqCst);
        if from == BUSY {
            if fixture.spin.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            continue;
        }
        if state.compare_exchange(from, BUSY, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            break from;
        }
    };
    let from_access = ACCESSES[from];
    let to = to.max(from_access);
    let done = fixture.protection.set(view, page, 1, from_access, to);
    state.store(if done.is_ok() { to as usize } else { from }, Ordering::SeqCst);
    if done.is_ok() { Resolution::Retry } else { Resolution::Refuse }
}

pub(super) fn each(test: impl Fn(FaultBackend)) {
    for backend in FaultBackend::ALL {
        test(backend);
    }
}

#[test]
fn a_load_and_then_a_store_fault_once_each_and_the_exact_address_is_told() {
    each(|backend| {
        let fixture = Fixture::new(backend, "exact");
        let _watch = fixture.watch();
        assert_eq!(fixture.load(1, 2), 0);
        assert_eq!(fixture.faults(), (1, 0), "{backend}");
        assert_eq!(fixture.last.load(Ordering::SeqCst), fixture.address(1, 2, 64).addr());
        fixture.store(1, 2, 7);
        assert_eq!(fixture.faults(), (1, 1), "{backend}");
        fixture.store(1, 2, 8);
        assert_eq!(fixture.load(1, 2), 8);
        assert_eq!(fixture.faults(), (1, 1), "{backend}");
        // A store to a closed page is one fault, not two.
        fixture.store(2, 3, 9);
        assert_eq!(fixture.faults(), (1, 2), "{backend}");
    });
}

#[test]
fn what_one_view_stores_the_others_and_the_privileged_view_load() {
    each(|backend| {
        let fixture = Fixture::new(backend, "same");
        let _watch = fixture.watch();
        fixture.store(0, 5, 0xfeed);
        assert_eq!(fixture.load(1, 5), 0xfeed);
        let privileged = fixture.protection.views.privileged(5 * PAGE_BYTES + 64, 8).unwrap().cast::<u64>();
        // SAFETY: the privileged view is always open.
        unsafe {
            assert_eq!(privileged.read_volatile(), 0xfeed);
            privileged.write_volatile(0xbeef);
        }
        assert_eq!(fixture.load(0, 5), 0xbeef);
        assert_eq!(fixture.load(1, 5), 0xbeef);
        // Page 5 of view 2 was never opened, whatever happened to the same memory elsewhere.
        let before = fixture.faults();
        assert_eq!(fixture.load(2, 5), 0xbeef);
        assert_eq!(fixture.faults(), (before.0 + 1, before.1));
    });
}

/// Every access is tried after every change, and must fault exactly if the oracle says so.
#[test]
fn any_order_of_changes_faults_exactly_where_the_oracle_says() {
    each(|backend| {
        let fixture = Fixture::new(backend, "oracle");
        let _watch = fixture.watch();
        let mut value = [0u64; PAGES];
        for seed in [1u64, 2, 3] {
            let mut random = seed;
            let mut draw = |below: usize| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) as usize % below
            };
            for step in 0..4000 {
                let (view, page) = (draw(VIEWS), draw(PAGES));
                let context = || format!("{backend}, seed {seed}, step {step}, {view}/{page}");
                match draw(4) {
                    0 => {
                        let to = ACCESSES[draw(3)];
                        // A run of pages of one access.
                        let from = fixture.access(view, page);
                        let most = (page..PAGES).take_while(|page| fixture.access(view, *page) == from).count();
                        fixture.set(view, page, 1 + draw(most), to);
                    }
                    1 => {
                        // Setting the same access changes nothing.
                        let now = fixture.access(view, page);
                        fixture.set(view, page, 1, now);
                    }
                    2 => {
                        let before = fixture.faults();
                        let must = fixture.access(view, page) == Access::None;
                        assert_eq!(fixture.load(view, page), value[page], "{}", context());
                        let after = fixture.faults();
                        assert_eq!(after, (before.0 + u64::from(must), before.1), "{}", context());
                    }
                    _ => {
                        let before = fixture.faults();
                        let must = fixture.access(view, page) != Access::Write;
                        value[page] += 1;
                        fixture.store(view, page, value[page]);
                        let after = fixture.faults();
                        assert_eq!(after, (before.0, before.1 + u64::from(must)), "{}", context());
                    }
                }
            }
        }
    });
}

#[test]
fn threads_that_fault_at_once_on_the_same_and_on_different_pages_all_go_on() {
    each(|backend| {
        let fixture = Fixture::new(backend, "threads");
        let _watch = fixture.watch();
        let fixture = &*fixture;
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                scope.spawn(move || {
                    for round in 0..300 {
                        for page in 0..PAGES {
                            let cell = fixture.address(thread % VIEWS, page, 8 * thread);
                            // SAFETY: mapped, aligned; only this thread uses the cell.
                            unsafe {
                                let cell = AtomicU64::from_ptr(cell);
                                assert_eq!(cell.load(Ordering::SeqCst), round);
                                cell.store(round + 1, Ordering::SeqCst);
                            }
                        }
                        if round % 3 == 0 {
                            // Close pages while others use them, by the same handshake.
                            for page in 0..PAGES {
                                let state = &fixture.state[(thread % VIEWS) * PAGES + page];
                                let from = state.load(Ordering::SeqCst);
                                if from < 3
                                    && state.compare_exchange(from, 3, Ordering::SeqCst, Ordering::SeqCst).is_ok()
                                {
                                    fixture
                                        .protection
                                        .set(thread % VIEWS, page, 1, ACCESSES[from], Access::None)
                                        .unwrap();
                                    state.store(0, Ordering::SeqCst);
                                }
                            }
                        }
                    }
                });
            }
        });
        assert!(fixture.faults().0 + fixture.faults().1 > 0);
    });
}

#[test]
fn a_page_whose_table_entry_the_kernel_dropped_is_opened_again() {
    each(|backend| {
        let fixture = Fixture::new(backend, "dropped");
        let _watch = fixture.watch();
        for to in [Access::Read, Access::Write] {
            fixture.store(0, 1, 5);
            fixture.set(0, 1, 1, to);
            // What memory pressure does to a page table entry.
            let start = fixture.protection.views.layout().view_range(0).start;
            fixture.protection.views.zap(start + PAGE_BYTES..start + 2 * PAGE_BYTES).unwrap();
            assert_eq!(fixture.load(0, 1), 5);
            let before = fixture.faults();
            fixture.store(0, 1, 6);
            let must = u64::from(to == Access::Read);
            assert_eq!(fixture.faults().1 - before.1, must, "{backend} {to:?}");
            assert_eq!(fixture.load(0, 1), 6);
        }
    });
}

/// Locks a view as `mlockall` does.
fn lock_all(fixture: &Fixture, view: usize) {
    let views = &fixture.protection.views;
    let start = views.application(view, 0);
    // SAFETY: the views stay mapped; locking changes no contents.
    let locked = unsafe { rustix::mm::mlock(start.cast(), PAGES * PAGE_BYTES) };
    // Closed pages cannot be made present, which `mlockall` does not report. The range is locked nevertheless.
    assert!(matches!(
        locked,
        Ok(()) | Err(rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN | rustix::io::Errno::FAULT)
    ));
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let of_view = smaps.split_once(&format!("{:x}-", start.addr())).unwrap().1;
    let flags = of_view.lines().find(|line| line.starts_with("VmFlags:"));
    assert!(flags.unwrap().contains(" lo"), "{flags:?}");
}

#[test]
fn pages_of_views_that_the_program_locks_in_memory_close_and_open_as_others() {
    each(|backend| {
        let fixture = Fixture::new(backend, "locked");
        let _watch = fixture.watch();
        fixture.store(0, 1, 5);
        // The program may lock it again at any time.
        for value in 6..9 {
            lock_all(&fixture, 0);
            let before = fixture.faults();
            fixture.set(0, 0, PAGES, Access::None);
            assert_eq!(fixture.load(0, 1), value - 1, "{backend}");
            fixture.store(0, 1, value);
            let after = fixture.faults();
            assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1));
            assert_eq!(fixture.load(0, 2), 0);
            lock_all(&fixture, 0);
            fixture.set(0, 1, 1, Access::Read);
            fixture.store(0, 1, value);
            assert_eq!(fixture.faults().1 - after.1, 1, "{backend}");
            fixture.set(0, 0, PAGES, Access::Read);
        }
    });
}

#[test]
fn a_run_that_is_partly_open_already_ends_up_as_asked() {
    each(|backend| {
        let fixture = Fixture::new(backend, "partly");
        let _watch = fixture.watch();
        fixture.load(0, 3);
        fixture.store(0, 7, 1);
        for (to, loads, stores) in [(Access::Read, 0, PAGES), (Access::Write, 0, 0)] {
            fixture.protection.set(0, 0, PAGES, Access::None, to).unwrap();
            (0..PAGES).for_each(|page| {
                fixture.state[page].store(to as usize, Ordering::SeqCst);
            });
            let before = fixture.faults();
            (0..PAGES).for_each(|page| {
                fixture.load(0, page);
            });
            (0..PAGES).for_each(|page| fixture.store(0, page, 2));
            let after = fixture.faults();
            assert_eq!((after.0 - before.0, after.1 - before.1), (loads, stores as u64));
        }
    });
}

#[test]
fn pages_outside_of_a_view_are_refused_by_name() {
    each(|backend| {
        let fixture = Fixture::new(backend, "outside");
        for (view, page, pages) in [(VIEWS, 0, 1), (0, PAGES, 1), (0, 0, 0), (0, 1, usize::MAX)] {
            let error = fixture.protection.set(view, page, pages, Access::None, Access::Read).unwrap_err();
            assert!(matches!(error, ProtectionError::OutOfRange { .. }), "{error}");
            assert!(error.to_string().contains("3 views of 16 pages"), "{error}");
        }
    });
}

#[test]
fn nothing_is_left_mapped_or_open_when_all_is_dropped() {
    each(|backend| {
        for _ in 0..3 {
            let fixture = Fixture::new(backend, "leaktest");
            let watch = fixture.watch();
            fixture.store(0, 0, 1);
            assert!(count_of("leaktest").0 > VIEWS);
            drop(watch);
            drop(fixture);
            assert_eq!(count_of("leaktest"), (0, 0), "{backend}");
        }
    });
}

#[test]
fn a_system_call_on_a_closed_page_fails_with_efault_instead_of_faulting() {
    each(|backend| {
        let fixture = Fixture::new(backend, "efault");
        let _watch = fixture.watch();
        // SAFETY: getrandom writes to the page, or finds that it may not.
        let filled = unsafe { libc::getrandom(fixture.address(0, 0, 0).cast(), 8, 0) };
        assert_eq!(filled, -1, "{backend}");
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
        assert_eq!(fixture.faults(), (0, 0));
    });
}

#[test]
fn a_refused_userfaultfd_names_what_was_tried_and_the_way_around() {
    let layout = ViewLayout::new(free_base(), PAGE_BYTES, 1).unwrap();
    let views = Arc::new(MultiView::new("refused", layout).unwrap());
    let refused: Opener = || Err((rustix::io::Errno::ACCESS, rustix::io::Errno::PERM));
    let error = PageProtection::with_opener(FaultBackend::Userfaultfd, Arc::clone(&views), refused).unwrap_err();
    let text = error.to_string();
    for word in
        ["/dev/userfaultfd", "Permission denied", "not permitted", "unprivileged_userfaultfd", "MAPWIRE_FAULTS=sigsegv"]
    {
        assert!(text.contains(word), "{text}");
    }
    // Something that is not a userfaultfd.
    let wrong: Opener = || Ok(rustix::fs::memfd_create("wrong", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    assert!(matches!(
        PageProtection::with_opener(FaultBackend::Userfaultfd, views, wrong),
        Err(ProtectionError::System { .. })
    ));
}

#[test]
fn both_backends_work_without_any_privilege() {
    in_child("faults", || {
        crate::testing::drop_privileges();
        each(|backend| {
            assert_eq!(probe(backend), Ok(()), "{backend}");
            let fixture = Fixture::new(backend, "unprivileged");
            let _watch = fixture.watch();
            fixture.store(0, 0, 1);
            assert_eq!(fixture.load(1, 0), 1);
        });
    });
}

#[test]
fn every_backend_reads_back_as_it_prints() {
    for backend in FaultBackend::ALL {
        assert_eq!(backend.to_string().parse(), Ok(backend));
    }
    assert!("magic".parse::<FaultBackend>().unwrap_err().to_string().contains("sigsegv"));
}

#[test]
fn a_userfaultfd_that_the_kernel_refuses_leaves_the_other_backend() {
    in_child("seccomp", || {
        crate::testing::drop_privileges();
        crate::testing::refuse_call(libc::SYS_userfaultfd);
        let [userfaultfd, sigsegv] = FaultBackend::ALL.map(probe);
        // Where everybody may open the device, the system call is not needed.
        if std::fs::OpenOptions::new().read(true).write(true).open(DEVICE).is_err() {
            let text = userfaultfd.unwrap_err();
            assert!(text.contains("Permission denied") && text.contains("not permitted"), "{text}");
            let layout = ViewLayout::new(free_base(), PAGE_BYTES, 1).unwrap();
            let views = Arc::new(MultiView::new("best", layout).unwrap());
            let best = PageProtection::best(views).unwrap();
            assert_eq!(best.backend(), FaultBackend::Sigsegv);
        } else {
            mapwire_testing::skip!("every user may open {DEVICE}");
        }
        assert_eq!(sigsegv, Ok(()));
    });
}

#[test]
fn mprotect_names_the_limit_of_ranges_and_userfaultfd_needs_none() {
    in_child("ranges", || {
        let pages = crate::limits::max_map_count().unwrap() as usize;
        let layout = ViewLayout::new(free_base(), pages * PAGE_BYTES, 2).unwrap();
        let alternate = |protection: &PageProtection| {
            (0..pages).step_by(2).try_for_each(|page| protection.set(0, page, 1, Access::None, Access::Read))
        };
        {
            let views = Arc::new(MultiView::new("ranges", layout).unwrap());
            let protection = PageProtection::new(FaultBackend::Userfaultfd, views).unwrap();
            assert_eq!(alternate(&protection), Ok(()));
            // The privileged view, the two others and the status.
            assert_eq!(count_of("mapwire:ranges").0, 4);
        }
        let views = Arc::new(MultiView::new("ranges", layout).unwrap());
        let protection = PageProtection::new(FaultBackend::Sigsegv, views).unwrap();
        let error = alternate(&protection).unwrap_err();
        for word in ["vm.max_map_count=", &pages.to_string(), "MAPWIRE_FAULTS=userfaultfd"] {
            assert!(error.to_string().contains(word), "{error}");
        }
        // Nor is there room for further views.
        let next = ViewLayout::new(free_base(), PAGE_BYTES, 1).unwrap();
        let error = MultiView::new("more", next).unwrap_err();
        assert!(error.to_string().contains("sysctl vm.max_map_count="), "{error}");
    });
}
