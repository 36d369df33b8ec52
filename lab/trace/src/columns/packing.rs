//! Numbers of a fixed number of bits, in 16 lanes: see [`format`](crate::format). The lanes let the compiler unpack several
//! values by each instruction.

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::{GROUP, Malformed};

const LANES: usize = 16;

/// The words of one row of lanes.
type Row = [U64; LANES];

const fn rows_of(values: usize, width: u32) -> usize {
    (values.div_ceil(LANES) * width as usize).div_ceil(64)
}

/// Bytes of `values` numbers of `width` bits.
pub(super) const fn packed_bytes(values: usize, width: u32) -> usize {
    rows_of(values, width) * LANES * 8
}

const fn mask(width: u32) -> u64 {
    if width == 64 { u64::MAX } else { (1 << width) - 1 }
}

pub(super) fn pack(values: impl ExactSizeIterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let mut words = [0_u64; GROUP];
    let words = &mut words[..rows_of(values.len(), width) * LANES];
    if width == 0 {
        return;
    }
    for (index, value) in values.enumerate() {
        let (value, lane) = (value & mask(width), index % LANES);
        let bit = index / LANES * width as usize;
        let (word, shift) = (bit / 64 * LANES + lane, (bit % 64) as u32);
        words[word] |= value << shift;
        if shift + width > 64 {
            words[word + LANES] |= value >> (64 - shift);
        }
    }
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Unpacks into `out`, whole rows of 16 values, as `base + (value << shift)`; gives the bytes behind.
pub(super) fn unpack<'a>(
    bytes: &'a [u8],
    values: usize,
    (width, shift, base): (u32, u32, u64),
    out: &mut [u64],
) -> Result<&'a [u8], Malformed> {
    let wrong = || Malformed("a packed group is cut off");
    let (packed, rest) = bytes.split_at_checked(packed_bytes(values, width)).ok_or_else(wrong)?;
    let out = &mut out[..values.next_multiple_of(LANES)];
    if width == 0 {
        out.fill(base);
        return Ok(rest);
    }
    let rows = <[Row]>::ref_from_bytes(packed).map_err(|_| wrong())?;
    let mask = mask(width);
    let mut bit = 0_usize;
    for out in out.as_chunks_mut::<LANES>().0 {
        let (row, low) = (bit / 64, (bit % 64) as u32);
        bit += width as usize;
        let first = &rows[row];
        if low + width <= 64 {
            for lane in 0..LANES {
                let value = (first[lane].get() >> low) & mask;
                out[lane] = base.wrapping_add(value << shift);
            }
        } else {
            let second = &rows[row + 1];
            for lane in 0..LANES {
                let value = ((first[lane].get() >> low) | (second[lane].get() << (64 - low))) & mask;
                out[lane] = base.wrapping_add(value << shift);
            }
        }
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_unpacks(
            values in prop::collection::vec(any::<u64>(), 1..=GROUP),
            width in 0_u32..=64,
            shift in 0_u32..64,
            base: u64,
        ) {
            let mut bytes = Vec::new();
            pack(values.iter().copied(), width, &mut bytes);
            prop_assert_eq!(bytes.len(), packed_bytes(values.len(), width));
            bytes.extend_from_slice(b"rest");
            let mut out = vec![0; GROUP];
            let rest = unpack(&bytes, values.len(), (width, shift, base), &mut out).unwrap();
            prop_assert_eq!(rest, b"rest");
            for (value, out) in values.iter().zip(&out) {
                prop_assert_eq!(base.wrapping_add((value & mask(width)) << shift), *out);
            }
        }
    }

    #[test]
    fn bits_stand_where_the_description_says() {
        let mut bytes = Vec::new();
        pack((0..33).map(|i| if i == 17 || i == 32 { 5 } else { 0 }), 33, &mut bytes);
        let words: Vec<u64> = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words.len(), 32);
        // Value 17: lane 1, bit 33. Value 32: lane 0, bit 66.
        assert_eq!((words[1], words[16]), (5 << 33, 5 << 2));
        assert_eq!(words.iter().filter(|word| **word != 0).count(), 2);
    }

    #[test]
    fn a_group_that_is_cut_off_is_refused() {
        let mut bytes = Vec::new();
        pack([1_u64; 20].into_iter(), 7, &mut bytes);
        let mut out = vec![0; GROUP];
        for length in 0..bytes.len() {
            assert!(unpack(&bytes[..length], 20, (7, 0, 0), &mut out).is_err());
        }
    }
}
