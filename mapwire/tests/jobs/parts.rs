//! Transfers of many parts in one call: gathered and scattered memory, rows of matrices.

use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use mapwire::{ErrorKind, Import, Node, Rights, Rows};

use crate::harness::{Rank, job, pattern, refused};

const LENGTH: usize = 400_000;
const PAGE: usize = 4096;

/// Exports `LENGTH` bytes of a pattern on the direct path, on the ring path, and as heap memory that begins and ends amid pages, which
/// takes both; `check` sees what they are in the end.
fn export(rank: &Rank, check: impl Fn(&[u8])) {
    let node = rank.node();
    let mut heap = vec![0; LENGTH + 2 * PAGE];
    let amid = heap.as_ptr().align_offset(PAGE) + 1000;
    let heap = &mut heap[amid..amid + LENGTH];
    heap.copy_from_slice(&pattern(7, LENGTH));
    // SAFETY: the memory outlives the export and is read when that is over.
    let in_heap = unsafe { node.export_range(heap.as_mut_ptr(), LENGTH) };
    let in_heap = in_heap.name("heap").start().unwrap();
    let buffers = [(); 2].map(|()| node.alloc(LENGTH).unwrap());
    for buffer in &buffers {
        buffer.write(0, &pattern(7, LENGTH)).unwrap();
    }
    let [direct, ring] = &buffers;
    let _direct = node.export_buffer(direct).name("direct").start().unwrap();
    let _ring = node.export_buffer(ring).ring_only().name("ring").start().unwrap();
    rank.meet("stored");
    for buffer in &buffers {
        let mut found = vec![0; LENGTH];
        buffer.read(0, &mut found).unwrap();
        check(&found);
    }
    drop(in_heap);
    check(heap);
    rank.meet("end");
}

/// Runs `body` on imports of all ways.
fn import(rank: &Rank, body: impl Fn(&Node, &Import)) {
    let node = rank.node();
    for name in ["direct", "ring", "heap"] {
        let import = node.import(0, name).rights(Rights::ALL).start().unwrap();
        let mapped = match name {
            "direct" => 0..LENGTH as u64,
            "ring" => 0..0,
            _ => {
                let first = PAGE as u64 - 1000;
                first..first + (LENGTH as u64 - first) / PAGE as u64 * PAGE as u64
            }
        };
        assert_eq!(import.direct_range(), mapped);
        body(&node, &import);
        import.flush().unwrap();
    }
    rank.meet("stored");
    rank.meet("end");
}

/// Cuts `bytes` into parts of the lengths that `length` says by number.
fn cut(mut bytes: &[u8], length: impl Fn(usize) -> usize) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let (part, rest) = bytes.split_at(length(parts.len()).min(bytes.len()));
        parts.push(part);
        bytes = rest;
    }
    parts
}

/// Lengths of parts: none, short ones that travel together, whole pages, and a mixture.
const CUTS: [fn(usize) -> usize; 5] = [
    |_| 37,
    |number| [0, 1, 8, 130, 2047][number % 5],
    |_| 4096,
    |number| [5, 2048, 0, 9000, 100, 17_000][number % 6],
    |_| LENGTH,
];

#[test]
fn parts_of_all_lengths_are_gathered_into_an_export_and_scattered_from_it() {
    job(2)
        .run(|rank| {
            if rank.number == 0 {
                export(rank, |found| assert!(*found == pattern(4, LENGTH)));
                return;
            }
            import(rank, |_, import| {
                for (number, length) in CUTS.into_iter().enumerate() {
                    let data = pattern(number as u64, LENGTH);
                    // Not one behind the other in memory.
                    let apart: Vec<Vec<u8>> = cut(&data, length).into_iter().map(<[u8]>::to_vec).collect();
                    let slices: Vec<_> = apart.iter().map(|part| IoSlice::new(part)).collect();
                    import.send_vectored(&slices, 0).unwrap();
                    let mut parts: Vec<Vec<u8>> = apart.iter().map(|part| vec![0; part.len()]).collect();
                    let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
                    import.fetch_vectored(0, &mut slices).unwrap();
                    assert!(parts == apart, "cut {number}");
                }
                // 10,000 parts, from somewhere inside.
                let small: Vec<[u8; 7]> = (0..10_000_u32)
                    .map(|number| core::array::from_fn(|index| (number as usize * 7 + index) as u8))
                    .collect();
                let slices: Vec<_> = small.iter().map(|part| IoSlice::new(part)).collect();
                import.send_vectored(&slices, 101).unwrap();
                let mut back = vec![0; 70_000];
                import.fetch(101, &mut back).unwrap();
                assert!(back == small.concat());
                import.send(&pattern(4, LENGTH), 0).unwrap();
                import.send_vectored(&[], LENGTH as u64).unwrap();
                import.fetch_vectored(LENGTH as u64, &mut []).unwrap();
            });
        })
        .succeeds();
}

/// What `rows` of `data` make of `memory`.
fn store(memory: &mut [u8], data: &[u8], offset: usize, rows: &Rows) {
    for row in 0..rows.count {
        let from = row * rows.local_stride;
        let to = offset + row * rows.remote_stride as usize;
        memory[to..to + rows.bytes].copy_from_slice(&data[from..from + rows.bytes]);
    }
}

const ROWS: [Rows; 9] = [
    rows(0, 100, 200, 300),
    rows(1, 100, 0, 0),
    rows(500, 8, 8, 64),
    rows(500, 8, 64, 8),
    rows(300, 100, 0, 700),
    rows(300, 1000, 1000, 1000),
    rows(90, 1000, 1500, 4000),
    rows(90, 3000, 4000, 3000),
    rows(40, 9000, 9001, 9003),
];

const fn rows(count: usize, bytes: usize, local_stride: usize, remote_stride: u64) -> Rows {
    Rows { count, bytes, local_stride, remote_stride }
}

#[test]
fn rows_are_stored_and_fetched_where_they_belong_and_nothing_between_them_changes() {
    job(2)
        .run(|rank| {
            let offset = 33;
            let wanted = |upto: usize| {
                let mut memory = pattern(7, LENGTH);
                for (number, rows) in ROWS[..upto].iter().enumerate() {
                    let data = pattern(100 + number as u64, rows.local_bytes().unwrap());
                    store(&mut memory, &data, offset, rows);
                }
                memory
            };
            if rank.number == 0 {
                export(rank, |found| assert!(*found == wanted(ROWS.len())));
                return;
            }
            import(rank, |_, import| {
                for (number, rows) in ROWS.iter().enumerate() {
                    let data = pattern(100 + number as u64, rows.local_bytes().unwrap());
                    import.send_strided(&data, offset as u64, rows).unwrap();
                    let mut all = vec![0; LENGTH];
                    import.fetch(0, &mut all).unwrap();
                    assert!(all == wanted(number + 1), "{rows:?}");
                    if rows.local_stride < rows.bytes && rows.count > 1 {
                        continue;
                    }
                    let mut into = vec![9; rows.local_bytes().unwrap() + 5];
                    let mut expected = into.clone();
                    for row in 0..rows.count {
                        let (to, from) = (row * rows.local_stride, offset + row * rows.remote_stride as usize);
                        expected[to..to + rows.bytes].copy_from_slice(&all[from..from + rows.bytes]);
                    }
                    import.fetch_strided(offset as u64, &mut into, rows).unwrap();
                    assert!(into == expected, "{rows:?}");
                }
                // Rows that are read may overlap: a window that slides.
                let windows = rows(1000, 16, 16, 1);
                let mut into = vec![0; 16_000];
                import.fetch_strided(5, &mut into, &windows).unwrap();
                let all = wanted(ROWS.len());
                for (number, window) in into.chunks(16).enumerate() {
                    assert!(*window == all[5 + number..21 + number]);
                }
            });
        })
        .succeeds();
}

#[test]
fn parts_and_rows_that_do_not_fit_are_refused_and_nothing_is_stored() {
    job(2)
        .run(|rank| {
            if rank.number == 0 {
                export(rank, |found| assert!(*found == pattern(7, LENGTH)));
                return;
            }
            import(rank, |_, import| {
                let data = vec![1; 300_000];
                let part = IoSlice::new(&data);
                refused(import.send_vectored(&[part, part], 0), &["600000 bytes at 0", "400000"]);
                refused(import.send_vectored(&[IoSlice::new(&data[..8])], LENGTH as u64 - 7), &["8 bytes at 399993"]);
                refused(
                    import.send_vectored(&[IoSlice::new(&data[..8])], u64::MAX),
                    &["8 bytes at 18446744073709551615"],
                );
                refused(import.send_vectored(&[], LENGTH as u64 + 1), &["400001"]);
                let mut into = vec![0; 300_000];
                let (one, two) = into.split_at_mut(150_000);
                let mut parts = [IoSliceMut::new(one), IoSliceMut::new(two)];
                refused(import.fetch_vectored(100_001, &mut parts), &["300000 bytes at 100001"]);

                let pass = &["pass the end"];
                // The last row leaves the export, by one byte.
                let at = LENGTH as u64 - (9 * 4000 + 3000) + 1;
                let last = rows(10, 3000, 3000, 4000);
                refused(import.send_strided(&data, at, &last), pass);
                refused(import.fetch_strided(at, &mut into, &last), pass);
                for rows in [
                    rows(usize::MAX, 8, 0, u64::MAX),
                    rows(3, 8, 8, u64::MAX / 2 + 1),
                    rows(2, 8, 8, u64::MAX - 7),
                    rows(2, usize::MAX, usize::MAX, u64::MAX),
                    rows(usize::MAX, 1, 0, 1),
                    rows(2, 8, usize::MAX, 8),
                    rows(2, 8, usize::MAX - 7, 8),
                    rows(1, 300_001, 0, 0),
                    rows(101, 3000, 3000, 3000),
                ] {
                    refused(import.send_strided(&data, 8, &rows), pass);
                    if rows.local_stride >= rows.bytes {
                        refused(import.fetch_strided(8, &mut into, &rows), pass);
                    }
                }
                let none = rows(usize::MAX, 0, 5, u64::MAX);
                import.send_strided(&[], LENGTH as u64, &none).unwrap();
                refused(import.send_strided(&[], LENGTH as u64 + 1, &none), pass);
                let over = rows(2, 100, 100, 99);
                let error = import.send_strided(&data, 0, &over).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Argument);
                refused(Err::<(), _>(error), &["100 B every 99 B overlap"]);
                let over = rows(2, 100, 99, 100);
                refused(import.fetch_strided(0, &mut into, &over), &["100 B every 99 B overlap"]);
                assert!(into.iter().all(|byte| *byte == 0));
            });
        })
        .succeeds();
}

#[test]
fn many_parts_move_where_few_pages_may_be_pinned_at_a_time() {
    job(2)
        .option("--pin-limit", "64K")
        .option("--path", "ring")
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(48 << 10).unwrap();
                // Nobody serves rank 1 while the handler runs: what it asks for meanwhile is under way at once.
                let handler = |_| std::thread::sleep(Duration::from_millis(300));
                let export = node.export_buffer(&buffer).on_notify(handler);
                let _export = export.name("small").start().unwrap();
                rank.meet("end");
                return;
            }
            let import = node.import(0, "small").rights(Rights::ALL).start().unwrap();
            // Each part lies on pages of its own, and 16 pages may be pinned.
            let mut memory = pattern(1, 40 * 8192);
            let parts: Vec<_> = memory.chunks(8192).take(22).map(|page| &page[..2100]).collect();
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            import.send_vectored(&slices, 8).unwrap();
            let mut back = vec![0; 22 * 2100];
            import.fetch(8, &mut back).unwrap();
            assert!(back == parts.concat());
            import.send_notify(&[], 0).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            let again = rows(40, 2100, 8192, 0);
            import.fetch_strided(8, &mut memory, &again).unwrap();
            assert!(memory.chunks(8192).all(|page| page[..2100] == back[..2100]));
            rank.meet("end");
        })
        .succeeds();
}
