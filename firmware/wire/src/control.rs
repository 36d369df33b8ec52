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

use crate::error::{WireError, known, must_be_zero, must_fit};
use crate::header::VERSION;
use crate::ids::{ExportId, Key, Rights};
use crate::refusal::Refusal;

/// Longest name of an export, in UTF-8 bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest encoded control message.
pub const MAX_CONTROL_BYTES: usize = ControlKind::ImportRequest.fixed_bytes() + MAX_NAME_BYTES;

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

impl ControlKind {
    /// Bytes of its message before the name: version, kind and flags, then the fields.
    const fn fixed_bytes(self) -> usize {
        4 + match self {
            ControlKind::ImportRequest => 3 * 4 + 16,
            ControlKind::ImportCancel | ControlKind::Revoked => 4,
            ControlKind::ImportGranted => 3 * 4 + 16 + 3 * 8,
            ControlKind::ImportRefused => 2 * 4,
            ControlKind::Released => 4 + 16,
            ControlKind::Goodbye => 0,
        }
    }
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

/// The fields of a message that is as long as its kind says.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *field
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

impl<'a> ControlMessage<'a> {
    /// Reads the payload of a `Control` packet: exactly one message.
    pub fn parse(bytes: &'a [u8]) -> Result<ControlMessage<'a>, WireError> {
        let cut_off = |needed: usize| WireError::Truncated {
            field: "control message",
            needed_bytes: needed as u64,
            found_bytes: bytes.len() as u64,
        };
        let [version, code, low, high] = *bytes.first_chunk().ok_or(cut_off(4))?;
        if version != VERSION {
            return Err(WireError::Version { field: "control version", found: version, spoken: VERSION });
        }
        let kind = known("control kind", code.into(), ControlKind::from_code(code))?;
        let flags = u16::from_le_bytes([low, high]);
        let legal = match kind {
            ControlKind::ImportRequest => TOKEN,
            ControlKind::ImportGranted => DIRECT,
            _ => 0,
        };
        must_be_zero("control flags", u64::from(flags & !legal))?;
        let fixed = kind.fixed_bytes();
        let (front, name) = bytes.split_at_checked(fixed).ok_or(cut_off(fixed))?;
        if kind != ControlKind::ImportRequest && !name.is_empty() {
            return Err(WireError::Length {
                field: "control message",
                expected_bytes: fixed as u64,
                found_bytes: bytes.len() as u64,
            });
        }
        let mut fields = Fields(&front[4..]);
        let message = match kind {
            ControlKind::ImportRequest => {
                let [request, rights, name_bytes] = [(); 3].map(|()| fields.u32());
                let token = Key(fields.take());
                if flags & TOKEN == 0 {
                    token.must_be_zero("token")?;
                }
                ControlMessage::ImportRequest {
                    request,
                    name: read_name(name_bytes, name)?,
                    rights: Rights::from_bits(rights)?,
                    token: (flags & TOKEN != 0).then_some(token),
                }
            }
            ControlKind::ImportCancel => ControlMessage::ImportCancel { request: fields.u32() },
            ControlKind::ImportGranted => {
                let [request, export, rights] = [(); 3].map(|()| fields.u32());
                let key = Key(fields.take());
                let [length, offset, bytes] = [(); 3].map(|()| fields.u64());
                if flags & DIRECT == 0 {
                    must_be_zero("mapped offset", offset)?;
                    must_be_zero("mapped bytes", bytes)?;
                }
                ControlMessage::ImportGranted {
                    request,
                    export: ExportId(export),
                    key,
                    length,
                    rights: Rights::from_bits(rights)?,
                    direct: (flags & DIRECT != 0).then_some(MappedPart { offset, bytes }),
                }
            }
            ControlKind::ImportRefused => {
                ControlMessage::ImportRefused { request: fields.u32(), reason: Refusal::read(fields.u32().into())? }
            }
            ControlKind::Revoked => ControlMessage::Revoked { export: ExportId(fields.u32()) },
            ControlKind::Released => {
                ControlMessage::Released { export: ExportId(fields.u32()), key: Key(fields.take()) }
            }
            ControlKind::Goodbye => ControlMessage::Goodbye,
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
        self.kind().fixed_bytes() + if let ControlMessage::ImportRequest { name, .. } = self { name.len() } else { 0 }
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
        let mut rest = out.iter_mut();
        // The bytes are as many as the message has.
        let mut put = |field: &[u8]| field.iter().zip(rest.by_ref()).for_each(|(byte, to)| *to = *byte);
        let flags = match self {
            ControlMessage::ImportRequest { token: Some(_), .. } => TOKEN,
            ControlMessage::ImportGranted { direct: Some(_), .. } => DIRECT,
            _ => 0,
        };
        put(&[VERSION, self.kind() as u8]);
        put(&flags.to_le_bytes());
        match *self {
            ControlMessage::ImportRequest { request, name, rights, token } => {
                for field in [request, rights.bits(), name.len() as u32] {
                    put(&field.to_le_bytes());
                }
                put(&token.unwrap_or(Key::ZERO).0);
                put(name.as_bytes());
            }
            ControlMessage::ImportCancel { request } => put(&request.to_le_bytes()),
            ControlMessage::ImportGranted { request, export, key, length, rights, direct } => {
                let (offset, bytes) = direct.map_or((0, 0), |part| (part.offset, part.bytes));
                for field in [request, export.0, rights.bits()] {
                    put(&field.to_le_bytes());
                }
                put(&key.0);
                for field in [length, offset, bytes] {
                    put(&field.to_le_bytes());
                }
            }
            ControlMessage::ImportRefused { request, reason } => {
                for field in [request, reason.code()] {
                    put(&field.to_le_bytes());
                }
            }
            ControlMessage::Revoked { export } => put(&export.0.to_le_bytes()),
            ControlMessage::Released { export, key } => {
                put(&export.0.to_le_bytes());
                put(&key.0);
            }
            ControlMessage::Goodbye => {}
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
