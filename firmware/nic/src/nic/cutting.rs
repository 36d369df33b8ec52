//! Long sends and served fetches, chunk by chunk. A chunk is cut only when it can be transmitted, so that all get their turn.
//!
//! Each page is translated once. Pages in consecutive frames stay in one chunk, up to the transport's longest payload; where a miss pins
//! pages, and between frames that are not consecutive, a chunk ends at the page boundary.

use mapwire_translation::{Frame, Lookup, PAGE_BYTES, Page, Pinning, Process, TranslationDesign};
use mapwire_wire::{NodeId, ProcessId, Refusal, Repr, Signal};

use super::Nic;
use crate::actions::Completion;
use crate::answers::{Answer, Serving, StoreRefusal};
use crate::error::CommandError;
use crate::pieces::Piece;
use crate::processes::{Long, Sending};
use crate::stalled::MAX_TRIES;
use crate::transmit::{Source, Work};

/// A piece of a transfer that fits in one packet, and what was found of the page behind it.
struct Chunk {
    piece: Piece,
    next: Next,
}

/// What was found of the page behind a chunk.
enum Next {
    Unknown,
    /// It is in this frame, which does not follow the chunk's.
    In(Frame),
    Lacks(Lack),
}

impl Next {
    fn frame(&self) -> Option<Frame> {
        match *self {
            Self::In(frame) => Some(frame),
            Self::Unknown | Self::Lacks(_) => None,
        }
    }
}

impl<D: TranslationDesign> Nic<D> {
    /// Queues the next chunk of a long send or of a fetch being served, the next fetch that waited, or the next refusal, if some
    /// node has room for it. Processes take turns, so do peers, and so do the two groups.
    #[inline]
    pub(crate) fn cut_next(&mut self) -> bool {
        if !self.processes.has_turns() && !self.answers.has_turns() {
            return false;
        }
        self.answers_first = !self.answers_first;
        (self.answers_first && self.answer_next()) || self.cut_command() || self.answer_next()
    }

    /// Queues as many packets of the long command of `process` as may be queued now. Returns whether none is left.
    pub fn cut_all(&mut self, process: ProcessId) -> bool {
        let has_long = |nic: &Self| {
            let state = nic.processes.get(process);
            state.is_some_and(|state| state.long().is_some())
        };
        while has_long(self) && self.cut_next() {}
        !has_long(self)
    }

    /// Whether the command of `process` with this completion word has failed, and that has not been reported yet.
    #[must_use]
    pub fn has_failed(&self, process: ProcessId, word: u32) -> bool {
        self.completions.iter().any(|completion| {
            matches!(
                *completion,
                Completion::Failed { process: of, completion: Some(failed), .. } if (of, failed) == (process, word)
            )
        })
    }

    fn cut_command(&mut self) -> bool {
        while let Some(cut) = self.try_cut() {
            if cut {
                return true;
            }
        }
        false
    }

    /// Cuts the command whose turn it is; false if it must wait for the host, `None` if there is none.
    fn try_cut(&mut self) -> Option<bool> {
        let next = self.processes.next_long(|long| match long {
            Long::Send(sending) => {
                // One page always fits in one packet.
                let alone = self.bytes_of_page(sending.to, sending.address, sending.remaining) == sending.remaining;
                self.outbound.can_cut(sending.to) && (sending.begun || alone || self.outbound.may_open(sending.to))
            }
            Long::Fetch(asking) => self.outbound.can_cut(asking.from) && self.may_ask(asking.from),
        });
        let process = next?;
        self.processes.served(process);
        let long = *self.processes.get(process)?.long()?;
        let Chunk { piece, next } = match &long {
            Long::Fetch(_) => Chunk { piece: Piece::EMPTY, next: Next::Unknown },
            Long::Send(cut) => match self.chunk(cut.to, process, (cut.address, cut.remaining), cut.ahead, Path::Send) {
                Ok(chunk) => chunk,
                Err(lack) => return Some(self.stop_cutting(process, lack)),
            },
        };
        let state = self.processes.get_mut(process);
        match state.and_then(|state| state.long_mut()) {
            Some(Long::Send(sending)) => {
                let cut = *sending;
                let length = u64::from(piece.length);
                let last = length == cut.remaining;
                sending.begun = true;
                sending.offset += length;
                sending.address += length;
                sending.remaining -= length;
                sending.ahead = next.frame();
                if last {
                    self.processes.end(process);
                }
                self.send_chunk(process, &cut, piece, last);
                if let Next::Lacks(lack) = next {
                    self.stop_cutting(process, lack);
                }
            }
            Some(Long::Fetch(asking)) => {
                let asking = *asking;
                self.processes.end(process);
                self.ask(process, &asking);
            }
            None => return None,
        }
        Some(true)
    }

    /// The next chunk of a long send has no translation. Returns whether that ends it; otherwise it waits for the host.
    fn stop_cutting(&mut self, process: ProcessId, lack: Lack) -> bool {
        match lack {
            Lack::Host => {
                self.stall_process(process);
                false
            }
            Lack::NotPinned { address } => {
                self.give_up(process, CommandError::NotPinned { address });
                true
            }
        }
    }

    fn send_chunk(&mut self, process: ProcessId, cut: &Sending, piece: Piece, last: bool) {
        match (cut.begun, last) {
            (false, false) => self.outbound.open_message(cut.to),
            (true, true) => self.outbound.close_message(cut.to),
            _ => {}
        }
        let signal = cut.signal.filter(|_| last);
        let store = Repr::Store {
            key: cut.key,
            export: cut.export,
            message: cut.message,
            offset: cut.offset,
            length: piece.length,
            last,
            notify: last && cut.notify,
            signal: signal.is_some(),
        };
        let source = Source::Memory { process, address: cut.address, piece, trailer: signal.map(Signal::to_bytes) };
        let work = if last {
            let completion = cut.completion;
            Work::Command { process, completion }
        } else {
            Work::None
        };
        self.outbound.push_from(cut.to, &store, source, work);
    }

    fn answer_next(&mut self) -> bool {
        while let Some(answered) = self.try_answer() {
            if answered {
                return true;
            }
        }
        false
    }

    /// Queues the next answer that is owed; false if it must wait for the host, `None` if there is none.
    fn try_answer(&mut self) -> Option<bool> {
        let outbound = &self.outbound;
        let ready = |index: usize| outbound.can_cut(NodeId(index as u16));
        let index = self.answers.next(ready)?;
        let to = NodeId(index as u16);
        match self.answers.take(index) {
            Some(Answer::Refuse(StoreRefusal { message, export, reason, offset, length, count })) => {
                let refusal = Repr::StoreRefused { message, export, reason, offset, length, count };
                self.outbound.push_plain(to, &refusal);
                Some(true)
            }
            Some(Answer::Serve(serving)) => {
                let served = self.serve_chunk(to, serving);
                if !served {
                    self.answers.put_back(index, Serving { tries: serving.tries.saturating_add(1), ..serving });
                    self.stall_peer(index);
                }
                Some(served)
            }
            None => None,
        }
    }

    /// Answers a flush: everything that the peer sent before it has been handled, and refusals of that have been reported.
    fn answer_flush(&mut self, to: NodeId, flush: Serving) {
        let Serving { reply_key, fetch, .. } = flush;
        let answer = if self.answers.take_untold(to) {
            Repr::FetchRefused { reply_key, fetch, reason: Refusal::Busy }
        } else {
            Repr::FetchReply { reply_key, fetch, offset: 0, length: 0, last: true }
        };
        self.outbound.push_plain(to, &answer);
    }

    /// Queues the next chunk of a fetch; false if it must wait for the host.
    fn serve_chunk(&mut self, to: NodeId, cut: Serving) -> bool {
        if let Some(value) = cut.value {
            let reply = Repr::FetchReply {
                reply_key: cut.reply_key,
                fetch: cut.fetch,
                offset: 0,
                length: cut.remaining as u32,
                last: true,
            };
            let bytes = value.to_le_bytes();
            self.outbound.push_inline(to, &reply, &bytes[..cut.remaining as usize]);
            self.counters.atomics_served += 1;
            return true;
        }
        if cut.remaining == 0 && cut.refused.is_none() {
            self.answer_flush(to, cut);
            return true;
        }
        let gone = self.exports.get(cut.export.0).is_none();
        let refused = cut.refused.or(gone.then_some(Refusal::Revoked));
        if let Some(reason) = refused {
            let refusal = Repr::FetchRefused { reply_key: cut.reply_key, fetch: cut.fetch, reason };
            self.outbound.push_plain(to, &refusal);
            return true;
        }
        if self.pinned_late.contains(&cut.export) {
            let most = cut.remaining.min(self.chunk_bytes_to(to) as u64);
            match self.ask_for_pages(cut.process, cut.address, most) {
                Err(_) if cut.tries < MAX_TRIES => return false,
                Err(_) => return self.serve_chunk(to, Serving { refused: Some(Refusal::Busy), ..cut }),
                Ok(()) => {}
            }
        }
        let found = self.chunk(to, cut.process, (cut.address, cut.remaining), cut.ahead, Path::Receive);
        let Chunk { piece, next } = match found {
            Ok(chunk) => chunk,
            Err(Lack::Host) => return false,
            Err(Lack::NotPinned { .. }) => {
                let refused = Some(Refusal::Busy);
                return self.serve_chunk(to, Serving { refused, ..cut });
            }
        };
        let length = u64::from(piece.length);
        let last = length == cut.remaining;
        if last {
            self.counters.fetches_served += 1;
        } else {
            let rest = Serving {
                address: cut.address + length,
                remaining: cut.remaining - length,
                sent: cut.sent + length,
                ahead: next.frame(),
                tries: 0,
                refused: matches!(next, Next::Lacks(Lack::NotPinned { .. })).then_some(Refusal::Busy),
                ..cut
            };
            // It was taken out a moment ago, so there is room.
            self.answers.serve(to, rest);
            if matches!(next, Next::Lacks(Lack::Host)) {
                self.stall_peer(usize::from(to.0));
            }
        }
        let reply = Repr::FetchReply {
            reply_key: cut.reply_key,
            fetch: cut.fetch,
            offset: cut.sent,
            length: piece.length,
            last,
        };
        let source = Source::Memory { process: cut.process, address: cut.address, piece, trailer: None };
        let work = Work::Reply { export: cut.export };
        self.outbound.push_from(to, &reply, source, work);
        true
    }

    /// Translates `length` bytes at `address`, which lie within one page.
    #[inline(always)]
    pub(crate) fn translate(
        &mut self,
        process: ProcessId,
        address: u64,
        length: u32,
        path: Path,
    ) -> Result<Piece, Lack> {
        match self.find(process, address, length, path) {
            Ok(frame) => Ok(Piece { frame, offset: (address % PAGE_BYTES as u64) as u32, length }),
            Err(Unfound::Host) => Err(Lack::Host),
            Err(Unfound::NotPinned) => {
                let address = Page::containing(address).address();
                Err(Lack::NotPinned { address })
            }
        }
    }

    /// The frame of the `length` bytes at `address`. The result fits registers.
    #[inline]
    fn find(&mut self, process: ProcessId, address: u64, length: u32, path: Path) -> Result<Frame, Unfound> {
        let (owner, page) = (Process(process.0), Page::containing(address));
        if self.stalled.has_found()
            && let Some(frame) = self.found_before(owner, page)
        {
            return Ok(frame);
        }
        let lookup = match path {
            Path::Send | Path::Fetch => self.translation.lookup(owner, page),
            Path::Receive => self.translation.lookup_receive(owner, page),
        };
        let frame = match lookup {
            Lookup::Hit(frame) | Lookup::Miss(frame) => frame,
            Lookup::Host(request) => {
                self.stalled.ask(request);
                if self.stalled.is_crowded() {
                    self.stalled.note_found(owner, page);
                }
                return Err(Unfound::Host);
            }
        };
        if frame.is_garbage() {
            self.counters.garbage_pieces += 1;
            if self.pins_on_miss(path) {
                return Err(Unfound::NotPinned);
            }
        }
        if self.traced.is_some() {
            self.trace(process, address, length, path);
        }
        Ok(frame)
    }

    /// The frame of a page that was found for a packet which then lacked another, if it is still valid.
    #[cold]
    fn found_before(&mut self, owner: Process, page: Page) -> Option<Frame> {
        if !self.stalled.take_found(owner, page) {
            return None;
        }
        let frame = self.translation.installed(owner, page);
        (!frame.is_garbage()).then_some(frame)
    }

    /// Whether the host has tried to pin what is looked up, so that the garbage frame means that it could not.
    #[cold]
    fn pins_on_miss(&self, path: Path) -> bool {
        let pinning = match path {
            Path::Send | Path::Fetch => self.translation.pinning(),
            Path::Receive => self.translation.pinning_receive(),
        };
        pinning == Pinning::OnMiss
    }

    /// The next chunk of a transfer to `to`, of which `remaining` bytes from `address` on are left: pages in consecutive frames,
    /// as many as a packet carries, or a part of one or two if it carries less than a page. Each page is looked up once: `ahead`
    /// is what the last chunk found of the first.
    #[inline]
    fn chunk(
        &mut self,
        to: NodeId,
        process: ProcessId,
        (address, remaining): (u64, u64),
        ahead: Option<Frame>,
        path: Path,
    ) -> Result<Chunk, Lack> {
        let length = self.bytes_of_page(to, address, remaining) as u32;
        let mut piece = match ahead {
            None => self.translate(process, address, length, path)?,
            Some(frame) => Piece { frame, offset: (address % PAGE_BYTES as u64) as u32, length },
        };
        let carried = self.chunk_bytes_to(to);
        let most = remaining.min(match (carried - carried % PAGE_BYTES) as u64 {
            0 => carried as u64,
            pages_bytes => pages_bytes.saturating_sub(u64::from(piece.offset)),
        });
        let mut next = Next::Unknown;
        while u64::from(piece.length) < most {
            let page = address + u64::from(piece.length);
            let length = (most - u64::from(piece.length)).min(PAGE_BYTES as u64) as u32;
            next = match self.translate(process, page, length, path) {
                Ok(following) if piece.extend(&following) => continue,
                Ok(following) => Next::In(following.frame),
                Err(lack) => Next::Lacks(lack),
            };
            break;
        }
        Ok(Chunk { piece, next })
    }

    /// Longest piece of a transfer in one packet to `to`, in bytes.
    #[inline]
    fn chunk_bytes_to(&self, to: NodeId) -> usize {
        self.chunk_bytes.min(self.outbound.most_bytes(to))
    }

    /// Bytes of a transfer to `to` up to the next page boundary (VMMC §4.5), as many as a packet carries.
    #[inline]
    fn bytes_of_page(&self, to: NodeId, address: u64, remaining: u64) -> u64 {
        remaining.min(PAGE_BYTES as u64 - address % PAGE_BYTES as u64).min(self.chunk_bytes_to(to) as u64)
    }

    /// Translates the payload of a packet, `length` bytes from `address` on, into `scattered`: a piece for each run of
    /// consecutive frames (VMMC §4.5: two at most, since its packets are no longer than a page).
    #[inline]
    pub(crate) fn scatter(&mut self, process: ProcessId, address: u64, length: u32, path: Path) -> Result<(), Lack> {
        self.scattered.clear();
        let to_boundary = (PAGE_BYTES as u64 - address % PAGE_BYTES as u64) as u32;
        if length > 0 {
            let first = self.translate(process, address, length.min(to_boundary), path)?;
            self.scattered.push(first);
        }
        if length > to_boundary {
            self.scatter_rest(process, address, length, to_boundary, path)?;
        }
        Ok(())
    }

    /// Translates the pages behind the first, of which `done` bytes are scattered.
    #[inline(never)]
    fn scatter_rest(
        &mut self,
        process: ProcessId,
        address: u64,
        length: u32,
        mut done: u32,
        path: Path,
    ) -> Result<(), Lack> {
        while done < length {
            let page = address + u64::from(done);
            let part = (length - done).min(PAGE_BYTES as u32);
            let found = self.translate(process, page, part, path);
            if found == Err(Lack::Host) {
                self.note_found(process, address, done);
            }
            let found = found?;
            let extends = self.scattered.last_mut().is_some_and(|last| last.extend(&found));
            if !extends {
                self.scattered.push(found);
            }
            done += part;
        }
        Ok(())
    }

    /// Notes the pages of a packet that lacks another: they are not looked up again when it is retried.
    #[cold]
    pub(crate) fn note_found(&mut self, process: ProcessId, address: u64, length: u32) {
        if length == 0 {
            return;
        }
        let last = Page::containing(address + u64::from(length) - 1);
        let mut page = Page::containing(address);
        while page <= last {
            self.stalled.note_found(Process(process.0), page);
            page = page.next();
        }
    }
}

/// As [`Lack`], for a page that the caller knows.
#[derive(Clone, Copy)]
enum Unfound {
    Host,
    NotPinned,
}

/// Why a page has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The host must act first, and has been asked to.
    Host,
    /// The host has tried, and could not pin it.
    NotPinned {
        /// First address of the page.
        address: u64,
    },
}

/// Use of the memory that a lookup is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Source of a send.
    Send,
    /// Destination of a fetch.
    Fetch,
    /// Memory of an export.
    Receive,
}
