//! Announces minipages: a rank requests pages from rank 0, and tells the manager of a minipage before the program gets its address.

mod arena;

use crate::coherence::Coherence;
use crate::context::{Context, Wait};
use crate::{Address, Config, Error, Message, Minipage, Outcome, PAGE_BYTES, Rank, Thread, Violation};
use arena::{Arena, ChunkPool, pages_for};

/// The allocator of one rank.
#[derive(Debug)]
pub(crate) struct Allocation {
    arena: Arena,
    /// At rank 0: pages that no rank has yet.
    chunks: ChunkPool,
    /// Thread whose request for pages is under way to rank 0.
    asker: Option<Thread>,
}

impl Allocation {
    pub(crate) fn new(config: &Config) -> Self {
        Allocation {
            arena: Arena::new(config.views),
            chunks: ChunkPool::new(if config.rank == 0 { config.pages } else { 0 }),
            asker: None,
        }
    }

    /// Begins to allocate, for an idle thread.
    pub(crate) fn alloc(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        thread: Thread,
        bytes: u64,
    ) -> Result<(), Error> {
        if bytes == 0 {
            return Err(Error::ZeroBytes);
        }
        context.set_wait(thread, Wait::Pages { bytes });
        self.place(context, coherence, thread, bytes);
        Ok(())
    }

    /// Places an allocation, or requests pages for it unless another thread has.
    fn place(&mut self, context: &mut Context, coherence: &mut impl Coherence, thread: Thread, bytes: u64) {
        while let Some(minipage) = self.arena.reserve(bytes) {
            // If pages are taken, rank 0 gave them out twice; they are skipped.
            if coherence.is_free(&minipage) {
                return make_known(context, coherence, thread, minipage);
            }
        }
        if self.asker.is_none() {
            self.asker = Some(thread);
            let need_pages = pages_for(bytes);
            let want_pages = context.config().chunk_pages;
            if context.rank() != 0 {
                context.send(0, Message::ChunkRequest { thread, need_pages, want_pages });
            } else {
                let chunk = self.chunks.take(need_pages, want_pages);
                self.chunk_answered(context, coherence, chunk.ok_or(self.chunks.left_pages()));
            }
        }
    }

    /// Rank 0 has answered the request for pages, with a run or the number of pages left.
    fn chunk_answered(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        chunk: Result<(u32, u32), u32>,
    ) {
        let Some(asker) = self.asker.take() else {
            return;
        };
        let Some(Wait::Pages { bytes }) = context.wait(asker) else {
            return;
        };
        match chunk {
            Ok((first, pages)) => {
                self.arena.add(first, pages);
                self.place(context, coherence, asker, bytes);
            }
            Err(left_pages) => {
                let left_bytes = u64::from(left_pages) * PAGE_BYTES + self.arena.left_bytes();
                let error = Error::OutOfMemory { asked_bytes: bytes, left_bytes };
                context.resume(asker, Outcome::Failed(error));
            }
        }
        for thread in 0..context.waits().len() {
            if let Wait::Pages { bytes } = context.waits()[thread] {
                if self.asker.is_some() {
                    return;
                }
                self.place(context, coherence, thread as Thread, bytes);
            }
        }
    }

    pub(crate) fn handle_chunk_request(
        &mut self,
        context: &mut Context,
        from: Rank,
        thread: Thread,
        need_pages: u32,
        want_pages: u32,
    ) -> Result<(), Violation> {
        if context.rank() != 0 {
            return Err(Violation::NotManager);
        }
        if thread >= context.config().threads || need_pages == 0 {
            return Err(Violation::OutOfRange);
        }
        let answer = match self.chunks.take(need_pages, want_pages) {
            Some((first_page, pages)) => Message::ChunkGrant { thread, first_page, pages },
            None => Message::ChunkRefuse { thread, left_pages: self.chunks.left_pages() },
        };
        context.send(from, answer);
        Ok(())
    }

    pub(crate) fn handle_chunk_grant(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        from: Rank,
        thread: Thread,
        first_page: u32,
        pages: u32,
    ) -> Result<(), Violation> {
        let need = self.asked_pages(context, from, thread)?;
        let end = first_page.checked_add(pages).filter(|&end| end <= context.config().pages);
        if pages < need || end.is_none() {
            return Err(Violation::OutOfRange);
        }
        self.chunk_answered(context, coherence, Ok((first_page, pages)));
        Ok(())
    }

    pub(crate) fn handle_chunk_refuse(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        from: Rank,
        thread: Thread,
        left_pages: u32,
    ) -> Result<(), Violation> {
        self.asked_pages(context, from, thread)?;
        if left_pages > context.config().pages {
            return Err(Violation::OutOfRange);
        }
        self.chunk_answered(context, coherence, Err(left_pages));
        Ok(())
    }

    /// Number of pages that the thread requested from rank 0.
    fn asked_pages(&self, context: &Context, from: Rank, thread: Thread) -> Result<u32, Violation> {
        if from != 0 {
            return Err(Violation::NotManager);
        }
        match context.wait(thread) {
            Some(Wait::Pages { bytes }) if self.asker == Some(thread) => Ok(pages_for(bytes)),
            Some(_) => Err(Violation::Unasked),
            None => Err(Violation::OutOfRange),
        }
    }
}

/// Enters a minipage here, and tells the ranks that must know of it.
fn make_known(context: &mut Context, coherence: &mut impl Coherence, thread: Thread, minipage: Minipage) {
    coherence.create(context, minipage);
    let counters = context.counters_mut();
    counters.allocations += 1;
    counters.allocated_bytes += minipage.length_bytes;
    let mut left = 0;
    for to in 0..context.ranks() {
        if to != context.rank() && coherence.must_know(&minipage, to) {
            context.send(to, Message::Register { minipage, thread });
            left += 1;
        }
    }
    let address = Address { view: minipage.view, offset_bytes: minipage.offset_bytes };
    wait_for_registration(context, thread, left, address);
}

fn wait_for_registration(context: &mut Context, thread: Thread, left: u16, address: Address) {
    if left == 0 {
        context.resume(thread, Outcome::Allocated(address));
    } else {
        context.set_wait(thread, Wait::Registration { left, address });
    }
}

pub(crate) fn handle_register(
    context: &mut Context,
    coherence: &mut impl Coherence,
    from: Rank,
    minipage: Minipage,
    thread: Thread,
) -> Result<(), Violation> {
    let config = context.config();
    if !minipage.is_well_formed(config.pages, config.views) || thread >= config.threads {
        return Err(Violation::OutOfRange);
    }
    coherence.enter(from, minipage)?;
    context.send(from, Message::Registered { thread });
    Ok(())
}

pub(crate) fn handle_registered(context: &mut Context, thread: Thread) -> Result<(), Violation> {
    match context.wait(thread) {
        None => Err(Violation::OutOfRange),
        Some(Wait::Registration { left, address }) => {
            wait_for_registration(context, thread, left - 1, address);
            Ok(())
        }
        Some(_) => Err(Violation::Unasked),
    }
}
