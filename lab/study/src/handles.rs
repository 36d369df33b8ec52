//! The handles of buffers (CBH) and processes (PCH) of a trace (dynamic handle lookup §IV).
//!
//! The NIC that receives looks up the process, then the buffer, before it translates anything. A trace has no handles, but it has
//! exports: a receive is of the first export, in order of time, that has its first page and has not ended. Receives of memory
//! without such an export share one buffer for each process. One operation looks its handles up once: the packets of one
//! operation follow one another, so those behind the first hit.

use std::collections::{HashMap, HashSet};

use mapwire_translation::{
    CacheError, DynamicHandle, DynamicHandleConfig, HandleLookup, Page, PageRange, Process, TranslationDesign,
};

use mapwire_wire::TraceOp;

use crate::decode::{Chunk, Event, FIRST, PAGE_ID, Pages, RECEIVE};

/// The buffer of receives of which the trace knows no export.
const UNKNOWN: u32 = u32::MAX;
/// Bits of a buffer's number below its generation, as the NIC's export table gives them.
const INDEX_BITS: u32 = 16;

/// The buffers that each process has exported, numbered as the NIC numbers them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handles {
    exports: HashMap<Process, Exports>,
    /// Numbers of ended exports, and how many there were in all.
    free: Vec<u32>,
    numbers: u32,
}

#[derive(Clone, Debug, Default)]
struct Exports {
    all: Vec<(PageRange, u32)>,
    /// Where the last receive's export was found.
    last: usize,
}

impl Exports {
    fn of(&mut self, page: Page) -> u32 {
        let has = |(export, _): &(PageRange, u32)| export.contains(page);
        if !self.all.get(self.last).is_some_and(has) {
            self.last = self.all.iter().position(has).unwrap_or(usize::MAX);
        }
        self.all.get(self.last).map_or(UNKNOWN, |export| export.1)
    }
}

impl Handles {
    pub(crate) fn event(&mut self, event: &Event) {
        let exports = self.exports.entry(event.process).or_default();
        match event.op {
            TraceOp::Export => {
                let number = self.free.pop().unwrap_or_else(|| {
                    self.numbers += 1;
                    self.numbers - 1
                });
                exports.all.push((event.range, number));
            }
            TraceOp::Unexport => {
                let ended = exports.all.iter().position(|it| it.0 == event.range);
                if let Some(at) = ended {
                    let number = exports.all.remove(at).1;
                    exports.last = usize::MAX;
                    // Another generation of the same place.
                    self.free.push(number.wrapping_add(1 << INDEX_BITS));
                }
            }
            _ => {}
        }
    }

    /// Looks up the handles of a receive that begins in that page, and brings in what is missing. After each miss the packet comes again, and both handles
    /// are looked up again.
    pub(crate) fn look_up(&mut self, design: &mut impl TranslationDesign, process: Process, first: Page) {
        let buffer = match self.exports.get_mut(&process) {
            Some(exports) => exports.of(first),
            None => UNKNOWN,
        };
        // A cache takes in what was missed, so that each handle is missed once.
        for _ in 0..3 {
            if design.lookup_process(process) != HandleLookup::Hit {
                design.fill_process(process);
            } else if design.lookup_buffer(process, buffer) != HandleLookup::Hit {
                design.fill_buffer(process, buffer);
            } else {
                return;
            }
        }
    }
}

/// The two caches alone, for engines that count misses of translations in another way.
#[derive(Clone, Debug)]
pub(crate) struct HandleReplay {
    handles: Handles,
    design: DynamicHandle,
    opened: HashSet<Process>,
}

impl HandleReplay {
    pub(crate) fn new(cbh_entries: usize, pch_entries: usize) -> Result<Self, CacheError> {
        let config = DynamicHandleConfig::default().with_handles(cbh_entries, pch_entries);
        // Nothing is translated.
        let cache = config.cache.with_entries(1).with_line_entries(1).with_ways(1);
        Ok(HandleReplay {
            handles: Handles::default(),
            design: DynamicHandle::new(config.with_cache(cache))?,
            opened: HashSet::new(),
        })
    }

    pub(crate) fn run(&mut self, chunk: &Chunk, pages: &Pages) {
        let mut events = chunk.events.iter().peekable();
        for (at, lookup) in chunk.lookups.iter().enumerate() {
            if lookup & FIRST == 0 || lookup & RECEIVE == 0 {
                continue;
            }
            while let Some(event) = events.next_if(|event| event.at <= at) {
                self.handles.event(event);
            }
            let (process, first) = pages.name(lookup & PAGE_ID);
            if self.opened.insert(process) {
                // It was not open.
                let _ = self.design.open(process);
            }
            self.handles.look_up(&mut self.design, process, first);
        }
        events.for_each(|event| self.handles.event(event));
    }

    pub(crate) fn counts(&self) -> mapwire_translation::HandleCounters {
        self.design.counters().handles
    }
}
