//! Commands of processes, and messages of the host.

use mapwire_translation::TranslationDesign;
use mapwire_wire::{
    Atomic, CommandHeader, CommandKind, CommandRepr, Endpoint, ExportId, FetchId, HandlerId, ImportId, Key, MessageId,
    NodeId, ProcessId, Refusal, Repr, Rights, Signal, WireError,
};

use super::Nic;
use crate::actions::Completion;
use crate::error::CommandError;
use crate::fetches::{Fate, Fetch};
use crate::imports::RefusedStore;
use crate::outbound::{HOST_LIMIT, REQUEST_LIMIT};
use crate::processes::{Asking, Long, Sending};

impl<D: TranslationDesign> Nic<D> {
    /// Whether the next command of `process` can be taken: its long send is fully cut, its fetch is requested, and the
    /// destination of its last command has room. A command that is not taken stays in its queue; other processes are not held up.
    #[inline]
    #[must_use]
    pub fn accepts_command(&self, process: ProcessId) -> bool {
        match self.processes.get(process) {
            Some(state) => state.long().is_none() && state.last_to().is_none_or(|to| self.outbound.has_room(to)),
            None => false,
        }
    }

    /// Takes the next command of a process's queue, if [`accepts_command`](Self::accepts_command). `inline` is the part of the
    /// queue entry behind the header; both were copied out of the queue once, and are checked here, since the process may write
    /// anything into it. A refused command yields [`Completion::Failed`] and changes nothing.
    #[inline]
    pub fn handle_command(&mut self, process: ProcessId, header: &CommandHeader, inline: &[u8]) {
        let outcome = CommandRepr::parse(header, inline)
            .map_err(CommandError::Malformed)
            .and_then(|command| self.carry_out(process, &command, inline));
        if let Err(error) = outcome {
            // Even a malformed command may have a word that somebody watches; the word is the process's own.
            let has_word = matches!(
                CommandKind::from_code(header.kind),
                Some(CommandKind::LongSend | CommandKind::Fetch | CommandKind::Atomic)
            );
            let completion = has_word.then_some(header.completion.get());
            self.fail_command(process, completion, error);
        }
    }

    /// Takes a command that the driver's own thread has just made, if [`accepts_command`](Self::accepts_command): the same as
    /// [`handle_command`](Self::handle_command), without writing it to a queue and reading it back. `inline` is what would follow
    /// its header: its data, then its signal.
    #[inline]
    pub fn handle_own_command(&mut self, process: ProcessId, command: &CommandRepr, inline: &[u8]) {
        let outcome = command
            .check()
            .and_then(|()| {
                let (needed, found) = (command.inline_bytes(), inline.len());
                if found == needed {
                    Ok(())
                } else {
                    let (expected_bytes, found_bytes) = (needed as u64, found as u64);
                    Err(WireError::Length { field: "command inline bytes", expected_bytes, found_bytes })
                }
            })
            .map_err(CommandError::Malformed)
            .and_then(|()| self.carry_out(process, command, inline));
        if let Err(error) = outcome {
            let completion = match *command {
                CommandRepr::LongSend { completion, .. }
                | CommandRepr::Fetch { completion, .. }
                | CommandRepr::Atomic { completion, .. } => Some(completion),
                CommandRepr::ShortSend { .. } | CommandRepr::Handler { .. } => None,
            };
            self.fail_command(process, completion, error);
        }
    }

    #[cold]
    fn fail_command(&mut self, process: ProcessId, completion: Option<u32>, error: CommandError) {
        self.counters.failed_commands += 1;
        self.completions.push_back(Completion::Failed { process, completion, error, sent_bytes: 0 });
    }

    #[inline]
    fn carry_out(&mut self, process: ProcessId, command: &CommandRepr, inline: &[u8]) -> Result<(), CommandError> {
        match self.processes.get(process) {
            Some(state) if state.long().is_none() => {}
            Some(_) => return Err(CommandError::NotAccepted),
            None => return Err(CommandError::NotOpen(process)),
        }
        self.begin(process, command, inline)?;
        self.counters.commands += 1;
        Ok(())
    }

    #[inline]
    fn begin(&mut self, process: ProcessId, command: &CommandRepr, inline: &[u8]) -> Result<(), CommandError> {
        match *command {
            CommandRepr::ShortSend { import, offset, length, notify, signal } => {
                // The inline bytes of a short send are the payload of its packet as they stand.
                let payload = &inline[..command.inline_bytes()];
                self.short_send(process, import, offset, length, notify, signal, payload)
                    .inspect_err(|error| self.note_unsent(process, import, offset, length, *error))
            }
            CommandRepr::Handler { to, handler, .. } => {
                self.send_to_handler(process, to, handler, command.data(inline))
            }
            CommandRepr::LongSend { import, offset, address, length, notify, signal, completion } => self
                .long_send(process, import, offset, address, length, notify, signal, completion)
                .inspect_err(|error| self.note_lost(*error)),
            CommandRepr::Fetch { import, offset, address, length, completion } => {
                // A flush reads nothing, and may be asked of a revoked export too.
                let right = (length > 0).then_some(Rights::FETCH);
                let place = (import, offset, length);
                self.fetch(process, place, right, None, address, completion)
            }
            CommandRepr::Atomic { import, offset, address, atomic, completion } => {
                let place = (import, offset, atomic.width.bytes());
                let right = Some(Rights::ALL);
                self.fetch(process, place, right, Some(atomic), address, completion)
            }
        }
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn short_send(
        &mut self,
        process: ProcessId,
        import: ImportId,
        offset: u64,
        length: u32,
        notify: bool,
        signal: Option<Signal>,
        payload: &[u8],
    ) -> Result<(), CommandError> {
        let import = self.imports.check(process, import, Rights::STORE)?;
        import.check_range(offset, u64::from(length))?;
        if let Some(signal) = signal {
            import.check_signal(signal)?;
        }
        let to = import.node;
        if !self.outbound.is_up(to) {
            return Err(CommandError::PeerGone(to));
        }
        let store = Repr::Store {
            key: import.key,
            export: import.export,
            message: self.next_message,
            offset,
            length,
            last: true,
            notify,
            signal: signal.is_some(),
        };
        self.outbound.push_inline(to, &store, payload);
        self.next_message = MessageId(self.next_message.0.wrapping_add(1));
        self.note_destination(process, to);
        Ok(())
    }

    /// Notes a short send that is dropped here: its process learns of it by a flush only.
    #[cold]
    fn note_unsent(&mut self, process: ProcessId, import: ImportId, offset: u64, length: u32, error: CommandError) {
        self.note_lost(error);
        let store = RefusedStore {
            offset,
            length: u64::from(length),
            reason: match error {
                CommandError::Revoked(_) => Refusal::Revoked,
                CommandError::NoRight { .. } => Refusal::NoRight,
                _ => Refusal::OutOfRange,
            },
        };
        if self.imports.of_process(process, import).is_ok()
            && let Some(import) = self.imports.get_mut(import.0)
        {
            import.refused.note_unsent(store);
        }
    }

    /// Notes a send that is dropped here because its peer has gone.
    #[cold]
    fn note_lost(&mut self, error: CommandError) {
        if let CommandError::PeerGone(node) = error {
            self.outbound.note_lost_store(node);
        }
    }

    #[inline]
    fn note_destination(&mut self, process: ProcessId, to: NodeId) {
        if let Some(state) = self.processes.get_mut(process) {
            state.set_last_to(to);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn long_send(
        &mut self,
        process: ProcessId,
        import_id: ImportId,
        offset: u64,
        address: u64,
        length: u64,
        notify: bool,
        signal: Option<Signal>,
        completion: u32,
    ) -> Result<(), CommandError> {
        let import = self.imports.check(process, import_id, Rights::STORE)?;
        import.check_range(offset, length)?;
        if let Some(signal) = signal {
            import.check_signal(signal)?;
        }
        let to = import.node;
        if !self.outbound.is_up(to) {
            return Err(CommandError::PeerGone(to));
        }
        let sending = Sending {
            to,
            import: import_id,
            export: import.export,
            key: import.key,
            message: self.next_message,
            offset,
            address,
            remaining: length,
            length,
            ahead: None,
            begun: false,
            notify,
            signal,
            completion,
        };
        self.next_message = MessageId(self.next_message.0.wrapping_add(1));
        self.note_destination(process, to);
        self.processes.begin(process, Long::Send(sending));
        Ok(())
    }

    fn fetch(
        &mut self,
        process: ProcessId,
        (import_id, offset, length): (ImportId, u64, u64),
        right: Option<Rights>,
        atomic: Option<Atomic>,
        address: u64,
        completion: u32,
    ) -> Result<(), CommandError> {
        let import = match right {
            None => self.imports.of_process(process, import_id)?,
            Some(right) => self.imports.check(process, import_id, right)?,
        };
        import.check_range(offset, length)?;
        let from = import.node;
        if !self.outbound.is_up(from) {
            return Err(CommandError::PeerGone(from));
        }
        let asking = Asking {
            from,
            import: import_id,
            export: import.export,
            key: import.key,
            offset,
            address,
            length,
            atomic,
            completion,
        };
        self.note_destination(process, from);
        if self.may_ask(from) {
            self.ask(process, &asking);
        } else {
            self.processes.begin(process, Long::Fetch(asking));
        }
        Ok(())
    }

    /// Whether another fetch from `node` may be requested now.
    pub(crate) fn may_ask(&self, node: NodeId) -> bool {
        self.fetches.has_room() && self.outbound.may_fetch(node)
    }

    /// Requests a fetch; [`may_ask`](Self::may_ask) must allow it.
    pub(crate) fn ask(&mut self, process: ProcessId, asking: &Asking) {
        let fetch = Fetch {
            process,
            from: asking.from,
            address: asking.address,
            length: asking.length,
            received: 0,
            moving: 0,
            fate: Fate::Wanted,
            completion: asking.completion,
        };
        // The table holds more than `may_ask` allows.
        let Some(id) = self.fetches.insert(fetch) else {
            return;
        };
        self.outbound.begin_fetch(asking.from);
        let reply_key = self.reply_keys[usize::from(asking.from.0)];
        let request = match asking.atomic {
            None => Repr::FetchRequest {
                key: asking.key,
                export: asking.export,
                fetch: FetchId(id),
                offset: asking.offset,
                want_bytes: asking.length,
                reply_key,
            },
            Some(atomic) => Repr::Atomic {
                key: asking.key,
                export: asking.export,
                fetch: FetchId(id),
                offset: asking.offset,
                atomic,
                reply_key,
            },
        };
        self.outbound.push_plain(asking.from, &request);
    }

    fn send_to_handler(
        &mut self,
        process: ProcessId,
        to: Endpoint,
        handler: HandlerId,
        payload: &[u8],
    ) -> Result<(), CommandError> {
        let node = to.node;
        if !self.outbound.has(node) {
            return Err(CommandError::UnknownNode(node));
        }
        if !self.outbound.is_up(node) {
            return Err(CommandError::PeerGone(node));
        }
        self.note_destination(process, node);
        self.outbound.push_message(process, to, handler, payload);
        Ok(())
    }

    /// Sends a message of a service of process `from` to a handler of process `to`. False if it is longer than
    /// [`max_message_bytes`](Self::max_message_bytes), if the node does not exist or is gone, or if 8,192 packets wait for it
    /// already.
    #[inline]
    pub fn send_message(&mut self, from: ProcessId, to: Endpoint, handler: HandlerId, payload: &[u8]) -> bool {
        if payload.len() > self.max_message_bytes() || !self.may_send(to.node) {
            return false;
        }
        self.outbound.push_message(from, to, handler, payload);
        true
    }

    /// Longest message of a service, in bytes: what a packet of the transport carries besides a signal, but no more than a page
    /// if a miss pins pages. At least [`mapwire_wire::MAX_CONTROL_BYTES`].
    #[must_use]
    pub const fn max_message_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Whether so little waits for a node that a request may join it. The rest of the room is for urgent packets, and a node that
    /// returns to its packets then finds few requests that have been given up. Also true of a node that is gone.
    #[must_use]
    pub fn has_room_for_requests(&self, to: NodeId) -> bool {
        self.outbound.waiting_for(to) < REQUEST_LIMIT
    }

    #[inline]
    fn may_send(&self, to: NodeId) -> bool {
        self.outbound.is_up(to) && self.outbound.waiting_for(to) < HOST_LIMIT
    }

    /// Queues an empty last packet of an abandoned message, without notification.
    pub(crate) fn close_message(&mut self, to: NodeId, key: Key, export: ExportId, message: MessageId, offset: u64) {
        let store = Repr::Store { key, export, message, offset, length: 0, last: true, notify: false, signal: false };
        self.outbound.push_inline(to, &store, &[]);
        self.outbound.close_message(to);
    }
}
