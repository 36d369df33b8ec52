//! Sizes of memory: huge mappings, limits, what takes memory.

use mapwire_testing::children::{in_child, lower_limit};

use super::*;

#[test]
fn four_gigabytes_take_no_memory_before_they_are_touched_nor_after_they_are_freed() {
    let heap = heap(1 << 40);
    let before = heap.resident();
    let block = heap.alloc(4 << 30, 1).unwrap();
    assert!(heap.resident() - before < 64 << 10, "{}", heap.resident());
    for at in (0..4 << 30).step_by(64 << 20) {
        heap.fill(block + at, 8, 1);
    }
    heap.free(block).unwrap();
    assert!(heap.resident() - before < 64 << 10, "{}", heap.resident());
    let again = heap.alloc(4 << 30, 1).unwrap();
    assert_eq!((again, heap.first_unlike(again, 1 << 20, 0)), (block, None));
}

#[test]
fn a_terabyte_is_given_in_part_and_as_a_whole_and_the_file_is_as_long_as_what_is_used() {
    let heap = heap(1 << 40);
    let length = |heap: &Heap| rustix::fs::fstat(heap.segment().file()).unwrap().st_size as u64;
    let small = heap.alloc(100, 1).unwrap();
    assert!(length(&heap) <= 12 << 20, "{}", length(&heap));
    // More than the first zone has, and past the words of 24 bits.
    for bytes in [100 << 30, 900 << 30] {
        let block = heap.alloc(bytes, 1).unwrap();
        for at in [0, bytes / 2, bytes - 8] {
            heap.fill(block + at, 8, 1);
        }
        assert_eq!(heap.usable_bytes(block).unwrap(), bytes);
        heap.free(block).unwrap();
    }
    heap.free(small).unwrap();
    assert!(matches!(heap.alloc(1 << 40, 1), Err(HeapError::OutOfMemory { .. })));
    assert!(heap.resident() < 64 << 20);
}

#[test]
fn lengths_beyond_24_bits_of_units_are_kept() {
    let heap = heap(3 << 40);
    let bytes = (2 << 40) + (5 << 30);
    let block = heap.alloc(bytes, 1).unwrap();
    assert_eq!(heap.usable_bytes(block).unwrap(), bytes);
    assert_eq!(heap.realloc(block, 1 << 30).unwrap(), block);
    assert_eq!(heap.usable_bytes(block).unwrap(), 1 << 30);
    heap.free(block).unwrap();
    heap.alloc(bytes, 1).unwrap();
}

#[test]
fn a_million_small_blocks_take_a_few_bytes_more_than_they_hold() {
    let heap = heap(64 << 20);
    for _ in 0..1_000_000 {
        let block = heap.alloc(16, 1).unwrap();
        heap.segment().word64(block).unwrap().store(1, Ordering::Relaxed);
    }
    assert!(heap.resident() < 20 << 20, "{}", heap.resident());
}

#[test]
fn all_memory_is_given_and_freed_memory_is_given_again_in_other_sizes() {
    let heap = heap(24 << 20);
    for bytes in [16, 700, 3000, 9000, 70_000, 128 << 10, 1 << 20, 16, 40_000] {
        let mut blocks = Vec::new();
        let error = loop {
            match heap.malloc(bytes) {
                Ok(block) => blocks.push(block),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, HeapError::OutOfMemory { .. }), "{error}");
        let got = blocks.len() as u64 * bytes;
        assert!(got >= (16 << 20) * 2 / 3, "{got} bytes in blocks of {bytes}");
        blocks.into_iter().for_each(|block| heap.free(block).unwrap());
    }
    heap.trim();
    assert_eq!(heap.statistics().taken_bytes, 0);
}

#[test]
fn a_limit_of_files_is_named_and_memory_within_it_is_given() {
    in_child("limited", || {
        lower_limit(rustix::process::Resource::Fsize, 32 << 20);
        let heap = heap(1 << 30);
        let error = heap.alloc(64 << 20, 1).unwrap_err();
        assert!(error.to_string().contains("RLIMIT_FSIZE"), "{error}");
        let block = heap.alloc(20 << 20, 1).unwrap();
        heap.fill(block, 20 << 20, 1);
        let error = heap.alloc(20 << 20, 1).unwrap_err();
        assert!(error.to_string().contains("RLIMIT_FSIZE"), "{error}");
        heap.free(block).unwrap();
        heap.alloc(20 << 20, 1).unwrap();
    });
}
