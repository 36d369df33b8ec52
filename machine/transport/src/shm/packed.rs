//! Short packets without key, export and offset, packed into the first cache line of their slot.
//!
//! ```text
//! header:  [ 16 B | key 16 B | export 4 B | message 4 B | offset 8 B ]   payload ≤ 36 B
//! packed:  [ 16 B | message 4 B | payload ≤ 36 B ]
//! ```

use mapwire_wire::HEADER_BYTES;

/// Words of a slot's first cache line behind its first word.
pub(crate) const LINE_WORDS: usize = 7;
/// Bytes of a packed header.
pub(crate) const HEAD_BYTES: usize = 20;
/// The longest payload that is packed.
pub(crate) const PAYLOAD_BYTES: usize = 8 * LINE_WORDS - HEAD_BYTES;

/// Index of a header's words, of 8 bytes each.
const KEY: [usize; 2] = [2, 3];
/// Export in the low half, message in the high half.
const EXPORT_AND_MESSAGE: usize = 4;
const OFFSET: usize = 5;

/// The line of a packet whose header can be packed, its payload still missing; `None` if it cannot be.
#[inline(always)]
pub(crate) fn line_of(header: &[u8; HEADER_BYTES], len_bytes: usize) -> Option<[u64; LINE_WORDS]> {
    // Up to 8 bytes share the first line with a whole header.
    if !(9..=PAYLOAD_BYTES).contains(&len_bytes) {
        return None;
    }
    let word = |index: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&header[8 * index..][..8]);
        u64::from_le_bytes(bytes)
    };
    let dropped = word(KEY[0]) | word(KEY[1]) | word(OFFSET);
    let export_and_message = word(EXPORT_AND_MESSAGE);
    if dropped != 0 || export_and_message as u32 != 0 {
        return None;
    }
    let mut line = [0; LINE_WORDS];
    line[0] = word(0).to_le();
    line[1] = word(1).to_le();
    line[2] = (export_and_message >> 32).to_le();
    Some(line)
}

/// Makes the packed line at the start of `scratch` a header and a payload, as they were before.
#[inline(always)]
pub(crate) fn unpack<const WORDS: usize>(scratch: &mut [u64; WORDS]) {
    let mut line = [0; LINE_WORDS];
    line.copy_from_slice(&scratch[..LINE_WORDS]);
    let line = line.map(u64::from_le);
    // What stands at byte 20 goes to byte 48: half a word on, so each word takes halves of two.
    for (to, from) in (HEADER_BYTES / 8..).zip(2..LINE_WORDS) {
        let next = line.get(from + 1).copied().unwrap_or(0);
        scratch[to] = (line[from] >> 32 | next << 32).to_le();
    }
    scratch[KEY[0]] = 0;
    scratch[KEY[1]] = 0;
    scratch[EXPORT_AND_MESSAGE] = (line[2] << 32).to_le();
    scratch[OFFSET] = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(header: &[u8; HEADER_BYTES], payload: &[u8]) -> Option<[u64; LINE_WORDS]> {
        let line = line_of(header, payload.len())?;
        let mut bytes: Vec<u8> = line.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes[HEAD_BYTES..][..payload.len()].copy_from_slice(payload);
        let mut words = [0; LINE_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().unwrap());
        }
        Some(words)
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked_as_it_was(
            start: [u8; 16],
            message: [u8; 4],
            payload in proptest::collection::vec(any::<u8>(), 9..=PAYLOAD_BYTES),
        ) {
            let mut header = [0; HEADER_BYTES];
            header[..16].copy_from_slice(&start);
            header[36..40].copy_from_slice(&message);
            let line = pack(&header, &payload).expect("it can be packed");
            // What an earlier packet left there must not shine through.
            let mut scratch = [u64::MAX; 23];
            scratch[..LINE_WORDS].copy_from_slice(&line);
            unpack(&mut scratch);
            let bytes: Vec<u8> = scratch.iter().flat_map(|word| word.to_ne_bytes()).collect();
            prop_assert_eq!(&bytes[..HEADER_BYTES], &header[..]);
            prop_assert_eq!(&bytes[HEADER_BYTES..][..payload.len()], &payload[..]);
        }

        #[test]
        fn a_header_with_any_other_field_is_left_as_it_is(byte in 16..48_usize, bit in 0..8_u32, length in 0..200_usize) {
            let mut header = [0; HEADER_BYTES];
            header[byte] = 1 << bit;
            let is_message = (36..40).contains(&byte);
            let fits = (9..=PAYLOAD_BYTES).contains(&length);
            prop_assert_eq!(line_of(&header, length).is_some(), is_message && fits);
        }
    }
}
