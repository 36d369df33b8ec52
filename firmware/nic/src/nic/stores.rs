//! Stores of other nodes: authenticated, translated, then handed over to be moved.

use mapwire_translation::{HostRequest, PageRange, Process as Owner, TranslationDesign};
use mapwire_wire::{ExportId, Key, MessageId, NodeId, ProcessId, Refusal, Repr, Rights, SIGNAL_TRAILER_BYTES, Signal};

use super::Nic;
use crate::actions::{After, BufferId, Rejection, SignalWrite};
use crate::answers::StoreRefusal;
use crate::inbound::Inbound;
use crate::nic::cutting::{Lack, Path};

#[derive(Clone, Copy)]
struct Store {
    from: NodeId,
    key: Key,
    export: ExportId,
    message: MessageId,
    offset: u64,
    length: u32,
    last: bool,
    notify: bool,
    signal: Option<Signal>,
}

impl Store {
    /// Whether it only ends a message that the sender has given up: nothing is missing without it.
    fn is_bare_end(&self) -> bool {
        self.last && self.length == 0 && !self.notify && self.signal.is_none()
    }
}

/// Virtual addresses of a store's data and signal.
struct Target {
    process: ProcessId,
    address: u64,
    signal: Option<u64>,
}

impl<D: TranslationDesign> Nic<D> {
    /// Handles a store; ignores any other packet. `trailer` returns the signal if the store has one. False if the host must act
    /// first; nothing is changed then.
    #[inline]
    pub(crate) fn handle_store(
        &mut self,
        from: NodeId,
        repr: &Repr,
        trailer: Option<[u8; SIGNAL_TRAILER_BYTES]>,
        buffer: BufferId,
    ) -> bool {
        let Repr::Store { key, export, message, offset, length, last, notify, signal: _ } = *repr else {
            return true;
        };
        let Ok(signal) = trailer.as_ref().map(Signal::from_bytes).transpose() else {
            self.reject(from, Rejection::Malformed);
            return true;
        };
        let store = Store { from, key, export, message, offset, length, last, notify, signal };
        if self.drops_on_miss && !self.has_handles(export) && !self.stalled.gives_up(from) {
            return false;
        }
        // Looked up first: a packet that lacks a translation must leave no trace.
        let placed = match self.target(&store) {
            Ok(target) => match self.locate(&store, &target) {
                Ok(signal) => Ok((target.process, signal)),
                Err(Lack::Host) if !self.stalled.gives_up(from) => return false,
                Err(_) => Err(Refusal::Busy),
            },
            Err(reason) => Err(reason),
        };
        // Most messages are one packet, and most senders have no other message open.
        let alone = last && self.inbound[usize::from(from.0)].is_empty();
        let (start, bytes) = if alone {
            (offset, u64::from(length))
        } else {
            match self.take_part(&store) {
                Some(message) => message,
                None => return true,
            }
        };
        let (process, signal) = match placed {
            Ok(placed) => placed,
            Err(reason) => {
                self.refuse_store(&store, reason);
                return true;
            }
        };
        let after = if notify { After::Notify { export, from, offset: start, length: bytes } } else { After::Nothing };
        if length > 0 || signal.is_some() || after != After::Nothing {
            self.move_scattered(process, signal, buffer, after);
        }
        true
    }

    /// Authenticates a store and finds the virtual addresses of its data and signal.
    #[inline]
    fn target(&self, store: &Store) -> Result<Target, Refusal> {
        let export = self.exports.authenticate(store.from, store.export, &store.key, Rights::STORE)?;
        let address = export.address_of(store.offset, u64::from(store.length))?;
        let signal = match store.signal {
            None => None,
            Some(signal) => {
                let address = export.address_of(signal.offset, Signal::WORD_BYTES)?;
                if !address.is_multiple_of(Signal::WORD_BYTES) {
                    return Err(Refusal::OutOfRange);
                }
                Some(address)
            }
        };
        Ok(Target { process: export.process, address, signal })
    }

    /// Translates the addresses of a store: puts those of its data in `scattered`, and returns that of its signal.
    #[inline]
    fn locate(&mut self, store: &Store, target: &Target) -> Result<Option<SignalWrite>, Lack> {
        let process = target.process;
        if self.pinned_late.contains(&store.export) {
            let data = self.ask_for_pages(process, target.address, store.length.into());
            if let Some(signal) = target.signal {
                self.ask_for_pages(process, signal, 1)?;
            }
            data?;
        }
        self.scatter(process, target.address, store.length, Path::Receive)?;
        let signal = match (store.signal, target.signal) {
            (Some(signal), Some(address)) => {
                // Aligned, so within one page.
                let bytes = Signal::WORD_BYTES as u32;
                let piece = self.translate(process, address, bytes, Path::Receive);
                if piece == Err(Lack::Host) {
                    self.note_found(process, target.address, store.length);
                }
                let piece = piece?;
                let Signal { value, op, .. } = signal;
                Some(SignalWrite { piece, value, op })
            }
            _ => None,
        };
        Ok(signal)
    }

    /// Asks the host for those of the pages that hold `bytes` at `address` that are not pinned.
    #[cold]
    pub(crate) fn ask_for_pages(&mut self, process: ProcessId, address: u64, bytes: u64) -> Result<(), Lack> {
        let owner = Owner(process.0);
        let Ok(pages) = PageRange::covering(address, bytes) else { return Ok(()) };
        let is_there = |page| !self.translation.installed(owner, page).is_garbage();
        let Some(wanted) = pages.into_iter().find(|page| !is_there(*page)) else { return Ok(()) };
        self.stalled.ask(HostRequest::Fill { process: owner, pages, wanted });
        Err(Lack::Host)
    }

    /// Records a packet of a message of several; returns the message's start and how much of it has arrived with this packet.
    /// `None` if nothing more of the message is to be applied: a part of it was refused, so a notification or signal at its end
    /// would announce missing data.
    fn take_part(&mut self, store: &Store) -> Option<(u64, u64)> {
        let inbound = &mut self.inbound[usize::from(store.from.0)];
        let length = u64::from(store.length);
        let Some(at) = inbound.find(store.message, store.export) else {
            if store.last {
                return Some((store.offset, length));
            }
            let begun = Inbound {
                message: store.message,
                export: store.export,
                start: store.offset,
                bytes: length,
                refused: false,
            };
            if inbound.insert(begun) {
                return Some((store.offset, length));
            }
            self.refuse_store(store, Refusal::Busy);
            return None;
        };
        if store.last {
            let message = inbound.remove(at);
            if !message.refused && message.start + message.bytes == store.offset {
                return Some((message.start, message.bytes + length));
            }
            if !message.refused {
                return Some((store.offset, length));
            }
        } else if let Some(message) = inbound.get_mut(at)
            && !message.refused
        {
            if message.start + message.bytes != store.offset {
                // Messages of mapwire senders have no holes: the range that is reported leaves them out.
                message.start = store.offset;
                message.bytes = 0;
            }
            message.bytes += length;
            return Some((message.start, message.bytes));
        }
        // Its sender has been told once.
        self.counters.rejected.refused += 1;
        None
    }

    /// Applies nothing of a store, nor of the rest of its message, and reports that to the sender once.
    #[cold]
    fn refuse_store(&mut self, store: &Store, reason: Refusal) {
        if !store.last {
            let inbound = &mut self.inbound[usize::from(store.from.0)];
            let at = inbound.find(store.message, store.export);
            if let Some(message) = at.and_then(|at| inbound.get_mut(at)) {
                message.refused = true;
            }
        }
        self.reject(store.from, Rejection::Refused(reason));
        if store.is_bare_end() {
            return;
        }
        let refusal = StoreRefusal {
            message: store.message,
            export: store.export,
            reason,
            offset: store.offset,
            length: u64::from(store.length),
            count: 1,
        };
        if !self.answers.refuse(store.from, refusal, !store.last) {
            self.counters.untold_refusals += 1;
        }
    }
}
