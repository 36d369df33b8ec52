//! Brings pages into memory that is not open to both loads and stores, and takes them from there: the kernel moves no frames then.

use mapwire_host::faults::uffd_abi::{self, Done};
use mapwire_host::page::PAGE_BYTES;
use rustix::io::Errno as Os;

use crate::core::Core;
use crate::faults::uffd;
use crate::frames;

impl Core {
    /// Moves frames of the pool to missing pages of a region. If the kernel refuses, the pages get copies, and the frames of the pool are
    /// freed.
    pub(crate) fn bring_frames(&self, address: usize, memory: usize, bytes: usize) -> Done {
        let moved = uffd::move_pages(&self.uffd, address, memory, bytes);
        match moved {
            (0, Err(errno)) if ![Os::AGAIN, Os::INTR].contains(&errno) => {}
            moved => return moved,
        }
        let copied = uffd::copy(&self.uffd, address, memory, bytes);
        if copied.0 > 0 {
            // A failure costs only memory.
            let _ = frames::drop_pages(memory, copied.0);
        }
        copied
    }

    /// Moves pages of a region to vacant slots of the pool. Those open to loads only are copied, and dropped.
    pub(crate) fn take_frames(&self, address: usize, memory: usize, bytes: usize) -> Done {
        let moved = uffd::move_pages(&self.uffd, memory, address, bytes);
        if moved != (0, Err(Os::INVAL)) {
            return moved;
        }
        for page in (0..bytes).step_by(PAGE_BYTES) {
            // A page that the program dropped, bypassing the pager, would stop this thread for good at the copy below.
            let _ = uffd::zero(&self.uffd, address + page, PAGE_BYTES);
        }
        let bar = |bar| uffd_abi::write_protect(&self.uffd, address, bytes, bar);
        if let Err(errno) = bar(true) {
            return (0, Err(errno));
        }
        // From here on nobody stores there.
        let (copied, outcome) = uffd::copy(&self.uffd, memory, address, bytes);
        match outcome.and_then(|()| frames::drop_pages(address, bytes)) {
            Ok(()) => (bytes, Ok(())),
            Err(errno) => {
                // Closed to loads too, or not in one mapping: pages dropped before the end of the first are restored. A page that is still
                // there stays as it is.
                for page in (0..copied).step_by(PAGE_BYTES) {
                    let (to, from) = (address + page, memory + page);
                    let _ = uffd::copy(&self.uffd, to, from, PAGE_BYTES);
                }
                if copied > 0 {
                    let _ = frames::drop_pages(memory, copied);
                }
                let _ = bar(false);
                (0, Err(errno))
            }
        }
    }
}
