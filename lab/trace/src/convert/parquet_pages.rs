//! Pages of a Parquet file, checked before the library decodes them: it panics on some that are damaged.

use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::ColumnDescPtr;

/// The pages of a column, up to the first that no decoder could take.
pub(super) struct Checked {
    pages: Box<dyn PageReader>,
    column: ColumnDescPtr,
    has_dictionary: bool,
}

fn wrong<T>(what: &str) -> Result<T> {
    Err(ParquetError::General(what.to_owned()))
}

impl Checked {
    pub(super) fn new(pages: Box<dyn PageReader>, column: ColumnDescPtr) -> Self {
        Checked { pages, column, has_dictionary: false }
    }

    fn check(&mut self, page: &Page) -> Result<()> {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                self.has_dictionary = true;
                self.plain(buf, *num_values as usize)
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, .. } => {
                if self.column.max_def_level() == 0 {
                    return self.values(buf, *num_values, *encoding);
                }
                if *def_level_encoding != Encoding::RLE {
                    return wrong("a page tells in an unknown way which values are null");
                }
                let (head, after) = buf.split_at_checked(4).unwrap_or_default();
                let length = head.first_chunk().map(|it| u32::from_le_bytes(*it) as usize);
                match length.and_then(|length| after.split_at_checked(length)) {
                    // Without the nulls, whose number is not known here, there are fewer values.
                    Some((levels, rest)) => {
                        self.levels(levels)?;
                        self.values(rest, 0, *encoding)
                    }
                    None => wrong("a page ends before it tells which values are null"),
                }
            }
            Page::DataPageV2 {
                buf, num_values, num_nulls, encoding, def_levels_byte_len, rep_levels_byte_len, ..
            } => {
                let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                match buf.split_at_checked(levels as usize) {
                    Some((levels, rest)) => {
                        self.levels(levels)?;
                        self.values(rest, num_values.saturating_sub(*num_nulls), *encoding)
                    }
                    None => wrong("a page ends before it tells which values are null"),
                }
            }
        }
    }

    fn levels(&self, bytes: &[u8]) -> Result<()> {
        let width = u16::BITS - self.column.max_def_level().leading_zeros();
        runs(bytes, width.into()).or_else(too_long)
    }

    /// `count` values, or an unknown number if that is 0.
    fn values(&self, bytes: &[u8], count: u32, encoding: Encoding) -> Result<()> {
        let long = match encoding {
            Encoding::PLAIN => return self.plain(bytes, count as usize),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY if !self.has_dictionary => {
                return wrong("a page names values of a dictionary that is not there");
            }
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                let (width, bytes) = bytes.split_first().unwrap_or((&0, &[]));
                runs(bytes, (*width).into())
            }
            Encoding::RLE => runs(bytes.get(4..).unwrap_or_default(), 1),
            Encoding::DELTA_BINARY_PACKED => differences(bytes, None).map(drop),
            Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY => {
                let mut lengths = [Vec::new(), Vec::new()];
                let [kept, added] = &mut lengths;
                let rest = match encoding {
                    Encoding::DELTA_BYTE_ARRAY => differences(bytes, Some(kept)),
                    _ => Ok(bytes),
                };
                match rest.and_then(|rest| differences(rest, Some(added))) {
                    Ok(rest) if !fit(&lengths, rest) => {
                        return wrong("a text is longer than its page");
                    }
                    other => other.map(drop),
                }
            }
            _ => Ok(()),
        };
        long.or_else(too_long)
    }

    /// Plain values are there; texts are whole.
    fn plain(&self, bytes: &[u8], count: usize) -> Result<()> {
        let wanted = match self.column.physical_type() {
            Physical::BOOLEAN => count.div_ceil(8),
            Physical::INT32 | Physical::FLOAT => count.saturating_mul(4),
            Physical::INT64 | Physical::DOUBLE => count.saturating_mul(8),
            Physical::INT96 => count.saturating_mul(12),
            Physical::BYTE_ARRAY => return texts(bytes, count),
            _ => 0,
        };
        if bytes.len() < wanted { wrong("a page has fewer values than it says") } else { Ok(()) }
    }
}

/// Texts, each behind its length: `count` of them, or as many as there are if that is 0.
fn texts(mut bytes: &[u8], count: usize) -> Result<()> {
    let mut found = 0;
    while !bytes.is_empty() && (found < count || count == 0) {
        let length = bytes.first_chunk().map(|it| u32::from_le_bytes(*it) as usize);
        match length.and_then(|length| bytes.get(4..)?.get(length..)) {
            Some(rest) => bytes = rest,
            None => return wrong("a text is longer than its page"),
        }
        found += 1;
    }
    if found < count { wrong("a page has fewer values than it says") } else { Ok(()) }
}

/// A number of variable length has more bytes than any may have.
struct TooLong;

fn too_long(TooLong: TooLong) -> Result<()> {
    wrong("a number in a page is too long")
}

/// Takes a number of variable length; `None` at the end.
fn number(bytes: &mut &[u8]) -> Result<Option<u64>, TooLong> {
    const MOST_BYTES: usize = 10;
    let mut number = 0;
    for at in 0..MOST_BYTES {
        let Some((byte, rest)) = bytes.split_first() else { return Ok(None) };
        *bytes = rest;
        number |= u64::from(byte & 0x7f).wrapping_shl(7 * at as u32);
        if byte & 0x80 == 0 {
            return Ok(Some(number));
        }
    }
    Err(TooLong)
}

/// Runs of values that are equal or packed into `width` bits.
fn runs(mut bytes: &[u8], width: u64) -> Result<(), TooLong> {
    while let Some(head) = number(&mut bytes)? {
        let length = match head % 2 {
            0 => width.div_ceil(8),
            _ => (head / 2).saturating_mul(width),
        };
        bytes = bytes.get(length as usize..).unwrap_or_default();
    }
    Ok(())
}

/// Whether the texts are within `bytes`: of each, how much it keeps of the one before it, if any does, and how much is added.
fn fit([kept, added]: &[Vec<i64>; 2], bytes: &[u8]) -> bool {
    let mut before = 0;
    let mut each = added.iter().enumerate().map(|(at, added)| {
        let kept = if kept.is_empty() { 0 } else { *kept.get(at)? };
        let known = (0..=before).contains(&kept) && *added >= 0;
        before = kept.checked_add(*added)?;
        known.then_some(*added)
    });
    let sum = each.try_fold(0_i64, |sum, added| sum.checked_add(added?));
    sum.is_some_and(|sum| sum <= bytes.len() as i64) && kept.len() <= added.len()
}

/// Blocks of packed differences, whose `values` are taken if wanted; gives what is behind them. What else is wrong with them the
/// library says.
fn differences<'a>(mut bytes: &'a [u8], mut values: Option<&mut Vec<i64>>) -> Result<&'a [u8], TooLong> {
    let wanted = values.is_some();
    let mut head = [0; 4];
    for field in &mut head {
        *field = number(&mut bytes)?.unwrap_or(0);
    }
    let [block, parts, count, mut value] = head.map(|field| field as i64);
    let signed = |number: i64| (number as u64 >> 1) as i64 ^ -(number & 1);
    value = signed(value);
    let part = block.checked_div(parts).unwrap_or(0);
    if part <= 0 || parts <= 0 {
        return Ok(&[]);
    }
    let mut take = |value| {
        if let Some(values) = &mut values {
            values.push(value);
        }
    };
    if count > 0 {
        take(value);
    }
    let mut left = count - 1;
    while left > 0 {
        let least = number(&mut bytes)?;
        let widths = bytes.split_at_checked(parts as usize);
        let (Some(least), Some((widths, rest))) = (least, widths) else { return Ok(&[]) };
        bytes = rest;
        for width in widths {
            let here = left.min(part);
            if here <= 0 {
                break;
            }
            let length = u64::from(*width).saturating_mul(part as u64) / 8;
            let Some((packed, rest)) = bytes.split_at_checked(length as usize) else { return Ok(&[]) };
            // Of numbers themselves only the ends matter.
            for at in 0..if wanted { here as usize } else { 0 } {
                let more = signed(least as i64).wrapping_add(bits(packed, at, *width));
                value = value.wrapping_add(more);
                take(value);
            }
            bytes = rest;
            left -= here;
        }
    }
    Ok(bytes)
}

/// Number `at` of numbers of `width` bits.
fn bits(packed: &[u8], at: usize, width: u8) -> i64 {
    let first = at * usize::from(width);
    let mut word = [0; 16];
    for (to, byte) in word.iter_mut().zip(packed.iter().skip(first / 8)) {
        *to = *byte;
    }
    let mask = 1_u128.checked_shl(width.into()).unwrap_or(0).wrapping_sub(1);
    (u128::from_le_bytes(word) >> (first % 8) & mask) as i64
}

impl Iterator for Checked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}
