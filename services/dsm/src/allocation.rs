//! Making minipages known: pages are asked of rank 0, the manager hears of a minipage before its address is out.

use crate::allocator::pages_for;
use crate::threads::Wait;
use crate::{
    Address, Dsm, Error, Message, Minipage, Outcome, PAGE_BYTES, Protection, Rank, Thread,
    Violation,
};

impl Dsm {
    /// Begins to allocate a minipage of that many bytes, zero and writable in this rank. A resume always
    /// follows, with [`Outcome::Allocated`] or [`Error::OutOfMemory`].
    ///
    /// A minipage shorter than a page is aligned to 16 bytes, or to 64 if it is as long; others to a page.
    pub fn alloc(&mut self, thread: Thread, bytes: u64) -> Result<(), Error> {
        self.begin(thread)?;
        if bytes == 0 {
            return Err(Error::ZeroBytes);
        }
        self.threads[usize::from(thread)].waits = Wait::Pages { bytes };
        self.place(thread, bytes);
        Ok(())
    }

    /// Places an allocation, or asks for pages for it unless another thread has.
    fn place(&mut self, thread: Thread, bytes: u64) {
        while let Some(minipage) = self.arena.reserve(bytes) {
            // Taken pages would mean that rank 0 gave them out twice; they are passed over.
            if self.map.is_free(&minipage) {
                return self.make_known(thread, minipage);
            }
        }
        if self.chunk_asker.is_none() {
            self.chunk_asker = Some(thread);
            let need_pages = pages_for(bytes);
            let want_pages = self.config.chunk_pages;
            if self.config.rank != 0 {
                self.out.send(
                    0,
                    Message::ChunkRequest {
                        thread,
                        need_pages,
                        want_pages,
                    },
                );
            } else {
                let chunk = self.chunks.take(need_pages, want_pages);
                self.chunk_answered(chunk.ok_or(self.chunks.left_pages()));
            }
        }
    }

    /// Rank 0 has answered the thread that asked for pages, with a run or the number of pages left.
    fn chunk_answered(&mut self, chunk: Result<(u32, u32), u32>) {
        let Some(asker) = self.chunk_asker.take() else {
            return;
        };
        let slot = &mut self.threads[usize::from(asker)];
        let Wait::Pages { bytes } = slot.waits else {
            return;
        };
        match chunk {
            Ok((first, pages)) => {
                self.arena.add(first, pages);
                self.place(asker, bytes);
            }
            Err(left_pages) => {
                slot.waits = Wait::Nothing;
                let left_bytes = u64::from(left_pages) * PAGE_BYTES + self.arena.left_bytes();
                let error = Error::OutOfMemory {
                    asked_bytes: bytes,
                    left_bytes,
                };
                self.out.resume(asker, Outcome::Failed(error));
            }
        }
        for thread in 0..self.used_threads {
            if let Wait::Pages { bytes } = self.threads[usize::from(thread)].waits {
                if self.chunk_asker.is_some() {
                    return;
                }
                self.place(thread, bytes);
            }
        }
    }

    /// Enters a minipage here and tells its manager, or everybody if it is longer than a page: a rank that
    /// faults in the middle of it must know where it begins.
    fn make_known(&mut self, thread: Thread, minipage: Minipage) {
        let key = minipage.key();
        let rank = self.config.rank;
        self.map.insert(&minipage, Protection::Write);
        self.out.protect(minipage, Protection::Write);
        self.out.counters.allocations += 1;
        self.out.counters.allocated_bytes += minipage.length_bytes;
        if let Some(entry) = self.managed(key) {
            self.directory.register(entry, rank);
        }
        let manager = self.spread.manager(key.page);
        let mut left = 0;
        for to in 0..self.config.ranks {
            if to != rank && (to == manager || minipage.pages() > 1) {
                self.out.send(to, Message::Register { minipage, thread });
                left += 1;
            }
        }
        let address = Address {
            view: minipage.view,
            offset_bytes: minipage.offset_bytes,
        };
        self.threads[usize::from(thread)].waits = Wait::Registration { left, address };
        self.finish_registration(thread);
    }

    fn finish_registration(&mut self, thread: Thread) {
        let slot = &mut self.threads[usize::from(thread)];
        if let Wait::Registration { left: 0, address } = slot.waits {
            slot.waits = Wait::Nothing;
            self.out.resume(thread, Outcome::Allocated(address));
        }
    }

    pub(crate) fn handle_register(
        &mut self,
        from: Rank,
        minipage: Minipage,
        thread: Thread,
    ) -> Result<(), Violation> {
        let config = &self.config;
        if !minipage.is_well_formed(config.pages, config.views) || thread >= config.threads {
            return Err(Violation::OutOfRange);
        }
        let entry = self.managed(minipage.key());
        if entry.is_none() && minipage.pages() == 1 {
            return Err(Violation::NotManager);
        }
        if !self.map.is_free(&minipage) {
            return Err(Violation::Minipage);
        }
        self.map.insert(&minipage, Protection::None);
        if let Some(entry) = entry {
            self.directory.register(entry, from);
        }
        self.out.send(from, Message::Registered { thread });
        Ok(())
    }

    pub(crate) fn handle_registered(&mut self, thread: Thread) -> Result<(), Violation> {
        let slot = self
            .threads
            .get_mut(usize::from(thread))
            .ok_or(Violation::OutOfRange)?;
        let Wait::Registration { left, .. } = &mut slot.waits else {
            return Err(Violation::Unasked);
        };
        *left -= 1;
        self.finish_registration(thread);
        Ok(())
    }

    pub(crate) fn handle_chunk_request(
        &mut self,
        from: Rank,
        thread: Thread,
        need_pages: u32,
        want_pages: u32,
    ) -> Result<(), Violation> {
        if self.config.rank != 0 {
            return Err(Violation::NotManager);
        }
        if thread >= self.config.threads || need_pages == 0 {
            return Err(Violation::OutOfRange);
        }
        let answer = match self.chunks.take(need_pages, want_pages) {
            Some((first_page, pages)) => Message::ChunkGrant {
                thread,
                first_page,
                pages,
            },
            None => Message::ChunkRefuse {
                thread,
                left_pages: self.chunks.left_pages(),
            },
        };
        self.out.send(from, answer);
        Ok(())
    }

    pub(crate) fn handle_chunk_grant(
        &mut self,
        from: Rank,
        thread: Thread,
        first_page: u32,
        pages: u32,
    ) -> Result<(), Violation> {
        let need = self.asked_pages(from, thread)?;
        let end = first_page
            .checked_add(pages)
            .filter(|&end| end <= self.config.pages);
        if pages < need || end.is_none() {
            return Err(Violation::OutOfRange);
        }
        self.chunk_answered(Ok((first_page, pages)));
        Ok(())
    }

    pub(crate) fn handle_chunk_refuse(
        &mut self,
        from: Rank,
        thread: Thread,
        left_pages: u32,
    ) -> Result<(), Violation> {
        self.asked_pages(from, thread)?;
        if left_pages > self.config.pages {
            return Err(Violation::OutOfRange);
        }
        self.chunk_answered(Err(left_pages));
        Ok(())
    }

    /// How many pages the thread asked of rank 0.
    fn asked_pages(&self, from: Rank, thread: Thread) -> Result<u32, Violation> {
        if from != 0 {
            return Err(Violation::NotManager);
        }
        match self.threads.get(usize::from(thread)).map(|slot| slot.waits) {
            Some(Wait::Pages { bytes }) if self.chunk_asker == Some(thread) => Ok(pages_for(bytes)),
            Some(_) => Err(Violation::Unasked),
            None => Err(Violation::OutOfRange),
        }
    }
}
