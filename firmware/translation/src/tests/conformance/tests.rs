use super::*;
use crate::design::{HandleLookup, Pinning, TranslationError};
use crate::page::PageRange;
use crate::{AnyDesign, Counters};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn every_design_conforms_in_every_shape() {
    for text in [
        "hierarchical",
        "hierarchical,entries=16,offset=off",
        "hierarchical,entries=1",
        "hierarchical,entries=32,ways=4",
        "hierarchical,entries=32,line=4,prefetch=8",
        "hierarchical,entries=32,ways=2,line=4,prefetch=32",
        "hierarchical,entries=32,ways=16,line=2,prefetch=3",
        "hierarchical,entries=16,tables=1",
        "hierarchical,entries=32,line=4,prefetch=8,tables=2",
        "shared-cache",
        "shared-cache,entries=1",
        "shared-cache,entries=16,offset=off,prefetch=8",
        "shared-cache,entries=32,ways=4,line=2,prefetch=8",
        "per-process",
        "per-process,entries=256",
        "per-process,entries=13",
        "per-process,entries=5",
        "interrupt",
        "interrupt,entries=1",
        "interrupt,entries=16,offset=off",
        "interrupt,entries=16,ways=4,fill=8",
        "interrupt,variant=vmmc",
        "interrupt,variant=vmmc,entries=8,fill=32",
        "interrupt,variant=vmmc,entries=2,ways=1,fill=2",
        "dynamic-handle",
        "dynamic-handle,entries=1,ways=1,line=1,cbh=1,pch=1",
        "dynamic-handle,entries=32,line=4,ways=2,high-water=64KiB",
        "dynamic-handle,entries=16,line=16,ways=1,high-water=16KiB",
        "dynamic-handle,entries=32,line=1,ways=32,offset=on,high-water=1",
    ] {
        let config = crate::words::parse_design(text).unwrap();
        let conforms = || suite(|| AnyDesign::new(&config).unwrap());
        let outcome = catch_unwind(AssertUnwindSafe(conforms));
        assert!(outcome.is_ok(), "{text} does not conform; see above");
    }
}

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
    HidesWhatItEvicts,
    FillsNothing,
    LosesBuffers,
    HasRoomForMore,
    SaysNothingIsCached,
}

/// A correct design with one fault.
struct Faulty {
    inner: AnyDesign,
    fault: Fault,
    closed: Vec<Process>,
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
        if self.closed.contains(&process) {
            self.closed.retain(|closed| *closed != process);
            return Ok(());
        }
        self.inner.open(process)
    }

    fn close(&mut self, process: Process) -> Result<(), TranslationError> {
        let wrong = process.0 > 8 || self.closed.contains(&process);
        if self.has(Fault::SurvivesClosing) && !wrong {
            self.closed.push(process);
            return Ok(());
        }
        self.inner.close(process)
    }

    fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        let installed = self.inner.installed(process, page) != Frame::GARBAGE;
        if installed && self.has(Fault::IgnoresNewFrames) {
            return Ok(());
        }
        self.inner.install(process, page, frame)
    }

    fn install_receive(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        self.inner.install_receive(process, page, frame)
    }

    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
        if self.has(Fault::ForgetsNothing) && process.0 < 8 {
            return Ok(());
        }
        self.inner.remove(process, page)
    }

    fn lookup(&mut self, process: Process, page: Page) -> Lookup {
        self.extra += u64::from(self.has(Fault::CountsTwice));
        let asked = if self.has(Fault::ConfusesProcesses) { Process(process.0 & !1) } else { process };
        let found = self.inner.lookup(asked, page);
        match found.frame() {
            Some(Frame::GARBAGE) if self.has(Fault::FailsUnpinnedPages) => Lookup::Miss(Frame(0)),
            Some(frame) if self.has(Fault::AlwaysHits) => Lookup::Hit(frame),
            _ => found,
        }
    }

    fn lookup_receive(&mut self, process: Process, page: Page) -> Lookup {
        self.inner.lookup_receive(process, page)
    }

    fn lookup_buffer(&mut self, process: Process, buffer: u32) -> HandleLookup {
        self.inner.lookup_buffer(process, buffer)
    }

    fn lookup_process(&mut self, process: Process) -> HandleLookup {
        self.inner.lookup_process(process)
    }

    fn pinning(&self) -> Pinning {
        self.inner.pinning()
    }

    fn pinning_receive(&self) -> Pinning {
        self.inner.pinning_receive()
    }

    fn drops_on_miss(&self) -> bool {
        self.inner.drops_on_miss()
    }

    fn unpins_evicted(&self) -> bool {
        self.inner.unpins_evicted()
    }

    fn capacity_pages(&self) -> Option<u64> {
        let pages = self.inner.capacity_pages();
        pages.map(|pages| pages + u64::from(self.has(Fault::HasRoomForMore)))
    }

    fn high_water_pages(&self) -> Option<u64> {
        self.inner.high_water_pages()
    }

    fn fill(&mut self, process: Process, pages: PageRange, evicted: &mut Vec<(Process, Page)>) {
        if self.has(Fault::FillsNothing) {
            return;
        }
        self.inner.fill(process, pages, evicted);
        if self.has(Fault::HidesWhatItEvicts) {
            evicted.clear();
        }
    }

    fn displaced_by(&self, process: Process, page: Page) -> Option<(Process, Page)> {
        self.inner.displaced_by(process, page)
    }

    fn fill_buffer(&mut self, process: Process, buffer: u32) {
        self.inner.fill_buffer(process, buffer);
        if self.has(Fault::LosesBuffers) {
            self.inner.forget_buffer(process, buffer);
        }
    }

    fn forget_buffer(&mut self, process: Process, buffer: u32) {
        self.inner.forget_buffer(process, buffer);
    }

    fn fill_process(&mut self, process: Process) {
        self.inner.fill_process(process);
    }

    fn is_cached(&self, process: Process, page: Page) -> bool {
        self.inner.is_cached(process, page) && !self.has(Fault::SaysNothingIsCached)
    }

    fn installed(&self, process: Process, page: Page) -> Frame {
        if self.has(Fault::ForgetsWhatIsInstalled) {
            return Frame::GARBAGE;
        }
        self.inner.installed(process, page)
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.inner.nic_memory()
    }

    fn host_memory_bytes(&self) -> usize {
        self.inner.host_memory_bytes()
    }

    fn counters(&self) -> Counters {
        let counted = self.inner.counters();
        Counters { lookups: counted.lookups + self.extra, ..counted }
    }
}

#[test]
fn the_suite_notices_every_fault_and_passes_a_design_without() {
    use Fault::*;
    let anywhere = [
        None,
        ForgetsNothing,
        IgnoresNewFrames,
        ConfusesProcesses,
        SurvivesClosing,
        CountsTwice,
        FailsUnpinnedPages,
        ForgetsWhatIsInstalled,
        SaysNothingIsCached,
    ];
    for (text, faults) in [
        ("hierarchical", &[AlwaysHits][..]),
        ("per-process,entries=6", &[HasRoomForMore]),
        ("interrupt,entries=16", &[HidesWhatItEvicts, FillsNothing]),
        ("dynamic-handle", &[FillsNothing, LosesBuffers]),
    ] {
        let config = crate::words::parse_design(text).unwrap();
        let everywhere = text != "per-process,entries=6";
        for &fault in anywhere.iter().filter(|_| everywhere).chain(faults) {
            let make = || Faulty { inner: AnyDesign::new(&config).unwrap(), fault, closed: Vec::new(), extra: 0 };
            let passed = catch_unwind(AssertUnwindSafe(|| suite(make))).is_ok();
            assert_eq!(passed, fault == None, "{text}: {fault:?}");
        }
    }
}

#[test]
fn a_seed_always_draws_the_same_steps() {
    assert_eq!(random_ops(7, 50), random_ops(7, 50));
    assert_ne!(random_ops(7, 50), random_ops(8, 50));
}
