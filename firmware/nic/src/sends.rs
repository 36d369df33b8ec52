//! The send path: commands in, chunks out.

use mapwire_translation::{PAGE_BYTES, Page, Process, TranslationDesign};
use mapwire_wire::{
    CommandHeader, CommandRepr, FetchId, HandlerId, Header, INLINE_BYTES, ImportId, NodeId,
    ProcessId, Repr, Rights, SIGNAL_TRAILER_BYTES, Signal,
};

use crate::actions::Completion;
use crate::error::CommandError;
use crate::fetches::{Fetch, MAX_FETCHES};
use crate::nic::Nic;
use crate::pieces::Piece;
use crate::processes::Sending;
use crate::transmit::{Source, Transmit};

/// What a store carries besides its data.
#[derive(Clone, Copy)]
struct Tail {
    notify: bool,
    signal: Option<Signal>,
}

impl<D: TranslationDesign> Nic<D> {
    /// Whether the next command of `process` can be taken: its long send is cut to the end, and the node that it sent to
    /// last has room. A command that is not taken stays in its queue; other processes are not held up.
    #[inline]
    #[must_use]
    pub fn accepts_command(&self, process: ProcessId) -> bool {
        match self.process(process) {
            Some(state) => {
                state.sending.is_none() && state.last_to.is_none_or(|to| self.links.has_room(to))
            }
            None => false,
        }
    }

    /// Takes the next command of a process's queue. `inline` is the part of the queue entry behind the header; both were
    /// copied out of the queue once, and are checked here, since the process may write anything into it. A refused command
    /// yields [`Completion::Failed`] and changes nothing.
    #[inline]
    pub fn handle_command(&mut self, process: ProcessId, header: &CommandHeader, inline: &[u8]) {
        let (completion, outcome) = match CommandRepr::parse(header, inline) {
            Err(error) => (None, Err(CommandError::Malformed(error))),
            Ok(CommandRepr::ShortSend {
                import,
                offset,
                length,
                notify,
                signal,
            }) => {
                let tail = Tail { notify, signal };
                (
                    None,
                    self.short_send(process, import, offset, &inline[..length as usize], tail),
                )
            }
            Ok(CommandRepr::Handler {
                to,
                handler,
                length,
            }) => (
                None,
                self.send_to_handler(process, to, handler, &inline[..length as usize]),
            ),
            Ok(CommandRepr::LongSend {
                import,
                offset,
                address,
                length,
                notify,
                signal,
                completion,
            }) => (
                Some(completion),
                self.long_send(
                    process, import, offset, address, length, completion, notify, signal,
                ),
            ),
            Ok(CommandRepr::Fetch {
                import,
                offset,
                address,
                length,
                completion,
            }) => (
                Some(completion),
                self.fetch(process, import, offset, address, length, completion),
            ),
        };
        match outcome {
            Ok(()) => self.counters.commands += 1,
            Err(error) => {
                self.counters.failed_commands += 1;
                self.completions.push_back(Completion::Failed {
                    process,
                    completion,
                    error,
                });
            }
        }
    }

    #[inline]
    fn short_send(
        &mut self,
        process: ProcessId,
        import_id: ImportId,
        offset: u64,
        data: &[u8],
        tail: Tail,
    ) -> Result<(), CommandError> {
        let import =
            *self
                .imports
                .check(process, import_id, Rights::STORE, offset, data.len() as u64)?;
        if let Some(signal) = tail.signal {
            self.check_signal(process, import_id, signal)?;
        }
        let state = self
            .process_mut(process)
            .ok_or(CommandError::UnknownImport(import_id))?;
        let message = state.number_message();
        state.last_to = Some(import.node);
        let mut bytes = [0; INLINE_BYTES];
        let mut length = data.len();
        bytes[..length].copy_from_slice(data);
        if let Some(signal) = tail.signal {
            bytes[length..length + SIGNAL_TRAILER_BYTES].copy_from_slice(&signal.to_bytes());
            length += SIGNAL_TRAILER_BYTES;
        }
        let store = Repr::Store {
            key: import.key,
            export: import.export,
            message,
            offset,
            // A short send's length fits: it came from a slice of at most `INLINE_BYTES`.
            length: data.len() as u32,
            last: true,
            notify: tail.notify,
            signal: tail.signal.is_some(),
        };
        let header = self.header_for(import.node, &store);
        let source = Source::Inline {
            bytes,
            length: length as u8,
        };
        self.links.push(Transmit {
            to: import.node,
            header,
            source,
            done: None,
        });
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn long_send(
        &mut self,
        process: ProcessId,
        import_id: ImportId,
        offset: u64,
        address: u64,
        length: u64,
        completion: u32,
        notify: bool,
        signal: Option<Signal>,
    ) -> Result<(), CommandError> {
        let import = *self
            .imports
            .check(process, import_id, Rights::STORE, offset, length)?;
        if let Some(signal) = signal {
            self.check_signal(process, import_id, signal)?;
        }
        let state = self
            .process_mut(process)
            .ok_or(CommandError::UnknownImport(import_id))?;
        let message = state.number_message();
        state.last_to = Some(import.node);
        state.sending = Some(Sending {
            to: import.node,
            export: import.export,
            key: import.key,
            message,
            offset,
            address,
            remaining: length,
            notify,
            signal,
            completion,
        });
        self.cutting += 1;
        Ok(())
    }

    fn check_signal(
        &self,
        process: ProcessId,
        import: ImportId,
        signal: Signal,
    ) -> Result<(), CommandError> {
        if signal.offset % Signal::WORD_BYTES != 0 {
            return Err(CommandError::UnalignedSignal(signal.offset));
        }
        self.imports
            .check(
                process,
                import,
                Rights::STORE,
                signal.offset,
                Signal::WORD_BYTES,
            )
            .map(drop)
    }

    fn fetch(
        &mut self,
        process: ProcessId,
        import_id: ImportId,
        offset: u64,
        address: u64,
        length: u64,
        completion: u32,
    ) -> Result<(), CommandError> {
        let import = *self
            .imports
            .check(process, import_id, Rights::FETCH, offset, length)?;
        if self.fetches.asked.len() >= MAX_FETCHES {
            return Err(CommandError::TooManyFetches(MAX_FETCHES));
        }
        let state = self
            .process_mut(process)
            .ok_or(CommandError::UnknownImport(import_id))?;
        state.last_to = Some(import.node);
        let fetch = Fetch {
            process,
            from: import.node,
            address,
            length,
            received: 0,
            completion,
        };
        let id = self
            .fetches
            .asked
            .insert(fetch)
            .ok_or(CommandError::TooManyFetches(MAX_FETCHES))?;
        let request = Repr::FetchRequest {
            key: import.key,
            export: import.export,
            fetch: FetchId(id),
            offset,
            want_bytes: length,
            reply_key: self.fetches.reply_keys[usize::from(import.node.0)],
        };
        self.emit_inline(import.node, &request);
        Ok(())
    }

    fn send_to_handler(
        &mut self,
        process: ProcessId,
        to: NodeId,
        handler: HandlerId,
        payload: &[u8],
    ) -> Result<(), CommandError> {
        if !self.links.has(to) {
            return Err(CommandError::UnknownNode(to));
        }
        if let Some(state) = self.process_mut(process) {
            state.last_to = Some(to);
        }
        self.push_handler(to, handler, payload);
        Ok(())
    }

    /// Sends a message of a service of this node's host to a handler of node `to`; false when it is longer than
    /// [`mapwire_wire::SHORT_BYTES`] or there is no such node.
    #[inline]
    pub fn send_message(&mut self, to: NodeId, handler: HandlerId, payload: &[u8]) -> bool {
        if payload.len() > mapwire_wire::SHORT_BYTES || !self.links.has(to) {
            return false;
        }
        self.push_handler(to, handler, payload);
        true
    }

    /// Queues a packet for a handler of node `to`, which exists; `payload` is at most [`INLINE_BYTES`].
    #[inline]
    pub(crate) fn push_handler(&mut self, to: NodeId, handler: HandlerId, payload: &[u8]) {
        let repr = Repr::Handler {
            handler,
            length: payload.len() as u32,
        };
        let header = self.header_for(to, &repr);
        let source = Source::inline(payload);
        self.links.push(Transmit {
            to,
            header,
            source,
            done: None,
        });
    }

    /// Queues a control message of the service above; false when it is too long or there is no such node.
    pub fn send_control(&mut self, to: NodeId, message: &[u8]) -> bool {
        if !self.links.has(to) || message.len() > mapwire_wire::MAX_CONTROL_BYTES {
            return false;
        }
        let repr = Repr::Control {
            length: message.len() as u32,
        };
        let header = self.header_for(to, &repr);
        let source = if message.len() <= INLINE_BYTES {
            Source::inline(message)
        } else {
            Source::Control(message.into())
        };
        self.links.push(Transmit {
            to,
            header,
            source,
            done: None,
        });
        true
    }

    /// Cuts the next chunk of a long send or a fetch that is being served, if some node has room for one. Processes and
    /// peers take turns.
    pub(crate) fn cut_next_chunk(&mut self) -> bool {
        if self.cutting > 0 {
            let processes = self.processes.len();
            for step in 0..processes {
                let index = (self.next_process + step) % processes;
                let ready = self.processes[index]
                    .sending
                    .is_some_and(|sending| self.links.has_room(sending.to));
                if ready {
                    self.next_process = (index + 1) % processes;
                    self.cut_send(index);
                    return true;
                }
            }
        }
        self.fetches.serving_count > 0 && self.cut_reply()
    }

    fn cut_send(&mut self, index: usize) {
        let process = self.processes[index].id;
        let Some(sending) = self.processes[index].sending.as_mut() else {
            return;
        };
        let cut = *sending;
        let length = chunk_length(cut.address, cut.remaining);
        let last = u64::from(length) == cut.remaining;
        if last {
            self.processes[index].sending = None;
            self.cutting -= 1;
        } else {
            sending.offset += u64::from(length);
            sending.address += u64::from(length);
            sending.remaining -= u64::from(length);
        }
        let piece = self.source_piece(process, cut.address, length);
        let signal = if last { cut.signal } else { None };
        let store = Repr::Store {
            key: cut.key,
            export: cut.export,
            message: cut.message,
            offset: cut.offset,
            length,
            last,
            notify: cut.notify,
            signal: signal.is_some(),
        };
        let header = self.header_for(cut.to, &store);
        let source = Source::Memory {
            process,
            piece,
            trailer: signal.map(Signal::to_bytes),
        };
        let done = last.then_some((process, cut.completion));
        self.links.push(Transmit {
            to: cut.to,
            header,
            source,
            done,
        });
    }

    fn cut_reply(&mut self) -> bool {
        for index in 0..self.fetches.serving.len() {
            let to = NodeId(index as u16);
            if !self.links.has_room(to) {
                continue;
            }
            let Some(front) = self.fetches.serving[index].front_mut() else {
                continue;
            };
            let cut = *front;
            let length = chunk_length(cut.address, cut.remaining);
            let last = u64::from(length) == cut.remaining;
            let revoked = self.exports.0.get(cut.export).is_none();
            if last || revoked {
                self.fetches.serving[index].pop_front();
                self.fetches.serving_count -= 1;
            } else {
                front.address += u64::from(length);
                front.remaining -= u64::from(length);
                front.sent += u64::from(length);
            }
            if revoked {
                let reason = mapwire_wire::Refusal::Revoked;
                let refusal = Repr::FetchRefused {
                    reply_key: cut.reply_key,
                    fetch: cut.fetch,
                    reason,
                };
                self.emit_inline(to, &refusal);
                return true;
            }
            if last {
                self.counters.fetches_served += 1;
            }
            let piece = self.source_piece(cut.process, cut.address, length);
            let reply = Repr::FetchReply {
                reply_key: cut.reply_key,
                fetch: cut.fetch,
                offset: cut.sent,
                length,
                last,
            };
            let header = self.header_for(to, &reply);
            let source = Source::Memory {
                process: cut.process,
                piece,
                trailer: None,
            };
            self.links.push(Transmit {
                to,
                header,
                source,
                done: None,
            });
            return true;
        }
        false
    }

    /// Translates `length` bytes at `address`, which lie within one page.
    #[inline]
    pub(crate) fn source_piece(&mut self, process: ProcessId, address: u64, length: u32) -> Piece {
        let lookup = self
            .translation
            .lookup(Process(process.0), Page::containing(address));
        if lookup.frame.is_garbage() {
            self.counters.garbage_pieces += 1;
        }
        Piece {
            frame: lookup.frame,
            offset: (address % PAGE_BYTES as u64) as u32,
            length,
        }
    }

    /// Queues a packet whose payload, if any, is part of its representation.
    pub(crate) fn emit_inline(&mut self, to: NodeId, repr: &Repr) {
        let (sequence, ack) = self.links.number(to);
        let (header, payload) = repr.emit(sequence, ack);
        let source = Source::inline(&payload);
        self.links.push(Transmit {
            to,
            header,
            source,
            done: None,
        });
    }

    /// The header of a packet whose payload comes from elsewhere.
    #[inline]
    fn header_for(&mut self, to: NodeId, repr: &Repr) -> Header {
        let (sequence, ack) = self.links.number(to);
        repr.emit(sequence, ack).0
    }
}

/// Bytes of the next chunk: up to the next page boundary of the source (VMMC §4.5).
#[inline]
fn chunk_length(address: u64, remaining: u64) -> u32 {
    let to_boundary = PAGE_BYTES as u64 - address % PAGE_BYTES as u64;
    // At most a page.
    remaining.min(to_boundary) as u32
}
