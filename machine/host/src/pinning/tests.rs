//! One suite for both pinners.

use std::collections::BTreeMap;

use mapwire_translation::{Frame, Page, PageRange};
use rustix::process::Resource;

use super::*;
use crate::memory::SharedBuffer;
use crate::page::PAGE_BYTES;
use crate::testing::{drop_privileges, in_child, lower_limit, refuse_call};

const PAGES: usize = 200;

fn each(test: impl Fn(&mut dyn Pinner)) {
    for kind in [PinnerKind::Mlock, PinnerKind::IoUring, PinnerKind::Cheapest] {
        test(&mut *kind.open().unwrap());
    }
}

fn buffer(pages: usize) -> (SharedBuffer, Page) {
    let buffer = SharedBuffer::allocate("pinning", pages * PAGE_BYTES).unwrap();
    let first = Page::containing(buffer.as_ptr().expose_provenance() as u64);
    (buffer, first)
}

fn range(first: Page, start: usize, count: usize) -> PageRange {
    PageRange { first: Page(first.0 + start as u64), count: count as u64 }
}

/// Kilobytes in `/proc/self/status` under `field`.
fn kilobytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_frame_leads_back_to_its_page_until_it_is_given_back() {
    each(|pinner| {
        let (_memory, first) = buffer(PAGES);
        let mut frames = [Frame::GARBAGE; PAGES];
        pinner.pin(range(first, 0, PAGES), &mut frames).unwrap();
        assert_eq!(pinner.pinned_pages(), PAGES as u64);
        for (index, frame) in frames.iter().enumerate() {
            let address = pinner.address_of(*frame).unwrap().addr();
            assert_eq!(address as u64, range(first, index, 1).first.address(), "{}", pinner.name());
        }
        assert_eq!(pinner.address_of(Frame::GARBAGE), None);
        pinner.unpin(range(first, 0, PAGES), &frames).unwrap();
        assert_eq!(pinner.pinned_pages(), 0);
    });
    let mut pinner = UringPinner::new(64).unwrap();
    let (_memory, first) = buffer(1);
    let mut frames = [Frame::GARBAGE];
    pinner.pin(range(first, 0, 1), &mut frames).unwrap();
    assert_eq!(pinner.address_of(Frame(frames[0].0 + 1)), None);
    pinner.unpin(range(first, 0, 1), &frames).unwrap();
    assert_eq!(pinner.address_of(frames[0]), None);
}

/// Runs are pinned and parts of them unpinned in any order; frames stay those of their pages.
#[test]
fn pages_are_given_back_in_any_order_and_any_pieces() {
    each(|pinner| {
        let (_memory, first) = buffer(PAGES);
        let mut pinned: BTreeMap<usize, Frame> = BTreeMap::new();
        let mut random = 7u64;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below
        };
        for step in 0..4000 {
            let start = draw(PAGES);
            let alike = pinned.contains_key(&start);
            let most = (start..PAGES).take_while(|page| pinned.contains_key(page) == alike).count();
            let longest = if draw(4) == 0 { PAGES } else { 9 };
            let count = 1 + draw(most.min(longest));
            if alike {
                let frames: Vec<_> = (start..start + count).map(|page| pinned[&page]).collect();
                pinner.unpin(range(first, start, count), &frames).unwrap();
                (start..start + count).for_each(|page| {
                    pinned.remove(&page);
                });
            } else {
                let mut frames = vec![Frame::GARBAGE; count];
                pinner.pin(range(first, start, count), &mut frames).unwrap();
                pinned.extend((start..start + count).zip(frames));
            }
            assert_eq!(pinner.pinned_pages(), pinned.len() as u64);
            if step % 16 == 0 {
                for (page, frame) in &pinned {
                    let address = pinner.address_of(*frame).unwrap().addr() as u64;
                    assert_eq!(Page::containing(address), range(first, *page, 1).first);
                }
            }
        }
        for (page, frame) in pinned {
            pinner.unpin(range(first, page, 1), &[frame]).unwrap();
        }
        assert_eq!(pinner.pinned_pages(), 0);
    });
}

#[test]
fn the_kernel_counts_exactly_the_pages_that_are_pinned() {
    for (kind, field) in [(PinnerKind::Mlock, "VmLck:"), (PinnerKind::IoUring, "VmPin:")] {
        in_child(&kind.to_string(), || {
            let mut pinner = kind.open().unwrap();
            let (_memory, first) = buffer(PAGES);
            let before = kilobytes(field);
            let pages = |before| (kilobytes(field) - before) * 1024 / PAGE_BYTES as u64;
            let mut frames = [Frame::GARBAGE; 100];
            pinner.pin(range(first, 0, 100), &mut frames).unwrap();
            assert_eq!(pages(before), 100);
            pinner.unpin(range(first, 10, 20), &frames[10..30]).unwrap();
            assert_eq!(pages(before), 80);
            pinner.unpin(range(first, 0, 10), &frames[..10]).unwrap();
            pinner.unpin(range(first, 99, 1), &frames[99..]).unwrap();
            assert_eq!(pages(before), 69);
            pinner.unpin(range(first, 30, 69), &frames[30..99]).unwrap();
            assert_eq!(pages(before), 0);
        });
    }
}

#[test]
fn a_page_that_is_not_mapped_is_named_and_nothing_stays_pinned() {
    each(|pinner| {
        let (_memory, first) = buffer(PAGES);
        // Past the data is the status page; what follows may be mapped by others, so ask for
        // pages that nobody can have.
        let mut frames = [Frame::GARBAGE; 4];
        let nowhere = PageRange { first: Page(1), count: 4 };
        let error = pinner.pin(nowhere, &mut frames).unwrap_err();
        assert_eq!(error, PinError::NotMapped { pages: nowhere, page: Page(1) }, "{}", pinner.name());
        let outside = PageRange { first: Page(u64::MAX - 8), count: 4 };
        assert!(pinner.pin(outside, &mut frames).is_err());
        assert_eq!(pinner.pinned_pages(), 0);
        pinner.pin(range(first, 0, 4), &mut frames).unwrap();
        pinner.unpin(range(first, 0, 4), &frames).unwrap();
    });
}

#[test]
fn a_wrong_frame_or_a_wrong_count_is_refused_and_changes_nothing() {
    each(|pinner| {
        let (_memory, first) = buffer(PAGES);
        let mut frames = [Frame::GARBAGE; 8];
        pinner.pin(range(first, 0, 8), &mut frames).unwrap();
        let mut wrong = frames;
        wrong[7] = frames[6];
        let error = pinner.unpin(range(first, 0, 8), &wrong).unwrap_err();
        assert!(matches!(error, PinError::NotPinned { .. }), "{error}");
        assert_eq!(pinner.pinned_pages(), 8);
        let error = pinner.unpin(range(first, 0, 8), &frames[..7]).unwrap_err();
        assert!(matches!(error, PinError::FrameCount { frames: 7, .. }), "{error}");
        assert!(pinner.pin(range(first, 20, 3), &mut frames).is_err());
        pinner.unpin(range(first, 0, 8), &frames).unwrap();
        // Twice is once too often, if the pinner can tell.
        if pinner.name() == "io_uring" {
            assert!(pinner.unpin(range(first, 0, 8), &frames).is_err());
        }
    });
}

#[test]
fn constants_on_the_stack_and_in_the_program_can_be_pinned_too() {
    static CONSTANT: [u8; 3 * PAGE_BYTES] = [7; 3 * PAGE_BYTES];
    each(|pinner| {
        let local = [1u8; 100];
        for bytes in [&CONSTANT[..], &local[..]] {
            let address = bytes.as_ptr().expose_provenance() as u64;
            let pages = PageRange::covering(address, bytes.len() as u64).unwrap();
            let mut frames = vec![Frame::GARBAGE; pages.count as usize];
            pinner.pin(pages, &mut frames).unwrap();
            for (page, frame) in pages.iter().zip(&frames) {
                assert_eq!(pinner.address_of(*frame).unwrap().addr() as u64, page.address());
            }
            pinner.unpin(pages, &frames).unwrap();
        }
    });
}

#[test]
fn the_limit_of_locked_memory_is_named_with_what_to_do() {
    for kind in PinnerKind::ALL {
        in_child(&kind.to_string(), || {
            lower_limit(Resource::Memlock, 64 * PAGE_BYTES as u64);
            drop_privileges();
            let (_memory, first) = buffer(PAGES);
            let mut pinner = kind.open().unwrap();
            let mut frames = [Frame::GARBAGE; PAGES];
            let error = pinner.pin(range(first, 0, 100), &mut frames[..100]).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, PinError::LockedMemory { .. }), "{text}");
            for word in ["100 pages", "262144", "ulimit -l", "CAP_IPC_LOCK", "MAPWIRE_PIN_LIMIT"] {
                assert!(text.contains(word), "{text}");
            }
            assert_eq!(pinner.pinned_pages(), 0);
            // Below the limit it works, and a cut does not need more than the limit.
            let most = 60;
            pinner.pin(range(first, 0, most), &mut frames[..most]).unwrap();
            pinner.unpin(range(first, 1, 1), &frames[1..2]).unwrap();
            pinner.unpin(range(first, 0, 1), &frames[..1]).unwrap();
            pinner.unpin(range(first, 2, most - 2), &frames[2..most]).unwrap();
            assert_eq!(pinner.pinned_pages(), 0);
        });
    }
}

#[test]
fn a_full_table_says_how_many_pages_it_holds_and_is_usable_after_one_is_given_back() {
    let mut pinner = UringPinner::new(16).unwrap();
    assert_eq!(pinner.limit_pages(), Some(16));
    let (_memory, first) = buffer(PAGES);
    let mut frames = [Frame::GARBAGE; 17];
    let error = pinner.pin(range(first, 0, 17), &mut frames).unwrap_err();
    assert!(error.to_string().contains("0 of the io_uring's 16 pages"), "{error}");
    pinner.pin(range(first, 0, 16), &mut frames[..16]).unwrap();
    assert!(pinner.pin(range(first, 16, 1), &mut frames[16..]).is_err());
    // Every second page: each of the others needs a slot of its own.
    for page in (1..16).step_by(2) {
        pinner.unpin(range(first, page, 1), &frames[page..=page]).unwrap();
    }
    for page in (1..16).step_by(2) {
        pinner.pin(range(first, page, 1), &mut frames[page..=page]).unwrap();
    }
    pinner.unpin(range(first, 0, 16), &frames[..16]).unwrap();
    assert_eq!(pinner.pinned_pages(), 0);
}

#[test]
fn the_cheapest_pinner_locks_what_the_table_has_no_room_for_and_gives_back_both_kinds_at_once() {
    in_child("cheapest-both", || {
        let mut pinner = CheapestPinner::new();
        if pinner.name() == "mlock" {
            mapwire_testing::skip!("locked memory is limited or io_uring refused");
            return;
        }
        let most = DEFAULT_SLOTS as usize;
        let (_memory, first) = buffer(most + 100);
        let mut frames = vec![Frame::GARBAGE; most + 100];
        pinner.pin(range(first, 0, most), &mut frames[..most]).unwrap();
        let locked = kilobytes("VmLck:");
        pinner.pin(range(first, most, 100), &mut frames[most..]).unwrap();
        assert_eq!(kilobytes("VmLck:"), locked + 400);
        assert_eq!(pinner.pinned_pages(), most as u64 + 100);
        for index in [0, most - 1, most, most + 99] {
            let address = pinner.address_of(frames[index]).unwrap().addr() as u64;
            assert_eq!(Page::containing(address), range(first, index, 1).first);
        }
        let border = most - 10..most + 10;
        pinner.unpin(range(first, border.start, 20), &frames[border]).unwrap();
        assert_eq!(pinner.pinned_pages(), most as u64 + 80);
        assert_eq!(kilobytes("VmLck:"), locked + 360);
        pinner.unpin(range(first, most + 10, 90), &frames[most + 10..]).unwrap();
    });
}

#[test]
fn without_io_uring_the_cheapest_pinner_locks() {
    in_child("cheapest", || {
        refuse_call(libc::SYS_io_uring_setup);
        assert_eq!(CheapestPinner::new().name(), "mlock");
        assert_eq!(PinnerKind::Cheapest.probe(), Ok(()));
    });
}

#[test]
fn a_refused_io_uring_and_too_many_slots_are_named() {
    let error = UringPinner::new(MAX_SLOTS + 1).unwrap_err();
    assert!(error.to_string().contains("16385") && error.to_string().contains("16384"), "{error}");
    in_child("refused", || {
        refuse_call(libc::SYS_io_uring_setup);
        let error = PinnerKind::IoUring.probe().unwrap_err();
        for word in ["not permitted", "kernel.io_uring_disabled is ", "MAPWIRE_PINNER=mlock"] {
            assert!(error.to_string().contains(word), "{error}");
        }
        assert_eq!(PinnerKind::Mlock.probe(), Ok(()));
    });
}

#[test]
fn a_dropped_ring_leaves_no_page_pinned() {
    in_child("ring", || {
        let (_memory, first) = buffer(PAGES);
        let before = kilobytes("VmPin:");
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        for _ in 0..3 {
            let mut pinner = UringPinner::new(256).unwrap();
            let mut frames = [Frame::GARBAGE; PAGES];
            pinner.pin(range(first, 0, PAGES), &mut frames).unwrap();
        }
        assert_eq!(kilobytes("VmPin:"), before);
        assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), descriptors);
    });
}

#[test]
fn every_pinner_reads_back_as_it_prints_and_works_here() {
    for kind in PinnerKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
        assert_eq!(kind.probe(), Ok(()));
        assert_eq!(kind.open().unwrap().name(), kind.to_string());
    }
    assert!("glue".parse::<PinnerKind>().unwrap_err().to_string().contains("MAPWIRE_PINNER"));
}
