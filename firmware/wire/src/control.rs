//! Messages that set up and end imports. Each travels alone in a `Control` packet.
//!
//! An importer sends `ImportRequest` and waits; the exporter answers `ImportGranted` or
//! `ImportRefused` with the same request number, at once or when the export appears; `ImportCancel` ends the
//! wait. `Revoked` tells an importer that the export is gone, `Released` tells the exporter that an
//! import is, `Goodbye` that the sender leaves and answers nothing any more.
//!
//! Layout: version, kind, flags (u16), then the kind's fields in the order below, little endian,
//! then the name. Fields under a flag that is not set are zero.

use alloc::vec::Vec;
use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{WireError, known, must_be_zero, must_fit};
use crate::header::VERSION;
use crate::ids::{ExportId, Key, Rights};
use crate::refusal::Refusal;

/// Longest name of an export, in UTF-8 bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest encoded control message.
pub const MAX_CONTROL_BYTES: usize = size_of::<ImportRequest>() + MAX_NAME_BYTES;

const TOKEN: u16 = 1;
const DIRECT: u16 = 1;

codes! {
    /// Kind of a control message.
    pub enum ControlKind: u8 {
        /// Asks for an import.
        ImportRequest = 1,
        /// Ends the wait for an import.
        ImportCancel = 2,
        /// Grants an import.
        ImportGranted = 3,
        /// Refuses an import.
        ImportRefused = 4,
        /// The exporter took an export back.
        Revoked = 5,
        /// An importer gave an import back.
        Released = 6,
        /// The sender leaves.
        Goodbye = 7,
    }
}

#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
struct Prefix {
    version: u8,
    kind: u8,
    flags: U16,
}

impl Prefix {
    fn new(kind: ControlKind, flags: u16) -> Prefix {
        Prefix { version: VERSION, kind: kind as u8, flags: flags.into() }
    }
}

#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
struct ImportRequest {
    prefix: Prefix,
    request: U32,
    rights: U32,
    name_bytes: U32,
    token: Key,
}

#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
struct ImportCancel {
    prefix: Prefix,
    request: U32,
}

#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
struct ImportGranted {
    prefix: Prefix,
    request: U32,
    export: U32,
    rights: U32,
    key: Key,
    length: U64,
    mapped_offset: U64,
    mapped_bytes: U64,
}

#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
struct ImportRefused {
    prefix: Prefix,
    request: U32,
    reason: U32,
}

#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
struct Revoked {
    prefix: Prefix,
    export: U32,
}

#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
struct Released {
    prefix: Prefix,
    export: U32,
    key: Key,
}

/// The bytes of an export that an importer can map: those of whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedPart {
    /// Offset of the first mappable byte in the export.
    pub offset: u64,
    /// Length in bytes; at least 1.
    pub bytes: u64,
}

impl MappedPart {
    /// Checks that it is not empty and lies within an export of `length` bytes.
    fn check(&self, length: u64) -> Result<(), WireError> {
        if self.bytes == 0 {
            return Err(WireError::Empty { field: "mapped bytes" });
        }
        let limit = length.saturating_sub(self.offset);
        if self.bytes > limit {
            return Err(WireError::TooLarge { field: "mapped bytes", value: self.bytes, limit });
        }
        Ok(())
    }
}

/// A legal control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlMessage<'a> {
    /// Asks to import what is, or will be, exported under `name`.
    ImportRequest {
        /// The importer's number for this request; the answer repeats it.
        request: u32,
        /// Name of the export, 1 to [`MAX_NAME_BYTES`] bytes.
        name: &'a str,
        /// What the importer wants to do; if empty, all that the export allows.
        rights: Rights,
        /// Shown to an exporter that admits anyone who knows its token.
        token: Option<Key>,
    },
    /// The importer no longer waits.
    ImportCancel {
        /// Number of the request.
        request: u32,
    },
    /// The import is granted.
    ImportGranted {
        /// Number of the request.
        request: u32,
        /// The exporter's number for the export.
        export: ExportId,
        /// Opens the export to this importer.
        key: Key,
        /// Length of the export, in bytes.
        length: u64,
        /// What was granted; not empty.
        rights: Rights,
        /// Part that can be mapped, if any; its descriptors are passed under the request's number.
        direct: Option<MappedPart>,
    },
    /// The import is refused.
    ImportRefused {
        /// Number of the request.
        request: u32,
        /// Reason of the refusal.
        reason: Refusal,
    },
    /// The exporter took the export back: stores and fetches are refused from now on.
    Revoked {
        /// Export that is gone.
        export: ExportId,
    },
    /// The importer no longer uses this import.
    Released {
        /// Export that was imported.
        export: ExportId,
        /// The key it was granted.
        key: Key,
    },
    /// The sender leaves the job.
    Goodbye,
}

fn fixed<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> Result<(&T, &[u8]), WireError> {
    T::ref_from_prefix(bytes).map_err(|_| WireError::Truncated {
        field: "control message",
        needed_bytes: size_of::<T>() as u64,
        found_bytes: bytes.len() as u64,
    })
}

fn whole<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> Result<&T, WireError> {
    let (message, rest) = fixed::<T>(bytes)?;
    if rest.is_empty() {
        Ok(message)
    } else {
        Err(WireError::Length {
            field: "control message",
            expected_bytes: size_of::<T>() as u64,
            found_bytes: bytes.len() as u64,
        })
    }
}

impl<'a> ControlMessage<'a> {
    /// Reads the payload of a `Control` packet: exactly one message.
    pub fn parse(bytes: &'a [u8]) -> Result<ControlMessage<'a>, WireError> {
        let (prefix, _) = fixed::<Prefix>(bytes)?;
        if prefix.version != VERSION {
            return Err(WireError::Version { field: "control version", found: prefix.version, spoken: VERSION });
        }
        let kind = known("control kind", prefix.kind.into(), ControlKind::from_code(prefix.kind))?;
        let flags = prefix.flags.get();
        let legal = match kind {
            ControlKind::ImportRequest => TOKEN,
            ControlKind::ImportGranted => DIRECT,
            _ => 0,
        };
        must_be_zero("control flags", u64::from(flags & !legal))?;
        let message = match kind {
            ControlKind::ImportRequest => {
                let (m, rest) = fixed::<ImportRequest>(bytes)?;
                let token = (flags & TOKEN != 0).then_some(m.token);
                if token.is_none() {
                    m.token.must_be_zero("token")?;
                }
                ControlMessage::ImportRequest {
                    request: m.request.get(),
                    name: read_name(m.name_bytes.get(), rest)?,
                    rights: Rights::from_bits(m.rights.get())?,
                    token,
                }
            }
            ControlKind::ImportCancel => {
                let m = whole::<ImportCancel>(bytes)?;
                ControlMessage::ImportCancel { request: m.request.get() }
            }
            ControlKind::ImportGranted => {
                let m = whole::<ImportGranted>(bytes)?;
                let direct = (flags & DIRECT != 0)
                    .then_some(MappedPart { offset: m.mapped_offset.get(), bytes: m.mapped_bytes.get() });
                if direct.is_none() {
                    must_be_zero("mapped offset", m.mapped_offset.get())?;
                    must_be_zero("mapped bytes", m.mapped_bytes.get())?;
                }
                ControlMessage::ImportGranted {
                    request: m.request.get(),
                    export: ExportId(m.export.get()),
                    key: m.key,
                    length: m.length.get(),
                    rights: Rights::from_bits(m.rights.get())?,
                    direct,
                }
            }
            ControlKind::ImportRefused => {
                let m = whole::<ImportRefused>(bytes)?;
                ControlMessage::ImportRefused {
                    request: m.request.get(),
                    reason: Refusal::read(m.reason.get().into())?,
                }
            }
            ControlKind::Revoked => {
                let m = whole::<Revoked>(bytes)?;
                ControlMessage::Revoked { export: ExportId(m.export.get()) }
            }
            ControlKind::Released => {
                let m = whole::<Released>(bytes)?;
                ControlMessage::Released { export: ExportId(m.export.get()), key: m.key }
            }
            ControlKind::Goodbye => {
                whole::<Prefix>(bytes)?;
                ControlMessage::Goodbye
            }
        };
        message.check()?;
        Ok(message)
    }

    /// Checks that names, rights and ranges are within what the format allows.
    pub fn check(&self) -> Result<(), WireError> {
        match self {
            ControlMessage::ImportRequest { name, .. } => check_name_bytes(name.len() as u64),
            ControlMessage::ImportGranted { rights, length, direct, .. } => {
                check_rights(*rights)?;
                direct.map_or(Ok(()), |part| part.check(*length))
            }
            _ => Ok(()),
        }
    }

    /// The message's kind.
    pub const fn kind(&self) -> ControlKind {
        match self {
            ControlMessage::ImportRequest { .. } => ControlKind::ImportRequest,
            ControlMessage::ImportCancel { .. } => ControlKind::ImportCancel,
            ControlMessage::ImportGranted { .. } => ControlKind::ImportGranted,
            ControlMessage::ImportRefused { .. } => ControlKind::ImportRefused,
            ControlMessage::Revoked { .. } => ControlKind::Revoked,
            ControlMessage::Released { .. } => ControlKind::Released,
            ControlMessage::Goodbye => ControlKind::Goodbye,
        }
    }

    /// Bytes of the encoded message, at most [`MAX_CONTROL_BYTES`] if it is legal.
    pub const fn encoded_bytes(&self) -> usize {
        match self {
            ControlMessage::ImportRequest { name, .. } => size_of::<ImportRequest>() + name.len(),
            ControlMessage::ImportCancel { .. } => size_of::<ImportCancel>(),
            ControlMessage::ImportGranted { .. } => size_of::<ImportGranted>(),
            ControlMessage::ImportRefused { .. } => size_of::<ImportRefused>(),
            ControlMessage::Revoked { .. } => size_of::<Revoked>(),
            ControlMessage::Released { .. } => size_of::<Released>(),
            ControlMessage::Goodbye => size_of::<Prefix>(),
        }
    }

    /// Writes the message to the front of `out` and says how many bytes it took. Room for
    /// [`MAX_CONTROL_BYTES`] is always enough. Nothing is written if the message is not legal.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        self.check()?;
        let needed = self.encoded_bytes();
        let found_bytes = out.len() as u64;
        let out = out.get_mut(..needed).ok_or(WireError::Truncated {
            field: "control buffer",
            needed_bytes: needed as u64,
            found_bytes,
        })?;
        let kind = self.kind();
        match *self {
            ControlMessage::ImportRequest { request, name, rights, token } => {
                let (front, back) = out.split_at_mut(size_of::<ImportRequest>());
                put(
                    front,
                    &ImportRequest {
                        prefix: Prefix::new(kind, if token.is_some() { TOKEN } else { 0 }),
                        request: request.into(),
                        rights: rights.bits().into(),
                        name_bytes: (name.len() as u32).into(),
                        token: token.unwrap_or(Key::ZERO),
                    },
                );
                back.copy_from_slice(name.as_bytes());
            }
            ControlMessage::ImportCancel { request } => {
                put(out, &ImportCancel { prefix: Prefix::new(kind, 0), request: request.into() });
            }
            ControlMessage::ImportGranted { request, export, key, length, rights, direct } => put(
                out,
                &ImportGranted {
                    prefix: Prefix::new(kind, if direct.is_some() { DIRECT } else { 0 }),
                    request: request.into(),
                    export: export.0.into(),
                    rights: rights.bits().into(),
                    key,
                    length: length.into(),
                    mapped_offset: direct.map_or(0, |part| part.offset).into(),
                    mapped_bytes: direct.map_or(0, |part| part.bytes).into(),
                },
            ),
            ControlMessage::ImportRefused { request, reason } => put(
                out,
                &ImportRefused { prefix: Prefix::new(kind, 0), request: request.into(), reason: reason.code().into() },
            ),
            ControlMessage::Revoked { export } => {
                put(out, &Revoked { prefix: Prefix::new(kind, 0), export: export.0.into() })
            }
            ControlMessage::Released { export, key } => {
                put(out, &Released { prefix: Prefix::new(kind, 0), export: export.0.into(), key })
            }
            ControlMessage::Goodbye => put(out, &Prefix::new(kind, 0)),
        }
        Ok(needed)
    }

    /// The encoded message in memory of its own.
    pub fn to_vec(&self) -> Result<Vec<u8>, WireError> {
        self.check()?;
        let mut bytes = alloc::vec![0; self.encoded_bytes()];
        self.emit(&mut bytes)?;
        Ok(bytes)
    }
}

/// Writes `message` to `out`, which is exactly as long.
fn put<T: IntoBytes + Immutable>(out: &mut [u8], message: &T) {
    out.copy_from_slice(message.as_bytes());
}

fn check_name_bytes(length: u64) -> Result<(), WireError> {
    if length == 0 {
        return Err(WireError::Empty { field: "export name" });
    }
    must_fit("export name bytes", length, MAX_NAME_BYTES as u64)
}

fn check_rights(rights: Rights) -> Result<(), WireError> {
    if rights.is_empty() { Err(WireError::Empty { field: "rights" }) } else { Ok(()) }
}

fn read_name(length: u32, bytes: &[u8]) -> Result<&str, WireError> {
    check_name_bytes(u64::from(length))?;
    if bytes.len() as u64 != u64::from(length) {
        return Err(WireError::Length {
            field: "export name",
            expected_bytes: u64::from(length),
            found_bytes: bytes.len() as u64,
        });
    }
    core::str::from_utf8(bytes)
        .map_err(|e| WireError::NotUtf8 { field: "export name", valid_bytes: e.valid_up_to() as u64 })
}

impl fmt::Display for ControlMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ControlMessage::ImportRequest { request, name, rights, token } => {
                write!(f, "request {request}: import {name:?}")?;
                if !rights.is_empty() {
                    write!(f, " to {rights}")?;
                }
                match token {
                    Some(token) => write!(f, ", token {token}"),
                    None => Ok(()),
                }
            }
            ControlMessage::ImportCancel { request } => write!(f, "request {request}: cancelled"),
            ControlMessage::ImportGranted { request, export, key, length, rights, direct } => {
                write!(f, "request {request}: granted {export}, {length} bytes to {rights}, key {key}")?;
                match direct {
                    Some(part) => write!(f, ", {} bytes from {} on can be mapped", part.bytes, part.offset),
                    None => Ok(()),
                }
            }
            ControlMessage::ImportRefused { request, reason } => {
                write!(f, "request {request}: refused: {reason}")
            }
            ControlMessage::Revoked { export } => {
                write!(f, "{export} revoked")
            }
            ControlMessage::Released { export, key } => write!(f, "{export} released, key {key}"),
            ControlMessage::Goodbye => f.write_str("goodbye"),
        }
    }
}
