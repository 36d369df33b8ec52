//! Columns to bytes: each in the kind that is smallest, unless that one would be slow to decode for a small gain.

use super::dictionary::Dictionary;
use super::{BYTES, CONSTANT, DICTIONARY, GROUP, MAX_DICTIONARY, PACKED, packing};

/// Bytes of an exception.
const EXCEPTION_BYTES: usize = 10;
/// How many of a group's lowest and highest values are tried as exceptions.
const TAILS: [usize; 9] = [0, 1, 2, 4, 8, 16, 32, 64, 128];

/// Encodes columns; keeps its buffers from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    dictionary: Dictionary,
    sorted: Vec<u64>,
    entries: Vec<u8>,
    compressed: Vec<u8>,
}

/// How a group is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fit {
    base: u64,
    /// Of the values' differences to the base, shifted.
    width: u32,
    shift: u32,
    exceptions: usize,
    bytes: usize,
}

/// Bits of `span`.
const fn bits(span: u64) -> u32 {
    64 - span.leading_zeros()
}

/// The common zeros at the low end of the differences between `values`.
fn common_shift(values: &[u64]) -> u32 {
    let base = values[0];
    let set = values
        .iter()
        .fold(0, |set, value| set | value.wrapping_sub(base));
    if set == 0 { 0 } else { set.trailing_zeros() }
}

impl Encoder {
    /// Appends a column.
    pub(crate) fn column(&mut self, values: &[u64], out: &mut Vec<u8>) {
        let begin = out.len();
        self.plain(values, out);
        let plain = out.len() - begin;
        // A dictionary costs a load for each record: it must save an eighth.
        if plain > 1 + 8 + values.len() / 8
            && let Some((entries, places)) = self.dictionary.of(values, values.len() / 4)
        {
            let mut other = vec![DICTIONARY];
            other.extend_from_slice(&(entries.len() as u16 - 1).to_le_bytes());
            let mut before = 0;
            let steps: Vec<u64> = entries
                .iter()
                .map(|entry| entry - std::mem::replace(&mut before, *entry))
                .collect();
            self.plain(&steps, &mut other);
            self.plain(&places, &mut other);
            if other.len() <= plain - plain / 8 {
                out.truncate(begin);
                out.append(&mut other);
            }
        }
    }

    /// About the bytes that `values` take when packed, told from a part of them.
    pub(crate) fn estimate(&mut self, values: &[u64]) -> usize {
        let groups = values.len().div_ceil(GROUP);
        let step = groups.div_ceil(4);
        let parts = values.chunks(GROUP).step_by(step);
        parts.map(|group| self.fit(group).bytes).sum()
    }

    fn plain(&mut self, values: &[u64], out: &mut Vec<u8>) {
        if values.iter().all(|value| *value == values[0]) {
            out.push(CONSTANT);
            return out.extend_from_slice(&values[0].to_le_bytes());
        }
        let begin = out.len();
        out.push(PACKED);
        for values in values.chunks(GROUP) {
            self.group(values, out);
        }
        let packed = out.len() - begin;
        // LZ4 is the slowest to decode: it must save half. Of few values it saves the padding of the lanes.
        if self.compress(values) && self.compressed.len() < packed / 2 {
            out.truncate(begin);
            out.extend_from_slice(&self.compressed);
        }
    }

    /// Appends a packed group.
    fn group(&mut self, values: &[u64], out: &mut Vec<u8>) {
        let fit = self.fit(values);
        out.extend_from_slice(&[fit.width as u8, fit.shift as u8]);
        out.extend_from_slice(&(fit.exceptions as u16).to_le_bytes());
        out.extend_from_slice(&fit.base.to_le_bytes());
        let packed_of = |value: &u64| {
            let above = value.wrapping_sub(fit.base);
            let packed = above >> fit.shift;
            (packed << fit.shift == above && bits(packed) <= fit.width).then_some(packed)
        };
        let packed = values.iter().map(|value| packed_of(value).unwrap_or(0));
        packing::pack(packed, fit.width, out);
        if fit.exceptions > 0 {
            for (place, value) in (0_u16..).zip(values) {
                if packed_of(value).is_none() {
                    out.extend_from_slice(&place.to_le_bytes());
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
    }

    /// The cheapest way to pack a group, leaving out some of its lowest and highest values.
    fn fit(&mut self, values: &[u64]) -> Fit {
        // In signed order, so that small steps back and forth are neighbours.
        self.sorted.clear();
        self.sorted.extend_from_slice(values);
        self.sorted.sort_unstable_by_key(|value| *value as i64);
        let count = values.len();
        let mut best: Option<(usize, &[u64])> = None;
        for low in TAILS {
            for high in TAILS {
                let left_out = low + high;
                if left_out >= count || left_out > count / 4 {
                    break;
                }
                let inside = &self.sorted[low..count - high];
                let span = inside[inside.len() - 1].wrapping_sub(inside[0]);
                let bytes = packing::packed_bytes(count, bits(span)) + left_out * EXCEPTION_BYTES;
                if best.is_none_or(|(least, _)| bytes < least) {
                    best = Some((bytes, inside));
                }
            }
        }
        let (_, inside) = best.unwrap_or((0, &self.sorted));
        let (base, shift) = (inside[0], common_shift(inside));
        let width = bits(inside[inside.len() - 1].wrapping_sub(base) >> shift);
        // Some that were left out may be representable all the same.
        let exceptions = values
            .iter()
            .filter(|value| {
                let above = value.wrapping_sub(base);
                (above >> shift) << shift != above || bits(above >> shift) > width
            })
            .count();
        let bytes = 12 + packing::packed_bytes(count, width) + exceptions * EXCEPTION_BYTES;
        Fit {
            base,
            width,
            shift,
            exceptions,
            bytes,
        }
    }

    /// Makes `compressed` the column of bytes; false if it could not.
    fn compress(&mut self, values: &[u64]) -> bool {
        let base = values
            .iter()
            .copied()
            .min_by_key(|value| *value as i64)
            .unwrap_or(0);
        let set = values
            .iter()
            .fold(0, |set, value| set | value.wrapping_sub(base));
        let shift = if set == 0 { 0 } else { set.trailing_zeros() };
        let width = match bits(set >> shift) {
            0..=8 => 1_usize,
            9..=16 => 2,
            17..=32 => 4,
            _ => 8,
        };
        self.entries.clear();
        for value in values {
            let entry = value.wrapping_sub(base) >> shift;
            self.entries
                .extend_from_slice(&entry.to_le_bytes()[..width]);
        }
        let out = &mut self.compressed;
        out.clear();
        out.extend_from_slice(&[BYTES, width as u8, shift as u8, 0]);
        out.extend_from_slice(&base.to_le_bytes());
        let head = out.len() + 4;
        let bound = lz4_flex::block::get_maximum_output_size(self.entries.len());
        out.resize(head + bound, 0);
        let Ok(length) = lz4_flex::block::compress_into(&self.entries, &mut out[head..]) else {
            return false;
        };
        out[head - 4..head].copy_from_slice(&(length as u32).to_le_bytes());
        out.truncate(head + length);
        true
    }
}

const _: () = assert!(MAX_DICTIONARY <= u16::MAX as usize);
