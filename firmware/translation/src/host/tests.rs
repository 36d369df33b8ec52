use super::*;
use crate::{CacheConfig, Hierarchical};
use alloc::collections::BTreeMap;
use std::vec::Vec;

fn range(first: u64, count: u64) -> PageRange {
    PageRange {
        first: Page(first),
        count,
    }
}

/// Pins what is below a page, and remembers every call.
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

    fn pin(
        &mut self,
        _: Process,
        run: PageRange,
        frames: &mut [Frame],
    ) -> Result<(), NoSuchMemory> {
        if run.end() > self.end {
            return Err(NoSuchMemory);
        }
        self.calls.push(run);
        for (page, frame) in run.iter().zip(frames) {
            *frame = Frame(page.0 + 1000);
            assert_eq!(
                self.pinned.insert(page, *frame),
                None,
                "{page} is pinned twice"
            );
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
    nic: Hierarchical,
    memory: Memory,
    host: HostSide,
}

impl World {
    fn new(rules: PinRules) -> Self {
        let mut nic = Hierarchical::new(CacheConfig::default()).unwrap();
        nic.open(Process(0)).unwrap();
        let host = HostSide::new(Process(0), rules, &nic);
        let memory = Memory {
            end: Page(100_000),
            pinned: BTreeMap::new(),
            calls: Vec::new(),
        };
        World { nic, memory, host }
    }

    fn prepare(&mut self, pages: PageRange) -> Result<(), HostError<NoSuchMemory>> {
        self.host.prepare(&mut self.nic, &mut self.memory, pages)
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
