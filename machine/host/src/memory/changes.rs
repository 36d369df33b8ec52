//! Pages and copies of them from before they were changed: which bytes differ, and what a page becomes where both it and another copy
//! changed (twins and diffs of lazy release consistency).

use crate::page::PAGE_BYTES;

const WORD: usize = size_of::<u64>();

/// Bytes of a page.
pub type PageBytes = [u8; PAGE_BYTES];

/// Calls `each` with start and length of each run of bytes of `page` that differ from `copy`, in order.
pub fn changes(page: &PageBytes, copy: &PageBytes, mut each: impl FnMut(usize, usize)) {
    // Most words are equal: they are compared in blocks first.
    const BLOCK: usize = 256;
    let mut run: Option<usize> = None;
    for block in (0..PAGE_BYTES).step_by(BLOCK) {
        let (ours, theirs) = (&page[block..block + BLOCK], &copy[block..block + BLOCK]);
        if ours == theirs {
            end(&mut run, block, &mut each);
            continue;
        }
        for at in (block..block + BLOCK).step_by(WORD) {
            let differ = word(page, at) ^ word(copy, at);
            if differ == 0 {
                end(&mut run, at, &mut each);
                continue;
            }
            for byte in 0..WORD {
                if differ.to_le_bytes()[byte] == 0 {
                    end(&mut run, at + byte, &mut each);
                } else {
                    run.get_or_insert(at + byte);
                }
            }
        }
    }
    end(&mut run, PAGE_BYTES, &mut each);
}

fn end(run: &mut Option<usize>, at: usize, each: &mut impl FnMut(usize, usize)) {
    if let Some(start) = run.take() {
        each(start, at - start);
    }
}

#[inline]
fn word(page: &PageBytes, at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + WORD].try_into().unwrap_or_default())
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

    fn runs(page: &PageBytes, copy: &PageBytes) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        changes(page, copy, |start, length| runs.push((start, length)));
        runs
    }

    #[test]
    fn just_the_bytes_that_differ_are_named_in_runs_that_do_not_touch() {
        let copy: Box<PageBytes> = Box::new(core::array::from_fn(|at| at as u8));
        assert_eq!(runs(&copy, &copy), []);
        let all: Box<PageBytes> = Box::new(core::array::from_fn(|at| !(at as u8)));
        assert_eq!(runs(&all, &copy), [(0, 4096)]);
        let mut state = 1_u64;
        for changed in [1, 2, 7, 64, 512, 2000, 4000] {
            let mut page = copy.clone();
            for _ in 0..changed {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                page[(state >> 33) as usize % 4096] ^= 1 + (state >> 60) as u8;
            }
            let mut rebuilt = copy.clone();
            let mut last = 0;
            for (start, length) in runs(&page, &copy) {
                assert!(length > 0 && (start > last || start == 0));
                rebuilt[start..start + length].copy_from_slice(&page[start..start + length]);
                assert!((start..start + length).all(|at| page[at] != copy[at]));
                last = start + length;
            }
            assert!(rebuilt == page);
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
