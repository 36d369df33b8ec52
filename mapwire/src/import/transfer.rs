//! A transfer between memory of this process and an export, once it is known that it is no direct store or load that may go ahead at
//! once: in which pieces it goes, and by which way each of them.
//!
//! | way | for |
//! |---|---|
//! | stores and loads | bytes that are mapped here, when what was sent before by the ring is in place |
//! | a command with the bytes in it | stores of up to [`SHORT_BYTES`] |
//! | [remote access](super::rma) | long transfers with ranks that libfabric reaches |
//! | [a copy](super::copies) | stores of moderate length to other hosts |
//! | a command that holds the pages | all else |

use mapwire_host::memory::MappedBuffer;
use mapwire_host::memory::raw::Source;
use mapwire_node::{NOTICE_HANDLER, notice};
use mapwire_wire::{CommandRepr, Endpoint, SHORT_BYTES, TRACE_FLAG_DIRECT, TRACE_FLAG_INLINE, TraceOp};

use super::Import;
use super::memory::{Memory, Then};
use crate::error::{Error, Result};

impl Import {
    /// Carries out a transfer whose signal was checked.
    pub(super) fn transfer(&self, memory: Memory<'_>, offset: u64, then: Then) -> Result<()> {
        self.held.engine.check_here()?;
        self.check(memory.right(), offset, memory.len() as u64)?;
        match &self.held.local.mapped {
            None => self.by_packets(memory, offset, then),
            Some(mapped) => self.in_pieces(mapped, memory, offset, then),
        }
    }

    /// What is mapped by stores or loads, the rest by packets, in order. What follows comes last.
    #[cold]
    fn in_pieces(&self, mapped: &MappedBuffer, memory: Memory<'_>, offset: u64, then: Then) -> Result<()> {
        let [before, within, behind] = cut(mapped, offset, memory.len());
        let is_signal_mapped = then.signal().is_some_and(|signal| mapped.holds_word(signal.offset as usize, 8));
        let length = memory.len();
        if length > 0 && before.max(behind) == length && !is_signal_mapped {
            return self.by_packets(memory, offset, then);
        }
        if length == 0 && then.signal().is_none() {
            // A message of no bytes tells of a revocation too.
            self.open_direct()?;
        }
        let is_stored = memory.is_stored();
        let mut rest = memory;
        let mut done = 0;
        for (bytes, is_mapped) in [(before, false), (within, true), (behind, false)] {
            if bytes == 0 {
                continue;
            }
            let (piece, others) = rest.split(bytes);
            rest = others;
            let at = offset + done as u64;
            let moved = match is_mapped {
                true => self.by_loads_or_stores(mapped, piece, at),
                false => self.by_packets(piece, at, Then::Nothing),
            };
            moved.map_err(|error| if is_stored { after(done, length, error) } else { error })?;
            done += bytes;
        }
        self.follow(offset, length, then).map_err(|error| after(done, length, error))
    }

    /// Stores or loads what is mapped, when what was sent before by the ring is in place.
    fn by_loads_or_stores(&self, mapped: &MappedBuffer, memory: Memory<'_>, offset: u64) -> Result<()> {
        self.open_direct()?;
        if self.held.direct_stores.is_traced() {
            self.trace(memory.op(), TRACE_FLAG_DIRECT, memory.bytes());
        }
        match memory {
            Memory::From(data) => {
                mapped.write(offset as usize, data)?;
                self.wake_awaiting(mapped);
            }
            Memory::Into(into) => mapped.read(offset as usize, into)?,
        }
        Ok(())
    }

    /// Moves what was checked to lie in the export by packets, or past the NIC where that is faster.
    pub(super) fn by_packets(&self, mut memory: Memory<'_>, offset: u64, then: Then) -> Result<()> {
        memory.touch()?;
        if let Memory::From(data) = &memory
            && data.len() <= then.short_bytes()
        {
            return self.send_short(*data, offset, then);
        }
        if memory.len() == 0 || self.move_rma(&mut memory, offset, then)? {
            return Ok(());
        }
        if let Memory::From(data) = &memory
            && self.send_copy(*data, offset, then)?
        {
            return Ok(());
        }
        if self.is_shared(memory.bytes()) {
            // The driver must not fault: it gets a copy that cannot.
            let mut copy = vec![0; memory.len()];
            memory.gather(&mut copy);
            self.by_packets(memory.in_place_of(&mut copy), offset, then)?;
            memory.scatter(&copy);
            return Ok(());
        }
        let word = self.begin(&mut memory, offset, then)?;
        self.held.finish(word, memory.stored_bytes())
    }

    fn send_short(&self, data: Source<'_>, offset: u64, then: Then) -> Result<()> {
        let mut copy = [0; SHORT_BYTES];
        // Copied here, outside the driver's lock: `data` may be shared memory, and fault.
        data.copy_to_slice(&mut copy[..data.len()]);
        if self.held.direct_stores.is_traced() {
            self.trace(TraceOp::Send, TRACE_FLAG_INLINE, data);
        }
        let command = CommandRepr::ShortSend {
            import: self.held.local.id,
            offset,
            length: data.len() as u32,
            notify: then.is_notify(),
            signal: then.signal(),
        };
        self.submit(&command, &copy[..data.len()])
    }

    /// Submits a command for private memory that was touched, of at least a byte; gives its completion word.
    pub(super) fn begin(&self, memory: &mut Memory<'_>, offset: u64, then: Then) -> Result<u32> {
        let import = self.held.local.id;
        let (address, length) = memory.range();
        let (is_stored, notify, signal) = (memory.is_stored(), then.is_notify(), then.signal());
        self.submit_held(address, length, |completion| match is_stored {
            true => CommandRepr::LongSend { import, offset, address, length, notify, signal, completion },
            false => CommandRepr::Fetch { import, offset, address, length, completion },
        })
    }

    /// Does what follows `length` bytes that have been stored, by a way that does not say it along with them.
    pub(super) fn follow(&self, offset: u64, length: usize, then: Then) -> Result<()> {
        match then {
            Then::Nothing => Ok(()),
            Then::Notify => self.notify(offset, length as u64),
            Then::Signal(signal) => match &self.held.local.mapped {
                Some(mapped) if mapped.holds_word(signal.offset as usize, 8) => {
                    self.open_direct()?;
                    mapped.put_signal(mapped.part().start, Source::EMPTY, signal);
                    self.wake_awaiting(mapped);
                    Ok(())
                }
                _ => self.send_short(Source::EMPTY, 0, then),
            },
        }
    }

    /// Has the exporter's notification handler run, as after a message of these bytes.
    fn notify(&self, offset: u64, length: u64) -> Result<()> {
        let grant = &self.held.local.grant;
        let notice = notice(grant.export, grant.key, offset, length);
        let command = CommandRepr::Handler {
            to: Endpoint::first_of(grant.node()),
            handler: NOTICE_HANDLER,
            length: notice.len() as u32,
        };
        self.submit(&command, &notice)
    }
}

/// How many bytes of a range lie before the mapped part, within it and behind it.
fn cut(mapped: &MappedBuffer, offset: u64, length: usize) -> [usize; 3] {
    let part = mapped.part();
    let begin = offset as usize;
    let end = begin + length;
    let first = begin.max(part.start).min(end);
    let last = end.min(part.end).max(first);
    [first - begin, last - first, end - last]
}

/// The error of a send of which `sent` bytes had been sent already.
pub(super) fn after(sent: usize, length: usize, error: Error) -> Error {
    match error {
        error if sent == 0 => error,
        Error::Partial { sent_bytes, cause, .. } => {
            Error::Partial { sent_bytes: sent as u64 + sent_bytes, length: length as u64, cause }
        }
        cause => Error::Partial { sent_bytes: sent as u64, length: length as u64, cause: Box::new(cause) },
    }
}
