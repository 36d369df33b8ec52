//! Packets between NICs: the kinds and the legal states.
//!
//! | kind | key | export | message | offset | payload |
//! |---|---|---|---|---|---|
//! | store | of the import | yes | message id | where to store | data, then the signal if flagged |
//! | fetch request | of the import | yes | fetch id | where to fetch | bytes wanted u64, reply key |
//! | fetch reply | reply key | 0 | fetch id | from the start of the fetch | data |
//! | fetch refused | reply key | 0 | fetch id | reason | none |
//! | store refused | 0 | yes | message id | reason | offset u64, length u64, count u64 |
//! | handler | 0 | receiving process, then the sending one, 16 bits each | handler id | 0 | the handler's own |
//! | nothing | 0 | 0 | 0 | 0 | none |
//! | atomic | of the import | yes | fetch id | where the word lies | the operation, reply key |
//!
//! An atomic is answered as a fetch of the word's bytes is.

use core::fmt;

use crate::atomic::{Atomic, check_word};
use crate::error::{WireError, known, must_be_zero, must_fit, must_not_be_empty, must_not_overflow};
use crate::header::{CHUNK_BYTES, Flags, Header, MAX_PAYLOAD_BYTES, SIGNAL_TRAILER_BYTES, VERSION};
use crate::ids::{ExportId, FetchId, HandlerId, Key, MessageId, ProcessId};
use crate::kind::Kind;
use crate::payload::{
    ATOMIC_REQUEST_BYTES, InlinePayload, WORDS_BYTES, read_atomic, read_fetch_request, read_store_refused,
};
use crate::refusal::Refusal;

/// A legal packet, without the payload bytes that it only carries along.
///
/// All lengths are bytes of data: a store's `length` leaves out the signal trailer, which the header's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repr {
    /// Data for an export, at most [`CHUNK_BYTES`]; none at all if it only notifies or signals.
    Store {
        /// Key of the export.
        key: Key,
        /// Destination.
        export: ExportId,
        /// Send that this packet belongs to.
        message: MessageId,
        /// Offset in the export, in bytes.
        offset: u64,
        /// Bytes of data. `offset + length` fits in 64 bits.
        length: u32,
        /// No more packets of this message follow.
        last: bool,
        /// Notify the receiver after delivery. Implies `last`.
        notify: bool,
        /// The payload ends in a [`Signal`](crate::Signal), see [`Signal::from_payload`](crate::Signal::from_payload). Implies `last`.
        signal: bool,
    },
    /// Asks for bytes of an export.
    FetchRequest {
        /// Key of the export.
        key: Key,
        /// Source.
        export: ExportId,
        /// The asker's number for this fetch.
        fetch: FetchId,
        /// Offset in the export, in bytes.
        offset: u64,
        /// Bytes wanted. `offset + want_bytes` fits in 64 bits. A fetch of 0 bytes is a flush: it needs no right, and its answer
        /// says that every earlier packet has been handled.
        want_bytes: u64,
        /// Key that the reply must show.
        reply_key: Key,
    },
    /// A piece of the bytes asked for: 1 to [`CHUNK_BYTES`] bytes, 0 for a fetch of 0 bytes.
    FetchReply {
        /// Key from the request.
        reply_key: Key,
        /// Number of the fetch, from the request.
        fetch: FetchId,
        /// Offset in the fetch (not in the export), in bytes.
        offset: u64,
        /// Bytes of data. `offset + length` fits in 64 bits.
        length: u32,
        /// No more pieces follow.
        last: bool,
    },
    /// The fetch will not be answered.
    FetchRefused {
        /// Key from the request.
        reply_key: Key,
        /// Number of the fetch, from the request.
        fetch: FetchId,
        /// Reason of the refusal.
        reason: Refusal,
    },
    /// The exporter's NIC did not apply a store.
    StoreRefused {
        /// Message of the store.
        message: MessageId,
        /// Export of the store.
        export: ExportId,
        /// Reason of the refusal.
        reason: Refusal,
        /// Offset of the store, in bytes.
        offset: u64,
        /// Bytes of the store. `offset + length` fits in 64 bits.
        length: u64,
        /// Messages to this export that this packet reports, the named one included: at least 1.
        count: u64,
    },
    /// A message for a row of the receiver's handler dispatch table, at most [`MAX_PAYLOAD_BYTES`].
    Handler {
        /// Row of the dispatch table.
        handler: HandlerId,
        /// Sending process.
        from: ProcessId,
        /// Receiving process.
        to: ProcessId,
        /// Bytes of payload, opaque here.
        length: u32,
    },
    /// Uses up its number on the link, nothing else: replaces a packet whose sender was closed before it arrived.
    Nothing,
    /// Changes a word of an export. The answer is that of a fetch of the word: its old value, in little-endian order.
    Atomic {
        /// Key of the export.
        key: Key,
        /// Export that holds the word.
        export: ExportId,
        /// The asker's number for the answer.
        fetch: FetchId,
        /// Offset of the word in the export, in bytes: a multiple of its width.
        offset: u64,
        /// Operation.
        atomic: Atomic,
        /// Key that the answer must show.
        reply_key: Key,
    },
}

impl Repr {
    /// Reads a packet from its header and, if the payload is at most
    /// [`INLINE_BYTES`](crate::INLINE_BYTES) long, the payload.
    ///
    /// `inline` may be longer than the payload (a whole ring slot), and may be empty when the
    /// payload is elsewhere. Only a fetch request, a refused store and an atomic are read from it. Signals are not: see
    /// [`Signal::from_payload`](crate::Signal::from_payload).
    #[inline]
    pub fn parse(header: &Header, inline: &[u8]) -> Result<Repr, WireError> {
        if header.version != VERSION {
            return Err(WireError::Version { field: "packet version", found: header.version, spoken: VERSION });
        }
        must_be_zero("reserved bytes", u64::from(header.reserved.get()))?;
        if header.kind == Kind::Store as u8 {
            return Repr::parse_store(header);
        }
        Repr::parse_other(header, inline)
    }

    #[inline]
    fn parse_store(header: &Header) -> Result<Repr, WireError> {
        let flags = header.flags();
        let legal = Flags::LAST.0 | Flags::NOTIFY.0 | Flags::SIGNAL.0;
        must_be_zero("flags of a store", u64::from(flags.0 & !legal))?;
        let signal = flags.contains(Flags::SIGNAL);
        let trailer_bytes = if signal { SIGNAL_TRAILER_BYTES as u32 } else { 0 };
        let Some(length) = header.length.get().checked_sub(trailer_bytes) else {
            return Err(WireError::Truncated {
                field: "signal trailer",
                needed_bytes: SIGNAL_TRAILER_BYTES as u64,
                found_bytes: u64::from(header.length.get()),
            });
        };
        let repr = Repr::Store {
            key: header.key,
            export: ExportId(header.export.get()),
            message: MessageId(header.message.get()),
            offset: header.offset.get(),
            length,
            last: flags.contains(Flags::LAST),
            notify: flags.contains(Flags::NOTIFY),
            signal,
        };
        repr.check()?;
        Ok(repr)
    }

    fn parse_other(header: &Header, inline: &[u8]) -> Result<Repr, WireError> {
        let kind = known("packet kind", header.kind.into(), Kind::from_code(header.kind))?;
        let legal = match kind {
            Kind::FetchReply => Flags::LAST,
            _ => Flags::NONE,
        };
        must_be_zero("flags", u64::from(header.flags.get() & !legal.0))?;
        // Fields that the kind does not use are zero, so that each legal packet has one encoding.
        if !matches!(kind, Kind::FetchRequest | Kind::FetchReply | Kind::FetchRefused | Kind::Atomic) {
            header.key.must_be_zero("key")?;
        }
        if !matches!(kind, Kind::FetchRequest | Kind::StoreRefused | Kind::Handler | Kind::Atomic) {
            must_be_zero("export", u64::from(header.export.get()))?;
        }
        if kind == Kind::Nothing {
            must_be_zero("message", u64::from(header.message.get()))?;
        }
        if matches!(kind, Kind::Handler | Kind::Nothing) {
            must_be_zero("offset", header.offset.get())?;
        }
        if matches!(kind, Kind::FetchRefused | Kind::Nothing) {
            must_be_zero("payload length", u64::from(header.length.get()))?;
        }
        let repr = match kind {
            Kind::Store => return Repr::parse_store(header),
            Kind::FetchRequest => {
                let (want_bytes, reply_key) = read_fetch_request(header.length.get(), inline)?;
                Repr::FetchRequest {
                    key: header.key,
                    export: ExportId(header.export.get()),
                    fetch: FetchId(header.message.get()),
                    offset: header.offset.get(),
                    want_bytes,
                    reply_key,
                }
            }
            Kind::FetchReply => Repr::FetchReply {
                reply_key: header.key,
                fetch: FetchId(header.message.get()),
                offset: header.offset.get(),
                length: header.length.get(),
                last: header.flags().contains(Flags::LAST),
            },
            Kind::FetchRefused => Repr::FetchRefused {
                reply_key: header.key,
                fetch: FetchId(header.message.get()),
                reason: Refusal::read(header.offset.get())?,
            },
            Kind::StoreRefused => {
                let [offset, length, count] = read_store_refused(header.length.get(), inline)?;
                Repr::StoreRefused {
                    message: MessageId(header.message.get()),
                    export: ExportId(header.export.get()),
                    reason: Refusal::read(header.offset.get())?,
                    offset,
                    length,
                    count,
                }
            }
            Kind::Handler => Repr::Handler {
                handler: HandlerId(header.message.get()),
                from: ProcessId((header.export.get() >> 16) as u16),
                to: ProcessId(header.export.get() as u16),
                length: header.length.get(),
            },
            Kind::Nothing => Repr::Nothing,
            Kind::Atomic => {
                let (atomic, reply_key) = read_atomic(header.length.get(), inline)?;
                Repr::Atomic {
                    key: header.key,
                    export: ExportId(header.export.get()),
                    fetch: FetchId(header.message.get()),
                    offset: header.offset.get(),
                    atomic,
                    reply_key,
                }
            }
        };
        repr.check()?;
        Ok(repr)
    }

    /// Checks that the fields are within what the format allows. `parse` returns only packets that pass; a receiver refuses what
    /// `emit` makes of one that does not.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        match *self {
            Repr::Store { offset, length, last, notify, signal, .. } => {
                must_fit("store length", u64::from(length), CHUNK_BYTES as u64)?;
                if (notify || signal) && !last {
                    let flags = Flags::NONE.with(Flags::NOTIFY, notify).with(Flags::SIGNAL, signal);
                    return Err(WireError::NotLast { flags: flags.0 });
                }
                must_not_overflow("store offset", offset, u64::from(length))
            }
            Repr::FetchRequest { offset, want_bytes, .. } => must_not_overflow("fetch offset", offset, want_bytes),
            Repr::FetchReply { offset, length, last, .. } => {
                if !last || offset != 0 {
                    must_not_be_empty("fetch reply length", u64::from(length))?;
                }
                must_fit("fetch reply length", u64::from(length), CHUNK_BYTES as u64)?;
                must_not_overflow("fetch reply offset", offset, u64::from(length))
            }
            Repr::Handler { length, .. } => must_fit("handler length", u64::from(length), MAX_PAYLOAD_BYTES as u64),
            Repr::StoreRefused { offset, length, count, .. } => {
                must_not_be_empty("refused store count", count)?;
                must_not_overflow("refused store offset", offset, length)
            }
            Repr::Atomic { offset, atomic, .. } => check_word("atomic offset", offset, atomic),
            Repr::FetchRefused { .. } | Repr::Nothing => Ok(()),
        }
    }

    /// The header for this packet, and the payload if it follows from the fields alone (that of a
    /// fetch request, a refused store or an atomic; empty for all others).
    ///
    /// The caller puts every other payload behind the header: for a store `length` bytes of data,
    /// then [`Signal::to_bytes`](crate::Signal::to_bytes) if `signal`. Debug builds panic on fields that [`Repr::check`] refuses.
    #[inline]
    pub fn emit(&self, sequence: u32) -> (Header, InlinePayload) {
        let mut header = Header::ZERO;
        let payload = self.emit_to(sequence, &mut header);
        (header, payload)
    }

    /// As [`emit`](Self::emit), but writes the header in place: a copy soon afterwards would wait for its fields.
    #[inline]
    pub fn emit_to(&self, sequence: u32, header: &mut Header) -> InlinePayload {
        debug_assert_eq!(self.check(), Ok(()), "{self} is not legal");
        *header = Header {
            version: VERSION,
            kind: self.kind() as u8,
            sequence: sequence.into(),
            length: self.payload_bytes().into(),
            ..Header::ZERO
        };
        let mut payload = InlinePayload::EMPTY;
        match *self {
            Repr::Store { key, export, message, offset, last, notify, signal, .. } => {
                header.flags = Flags::NONE
                    .with(Flags::LAST, last)
                    .with(Flags::NOTIFY, notify)
                    .with(Flags::SIGNAL, signal)
                    .0
                    .into();
                header.key = key;
                header.export = export.0.into();
                header.message = message.0.into();
                header.offset = offset.into();
            }
            Repr::FetchRequest { key, export, fetch, offset, want_bytes, reply_key } => {
                header.key = key;
                header.export = export.0.into();
                header.message = fetch.0.into();
                header.offset = offset.into();
                payload = InlinePayload::of_fetch_request(want_bytes, reply_key);
            }
            Repr::FetchReply { reply_key, fetch, offset, last, .. } => {
                header.flags = Flags::NONE.with(Flags::LAST, last).0.into();
                header.key = reply_key;
                header.message = fetch.0.into();
                header.offset = offset.into();
            }
            Repr::FetchRefused { reply_key, fetch, reason } => {
                header.key = reply_key;
                header.message = fetch.0.into();
                header.offset = u64::from(reason.code()).into();
            }
            Repr::StoreRefused { message, export, reason, offset, length, count } => {
                header.message = message.0.into();
                header.export = export.0.into();
                header.offset = u64::from(reason.code()).into();
                payload = InlinePayload::of_store_refused([offset, length, count]);
            }
            Repr::Handler { handler, from, to, .. } => {
                header.export = (u32::from(from.0) << 16 | u32::from(to.0)).into();
                header.message = handler.0.into();
            }
            Repr::Atomic { key, export, fetch, offset, atomic, reply_key } => {
                header.key = key;
                header.export = export.0.into();
                header.message = fetch.0.into();
                header.offset = offset.into();
                payload = InlinePayload::of_atomic(atomic, reply_key);
            }
            Repr::Nothing => {}
        }
        payload
    }

    /// The packet's kind.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Repr::Store { .. } => Kind::Store,
            Repr::FetchRequest { .. } => Kind::FetchRequest,
            Repr::FetchReply { .. } => Kind::FetchReply,
            Repr::FetchRefused { .. } => Kind::FetchRefused,
            Repr::StoreRefused { .. } => Kind::StoreRefused,
            Repr::Handler { .. } => Kind::Handler,
            Repr::Nothing => Kind::Nothing,
            Repr::Atomic { .. } => Kind::Atomic,
        }
    }

    /// Bytes behind the header, with the signal trailer if there is one.
    #[inline]
    pub const fn payload_bytes(&self) -> u32 {
        match *self {
            Repr::Store { length, signal: true, .. } => length.saturating_add(SIGNAL_TRAILER_BYTES as u32),
            Repr::Store { length, .. } | Repr::FetchReply { length, .. } | Repr::Handler { length, .. } => length,
            Repr::FetchRequest { .. } | Repr::StoreRefused { .. } => WORDS_BYTES as u32,
            Repr::Atomic { .. } => ATOMIC_REQUEST_BYTES as u32,
            Repr::FetchRefused { .. } | Repr::Nothing => 0,
        }
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Repr::Store { key, export, message, offset, length, last, notify, signal } => {
                let flags = Flags::NONE.with(Flags::LAST, last).with(Flags::NOTIFY, notify).with(Flags::SIGNAL, signal);
                write!(f, "store {length} bytes to {export} at {offset:#x} ({message}, key {key}, flags {flags})")
            }
            Repr::FetchRequest { key, export, fetch, offset, want_bytes, reply_key } => write!(
                f,
                "fetch {want_bytes} bytes of {export} at {offset:#x} ({fetch}, key {key}, reply key {reply_key})"
            ),
            Repr::Atomic { key, export, fetch, offset, atomic, reply_key } => {
                write!(f, "{atomic} of {export} at {offset:#x} ({fetch}, key {key}, reply key {reply_key})")
            }
            Repr::FetchReply { reply_key, fetch, offset, length, last } => write!(
                f,
                "{length} bytes for {fetch} at {offset:#x} (reply key {reply_key}, flags {})",
                Flags::NONE.with(Flags::LAST, last)
            ),
            Repr::FetchRefused { reply_key, fetch, reason } => {
                write!(f, "{fetch} refused: {reason} (reply key {reply_key})")
            }
            Repr::StoreRefused { message, export, reason, offset, length, count } => write!(
                f,
                "store of {message} to {export} at {offset:#x}, {length} bytes, refused: {reason} ({count} in all)"
            ),
            Repr::Handler { handler, from, to, length } => {
                write!(f, "{length} bytes for {handler} of {to}, from {from}")
            }
            Repr::Nothing => f.write_str("nothing"),
        }
    }
}
