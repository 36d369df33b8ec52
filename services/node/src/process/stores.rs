//! Bytes of a region on their way into a peer's memory, and the message that follows them.

use alloc::vec::Vec;

use mapwire_nic::Nic;
use mapwire_service::{Region, Service};
use mapwire_translation::{PageRange, PinPages, TranslationDesign};
use mapwire_wire::{CommandRepr, Endpoint, HandlerId, ImportId};

use super::Process;
use crate::error::HostErrorOf;
use crate::tracing::Trace;

/// The completion word of a store that the node makes for a service: none of the program's.
pub(crate) const STORE_WORD: u32 = u32::MAX;

/// A store that a service asked for. Until it is over nothing else of this process's services is carried out: what they send next
/// must not arrive before it.
#[derive(Debug)]
struct Store {
    handler: HandlerId,
    to: Endpoint,
    region: Region,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The machine has been asked.
    Asked,
    /// The NIC is to store it, once it takes a command of the process.
    Waiting {
        import: ImportId,
        address: u64,
        pages: PageRange,
    },
    /// The NIC is about it.
    UnderWay { pages: PageRange },
}

/// The store of a process, if one is under way, and what follows it.
#[derive(Debug, Default)]
pub(super) struct Stores {
    current: Option<Store>,
    message: Vec<u8>,
}

impl Stores {
    /// Nothing is under way; messages of `most_bytes` find room.
    pub(super) fn new(most_bytes: usize) -> Self {
        Self {
            current: None,
            message: Vec::with_capacity(most_bytes),
        }
    }

    /// A service asks for a store.
    pub(super) fn begin(
        &mut self,
        handler: HandlerId,
        to: Endpoint,
        region: Region,
        message: &[u8],
    ) {
        self.message.clear();
        self.message.extend_from_slice(message);
        self.current = Some(Store {
            handler,
            to,
            region,
            stage: Stage::Asked,
        });
    }
}

impl Process {
    /// Whether a store is under way.
    #[inline]
    pub(crate) fn is_storing(&self) -> bool {
        self.stores.current.is_some()
    }

    /// The store is over: what follows it goes out, if it is there.
    pub(crate) fn end_store<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, is_stored: bool) {
        let Some(store) = self.stores.current.take() else {
            return;
        };
        if let Stage::UnderWay { pages } | Stage::Waiting { pages, .. } = store.stage {
            self.pages.release_range(pages);
        }
        let message = &self.stores.message;
        let sent = is_stored && nic.send_message(self.id, store.to, store.handler, message);
        if !sent && let Some(service) = self.services.get_mut(store.handler) {
            service.handle_lost(store.to);
        }
    }

    /// See [`Node::store_by_import`](crate::Node::store_by_import).
    pub(crate) fn store_by_import<D: TranslationDesign, P: PinPages>(
        &mut self,
        nic: &mut Nic<D>,
        trace: &mut Trace,
        pinner: &mut P,
        import: ImportId,
        address: u64,
    ) -> Result<(), HostErrorOf<P>> {
        let Some(store) = &mut self.stores.current else {
            return Ok(());
        };
        let held = PageRange::covering(address, store.region.bytes)
            .map_err(|error| HostErrorOf::<P>::Limit(error.into()))
            .and_then(|pages| {
                self.pages.hold(nic, pinner, trace, STORE_WORD, pages)?;
                Ok(pages)
            });
        match held {
            Ok(pages) => {
                store.stage = Stage::Waiting {
                    import,
                    address,
                    pages,
                };
                self.push_store(nic);
                Ok(())
            }
            Err(error) => {
                self.end_store(nic, false);
                Err(error)
            }
        }
    }

    /// Gives the NIC the store that waits for it, if it takes one.
    pub(crate) fn push_store<D: TranslationDesign>(&mut self, nic: &mut Nic<D>) {
        if let Some(store) = &mut self.stores.current
            && let Stage::Waiting {
                import,
                address,
                pages,
            } = store.stage
            && nic.accepts_command(self.id)
        {
            store.stage = Stage::UnderWay { pages };
            let command = CommandRepr::LongSend {
                import,
                offset: store.region.offset,
                address,
                length: store.region.bytes,
                notify: false,
                signal: None,
                completion: STORE_WORD,
            };
            nic.handle_own_command(self.id, &command, &[]);
        }
    }
}
