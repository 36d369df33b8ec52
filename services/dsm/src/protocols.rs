//! The coherence protocols of a rank, side by side: lazy ones keep view 0, sequential consistency the others, or all views if it is alone.

use crate::coherence::{Coherence, Release};
use crate::context::Context;
use crate::lazy::Lazy;
use crate::sequential::SequentialConsistency;
use crate::{Barrier, Config, ConfigError, Message, Minipage, Protocol, Rank, Violation};
use alloc::boxed::Box;

#[derive(Debug)]
pub(crate) struct Protocols {
    pub(crate) sequential: SequentialConsistency,
    pub(crate) lazy: Option<Box<Lazy>>,
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

    /// The lazy protocol, if it keeps that view.
    #[inline]
    pub(crate) fn lazy_at(&mut self, view: u16) -> Option<&mut Lazy> {
        if view == 0 { self.lazy.as_deref_mut() } else { None }
    }

    pub(crate) fn is_free(&self, minipage: &Minipage) -> bool {
        match &self.lazy {
            Some(lazy) if minipage.view == 0 => lazy.is_free(minipage),
            _ => self.sequential.is_free(minipage),
        }
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
            Some(lazy) => lazy.enter(&minipage, home),
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
