//! `views`: what several views of one memory cost the translation hardware (Millipage Fig. 2).

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use mapwire_host::faults::{Access, FaultBackend, PageProtection};
use mapwire_host::views::{DEFAULT_BASE, MultiView, ViewLayout};
use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::measure::{Effort, paired};
use super::raw::sum_words;
use super::row::{Report, Row};
use super::{BenchError, Plan};

/// A traversal of an array that is cut into minipages, `views` of them a page, each through its view.
struct Traversal {
    views: Arc<MultiView>,
    _protection: PageProtection,
    count: usize,
    pages: usize,
}

impl Traversal {
    fn new(count: usize, pages: usize, base: usize) -> Result<Self, BenchError> {
        let layout = ViewLayout::new(base, pages * PAGE_BYTES, count)?;
        let views = Arc::new(MultiView::new("bench-views", layout)?);
        let protection = PageProtection::new(FaultBackend::Sigsegv, Arc::clone(&views))?;
        for view in 0..count {
            protection.set(view, 0, pages, Access::None, Access::Write)?;
        }
        Ok(Self { views, _protection: protection, count, pages })
    }

    /// The sum of all words, in the order of the array. Nanoseconds a word.
    fn run(&self) -> Result<f64, BenchError> {
        let part_bytes = PAGE_BYTES / self.count;
        let start = Instant::now();
        let mut sum = 0_u64;
        for page in 0..self.pages {
            for view in 0..self.count {
                let at = self.views.application(view, page * PAGE_BYTES + view * part_bytes);
                // SAFETY: within the view, which `new` opened, and aligned: parts are of at least 8 bytes, a power of two.
                sum = sum.wrapping_add(unsafe { sum_words(at.cast(), part_bytes / 8) });
            }
        }
        black_box(sum);
        Ok(start.elapsed().as_nanos() as f64 / (self.pages * PAGE_BYTES / 8) as f64)
    }
}

/// The same loops over plain memory, with the same number of parts, so that only the views differ.
struct Plain(Vec<u64>);

impl Plain {
    fn run(&self, count: usize) -> Result<f64, BenchError> {
        let words = PAGE_BYTES / count / 8;
        let start = Instant::now();
        let mut sum = 0_u64;
        for part in self.0.chunks_exact(words) {
            // SAFETY: a slice of that many words.
            sum = sum.wrapping_add(unsafe { sum_words(part.as_ptr(), words) });
        }
        black_box(sum);
        Ok(start.elapsed().as_nanos() as f64 / self.0.len() as f64)
    }
}

/// `mapwire bench views`.
pub(crate) fn views(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let megabytes = if plan.quick { 8 } else { 64 };
    let pages = (megabytes << 20) / PAGE_BYTES;
    let effort = Effort::planned(plan, 3, 9);
    let plain = Plain((0..(pages * PAGE_BYTES / 8) as u64).collect());
    for count in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
        let traversal = Traversal::new(count, pages, DEFAULT_BASE)?;
        traversal.run()?; // the first one fills the page tables
        let figure = paired(effort, || plain.run(count), || traversal.run())?;
        let case = vec![
            ("views", json!(count)),
            ("array_bytes", json!(megabytes << 20)),
            ("minipage_bytes", json!(PAGE_BYTES / count)),
        ];
        report.row(&Row::of(case, "ns/word", "plain memory, same loop", &figure));
    }
    Ok(())
}
