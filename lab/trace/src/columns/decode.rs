//! Bytes to columns. The bytes may hold anything; what is decoded is never more than was asked for.

use super::{BYTES, CONSTANT, DICTIONARY, GROUP, MAX_DICTIONARY, Malformed, PACKED, packing, take};

/// Decodes columns; keeps its buffers from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    dictionary: Vec<u64>,
}

impl Decoder {
    /// Decodes a column of `values` numbers from the front of `bytes` into `out`, which has room for whole groups; gives the
    /// bytes behind it.
    pub(crate) fn column<'a>(
        &mut self,
        mut bytes: &'a [u8],
        values: usize,
        out: &mut [u64],
    ) -> Result<&'a [u8], Malformed> {
        let [kind] = *take(&mut bytes, "a column is cut off")?;
        if kind == DICTIONARY {
            self.dictionary(bytes, values, out)
        } else {
            self.plain(kind, bytes, values, out)
        }
    }

    fn plain<'a>(
        &mut self,
        kind: u8,
        mut bytes: &'a [u8],
        values: usize,
        out: &mut [u64],
    ) -> Result<&'a [u8], Malformed> {
        match kind {
            CONSTANT => {
                let value = u64::from_le_bytes(*take(&mut bytes, "a constant is cut off")?);
                out[..values].fill(value);
                Ok(bytes)
            }
            PACKED => {
                let mut rest = values;
                for out in out.chunks_exact_mut(GROUP) {
                    let here = rest.min(GROUP);
                    if here == 0 {
                        break;
                    }
                    bytes = group(bytes, here, out)?;
                    rest -= here;
                }
                Ok(bytes)
            }
            BYTES => self.bytes(bytes, values, out),
            _ => Err(Malformed("a column has a kind that does not exist")),
        }
    }

    fn bytes<'a>(
        &mut self,
        mut bytes: &'a [u8],
        values: usize,
        out: &mut [u64],
    ) -> Result<&'a [u8], Malformed> {
        let what = "a column of bytes is cut off";
        let [width, shift, zero] = *take(&mut bytes, what)?;
        let base = u64::from_le_bytes(*take(&mut bytes, what)?);
        let length = u32::from_le_bytes(*take(&mut bytes, what)?) as usize;
        let (packed, rest) = bytes.split_at_checked(length).ok_or(Malformed(what))?;
        if shift > 63 || zero != 0 {
            return Err(Malformed("a column of bytes has an impossible head"));
        }
        let wanted = values * usize::from(width);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        let plain = &mut self.bytes[..wanted];
        if !lz4_flex::block::decompress_into(packed, plain).is_ok_and(|found| found == wanted) {
            return Err(Malformed(
                "a column of bytes does not decompress to its values",
            ));
        }
        let value = |entry: u64| base.wrapping_add(entry << shift);
        macro_rules! widen {
            ($number:ty) => {
                for (out, entry) in out
                    .iter_mut()
                    .zip(plain.as_chunks::<{ size_of::<$number>() }>().0)
                {
                    *out = value(u64::from(<$number>::from_le_bytes(*entry)));
                }
            };
        }
        match width {
            1 => widen!(u8),
            2 => widen!(u16),
            4 => widen!(u32),
            8 => widen!(u64),
            _ => return Err(Malformed("a column of bytes has an impossible width")),
        }
        Ok(rest)
    }

    fn dictionary<'a>(
        &mut self,
        mut bytes: &'a [u8],
        values: usize,
        out: &mut [u64],
    ) -> Result<&'a [u8], Malformed> {
        let count = usize::from(u16::from_le_bytes(*take(
            &mut bytes,
            "a dictionary is cut off",
        )?)) + 1;
        if count > MAX_DICTIONARY {
            return Err(Malformed("a dictionary is too long"));
        }
        // Whole, so that no place need be checked against its length below: places beyond `count` are refused.
        let mut entries = std::mem::take(&mut self.dictionary);
        entries.resize(MAX_DICTIONARY, 0);
        let decoded = self.entries(bytes, count, values, &mut entries, out);
        self.dictionary = entries;
        decoded
    }

    fn entries<'a>(
        &mut self,
        mut bytes: &'a [u8],
        count: usize,
        values: usize,
        entries: &mut [u64],
        out: &mut [u64],
    ) -> Result<&'a [u8], Malformed> {
        for (length, out) in [(count, &mut *entries), (values, &mut *out)] {
            let [kind] = *take(&mut bytes, "a dictionary is cut off")?;
            bytes = self.plain(kind, bytes, length, out)?;
        }
        let mut value = 0_u64;
        for entry in &mut entries[..count] {
            value = value.wrapping_add(*entry);
            *entry = value;
        }
        let out = &mut out[..values];
        if out.iter().fold(0, |most, place| most.max(*place)) >= count as u64 {
            return Err(Malformed("a place lies outside the dictionary"));
        }
        let entries: &[u64; MAX_DICTIONARY] = (&*entries)
            .try_into()
            .map_err(|_| Malformed("a dictionary is too long"))?;
        for place in out {
            *place = entries[*place as usize % MAX_DICTIONARY];
        }
        Ok(bytes)
    }
}

/// Decodes one packed group into `out`, which has room for a whole one.
fn group<'a>(mut bytes: &'a [u8], values: usize, out: &mut [u64]) -> Result<&'a [u8], Malformed> {
    let what = "a packed group is cut off";
    let [width, shift, low, high] = *take(&mut bytes, what)?;
    let exceptions = usize::from(u16::from_le_bytes([low, high]));
    let base = u64::from_le_bytes(*take(&mut bytes, what)?);
    if width > 64 || shift > 63 || exceptions > values {
        return Err(Malformed("a packed group has an impossible head"));
    }
    let bits = (u32::from(width), u32::from(shift), base);
    bytes = packing::unpack(bytes, values, bits, out)?;
    for _ in 0..exceptions {
        let place = usize::from(u16::from_le_bytes(*take(&mut bytes, what)?));
        let value = u64::from_le_bytes(*take(&mut bytes, what)?);
        *out[..values]
            .get_mut(place)
            .ok_or(Malformed("an exception lies outside its group"))? = value;
    }
    Ok(bytes)
}
