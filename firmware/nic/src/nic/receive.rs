//! The receive path: packets in, memory moves and completions out. Stores are in [`super::stores`].

use mapwire_translation::TranslationDesign;
use mapwire_wire::{
    Endpoint, ExportId, FetchId, Header, INLINE_BYTES, Key, MessageId, NodeId, ProcessId, Refusal, Repr, Rights,
    SIGNAL_TRAILER_BYTES,
};

use super::Nic;
use crate::actions::{After, BufferId, Completion, Dma, Rejection, SignalWrite};
use crate::answers::Serving;
use crate::error::CommandError;
use crate::fetches::Fate;
use crate::imports::{Import, RefusedStore};
use crate::nic::cutting::{Lack, Path};
use crate::pieces::Piece;
use crate::processes::Long;

/// A piece of the answer to a fetch.
struct Reply {
    key: Key,
    fetch: FetchId,
    offset: u64,
    length: u32,
    last: bool,
}

/// Result of handling a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The NIC is done with it: applied, refused, or, as a datagram, dropped for the sender's link to send again.
    Taken,
    /// Nothing of it is applied, because its translation is missing and only the host can supply it: serve [`Nic::poll_miss`],
    /// then hand the same packet in again, before any other of its sender.
    Wait,
}

impl<D: TranslationDesign> Nic<D> {
    /// Takes a packet of `from`, whose payload is as long as the header says: the caller has checked that. `header` and `inline`
    /// were copied out of shared memory once; `inline` is the whole payload if that is at most [`INLINE_BYTES`] long. `trailer`
    /// returns the last 16 payload bytes of a packet that carries a signal behind a longer payload. `buffer` names the packet in
    /// the actions that follow; keep it until [`Nic::poll_dma`] and [`Nic::poll_completion`] have been drained.
    ///
    /// Packets of a node must come in the order in which it numbered them. A packet with any error is not applied at all.
    #[inline]
    pub fn handle_packet(
        &mut self,
        from: NodeId,
        header: &Header,
        inline: &[u8],
        trailer: impl FnOnce() -> [u8; SIGNAL_TRAILER_BYTES],
        buffer: BufferId,
    ) -> Verdict {
        if !self.outbound.is_up(from) {
            self.reject(from, Rejection::UnknownNode);
            return Verdict::Taken;
        }
        let parsed = Repr::parse(header, inline);
        let got = header.sequence.get();
        if let Err(expected) = self.outbound.take_number(from, got) {
            self.reject(from, Rejection::OutOfOrder { expected, got });
            return Verdict::Taken;
        }
        let length = header.payload_bytes() as usize;
        let is_inline = length <= INLINE_BYTES;
        let taken = match parsed {
            Ok(repr) if !is_inline || inline.len() >= length => {
                if let Repr::Store { signal, .. } = repr {
                    let trailer = signal.then(|| {
                        let inline = inline.get(..length).filter(|_| is_inline);
                        let end = inline.and_then(<[u8]>::last_chunk);
                        end.copied().unwrap_or_else(trailer)
                    });
                    self.handle_store(from, &repr, trailer, buffer)
                } else {
                    self.handle_other(from, repr, buffer)
                }
            }
            _ => {
                self.reject(from, Rejection::Malformed);
                return Verdict::Taken;
            }
        };
        if !taken {
            return self.miss(from);
        }
        self.stalled.note_taken(from);
        self.counters.packets_received += 1;
        self.counters.bytes_received += length as u64;
        Verdict::Taken
    }

    /// Nothing was applied of the packet whose number was just taken: it lacks a translation, which the host is asked for.
    #[cold]
    fn miss(&mut self, from: NodeId) -> Verdict {
        self.stalled.note_try(from);
        self.outbound.give_number_back(from);
        Verdict::Wait
    }

    /// False when the host must act first; nothing is changed then.
    fn handle_other(&mut self, from: NodeId, repr: Repr, buffer: BufferId) -> bool {
        match repr {
            Repr::Handler { handler, from: process, to, length } => {
                if self.dispatch.has(handler) {
                    let from = Endpoint { node: from, process };
                    self.completions.push_back(Completion::Message { to, from, handler, length, buffer });
                } else {
                    self.reject(from, Rejection::UnknownHandler(handler));
                }
            }
            Repr::FetchRequest { key, export, fetch, offset, want_bytes, reply_key } => {
                if self.drops_on_miss && !self.has_handles(export) && !self.stalled.gives_up(from) {
                    return false;
                }
                let checked = if want_bytes == 0 {
                    // A flush reads nothing, and is answered behind the refusals of what was sent before it.
                    Ok((ProcessId(0), 0))
                } else {
                    let entry = self.exports.authenticate(from, export, &key, Rights::FETCH);
                    entry.and_then(|entry| Ok((entry.process, entry.address_of(offset, want_bytes)?)))
                };
                // A refusal reads no memory.
                let (process, address) = checked.unwrap_or((ProcessId(0), 0));
                let (remaining, refused) = (want_bytes, checked.err());
                let fetch = Serving::new(fetch, reply_key, export);
                self.serve(from, Serving { process, address, remaining, refused, ..fetch });
            }
            Repr::Atomic { key, export, fetch, offset, atomic, reply_key } => {
                let place = (export, offset);
                return self.update(from, &key, place, atomic, (fetch, reply_key), buffer);
            }
            Repr::FetchReply { reply_key, fetch, offset, length, last } => {
                let reply = Reply { key: reply_key, fetch, offset, length, last };
                return self.take_reply(from, &reply, buffer);
            }
            Repr::FetchRefused { reply_key, fetch, reason } => self.fetch_refused(from, &reply_key, fetch, reason),
            Repr::StoreRefused { message, export, reason, offset, length, count } => {
                let store = RefusedStore { offset, length, reason };
                self.store_refused(from, message, export, store, count);
            }
            Repr::Store { .. } | Repr::Nothing => {}
        }
        true
    }

    /// Moves the payload of packet `buffer` to `scattered`; `signal` and `after` come with the last move.
    #[inline(always)]
    pub(crate) fn move_scattered(
        &mut self,
        process: ProcessId,
        signal: Option<SignalWrite>,
        buffer: BufferId,
        after: After,
    ) {
        let (piece, at) = match self.scattered[..] {
            [] => (Piece::EMPTY, 0),
            [piece] => (piece, 0),
            _ => self.move_all_but_last(process, buffer),
        };
        let mut dma = Dma::new(process, buffer, after);
        (dma.piece, dma.at, dma.signal) = (piece, at, signal);
        self.dma.push_back(dma);
    }

    /// Returns the last piece, and its offset in the payload.
    #[inline(never)]
    fn move_all_but_last(&mut self, process: ProcessId, buffer: BufferId) -> (Piece, u32) {
        let mut at = 0;
        let mut last = Piece::EMPTY;
        for &piece in &self.scattered {
            if last.length > 0 {
                let mut dma = Dma::new(process, buffer, After::Nothing);
                (dma.piece, dma.at) = (last, at);
                self.dma.push_back(dma);
            }
            at += last.length;
            last = piece;
        }
        (last, at)
    }

    /// The driver has done the move `dma`. `old` is the old value of the word that it updated, if any.
    #[inline]
    pub fn handle_dma_done(&mut self, dma: &Dma, old: u64) {
        match dma.after() {
            After::Nothing => {}
            After::Notify { export, from, offset, length } => {
                // If the export has gone meanwhile, there is nobody to tell.
                if self.exports.get(export.0).is_some() {
                    self.counters.notifications += 1;
                    self.completions.push_back(Completion::Notification {
                        process: dma.process,
                        export,
                        from,
                        offset,
                        length,
                    });
                }
            }
            After::Fetched { fetch } => self.fetch_moved(fetch),
            After::Updated { from, fetch, reply_key, export, bytes } => {
                // A node that has gone meanwhile is owed no answer.
                if self.outbound.is_up(from) {
                    let fetch = Serving::new(fetch, reply_key, export);
                    self.serve(from, Serving { process: dma.process, remaining: bytes, value: Some(old), ..fetch });
                }
            }
        }
    }

    /// Takes a fetch in, or its refusal: one answer either way.
    pub(crate) fn serve(&mut self, from: NodeId, serving: Serving) {
        if let Some(reason) = serving.refused {
            self.reject(from, Rejection::Refused(reason));
        }
        if !self.answers.serve(from, serving) {
            // The peer breaks the rules by asking for more than it may have under way, and is owed no answer.
            self.reject(from, Rejection::Refused(Refusal::Busy));
        }
    }

    /// False if the host must act first; nothing is changed then.
    fn take_reply(&mut self, from: NodeId, reply: &Reply, buffer: BufferId) -> bool {
        let id = reply.fetch;
        let length = u64::from(reply.length);
        let due = self
            .fetches
            .answered(from, self.reply_keys.get(usize::from(from.0)), &reply.key, id)
            // Replies come in order and fill the destination to its end, no further.
            .filter(|fetch| {
                reply.offset == fetch.received
                    && length <= fetch.length - fetch.received
                    && reply.last == (fetch.received + length == fetch.length)
            });
        let Some(&mut fetch) = due else {
            self.reject(from, Rejection::UnknownFetch(id));
            return true;
        };
        let wanted = fetch.fate == Fate::Wanted;
        if wanted {
            let address = fetch.address + reply.offset;
            match self.scatter(fetch.process, address, reply.length, Path::Fetch) {
                Ok(()) => {}
                Err(Lack::Host) if !self.stalled.gives_up(from) => return false,
                Err(lack) => {
                    let error = match lack {
                        Lack::NotPinned { address } => CommandError::NotPinned { address },
                        Lack::Host => CommandError::NoRoom { address },
                    };
                    if let Some(fetch) = self.fetches.get_mut(id.0) {
                        fetch.received += length;
                        fetch.fate = Fate::Failing(error);
                    }
                    if reply.last {
                        self.outbound.end_fetch(from);
                    }
                    self.tell_failing(id);
                    return true;
                }
            }
        }
        let Some(fetch) = self.fetches.get_mut(id.0) else {
            return true;
        };
        fetch.received += length;
        fetch.moving += u32::from(wanted);
        let process = fetch.process;
        if reply.last {
            self.outbound.end_fetch(from);
        }
        if wanted {
            self.move_scattered(process, None, buffer, After::Fetched { fetch: id });
        } else if reply.last && fetch.fate == Fate::Abandoned {
            self.fetches.remove(id.0);
        }
        true
    }

    /// Reports that a fetch failed on this side, once no memory move of it is under way; what still arrives of it is dropped.
    fn tell_failing(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.get_mut(id.0) else {
            return;
        };
        let Fate::Failing(error) = fetch.fate else {
            return;
        };
        if fetch.moving > 0 {
            return;
        }
        let (process, completion) = (fetch.process, Some(fetch.completion));
        fetch.fate = Fate::Abandoned;
        if fetch.received == fetch.length {
            self.fetches.remove(id.0);
        }
        self.completions.push_back(Completion::Failed { process, completion, error, sent_bytes: 0 });
    }

    fn fetch_refused(&mut self, from: NodeId, key: &Key, id: FetchId, reason: Refusal) {
        match self.fetches.answered(from, self.reply_keys.get(usize::from(from.0)), key, id) {
            Some(fetch) => {
                let abandoned = fetch.fate == Fate::Abandoned;
                let is_flush = fetch.length == 0;
                self.outbound.end_fetch(from);
                if is_flush {
                    self.imports.note_unnamed(from);
                }
                if abandoned {
                    self.fetches.remove(id.0);
                } else if is_flush {
                    self.end_fetch(id);
                } else {
                    self.fail_fetch(id, CommandError::Refused(reason));
                }
            }
            None => self.reject(from, Rejection::UnknownFetch(id)),
        }
    }

    /// Reports that a fetch failed, once no memory move of it is under way: its process may then reuse the destination.
    pub(crate) fn fail_fetch(&mut self, id: FetchId, error: CommandError) {
        let Some(fetch) = self.fetches.get_mut(id.0) else {
            return;
        };
        fetch.fate = Fate::Failed(error);
        if fetch.moving == 0 {
            self.end_fetch(id);
        }
    }

    fn fetch_moved(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.get_mut(id.0) else {
            return;
        };
        fetch.moving = fetch.moving.saturating_sub(1);
        let over = match fetch.fate {
            Fate::Wanted => fetch.received == fetch.length,
            Fate::Failed(_) => true,
            Fate::Failing(_) => return self.tell_failing(id),
            Fate::Abandoned => false,
        };
        if over && fetch.moving == 0 {
            self.end_fetch(id);
        }
    }

    fn end_fetch(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.remove(id.0) else {
            return;
        };
        let (process, completion) = (fetch.process, fetch.completion);
        self.completions.push_back(match fetch.fate {
            Fate::Failed(error) | Fate::Failing(error) => {
                Completion::Failed { process, completion: Some(completion), error, sent_bytes: 0 }
            }
            Fate::Wanted | Fate::Abandoned => {
                self.counters.fetches += u64::from(fetch.length > 0);
                Completion::Done { process, completion }
            }
        });
    }

    /// A peer refused stores. If the one named is part of a long send, the rest of that is not sent.
    fn store_refused(&mut self, from: NodeId, message: MessageId, export: ExportId, store: RefusedStore, count: u64) {
        let reason = store.reason;
        let of_export = |import: &Import| import.node == from && import.export == export;
        self.imports.note_refused(store, count, of_export);
        let of_message =
            |long: &Long| matches!(long, Long::Send(sending) if sending.to == from && sending.message == message);
        let named = self.processes.with_long(of_message).next();
        if let Some(process) = named {
            self.give_up(process, CommandError::Refused(reason));
        }
        self.completions.push_back(Completion::StoreRefused { from, export, reason, count });
    }

    #[cold]
    pub(crate) fn reject(&mut self, from: NodeId, reason: Rejection) {
        let rejected = &mut self.counters.rejected;
        match reason {
            Rejection::Malformed | Rejection::UnknownNode => rejected.malformed += 1,
            Rejection::OutOfOrder { .. } => rejected.out_of_order += 1,
            Rejection::Refused(_) => rejected.refused += 1,
            Rejection::UnknownFetch(_) | Rejection::UnknownHandler(_) => rejected.unexpected += 1,
        }
        self.completions.push_back(Completion::Rejected { from, reason });
    }
}
