//! What every translation design must do, as checks that any design can run.
//!
//! [`suite`] runs them all on designs that `make` builds; each check starts with a fresh one. Run it on several
//! shapes of a design, among them one so small that translations fight for every place. A check panics with what it
//! expected; random checks name their seed.

use crate::design::{TranslationDesign, TranslationError};
use crate::page::{Frame, PAGE_NUMBER_END, Page, Process};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const ONE: Process = Process(0);
const TWO: Process = Process(1);

/// Runs every check.
///
/// # Panics
/// The design is wrong.
pub fn suite<D: TranslationDesign>(make: impl Fn() -> D) {
    unpinned_pages_live_in_the_garbage_frame(&make);
    an_installed_page_is_found_and_found_again(&make);
    installing_anew_replaces_the_frame(&make);
    removing_makes_every_level_forget(&make);
    processes_never_see_each_others_translations(&make);
    closing_forgets_and_a_new_process_starts_empty(&make);
    wrong_requests_are_refused_and_change_nothing(&make);
    counters_add_up(&make);
    asking_what_is_installed_leaves_no_trace(&make);
    memory_is_listed_by_distinct_names(&make);
    for seed in 0..64 {
        agrees_with_oracle(&mut make(), &random_ops(seed, 400), seed);
    }
}

fn opened<D: TranslationDesign>(make: &impl Fn() -> D) -> D {
    let mut design = make();
    design.open(ONE).expect("a first process can be opened");
    design.open(TWO).expect("a second process can be opened");
    design
}

/// The frame that a lookup gives.
fn found<D: TranslationDesign>(design: &mut D, process: Process, page: Page) -> Frame {
    let lookup = design.lookup(process, page);
    let name = design.name();
    let frame = lookup.frame();
    frame.unwrap_or_else(|| panic!("{name} wants the host for {page} of {process}: {lookup:?}"))
}

fn unpinned_pages_live_in_the_garbage_frame<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    design.install(ONE, Page(8), Frame(80)).expect("install");
    for page in [
        0,
        7,
        9,
        8 + 1024,
        8 + (1 << 30),
        PAGE_NUMBER_END - 1,
        PAGE_NUMBER_END + 8,
        u64::MAX,
    ] {
        for _ in 0..2 {
            assert_eq!(
                found(&mut design, ONE, Page(page)),
                Frame::GARBAGE,
                "page {page:#x} is not pinned"
            );
        }
    }
    for process in [Process(2), Process(u16::MAX)] {
        assert_eq!(
            found(&mut design, process, Page(8)),
            Frame::GARBAGE,
            "{process} is not open"
        );
    }
}

fn an_installed_page_is_found_and_found_again<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    for page in [
        Page(0),
        Page(1),
        Page(1023),
        Page(1024),
        Page(PAGE_NUMBER_END - 1),
    ] {
        let frame = Frame(page.0 ^ 0x5555);
        design.install(ONE, page, frame).expect("install");
        assert_eq!(
            found(&mut design, ONE, page),
            frame,
            "first lookup of {page}"
        );
        let again = design.lookup(ONE, page);
        assert_eq!(again.frame(), Some(frame), "second lookup of {page}");
        assert!(again.is_hit(), "the second lookup in a row of {page} hits");
    }
}

fn installing_anew_replaces_the_frame<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    for frame in [Frame(1), Frame(2), Frame::GARBAGE, Frame(3), Frame(0)] {
        design.install(ONE, Page(9), frame).expect("install");
        assert_eq!(found(&mut design, ONE, Page(9)), frame);
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
        assert_eq!(
            found(&mut design, ONE, Page(9)),
            Frame::GARBAGE,
            "cached before: {cached}"
        );
        assert_eq!(
            found(&mut design, ONE, Page(10)),
            Frame(100),
            "the neighbour stays"
        );
        design
            .remove(ONE, Page(9))
            .expect("removing a page twice is no error");
    }
}

fn processes_never_see_each_others_translations<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    // Twice around any cache that a suite is likely to run on, so that some of the pages meet in one place.
    let pages = (0..64).chain((1..64).map(|n| n * 4096)).map(Page);
    for page in pages.clone() {
        design
            .install(ONE, page, Frame(page.0 * 2))
            .expect("install");
        assert_eq!(found(&mut design, ONE, page), Frame(page.0 * 2));
        assert_eq!(
            found(&mut design, TWO, page),
            Frame::GARBAGE,
            "{page} belongs to the other process"
        );
    }
    for page in pages.clone() {
        design
            .install(TWO, page, Frame(page.0 * 2 + 1))
            .expect("install");
        for _ in 0..2 {
            assert_eq!(found(&mut design, ONE, page), Frame(page.0 * 2));
            assert_eq!(found(&mut design, TWO, page), Frame(page.0 * 2 + 1));
        }
    }
    for page in pages {
        design.remove(TWO, page).expect("remove");
        assert_eq!(
            found(&mut design, ONE, page),
            Frame(page.0 * 2),
            "removing is for one process"
        );
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
    assert_eq!(
        found(&mut design, ONE, Page(3)),
        Frame::GARBAGE,
        "the process is closed"
    );
    assert_eq!(
        found(&mut design, TWO, Page(4)),
        Frame(40),
        "the other process stays"
    );
    design
        .open(ONE)
        .expect("a closed process can be opened anew");
    assert_eq!(
        found(&mut design, ONE, Page(3)),
        Frame::GARBAGE,
        "the process starts empty"
    );
}

fn wrong_requests_are_refused_and_change_nothing<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    let absent = Process(9);
    design.install(ONE, Page(3), Frame(30)).expect("install");
    assert_eq!(design.open(ONE), Err(TranslationError::AlreadyOpen(ONE)));
    assert_eq!(design.close(absent), Err(TranslationError::NotOpen(absent)));
    assert_eq!(
        design.install(absent, Page(3), Frame(31)),
        Err(TranslationError::NotOpen(absent))
    );
    assert_eq!(
        design.remove(absent, Page(3)),
        Err(TranslationError::NotOpen(absent))
    );
    for page in [Page(PAGE_NUMBER_END | 3), Page(u64::MAX)] {
        let refused = design.install(ONE, page, Frame(32));
        assert!(
            matches!(refused, Err(TranslationError::Range(_))),
            "{page} is outside: {refused:?}"
        );
    }
    assert_eq!(found(&mut design, ONE, Page(3)), Frame(30));
}

fn counters_add_up<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    let before = design.counters();
    for page in 0..32 {
        design
            .install(ONE, Page(page * 7), Frame(page))
            .expect("install");
    }
    let mut misses = 0;
    for turn in 0..200 {
        misses += u64::from(!design.lookup(ONE, Page(turn * 7 % 256)).is_hit());
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
        for (process, page) in [
            (ONE, Page(4)),
            (ONE, Page(u64::MAX)),
            (TWO, Page(3)),
            (Process(9), Page(3)),
        ] {
            assert_eq!(design.installed(process, page), Frame::GARBAGE);
        }
    }
    assert_eq!(
        design.counters(),
        before,
        "asking what is installed counts no lookup"
    );
    assert_eq!(
        design.lookup(ONE, Page(3)),
        unasked.lookup(ONE, Page(3)),
        "asking what is installed fills no cache"
    );
    design.remove(ONE, Page(3)).expect("remove");
    assert_eq!(design.installed(ONE, Page(3)), Frame::GARBAGE);
}

fn memory_is_listed_by_distinct_names<D: TranslationDesign>(make: &impl Fn() -> D) {
    let mut design = opened(make);
    design.install(ONE, Page(0), Frame(1)).expect("install");
    let listed: Vec<_> = design.nic_memory().collect();
    let by_name: BTreeMap<_, _> = listed.iter().copied().collect();
    assert_eq!(
        by_name.len(),
        listed.len(),
        "a name occurs twice in {listed:?}"
    );
    assert!(
        listed.iter().any(|(_, bytes)| *bytes > 0),
        "a design needs some NIC memory: {listed:?}"
    );
}

/// One step of a random sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Open, if closed.
    Open(Process),
    /// Close, if open.
    Close(Process),
    /// Install, if open.
    Install(Process, Page, Frame),
    /// Remove, if open.
    Remove(Process, Page),
    /// Look up, open or not.
    Lookup(Process, Page),
}

/// `count` steps that follow from the seed: four processes, pages near one another and 2⁶…2³⁰ pages apart.
pub fn random_ops(seed: u64, count: usize) -> Vec<Op> {
    let mut state = seed;
    // SplitMix64.
    let mut draw = |below: u64| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    };
    (0..count)
        .map(|_| {
            let process = Process(draw(4) as u16);
            let page = Page(draw(12) + (draw(3) << (6 * draw(6))));
            match draw(20) {
                0..2 => Op::Open(process),
                2 if draw(3) == 0 => Op::Close(process),
                2..9 => Op::Install(process, page, Frame(draw(1 << 40))),
                9..12 => Op::Remove(process, page),
                _ => Op::Lookup(process, page),
            }
        })
        .collect()
}

/// Runs the steps on the design and on a plain map, and compares every answer.
///
/// # Panics
/// They differ. The message names the seed and the step.
pub fn agrees_with_oracle<D: TranslationDesign>(design: &mut D, ops: &[Op], seed: u64) {
    let mut oracle: BTreeMap<Process, BTreeMap<Page, Frame>> = BTreeMap::new();
    let before = design.counters();
    let (mut lookups, mut misses) = (0, 0);
    for (step, &op) in ops.iter().enumerate() {
        let place = || alloc::format!("seed {seed}, step {step}: {op:?}");
        match op {
            Op::Open(process) => {
                let expected = !oracle.contains_key(&process);
                assert_eq!(design.open(process).is_ok(), expected, "{}", place());
                oracle.entry(process).or_default();
            }
            Op::Close(process) => {
                let expected = oracle.remove(&process).is_some();
                assert_eq!(design.close(process).is_ok(), expected, "{}", place());
            }
            Op::Install(process, page, frame) => {
                let installed = design.install(process, page, frame).is_ok();
                let pages = oracle.get_mut(&process);
                assert_eq!(installed, pages.is_some(), "{}", place());
                pages.map(|pages| pages.insert(page, frame));
            }
            Op::Remove(process, page) => {
                let removed = design.remove(process, page).is_ok();
                let pages = oracle.get_mut(&process);
                assert_eq!(removed, pages.is_some(), "{}", place());
                pages.map(|pages| pages.remove(&page));
            }
            Op::Lookup(process, page) => {
                let found = design.lookup(process, page);
                let pages = oracle.get(&process);
                let expected = pages
                    .and_then(|pages| pages.get(&page))
                    .copied()
                    .unwrap_or(Frame::GARBAGE);
                assert_eq!(found.frame(), Some(expected), "{}", place());
                assert_eq!(design.installed(process, page), expected, "{}", place());
                lookups += 1;
                misses += u64::from(!found.is_hit());
            }
        }
    }
    let counted = design.counters() - before;
    assert_eq!(
        (counted.lookups, counted.nic_misses),
        (lookups, misses),
        "seed {seed}: counters"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheConfig, Counters, Hierarchical, Lookup};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Fault {
        None,
        ForgetsNothing,
        IgnoresNewFrames,
        ConfusesProcesses,
        SurvivesClosing,
        AlwaysHits,
        CountsTwice,
        FailsUnpinnedPages,
        ForgetsWhatIsInstalled,
    }

    /// A right design with one thing wrong.
    struct Faulty {
        inner: Hierarchical,
        fault: Fault,
        extra: u64,
    }

    impl Faulty {
        fn has(&self, fault: Fault) -> bool {
            self.fault == fault
        }
    }

    impl TranslationDesign for Faulty {
        fn name(&self) -> &'static str {
            "faulty"
        }

        fn open(&mut self, process: Process) -> Result<(), TranslationError> {
            let reopened = self.has(Fault::SurvivesClosing) && self.inner.table(process).is_some();
            if reopened {
                Ok(())
            } else {
                self.inner.open(process)
            }
        }

        fn close(&mut self, process: Process) -> Result<(), TranslationError> {
            let survives = self.has(Fault::SurvivesClosing) && self.inner.table(process).is_some();
            if survives {
                Ok(())
            } else {
                self.inner.close(process)
            }
        }

        fn install(
            &mut self,
            process: Process,
            page: Page,
            frame: Frame,
        ) -> Result<(), TranslationError> {
            let installed = self
                .inner
                .table(process)
                .is_some_and(|table| table.walk(page) != Frame::GARBAGE);
            if installed && self.has(Fault::IgnoresNewFrames) {
                return Ok(());
            }
            self.inner.install(process, page, frame)
        }

        fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
            if self.has(Fault::ForgetsNothing) && self.inner.table(process).is_some() {
                return Ok(());
            }
            self.inner.remove(process, page)
        }

        fn lookup(&mut self, process: Process, page: Page) -> Lookup {
            self.extra += u64::from(self.has(Fault::CountsTwice));
            let asked = if self.has(Fault::ConfusesProcesses) {
                Process(process.0 & !1)
            } else {
                process
            };
            let found = self.inner.lookup(asked, page);
            match found.frame() {
                Some(Frame::GARBAGE) if self.has(Fault::FailsUnpinnedPages) => {
                    Lookup::Miss(Frame(0))
                }
                Some(frame) if self.has(Fault::AlwaysHits) => Lookup::Hit(frame),
                _ => found,
            }
        }

        fn installed(&self, process: Process, page: Page) -> Frame {
            if self.has(Fault::ForgetsWhatIsInstalled) {
                return Frame::GARBAGE;
            }
            self.inner.installed(process, page)
        }

        fn is_cached(&self, process: Process, page: Page) -> bool {
            self.inner.is_cached(process, page)
        }

        fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
            self.inner.nic_memory()
        }

        fn host_memory_bytes(&self) -> usize {
            self.inner.host_memory_bytes()
        }

        fn counters(&self) -> Counters {
            let counted = self.inner.counters();
            Counters {
                lookups: counted.lookups + self.extra,
                ..counted
            }
        }
    }

    #[test]
    fn the_suite_notices_every_fault_and_passes_a_design_without() {
        use Fault::*;
        let faults = [
            None,
            ForgetsNothing,
            IgnoresNewFrames,
            ConfusesProcesses,
            SurvivesClosing,
            AlwaysHits,
            CountsTwice,
            FailsUnpinnedPages,
            ForgetsWhatIsInstalled,
        ];
        for fault in faults {
            let make = || Faulty {
                inner: Hierarchical::new(CacheConfig::default()).unwrap(),
                fault,
                extra: 0,
            };
            let passed = catch_unwind(AssertUnwindSafe(|| suite(make))).is_ok();
            assert_eq!(passed, fault == None, "{fault:?}");
        }
    }

    #[test]
    fn a_seed_always_draws_the_same_steps() {
        assert_eq!(random_ops(7, 50), random_ops(7, 50));
        assert_ne!(random_ops(7, 50), random_ops(8, 50));
    }
}
