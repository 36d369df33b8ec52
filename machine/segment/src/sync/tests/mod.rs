//! Tests of the objects, by threads and by processes.

mod counted;
mod hostile;
mod locks;
#[cfg(loom)]
#[allow(unsafe_code)]
mod models;
mod numbered;
mod oracles;
mod processes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mapwire_host::memory::memfd;
use mapwire_host::waiting::{Patience, WaitStrategy};
use mapwire_testing::children::free_base;

use crate::sync::Objects;
use crate::waiting::Vigil;
use crate::{Segment, SegmentError};

use crate::forked::Child;

/// A rank is gone once the word is not 0: its number plus one.
#[derive(Clone, Debug, Default)]
struct Word(Arc<AtomicU32>);

impl Vigil for Word {
    fn gone(&self) -> Option<u32> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

const BYTES: u64 = 64 << 20;

fn segment() -> Arc<Segment> {
    segment_of(Word::default())
}

fn segment_of(vigil: Word) -> Arc<Segment> {
    segment_at(free_base(), vigil)
}

fn segment_at(base: usize, vigil: Word) -> Arc<Segment> {
    let file = memfd::create_growing("test").unwrap();
    let patience = Patience::new(WaitStrategy::default(), 2, core::hint::spin_loop);
    let segment = Segment::map(file, base, BYTES, 0, patience, Box::new(vigil)).unwrap();
    segment.grow_to(10 << 20).unwrap();
    Arc::new(segment)
}

/// The objects of `ranks` ranks, which share one mapping.
fn ranks(segment: &Arc<Segment>, ranks: u32, participants: u32) -> Vec<Objects> {
    (0..ranks).map(|rank| Objects::new(Arc::clone(segment), rank, ranks, participants).unwrap()).collect()
}

fn alone() -> Objects {
    ranks(&segment(), 1, 1).remove(0)
}
