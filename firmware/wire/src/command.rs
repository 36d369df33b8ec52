//! Commands that a process writes into its NIC's command queue.
//!
//! A short send carries its data inside the command, a long one the virtual address of its data
//! (VMMC §4.5). The queue is memory that the process can write at any time, so everything in it is
//! hostile: copy a command out first, then parse the copy.
//!
//! | kind | target | offset | address | length | completion | handler | inline |
//! |---|---|---|---|---|---|---|---|
//! | short send | import | yes | 0 | data bytes | 0 | 0 | data, then the signal if flagged |
//! | long send | import | yes | source | data bytes | yes | 0 | the signal if flagged |
//! | fetch | import | yes | destination | data bytes | yes | 0 | none |
//! | handler | node, then process, 16 bits each | 0 | 0 | data bytes | 0 | yes | data |
//! | atomic | import | yes | destination of the old value | word bytes | yes | 0 | the operation |
//!
//! The inline bytes of a short send are, as they stand, the payload of the store packet it becomes.

use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::atomic::{ATOMIC_BYTES, Atomic, check_word};
use crate::error::{WireError, known, must_be_zero, must_fit, must_not_be_empty, must_not_overflow};
use crate::header::{Flags, SHORT_BYTES, SHORT_SIGNAL_BYTES, SIGNAL_TRAILER_BYTES};
use crate::ids::{Endpoint, HandlerId, ImportId, NodeId, ProcessId};
use crate::signal::Signal;

/// Bytes of a [`CommandHeader`].
pub const COMMAND_BYTES: usize = 48;
/// The version of the command format that this build speaks.
pub const COMMAND_VERSION: u8 = 1;

codes! {
    /// Kind of a command.
    pub enum CommandKind: u8 {
        /// Send data that lies in the command.
        ShortSend = 1,
        /// Send data that lies in memory.
        LongSend = 2,
        /// Fetch data into memory.
        Fetch = 3,
        /// Send data in the command to a handler.
        Handler = 4,
        /// Change a word and fetch what it held.
        Atomic = 5,
    }
}

/// The first 48 bytes of a command, little endian, of any alignment; inline bytes follow.
/// Only [`CommandRepr::parse`] says whether they are legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommandHeader {
    /// [`COMMAND_VERSION`] of the library that wrote it.
    pub version: u8,
    /// The code of a [`CommandKind`].
    pub kind: u8,
    /// [`Flags::NOTIFY`] and [`Flags::SIGNAL`], of sends only.
    pub flags: U16,
    /// An import, or the node a handler command goes to.
    pub target: U32,
    /// Offset in the import, in bytes.
    pub offset: U64,
    /// Virtual address in the process's memory.
    pub address: U64,
    /// Bytes of data, without the signal.
    pub length: U64,
    /// Completion word of the process that is written when the command is over.
    pub completion: U32,
    /// Row of the receiver's handler dispatch table.
    pub handler: U32,
    /// Must be zero.
    pub reserved: U64,
}

const _: () = assert!(size_of::<CommandHeader>() == COMMAND_BYTES && align_of::<CommandHeader>() == 1);

impl CommandHeader {
    /// All zero: an unused entry. Its version, 0, is never legal.
    pub const ZERO: CommandHeader = CommandHeader {
        version: 0,
        kind: 0,
        flags: U16::ZERO,
        target: U32::ZERO,
        offset: U64::ZERO,
        address: U64::ZERO,
        length: U64::ZERO,
        completion: U32::ZERO,
        handler: U32::ZERO,
        reserved: U64::ZERO,
    };
}

/// A legal command. Data that travels inside the command is beside it, see [`CommandRepr::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandRepr {
    /// Send the data inside the command.
    ShortSend {
        /// Destination.
        import: ImportId,
        /// Offset in the import, in bytes; `offset + length` fits in 64 bits.
        offset: u64,
        /// Bytes of data: at most [`SHORT_BYTES`], or [`SHORT_SIGNAL_BYTES`] with a signal. May be 0.
        length: u32,
        /// Notify the receiver after delivery.
        notify: bool,
        /// Word to set after the data is in place.
        signal: Option<Signal>,
    },
    /// Send data from the process's memory.
    LongSend {
        /// Destination.
        import: ImportId,
        /// Offset in the import, in bytes; `offset + length` fits in 64 bits.
        offset: u64,
        /// Virtual address of the data; `address + length` fits in 64 bits.
        address: u64,
        /// Bytes of data, at least 1.
        length: u64,
        /// Notify the receiver after delivery.
        notify: bool,
        /// Word to set after the data is in place.
        signal: Option<Signal>,
        /// Completion word that is written when the command is over.
        completion: u32,
    },
    /// Fetch data into the process's memory.
    Fetch {
        /// Source.
        import: ImportId,
        /// Offset in the import, in bytes; `offset + length` fits in 64 bits.
        offset: u64,
        /// Virtual address of the destination; `address + length` fits in 64 bits.
        address: u64,
        /// Bytes of data. A fetch of 0 bytes is a flush: it needs no right, and is done when the exporter has handled all that
        /// this process sent it before.
        length: u64,
        /// Completion word that is written when the command is over.
        completion: u32,
    },
    /// Send the data inside the command to a handler.
    Handler {
        /// Receiving process.
        to: Endpoint,
        /// Row of its node's handler dispatch table.
        handler: HandlerId,
        /// Bytes of data, at most [`SHORT_BYTES`]. May be 0.
        length: u32,
    },
    /// Change a word of the import, and fetch what it held into the process's memory.
    Atomic {
        /// Import that holds the word.
        import: ImportId,
        /// Offset of the word in the import, in bytes: a multiple of its width.
        offset: u64,
        /// Virtual address for the old value, in little-endian order; `address` plus the word's width fits in 64 bits.
        address: u64,
        /// Operation.
        atomic: Atomic,
        /// Completion word that is written when the command is over.
        completion: u32,
    },
}

impl CommandRepr {
    /// Reads a command that was copied out of the queue. `inline` follows the header; it may be longer than the command needs (a
    /// whole slot), the rest is ignored.
    #[inline]
    pub fn parse(header: &CommandHeader, inline: &[u8]) -> Result<CommandRepr, WireError> {
        if header.version != COMMAND_VERSION {
            return Err(WireError::Version {
                field: "command version",
                found: header.version,
                spoken: COMMAND_VERSION,
            });
        }
        match known("command kind", header.kind.into(), CommandKind::from_code(header.kind))? {
            CommandKind::ShortSend => CommandRepr::parse_short_send(header, inline),
            CommandKind::LongSend => CommandRepr::parse_long_send(header, inline),
            CommandKind::Fetch => CommandRepr::parse_fetch(header),
            CommandKind::Handler => CommandRepr::parse_handler(header, inline),
            CommandKind::Atomic => CommandRepr::parse_atomic(header, inline),
        }
    }

    /// Parses the commonest command, in a function of its own so that it stays small.
    #[inline]
    fn parse_short_send(header: &CommandHeader, inline: &[u8]) -> Result<CommandRepr, WireError> {
        let flags = Flags(header.flags.get());
        check_send_flags(flags)?;
        must_be_zero("command address", header.address.get())?;
        must_be_zero("command completion", u64::from(header.completion.get()))?;
        must_be_zero("command handler", u64::from(header.handler.get()))?;
        must_be_zero("command reserved", header.reserved.get())?;
        must_fit("command length", header.length.get(), SHORT_BYTES as u64)?;
        let length = header.length.get() as u32;
        let repr = CommandRepr::ShortSend {
            import: ImportId(header.target.get()),
            offset: header.offset.get(),
            length,
            notify: flags.contains(Flags::NOTIFY),
            signal: read_signal(flags.contains(Flags::SIGNAL), length as usize, inline)?,
        };
        repr.check()?;
        must_hold("command inline bytes", repr.inline_bytes(), inline.len())?;
        Ok(repr)
    }

    fn parse_long_send(header: &CommandHeader, inline: &[u8]) -> Result<CommandRepr, WireError> {
        let flags = Flags(header.flags.get());
        check_send_flags(flags)?;
        must_be_zero("command handler", u64::from(header.handler.get()))?;
        must_be_zero("command reserved", header.reserved.get())?;
        let repr = CommandRepr::LongSend {
            import: ImportId(header.target.get()),
            offset: header.offset.get(),
            address: header.address.get(),
            length: header.length.get(),
            notify: flags.contains(Flags::NOTIFY),
            signal: read_signal(flags.contains(Flags::SIGNAL), 0, inline)?,
            completion: header.completion.get(),
        };
        repr.check()?;
        Ok(repr)
    }

    fn parse_fetch(header: &CommandHeader) -> Result<CommandRepr, WireError> {
        must_be_zero("command flags", u64::from(header.flags.get()))?;
        must_be_zero("command handler", u64::from(header.handler.get()))?;
        must_be_zero("command reserved", header.reserved.get())?;
        let repr = CommandRepr::Fetch {
            import: ImportId(header.target.get()),
            offset: header.offset.get(),
            address: header.address.get(),
            length: header.length.get(),
            completion: header.completion.get(),
        };
        repr.check()?;
        Ok(repr)
    }

    fn parse_handler(header: &CommandHeader, inline: &[u8]) -> Result<CommandRepr, WireError> {
        must_be_zero("command flags", u64::from(header.flags.get()))?;
        must_be_zero("command offset", header.offset.get())?;
        must_be_zero("command address", header.address.get())?;
        must_be_zero("command completion", u64::from(header.completion.get()))?;
        must_be_zero("command reserved", header.reserved.get())?;
        must_fit("command length", header.length.get(), SHORT_BYTES as u64)?;
        let target = header.target.get();
        let repr = CommandRepr::Handler {
            to: Endpoint { node: NodeId(target as u16), process: ProcessId((target >> 16) as u16) },
            handler: HandlerId(header.handler.get()),
            length: header.length.get() as u32,
        };
        must_hold("command inline bytes", repr.inline_bytes(), inline.len())?;
        Ok(repr)
    }

    fn parse_atomic(header: &CommandHeader, inline: &[u8]) -> Result<CommandRepr, WireError> {
        must_be_zero("command flags", u64::from(header.flags.get()))?;
        must_be_zero("command handler", u64::from(header.handler.get()))?;
        must_be_zero("command reserved", header.reserved.get())?;
        let atomic = Atomic::from_bytes(inline)?;
        let length = header.length.get();
        if length != atomic.width.bytes() {
            return Err(WireError::Length {
                field: "word of an atomic command",
                expected_bytes: atomic.width.bytes(),
                found_bytes: length,
            });
        }
        let repr = CommandRepr::Atomic {
            import: ImportId(header.target.get()),
            offset: header.offset.get(),
            address: header.address.get(),
            atomic,
            completion: header.completion.get(),
        };
        repr.check()?;
        Ok(repr)
    }

    /// Checks that the fields are within what the format allows.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        match *self {
            CommandRepr::ShortSend { offset, length, signal, .. } => {
                let limit = if signal.is_some() { SHORT_SIGNAL_BYTES } else { SHORT_BYTES };
                must_fit("short send length", u64::from(length), limit as u64)?;
                must_not_overflow("command offset", offset, u64::from(length))?;
                signal.map_or(Ok(()), Signal::check)
            }
            CommandRepr::LongSend { offset, address, length, signal, .. } => {
                must_not_be_empty("long send length", length)?;
                must_not_overflow("command offset", offset, length)?;
                must_not_overflow("command address", address, length)?;
                signal.map_or(Ok(()), Signal::check)
            }
            CommandRepr::Fetch { offset, address, length, .. } => {
                must_not_overflow("command offset", offset, length)?;
                must_not_overflow("command address", address, length)
            }
            CommandRepr::Handler { length, .. } => must_fit("handler length", u64::from(length), SHORT_BYTES as u64),
            CommandRepr::Atomic { offset, address, atomic, .. } => {
                check_word("command offset", offset, atomic)?;
                must_not_overflow("command address", address, atomic.width.bytes())
            }
        }
    }

    /// The command's kind.
    #[inline]
    pub const fn kind(&self) -> CommandKind {
        match self {
            CommandRepr::ShortSend { .. } => CommandKind::ShortSend,
            CommandRepr::LongSend { .. } => CommandKind::LongSend,
            CommandRepr::Fetch { .. } => CommandKind::Fetch,
            CommandRepr::Handler { .. } => CommandKind::Handler,
            CommandRepr::Atomic { .. } => CommandKind::Atomic,
        }
    }

    /// Bytes of data inside the command.
    #[inline]
    pub const fn data_bytes(&self) -> usize {
        match *self {
            CommandRepr::ShortSend { length, .. } | CommandRepr::Handler { length, .. } => length as usize,
            CommandRepr::LongSend { .. } | CommandRepr::Fetch { .. } | CommandRepr::Atomic { .. } => 0,
        }
    }

    /// Bytes behind the header: data, then the signal; or an atomic operation.
    #[inline]
    pub const fn inline_bytes(&self) -> usize {
        let signal_bytes = match self {
            CommandRepr::ShortSend { signal: Some(_), .. } | CommandRepr::LongSend { signal: Some(_), .. } => {
                SIGNAL_TRAILER_BYTES
            }
            CommandRepr::Atomic { .. } => ATOMIC_BYTES,
            _ => 0,
        };
        self.data_bytes() + signal_bytes
    }

    /// The data inside a command, given the inline bytes that `parse` took.
    #[inline]
    pub fn data<'a>(&self, inline: &'a [u8]) -> &'a [u8] {
        inline.get(..self.data_bytes()).unwrap_or_default()
    }

    /// Makes the header, and writes `data` and the signal, or the atomic operation, to the front of `inline`. Also returns how
    /// many bytes of `inline` that took, at most [`SHORT_BYTES`].
    ///
    /// `data` has `length` bytes for a short send or a handler, none otherwise. Nothing is written on an error.
    #[inline]
    pub fn emit(&self, data: &[u8], inline: &mut [u8]) -> Result<(CommandHeader, usize), WireError> {
        self.check()?;
        if data.len() != self.data_bytes() {
            return Err(WireError::Length {
                field: "command data",
                expected_bytes: self.data_bytes() as u64,
                found_bytes: data.len() as u64,
            });
        }
        let used = self.inline_bytes();
        must_hold("command inline bytes", used, inline.len())?;
        let mut header = CommandHeader { version: COMMAND_VERSION, kind: self.kind() as u8, ..CommandHeader::ZERO };
        let mut trailer = None;
        let mut operation = None;
        match *self {
            CommandRepr::ShortSend { import, offset, length, notify, signal } => {
                header.flags = send_flags(notify, signal);
                header.target = import.0.into();
                header.offset = offset.into();
                header.length = u64::from(length).into();
                trailer = signal;
            }
            CommandRepr::LongSend { import, offset, address, length, notify, signal, completion } => {
                header.flags = send_flags(notify, signal);
                header.target = import.0.into();
                header.offset = offset.into();
                header.address = address.into();
                header.length = length.into();
                header.completion = completion.into();
                trailer = signal;
            }
            CommandRepr::Fetch { import, offset, address, length, completion } => {
                header.target = import.0.into();
                header.offset = offset.into();
                header.address = address.into();
                header.length = length.into();
                header.completion = completion.into();
            }
            CommandRepr::Handler { to, handler, length } => {
                header.target = (u32::from(to.process.0) << 16 | u32::from(to.node.0)).into();
                header.handler = handler.0.into();
                header.length = u64::from(length).into();
            }
            CommandRepr::Atomic { import, offset, address, atomic, completion } => {
                header.target = import.0.into();
                header.offset = offset.into();
                header.address = address.into();
                header.length = atomic.width.bytes().into();
                header.completion = completion.into();
                operation = Some(atomic);
            }
        }
        inline[..data.len()].copy_from_slice(data);
        if let Some(signal) = trailer {
            inline[data.len()..used].copy_from_slice(&signal.to_bytes());
        }
        if let Some(atomic) = operation {
            inline[..used].copy_from_slice(&atomic.to_bytes());
        }
        Ok((header, used))
    }
}

#[inline]
fn send_flags(notify: bool, signal: Option<Signal>) -> U16 {
    Flags::NONE.with(Flags::NOTIFY, notify).with(Flags::SIGNAL, signal.is_some()).0.into()
}

#[inline]
fn check_send_flags(flags: Flags) -> Result<(), WireError> {
    let unused = flags.0 & !(Flags::NOTIFY.0 | Flags::SIGNAL.0);
    must_be_zero("command flags", u64::from(unused))
}

#[inline]
fn must_hold(field: &'static str, needed: usize, found: usize) -> Result<(), WireError> {
    if needed <= found {
        Ok(())
    } else {
        Err(WireError::Truncated { field, needed_bytes: needed as u64, found_bytes: found as u64 })
    }
}

/// Reads the signal at byte `at` of `inline`.
#[inline]
fn read_signal(flagged: bool, at: usize, inline: &[u8]) -> Result<Option<Signal>, WireError> {
    if !flagged {
        return Ok(None);
    }
    let end = at + SIGNAL_TRAILER_BYTES;
    must_hold("command signal", end, inline.len())?;
    Signal::from_payload(&inline[..end]).map(Some)
}

impl fmt::Display for CommandRepr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CommandRepr::ShortSend { import, offset, length, notify, signal } => {
                write!(f, "short send of {length} bytes to {import} at {offset:#x}")?;
                write_send_end(f, notify, signal)
            }
            CommandRepr::LongSend { import, offset, address, length, notify, signal, completion } => {
                write!(
                    f,
                    "long send of {length} bytes from {address:#x} to {import} at {offset:#x}, completion {completion}"
                )?;
                write_send_end(f, notify, signal)
            }
            CommandRepr::Fetch { import, offset, address, length, completion } => write!(
                f,
                "fetch of {length} bytes from {import} at {offset:#x} to {address:#x}, completion {completion}"
            ),
            CommandRepr::Handler { to, handler, length } => {
                write!(f, "{length} bytes for {handler} of {to}")
            }
            CommandRepr::Atomic { import, offset, address, atomic, completion } => {
                write!(f, "{atomic} of {import} at {offset:#x}, old value to {address:#x}, completion {completion}")
            }
        }
    }
}

fn write_send_end(f: &mut fmt::Formatter<'_>, notify: bool, signal: Option<Signal>) -> fmt::Result {
    if let Some(signal) = signal {
        write!(f, ", then {signal}")?;
    }
    if notify { f.write_str(", then notify") } else { Ok(()) }
}
