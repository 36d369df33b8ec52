//! Requests of a design that the host has not served yet, so that asking again is not another miss.

use crate::page::{Page, PageRange, Process};
use alloc::vec::Vec;

/// A refusal that no lookup has used within this many misses is forgotten.
const REFUSED_FOR_MISSES: u64 = 1024;

#[derive(Clone, Copy, Debug)]
struct Asked {
    process: Process,
    pages: PageRange,
    wanted: Page,
    /// Set if the host could not pin the page: the number of misses at that time.
    refused: Option<u64>,
}

/// Next step of a lookup that missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asking {
    /// Ask the host.
    New,
    /// Wait: the host has been asked for these pages.
    Again,
    /// Go on: the host could not pin the page.
    Refused,
}

/// As many as there are waiting lookups, and refusals of the last 1024 misses. There is room for so many from the start, since a lookup in
/// the page-fault handler must not allocate.
#[derive(Clone, Debug)]
pub(crate) struct Waiting(Vec<Asked>);

impl Default for Waiting {
    fn default() -> Self {
        Self(Vec::with_capacity(REFUSED_FOR_MISSES as usize))
    }
}

impl Waiting {
    /// A lookup of `wanted` has missed, after `misses` others.
    pub(crate) fn ask(&mut self, process: Process, pages: PageRange, wanted: Page, misses: u64) -> Asking {
        self.0.retain(|asked| {
            let since = asked.refused.map(|then| misses.wrapping_sub(then));
            since.is_none_or(|since| since <= REFUSED_FOR_MISSES)
        });
        let mut asked_for_pages = false;
        for at in 0..self.0.len() {
            let asked = self.0[at];
            if asked.process != process || asked.pages != pages {
                continue;
            }
            match (asked.wanted == wanted, asked.refused) {
                (true, Some(_)) => {
                    self.0.swap_remove(at);
                    return Asking::Refused;
                }
                (true, None) => return Asking::Again,
                (false, refused) => asked_for_pages |= refused.is_none(),
            }
        }
        self.0.push(Asked { process, pages, wanted, refused: None });
        match asked_for_pages {
            true => Asking::Again,
            false => Asking::New,
        }
    }

    /// The host has done what it could for the pages.
    pub(crate) fn answer(
        &mut self,
        process: Process,
        pages: PageRange,
        misses: u64,
        is_installed: impl Fn(Page) -> bool,
    ) {
        self.0.retain_mut(|asked| {
            if asked.process == process && pages.contains(asked.wanted) {
                asked.refused = Some(misses);
                return !is_installed(asked.wanted);
            }
            true
        });
    }

    pub(crate) fn forget(&mut self, process: Process) {
        self.0.retain(|asked| asked.process != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Process = Process(1);
    const LINE: PageRange = PageRange { first: Page(8), count: 4 };

    #[test]
    fn pages_are_asked_for_once_and_a_refusal_is_told_once() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.ask(ONE, LINE, Page(9), 0), Asking::New);
        assert_eq!(waiting.ask(ONE, LINE, Page(9), 0), Asking::Again);
        assert_eq!(waiting.ask(ONE, LINE, Page(10), 0), Asking::Again);
        assert_eq!(waiting.ask(Process(2), LINE, Page(9), 1), Asking::New);
        waiting.answer(ONE, LINE, 2, |page| page == Page(9));
        // 10 was refused, and 9 may have left the cache again.
        assert_eq!(waiting.ask(ONE, LINE, Page(10), 2), Asking::Refused);
        assert_eq!(waiting.ask(ONE, LINE, Page(9), 2), Asking::New);
        assert_eq!(waiting.ask(Process(2), LINE, Page(9), 2), Asking::Again);
        waiting.forget(Process(2));
        assert_eq!(waiting.ask(Process(2), LINE, Page(9), 2), Asking::New);
    }

    #[test]
    fn a_refusal_that_nobody_comes_for_is_forgotten() {
        let mut waiting = Waiting::default();
        for (later, expected) in [(1024, Asking::Refused), (1025, Asking::New)] {
            waiting.ask(ONE, LINE, Page(9), 5);
            waiting.answer(ONE, LINE, 5, |_| false);
            assert_eq!(waiting.ask(ONE, LINE, Page(9), 5 + later), expected);
        }
    }
}
