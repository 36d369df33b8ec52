//! Stores of a region by the NIC, into a peer's memory that is not mapped here, and the message behind them.
//!
//! The message is queued right behind the last packet of the store, and links keep packets in order. The NIC may read the region again
//! until its packets are acked, also after the message: the protocol of the service lets nobody change it before the peer has confirmed.

use alloc::vec::Vec;

use mapwire_nic::Nic;
use mapwire_translation::{PageRange, PinPages, TranslationDesign};
use mapwire_vmmc::service::Region;
use mapwire_wire::{CommandRepr, Endpoint, HandlerId, ImportId};

use super::{MOST_STORES, Process, Stage, Store, Stores};
use crate::error::HostErrorOf;
use crate::tracing::Trace;

/// The first completion word of stores that the node makes for services, one for each that the NIC may be about: none is the
/// program's.
const FIRST_STORE_WORD: u32 = u32::MAX - MOST_STORES as u32 + 1;

/// Whether a completion word is that of a store that the node has made for a service.
pub(crate) const fn is_store_word(word: u32) -> bool {
    word >= FIRST_STORE_WORD
}

impl Stores {
    /// Nothing is under way; messages of `most_bytes` find room.
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { current: None, message: Vec::with_capacity(most_bytes), read: [None; MOST_STORES] }
    }

    pub(super) fn begin(&mut self, handler: HandlerId, to: Endpoint, region: Region, at: u64, message: &[u8]) {
        self.message.clear();
        self.message.extend_from_slice(message);
        self.current = Some(Store { handler, to, region, at, stage: Stage::Asked });
    }
}

impl Process {
    /// Whether a store holds up what its services ask for next.
    #[inline]
    pub(crate) fn is_storing(&self) -> bool {
        self.stores.current.is_some()
    }

    /// Stores that are under way, or whose memory the NIC may still read.
    pub(crate) fn stores(&self) -> usize {
        let read = self.stores.read.iter().flatten().count();
        read + usize::from(matches!(
            self.stores.current,
            Some(Store { stage: Stage::Asked | Stage::Waiting { .. }, .. })
        ))
    }

    /// The store is as good as there, or never will be: what follows it goes out in the former case.
    pub(crate) fn end_store<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, is_stored: bool) {
        let Some(store) = self.stores.current.take() else { return };
        if let Stage::Waiting { pages, .. } = store.stage {
            self.pages.release_range(pages);
        }
        let message = &self.stores.message;
        let sent = is_stored && nic.send_message(self.id, store.to, store.handler, message);
        if !sent {
            self.lose_store(store.handler, store.to);
        }
    }

    fn lose_store(&mut self, handler: HandlerId, to: Endpoint) {
        if let Some(service) = self.services.get_mut(handler) {
            service.handle_lost(to);
        }
    }

    /// The NIC is done with the store of a completion word.
    pub(crate) fn handle_store_done<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, word: u32, is_stored: bool) {
        let slot = word.wrapping_sub(FIRST_STORE_WORD) as usize;
        let Some((pages, handler, to)) = self.stores.read.get_mut(slot).and_then(Option::take) else { return };
        self.pages.release_range(pages);
        let is_current = matches!(
            self.stores.current,
            Some(Store { stage: Stage::Cutting { word: of }, .. }) if of == word
        );
        if is_current {
            self.end_store(nic, is_stored);
        } else if !is_stored {
            self.lose_store(handler, to);
        }
    }

    pub(crate) fn store_by_import<D: TranslationDesign, P: PinPages>(
        &mut self,
        nic: &mut Nic<D>,
        trace: &mut Trace,
        pinner: &mut P,
        import: ImportId,
        address: u64,
    ) -> Result<(), HostErrorOf<P>> {
        let Some(store) = &mut self.stores.current else { return Ok(()) };
        let held = PageRange::covering(address, store.region.bytes)
            .map_err(|error| HostErrorOf::<P>::Limit(error.into()))
            .and_then(|pages| {
                let none = u32::MAX;
                self.pages.hold(nic, pinner, trace, none, pages)?;
                Ok(pages)
            });
        match held {
            Ok(pages) => {
                store.stage = Stage::Waiting { import, address, pages };
                self.push_store(nic, true);
                Ok(())
            }
            Err(error) => {
                self.end_store(nic, false);
                Err(error)
            }
        }
    }

    /// Gives the NIC the store that waits for it, if it takes one; has it queue the packets, and sends what follows once all are.
    /// With `cuts` only: to cut may note what is looked up, in memory that may grow.
    pub(crate) fn push_store<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, cuts: bool) {
        let Some(store) = &mut self.stores.current else { return };
        if let Stage::Waiting { import, address, pages } = store.stage
            && nic.accepts_command(self.id)
            && let Some(slot) = self.stores.read.iter().position(Option::is_none)
        {
            // There are at most `MOST_STORES`.
            let word = FIRST_STORE_WORD + slot as u32;
            self.stores.read[slot] = Some((pages, store.handler, store.to));
            store.stage = Stage::Cutting { word };
            let command = CommandRepr::LongSend {
                import,
                offset: store.at,
                address,
                length: store.region.bytes,
                notify: false,
                signal: None,
                completion: word,
            };
            nic.handle_own_command(self.id, &command, &[]);
        }
        // A peer takes what is queued for it in this order: the message may be queued behind the last packet.
        if let Stage::Cutting { word } = store.stage
            && cuts
            && nic.cut_all(self.id)
            && !nic.has_failed(self.id, word)
        {
            self.end_store(nic, true);
        }
    }
}
