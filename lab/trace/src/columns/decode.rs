//! Bytes to columns, a group of values at a time, so that what is done with the values finds them in the first-level cache. The
//! bytes may hold anything; what is decoded is never more than was asked for.

use super::{BYTES, CONSTANT, DICTIONARY, GROUP, MAX_DICTIONARY, Malformed, PACKED, packing, take};

/// The values of a group; of a shorter one those in front.
pub(crate) type Group = [u64; GROUP];

/// What a column needs to be decoded, kept from one block to the next.
#[derive(Debug)]
pub(crate) struct Buffers {
    bytes: Vec<u8>,
    entries: Box<[u64; MAX_DICTIONARY]>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { bytes: Vec::new(), entries: Box::new([0; MAX_DICTIONARY]) }
    }
}

/// A column, of which some groups were decoded.
#[derive(Debug)]
pub(crate) struct Column<'a> {
    /// Values, or places in the dictionary.
    plain: Plain<'a>,
    dictionary: Option<Dictionary<'a>>,
}

#[derive(Debug)]
struct Dictionary<'a> {
    entries: &'a [u64; MAX_DICTIONARY],
    count: u64,
}

#[derive(Debug)]
enum Plain<'a> {
    Constant(u64),
    Packed(&'a [u8]),
    Bytes(Entries<'a>),
}

/// The entries of a column of bytes that are left.
#[derive(Debug)]
struct Entries<'a> {
    bytes: &'a [u8],
    width: usize,
    shift: u32,
    base: u64,
}

impl<'a> Column<'a> {
    /// The column of `values` numbers at the front of `bytes`, which then begins behind it.
    pub(crate) fn parse<'p: 'a>(
        bytes: &mut &'p [u8],
        values: usize,
        buffers: &'a mut Buffers,
    ) -> Result<Self, Malformed> {
        let [kind] = *take(bytes, "a column is cut off")?;
        if kind != DICTIONARY {
            return Ok(Self { plain: Plain::parse(kind, bytes, values, &mut buffers.bytes)?, dictionary: None });
        }
        let what = "a dictionary is cut off";
        let count = usize::from(u16::from_le_bytes(*take(bytes, what)?)) + 1;
        if count > MAX_DICTIONARY {
            return Err(Malformed("a dictionary is too long"));
        }
        let [kind] = *take(bytes, what)?;
        let mut steps = Plain::parse(kind, bytes, count, &mut buffers.bytes)?;
        let mut value = 0_u64;
        for (index, entries) in buffers.entries.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            let here = count.saturating_sub(index * GROUP).min(GROUP);
            steps.group(here, entries)?;
            for entry in &mut entries[..here] {
                value = value.wrapping_add(*entry);
                *entry = value;
            }
        }
        let [kind] = *take(bytes, what)?;
        Ok(Self {
            plain: Plain::parse(kind, bytes, values, &mut buffers.bytes)?,
            dictionary: Some(Dictionary { entries: &buffers.entries, count: count as u64 }),
        })
    }

    /// Decodes the next group, which has `values` values. All groups but the last one are whole.
    pub(crate) fn group(&mut self, values: usize, out: &mut Group) -> Result<(), Malformed> {
        self.plain.group(values, out)?;
        if let Some(Dictionary { entries, count }) = self.dictionary {
            let places = &mut out[..values];
            if any_from(places, count) {
                return Err(Malformed("a place lies outside the dictionary"));
            }
            for place in places {
                *place = entries[*place as usize % MAX_DICTIONARY];
            }
        }
        Ok(())
    }
}

/// Whether any of `values` is `bound` or more; `bound` is from 1 to 2⁶³.
pub(crate) fn any_from(values: &[u64], bound: u64) -> bool {
    // The top bit of one or the other tells it, which costs less than finding the largest.
    let tell = |value: u64| value | (bound - 1).wrapping_sub(value);
    values.iter().fold(0, |told, value| told | tell(*value)) >> 63 != 0
}

impl<'a> Plain<'a> {
    fn parse<'p: 'a>(
        kind: u8,
        bytes: &mut &'p [u8],
        values: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Self, Malformed> {
        match kind {
            CONSTANT => {
                let value = u64::from_le_bytes(*take(bytes, "a constant is cut off")?);
                Ok(Self::Constant(value))
            }
            PACKED => {
                let all = *bytes;
                let mut rest = values;
                while rest > 0 {
                    let here = rest.min(GROUP);
                    let head = GroupHead::parse(bytes, here)?;
                    let what = Malformed("a packed group is cut off");
                    *bytes = bytes.get(head.rest_bytes(here)..).ok_or(what)?;
                    rest -= here;
                }
                Ok(Self::Packed(&all[..all.len() - bytes.len()]))
            }
            BYTES => Entries::parse(bytes, values, buffer).map(Self::Bytes),
            _ => Err(Malformed("a column has a kind that does not exist")),
        }
    }

    fn group(&mut self, values: usize, out: &mut Group) -> Result<(), Malformed> {
        match self {
            Self::Constant(value) => out[..values].fill(*value),
            Self::Packed(bytes) if values > 0 => {
                let head = GroupHead::parse(bytes, values)?;
                let bits = (head.width, head.shift, head.base);
                *bytes = packing::unpack(bytes, values, bits, out)?;
                for _ in 0..head.exceptions {
                    let what = "an exception is cut off";
                    let place = usize::from(u16::from_le_bytes(*take(bytes, what)?));
                    let value = u64::from_le_bytes(*take(bytes, what)?);
                    *out[..values].get_mut(place).ok_or(Malformed("an exception lies outside its group"))? = value;
                }
            }
            Self::Packed(_) => {}
            Self::Bytes(entries) => entries.group(values, out),
        }
        Ok(())
    }
}

struct GroupHead {
    width: u32,
    shift: u32,
    exceptions: usize,
    base: u64,
}

impl GroupHead {
    fn parse(bytes: &mut &[u8], values: usize) -> Result<Self, Malformed> {
        let what = "a packed group is cut off";
        let [width, shift, low, high] = *take(bytes, what)?;
        let head = Self {
            width: u32::from(width),
            shift: u32::from(shift),
            exceptions: usize::from(u16::from_le_bytes([low, high])),
            base: u64::from_le_bytes(*take(bytes, what)?),
        };
        if head.width > 64 || head.shift > 63 || head.exceptions > values {
            return Err(Malformed("a packed group has an impossible head"));
        }
        Ok(head)
    }

    /// Bytes of the group's words and exceptions.
    const fn rest_bytes(&self, values: usize) -> usize {
        packing::packed_bytes(values, self.width) + self.exceptions * 10
    }
}

impl<'a> Entries<'a> {
    fn parse(bytes: &mut &[u8], values: usize, buffer: &'a mut Vec<u8>) -> Result<Self, Malformed> {
        let what = "a column of bytes is cut off";
        let [width, shift, zero] = *take(bytes, what)?;
        let base = u64::from_le_bytes(*take(bytes, what)?);
        let length = u32::from_le_bytes(*take(bytes, what)?) as usize;
        let (packed, rest) = bytes.split_at_checked(length).ok_or(Malformed(what))?;
        *bytes = rest;
        if shift > 63 || zero != 0 || ![1, 2, 4, 8].contains(&width) {
            return Err(Malformed("a column of bytes has an impossible head"));
        }
        let wanted = values * usize::from(width);
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        let plain = &mut buffer[..wanted];
        if !lz4_flex::block::decompress_into(packed, plain).is_ok_and(|found| found == wanted) {
            return Err(Malformed("a column of bytes does not decompress to its values"));
        }
        Ok(Self { bytes: plain, width: usize::from(width), shift: u32::from(shift), base })
    }

    fn group(&mut self, values: usize, out: &mut Group) {
        let (now, later) = self.bytes.split_at(values * self.width);
        self.bytes = later;
        let (base, shift) = (self.base, self.shift);
        macro_rules! widen {
            ($number:ty) => {
                for (out, entry) in out.iter_mut().zip(now.as_chunks().0) {
                    let entry = u64::from(<$number>::from_le_bytes(*entry));
                    *out = base.wrapping_add(entry << shift);
                }
            };
        }
        match self.width {
            1 => widen!(u8),
            2 => widen!(u16),
            4 => widen!(u32),
            _ => widen!(u64),
        }
    }
}
