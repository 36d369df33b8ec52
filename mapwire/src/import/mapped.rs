//! Imports that are mapped: at once or after a wait, and in part by the ring where only whole pages are.

use mapwire_host::memory::MappedBuffer;
use mapwire_host::memory::raw::Source;
use mapwire_wire::{Signal, TRACE_FLAG_DIRECT, TraceOp};

use super::Import;
use crate::error::{Error, Result};

/// How many bytes of a range lie before the mapped part, within it and behind it.
fn cut(mapped: &MappedBuffer, offset: u64, length: usize) -> [usize; 3] {
    let part = mapped.part();
    let begin = offset as usize;
    let end = begin + length;
    let first = begin.max(part.start).min(end);
    let last = end.min(part.end).max(first);
    [first - begin, last - first, end - last]
}

impl Import {
    /// Sends what was checked to lie in the export: what is mapped by stores, the rest by the ring. A signal comes last.
    #[cold]
    pub(super) fn send_mapped(
        &self,
        mapped: &MappedBuffer,
        data: Source<'_>,
        offset: u64,
        signal: Option<Signal>,
    ) -> Result<()> {
        let [before, within, behind] = cut(mapped, offset, data.len());
        let by_ring = |signal: Signal| !mapped.holds_word(signal.offset as usize, 8);
        if before + behind > 0 && before.max(behind) == data.len() && signal.is_none_or(by_ring) {
            return self.send_ring(data, offset, false, signal);
        }
        let mut sent = 0;
        for (length, is_mapped) in [(before, false), (within, true), (behind, false)] {
            let part = data.part(sent, length);
            let at = offset + sent as u64;
            let outcome = match is_mapped {
                _ if length == 0 => Ok(()),
                true => self.store(mapped, part, at),
                false => self.send_ring(part, at, false, None),
            };
            outcome.map_err(|error| after(sent, data.len(), error))?;
            sent += length;
        }
        let Some(signal) = signal else {
            // A message of no bytes tells of a revocation too.
            return if data.is_empty() { self.open_direct() } else { Ok(()) };
        };
        let stored = match by_ring(signal) {
            true => self.send_ring(Source::EMPTY, 0, false, Some(signal)),
            false => self.open_direct().map(|()| {
                mapped.put_signal(mapped.part().start, Source::EMPTY, signal);
                self.wake_awaiting(mapped);
            }),
        };
        stored.map_err(|error| after(sent, data.len(), error))
    }

    /// Stores what is mapped, when what was sent before by the ring is in place.
    fn store(&self, mapped: &MappedBuffer, data: Source<'_>, offset: u64) -> Result<()> {
        self.open_direct()?;
        if self.held.way.is_traced() {
            self.trace(TraceOp::Send, TRACE_FLAG_DIRECT, data);
        }
        mapped.write(offset as usize, data)?;
        self.wake_awaiting(mapped);
        Ok(())
    }

    /// Fetches what was checked to lie in the export.
    #[cold]
    pub(super) fn fetch_mapped(&self, mapped: &MappedBuffer, offset: u64, into: &mut [u8]) -> Result<()> {
        let [before, within, _] = cut(mapped, offset, into.len());
        let (first, rest) = into.split_at_mut(before);
        let (middle, last) = rest.split_at_mut(within);
        self.fetch_ring(offset, first)?;
        self.open_direct()?;
        if !middle.is_empty() {
            if self.held.way.is_traced() {
                self.trace(TraceOp::Fetch, TRACE_FLAG_DIRECT, (&*middle).into());
            }
            mapped.read(offset as usize + before, middle)?;
        }
        self.fetch_ring(offset + (before + within) as u64, last)
    }
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
