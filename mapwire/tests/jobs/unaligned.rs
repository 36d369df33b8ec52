//! Random offsets and lengths against an oracle: the data and its neighbours, on both paths.

use mapwire::{Import, Rights};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::harness::{job, pattern};

/// Three pages and a bit, so that ranges of up to three pages lie at any offset.
const LENGTH: usize = 3 * 4096 + 777;
/// Memory of the exporter before and behind the export.
const MARGIN: usize = 4096 + 5;

#[derive(Clone, Debug)]
enum Operation {
    Send { offset: usize, length: usize, shift: usize },
    Put { offset: usize, length: usize, signal: usize, shift: usize },
    Notify { offset: usize, length: usize },
    Async { offset: usize, length: usize },
    Fetch { offset: usize, length: usize, shift: usize },
}

/// Offset and length of a range within the export, the ends and page boundaries more often than chance has them.
fn range() -> impl Strategy<Value = (usize, usize)> {
    let place = prop_oneof![
        0..=LENGTH,
        Just(0),
        Just(LENGTH),
        (0_usize..4, 0_usize..9).prop_map(|(page, by)| (page * 4096 + by).saturating_sub(4)),
    ];
    let length = prop_oneof![0..=3 * 4096_usize, 0..300_usize, 120..140_usize];
    (place, length).prop_map(|(offset, length)| (offset, length.min(LENGTH - offset)))
}

fn operation() -> impl Strategy<Value = Operation> {
    let shift = 0..64_usize;
    prop_oneof![
        (range(), shift.clone()).prop_map(|((offset, length), shift)| Operation::Send { offset, length, shift }),
        (range(), 0..LENGTH / 8, shift.clone())
            .prop_map(|((offset, length), word, shift)| { Operation::Put { offset, length, signal: word * 8, shift } }),
        range().prop_map(|(offset, length)| Operation::Notify { offset, length }),
        range().prop_map(|(offset, length)| Operation::Async { offset, length }),
        (range(), shift).prop_map(|((offset, length), shift)| Operation::Fetch { offset, length, shift }),
    ]
}

/// What the export should hold.
struct Oracle {
    bytes: Vec<u8>,
    turn: u64,
}

impl Oracle {
    fn apply(&mut self, import: &Import, operation: &Operation) -> Result<(), TestCaseError> {
        self.turn += 1;
        let mut put = |offset: usize, data: &[u8]| {
            self.bytes[offset..offset + data.len()].copy_from_slice(data);
        };
        let fail = |error: mapwire::Error| TestCaseError::fail(error.to_string());
        match *operation {
            Operation::Send { offset, length, shift } => {
                let data = pattern(self.turn, shift + length);
                import.send(&data[shift..], offset as u64).map_err(fail)?;
                put(offset, &data[shift..]);
            }
            Operation::Put { offset, length, signal, shift } => {
                let data = pattern(self.turn, shift + length);
                let (at, word) = (offset as u64, signal as u64);
                import.put_signal(&data[shift..], at, word, self.turn).map_err(fail)?;
                put(offset, &data[shift..]);
                put(signal, &self.turn.to_le_bytes());
            }
            Operation::Notify { offset, length } => {
                let data = pattern(self.turn, length);
                import.send_notify(&data, offset as u64).map_err(fail)?;
                put(offset, &data);
            }
            Operation::Async { offset, length } => {
                let data = pattern(self.turn, length);
                let sending = import.send_async(data, offset as u64).map_err(fail)?;
                let data = sending.wait().map_err(fail)?;
                put(offset, &data);
            }
            Operation::Fetch { offset, length, shift } => {
                let mut found = vec![0x5a; shift + length + 16];
                import.fetch(offset as u64, &mut found[shift..shift + length]).map_err(fail)?;
                prop_assert!(found[..shift].iter().all(|byte| *byte == 0x5a), "before the fetch");
                prop_assert!(found[shift + length..].iter().all(|byte| *byte == 0x5a), "behind it");
                prop_assert!(found[shift..shift + length] == self.bytes[offset..offset + length]);
            }
        }
        Ok(())
    }

    fn check(&self, import: &Import) -> Result<(), TestCaseError> {
        let mut found = vec![0; LENGTH];
        let outcome = import.fetch(0, &mut found);
        prop_assert!(outcome.is_ok(), "{outcome:?}");
        let wrong = found.iter().zip(&self.bytes).position(|(a, b)| a != b);
        prop_assert!(wrong.is_none(), "byte {wrong:?} of {LENGTH}");
        Ok(())
    }
}

#[test]
fn unaligned_ranges_of_every_length_change_what_they_name_and_nothing_else() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let mut heap = vec![0xa5_u8; LENGTH + 2 * MARGIN];
                // Aligned to 8 for the signals, and to nothing else.
                let shift = heap.as_ptr().align_offset(8) + 8;
                let before = MARGIN - MARGIN % 8 + shift;
                let start = heap.as_mut_ptr().wrapping_add(before);
                let mut other = heap.clone();
                let at = MARGIN - MARGIN % 8 + other.as_ptr().align_offset(8) + 8;
                let start_of_other = other.as_mut_ptr().wrapping_add(at);
                // SAFETY: the memory outlives the exports and is read when they are over.
                let [ring, part] = unsafe {
                    [
                        node.export_range(start_of_other, LENGTH).ring_only().name("ring"),
                        node.export_range(start, LENGTH).name("heap"),
                    ]
                }
                .map(|export| {
                    let export = export.on_notify(|_| {}).start().unwrap();
                    export.write(0, &[0; LENGTH]).unwrap();
                    export
                });
                let buffer = node.alloc(LENGTH).unwrap();
                let direct = node.export_buffer(&buffer).name("direct").start().unwrap();
                rank.meet("start");
                rank.meet("end");
                drop((part, ring, direct));
                for (heap, before) in [(&heap, before), (&other, at)] {
                    let behind = before + LENGTH;
                    assert!(heap[..before].iter().all(|byte| *byte == 0xa5), "before");
                    assert!(heap[behind..].iter().all(|byte| *byte == 0xa5), "behind");
                }
            } else {
                rank.meet("start");
                for name in ["ring", "heap", "direct"] {
                    let import = node.import(0, name).rights(Rights::ALL).start().unwrap();
                    let direct = import.direct_range();
                    assert_eq!(import.is_direct(), name == "direct");
                    assert_eq!(direct.is_empty(), name == "ring");
                    if name == "heap" {
                        assert!(direct.start > 0 && direct.end < LENGTH as u64, "{direct:?}");
                    }
                    let config = Config { cases: 60, failure_persistence: None, ..Config::default() };
                    let mut runner = TestRunner::new(config);
                    let all = proptest::collection::vec(operation(), 1..12);
                    let outcome = runner.run(&all, |operations| {
                        // What an earlier case left is where this one starts.
                        let mut bytes = vec![0; LENGTH];
                        import.fetch(0, &mut bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
                        let mut oracle = Oracle { bytes, turn: 0 };
                        for operation in &operations {
                            oracle.apply(&import, operation)?;
                        }
                        oracle.check(&import)
                    });
                    if let Err(error) = outcome {
                        panic!("{name}: {error}");
                    }
                }
                rank.meet("end");
            }
        })
        .succeeds();
}
