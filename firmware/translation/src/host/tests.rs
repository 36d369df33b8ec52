use super::*;
use crate::{AnyDesign, Lookup};
use alloc::collections::BTreeMap;
use std::vec::Vec;

fn range(first: u64, count: u64) -> PageRange {
    PageRange { first: Page(first), count }
}

/// Pins pages below a bound, and records every call.
struct Memory {
    end: Page,
    pinned: BTreeMap<Page, Frame>,
    calls: Vec<PageRange>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such memory")]
struct NoSuchMemory;

impl PinPages for Memory {
    type Error = NoSuchMemory;

    fn pin(&mut self, _: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), NoSuchMemory> {
        if run.end() > self.end {
            return Err(NoSuchMemory);
        }
        self.calls.push(run);
        for (page, frame) in run.iter().zip(frames) {
            *frame = Frame(page.0 + 1000);
            assert_eq!(self.pinned.insert(page, *frame), None, "{page} is pinned twice");
        }
        Ok(())
    }

    fn unpin(&mut self, _: Process, run: PageRange, frames: &[Frame]) -> Result<(), NoSuchMemory> {
        for (page, frame) in run.iter().zip(frames) {
            assert_eq!(self.pinned.remove(&page), Some(*frame), "{page}");
        }
        Ok(())
    }
}

struct World {
    nic: AnyDesign,
    memory: Memory,
    host: HostSide,
}

impl World {
    fn new(rules: PinRules) -> Self {
        Self::of("hierarchical", rules)
    }

    fn of(design: &str, rules: PinRules) -> Self {
        let mut nic = AnyDesign::new(&crate::words::parse_design(design).unwrap()).unwrap();
        nic.open(Process(0)).unwrap();
        let host = HostSide::new(Process(0), rules, &nic);
        let memory = Memory { end: Page(100_000), pinned: BTreeMap::new(), calls: Vec::new() };
        World { nic, memory, host }
    }

    fn prepare(&mut self, pages: PageRange) -> Result<(), HostError<NoSuchMemory>> {
        self.host.prepare(&mut self.nic, &mut self.memory, pages)
    }

    /// Looks up, and serves until there is a frame. Also returns the host's result.
    fn translate(&mut self, page: u64) -> Translated {
        let mut outcome = Ok(());
        for _ in 0..3 {
            match self.nic.lookup(Process(0), Page(page)) {
                Lookup::Hit(frame) | Lookup::Miss(frame) => return (frame, outcome),
                Lookup::Host(request) => {
                    let mut others = Vec::new();
                    outcome = self.host.serve(&mut self.nic, &mut self.memory, request, &mut others);
                    assert_eq!(others, []);
                }
            }
        }
        panic!("the NIC asks again and again for page {page}");
    }

    fn reclaim(&mut self) {
        self.host.reclaim(&mut self.nic, &mut self.memory).unwrap();
    }

    fn pinned(&self) -> Vec<u64> {
        self.memory.pinned.keys().map(|page| page.0).collect()
    }

    fn calls(&mut self) -> Vec<PageRange> {
        core::mem::take(&mut self.memory.calls)
    }
}

#[test]
fn runs_that_are_not_pinned_are_pinned_in_one_call_each_and_known_to_the_nic() {
    let mut world = World::new(PinRules::default());
    world.prepare(range(10, 2)).unwrap();
    world.prepare(range(8, 1000)).unwrap();
    let expected = [range(10, 2), range(8, 2), range(12, 512), range(524, 484)];
    assert_eq!(world.calls(), expected);
    for page in range(8, 1000) {
        assert_eq!(world.nic.installed(Process(0), page), Frame(page.0 + 1000));
    }
    assert_eq!(world.host.counters().pins, 1000);
}

#[test]
fn under_a_limit_the_nic_forgets_pages_as_they_are_unpinned() {
    let mut world = World::new(PinRules::default().with_limit(PinLimit::Pages(3)));
    for page in 0..3 {
        world.prepare(range(page, 1)).unwrap();
    }
    world.host.hold(range(0, 1)).unwrap();
    world.prepare(range(7, 2)).unwrap();
    let pinned: Vec<_> = world.memory.pinned.keys().map(|page| page.0).collect();
    assert_eq!(pinned, [0, 7, 8]);
    assert!(world.nic.installed(Process(0), Page(1)).is_garbage());
    let refused = world.prepare(range(20, 3));
    assert!(matches!(refused, Err(HostError::Limit(_))), "{refused:?}");
    world.host.release(range(0, 1)).unwrap();
    world.prepare(range(20, 3)).unwrap();
    assert_eq!(world.host.counters().unpins, 5);
}

#[test]
fn memory_that_does_not_exist_is_not_pinned_ahead() {
    let mut world = World::new(PinRules::default().with_prepin_pages(16));
    world.memory.end = Page(20);
    world.prepare(range(0, 1)).unwrap();
    assert_eq!(world.calls(), [range(0, 16)]);
    world.prepare(range(15, 3)).unwrap();
    assert_eq!(world.calls(), [range(16, 2)]);
    let refused = world.prepare(range(19, 2));
    assert_eq!(refused, Err(HostError::Pin(NoSuchMemory)));
    assert_eq!(world.host.counters().pins, 18);
}

#[test]
fn what_the_nic_does_not_take_in_is_unpinned_again() {
    let mut world = World::new(PinRules::default());
    world.nic.close(Process(0)).unwrap();
    let refused = world.prepare(range(4, 4));
    let expected = TranslationError::NotOpen(Process(0));
    assert_eq!(refused, Err(HostError::Nic(expected)));
    assert!(world.memory.pinned.is_empty());
    assert_eq!(world.host.counters().pins, 0);
}

type Translated = (Frame, Result<(), HostError<NoSuchMemory>>);

const FOUND: fn(u64) -> Translated = |page| (Frame(page + 1000), Ok(()));

#[test]
fn what_a_design_pins_on_a_miss_is_not_prepared() {
    for design in ["interrupt", "dynamic-handle"] {
        let mut world = World::of(design, PinRules::default());
        world.prepare(range(90, 2)).unwrap();
        world.prepare(range(99_999, 9)).unwrap();
        assert_eq!(world.calls(), []);
        assert_eq!(world.host.counters(), Counters::default());
    }
}

#[test]
fn pages_of_a_line_that_do_not_exist_are_left_out() {
    let mut world = World::of("dynamic-handle,line=8", PinRules::default());
    world.memory.end = Page(21);
    assert_eq!(world.translate(9), FOUND(9));
    assert_eq!(world.calls(), [range(8, 8)]);
    // Of the line from 16 on, 21 to 23 do not exist; so the wanted page is pinned alone.
    assert_eq!(world.translate(18), FOUND(18));
    assert_eq!(world.calls(), [range(18, 1)]);
    assert_eq!(world.translate(19), FOUND(19));
    let refused = world.translate(22);
    assert_eq!(refused, (Frame::GARBAGE, Err(HostError::Pin(NoSuchMemory))));
    // It is requested anew each time: it may exist by then.
    world.memory.end = Page(23);
    assert_eq!(world.translate(22), FOUND(22));
    assert_eq!(world.translate(18), FOUND(18));
    assert_eq!(world.nic.counters().interrupts, 5);
    world.calls();
    // A line that is missing only in the NIC costs no call, even if some of its pages are not pinned.
    let frame = world.nic.installed(Process(0), Page(18));
    world.nic.install(Process(0), Page(18), frame).unwrap();
    assert_eq!(world.translate(18), FOUND(18));
    assert_eq!(world.calls(), []);
}

#[test]
fn what_is_evicted_while_a_transfer_holds_it_is_unpinned_after_its_end() {
    let mut world = World::of("interrupt,entries=1", PinRules::default());
    world.host.hold(range(4, 2)).unwrap();
    assert_eq!(world.translate(4), FOUND(4));
    assert_eq!(world.translate(5), FOUND(5));
    assert_eq!(world.translate(6), FOUND(6));
    assert_eq!(world.pinned(), [4, 5, 6]);
    // Page 4 is needed again, and does not go with the others.
    assert_eq!(world.translate(4), FOUND(4));
    world.host.release(range(4, 2)).unwrap();
    world.reclaim();
    assert_eq!(world.pinned(), [4]);
    assert_eq!(world.translate(7), FOUND(7));
    assert_eq!(world.pinned(), [7]);
    let counters = world.host.counters();
    assert_eq!((counters.pins, counters.unpins), (4, 3));
}

#[test]
fn an_export_is_pinned_at_once_and_unpinned_with_its_end_unless_it_is_cached() {
    let mut world = World::of("interrupt,entries=2", PinRules::default());
    let export = range(10, 4);
    world.host.prepare_receive(&mut world.nic, &mut world.memory, export).unwrap();
    world.host.hold_receive(export).unwrap();
    for page in export {
        let found = world.nic.lookup_receive(Process(0), page);
        assert_eq!(found, Lookup::Hit(Frame(page.0 + 1000)));
    }
    assert_eq!(world.host.counters().check_misses, 0, "nothing is checked");
    assert_eq!(world.translate(11), FOUND(11));
    world.host.release_receive(export).unwrap();
    world.reclaim();
    assert_eq!(world.pinned(), [11]);
    // One that is prepared, and then not offered, goes as well.
    world.host.prepare_receive(&mut world.nic, &mut world.memory, export).unwrap();
    world.reclaim();
    assert_eq!(world.pinned(), [11]);
    let refused = world.host.prepare_receive(&mut world.nic, &mut world.memory, range(99_999, 2));
    assert_eq!(refused, Err(HostError::Pin(NoSuchMemory)));
}

#[test]
fn for_an_export_nothing_is_pinned_ahead() {
    let mut world = World::new(PinRules::default().with_prepin_pages(8));
    world.host.prepare_receive(&mut world.nic, &mut world.memory, range(10, 3)).unwrap();
    assert_eq!(world.calls(), [range(10, 3)]);
    assert_eq!(world.host.counters().check_misses, 3);
}

#[test]
fn a_miss_that_has_no_room_is_told_and_gives_the_garbage_frame() {
    let mut world = World::of("interrupt", PinRules::default().with_limit(PinLimit::Pages(2)));
    // Of the pages held, two are not pinned yet: they do not count.
    world.host.hold(range(0, 2)).unwrap();
    world.host.hold(range(7, 2)).unwrap();
    assert_eq!(world.translate(0), FOUND(0));
    assert_eq!(world.translate(1), FOUND(1));
    let full = PinError::LimitTooSmall { needed_pages: 1, limit_pages: 2, held_pages: 2 };
    assert_eq!(world.translate(2), (Frame::GARBAGE, Err(HostError::Limit(full))));
    world.host.release(range(0, 2)).unwrap();
    assert_eq!(world.translate(2), FOUND(2));
    assert_eq!(world.pinned(), [1, 2]);
}

#[test]
fn what_has_left_the_cache_is_reclaimed_down_to_the_mark_but_never_what_is_held() {
    // Two lines of one page each, in one set, and a mark of three pages.
    let design = "dynamic-handle,entries=2,ways=2,line=1,high-water=12KiB";
    let mut world = World::of(design, PinRules::default());
    for page in [0, 1, 2, 3] {
        assert_eq!(world.translate(page), FOUND(page));
    }
    world.host.hold(range(0, 1)).unwrap();
    world.reclaim();
    assert_eq!(world.pinned(), [0, 2, 3], "0 is held; 2 and 3 are in the cache");
    assert_eq!(world.translate(4), FOUND(4));
    assert_eq!(world.translate(5), FOUND(5));
    world.host.release(range(0, 1)).unwrap();
    assert_eq!(world.translate(2), FOUND(2));
    world.reclaim();
    // Of 0, 3 and 4, which have left the cache, 0 was released last.
    assert_eq!(world.pinned(), [0, 2, 5]);
}

#[test]
fn pages_of_other_processes_that_had_to_leave_are_told() {
    let mut world = World::of("interrupt,entries=1", PinRules::default());
    let other = Process(1);
    world.nic.open(other).unwrap();
    let mut other_host = HostSide::new(other, PinRules::default(), &world.nic);
    assert_eq!(world.translate(3), FOUND(3));
    let Lookup::Host(request) = world.nic.lookup(other, Page(8)) else {
        panic!("page 8 is not pinned");
    };
    let mut others = Vec::new();
    other_host.serve(&mut world.nic, &mut world.memory, request, &mut others).unwrap();
    assert_eq!(others, [(Process(0), Page(3))]);
    assert_eq!(world.pinned(), [3, 8]);
    world.host.drop_evicted(&mut world.nic, &mut world.memory, Page(3)).unwrap();
    assert_eq!(world.pinned(), [8]);
    // Told twice, or of a page that is back, it does nothing.
    world.host.drop_evicted(&mut world.nic, &mut world.memory, Page(3)).unwrap();
    other_host.drop_evicted(&mut world.nic, &mut world.memory, Page(8)).unwrap();
    assert_eq!(world.pinned(), [8]);
}
