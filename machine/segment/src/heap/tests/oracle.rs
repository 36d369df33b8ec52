//! Random calls by several threads, beside a plain list of what is allocated.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::random::Random;
use super::*;

/// A block: where it is, its length, and the byte that fills it.
#[derive(Clone, Copy, Debug)]
struct Held {
    offset: u64,
    bytes: u64,
    value: u8,
}

/// What all threads have: blocks by their offsets, and those that any thread may free.
#[derive(Default)]
struct Oracle {
    lengths: Mutex<BTreeMap<u64, u64>>,
    passed: Mutex<Vec<Held>>,
}

impl Oracle {
    fn add(&self, offset: u64, bytes: u64) {
        let mut lengths = self.lengths.lock().unwrap();
        let before = lengths.range(..=offset).next_back().map(|(at, bytes)| at + bytes);
        let after = lengths.range(offset..).next().map(|(&at, _)| at);
        assert!(before.is_none_or(|end| end <= offset), "{offset:#x} is in use");
        assert!(after.is_none_or(|at| offset + bytes <= at), "{bytes} bytes at {offset:#x} reach into another block");
        lengths.insert(offset, bytes);
    }

    fn remove(&self, offset: u64) {
        assert!(self.lengths.lock().unwrap().remove(&offset).is_some());
    }
}

fn bytes(random: &mut Random) -> u64 {
    match random.below(10) {
        0..6 => random.within(1, 200),
        6..8 => random.within(1, 5000),
        8 => random.within(1, 140_000),
        _ => random.within(1, 1 << 20),
    }
}

fn allocate(heap: &Heap, random: &mut Random) -> Option<Held> {
    let bytes = bytes(random);
    let (given, align, zeroed) = match random.below(4) {
        0 => (heap.malloc(bytes), 16, false),
        1 => (heap.calloc(1, bytes), 16, true),
        2 => {
            let align = 1 << random.below(14);
            (heap.aligned_alloc(align, bytes), align, false)
        }
        _ => (heap.alloc(bytes, 1), if bytes < 64 { 16 } else { 64 }, true),
    };
    let offset = match given {
        Ok(offset) => offset,
        Err(HeapError::OutOfMemory { .. }) => return None,
        Err(error) => panic!("{error}"),
    };
    assert!(offset.is_multiple_of(align), "{bytes} bytes at {offset:#x}, a multiple of {align}");
    if zeroed {
        assert_eq!(heap.first_unlike(offset, bytes, 0), None, "{bytes} bytes at {offset:#x}");
    }
    assert!(heap.usable_bytes(offset).unwrap() >= bytes);
    Some(Held { offset, bytes, value: random.byte() })
}

fn run(heap: &Heap, oracle: &Oracle, mut random: Random, steps: usize) {
    let mut held: Vec<Held> = Vec::new();
    let check = |it: &Held, bytes: u64| {
        assert_eq!(heap.first_unlike(it.offset, bytes, it.value), None, "{it:?}");
    };
    for _ in 0..steps {
        let drawn = (!held.is_empty()).then(|| random.below(held.len() as u64) as usize);
        match (random.below(10), drawn) {
            (0..4, _) | (_, None) => {
                let Some(block) = allocate(heap, &mut random) else { continue };
                oracle.add(block.offset, block.bytes);
                heap.fill(block.offset, block.bytes, block.value);
                held.push(block);
            }
            (4..7, Some(at)) => {
                let block = held.swap_remove(at);
                check(&block, block.bytes);
                oracle.remove(block.offset);
                heap.free(block.offset).unwrap();
            }
            (7, Some(at)) => {
                let (before, wanted) = (held[at], bytes(&mut random));
                oracle.remove(before.offset);
                let Ok(offset) = heap.realloc(before.offset, wanted) else {
                    oracle.add(before.offset, before.bytes);
                    continue;
                };
                oracle.add(offset, wanted);
                held[at] = Held { offset, bytes: wanted, ..before };
                check(&held[at], before.bytes.min(wanted));
                heap.fill(offset, wanted, before.value);
            }
            (8, Some(at)) => oracle.passed.lock().unwrap().push(held.swap_remove(at)),
            _ => {
                let Some(block) = oracle.passed.lock().unwrap().pop() else { continue };
                check(&block, block.bytes);
                oracle.remove(block.offset);
                heap.free(block.offset).unwrap();
            }
        }
    }
    for block in held {
        check(&block, block.bytes);
        oracle.remove(block.offset);
        heap.free(block.offset).unwrap();
    }
}

fn check(heap: &Heap, seed: u64) {
    println!("seed {seed}");
    let oracle = Arc::new(Oracle::default());
    let threads = [0, 1, 2, 3].map(|thread| {
        let (heap, oracle) = (heap.clone(), Arc::clone(&oracle));
        std::thread::spawn(move || run(&heap, &oracle, Random::new(seed * 4 + thread), 1200))
    });
    for thread in threads {
        thread.join().unwrap();
    }
    for block in oracle.passed.lock().unwrap().drain(..) {
        heap.free(block.offset).unwrap();
    }
    assert_eq!(heap.leaks(), []);
    heap.trim();
    assert_eq!(heap.statistics().taken_bytes, 0);
}

#[test]
fn blocks_of_several_threads_never_overlap_and_keep_their_content() {
    // Once with room, once in want of it: the blocks of 4 threads take some 100 MB.
    for (seed, bytes) in [(1, 1 << 30), (2, 32 << 20), (3, 24 << 20)] {
        check(&heap(bytes), seed);
    }
}

#[test]
fn the_same_holds_in_debug_mode() {
    check(&debug_heap(1 << 30), 11);
    check(&debug_heap(24 << 20), 12);
}
