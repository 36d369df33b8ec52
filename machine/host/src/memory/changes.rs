//! Pages and copies of them from before they were changed: which bytes differ, and what a page becomes where both it and another copy
//! changed (twins and diffs of lazy release consistency).

use crate::page::PAGE_BYTES;

/// Bytes of a page whose differences fill a word of bits.
const BLOCK: usize = u64::BITS as usize;
const BLOCKS: usize = PAGE_BYTES / BLOCK;
const _: () = assert!(BLOCKS <= u64::BITS as usize);

/// Bytes of a page.
pub type PageBytes = [u8; PAGE_BYTES];

/// Which bytes of a page differ, the first in the lowest bit.
struct Differences {
    of_bytes: [u64; BLOCKS],
    /// Blocks with such bytes.
    of_blocks: u64,
}

/// Calls `each` with start and length of each run of bytes of `page` that differ from `copy`, in order.
#[inline]
pub fn changes(page: &PageBytes, copy: &PageBytes, each: impl FnMut(usize, usize)) {
    let mut differences = Differences { of_bytes: [0; BLOCKS], of_blocks: 0 };
    compare(page, copy, &mut differences);
    runs(&differences, each);
}

#[inline]
#[allow(unsafe_code)]
fn compare(page: &PageBytes, copy: &PageBytes, into: &mut Differences) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as just checked.
        return unsafe { compare_vectors(page, copy, into) };
    }
    compare_words(page, copy, into);
}

/// By vectors of 32 bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn compare_vectors(page: &PageBytes, copy: &PageBytes, into: &mut Differences) {
    use core::arch::x86_64::{_mm256_cmpeq_epi8, _mm256_movemask_epi8, _mm256_set_epi64x};
    let vector = |bytes: &[u8; BLOCK], at: usize| {
        let word = |number: usize| i64::from_le_bytes(bytes.as_chunks().0[at + number]);
        _mm256_set_epi64x(word(3), word(2), word(1), word(0))
    };
    let blocks = page.as_chunks().0.iter().zip(copy.as_chunks().0);
    let mut of_blocks = 0;
    for (bits, (ours, theirs)) in into.of_bytes.iter_mut().zip(blocks) {
        let equal = |at: usize| {
            let mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(vector(ours, at), vector(theirs, at)));
            u64::from(mask as u32)
        };
        *bits = !(equal(0) | equal(4) << 32);
        of_blocks = of_blocks >> 1 | u64::from(*bits != 0) << (BLOCKS - 1);
    }
    into.of_blocks = of_blocks;
}

/// By words of 8 bytes, on any processor.
fn compare_words(page: &PageBytes, copy: &PageBytes, into: &mut Differences) {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let of_word = |ours: &[u8; 8], theirs: &[u8; 8]| {
        // The highest bit of each byte that differs; then all of them in the highest byte.
        let word = u64::from_le_bytes(*ours) ^ u64::from_le_bytes(*theirs);
        let highest = (((word & LOW) + LOW) | word) & !LOW;
        (highest >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
    };
    let blocks = page.as_chunks::<BLOCK>().0.iter().zip(copy.as_chunks::<BLOCK>().0).enumerate();
    for (block, (ours, theirs)) in blocks.filter(|(_, (ours, theirs))| ours != theirs) {
        let words = ours.as_chunks().0.iter().zip(theirs.as_chunks().0).enumerate();
        into.of_bytes[block] = words.fold(0, |bits, (at, (ours, theirs))| bits | of_word(ours, theirs) << (8 * at));
        into.of_blocks |= 1 << block;
    }
}

#[inline]
fn runs(differences: &Differences, mut each: impl FnMut(usize, usize)) {
    let begins_with_one = |block: usize| differences.of_bytes.get(block).is_some_and(|bits| bits & 1 == 1);
    // Where the run began that goes on in the next block.
    let mut open: Option<usize> = None;
    let mut left = differences.of_blocks;
    while left != 0 {
        let block = left.trailing_zeros() as usize;
        left &= left - 1;
        let (at, mut bits) = (block * BLOCK, differences.of_bytes[block]);
        while bits != 0 {
            let start = bits.trailing_zeros();
            let end = start + (bits >> start).trailing_ones();
            let begin = open.take().unwrap_or(at + start as usize);
            if end == u64::BITS {
                match begins_with_one(block + 1) {
                    true => open = Some(begin),
                    false => each(begin, at + BLOCK - begin),
                }
                break;
            }
            each(begin, at + end as usize - begin);
            bits &= u64::MAX << end;
        }
    }
}

/// Takes from `fetched` each byte of `page` that is as in `copy`.
pub fn merge(page: &mut PageBytes, copy: &PageBytes, fetched: &PageBytes) {
    for ((page, copy), fetched) in page.iter_mut().zip(copy).zip(fetched) {
        if *page == *copy {
            *page = *fetched;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs_of(page: &PageBytes, copy: &PageBytes) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        changes(page, copy, |start, length| runs.push((start, length)));
        runs
    }

    #[test]
    fn just_the_bytes_that_differ_are_named_in_runs_that_do_not_touch() {
        let copy: Box<PageBytes> = Box::new(core::array::from_fn(|at| at as u8));
        assert_eq!(runs_of(&copy, &copy), []);
        let all: Box<PageBytes> = Box::new(core::array::from_fn(|at| !(at as u8)));
        assert_eq!(runs_of(&all, &copy), [(0, 4096)]);
        let mut state = 1_u64;
        for changed in [1, 2, 7, 64, 512, 2000, 4000] {
            let mut page = copy.clone();
            for _ in 0..changed {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                page[(state >> 33) as usize % 4096] ^= 1 + (state >> 60) as u8;
            }
            let mut rebuilt = copy.clone();
            let mut last = 0;
            for (start, length) in runs_of(&page, &copy) {
                assert!(length > 0 && (start > last || start == 0));
                rebuilt[start..start + length].copy_from_slice(&page[start..start + length]);
                assert!((start..start + length).all(|at| page[at] != copy[at]));
                last = start + length;
            }
            assert!(rebuilt == page);
        }
    }

    #[test]
    fn vectors_and_words_find_the_same_bytes() {
        let copy: Box<PageBytes> = Box::new(core::array::from_fn(|at| at as u8));
        let mut state = 1_u64;
        for density in 0..9 {
            let mut page = copy.clone();
            for byte in page.iter_mut() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte ^= if state >> 61 < density { 1 + (state >> 40) as u8 % 255 } else { 0 };
            }
            let [mut ours, mut by_words] = [(); 2].map(|()| Differences { of_bytes: [0; BLOCKS], of_blocks: 0 });
            compare(&page, &copy, &mut ours);
            compare_words(&page, &copy, &mut by_words);
            assert_eq!((ours.of_bytes, ours.of_blocks), (by_words.of_bytes, by_words.of_blocks));
            let mut one_by_one = Vec::new();
            for at in (0..PAGE_BYTES).filter(|&at| page[at] != copy[at]) {
                match one_by_one.last_mut() {
                    Some((start, length)) if *start + *length == at => *length += 1,
                    _ => one_by_one.push((at, 1)),
                }
            }
            assert_eq!(runs_of(&page, &copy), one_by_one);
        }
    }

    #[test]
    fn merging_keeps_what_was_changed_here_and_takes_the_rest() {
        let copy: PageBytes = [1; PAGE_BYTES];
        let (mut page, mut fetched) = (copy, copy);
        page[5] = 2;
        (fetched[5], fetched[6], fetched[4095]) = (9, 3, 4);
        merge(&mut page, &copy, &fetched);
        assert_eq!((page[4], page[5], page[6], page[4095]), (1, 2, 3, 4));
    }
}
