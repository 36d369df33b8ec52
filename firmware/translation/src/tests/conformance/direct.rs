//! The design alone: its host has installed everything beforehand, and pins nothing.

use super::{ONE, TWO, find, found, found_by_receive};
use crate::design::{HandleLookup, HostRequest, TranslationDesign, TranslationError};
use crate::page::{Frame, PAGE_NUMBER_END, Page, Process};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub(super) fn check<D: TranslationDesign>(make: &impl Fn() -> D) {
    unpinned_pages_live_in_the_garbage_frame(make);
    an_installed_page_is_found_and_found_again(make);
    installing_anew_replaces_the_frame(make);
    a_run_is_installed_whole_or_not_at_all(make);
    removing_makes_every_level_forget(make);
    processes_never_see_each_others_translations(make);
    closing_forgets_and_a_new_process_starts_empty(make);
    wrong_requests_are_refused_and_change_nothing(make);
    counters_add_up(make);
    asking_what_is_installed_leaves_no_trace(make);
    memory_is_listed_by_distinct_names(make);
    exports_are_found_by_receives(make);
    handles_are_there_once_the_host_has_brought_them(make);
}

fn opened<D: TranslationDesign>(make: &impl Fn() -> D) -> D {
    let mut design = make();
    design.open(ONE).expect("a first process can be opened");
    design.open(TWO).expect("a second process can be opened");
    design
}

fn unpinned_pages_live_in_the_garbage_frame<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    design.install(ONE, Page(8), Frame(80)).expect("install");
    for page in [0, 7, 9, 8 + 1024, 8 + (1 << 30), PAGE_NUMBER_END - 1, PAGE_NUMBER_END + 8, u64::MAX] {
        for _ in 0..2 {
            assert_eq!(found(&mut design, ONE, Page(page)), Frame::GARBAGE, "page {page:#x} is not pinned");
        }
    }
    for process in [Process(2), Process(u16::MAX)] {
        assert_eq!(found(&mut design, process, Page(8)), Frame::GARBAGE, "{process} is not open");
    }
}

fn an_installed_page_is_found_and_found_again<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    for page in [Page(0), Page(1), Page(1023), Page(1024), Page(PAGE_NUMBER_END - 1)] {
        let frame = Frame(page.0 ^ 0x5555);
        design.install(ONE, page, frame).expect("install");
        assert_eq!(found(&mut design, ONE, page), frame, "first lookup of {page}");
        let again = find(&mut design, ONE, page);
        assert_eq!(again.frame, frame, "second lookup of {page}");
        assert!(!again.missed, "the second lookup in a row of {page} hits");
        assert!(design.is_cached(ONE, page), "what hits is cached");
    }
}

fn installing_anew_replaces_the_frame<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    for frame in [Frame(1), Frame(2), Frame::GARBAGE, Frame(3), Frame(0)] {
        design.install(ONE, Page(9), frame).expect("install");
        assert_eq!(found(&mut design, ONE, Page(9)), frame);
    }
}

fn a_run_is_installed_whole_or_not_at_all<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    design.install(ONE, Page(21), Frame(1)).expect("install");
    let frames: Vec<_> = (0..40).map(|n| Frame(200 + n)).collect();
    design.install_run(ONE, Page(20), &frames).expect("install a run");
    for n in 0..40 {
        assert_eq!(found(&mut design, ONE, Page(20 + n)), Frame(200 + n));
    }
    let top = Page(PAGE_NUMBER_END - 20);
    let refused = design.install_run(ONE, top, &frames);
    assert!(matches!(refused, Err(TranslationError::Range(_))), "{refused:?}");
    for n in 0..20 {
        let page = Page(top.0 + n);
        assert_eq!(design.installed(ONE, page), Frame::GARBAGE, "{page} of a run that was refused");
    }
}

fn exports_are_found_by_receives<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    for page in [Page(5), Page(6)] {
        let frame = Frame(page.0 * 10);
        design.install(ONE, page, frame).expect("install");
        design.install_receive(ONE, page, frame).expect("install an export");
        for _ in 0..2 {
            assert_eq!(found_by_receive(&mut design, ONE, page), frame);
        }
        assert_eq!(found_by_receive(&mut design, TWO, page), Frame::GARBAGE);
    }
    design.remove(ONE, Page(5)).expect("remove");
    assert_eq!(found_by_receive(&mut design, ONE, Page(5)), Frame::GARBAGE);
    assert_eq!(found_by_receive(&mut design, ONE, Page(6)), Frame(60));
    assert_eq!(found_by_receive(&mut design, ONE, Page(u64::MAX)), Frame::GARBAGE);
    design.close(ONE).expect("close");
    assert_eq!(found_by_receive(&mut design, ONE, Page(6)), Frame::GARBAGE);
}

fn handles_are_there_once_the_host_has_brought_them<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    for buffer in [7, 8, u32::MAX] {
        if let HandleLookup::Host(request) = design.lookup_buffer(ONE, buffer) {
            let process = ONE;
            assert_eq!(request, HostRequest::FillBuffer { process, buffer });
            assert_eq!(design.lookup_buffer(ONE, buffer), HandleLookup::Host(request));
            design.fill_buffer(ONE, buffer);
        }
        design.forget_buffer(TWO, buffer);
        assert_eq!(design.lookup_buffer(ONE, buffer), HandleLookup::Hit);
        // Buffer numbers are local to their process.
        design.lookup_buffer(TWO, buffer);
        design.fill_buffer(TWO, buffer);
    }
    for process in [ONE, TWO] {
        if let HandleLookup::Host(request) = design.lookup_process(process) {
            assert_eq!(request, HostRequest::FillProcess { process });
            design.fill_process(process);
        }
        assert_eq!(design.lookup_process(process), HandleLookup::Hit);
    }
}

fn removing_makes_every_level_forget<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    for cached in [false, true] {
        design.install(ONE, Page(9), Frame(90)).expect("install");
        design.install(ONE, Page(10), Frame(100)).expect("install");
        if cached {
            design.lookup(ONE, Page(9));
        }
        design.remove(ONE, Page(9)).expect("remove");
        assert_eq!(found(&mut design, ONE, Page(9)), Frame::GARBAGE, "cached before: {cached}");
        assert_eq!(found(&mut design, ONE, Page(10)), Frame(100), "the neighbour stays");
        design.remove(ONE, Page(9)).expect("removing a page twice is no error");
    }
}

fn processes_never_see_each_others_translations<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    // Twice the size of any cache that a suite is likely to use, so that some pages share a slot.
    let pages = (0..64).chain((1..64).map(|n| n * 4096)).map(Page);
    for page in pages.clone() {
        design.install(ONE, page, Frame(page.0 * 2)).expect("install");
        assert_eq!(found(&mut design, ONE, page), Frame(page.0 * 2));
        assert_eq!(found(&mut design, TWO, page), Frame::GARBAGE, "{page} belongs to the other process");
    }
    for page in pages.clone() {
        design.install(TWO, page, Frame(page.0 * 2 + 1)).expect("install");
        for _ in 0..2 {
            assert_eq!(found(&mut design, ONE, page), Frame(page.0 * 2));
            assert_eq!(found(&mut design, TWO, page), Frame(page.0 * 2 + 1));
        }
    }
    for page in pages {
        design.remove(TWO, page).expect("remove");
        assert_eq!(found(&mut design, ONE, page), Frame(page.0 * 2), "removing is for one process");
        assert_eq!(found(&mut design, TWO, page), Frame::GARBAGE);
    }
}

fn closing_forgets_and_a_new_process_starts_empty<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    design.install(ONE, Page(3), Frame(30)).expect("install");
    design.install(TWO, Page(4), Frame(40)).expect("install");
    design.lookup(ONE, Page(3));
    design.lookup(TWO, Page(4));
    design.close(ONE).expect("close");
    assert_eq!(found(&mut design, ONE, Page(3)), Frame::GARBAGE, "the process is closed");
    assert_eq!(found(&mut design, TWO, Page(4)), Frame(40), "the other process stays");
    design.open(ONE).expect("a closed process can be opened anew");
    assert_eq!(found(&mut design, ONE, Page(3)), Frame::GARBAGE, "the process starts empty");
}

fn wrong_requests_are_refused_and_change_nothing<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    let absent = Process(9);
    design.install(ONE, Page(3), Frame(30)).expect("install");
    assert_eq!(design.open(ONE), Err(TranslationError::AlreadyOpen(ONE)));
    assert_eq!(design.close(absent), Err(TranslationError::NotOpen(absent)));
    assert_eq!(design.install(absent, Page(3), Frame(31)), Err(TranslationError::NotOpen(absent)));
    assert_eq!(design.remove(absent, Page(3)), Err(TranslationError::NotOpen(absent)));
    for page in [Page(PAGE_NUMBER_END | 3), Page(u64::MAX)] {
        let refused = design.install(ONE, page, Frame(32));
        assert!(matches!(refused, Err(TranslationError::Range(_))), "{page} is outside: {refused:?}");
    }
    assert_eq!(found(&mut design, ONE, Page(3)), Frame(30));
}

fn counters_add_up<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    let before = design.counters();
    for page in 0..32 {
        design.install(ONE, Page(page * 7), Frame(page)).expect("install");
    }
    let mut misses = 0;
    for turn in 0..200 {
        misses += u64::from(find(&mut design, ONE, Page(turn * 7 % 256)).missed);
    }
    let counted = design.counters() - before;
    assert_eq!((counted.lookups, counted.nic_misses), (200, misses));
}

fn asking_what_is_installed_leaves_no_trace<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut unasked = opened(make);
    unasked.install(ONE, Page(3), Frame(30)).expect("install");
    let mut design = opened(make);
    design.install(ONE, Page(3), Frame(30)).expect("install");
    let before = design.counters();
    for _ in 0..2 {
        assert_eq!(design.installed(ONE, Page(3)), Frame(30));
        for (process, page) in [(ONE, Page(4)), (ONE, Page(u64::MAX)), (TWO, Page(3)), (Process(9), Page(3))] {
            assert_eq!(design.installed(process, page), Frame::GARBAGE);
        }
    }
    assert_eq!(design.counters(), before, "asking what is installed counts no lookup");
    assert_eq!(design.lookup(ONE, Page(3)), unasked.lookup(ONE, Page(3)), "asking what is installed fills no cache");
    design.remove(ONE, Page(3)).expect("remove");
    assert_eq!(design.installed(ONE, Page(3)), Frame::GARBAGE);
}

fn memory_is_listed_by_distinct_names<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    design.install(ONE, Page(0), Frame(1)).expect("install");
    let listed: Vec<_> = design.nic_memory().collect();
    let by_name: BTreeMap<_, _> = listed.iter().copied().collect();
    assert_eq!(by_name.len(), listed.len(), "a name occurs twice in {listed:?}");
    assert!(listed.iter().any(|(_, bytes)| *bytes > 0), "a design needs some NIC memory: {listed:?}");
}
