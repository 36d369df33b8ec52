//! Announces minipages: a rank requests pages from rank 0, and tells the manager of a minipage before the program gets its address. Those
//! of an allocation of several are told of together, to all ranks.

mod arena;
mod unit;

use crate::context::{Context, Wait};
use crate::protocols::Protocols;
use crate::units::Units;
use crate::{Address, Config, Error, Message, Minipage, Outcome, PAGE_BYTES, Protocol, Rank, Thread, Violation};
use arena::{Arena, ChunkPool, Packing, pages_for};
pub use unit::Unit;

/// What is special about an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocOptions {
    /// Its protocol; the job's if none is named. An hlrc job of at least 2 views takes either.
    pub protocol: Option<Protocol>,
    /// Under [`Protocol::Hlrc`], the home of its pages, which are then its own. Otherwise the first rank to touch a page is its home.
    pub home: Option<Rank>,
    /// Under [`Protocol::Minipages`], what of it moves between ranks as one.
    pub unit: Unit,
}

/// What a thread allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    bytes: u64,
    /// Less than all of it for an allocation of several minipages.
    unit_bytes: u64,
    /// Pages that it needs unless it shares some.
    pages: u32,
    protocol: Protocol,
    home: Option<Rank>,
}

/// A place in the segment for an allocation.
enum Place {
    One(Minipage),
    Several(Units),
}

/// The allocator of one rank.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Pages of the job's protocol, and of the other one.
    arenas: [Arena; 2],
    /// At rank 0: pages that no rank has yet.
    chunks: ChunkPool,
    /// Thread whose request for pages is under way to rank 0.
    asker: Option<Thread>,
}

impl Allocation {
    pub(crate) fn new(config: &Config) -> Self {
        Allocation {
            arenas: match config.protocol {
                Protocol::Minipages => {
                    [Arena::new(Packing::Views { first: 0, end: config.views }), Arena::new(Packing::Page)]
                }
                Protocol::Hlrc => {
                    [Arena::new(Packing::Page), Arena::new(Packing::Views { first: 1, end: config.views })]
                }
            },
            chunks: ChunkPool::new(if config.rank == 0 { config.pages } else { 0 }),
            asker: None,
        }
    }

    /// Begins to allocate, for an idle thread.
    pub(crate) fn alloc(
        &mut self,
        context: &mut Context,
        coherence: &mut Protocols,
        thread: Thread,
        bytes: u64,
        options: AllocOptions,
    ) -> Result<(), Error> {
        let unit_bytes = options.unit.of(bytes)?;
        let (protocol, home) = checked(context.config(), options)?;
        // Pages with a home of their own are not shared with other allocations.
        let bytes = if home.is_some() { bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes) } else { bytes };
        let unit_bytes = if protocol == Protocol::Hlrc { bytes } else { unit_bytes };
        let wanted = Wanted { bytes, unit_bytes, pages: pages_for(bytes), protocol, home };
        context.set_wait(thread, Wait::Pages(wanted));
        self.place(context, coherence, thread, wanted);
        Ok(())
    }

    /// Begins to allocate `rows` rows of `row_bytes` bytes, for an idle thread.
    pub(crate) fn alloc_rows(
        &mut self,
        context: &mut Context,
        coherence: &mut Protocols,
        thread: Thread,
        (rows, row_bytes): (u64, u64),
        options: AllocOptions,
    ) -> Result<(), Error> {
        let bytes = options.unit.of_rows(rows, row_bytes)?;
        let (protocol, _) = checked(context.config(), options)?;
        if protocol == Protocol::Hlrc || rows == 1 {
            let options = AllocOptions { unit: Unit::Whole, ..options };
            return self.alloc(context, coherence, thread, bytes, options);
        }
        let views = context.config().views;
        let view = self.arena(context, protocol).first_view();
        let units = Units { view, first_page: 0, length_bytes: bytes, unit_bytes: row_bytes };
        let pages = u32::try_from(units.pages(views)).unwrap_or(u32::MAX);
        let wanted = Wanted { bytes, unit_bytes: row_bytes, pages, protocol, home: None };
        context.set_wait(thread, Wait::Pages(wanted));
        self.place(context, coherence, thread, wanted);
        Ok(())
    }

    fn arena(&mut self, context: &Context, protocol: Protocol) -> &mut Arena {
        &mut self.arenas[usize::from(protocol != context.config().protocol)]
    }

    /// Places an allocation, or requests pages for it unless another thread has.
    fn place(&mut self, context: &mut Context, coherence: &mut Protocols, thread: Thread, wanted: Wanted) {
        while let Some(place) = self.arena(context, wanted.protocol).place(wanted) {
            // If pages are taken, rank 0 gave them out twice; they are skipped.
            match place {
                Place::One(minipage) if coherence.is_free(&minipage) => {
                    return make_known(context, coherence, thread, minipage, wanted.home);
                }
                Place::Several(units) if coherence.enter_units(context.rank(), units).is_ok() => {
                    return make_units_known(context, thread, units);
                }
                _ => {}
            }
        }
        if self.asker.is_none() {
            self.asker = Some(thread);
            let need_pages = wanted.pages;
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
    fn chunk_answered(&mut self, context: &mut Context, coherence: &mut Protocols, chunk: Result<(u32, u32), u32>) {
        let Some(asker) = self.asker.take() else {
            return;
        };
        let Some(Wait::Pages(wanted)) = context.wait(asker) else {
            return;
        };
        let arena = self.arena(context, wanted.protocol);
        match chunk {
            Ok((first, pages)) => {
                arena.add(first, pages);
                self.place(context, coherence, asker, wanted);
            }
            Err(left_pages) => {
                let left_bytes = u64::from(left_pages) * PAGE_BYTES + arena.left_bytes();
                let error = Error::OutOfMemory { asked_bytes: wanted.bytes, left_bytes };
                context.resume(asker, Outcome::Failed(error));
            }
        }
        for thread in 0..context.waits().len() {
            if let Wait::Pages(wanted) = context.waits()[thread] {
                if self.asker.is_some() {
                    return;
                }
                self.place(context, coherence, thread as Thread, wanted);
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
        coherence: &mut Protocols,
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
        coherence: &mut Protocols,
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
            Some(Wait::Pages(wanted)) if self.asker == Some(thread) => Ok(wanted.pages),
            Some(_) => Err(Violation::Unasked),
            None => Err(Violation::OutOfRange),
        }
    }
}

/// The protocol and the home that an allocation gets.
fn checked(config: &Config, options: AllocOptions) -> Result<(Protocol, Option<Rank>), Error> {
    let &Config { protocol: of_job, views, ranks, .. } = config;
    let AllocOptions { protocol, home, .. } = options;
    let protocol = protocol.unwrap_or(of_job);
    if let Some(rank) = home.filter(|&home| home >= ranks) {
        return Err(Error::UnknownRank { rank, ranks });
    }
    let has_view = protocol == of_job || (of_job == Protocol::Hlrc && views > 1);
    if !has_view || (home.is_some() && protocol != Protocol::Hlrc) {
        return Err(Error::OtherProtocol { protocol: of_job, views });
    }
    Ok((protocol, home))
}

/// Enters a minipage here, and tells the ranks that must know of it.
fn make_known(
    context: &mut Context,
    coherence: &mut Protocols,
    thread: Thread,
    minipage: Minipage,
    home: Option<Rank>,
) {
    coherence.create(context, minipage, home);
    count(context, minipage.length_bytes);
    let mut left = 0;
    for to in 0..context.ranks() {
        if to != context.rank() && coherence.must_know(&minipage, home, to) {
            context.send(
                to,
                match home {
                    None => Message::Register { minipage, thread },
                    Some(home) => Message::RegisterAt { minipage, thread, home },
                },
            );
            left += 1;
        }
    }
    let address = Address { view: minipage.view, offset_bytes: minipage.offset_bytes };
    wait_for_registration(context, thread, left, address);
}

/// Tells all ranks of minipages that are entered here.
fn make_units_known(context: &mut Context, thread: Thread, units: Units) {
    count(context, units.length_bytes);
    let me = context.rank();
    for to in (0..context.ranks()).filter(|&to| to != me) {
        context.send(to, Message::RegisterUnits { units, thread });
    }
    wait_for_registration(context, thread, context.ranks() - 1, units.address());
}

fn count(context: &mut Context, bytes: u64) {
    let counters = context.counters_mut();
    counters.allocations += 1;
    counters.allocated_bytes += bytes;
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
    coherence: &mut Protocols,
    from: Rank,
    minipage: Minipage,
    thread: Thread,
    home: Option<Rank>,
) -> Result<(), Violation> {
    let config = context.config();
    if !minipage.is_well_formed(config.pages, config.views)
        || thread >= config.threads
        || home.is_some_and(|home| home >= config.ranks)
    {
        return Err(Violation::OutOfRange);
    }
    coherence.enter(from, minipage, home)?;
    context.send(from, Message::Registered { thread });
    Ok(())
}

pub(crate) fn handle_register_units(
    context: &mut Context,
    coherence: &mut Protocols,
    from: Rank,
    units: Units,
    thread: Thread,
) -> Result<(), Violation> {
    let config = context.config();
    if !units.are_well_formed(config.pages, config.views) || thread >= config.threads {
        return Err(Violation::OutOfRange);
    }
    coherence.enter_units(from, units)?;
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
