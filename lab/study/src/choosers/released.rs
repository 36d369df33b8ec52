//! A buffer that the program is done with goes first.

use std::collections::VecDeque;
use std::sync::Arc;

use mapwire_translation::{Candidates, ChooseVictims, Page, PageRange};

use super::Future;

/// Unpins pages that the program does not need again, in the order in which it was done with them; without any, the page used least
/// recently. What a program can tell that frees its buffers, or that has learned from an earlier run of itself: here the trace tells
/// the last use of each page, and nothing else.
///
/// Of one process, all of whose uses of pages it must be told, and in their order.
#[derive(Debug)]
pub struct Released {
    future: Arc<Future>,
    time: u64,
    done_with: VecDeque<Page>,
}

impl Released {
    pub fn new(future: Arc<Future>) -> Self {
        Released { future, time: 0, done_with: VecDeque::new() }
    }
}

impl ChooseVictims for Released {
    fn used(&mut self, pages: PageRange) {
        self.time += 1;
        let last = |page: &Page| self.future.last.get(page) == Some(&self.time);
        self.done_with.extend(pages.iter().filter(last));
    }

    fn choose(&mut self, count: u64, candidates: &Candidates<'_>, victims: &mut Vec<Page>) {
        // What is no candidate is needed by the transfer that wants room, or not pinned yet: it comes later.
        let idle = self.done_with.iter().filter(|page| candidates.contains(**page));
        victims.extend(idle.take(count as usize));
    }

    fn unpinned(&mut self, page: Page) {
        // Mostly the first.
        if let Some(at) = self.done_with.iter().position(|it| *it == page) {
            self.done_with.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::driven::unpinned;
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn dead_pages_go_before_older_ones_that_are_needed_again() {
        let last = [(1, 5), (2, 4), (8, 2), (9, 3)];
        let last: HashMap<_, _> = last.into_iter().map(|(page, at)| (Page(page), at)).collect();
        let released = Released::new(Arc::new(Future { next: Vec::new(), last }));
        // Page 1 is the oldest when 9 wants room, but 8 is done with. Then 9 is; then nothing but what LRU names.
        let operations = [(1, 1), (8, 1), (9, 1), (2, 1), (1, 1), (3, 1)];
        assert_eq!(unpinned(2, Some(Box::new(released)), &operations), [8, 9, 2]);
        assert_eq!(unpinned(2, None, &operations), [1, 8, 9, 2]);
    }
}
