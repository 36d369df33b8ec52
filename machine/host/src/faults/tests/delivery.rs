//! Which faults reach the handler, which go elsewhere, and what they leave unchanged.
#![allow(unsafe_code)]

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::conformance::{Fixture, each, serve};
use super::*;
use crate::page::PAGE_BYTES;
use crate::testing::{child, free_base, in_child};

#[test]
fn a_fault_outside_of_the_watched_range_kills_as_ever() {
    each(|backend| {
        let (status, text) = child(&backend.to_string(), || {
            let fixture = Fixture::new(backend, "others");
            let _watch = fixture.watch();
            fixture.store(0, 0, 1);
            println!("so far, so good");
            // SAFETY: meant to fault: page 0 is never mapped.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        });
        if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
            assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
            assert!(text.contains("so far, so good"), "{text}");
        }
    });
}

#[test]
fn a_forked_child_has_no_views_and_says_so_where_it_touches_one() {
    each(|backend| {
        let (status, text) = child(&backend.to_string(), || {
            let fixture = Fixture::new(backend, "fork");
            let _watch = fixture.watch();
            fixture.store(0, 0, 1);
            // SAFETY: the child does nothing but fault.
            let status = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    fixture.store(0, 0, 9);
                    libc::_exit(0);
                }
                let mut status = 0;
                libc::waitpid(pid, &raw mut status, 0);
                std::process::ExitStatus::from_raw(status)
            };
            assert_eq!(status.signal(), Some(libc::SIGSEGV));
            assert_eq!(fixture.faults(), (0, 1));
            assert_eq!(fixture.load(0, 0), 1);
        });
        if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
            assert!(status.success(), "{status}: {text}");
            let lines = text.lines().filter(|line| line.contains("mapwire: "));
            let lines: Vec<_> = lines.collect();
            assert!(
                matches!(&lines[..], [line] if line.contains("a child by fork() does not have") && line.contains("spawn")),
                "{text}"
            );
        }
    });
}

#[test]
fn a_handler_that_was_there_before_gets_the_other_faults_and_is_there_after() {
    static CAUGHT: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn earlier(_: i32, info: *mut libc::siginfo_t, _: *mut core::ffi::c_void) {
        // SAFETY: a fault's siginfo has an address; the range was mapped by the test.
        unsafe {
            let page = (*info).si_addr().addr() & !(PAGE_BYTES - 1);
            CAUGHT.store(page, Ordering::SeqCst);
            libc::mprotect(std::ptr::without_provenance_mut(page), PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE);
        }
    }
    // In a child of its own, since handlers belong to the whole process.
    in_child("faults", || {
        // SAFETY: zero is valid for every field: integers, bits and an optional pointer.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = earlier as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: installs a handler of the right type; maps fresh memory.
        let page = unsafe {
            assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
            .cast::<u8>()
        };
        let fixture = Fixture::new(FaultBackend::Sigsegv, "earlier");
        let watch = fixture.watch();
        fixture.store(0, 0, 1);
        assert_eq!(CAUGHT.load(Ordering::SeqCst), 0);
        // SAFETY: the earlier handler opens the page.
        unsafe { page.write_volatile(1) };
        assert_eq!(CAUGHT.load(Ordering::SeqCst), page.addr());
        drop(watch);
        // SAFETY: as above.
        let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: reads the present action.
        unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut now) };
        assert_eq!(now.sa_sigaction, action.sa_sigaction);
    });
}

#[test]
fn a_handler_that_refuses_leaves_the_fault_to_kill_the_process() {
    each(|backend| {
        let (status, text) = child(&backend.to_string(), || {
            let fixture = Fixture::new(backend, "refuse");
            let layout = *fixture.protection.views.layout();
            let refuse: FaultHandler = |_| Resolution::Refuse;
            let _watch = watch(layout.views_range(), backend.signal(), 0, refuse).unwrap();
            fixture.load(0, 0);
        });
        if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
            assert_eq!(status.signal(), Some(backend.signal().number()), "{backend}: {text}");
        }
    });
}

#[test]
fn errno_survives_a_fault() {
    each(|backend| {
        let fixture = Fixture::new(backend, "errno");
        let clobber: FaultHandler = |fault| {
            // SAFETY: errno is a word of this thread.
            unsafe { *libc::__errno_location() = 77 };
            serve(fault)
        };
        let _watch = watch(
            fixture.protection.views.layout().views_range(),
            backend.signal(),
            std::ptr::from_ref(&*fixture).expose_provenance(),
            clobber,
        )
        .unwrap();
        // SAFETY: errno is a word of this thread.
        unsafe { *libc::__errno_location() = 5 };
        fixture.store(0, 0, 1);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 5);
    });
}

#[test]
fn overlapping_and_empty_watches_are_refused() {
    let handler: FaultHandler = |_| Resolution::Refuse;
    let base = free_base();
    let _first = watch(base..base + 100, FaultSignal::Bus, 0, handler).unwrap();
    let error = watch(base + 50..base + 150, FaultSignal::Bus, 0, handler).unwrap_err();
    assert!(matches!(error, WatchError::Overlap { .. }), "{error}");
    assert!(matches!(watch(base..base, FaultSignal::Bus, 0, handler), Err(WatchError::Empty { .. })));
}
