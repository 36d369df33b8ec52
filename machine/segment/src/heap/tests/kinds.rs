//! What each call promises.

use super::*;

#[test]
fn blocks_are_zeroed_and_aligned_as_promised_and_side_by_side() {
    let heap = heap(64 << 20);
    for (bytes, align) in
        [(1, 16), (63, 16), (64, 64), (100, 64), (4095, 64), (4096, 4096), (5000, 4096), (300_000, 4096)]
    {
        let mut before = None;
        for _ in 0..10 {
            let offset = heap.alloc(bytes, 1).unwrap();
            assert!(offset.is_multiple_of(align), "{bytes} at {offset:#x}");
            assert_eq!(heap.first_unlike(offset, bytes, 0), None);
            let step = before.map(|before| offset - before);
            let wanted =
                if bytes > 128 << 10 { bytes.next_multiple_of(64 << 10) } else { bytes.next_multiple_of(align) };
            assert!(step.is_none() || step == Some(wanted), "{bytes}: {step:?}");
            before = Some(offset);
            heap.fill(offset, bytes, 0xff);
        }
    }
}

#[test]
fn recycled_memory_is_zeroed_where_that_is_promised() {
    let heap = heap(64 << 20);
    for bytes in [1, 16, 80, 4096, 100_000, 200_000, 3 << 20] {
        for _ in 0..3 {
            let blocks: Vec<u64> = (0..5).map(|_| heap.malloc(bytes).unwrap()).collect();
            blocks.iter().for_each(|&block| heap.fill(block, bytes, 0xff));
            blocks.iter().for_each(|&block| heap.free(block).unwrap());
            for count in [1, 7] {
                let block = heap.calloc(count, bytes.div_ceil(count)).unwrap();
                assert_eq!(heap.first_unlike(block, bytes, 0), None, "{bytes}");
                heap.fill(block, bytes, 0xff);
                heap.free(block).unwrap();
            }
        }
    }
}

#[test]
fn allocations_of_one_thread_stay_side_by_side_while_another_allocates_too() {
    let heap = heap(256 << 20);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let blocks: Vec<u64> = (0..20_000).map(|_| heap.alloc(64, 1).unwrap()).collect();
                let apart = blocks.windows(2).filter(|pair| pair[1] != pair[0] + 64).count();
                // Where a slab ends.
                assert!(apart <= 20_000 / 900, "{apart} of {} are apart", blocks.len());
            });
        }
    });
}

#[test]
fn a_block_that_grows_keeps_its_content_and_its_place_where_it_can() {
    let heap = heap(64 << 20);
    let block = heap.malloc(10).unwrap();
    heap.fill(block, 10, 7);
    assert_eq!(heap.realloc(block, 16).unwrap(), block);
    let mut block = block;
    for bytes in [100_u64, 5000, 130_000, 140_000, 1 << 20, 5 << 20] {
        block = heap.realloc(block, bytes).unwrap();
        assert!(heap.usable_bytes(block).unwrap() >= bytes);
        assert_eq!(heap.first_unlike(block, 10, 7), None);
    }
    // Nothing lies behind it.
    assert_eq!(heap.realloc(block, 40 << 20).unwrap(), block);
    let behind = heap.malloc(1 << 20).unwrap();
    assert_eq!(heap.realloc(block, 1 << 20).unwrap(), block);
    assert_eq!(heap.realloc(block, 40 << 20).unwrap(), block);
    assert!(matches!(heap.realloc(block, 63 << 20), Err(HeapError::OutOfMemory { .. })));
    assert_eq!(heap.first_unlike(block, 10, 7), None);
    heap.free(behind).unwrap();
    let small = heap.realloc(block, 10).unwrap();
    assert_eq!(heap.first_unlike(small, 10, 7), None);
    heap.free(small).unwrap();
    heap.trim();
    assert_eq!(heap.statistics().taken_bytes, 0);
}

#[test]
fn a_thread_uses_long_blocks_again_and_keeps_a_few_of_them_in_memory_at_most() {
    let heap = heap(1 << 30);
    let taken = |heap: &Heap| heap.statistics().taken_bytes;
    let first = heap.malloc(1 << 20).unwrap();
    heap.fill(first, 1 << 20, 1);
    heap.free(first).unwrap();
    assert!(matches!(heap.free(first), Err(HeapError::NotAllocated { .. })));
    assert_eq!((heap.statistics().blocks, taken(&heap)), (0, 1 << 20));
    let again = heap.alloc(1 << 20, 1).unwrap();
    assert_eq!((again, heap.first_unlike(again, 1 << 20, 0)), (first, None));
    let blocks: Vec<u64> = (0..20).map(|_| heap.malloc(4 << 20).unwrap()).collect();
    for &block in blocks.iter().chain([&again]) {
        heap.fill(block, 1 << 20, 1);
        heap.free(block).unwrap();
    }
    assert!(taken(&heap) <= 16 << 20 && heap.resident() < 20 << 20);
    let long = heap.malloc(5 << 20).unwrap();
    heap.free(long).unwrap();
    assert!(taken(&heap) <= 16 << 20);
    heap.trim();
    assert_eq!(taken(&heap), 0);
}

#[test]
fn every_alignment_is_given_up_to_the_largest_and_refused_beyond() {
    let heap = heap(256 << 20);
    for shift in 0..=21 {
        for bytes in [1, 100, 5000, 70_000, 300_000] {
            let block = heap.aligned_alloc(1 << shift, bytes).unwrap();
            assert!((heap.segment().base() as u64 + block).is_multiple_of(1 << shift));
            heap.fill(block, bytes, 1);
            heap.free(block).unwrap();
        }
    }
    for align in [0, 3, 24, MOST_ALIGN * 2] {
        let error = heap.aligned_alloc(align, 8).unwrap_err();
        assert!(matches!(error, HeapError::Align { align: named } if named == align), "{error}");
    }
    assert!(heap.alloc(2 << 20, 1).unwrap().is_multiple_of(2 << 20));
}

#[test]
fn bad_requests_are_refused_by_their_values() {
    let heap = heap(64 << 20);
    assert!(matches!(heap.malloc(0), Err(HeapError::NoBytes)));
    assert!(matches!(heap.calloc(0, 5), Err(HeapError::NoBytes)));
    assert!(matches!(heap.calloc(1 << 40, 1 << 40), Err(HeapError::TooLong { .. })));
    for bytes in [64 << 20, 1 << 40, u64::MAX, u64::MAX - 70_000] {
        let error = heap.malloc(bytes).unwrap_err();
        assert!(matches!(error, HeapError::OutOfMemory { bytes: named, .. } if named == bytes), "{error}");
        assert!(error.to_string().contains("MAPWIRE_SHARED"), "{error}");
    }
}

#[test]
fn frees_of_what_is_not_allocated_are_named() {
    let heap = heap(64 << 20);
    for bytes in [16, 48, 1000, 100_000, 1 << 20] {
        let block = heap.malloc(bytes).unwrap();
        let base = heap.segment().base();
        let address = base + block as usize;
        for inside in [1, bytes / 2, bytes - 1] {
            let error = heap.free(block + inside).unwrap_err();
            assert!(matches!(error, HeapError::Inside { block, .. } if block == address), "{bytes} {error}");
        }
        heap.free(block).unwrap();
        let error = heap.free(block).unwrap_err();
        let is_twice = matches!(error, HeapError::FreedTwice { address: at, .. } if at == address);
        assert!(is_twice || bytes > 128 << 10 && matches!(error, HeapError::NotAllocated { .. }), "{bytes} {error}");
        assert!(heap.realloc(block, 5).is_err() && heap.usable_bytes(block).is_err());
    }
    assert!(matches!(heap.free(40 << 20), Err(HeapError::NotAllocated { .. })));
    for outside in [0, 100, crate::layout::DATA_AT - 1, 64 << 20, 1 << 40, u64::MAX] {
        let error = heap.free(outside).unwrap_err();
        assert!(matches!(error, HeapError::Outside { .. }), "{outside:#x} {error}");
    }
}

#[test]
fn what_a_thread_kept_is_given_back_when_it_ends() {
    let heap = heap(64 << 20);
    for _ in 0..200 {
        let heap = heap.clone();
        let thread = std::thread::spawn(move || {
            let blocks: Vec<u64> = (1..60).map(|nth| heap.malloc(nth * 500).unwrap()).collect();
            blocks.into_iter().for_each(|block| heap.free(block).unwrap());
        });
        thread.join().unwrap();
    }
    let statistics = heap.statistics();
    assert_eq!(statistics.blocks, 0);
    assert!(statistics.highest_bytes < 40 << 20, "{statistics:?}");
    heap.trim();
    assert_eq!((heap.statistics().taken_bytes, heap.leaks()), (0, vec![]));
}

#[test]
fn a_thread_that_is_at_its_end_still_allocates_and_frees() {
    /// Allocates and frees when it is dropped.
    struct Late(Heap, u64);
    impl Drop for Late {
        fn drop(&mut self) {
            for bytes in [10, 5000, 200_000] {
                let block = self.0.alloc(bytes, 1).unwrap();
                self.0.free(block).unwrap();
            }
            self.0.free(self.1).unwrap();
        }
    }
    std::thread_local! {
        static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
    }
    let heap = heap(64 << 20);
    let inner = heap.clone();
    let thread = std::thread::spawn(move || {
        // What is used first is dropped last: after the thread's cache.
        LATE.with(|late| *late.borrow_mut() = None);
        let block = inner.malloc(10).unwrap();
        LATE.with(|late| *late.borrow_mut() = Some(Late(inner, block)));
    });
    thread.join().unwrap();
    heap.trim();
    assert_eq!((heap.statistics().blocks, heap.statistics().taken_bytes), (0, 0));
}

#[test]
fn heaps_that_a_thread_uses_in_turn_or_one_after_the_other_keep_apart() {
    for _ in 0..5 {
        let heaps = [0, 1].map(|_| heap(32 << 20));
        let mut blocks = Vec::new();
        for nth in 0..2000_u64 {
            let heap = &heaps[nth as usize % 2];
            let block = heap.malloc(nth % 700 + 1).unwrap();
            heap.fill(block, nth % 700 + 1, nth as u8);
            blocks.push((heap, block, nth));
        }
        for (heap, block, nth) in blocks {
            assert_eq!(heap.first_unlike(block, nth % 700 + 1, nth as u8), None);
            heap.free(block).unwrap();
        }
        for heap in heaps {
            heap.trim();
            assert_eq!(heap.statistics().taken_bytes, 0);
        }
    }
}

#[test]
fn figures_count_blocks_by_their_size() {
    let heap = heap(64 << 20);
    for bytes in [16, 16, 1000, 200_000] {
        heap.malloc(bytes).unwrap();
    }
    let it = heap.statistics();
    assert_eq!((it.blocks, it.allocated_bytes, it.long), (4, 32 + 1024 + 262_144, (1, 262_144)));
    let counts: Vec<_> = it.classes.iter().map(|class| (class.bytes, class.blocks)).collect();
    assert_eq!(counts, [(16, 2), (1024, 1)]);
    assert!(it.taken_bytes >= it.allocated_bytes && it.highest_bytes >= it.taken_bytes && it.all_bytes == 56 << 20);
    assert_eq!(heap.leaks(), [Leak { by: Allocated::UNKNOWN, blocks: 4, bytes: it.allocated_bytes }]);
}

mod debugging {
    use super::*;

    #[test]
    fn a_store_behind_a_block_is_named_with_the_block_and_who_allocated_it() {
        for bytes in [1, 16, 17, 64, 100, 5000, 200_000] {
            let heap = debug_heap(64 << 20);
            let block = heap.at(0xabc).malloc(bytes).unwrap();
            assert_eq!(heap.usable_bytes(block).unwrap(), bytes);
            heap.fill(block, bytes, 0);
            assert!(heap.damage().is_empty());
            heap.fill(block + bytes, 1, 0);
            let found = heap.damage();
            let error = heap.free(block).unwrap_err();
            assert_eq!(found[0].to_string(), error.to_string());
            let HeapError::Overrun { address, bytes: asked, at, by } = error else { panic!("{error}") };
            assert_eq!((address, asked), (heap.segment().base() + block as usize, bytes));
            assert_eq!((at, by), (address + bytes as usize, Allocated { rank: Some(3), location: 0xabc }));
            heap.fill(block + bytes, 1, 0xfd);
            heap.free(block).unwrap();
        }
    }

    #[test]
    fn a_store_before_a_block_is_named_as_behind_its_neighbour() {
        let heap = debug_heap(64 << 20);
        let blocks = [0, 1].map(|_| heap.malloc(40).unwrap());
        heap.fill(blocks[1] - 4, 4, 0);
        assert!(heap.free(blocks[1]).is_ok());
        let error = heap.free(blocks[0]).unwrap_err();
        assert!(matches!(error, HeapError::Record { .. }), "{error}");
    }

    #[test]
    fn a_store_to_a_freed_block_is_named_when_it_is_given_again() {
        let heap = debug_heap(64 << 20);
        let block = heap.at(5).malloc(40).unwrap();
        heap.free(block).unwrap();
        let error = heap.free(block).unwrap_err();
        assert!(error.to_string().contains("second time; rank 3 allocated it at 0x5"), "{error}");
        heap.fill(block + 7, 1, 0);
        let error = heap.malloc(40).unwrap_err();
        let wanted = heap.segment().base() + block as usize;
        let is_named = matches!(error, HeapError::UsedAfterFree { address, at, by }
            if address == wanted && at == wanted + 7 && by.location == 5);
        assert!(is_named, "{error}");
        // That block is not used again, and others are.
        assert_ne!(heap.malloc(40).unwrap(), block);
    }

    #[test]
    fn leaks_are_listed_by_location_and_the_bytes_asked_for() {
        let heap = debug_heap(64 << 20);
        for (location, bytes) in [(1, 10), (1, 20), (2, 300_000), (3, 5)] {
            let block = heap.at(location).calloc(1, bytes).unwrap();
            if location == 3 {
                heap.free(block).unwrap();
            }
        }
        let found: Vec<_> = heap.leaks().into_iter().map(|leak| (leak.by.location, leak.blocks, leak.bytes)).collect();
        assert_eq!(found, [(2, 1, 300_000), (1, 2, 30)]);
    }

    #[test]
    fn ranks_that_disagree_about_the_mode_are_told() {
        let heap = debug_heap(64 << 20);
        let error = Heap::open(Arc::clone(heap.segment()), 1, false).unwrap_err();
        assert!(error.to_string().contains("off here and on in another rank"), "{error}");
    }
}
