//! Stores of a region by the NIC, into a peer's memory that is not mapped here, and the message behind them.
//!
//! The message is queued right behind the last packet of the store, and links keep packets in order. The NIC may read the region again
//! until its packets are acked, also after the message: the protocol of the service lets nobody change it before the peer has confirmed.

use alloc::vec::Vec;

use mapwire_nic::Nic;
use mapwire_translation::{PageRange, PinPages, TranslationDesign};
use mapwire_vmmc::service::Region;
use mapwire_wire::{CommandRepr, Endpoint, HandlerId, ImportId};

use super::{MOST_STORES, Process, Stage, Store, Stores, Used};
use crate::error::HostErrorOf;
use crate::tracing::Trace;

/// The first completion word of stores that the node makes for services, one for each that the NIC may be about: none is the
/// program's.
const FIRST_STORE_WORD: u32 = u32::MAX - MOST_STORES as u32 + 1;

/// Whether a completion word is that of a store that the node has made for a service.
pub(crate) const fn is_store_word(word: u32) -> bool {
    word >= FIRST_STORE_WORD
}

/// Parts of a page that differ from its copy at most: every second byte.
const MOST_PARTS: usize = 2048;

impl Stores {
    /// Nothing is under way; messages of `most_bytes` find room.
    pub(super) fn new(most_bytes: usize) -> Self {
        Self {
            current: None,
            message: Vec::with_capacity(most_bytes),
            parts: Vec::with_capacity(MOST_PARTS),
            parts_begun: 0,
            used: [None; MOST_STORES],
        }
    }

    pub(super) fn begin(&mut self, handler: HandlerId, to: Endpoint, region: Region, at: u64, message: &[u8]) {
        self.message.clear();
        self.message.extend_from_slice(message);
        self.parts.clear();
        self.current = Some(Store { handler, to, region, at, is_fetch: false, stage: Stage::Asked });
    }

    pub(super) fn begin_fetch(&mut self, handler: HandlerId, from: Endpoint, region: Region, at: u64) {
        self.parts.clear();
        self.current = Some(Store { handler, to: from, region, at, is_fetch: true, stage: Stage::Asked });
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
        let used = self.stores.used.iter().flatten().count();
        used + usize::from(matches!(
            self.stores.current,
            Some(Store { stage: Stage::Asked | Stage::Waiting { .. }, .. })
        ))
    }

    /// The store is as good as there, or never will be: what follows it goes out in the former case. Of a fetch: its bytes are here.
    pub(crate) fn end_store<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, is_stored: bool) {
        let Some(store) = self.stores.current.take() else { return };
        if let Stage::Waiting { pages, .. } = store.stage {
            self.pages.release_range(pages);
        }
        if store.is_fetch {
            return self.end_fetch(store.handler, store.to, store.region.offset, is_stored);
        }
        let message = &self.stores.message;
        let sent = is_stored && (message.is_empty() || nic.send_message(self.id, store.to, store.handler, message));
        if !sent {
            self.lose_store(store.handler, store.to);
        }
    }

    fn end_fetch(&mut self, handler: HandlerId, from: Endpoint, offset: u64, is_fetched: bool) {
        match self.services.get_mut(handler) {
            Some(service) if is_fetched => service.handle_fetched(offset),
            Some(service) => service.handle_lost(from),
            None => {}
        }
    }

    fn lose_store(&mut self, handler: HandlerId, to: Endpoint) {
        if let Some(service) = self.services.get_mut(handler) {
            service.handle_lost(to);
        }
    }

    /// The NIC is done with the store or fetch of a completion word.
    pub(crate) fn handle_store_done<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, word: u32, is_stored: bool) {
        let slot = word.wrapping_sub(FIRST_STORE_WORD) as usize;
        let Some(used) = self.stores.used.get_mut(slot).and_then(Option::take) else { return };
        if let Some(offset) = used.fetched {
            self.pages.release_range(used.pages);
            return self.end_fetch(used.handler, used.peer, offset, is_stored);
        }
        let is_current = matches!(
            self.stores.current,
            Some(Store { stage: Stage::Cutting { word: of, .. }, .. }) if of == word
        );
        match is_current {
            true if is_stored => self.end_part(nic),
            true => self.end_store(nic, false),
            false if !is_stored => self.lose_store(used.handler, used.peer),
            false => {}
        }
        self.pages.release_range(used.pages);
    }

    /// All packets of the current part are queued. The next one is stored, or what follows goes out.
    fn end_part<D: TranslationDesign>(&mut self, nic: &mut Nic<D>) {
        let Some(store) = &mut self.stores.current else { return };
        let has_more = self.stores.parts_begun < self.stores.parts.len();
        match store.stage {
            Stage::Cutting { import, address, pages, .. } if has_more => {
                self.pages.hold_again(pages);
                store.stage = Stage::Waiting { import, address, pages };
            }
            _ => self.end_store(nic, true),
        }
    }

    /// Stores parts of the current region by the NIC, or fetches it; all of it if no parts are given.
    pub(crate) fn move_by_import<D: TranslationDesign, P: PinPages>(
        &mut self,
        nic: &mut Nic<D>,
        trace: &mut Trace,
        pinner: &mut P,
        (import, address): (ImportId, u64),
        parts: &[(u64, u64)],
    ) -> Result<(), HostErrorOf<P>> {
        let Some(store) = &mut self.stores.current else { return Ok(()) };
        self.stores.parts.clear();
        self.stores.parts.extend_from_slice(parts);
        self.stores.parts_begun = 0;
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

    /// Gives the NIC the store or fetch that waits for it, if it takes one; has it queue the packets, and sends what follows once all are.
    /// With `cuts` only: to cut may note what is looked up, in memory that may grow.
    pub(crate) fn push_store<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, cuts: bool) {
        while self.push_part(nic, cuts) {}
    }

    /// Whether another part follows at once.
    fn push_part<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, cuts: bool) -> bool {
        let Some(store) = &mut self.stores.current else { return false };
        if let Stage::Waiting { import, address, pages } = store.stage
            && nic.accepts_command(self.id)
            && let Some(slot) = self.stores.used.iter().position(Option::is_none)
        {
            // There are at most `MOST_STORES`.
            let word = FIRST_STORE_WORD + slot as u32;
            let fetched = store.is_fetch.then_some(store.region.offset);
            self.stores.used[slot] = Some(Used { pages, handler: store.handler, peer: store.to, fetched });
            let (start, length) =
                self.stores.parts.get(self.stores.parts_begun).copied().unwrap_or((0, store.region.bytes));
            self.stores.parts_begun += 1;
            store.stage = Stage::Cutting { word, import, address, pages };
            let command = match store.is_fetch {
                true => {
                    let offset = store.region.offset;
                    CommandRepr::Fetch { import, offset, address, length, completion: word }
                }
                false => CommandRepr::LongSend {
                    import,
                    offset: store.at + start,
                    address: address + start,
                    length,
                    notify: false,
                    signal: None,
                    completion: word,
                },
            };
            if store.is_fetch {
                // What follows need not wait for it.
                self.stores.current = None;
            }
            nic.handle_own_command(self.id, &command, &[]);
        }
        // A peer takes what is queued for it in this order: the message may be queued behind the last packet.
        let Some(Store { stage: Stage::Cutting { word, .. }, .. }) = self.stores.current else { return false };
        if cuts && nic.cut_all(self.id) && !nic.has_failed(self.id, word) {
            self.end_part(nic);
            return self.stores.current.is_some();
        }
        false
    }
}
