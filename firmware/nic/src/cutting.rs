//! Long sends and served fetches, chunk by chunk. A chunk is cut when it can be transmitted, not before, so that nothing waits in a
//! queue for longer than it must and all get their turn.

use mapwire_translation::{Frame, Lookup, PAGE_BYTES, Page, Pinning, Process, TranslationDesign};
use mapwire_wire::{NodeId, ProcessId, Refusal, Repr, Signal};

use crate::answers::{Answer, Serving, StoreRefusal};
use crate::error::CommandError;
use crate::nic::Nic;
use crate::pieces::{Piece, Pieces};
use crate::processes::{Long, Sending};
use crate::transmit::{Source, Work};

impl<D: TranslationDesign> Nic<D> {
    /// Queues the next chunk of a long send or of a fetch that is being served, the next fetch that waited, or the next refusal, if
    /// some node has room for it. Processes take turns, so do peers, and so do the two.
    #[inline]
    pub(crate) fn cut_next(&mut self) -> bool {
        if self.processes.long.is_empty() && self.answers.waiting.is_empty() {
            return false;
        }
        self.answers_first = !self.answers_first;
        (self.answers_first && self.answer_next()) || self.cut_command() || self.answer_next()
    }

    fn cut_command(&mut self) -> bool {
        while let Some(cut) = self.try_cut() {
            if cut {
                return true;
            }
        }
        false
    }

    /// Cuts the command whose turn it is; false when it must wait for the host, `None` when there is none.
    fn try_cut(&mut self) -> Option<bool> {
        let next = self.processes.next_long(|long| match long {
            Long::Send(sending) => {
                let alone = chunk_length(sending.address, sending.remaining) == sending.remaining;
                self.links.can_cut(sending.to)
                    && (sending.begun || alone || self.links.may_open(sending.to))
            }
            Long::Fetch(asking) => self.links.can_cut(asking.from) && self.may_ask(asking.from),
        });
        let process = next?;
        self.processes.long.served(usize::from(process.0));
        let long = self.processes.get(process)?.long?;
        let piece = match &long {
            Long::Fetch(_) => Piece::EMPTY,
            Long::Send(cut) => {
                let length = chunk_length(cut.address, cut.remaining);
                match self.translate(process, cut.address, length as u32, Path::Send) {
                    Ok(piece) => piece,
                    Err(Lack::Host) => {
                        self.stall_process(process);
                        return Some(false);
                    }
                    Err(Lack::NotPinned { address }) => {
                        self.give_up(process, CommandError::NotPinned { address });
                        return Some(true);
                    }
                }
            }
        };
        let state = self.processes.get_mut(process);
        match state.and_then(|state| state.long.as_mut()) {
            Some(Long::Send(sending)) => {
                let cut = *sending;
                let length = u64::from(piece.length);
                let last = length == cut.remaining;
                sending.begun = true;
                sending.offset += length;
                sending.address += length;
                sending.remaining -= length;
                if last {
                    self.processes.end(process);
                }
                self.send_chunk(process, &cut, piece, last);
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

    fn send_chunk(&mut self, process: ProcessId, cut: &Sending, piece: Piece, last: bool) {
        match (cut.begun, last) {
            (false, false) => self.links.open_message(cut.to),
            (true, true) => self.links.close_message(cut.to),
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
        let source = Source::Memory {
            process,
            piece,
            trailer: signal.map(Signal::to_bytes),
        };
        let work = if last {
            let completion = cut.completion;
            Work::Command {
                process,
                completion,
            }
        } else {
            Work::None
        };
        self.links.push_from(cut.to, &store, source, work);
    }

    fn answer_next(&mut self) -> bool {
        while let Some(answered) = self.try_answer() {
            if answered {
                return true;
            }
        }
        false
    }

    /// Queues the next thing that is owed; false when it must wait for the host, `None` when there is none.
    fn try_answer(&mut self) -> Option<bool> {
        let links = &self.links;
        let ready = |index: usize| links.can_cut(NodeId(index as u16));
        let index = self.answers.waiting.first_that(ready)?;
        let to = NodeId(index as u16);
        match self.answers.take(index) {
            Some(Answer::Refuse(StoreRefusal {
                message,
                export,
                reason,
                offset,
                length,
                count,
            })) => {
                let refusal = Repr::StoreRefused {
                    message,
                    export,
                    reason,
                    offset,
                    length,
                    count,
                };
                self.links.push_plain(to, &refusal);
                Some(true)
            }
            Some(Answer::Serve(serving)) => {
                let served = self.serve_chunk(to, serving);
                if !served {
                    self.answers.put_back(index, serving);
                    self.stall_peer(index);
                }
                Some(served)
            }
            None => None,
        }
    }

    /// Answers a flush: all that the peer sent before it has been handled, and what was refused of that has been told.
    fn answer_flush(&mut self, to: NodeId, flush: Serving) {
        let Serving {
            reply_key, fetch, ..
        } = flush;
        let answer = if self.answers.take_untold(to) {
            Repr::FetchRefused {
                reply_key,
                fetch,
                reason: Refusal::Busy,
            }
        } else {
            Repr::FetchReply {
                reply_key,
                fetch,
                offset: 0,
                length: 0,
                last: true,
            }
        };
        self.links.push_plain(to, &answer);
    }

    /// Queues the next chunk of a fetch; false when it must wait for the host.
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
            self.links
                .push_inline(to, &reply, &bytes[..cut.remaining as usize]);
            self.counters.atomics_served += 1;
            return true;
        }
        if cut.remaining == 0 && cut.refused.is_none() {
            self.answer_flush(to, cut);
            return true;
        }
        let gone = self.exports.0.get(cut.export.0).is_none();
        let refused = cut.refused.or(gone.then_some(Refusal::Revoked));
        if let Some(reason) = refused {
            let refusal = Repr::FetchRefused {
                reply_key: cut.reply_key,
                fetch: cut.fetch,
                reason,
            };
            self.links.push_plain(to, &refusal);
            return true;
        }
        let length = chunk_length(cut.address, cut.remaining);
        let found = self.translate(cut.process, cut.address, length as u32, Path::Receive);
        let piece = match found {
            Ok(piece) => piece,
            Err(Lack::Host) => return false,
            Err(Lack::NotPinned { .. }) => {
                let refused = Some(Refusal::Busy);
                return self.serve_chunk(to, Serving { refused, ..cut });
            }
        };
        let last = length == cut.remaining;
        if last {
            self.counters.fetches_served += 1;
        } else {
            let rest = Serving {
                address: cut.address + length,
                remaining: cut.remaining - length,
                sent: cut.sent + length,
                ..cut
            };
            // It was taken out a moment ago, so there is room.
            self.answers.serve(to, rest);
        }
        let reply = Repr::FetchReply {
            reply_key: cut.reply_key,
            fetch: cut.fetch,
            offset: cut.sent,
            length: length as u32,
            last,
        };
        let source = Source::Memory {
            process: cut.process,
            piece,
            trailer: None,
        };
        let work = Work::Reply { export: cut.export };
        self.links.push_from(to, &reply, source, work);
        true
    }

    /// Where `length` bytes at `address` are, which lie within one page.
    #[inline]
    pub(crate) fn translate(
        &mut self,
        process: ProcessId,
        address: u64,
        length: u32,
        path: Path,
    ) -> Result<Piece, Lack> {
        let (owner, page) = (Process(process.0), Page::containing(address));
        if self.stalled.has_found()
            && let Some(frame) = self.found_before(owner, page)
        {
            return Ok(Piece {
                frame,
                offset: (address % PAGE_BYTES as u64) as u32,
                length,
            });
        }
        let lookup = match path {
            Path::Send | Path::Fetch => self.translation.lookup(owner, page),
            Path::Receive => self.translation.lookup_receive(owner, page),
        };
        let frame = match lookup {
            Lookup::Hit(frame) | Lookup::Miss(frame) => frame,
            Lookup::Host(request) => {
                self.stalled.ask(request);
                return Err(Lack::Host);
            }
        };
        if frame.is_garbage() {
            self.counters.garbage_pieces += 1;
            if self.pins_on_miss(path) {
                let address = page.address();
                return Err(Lack::NotPinned { address });
            }
        }
        if self.traced.is_some() {
            self.trace(process, address, length, path);
        }
        Ok(Piece {
            frame,
            offset: (address % PAGE_BYTES as u64) as u32,
            length,
        })
    }

    /// Where a page is that was found for a packet which then lacked another, if it is still there.
    #[cold]
    fn found_before(&mut self, owner: Process, page: Page) -> Option<Frame> {
        if !self.stalled.take_found(owner, page) {
            return None;
        }
        let frame = self.translation.installed(owner, page);
        (!frame.is_garbage()).then_some(frame)
    }

    /// Whether the host has tried to pin what is looked up, so that the garbage frame says that it could not.
    #[cold]
    fn pins_on_miss(&self, path: Path) -> bool {
        let pinning = match path {
            Path::Send | Path::Fetch => self.translation.pinning(),
            Path::Receive => self.translation.pinning_receive(),
        };
        pinning == Pinning::OnMiss
    }

    /// Where at most a page from `address` on is, which may cross one page boundary (VMMC §4.5, two-piece scatter).
    #[inline]
    pub(crate) fn scatter(
        &mut self,
        process: ProcessId,
        address: u64,
        length: u32,
        path: Path,
    ) -> Result<Pieces, Lack> {
        if length == 0 {
            return Ok(Pieces::EMPTY);
        }
        let to_boundary = (PAGE_BYTES as u64 - address % PAGE_BYTES as u64) as u32;
        let first = self.translate(process, address, length.min(to_boundary), path)?;
        let second = if length <= to_boundary {
            Piece::EMPTY
        } else {
            let second = self.translate_second(process, address, length - to_boundary, path);
            if second == Err(Lack::Host) {
                self.stalled.note_found(Process(process.0), address);
            }
            second?
        };
        Ok(Pieces { first, second })
    }

    /// Where the `length` bytes are that begin the page behind that of `address`. Seldom needed, so apart.
    #[inline(never)]
    fn translate_second(
        &mut self,
        process: ProcessId,
        address: u64,
        length: u32,
        path: Path,
    ) -> Result<Piece, Lack> {
        let next = Page::containing(address).next();
        self.translate(process, next.address(), length, path)
    }
}

/// Why a page has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The host has to act first, and is asked to.
    Host,
    /// The host has tried, and could not pin it.
    NotPinned {
        /// Its first address.
        address: u64,
    },
}

/// Whose memory a lookup is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// What a process sends.
    Send,
    /// Where it wants what it fetches.
    Fetch,
    /// What it exports.
    Receive,
}

/// Bytes of the next chunk: up to the next page boundary of the source (VMMC §4.5), so at most a page.
#[inline]
fn chunk_length(address: u64, remaining: u64) -> u64 {
    remaining.min(PAGE_BYTES as u64 - address % PAGE_BYTES as u64)
}
