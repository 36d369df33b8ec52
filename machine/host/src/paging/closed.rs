//! Takes pages whose mapping is not open to loads and stores: the kernel moves no frames out of such, nor into.

use rustix::io::Errno as Os;

use super::batch::{Batch, Item, Progress};
use super::core::Core;
use super::evict::refuse;
use super::frames;
use crate::faults::{uffd_abi, uffd_paging};
use crate::page::PAGE_BYTES;

impl Core {
    /// Of pages that could not be moved, copies those that can be read into their slots, and frees the frames that they had. They are
    /// taken then, as if they had been moved.
    pub(super) fn take_copies(&self, batch: &mut Batch) {
        let is_left = |item: &Item| matches!(item.progress, Progress::Failed(_));
        for item in batch.items_mut().iter_mut().filter(|item| is_left(item)) {
            // A page that the program dropped past the pager would stop this thread for good at the copy below.
            if uffd_paging::zero(&self.uffd, item.address, PAGE_BYTES).1 == Err(Os::EXIST) {
                item.progress = Progress::Claimed;
            }
        }
        let all = |bytes, done: Result<(), Os>| (if done.is_ok() { bytes } else { 0 }, done);
        let bar = |address, bytes, bar| {
            let done = uffd_abi::write_protect(&self.uffd, address, bytes, bar);
            all(bytes, done)
        };
        let claimed = |item: &Item| item.progress == Progress::Claimed;
        let close = |address, _, bytes| bar(address, bytes, true);
        self.for_runs(batch, false, claimed, Progress::Barred, close, refuse);
        // From here on nobody stores to those.
        let barred = |item: &Item| item.progress == Progress::Barred;
        let copy =
            |address, memory, bytes| uffd_paging::copy(&self.uffd, memory, address, bytes, false);
        self.for_runs(
            batch,
            true,
            barred,
            Progress::Copied,
            copy,
            |item, errno| {
                // Closed to loads too.
                let _ = bar(item.address, PAGE_BYTES, false);
                refuse(item, errno);
            },
        );
        let copied = |item: &Item| item.progress == Progress::Copied;
        let zap = |address, _, bytes| all(bytes, frames::drop_pages(address, bytes));
        self.for_runs(batch, false, copied, Progress::Taken, zap, |item, errno| {
            let _ = bar(item.address, PAGE_BYTES, false);
            let pool = self.pool.as_ref();
            // Costs memory where it fails.
            let _ = pool.map(|pool| pool.free(item.slot as usize));
            refuse(item, errno);
        });
    }
}
