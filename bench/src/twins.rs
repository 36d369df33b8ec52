//! `diff`: a twin of a page and what differs from it later, as lazy release consistency makes them.

use std::hint::black_box;
use std::time::Instant;

use mapwire_host::memory::changes::{PageBytes, changes};
use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::measure::{Effort, paired};
use super::row::Report;
use super::{BenchError, Plan};

/// Words of 8 bytes that were changed, evenly spread over the page.
const CHANGED: [usize; 4] = [0, 1, 64, 512];
/// Pages written in an interval: one, which stays in the nearest cache, and as many as fill the second.
const PAGES: [usize; 2] = [1, 512];
const WORDS: usize = PAGE_BYTES / 8;

pub(crate) fn diff(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    for pages in PAGES {
        let before: Vec<Box<PageBytes>> =
            (0..pages).map(|page| Box::new(core::array::from_fn(|at| (at * 7 + page) as u8))).collect();
        for changed in CHANGED {
            let mut after = before.clone();
            for page in &mut after {
                let words = page.as_chunks_mut::<8>().0;
                words
                    .iter_mut()
                    .step_by(WORDS / changed.max(1))
                    .take(changed)
                    .for_each(|word| *word = word.map(|it| !it));
            }
            let mut twins = before.clone();
            let mut parts = Vec::with_capacity(PAGE_BYTES / 2);
            let mut other = before.clone();
            let times = 4096 / pages;
            let twin = |twins: &mut [Box<PageBytes>]| {
                twins.iter_mut().zip(&before).for_each(|(twin, page)| twin.copy_from_slice(black_box(page.as_slice())));
            };
            let baseline = || {
                Ok(each_ns(times, pages, || {
                    twin(&mut other);
                    let equal =
                        other.iter().zip(&before).filter(|(twin, page)| black_box(twin.as_slice()) == page.as_slice());
                    black_box(equal.count());
                }))
            };
            let point = || {
                Ok(each_ns(times, pages, || {
                    twin(&mut twins);
                    for (page, twin) in after.iter().zip(&twins) {
                        parts.clear();
                        changes(black_box(page), twin, |start, length| parts.push((start as u64, length as u64)));
                        black_box(&parts);
                    }
                }))
            };
            let figure = paired::<BenchError>(Effort::planned(plan, 9, 101), baseline, point)?;
            let case = [("words_changed", json!(changed)), ("pages", json!(pages))];
            report.rows(&case, "ns", "memcpy and memcmp of a page", &[figure]);
        }
    }
    Ok(())
}

/// Nanoseconds a page of a step that takes all pages, repeated so often.
fn each_ns(times: usize, pages: usize, mut step: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..times).for_each(|_| step());
    start.elapsed().as_nanos() as f64 / (times * pages) as f64
}
