//! Memory of this process that the provider moves: pinned by registering it, as the translation's table says.

use std::sync::Arc;

use mapwire_host::pinning::{PinError, Pinner};
use mapwire_translation::{Frame, PAGE_BYTES, PAGE_SHIFT, Page, PageRange, PinPlan, PinRules, Prepared, UserTable};
use mapwire_transport::ofi::OfiPinner;
use mapwire_transport::ofi::rma::{LocalPiece, Region};

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Sources {
    table: UserTable,
    plan: PinPlan,
    pinner: OfiPinner,
    /// Pages stay pinned until the limit wants others. Not where the provider's hardware reads the frames that an address had when it was
    /// registered: the program may have given the memory back since.
    keeps: bool,
}

impl Sources {
    pub(super) fn new(pinner: OfiPinner, rules: PinRules, keeps: bool) -> Self {
        Self { table: UserTable::tracking(rules.with_prepin_pages(1)), plan: PinPlan::new(), pinner, keeps }
    }

    /// Pins the pages of a transfer until [`release`](Self::release). False when the limit is too small for it.
    pub(super) fn hold(&mut self, range: PageRange) -> Result<bool, PinError> {
        match self.table.prepare(range, &mut self.plan) {
            Err(_) => return Ok(false),
            Ok(Prepared::AllPinned) => {}
            Ok(Prepared::MustPin) => self.carry_out()?,
        }
        Ok(self.table.hold(range).is_ok())
    }

    fn carry_out(&mut self) -> Result<(), PinError> {
        let plan = core::mem::take(&mut self.plan);
        let done = self.unpin(&plan.to_unpin).and_then(|()| {
            plan.to_pin.iter().try_for_each(|&run| {
                let mut frames = vec![Frame(0); run.count as usize];
                self.pinner.pin(run, &mut frames)?;
                // Planned just now.
                let _ = self.table.commit_pinned(run);
                Ok(())
            })
        });
        self.plan = plan;
        done
    }

    fn unpin(&mut self, pages: &[Page]) -> Result<(), PinError> {
        for &page in pages {
            self.pinner.unpin(PageRange::single(page), &[Frame(page.0)])?;
            self.table.commit_unpinned(page);
        }
        Ok(())
    }

    pub(super) fn release(&mut self, range: PageRange) {
        let _ = self.table.release(range);
        if !self.keeps {
            let free: Vec<Page> = range.iter().filter(|&page| !self.table.is_held(page)).collect();
            let _ = self.unpin(&free);
        }
    }

    /// The bytes from `address` on, of held pages, at most `most`, that were pinned in one run: their region, and where in it they are.
    fn piece(&self, address: u64, most: u64) -> Option<(&Arc<Region>, usize, usize)> {
        let first = address >> PAGE_SHIFT;
        let (region, page) = self.pinner.region_of(Frame(first))?;
        let offset = page + address as usize % PAGE_BYTES;
        let mut bytes = PAGE_BYTES - address as usize % PAGE_BYTES;
        // A page behind may have been pinned anew since, in a region of its own.
        let follows = |index: usize| {
            let next = self.pinner.region_of(Frame(first + index as u64));
            next.is_some_and(|(other, at)| Arc::ptr_eq(other, region) && at == page + index * PAGE_BYTES)
        };
        for index in 1.. {
            if bytes as u64 >= most || !follows(index) {
                break;
            }
            bytes += PAGE_BYTES;
        }
        let bytes = bytes.min(usize::try_from(most).unwrap_or(usize::MAX));
        Some((region, offset, bytes))
    }

    /// The pieces of the next operation: as many of the bytes from `address` on as `count` pieces and `most` bytes hold.
    pub(super) fn pieces(&self, address: u64, most: u64, count: usize) -> Vec<LocalPiece<'_>> {
        let mut pieces = Vec::with_capacity(count);
        let mut taken = 0;
        while taken < most
            && pieces.len() < count
            && let Some((region, offset, bytes)) = self.piece(address + taken, most - taken)
        {
            pieces.push(LocalPiece { region, offset, bytes });
            taken += bytes as u64;
        }
        pieces
    }
}
