use proptest::prelude::*;

use super::decode::{Buffers, Column, any_from};
use super::encode::Encoder;
use super::*;

fn encoded(values: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::default().column(values, &mut bytes);
    bytes
}

fn decoded(mut bytes: &[u8], values: usize) -> Result<(Vec<u64>, &[u8]), Malformed> {
    let mut buffers = Buffers::default();
    let rest = &mut bytes;
    let mut column = Column::parse(rest, values, &mut buffers)?;
    let mut out = Vec::new();
    while out.len() < values {
        let mut group = [0; GROUP];
        let here = (values - out.len()).min(GROUP);
        column.group(here, &mut group)?;
        out.extend_from_slice(&group[..here]);
    }
    Ok((out, rest))
}

#[track_caller]
fn round_trip(values: &[u64], kind: u8) -> usize {
    let mut bytes = encoded(values);
    assert_eq!(bytes[0], kind);
    let length = bytes.len();
    bytes.extend_from_slice(b"rest");
    let (again, rest) = decoded(&bytes, values.len()).unwrap();
    assert_eq!(again, values);
    assert_eq!(rest, b"rest");
    length
}

/// Numbers that look random, by a fixed rule.
fn noise(count: usize) -> impl Iterator<Item = u64> {
    (1..=count as u64).map(|i| {
        let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 3
    })
}

#[test]
fn equal_values_take_nine_bytes_however_many_they_are() {
    assert_eq!(round_trip(&[7; 5000], CONSTANT), 9);
    assert_eq!(round_trip(&[u64::MAX], CONSTANT), 9);
}

#[test]
fn values_of_few_bits_are_packed_and_outliers_cost_ten_bytes_each() {
    let mut values: Vec<u64> = noise(3000).map(|v| (1 << 40) + v % 1000).collect();
    let plain = round_trip(&values, PACKED);
    assert!(plain < 3100 * 10 / 8 + 200, "{plain}");
    values[1] = 3;
    values[2999] = u64::MAX - 3;
    let with_outliers = round_trip(&values, PACKED);
    assert_eq!(with_outliers, plain + 20);
}

#[test]
fn common_zeros_at_the_low_end_are_not_stored() {
    let values: Vec<u64> = noise(4096).map(|v| 0x7000_0123 + v % 4096 * 4096).collect();
    let length = round_trip(&values, PACKED);
    assert!(length < 4096 * 12 / 8 + 100, "{length}");
}

#[test]
fn steps_back_are_as_small_as_steps_forth() {
    let values: Vec<u64> = noise(4096).map(|v| (v % 16).wrapping_sub(8)).collect();
    assert!(round_trip(&values, PACKED) < 4096 / 2 + 100);
}

#[test]
fn few_values_far_apart_make_a_dictionary() {
    let choices = [8, 4096, 1 << 20, 77, 1 << 40];
    let values: Vec<u64> = noise(10_000).map(|v| choices[v as usize % 5]).collect();
    assert!(round_trip(&values, DICTIONARY) < 10_000 * 3 / 8 + 600);
}

#[test]
fn what_repeats_is_compressed() {
    let loop_of: Vec<u64> = noise(1000).map(|v| v % (1 << 30)).collect();
    let values: Vec<u64> = loop_of.iter().copied().cycle().take(16_384).collect();
    let length = encoded(&values).len();
    assert!(length < 16_384 / 2, "{length}");
    let (again, _) = decoded(&encoded(&values), values.len()).unwrap();
    assert_eq!(again, values);
}

#[test]
fn columns_with_claims_that_make_no_sense_are_refused() {
    let group = |head: [u8; 4]| [&[PACKED][..], &head, &[0; 8]].concat();
    for (bytes, says) in [
        (vec![], "cut off"),
        (vec![9], "kind"),
        (vec![CONSTANT, 1], "cut off"),
        (group([65, 0, 0, 0]), "head"),
        (group([1, 64, 0, 0]), "head"),
        (group([0, 0, 2, 0]), "head"),
        (group([0, 0, 1, 0]), "cut off"),
        ([&group([0, 0, 1, 0])[..], &[1, 0], &[0; 8]].concat(), "outside its group"),
        (vec![DICTIONARY, 0xff, 0xff], "too long"),
        (vec![DICTIONARY, 0, 0, DICTIONARY], "kind"),
        ([&[DICTIONARY, 0, 0, CONSTANT][..], &[0; 8], &[CONSTANT, 1], &[0; 7]].concat(), "outside the dictionary"),
        ([&[BYTES, 3, 0, 0][..], &[0; 8], &[4, 0, 0, 0, 0x30, 1, 2, 3]].concat(), "head"),
        ([&[BYTES, 1, 64, 0][..], &[0; 8], &[2, 0, 0, 0, 0x10, 1]].concat(), "head"),
        ([&[BYTES, 1, 0, 0][..], &[0; 8], &[3, 0, 0, 0, 0x20, 1, 2]].concat(), "decompress"),
        ([&[BYTES, 2, 0, 0][..], &[0; 8], &[2, 0, 0, 0, 0x10, 1]].concat(), "decompress"),
    ] {
        let Malformed(why) = decoded(&bytes, 1).unwrap_err();
        assert!(why.contains(says), "{bytes:?}: {why}");
    }
    assert_eq!(decoded(&[&[BYTES, 1, 4, 0][..], &[0; 8], &[2, 0, 0, 0, 0x10, 3]].concat(), 1), Ok((vec![48], &[][..])));
}

/// Columns as traces have them: noise of every width, steps, few values, repetitions.
fn columns() -> impl Strategy<Value = Vec<u64>> {
    let lengths = prop_oneof![1..50_usize, 1000..1050_usize, 2000..5000_usize];
    (lengths, any::<u64>(), 0..64_u32, 1..3000_usize, 0..64_u32).prop_map(|(length, base, width, period, shift)| {
        let mask = (1_u64 << width) - 1;
        let noise: Vec<u64> = noise(period.min(length)).map(|v| base.wrapping_add((v & mask) << shift)).collect();
        noise.into_iter().cycle().take(length).collect()
    })
}

#[test]
fn values_from_a_bound_on_are_found() {
    for bound in [1, 2, 3, 1000, 1 << 62] {
        assert!(!any_from(&[0, bound - 1, bound / 2], bound));
        for above in [bound, bound + 1, u64::MAX, (1 << 63) + bound, u64::MAX - bound] {
            assert_eq!(any_from(&[0, above], bound), above >= bound, "{above} from {bound}");
        }
    }
    assert!(!any_from(&[], 1));
}

proptest! {
    #[test]
    fn every_column_comes_back(
        mut values in columns(),
        outliers in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..20),
    ) {
        for (place, value) in outliers {
            let place = place.index(values.len());
            values[place] = value;
        }
        let bytes = encoded(&values);
        let (again, rest) = decoded(&bytes, values.len()).unwrap();
        prop_assert_eq!(again, values);
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn any_bytes_are_refused_or_decoded_without_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0..5_u8,
        values in 1..3000_usize,
    ) {
        let _ = decoded(&[&[kind][..], &bytes].concat(), values);
    }
}
