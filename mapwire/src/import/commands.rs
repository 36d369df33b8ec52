//! Commands for the NIC, which takes the bytes from this process's memory or puts them there.

use mapwire_driver::completions::{CommandFailure, WORDS};
use mapwire_driver::{Driver, DriverError, DriverMode};
use mapwire_nic::{CommandError, RefusedStores};
use mapwire_translation::PageRange;
use mapwire_wire::{CommandRepr, Refusal};

use super::{Held, Import};
use crate::error::{Error, Result};

impl Import {
    /// Submits a command whose pages are pinned and held until it is done; gives its completion word.
    pub(super) fn submit_held(&self, address: u64, length: u64, command: impl Fn(u32) -> CommandRepr) -> Result<u32> {
        let engine = &self.held.engine;
        engine.check_here()?;
        let range = PageRange::covering(address, length).map_err(DriverError::from)?;
        let peer = self.held.local.grant.node();
        let words = engine.words();
        let word = self.take_word()?;
        // The usual case takes the lock once: pages pinned, room in the queue.
        let mut driver = engine.lock_with_news(peer);
        let begun = self.refuse_if_over(&mut driver).and_then(|()| Ok(driver.hold(word, range)?));
        if let Err(error) = begun {
            words.cancel(word);
            return Err(error);
        }
        engine.mark_dirty(&driver, peer);
        if engine.mode() == DriverMode::Inline && matches!(driver.submit(&command(word), &[]), Ok(true)) {
            return Ok(word);
        }
        drop(driver);
        if let Err(error) = self.submit(&command(word), &[]) {
            engine.lock().unhold(word);
            words.cancel(word);
            return Err(error);
        }
        Ok(word)
    }

    /// Takes a completion word, waiting for one.
    #[inline]
    fn take_word(&self) -> Result<u32> {
        let engine = &self.held.engine;
        let take = |engine: &mapwire_driver::engine::Engine| engine.words().take();
        let word = take(engine).or_else(|| engine.wait_until(Some(engine.timeout()), take));
        Ok(word.ok_or(DriverError::TooManyOutstanding(WORDS))?)
    }

    /// Writes a command to the queue, waiting for room.
    #[inline]
    pub(super) fn submit(&self, command: &CommandRepr, data: &[u8]) -> Result<()> {
        let engine = &self.held.engine;
        let peer = self.held.local.grant.node();
        let mut driver = engine.lock_with_news(peer);
        self.refuse_if_over(&mut driver)?;
        if engine.submit(driver, peer, command, data)? {
            return Ok(());
        }
        let full = || format!("room in the command queue, which is full of sends to rank {} and others", peer.0);
        // The wait for room may have brought word of a revocation.
        self.submit_waiting(command, data, full, |driver| self.refuse_if_over(driver))
    }

    /// Writes a command to the queue when there is room, unless `refuse` says why not. `what` names what is waited for.
    #[cold]
    fn submit_waiting(
        &self,
        command: &CommandRepr,
        data: &[u8],
        what: impl FnOnce() -> String,
        refuse: impl Fn(&mut Driver) -> Result<()>,
    ) -> Result<()> {
        let engine = &self.held.engine;
        engine.wait_for(Some(engine.timeout()), what, |driver| {
            if let Err(error) = refuse(driver) {
                return Some(Err(error));
            }
            engine.mark_dirty(driver, self.held.local.grant.node());
            match driver.submit(command, data) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(error) => Some(Err(error.into())),
            }
        })?
    }

    #[inline]
    pub(super) fn refuse_if_gone(&self, driver: &mut Driver) -> Result<()> {
        let peer = self.held.local.grant.node();
        if driver.is_gone(peer) { Err(driver.why_gone(peer).into()) } else { Ok(()) }
    }

    /// Refuses a command that would fail at the exporter: it is gone, or has revoked the export.
    #[inline]
    pub(super) fn refuse_if_over(&self, driver: &mut Driver) -> Result<()> {
        self.refuse_if_gone(driver)?;
        if driver.nic().imported(self.held.local.id).is_some_and(|import| import.revoked) {
            return Err(self.held.revoked());
        }
        Ok(())
    }

    /// Waits until the exporter has handled all that was sent by the ring before: asks for a fetch of no bytes, whose answer
    /// comes behind the refusals.
    pub(super) fn flush_ring(&self) -> Result<()> {
        let held = &*self.held;
        let (engine, import) = (&held.engine, held.local.id);
        let word = self.take_word()?;
        let command = CommandRepr::Fetch { import, offset: 0, address: 0, length: 0, completion: word };
        let room = || format!("room in the command queue for a flush of `{}`", held.name);
        self.submit_waiting(&command, &[], room, |driver| self.refuse_if_gone(driver))
            .inspect_err(|_| engine.words().cancel(word))?;
        held.finish(word, 0)?;
        let refused = engine.lock().take_refused(import);
        if refused == RefusedStores::default() {
            return Ok(());
        }
        let first = refused.first.or(refused.first_unsent);
        Err(Error::NotStored {
            rank: u32::from(held.local.grant.node().0),
            name: held.name.clone(),
            count: if refused.unnamed { 0 } else { refused.count },
            first: first.map(|first| (first.offset, first.length)),
            reason: first.map_or(Refusal::Busy, |first| first.reason),
        })
    }
}

impl Held {
    /// Waits until the command with completion word `word` is over, which sends `length` bytes. One that a revocation crossed
    /// failed for that reason.
    pub(super) fn finish(&self, word: u32, length: u64) -> Result<()> {
        // The NIC ends every command: done, refused, or failed since the peer is gone. So the wait needs no timeout, and must not
        // have one: until then the NIC uses the caller's memory. A peer that is stopped is waited for until the launcher ends the
        // job.
        let engine = &self.engine;
        // Nor does a forked child wait for what its parent began.
        engine.check_here()?;
        let words = engine.words();
        let outcome = words.finish(word).or_else(|| engine.wait_until(None, |engine| engine.words().finish(word)));
        let Some(Err(CommandFailure { error, sent_bytes })) = outcome else { return Ok(()) };
        let cause = match error {
            CommandError::PeerGone(peer) => engine.lock().why_gone(peer).into(),
            CommandError::Revoked(_) | CommandError::Refused(Refusal::Revoked) => self.revoked(),
            error => Error::from(DriverError::from(error)),
        };
        Err(match sent_bytes.min(length) {
            0 => cause,
            sent_bytes => Error::Partial { sent_bytes, length, cause: Box::new(cause) },
        })
    }

    pub(super) fn revoked(&self) -> Error {
        Error::Revoked { rank: u32::from(self.local.grant.node().0), name: self.name.clone() }
    }
}
