//! The receive path: packets in, memory moves and completions out.

use mapwire_translation::{PAGE_BYTES, TranslationDesign};
use mapwire_wire::{
    ExportId, FetchId, HandlerId, Header, Key, NodeId, ProcessId, Refusal, Repr, Rights,
    SIGNAL_TRAILER_BYTES, Signal,
};

use crate::actions::{After, BufferId, Completion, Dma, Rejection, SignalWrite};
use crate::dispatch::{HandlerTarget, Outbox};
use crate::error::CommandError;
use crate::fetches::{Fetch, MAX_SERVING, Serving};
use crate::nic::Nic;
use crate::pieces::{Piece, Pieces};
use crate::transmit::Links;

/// What a store packet asks for.
#[derive(Clone, Copy)]
struct Store {
    key: Key,
    export: ExportId,
    offset: u64,
    length: u32,
    last: bool,
    notify: bool,
    signal: Option<Signal>,
}

impl<D: TranslationDesign> Nic<D> {
    /// Takes a packet that `from` sent. `header` and `inline` were copied out of shared memory once; `inline` is the whole
    /// payload when that is short ([`mapwire_wire::Repr::parse`]). `trailer` gives the last 16 payload bytes of a packet that
    /// carries a signal behind a longer payload. `buffer` names the packet in the actions that follow; keep it until
    /// [`Nic::poll_dma`] and [`Nic::poll_completion`] have been drained.
    ///
    /// Whatever is wrong with it, nothing of it is applied.
    #[inline]
    pub fn handle_packet(
        &mut self,
        from: NodeId,
        header: &Header,
        inline: &[u8],
        trailer: impl FnOnce() -> [u8; SIGNAL_TRAILER_BYTES],
        buffer: BufferId,
    ) {
        if !self.links.has(from) {
            return self.reject(from, Rejection::UnknownNode);
        }
        let repr = match Repr::parse(header, inline) {
            Ok(repr) => repr,
            Err(_) => return self.reject(from, Rejection::Malformed),
        };
        let got = header.sequence.get();
        if let Err(expected) = self.links.in_order(from, got) {
            return self.reject(from, Rejection::OutOfOrder { expected, got });
        }
        self.counters.packets_received += 1;
        self.counters.bytes_received += u64::from(header.payload_bytes());
        match repr {
            Repr::Store {
                key,
                export,
                message: _,
                offset,
                length,
                last,
                notify,
                signal,
            } => {
                let signal = match signal.then(|| Signal::from_bytes(&trailer())).transpose() {
                    Ok(signal) => signal,
                    Err(_) => return self.reject(from, Rejection::Malformed),
                };
                self.store(
                    from,
                    Store {
                        key,
                        export,
                        offset,
                        length,
                        last,
                        notify,
                        signal,
                    },
                    buffer,
                );
            }
            Repr::Handler { handler, length } => {
                self.dispatch(from, handler, length, inline.get(..length as usize), buffer)
            }
            Repr::FetchRequest {
                key,
                export,
                fetch,
                offset,
                want_bytes,
                reply_key,
            } => {
                self.serve(from, key, export, fetch, offset, want_bytes, reply_key);
            }
            Repr::FetchReply {
                reply_key,
                fetch,
                offset,
                length,
                last,
            } => {
                self.fetched(from, &reply_key, fetch, offset, length, last, buffer);
            }
            Repr::FetchRefused {
                reply_key,
                fetch,
                reason,
            } => self.fetch_refused(from, &reply_key, fetch, reason),
            Repr::StoreRefused {
                message: _,
                export,
                reason,
            } => {
                self.completions.push_back(Completion::StoreRefused {
                    from,
                    export,
                    reason,
                });
            }
            Repr::Control { length } => self.completions.push_back(Completion::Control {
                from,
                length,
                buffer,
            }),
            Repr::Ack => {}
        }
    }

    /// The driver has moved what `dma` named.
    #[inline]
    pub fn handle_dma_done(&mut self, dma: &Dma) {
        match dma.after {
            After::Nothing => {}
            After::Notify {
                export,
                from,
                offset,
                length,
            } => {
                self.counters.notifications += 1;
                let process = dma.process;
                self.completions.push_back(Completion::Notification {
                    process,
                    export,
                    from,
                    offset,
                    length,
                });
            }
            After::Fetched { fetch, last } => {
                if last && let Some(fetch) = self.fetches.asked.remove(fetch.0) {
                    self.counters.fetches += 1;
                    let Fetch {
                        process,
                        completion,
                        ..
                    } = fetch;
                    self.completions.push_back(Completion::Done {
                        process,
                        completion,
                    });
                }
            }
        }
    }

    #[inline]
    fn store(&mut self, from: NodeId, store: Store, buffer: BufferId) {
        let placed = self.place(&store);
        let (process, address, signal_address) = match placed {
            Ok(placed) => placed,
            Err(reason) => {
                self.reject(from, Rejection::Refused(reason));
                let export = store.export;
                let message = mapwire_wire::MessageId(0);
                return self.emit_inline(
                    from,
                    &Repr::StoreRefused {
                        message,
                        export,
                        reason,
                    },
                );
            }
        };
        let pieces = self.scatter(process, address, store.length);
        let signal = signal_address.map(|(address, value)| {
            // Aligned, so within one page.
            let piece = self.source_piece(process, address, Signal::WORD_BYTES as u32);
            SignalWrite { piece, value }
        });
        let after = self.after_store(from, &store);
        self.dma.push_back(Dma {
            process,
            pieces,
            signal,
            buffer,
            after,
        });
    }

    /// What follows a store once it is in place, counting the chunks of the message that it belongs to.
    #[inline]
    fn after_store(&mut self, from: NodeId, store: &Store) -> After {
        let inbound = &mut self.inbound[usize::from(from.0)];
        let (start, before) = inbound.unwrap_or((store.offset, 0));
        let length = before + u64::from(store.length);
        *inbound = if store.last {
            None
        } else {
            Some((start, length))
        };
        if store.last && store.notify {
            After::Notify {
                export: store.export,
                from,
                offset: start,
                length,
            }
        } else {
            After::Nothing
        }
    }

    /// Authenticates a store and gives the process and the virtual addresses of its data and signal.
    #[inline]
    fn place(&self, store: &Store) -> Result<(ProcessId, u64, Option<(u64, u64)>), Refusal> {
        let export = self
            .exports
            .authenticate(store.export.0, &store.key, Rights::STORE)?;
        let address = export.store_address(store.offset, u64::from(store.length))?;
        let signal = match store.signal {
            None => None,
            Some(Signal { offset, value }) => {
                let address = export.store_address(offset, Signal::WORD_BYTES)?;
                if address % Signal::WORD_BYTES != 0 {
                    return Err(Refusal::OutOfRange);
                }
                Some((address, value))
            }
        };
        Ok((export.process, address, signal))
    }

    /// Translates a destination of at most a page, which may cross one page boundary (VMMC §4.5, two-piece scatter).
    #[inline]
    fn scatter(&mut self, process: ProcessId, address: u64, length: u32) -> Pieces {
        if length == 0 {
            return Pieces::EMPTY;
        }
        let to_boundary = (PAGE_BYTES as u64 - address % PAGE_BYTES as u64) as u32;
        let first = self.source_piece(process, address, length.min(to_boundary));
        let second = if length > to_boundary {
            self.source_piece(
                process,
                address + u64::from(to_boundary),
                length - to_boundary,
            )
        } else {
            Piece::EMPTY
        };
        Pieces { first, second }
    }

    #[inline]
    fn dispatch(
        &mut self,
        from: NodeId,
        handler: HandlerId,
        length: u32,
        inline: Option<&[u8]>,
        buffer: BufferId,
    ) {
        match self.dispatch.get(handler) {
            Some(HandlerTarget::Host) => {
                self.completions.push_back(Completion::Message {
                    from,
                    handler,
                    length,
                    buffer,
                });
            }
            Some(HandlerTarget::Nic(_)) => {
                // What a handler here takes is short: it must be in the NIC already.
                let Some(payload) = inline else {
                    return self.reject(from, Rejection::Malformed);
                };
                // Taken out while it runs, so that it can send.
                let mut replies = Replies {
                    links: &self.links,
                    queued: core::mem::take(&mut self.replies),
                };
                if let Some(HandlerTarget::Nic(target)) = self.dispatch.get(handler) {
                    target.handle(from, payload, &mut replies);
                }
                let mut queued = replies.queued;
                for (to, handler, payload, length) in queued.drain(..) {
                    self.push_handler(to, handler, &payload[..length]);
                }
                self.replies = queued;
            }
            None => self.reject(from, Rejection::UnknownHandler(handler)),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn serve(
        &mut self,
        from: NodeId,
        key: Key,
        export: ExportId,
        fetch: FetchId,
        offset: u64,
        want_bytes: u64,
        reply_key: Key,
    ) {
        let checked = self
            .exports
            .authenticate(export.0, &key, Rights::FETCH)
            .and_then(|entry| Ok((entry.process, entry.fetch_address(offset, want_bytes)?)));
        let queue = &mut self.fetches.serving[usize::from(from.0)];
        match checked {
            Ok((process, address)) if queue.len() < MAX_SERVING => {
                queue.push_back(Serving {
                    process,
                    fetch,
                    reply_key,
                    export: export.0,
                    address,
                    remaining: want_bytes,
                    sent: 0,
                });
                self.fetches.serving_count += 1;
            }
            outcome => {
                let reason = outcome.err().unwrap_or(Refusal::Busy);
                self.reject(from, Rejection::Refused(reason));
                self.emit_inline(
                    from,
                    &Repr::FetchRefused {
                        reply_key,
                        fetch,
                        reason,
                    },
                );
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn fetched(
        &mut self,
        from: NodeId,
        reply_key: &Key,
        id: FetchId,
        offset: u64,
        length: u32,
        last: bool,
        buffer: BufferId,
    ) {
        let authentic = self.fetches.reply_keys[usize::from(from.0)] == *reply_key;
        let (process, address) = match self.fetches.asked.get_mut(id.0) {
            // Replies come in order and fill the destination to its end, no further.
            Some(fetch)
                if authentic
                    && fetch.from == from
                    && offset == fetch.received
                    && u64::from(length) <= fetch.length - fetch.received
                    && last == (fetch.received + u64::from(length) == fetch.length) =>
            {
                fetch.received += u64::from(length);
                (fetch.process, fetch.address + offset)
            }
            _ => return self.reject(from, Rejection::UnknownFetch(id)),
        };
        let pieces = self.scatter(process, address, length);
        let after = After::Fetched { fetch: id, last };
        self.dma.push_back(Dma {
            process,
            pieces,
            signal: None,
            buffer,
            after,
        });
    }

    fn fetch_refused(&mut self, from: NodeId, reply_key: &Key, id: FetchId, reason: Refusal) {
        let authentic = self.fetches.reply_keys[usize::from(from.0)] == *reply_key;
        match self.fetches.asked.get(id.0) {
            Some(fetch) if authentic && fetch.from == from => {
                let Fetch {
                    process,
                    completion,
                    ..
                } = *fetch;
                self.fetches.asked.remove(id.0);
                let error = CommandError::Refused(reason);
                self.completions.push_back(Completion::Failed {
                    process,
                    completion: Some(completion),
                    error,
                });
            }
            _ => self.reject(from, Rejection::UnknownFetch(id)),
        }
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
        self.completions
            .push_back(Completion::Rejected { from, reason });
    }
}

/// A message that a handler on the NIC wants sent.
pub(crate) type Reply = (NodeId, HandlerId, [u8; mapwire_wire::SHORT_BYTES], usize);

struct Replies<'a> {
    links: &'a Links,
    queued: alloc::vec::Vec<Reply>,
}

impl Outbox for Replies<'_> {
    fn send(&mut self, to: NodeId, handler: HandlerId, payload: &[u8]) -> bool {
        if payload.len() > mapwire_wire::SHORT_BYTES || !self.links.has(to) {
            return false;
        }
        let mut bytes = [0; mapwire_wire::SHORT_BYTES];
        bytes[..payload.len()].copy_from_slice(payload);
        self.queued.push((to, handler, bytes, payload.len()));
        true
    }
}
