//! Conformance checks for translation designs.
//!
//! [`suite`] runs them all on designs that `make` builds; each check starts with a fresh one. Run it on several shapes of a design, among
//! them one so small that translations compete for every slot. A check panics with what it expected; random checks name their seed.

mod direct;
mod driven;
mod oracle;

pub(crate) use oracle::{Op, agrees_with_oracle, random_ops};

use crate::design::{HostRequest, Lookup, TranslationDesign};
use crate::page::{Frame, Page, Process};
use alloc::vec::Vec;

const ONE: Process = Process(0);
const TWO: Process = Process(1);

/// Most pages of one process that the checks without hosts install at a time.
const DIRECT_PAGES: u64 = 256;

/// Runs every check. Those without hosts are skipped if the design's tables are too small for them.
///
/// # Panics
/// The design is wrong.
pub(crate) fn suite<D: TranslationDesign>(make: impl Fn() -> D) {
    let capacity_pages = make().capacity_pages();
    if capacity_pages.is_none_or(|pages| pages >= DIRECT_PAGES) {
        direct::check(&make);
        for seed in 0..64 {
            agrees_with_oracle(&mut make(), &random_ops(seed, 400), seed);
        }
    }
    driven::check(&make);
}

/// Result of a lookup.
struct Found {
    frame: Frame,
    missed: bool,
}

/// Looks up until there is a frame. The host has installed beforehand what it can.
fn find<D: TranslationDesign>(design: &mut D, process: Process, page: Page) -> Found {
    until_found(design, |design| design.lookup(process, page))
}

fn until_found<D: TranslationDesign>(design: &mut D, mut look: impl FnMut(&mut D) -> Lookup) -> Found {
    let mut missed = false;
    // Loads a table, then a translation.
    for _ in 0..3 {
        match look(design) {
            Lookup::Hit(frame) => return Found { frame, missed },
            Lookup::Miss(frame) => {
                return Found { frame, missed: true };
            }
            Lookup::Host(HostRequest::Fill { process, pages, wanted }) => {
                assert!(pages.contains(wanted), "{wanted} is not one of {pages}");
                missed = true;
                design.fill(process, pages, &mut Vec::new());
            }
            Lookup::Host(HostRequest::LoadTable { process, table }) => {
                assert!(design.load_table(process, table), "table {table} is out");
            }
            Lookup::Host(request) => panic!("a lookup of a page asks for {request:?}"),
        }
    }
    panic!("{} asks again and again", design.name());
}

fn found<D: TranslationDesign>(design: &mut D, process: Process, page: Page) -> Frame {
    find(design, process, page).frame
}

/// The frame from a lookup of an exported page.
fn found_by_receive<D: TranslationDesign>(design: &mut D, process: Process, page: Page) -> Frame {
    until_found(design, |design| design.lookup_receive(process, page)).frame
}

#[cfg(test)]
mod tests;
