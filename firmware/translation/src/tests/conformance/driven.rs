//! The design with the host sides of several processes, which pin the pages of transfers.

use crate::design::{Pinning, TranslationDesign};
use crate::host::PinPages;
use crate::hosts::Hosts;
use crate::limit::{PinLimit, PinRules};
use crate::page::{Frame, Page, PageRange, Process};
use crate::policy::Policy;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const PROCESSES: u16 = 3;
/// Pages from here on do not exist.
const END: Page = Page(60);

pub(super) fn check<D: TranslationDesign>(make: &impl Fn() -> D) {
    let limits = [PinLimit::Unlimited, PinLimit::Pages(9)];
    let policies = Policy::PREDEFINED;
    for seed in 0..30 {
        let rules = PinRules::default()
            .with_limit(limits[seed as usize % 2])
            .with_policy(policies[seed as usize % 5])
            .with_prepin_pages([1, 1, 4][seed as usize % 3]);
        let mut world = World::new(make(), rules, seed);
        for step in 0..120 {
            world.step(step);
        }
        world.finish();
    }
}

/// Memory of which the first pages exist.
#[derive(Default)]
struct Memory {
    pinned: BTreeMap<(Process, Page), Frame>,
    pins: u64,
}

impl PinPages for Memory {
    type Error = ();

    fn pin(&mut self, process: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), ()> {
        if run.end() > END {
            return Err(());
        }
        for (page, frame) in run.iter().zip(frames) {
            *frame = Frame(self.pins);
            self.pins += 1;
            let before = self.pinned.insert((process, page), *frame);
            assert_eq!(before, None, "{page} of {process} is pinned twice");
        }
        Ok(())
    }

    fn unpin(&mut self, process: Process, run: PageRange, frames: &[Frame]) -> Result<(), ()> {
        for (page, frame) in run.iter().zip(frames) {
            let before = self.pinned.remove(&(process, page));
            assert_eq!(before, Some(*frame), "{page} of {process} is given back");
        }
        Ok(())
    }
}

struct World<D> {
    nic: D,
    hosts: Hosts,
    memory: Memory,
    rules: PinRules,
    exported: Vec<(Process, PageRange)>,
    sending: Vec<(Process, PageRange)>,
    held_now: Option<(Process, PageRange)>,
    seed: u64,
    state: u64,
}

impl<D: TranslationDesign> World<D> {
    fn new(mut nic: D, rules: PinRules, seed: u64) -> Self {
        let mut hosts = Hosts::new();
        for process in (0..PROCESSES).map(Process) {
            hosts.open(&mut nic, process, rules).expect("a process can be opened");
        }
        World {
            nic,
            hosts,
            memory: Memory::default(),
            rules,
            exported: Vec::new(),
            sending: Vec::new(),
            held_now: None,
            seed,
            state: seed,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        super::oracle::draw(&mut self.state, below)
    }

    fn range(&mut self) -> (Process, PageRange) {
        let process = Process(self.draw(u64::from(PROCESSES)) as u16);
        let first = Page(self.draw(END.0 + 2));
        let count = 1 + self.draw(4);
        (process, PageRange { first, count })
    }

    fn step(&mut self, step: usize) {
        let doing = match self.draw(12) {
            0..7 => self.send(),
            7 => self.complete_a_send(),
            8 => self.export(),
            9 => self.receive(),
            10 => self.give_up_an_export(),
            _ => self.reclaim(),
        };
        let rules = self.rules;
        let place = || alloc::format!("seed {}, step {step}, {rules:?}: {doing}", self.seed);
        if step.is_multiple_of(7) {
            self.check_state(&place);
        }
    }

    /// Sends from the range; a third of the sends stay under way.
    fn send(&mut self) -> &'static str {
        let (process, range) = self.range();
        let side = self.hosts.side_mut(process).expect("open");
        let prepared = side.prepare(&mut self.nic, &mut self.memory, range);
        if prepared.is_err() {
            assert!(self.is_too_much(process, range), "{range} of {process} can be pinned");
            return "a send that cannot be prepared";
        }
        side.hold(range).expect("what is prepared can be held");
        self.held_now = Some((process, range));
        for page in range {
            let World { nic, hosts, memory, .. } = &mut *self;
            let translated = hosts.translate(nic, memory, process, page);
            let expected = memory.pinned.get(&(process, page)).copied();
            match translated {
                Ok(frame) => {
                    assert_eq!(frame, expected.unwrap_or(Frame::GARBAGE), "{page} of {process} in {}", nic.name())
                }
                Err(_) => assert_eq!(expected, None, "{page} of {process} is pinned"),
            }
            if translated.is_err() {
                let alone = PageRange::single(page);
                let too_much = self.is_too_much(process, alone);
                assert!(too_much, "{page} of {process} can be pinned");
            }
        }
        self.held_now = None;
        if self.draw(3) == 0 {
            self.sending.push((process, range));
        } else {
            self.release(process, range);
        }
        "a send"
    }

    fn release(&mut self, process: Process, range: PageRange) {
        let side = self.hosts.side_mut(process).expect("open");
        side.release(range).expect("what is held can be released");
    }

    fn complete_a_send(&mut self) -> &'static str {
        let many = self.sending.len() as u64;
        if many > 0 {
            let at = self.draw(many) as usize;
            let (process, range) = self.sending.swap_remove(at);
            self.release(process, range);
        }
        "the end of a send"
    }

    fn export(&mut self) -> &'static str {
        let (process, range) = self.range();
        let side = self.hosts.side_mut(process).expect("open");
        let prepared = side.prepare_receive(&mut self.nic, &mut self.memory, range);
        if prepared.is_ok() && self.exported.len() < 4 {
            side.hold_receive(range).expect("what is prepared can be held");
            self.exported.push((process, range));
        }
        "an export"
    }

    fn receive(&mut self) -> &'static str {
        let World { nic, hosts, memory, .. } = self;
        for (process, range) in self.exported.iter().copied() {
            for page in range {
                let translated = hosts.translate_receive(nic, memory, process, page);
                let expected = memory.pinned.get(&(process, page)).copied();
                if nic.pinning_receive() == Pinning::BeforeTransfer {
                    assert!(expected.is_some(), "exported {page} of {process} stays pinned");
                }
                let frame = translated.unwrap_or(Frame::GARBAGE);
                assert_eq!(frame, expected.unwrap_or(Frame::GARBAGE), "{page} of {process}");
            }
        }
        "receives"
    }

    fn give_up_an_export(&mut self) -> &'static str {
        let many = self.exported.len() as u64;
        if many > 0 {
            let at = self.draw(many) as usize;
            let (process, range) = self.exported.swap_remove(at);
            let side = self.hosts.side_mut(process).expect("open");
            side.release_receive(range).expect("what is held can be released");
        }
        "the end of an export"
    }

    fn reclaim(&mut self) -> &'static str {
        self.hosts.reclaim(&mut self.nic, &mut self.memory).expect("what is pinned can be given back");
        "a reclaim"
    }

    fn is_held(&self, process: Process, page: Page) -> bool {
        let exports = match self.nic.pinning_receive() {
            Pinning::BeforeTransfer => self.exported.as_slice(),
            Pinning::OnMiss => &[],
        };
        let mut held = self.sending.iter().chain(exports).chain(&self.held_now);
        held.any(|(owner, range)| *owner == process && range.contains(page))
    }

    /// Most pages of a process that can be pinned.
    fn most_pages(&self) -> u64 {
        match self.rules.limit.and(self.nic.capacity_pages()) {
            PinLimit::Unlimited => u64::MAX,
            PinLimit::Pages(pages) => pages,
        }
    }

    /// Whether the range, or memory that it needs, does not exist, or others hold what it would need.
    fn is_too_much(&self, process: Process, range: PageRange) -> bool {
        let held = (0..END.0 + 8).map(Page).filter(|page| {
            let pinned = self.memory.pinned.contains_key(&(process, *page));
            pinned && self.is_held(process, *page) && !range.contains(*page)
        });
        range.end() > END || held.count() as u64 + range.count > self.most_pages()
    }

    fn check_state(&self, place: &dyn Fn() -> alloc::string::String) {
        let counters = self.hosts.counters();
        let pinned = self.memory.pinned.len() as u64;
        assert_eq!(counters.pinned_pages, pinned, "{}", place());
        assert_eq!(counters.pins - counters.unpins, pinned, "{}", place());
        for process in (0..PROCESSES).map(Process) {
            let of_process = self.memory.pinned.keys().filter(|key| key.0 == process);
            assert!(of_process.count() as u64 <= self.most_pages(), "{}: the limit", place());
            for page in (0..END.0 + 8).map(Page) {
                let frame = self.memory.pinned.get(&(process, page)).copied();
                let there = alloc::format!("{page} of {process}: {}", place());
                assert_eq!(self.nic.installed(process, page), frame.unwrap_or(Frame::GARBAGE), "{there}");
                let cached = self.nic.is_cached(process, page);
                assert!(!cached || frame.is_some(), "cached but not pinned: {there}");
                if self.nic.pinning() == Pinning::BeforeTransfer && self.is_held(process, page) {
                    assert!(frame.is_some(), "held but not pinned: {there}");
                }
            }
        }
        let before = self.nic.pinning() == Pinning::BeforeTransfer;
        if before && self.most_pages() == u64::MAX {
            assert_eq!(counters.unpins, 0, "without a limit nothing is unpinned: {}", place());
        }
    }

    /// Ends all transfers; only what the design wants pinned stays pinned.
    fn finish(&mut self) {
        while !self.sending.is_empty() {
            self.complete_a_send();
        }
        while !self.exported.is_empty() {
            self.give_up_an_export();
        }
        self.reclaim();
        let place = || alloc::format!("seed {}, at the end", self.seed);
        self.check_state(&place);
        for process in (0..PROCESSES).map(Process) {
            let mut left = 0;
            for page in (0..END.0).map(Page) {
                let pinned = self.memory.pinned.contains_key(&(process, page));
                let cached = self.nic.is_cached(process, page);
                left += u64::from(pinned && !cached);
                if self.nic.unpins_evicted() {
                    assert_eq!(pinned, cached, "{page} of {process}, {}", place());
                }
            }
            if let Some(mark) = self.nic.high_water_pages() {
                let pinned = self.memory.pinned.keys().filter(|key| key.0 == process);
                let pinned = pinned.count() as u64;
                assert!(
                    pinned <= mark || left == 0,
                    "{pinned} pages of {process} above {mark}, {left} of them not cached, {}",
                    place()
                );
            }
        }
    }
}
