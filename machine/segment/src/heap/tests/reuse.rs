//! Threads that are slow with a slab whose unit is used for something else by then.

use core::sync::atomic::AtomicBool;
use std::sync::Mutex;
use std::thread;

use super::classes::{CLASSES, class_of};
use super::slabs::Slab;
use super::units::UNIT_BYTES;
use super::*;

/// Words that look like states of slabs.
const STATES: [u32; 4] = [0, 1, 2, 3];

/// A slab of blocks of so many bytes that was dissolved: what a slow thread still takes for one.
fn dissolved(heap: &Heap, bytes: u64) -> Slab {
    let block = heap.malloc(bytes).unwrap();
    let at = block / UNIT_BYTES * UNIT_BYTES;
    heap.free(block).unwrap();
    heap.trim();
    Slab { at, class: class_of(bytes) }
}

/// What a slow thread has yet to do, once it has given its last block back, or left the slab as full.
fn finish_late(heap: &Heap, slab: Slab) {
    let slabs = heap.inner.slabs();
    slabs.give(slab, 0, 0);
    assert!(slabs.leave_full(slab));
}

#[test]
fn a_slow_thread_changes_nothing_in_a_run_where_its_slab_was() {
    let heap = heap(32 << 20);
    let slab = dissolved(&heap, 1024);
    let run = heap.malloc(3 << 20).unwrap();
    assert_eq!(run, slab.at);
    for state in STATES {
        let words = || (0..4).map(|nth| heap.segment().word32(run + nth * 4).unwrap());
        words().for_each(|word| word.store(state, Ordering::Relaxed));
        finish_late(&heap, slab);
        assert!(words().all(|word| word.load(Ordering::Relaxed) == state));
    }
    // Nor does it put the run on a list, from which blocks would be taken.
    let block = heap.malloc(1024).unwrap();
    assert!(block < run || block >= run + (3 << 20), "{block:#x} lies in the run at {run:#x}");
    heap.free(run).unwrap();
    heap.free(block).unwrap();
}

#[test]
fn a_slow_thread_changes_nothing_in_a_slab_of_another_class_where_its_own_was() {
    for class in [1, 31, 40, CLASSES - 1] {
        let heap = heap(32 << 20);
        let slab = dissolved(&heap, 512);
        let bytes = classes::TABLE[class].bytes.into();
        let first = heap.malloc(bytes).unwrap();
        assert_eq!(first / UNIT_BYTES * UNIT_BYTES, slab.at);
        // From the second slab on, the first is full.
        let mut blocks = vec![first];
        while blocks.last().is_some_and(|&block| block < slab.at + u64::from(classes::TABLE[class].slab_bytes)) {
            blocks.push(heap.malloc(bytes).unwrap());
        }
        finish_late(&heap, slab);
        // A slab on the list of the wrong class would end that, and hide those behind it.
        let of_slow = heap.malloc(512).unwrap();
        assert_ne!(of_slow / UNIT_BYTES * UNIT_BYTES, slab.at);
        // The first block comes back to the slab, and is found there again.
        blocks.drain(..).for_each(|block| heap.free(block).unwrap());
        heap.free(of_slow).unwrap();
        heap.trim();
        assert_eq!(heap.statistics().taken_bytes, 0);
    }
}

#[test]
fn what_threads_write_to_runs_stays_while_slabs_come_and_go() {
    const RUN_UNITS: u64 = 3;
    let heap = heap(32 << 20);
    let passed = Mutex::new(Vec::<u64>::new());
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let maker = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if passed.lock().unwrap().len() < 40
                    && let Ok(block) = heap.malloc(128 << 10)
                {
                    passed.lock().unwrap().push(block);
                }
            }
        });
        let givers = [(); 2].map(|()| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let blocks = core::mem::take(&mut *passed.lock().unwrap());
                    blocks.into_iter().for_each(|block| heap.free(block).unwrap());
                    heap.trim();
                }
            })
        });
        let runs = scope.spawn(|| {
            for _ in 0..300 {
                let runs: Vec<u64> = (0..12).filter_map(|_| heap.malloc(RUN_UNITS * UNIT_BYTES).ok()).collect();
                let words = || runs.iter().flat_map(|run| (0..RUN_UNITS).map(move |unit| run + unit * UNIT_BYTES));
                let words = || words().map(|at| heap.segment().word32(at).unwrap());
                words().for_each(|word| word.store(2, Ordering::Relaxed));
                thread::yield_now();
                assert!(words().all(|word| word.load(Ordering::Relaxed) == 2));
                runs.iter().for_each(|&run| heap.free(run).unwrap());
                heap.trim();
            }
        });
        let result = runs.join();
        ended.store(true, Ordering::Relaxed);
        // Joined, they have given back what they kept.
        assert!(givers.map(thread::ScopedJoinHandle::join).iter().all(Result::is_ok));
        assert!(maker.join().is_ok() && result.is_ok());
    });
    passed.into_inner().unwrap().into_iter().for_each(|block| heap.free(block).unwrap());
    heap.trim();
    assert_eq!(heap.statistics().taken_bytes, 0);
}

#[test]
fn a_run_that_is_freed_while_it_grows_leaves_no_units_behind() {
    let heap = heap(32 << 20);
    let run = heap.malloc(3 << 20).unwrap();
    let found = heap.inner.find(run).unwrap();
    heap.free(run).unwrap();
    assert!(matches!(heap.inner.resize(found, 4 << 20), Err(HeapError::NotAllocated { .. })));
    heap.trim();
    assert_eq!(heap.statistics().taken_bytes, 0);
}
