//! What stands before the arguments of a call and the results of a reply (RFC 5531 §9).

use alloc::vec::Vec;

use crate::auth::{AuthProblem, Credential, NONE, decode_verifier, encode_verifier};
use crate::xdr::{Decoder, Encoder, XdrError};

/// The version of the protocol.
pub const RPC_VERSION: u32 = 2;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const SUCCESS: u32 = 0;

/// What stands before the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHeader {
    /// The call's number at its caller.
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    /// Who calls.
    pub credential: Credential,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described with their variants")]
pub enum ReplyStatus {
    /// Results follow.
    Success,
    /// The server does not have the program.
    ProgramUnavailable,
    /// The server has other versions of the program, from `low` to `high`.
    ProgramMismatch { low: u32, high: u32 },
    /// The program does not have the procedure.
    ProcedureUnavailable,
    /// The arguments are not of the procedure's types.
    GarbageArguments,
    /// The server failed.
    SystemError,
    /// The server speaks other versions of the protocol, from `low` to `high`.
    RpcMismatch { low: u32, high: u32 },
    /// The caller is refused.
    AuthError(AuthProblem),
}

/// A call that is answered before anybody looks at its arguments.
pub(crate) type Refused = (u32, ReplyStatus);

#[derive(Debug)]
pub(crate) enum Header {
    Call(CallHeader),
    /// A call that this node refuses by its header alone.
    Refused(Refused),
    Reply {
        xid: u32,
        status: ReplyStatus,
    },
}

pub(crate) fn write_call(header: &CallHeader, to: &mut Vec<u8>) {
    let mut to = Encoder::new(to);
    // A vector takes whatever comes, and the credential is legal.
    let words = [header.xid, CALL, RPC_VERSION, header.program, header.version, header.procedure];
    let _ = to.words(words).and_then(|()| header.credential.encode(&mut to)).and_then(|()| encode_verifier(&mut to));
}

pub(crate) fn write_reply(xid: u32, status: ReplyStatus, to: &mut Vec<u8>) {
    let mut to = Encoder::new(to);
    // A vector takes whatever comes.
    let _ = encode_reply(xid, status, &mut to);
}

fn encode_reply(xid: u32, status: ReplyStatus, to: &mut Encoder<'_>) -> Result<(), XdrError> {
    let number = match status {
        ReplyStatus::RpcMismatch { low, high } => return to.words([xid, REPLY, DENIED, 0, low, high]),
        ReplyStatus::AuthError(problem) => return to.words([xid, REPLY, DENIED, 1, problem as u32]),
        ReplyStatus::Success => SUCCESS,
        ReplyStatus::ProgramUnavailable => 1,
        ReplyStatus::ProgramMismatch { .. } => 2,
        ReplyStatus::ProcedureUnavailable => 3,
        ReplyStatus::GarbageArguments => 4,
        ReplyStatus::SystemError => 5,
    };
    to.words([xid, REPLY, ACCEPTED])?;
    encode_verifier(to)?;
    to.word(number)?;
    match status {
        ReplyStatus::ProgramMismatch { low, high } => to.words([low, high]),
        _ => Ok(()),
    }
}

/// Reads a header off the front of a record. What is left of the record are arguments or results, unless they lie elsewhere.
pub(crate) fn read(record: &mut &[u8]) -> Result<Header, XdrError> {
    if let Some((header, rest)) = read_plain(record) {
        *record = rest;
        return Ok(header);
    }
    read_any(record)
}

/// Reads what nearly all records begin with in one piece: a call without a credential, or a reply with results.
fn read_plain(record: &[u8]) -> Option<(Header, &[u8])> {
    let mut rest = record;
    let call = Decoder::new(&mut rest).words();
    if let Ok([xid, CALL, RPC_VERSION, program, version, procedure, NONE, 0, NONE, 0]) = call {
        let header = CallHeader { xid, program, version, procedure, credential: Credential::None };
        return Some((Header::Call(header), rest));
    }
    rest = record;
    match Decoder::new(&mut rest).words() {
        Ok([xid, REPLY, ACCEPTED, NONE, 0, SUCCESS]) => {
            let status = ReplyStatus::Success;
            Some((Header::Reply { xid, status }, rest))
        }
        _ => None,
    }
}

fn read_any(record: &mut &[u8]) -> Result<Header, XdrError> {
    let mut from = Decoder::new(record);
    let [xid, kind] = from.words()?;
    match kind {
        CALL => read_call(xid, &mut from),
        REPLY => Ok(Header::Reply { xid, status: read_reply(&mut from)? }),
        other => Err(XdrError::NotInEnumeration(other)),
    }
}

fn read_call(xid: u32, from: &mut Decoder<'_>) -> Result<Header, XdrError> {
    let refused = |status| Ok(Header::Refused((xid, status)));
    if from.word()? != RPC_VERSION {
        // What follows may have another form.
        let (low, high) = (RPC_VERSION, RPC_VERSION);
        return refused(ReplyStatus::RpcMismatch { low, high });
    }
    let [program, version, procedure] = from.words()?;
    let credential = Credential::decode(from)?;
    let verifier = decode_verifier(from)?;
    match (credential, verifier) {
        (Err(problem), _) => refused(ReplyStatus::AuthError(problem)),
        (_, None) => refused(ReplyStatus::AuthError(AuthProblem::BadVerifier)),
        (Ok(credential), Some(())) => Ok(Header::Call(CallHeader { xid, program, version, procedure, credential })),
    }
}

fn read_reply(from: &mut Decoder<'_>) -> Result<ReplyStatus, XdrError> {
    let unknown = |number| Err(XdrError::NotInEnumeration(number));
    match from.word()? {
        ACCEPTED => {
            if decode_verifier(from)?.is_none() {
                return Ok(ReplyStatus::AuthError(AuthProblem::InvalidResponse));
            }
            Ok(match from.word()? {
                SUCCESS => ReplyStatus::Success,
                1 => ReplyStatus::ProgramUnavailable,
                2 => ReplyStatus::ProgramMismatch { low: from.word()?, high: from.word()? },
                3 => ReplyStatus::ProcedureUnavailable,
                4 => ReplyStatus::GarbageArguments,
                5 => ReplyStatus::SystemError,
                other => return unknown(other),
            })
        }
        DENIED => Ok(match from.word()? {
            0 => ReplyStatus::RpcMismatch { low: from.word()?, high: from.word()? },
            1 => {
                let number = from.word()?;
                return AuthProblem::of(number).map_or_else(|| unknown(number), |it| Ok(ReplyStatus::AuthError(it)));
            }
            other => return unknown(other),
        }),
        other => unknown(other),
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    /// What both ways of reading make of bytes: they must agree.
    fn read_both_ways(bytes: &[u8]) -> Option<(Header, usize)> {
        let (mut one, mut other) = (bytes, bytes);
        let seen = [read(&mut one).ok(), read_any(&mut other).ok()];
        let [first, second] = seen.map(|header| format!("{header:?}"));
        assert_eq!(first, second, "{bytes:x?}");
        let mut rest = bytes;
        let header = read(&mut rest).ok()?;
        assert_eq!(one, other);
        Some((header, rest.len()))
    }

    #[test]
    fn a_plain_header_that_is_changed_anywhere_or_cut_reads_as_any_other_does() {
        let mut call = Vec::new();
        let header =
            CallHeader { xid: 7, program: 0x2000_0001, version: 3, procedure: 9, credential: Credential::None };
        write_call(&header, &mut call);
        let mut reply = Vec::new();
        write_reply(7, ReplyStatus::Success, &mut reply);
        for plain in [&mut call, &mut reply] {
            plain.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
            let read = read_both_ways(plain);
            assert!(read.is_some_and(|(_, left)| left == 8));
            for length in 0..plain.len() {
                read_both_ways(&plain[..length]);
            }
            for at in 0..plain.len() {
                for other in [0, 1, 2, 4, 255] {
                    let mut changed = plain.clone();
                    changed[at] = other;
                    read_both_ways(&changed);
                }
            }
        }
    }
}
