//! The coherence protocols of a rank, side by side: lazy ones keep view 0, sequential consistency the others, or all views if it is alone.

use crate::coherence::{Coherence, Release};
use crate::context::Context;
use crate::lazy::Lazy;
use crate::sequential::SequentialConsistency;
use crate::units::Units;
use crate::{
    Access, Barrier, Config, ConfigError, Error, Message, Minipage, Progress, Protection, Protocol, Rank, Thread,
    Violation,
};
use alloc::boxed::Box;

/// Minipages of a run that is pushed to which a rank pays heed.
const MOST_PUSHED: usize = 64;

#[derive(Debug)]
pub(crate) struct Protocols {
    sequential: SequentialConsistency,
    lazy: Option<Box<Lazy>>,
}

impl Protocols {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        Ok(Protocols {
            sequential: SequentialConsistency::new(config)?,
            lazy: match config.protocol {
                Protocol::Minipages => None,
                Protocol::Hlrc => Some(Box::new(Lazy::new(config)?)),
            },
        })
    }

    /// The minipage or page that covers a page of a view, as far as this rank knows, and the application's access to it here.
    pub(crate) fn minipage_at(&self, view: u16, page: u64) -> Option<(Minipage, Protection)> {
        match &self.lazy {
            Some(lazy) if view == 0 => lazy.minipage_at(page),
            _ => self.sequential.minipage_at(view, page),
        }
    }

    /// The rank that manages what starts on that page; `None` outside the segment.
    pub(crate) fn manager(&self, page: u64) -> Option<Rank> {
        self.sequential.manager(page)
    }

    /// The lazy protocol, if there is one.
    #[inline]
    pub(crate) fn lazy(&self) -> Option<&Lazy> {
        self.lazy.as_deref()
    }

    /// The lazy protocol, if there is one.
    #[inline]
    pub(crate) fn lazy_mut(&mut self) -> Option<&mut Lazy> {
        self.lazy.as_deref_mut()
    }

    /// Begins to serve a page fault of an idle thread.
    pub(crate) fn handle_fault(
        &mut self,
        context: &mut Context,
        thread: Thread,
        (view, page): (u16, u64),
        access: Access,
    ) -> Result<Progress, Error> {
        match self.lazy_at(view) {
            Some(lazy) => lazy.handle_fault(context, thread, page, access),
            None => self.sequential.handle_fault(context, thread, view, page, access),
        }
    }

    /// Requests what a thread will access. False if too many requests are outstanding.
    pub(crate) fn prefetch(
        &mut self,
        context: &mut Context,
        (view, page): (u16, u64),
        access: Access,
    ) -> Result<bool, Error> {
        match self.lazy_at(view) {
            Some(lazy) => lazy.prefetch(context, page, access),
            None => self.sequential.prefetch(context, view, page, access),
        }
    }

    /// Another rank says what a thread of this one will read: requests the first [`MOST_PUSHED`] pages of it.
    pub(crate) fn handle_push(&mut self, context: &mut Context, run: Minipage) -> Result<(), Violation> {
        let Config { pages, views, .. } = *context.config();
        if !run.is_within(pages, views) || self.lazy_at(run.view).is_some() {
            return Err(Violation::OutOfRange);
        }
        let end = run.first_page() + run.pages();
        let mut page = run.first_page();
        for _ in 0..MOST_PUSHED {
            if page >= end || self.sequential.prefetch(context, run.view, page, Access::Read) != Ok(true) {
                break;
            }
            let known = self.sequential.minipage_at(run.view, page);
            page = known.map_or(page + 1, |(minipage, _)| minipage.first_page() + minipage.pages());
        }
        Ok(())
    }

    /// A thread is about to overwrite a page.
    pub(crate) fn overwrite(&mut self, context: &mut Context, (view, page): (u16, u64)) -> Result<(), Error> {
        match self.lazy_at(view) {
            Some(lazy) => lazy.overwrite(context, page),
            None => Ok(()),
        }
    }

    /// Handles a message about coherence from another rank of the job.
    pub(crate) fn handle_message(
        &mut self,
        context: &mut Context,
        from: Rank,
        message: Message,
        payload: &[u8],
    ) -> Result<(), Violation> {
        if !message.is_lazy() {
            return self.sequential.handle_message(context, from, message);
        }
        let lazy = self.lazy.as_mut().ok_or(Violation::Unasked)?;
        lazy.handle_message(context, from, message, payload)
    }

    /// Whether a thread has just been granted something.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        self.sequential.holds_any()
    }

    /// When [`release_holds`](Self::release_holds) must be called.
    pub(crate) fn poll_hold(&self) -> Option<u64> {
        self.sequential.poll_hold()
    }

    /// Ends expired holds, and serves the requests that waited for them.
    pub(crate) fn release_holds(&mut self, context: &mut Context, now_ns: u64) {
        self.sequential.release_holds(context, now_ns);
    }

    /// A thread has finished the access for which it was granted something.
    pub(crate) fn end_hold(&mut self, context: &mut Context, thread: Thread) {
        self.sequential.end_hold(context, thread);
    }

    /// Whether there may be an action that is not in the queue.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.lazy.as_ref().is_some_and(|lazy| lazy.has_work())
    }

    /// The lazy protocol, if it keeps that view.
    #[inline]
    fn lazy_at(&mut self, view: u16) -> Option<&mut Lazy> {
        if view == 0 { self.lazy.as_deref_mut() } else { None }
    }

    pub(crate) fn is_free(&self, minipage: &Minipage) -> bool {
        match &self.lazy {
            Some(lazy) if minipage.view == 0 => lazy.is_free(minipage),
            _ => self.sequential.is_free(minipage),
        }
    }

    /// Enters minipages that `creator` has allocated: this rank, if their pages are free here, or another that has sent them.
    pub(crate) fn enter_units(&mut self, creator: Rank, units: Units) -> Result<(), Violation> {
        if self.lazy.is_some() && units.view == 0 || !self.sequential.are_free(&units) {
            return Err(Violation::Minipage);
        }
        self.sequential.enter_units(creator, units);
        Ok(())
    }

    /// Enters a new allocation of this rank, whose pages must be free here.
    pub(crate) fn create(&mut self, context: &mut Context, minipage: Minipage, home: Option<Rank>) {
        match self.lazy_at(minipage.view) {
            Some(lazy) => lazy.create(&minipage, home),
            None => self.sequential.create(context, minipage),
        }
    }

    /// Whether a rank must know of an allocation before its address is published.
    pub(crate) fn must_know(&self, minipage: &Minipage, home: Option<Rank>, rank: Rank) -> bool {
        match &self.lazy {
            Some(lazy) if minipage.view == 0 => lazy.must_know(minipage, home, rank),
            _ => self.sequential.must_know(minipage, rank),
        }
    }

    /// Enters a new, well-formed allocation of another rank, which this rank must know.
    pub(crate) fn enter(&mut self, from: Rank, minipage: Minipage, home: Option<Rank>) -> Result<(), Violation> {
        match self.lazy_at(minipage.view) {
            Some(lazy) => lazy.enter(from, &minipage, home),
            None if home.is_some() => Err(Violation::Minipage),
            None => self.sequential.enter(from, minipage),
        }
    }
}

impl Coherence for Protocols {
    fn release(&mut self, release: Release) -> bool {
        self.lazy.as_mut().is_none_or(|lazy| lazy.release(release))
    }

    fn releases_early(&self) -> bool {
        self.lazy.is_none()
    }

    fn arrive(&mut self, barrier: Barrier) {
        if let Some(lazy) = &mut self.lazy {
            lazy.arrive(barrier);
        }
    }

    fn pass(&mut self, barrier: Barrier) {
        if let Some(lazy) = &mut self.lazy {
            lazy.pass(barrier);
        }
    }

    fn payload(&mut self, to: Rank, message: &Message, bytes: &mut [u8]) -> usize {
        self.lazy.as_mut().map_or(0, |lazy| lazy.payload(to, message, bytes))
    }

    fn acquire(&mut self, context: &mut Context, from: Rank, payload: &[u8]) -> Result<(), Violation> {
        match &mut self.lazy {
            Some(lazy) => lazy.acquire(context, from, payload),
            None if payload.is_empty() => Ok(()),
            None => Err(Violation::Payload),
        }
    }

    fn note_request(&mut self, from: Rank, of: Rank, payload: &[u8]) -> Result<(), Violation> {
        match &mut self.lazy {
            Some(lazy) => lazy.note_request(from, of, payload),
            None if payload.is_empty() => Ok(()),
            None => Err(Violation::Payload),
        }
    }
}
