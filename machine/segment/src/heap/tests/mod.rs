//! Tests of the heap: in one thread, in several, in several processes, and with words that others overwrite.

mod bounds;
mod hostile;
mod kinds;
mod oracle;
mod processes;
#[path = "../../../../../tests/random.rs"]
mod random;
mod reuse;

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use mapwire_host::memory::memfd;
use mapwire_host::waiting::{Patience, WaitStrategy};

use super::*;
use crate::waiting::Vigil;

/// Nobody dies.
#[derive(Debug)]
struct Calm;

impl Vigil for Calm {
    fn gone(&self) -> Option<u32> {
        None
    }
}

/// A segment of so many bytes, at an address that no other test uses.
fn segment(bytes: u64) -> Arc<Segment> {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000_0000_0000);
    let base = NEXT.fetch_add(bytes.next_multiple_of(MOST_ALIGN) as usize, Ordering::Relaxed);
    let patience = Patience::new(WaitStrategy::Event, 1, core::hint::spin_loop);
    let file = memfd::create_growing("test").unwrap();
    Arc::new(Segment::map(file, base, bytes, 0, patience, Box::new(Calm)).unwrap())
}

fn heap(bytes: u64) -> Heap {
    Heap::open(segment(bytes), 0, false).unwrap()
}

fn debug_heap(bytes: u64) -> Heap {
    Heap::open(segment(bytes), 3, true).unwrap()
}

impl Heap {
    fn first_unlike(&self, offset: u64, bytes: u64, value: u8) -> Option<u64> {
        let mut found = vec![0; bytes as usize];
        assert!(self.segment().read(offset, &mut found), "{offset:#x} and {bytes} bytes are not in use");
        found.iter().position(|&byte| byte != value).map(|at| at as u64)
    }

    fn fill(&self, offset: u64, bytes: u64, value: u8) {
        assert!(self.segment().fill(offset, bytes, value));
    }

    /// Bytes of memory that the segment's file takes.
    fn resident(&self) -> u64 {
        rustix::fs::fstat(self.segment().file()).unwrap().st_blocks as u64 * 512
    }
}
