//! A process that overwrites the heap's words.

use core::sync::atomic::AtomicBool;

use super::random::Random;
use super::units::UNIT_BYTES;
use super::*;
use crate::layout::{DATA_AT, HEAP_AT, HEAP_BYTES};

const BYTES: u64 = 32 << 20;

/// Overwrites a word of the heap, or of a slab.
fn overwrite(segment: &Segment, random: &mut Random) {
    let units = (BYTES - DATA_AT) / UNIT_BYTES;
    let within = |random: &mut Random, at: u64, bytes: u64| at + random.below(bytes / 4) * 4;
    let at = match random.below(6) {
        0 => within(random, HEAP_AT, 256),
        1 => within(random, HEAP_AT + 4096, 88 * 64),
        // Bits and entries of units: their places are known to whoever reads this crate.
        2 => within(random, HEAP_AT + (16 << 10), units / 8),
        3 => within(random, HEAP_AT + (16 << 10) + (1 << 19) / 8, units * 4),
        4 => within(random, HEAP_AT, HEAP_BYTES),
        _ => {
            let bytes = if random.chance(50) { 64 } else { 6000 };
            DATA_AT + random.below(units) * UNIT_BYTES + within(random, 0, bytes)
        }
    };
    let Some(word) = segment.word32(at) else { return };
    let value = match random.below(8) {
        0 => 0,
        1 => u32::MAX,
        2 => random.below(4) as u32,
        3 => random.below(units + 2) as u32,
        4 => random.below(256) as u32 | (random.below(20) as u32) << 8,
        5 => random.below(256) as u32 | (random.below(units * 2) as u32) << 8,
        6 => word.load(Ordering::Relaxed).wrapping_add(random.below(5) as u32).wrapping_sub(2),
        _ => random.next() as u32,
    };
    word.store(value, Ordering::Relaxed);
}

/// A call, whatever it says: what it gives lies in the segment.
fn call(heap: &Heap, random: &mut Random, held: &mut Vec<u64>) {
    let bytes = match random.below(8) {
        0..5 => random.within(1, 600),
        5 | 6 => random.within(1, 150_000),
        _ => random.within(1, 3 << 20),
    };
    let drawn = (!held.is_empty()).then(|| random.below(held.len() as u64) as usize);
    let given = match (random.below(9), drawn) {
        (0, _) => heap.alloc(bytes, 1),
        (1, _) => heap.malloc(bytes),
        (2, _) => heap.aligned_alloc(1 << random.below(22), bytes),
        (3, Some(at)) => heap.realloc(held[at], bytes),
        (4..8, Some(at)) => {
            let _ = heap.free(held.swap_remove(at));
            return;
        }
        (8, _) if random.chance(2) => {
            heap.trim();
            let statistics = heap.statistics();
            assert!(statistics.highest_bytes <= BYTES);
            heap.leaks();
            return;
        }
        _ => heap.free(random.below(BYTES + 100)).map(|()| DATA_AT).or(heap.malloc(bytes)),
    };
    if let Ok(offset) = given {
        let usable = heap.segment().is_in_use(offset, 1) && offset >= DATA_AT && offset + bytes <= BYTES;
        assert!(usable || offset == DATA_AT, "{bytes} bytes at {offset:#x}");
        assert!(offset == DATA_AT || heap.segment().is_in_use(offset, bytes), "{bytes} bytes at {offset:#x}");
        held.push(offset);
    }
    if held.len() > 500 {
        held.clear();
    }
}

#[test]
fn overwritten_words_lead_neither_out_of_the_segment_nor_to_a_panic_or_an_endless_loop() {
    for seed in 0..8 {
        println!("seed {seed}");
        let heap = Heap::open(segment(BYTES), 0, seed % 5 == 0).unwrap();
        let mut random = Random::new(seed);
        let mut held = Vec::new();
        for step in 0..3000 {
            call(&heap, &mut random, &mut held);
            if step > 200 && random.chance(40) {
                overwrite(heap.segment(), &mut random);
            }
        }
    }
}

#[test]
fn the_same_holds_while_others_overwrite_them_at_any_moment() {
    for seed in 100..105 {
        println!("seed {seed}");
        let heap = Heap::open(segment(BYTES), 0, false).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers = [1, 2].map(|nth| {
                let heap = &heap;
                scope.spawn(move || {
                    let mut random = Random::new(seed * 10 + nth);
                    let mut held = Vec::new();
                    (0..2000).for_each(|_| call(heap, &mut random, &mut held));
                })
            });
            let (heap, ended) = (&heap, &ended);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !ended.load(Ordering::Relaxed) {
                    overwrite(heap.segment(), &mut random);
                }
            });
            let results = workers.map(|worker| worker.join());
            ended.store(true, Ordering::Relaxed);
            assert!(results.iter().all(Result::is_ok));
        });
    }
}
