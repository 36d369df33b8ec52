//! Columns to bytes: each in the kind that is smallest, unless that one would be slow to decode for a small gain.
//!
//! Trying all kinds costs more than encoding. What was best for a column's last values most often is for its next ones, so all are tried
//! again only for every eighth block.

use super::dictionary::Dictionary;
use super::fit::{Fit, common_shift};
use super::{BYTES, CONSTANT, DICTIONARY, GROUP, MAX_DICTIONARY, PACKED, packing};

/// Blocks that are encoded in the same way before all ways are tried again.
const SAME: u32 = 7;

/// How to encode a column that is not constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Encoding {
    dictionary: bool,
    lz4: bool,
}

/// Encodes a column of one block after another.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    dictionary: Dictionary,
    entries: Vec<u8>,
    compressed: Vec<u8>,
    encoding: Encoding,
    holds: u32,
}

/// About the bytes that `values` take when packed, told from a part of them.
pub(crate) fn estimate(values: &[u64]) -> usize {
    let groups = values.len().div_ceil(GROUP);
    values.chunks(GROUP).step_by(groups.div_ceil(4)).map(|group| Fit::of(group).bytes).sum()
}

fn pack(values: &[u64], out: &mut Vec<u8>) {
    out.push(PACKED);
    for values in values.chunks(GROUP) {
        let fit = Fit::of(values);
        out.extend_from_slice(&[fit.width as u8, fit.shift as u8]);
        out.extend_from_slice(&(fit.exceptions as u16).to_le_bytes());
        out.extend_from_slice(&fit.base.to_le_bytes());
        let packed = values.iter().map(|value| fit.packed(*value).unwrap_or(0));
        packing::pack(packed, fit.width, out);
        if fit.exceptions > 0 {
            for (place, value) in (0_u16..).zip(values) {
                if fit.packed(*value).is_none() {
                    out.extend_from_slice(&place.to_le_bytes());
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
    }
}

fn is_constant(values: &[u64]) -> bool {
    values.iter().all(|value| *value == values[0])
}

fn constant(value: u64, out: &mut Vec<u8>) {
    out.push(CONSTANT);
    out.extend_from_slice(&value.to_le_bytes());
}

impl Encoder {
    /// Appends the column of the next block, which has at least one value.
    pub(crate) fn column(&mut self, values: &[u64], out: &mut Vec<u8>) {
        if is_constant(values) {
            return constant(values[0], out);
        }
        if self.holds > 0 {
            self.holds -= 1;
            if self.again(values, out) {
                return;
            }
        }
        self.holds = SAME;
        let begin = out.len();
        self.encoding = Encoding { dictionary: false, lz4: self.plain(values, true, out) };
        let plain = out.len() - begin;
        // A dictionary costs a load for each record: it must save an eighth.
        if plain > 1 + 8 + values.len() / 8
            && let Some((head, places)) = self.dictionary_of(values)
        {
            let mut other = head;
            let lz4 = self.plain(&places, true, &mut other);
            if other.len() <= plain - plain / 8 {
                out.truncate(begin);
                out.append(&mut other);
                self.encoding = Encoding { dictionary: true, lz4 };
            }
        }
    }

    /// Encodes as the last block; false if these values cannot be.
    fn again(&mut self, values: &[u64], out: &mut Vec<u8>) -> bool {
        if !self.encoding.dictionary {
            self.plain(values, self.encoding.lz4, out);
            return true;
        }
        let Some((head, places)) = self.dictionary_of(values) else { return false };
        out.extend_from_slice(&head);
        self.plain(&places, self.encoding.lz4, out);
        true
    }

    /// The begin of a column with a dictionary, and the places that are to follow; `None` if too many values are distinct.
    fn dictionary_of(&mut self, values: &[u64]) -> Option<(Vec<u8>, Vec<u64>)> {
        let (entries, places) = self.dictionary.of(values, values.len() / 4)?;
        let mut head = vec![DICTIONARY];
        head.extend_from_slice(&(entries.len() as u16 - 1).to_le_bytes());
        let mut before = 0;
        let steps: Vec<u64> = entries.iter().map(|entry| entry - std::mem::replace(&mut before, *entry)).collect();
        if is_constant(&steps) {
            constant(steps[0], &mut head);
        } else {
            pack(&steps, &mut head);
        }
        Some((head, places))
    }

    /// Appends a column without a dictionary, and tells whether it is compressed.
    fn plain(&mut self, values: &[u64], try_lz4: bool, out: &mut Vec<u8>) -> bool {
        if is_constant(values) {
            constant(values[0], out);
            return false;
        }
        let begin = out.len();
        pack(values, out);
        // LZ4 is the slowest to decode: it must save half. Of few values it saves the padding of the lanes.
        let half = (out.len() - begin) / 2;
        let smaller = try_lz4 && self.compress(values) && self.compressed.len() < half;
        if smaller {
            out.truncate(begin);
            out.extend_from_slice(&self.compressed);
        }
        smaller
    }

    /// Makes `compressed` the column of bytes; false if it could not.
    fn compress(&mut self, values: &[u64]) -> bool {
        let base = values.iter().map(|value| *value as i64).min().unwrap_or(0) as u64;
        let shift = common_shift(values);
        let set = values.iter().fold(0, |set, value| set | value.wrapping_sub(base) >> shift);
        let width = match 64 - set.leading_zeros() {
            0..=8 => 1_usize,
            9..=16 => 2,
            17..=32 => 4,
            _ => 8,
        };
        self.entries.clear();
        for value in values {
            let entry = value.wrapping_sub(base) >> shift;
            self.entries.extend_from_slice(&entry.to_le_bytes()[..width]);
        }
        let out = &mut self.compressed;
        out.clear();
        out.extend_from_slice(&[BYTES, width as u8, shift as u8, 0]);
        out.extend_from_slice(&base.to_le_bytes());
        let head = out.len() + 4;
        let bound = lz4_flex::block::get_maximum_output_size(self.entries.len());
        out.resize(head + bound, 0);
        let Ok(length) = lz4_flex::block::compress_into(&self.entries, &mut out[head..]) else { return false };
        out[head - 4..head].copy_from_slice(&(length as u32).to_le_bytes());
        out.truncate(head + length);
        true
    }
}

const _: () = assert!(MAX_DICTIONARY <= u16::MAX as usize);
