//! Several processes on one heap.

use std::collections::BTreeSet;
use std::time::Duration;

use super::random::Random;
use super::*;
use crate::forked::Child;

const SLOTS: u64 = 64;

/// A word of a table in the heap.
fn slot(heap: &Heap, table: u64, nth: u64) -> &core::sync::atomic::AtomicU64 {
    heap.segment().word64(table + nth * 8).unwrap()
}

#[test]
fn what_one_process_allocates_another_frees_and_it_is_given_again() {
    const BLOCKS: u64 = 100_000;
    let heap = heap(64 << 20);
    let table = heap.alloc(SLOTS * 8, 1).unwrap();
    let value_of = |nth: u64| (nth % 251) as u8;
    let bytes_of = |nth: u64| nth % 300 + 1;
    let mut consumer = Child::start_to_end(|| {
        for nth in 0..BLOCKS {
            let slot = slot(&heap, table, nth % SLOTS);
            let block = loop {
                match slot.swap(0, Ordering::AcqRel) {
                    0 => std::thread::yield_now(),
                    block => break block,
                }
            };
            assert_eq!(heap.first_unlike(block, bytes_of(nth), value_of(nth)), None);
            heap.free(block).unwrap();
        }
        heap.trim();
    });
    for nth in 0..BLOCKS {
        let block = heap.malloc(bytes_of(nth)).unwrap();
        heap.fill(block, bytes_of(nth), value_of(nth));
        let slot = slot(&heap, table, nth % SLOTS);
        while slot.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
        slot.store(block, Ordering::Release);
    }
    assert_eq!(consumer.code(), 0);
    let statistics = heap.statistics();
    assert_eq!(statistics.blocks, 1);
    assert!(statistics.highest_bytes < 16 << 20, "{statistics:?}");
    heap.free(table).unwrap();
    heap.trim();
    assert_eq!(heap.statistics().taken_bytes, 0);
}

#[test]
fn a_forked_child_leaves_what_its_parent_keeps_alone() {
    const BLOCKS: u64 = 3000;
    let heap = heap(64 << 20);
    let table = heap.alloc(2 * BLOCKS * 8, 1).unwrap();
    // So that the parent's thread keeps blocks of these sizes, freed ones and others.
    let kept: Vec<u64> = (0..100).map(|nth| heap.malloc(nth % 300 + 1).unwrap()).collect();
    kept.into_iter().for_each(|block| heap.free(block).unwrap());
    let work = |first: u64| {
        for nth in 0..BLOCKS {
            let block = heap.malloc(nth % 300 + 1).unwrap();
            slot(&heap, table, first + nth).store(block, Ordering::Relaxed);
        }
    };
    let mut child = Child::start_to_end(|| {
        // By a thread of its own and by that which has forked.
        std::thread::scope(|scope| {
            scope.spawn(|| heap.free(heap.malloc(5).unwrap()).unwrap());
        });
        work(BLOCKS);
    });
    work(0);
    assert_eq!(child.code(), 0);
    let all: BTreeSet<u64> = (0..2 * BLOCKS).map(|nth| slot(&heap, table, nth).load(Ordering::Relaxed)).collect();
    assert_eq!(all.len() as u64, 2 * BLOCKS);
    // This process frees what the child has left behind.
    all.into_iter().for_each(|block| heap.free(block).unwrap());
    assert_eq!(heap.statistics().blocks, 1);
}

/// Allocates and frees until killed.
fn churn(heap: &Heap, seed: u64) {
    let mut random = Random::new(seed);
    let mut held = Vec::new();
    loop {
        if held.len() < 50 && random.chance(60) {
            let bytes = if random.chance(10) { random.within(1, 1 << 20) } else { random.within(1, 600) };
            let block = heap.alloc(bytes, 1).unwrap();
            heap.fill(block, bytes, 1);
            held.push(block);
        } else if !held.is_empty() {
            let at = random.below(held.len() as u64) as usize;
            heap.free(held.swap_remove(at)).unwrap();
        }
    }
}

#[test]
fn processes_that_are_killed_at_any_point_leave_the_others_working() {
    let seed = 5;
    println!("seed {seed}");
    let heap = heap(16 << 30);
    let mut random = Random::new(seed);
    for round in 0..60 {
        let children = [0, 1].map(|nth| Child::start_to_end(|| churn(&heap, seed + round * 2 + nth)));
        std::thread::sleep(Duration::from_micros(random.within(1, 4000)));
        children.iter().for_each(Child::kill);
        for mut child in children {
            assert_eq!(child.code(), -1);
        }
        let blocks: Vec<(u64, u64)> = (0..200)
            .map(|_| {
                let bytes = random.within(1, 3000);
                (heap.alloc(bytes, 1).unwrap(), bytes)
            })
            .collect();
        for (block, bytes) in blocks {
            assert_eq!(heap.first_unlike(block, bytes, 0), None);
            heap.fill(block, bytes, 2);
            heap.free(block).unwrap();
        }
    }
    heap.trim();
    // What the dead had: some 50 blocks each, most of them short, and the slabs that they took blocks from.
    let taken = heap.statistics().taken_bytes;
    assert!(taken < 120 * (64 << 20), "{taken}");
}
