//! What stands before the arguments of a call and the results of a reply (RFC 5531 §9).

use alloc::vec::Vec;

use crate::auth::{AuthProblem, Credential, decode_verifier, encode_verifier};
use crate::xdr::{Decoder, Encoder, XdrError};

/// The version of the protocol.
pub const RPC_VERSION: u32 = 2;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;

/// What stands before the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHeader {
    /// The call's number at its caller.
    pub xid: u32,
    /// Which program.
    pub program: u32,
    /// Which version of it.
    pub version: u32,
    /// Which procedure.
    pub procedure: u32,
    /// Who calls.
    pub credential: Credential,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStatus {
    /// Results follow.
    Success,
    /// The server does not have the program.
    ProgramUnavailable,
    /// The server has other versions of the program, from `low` to `high`.
    ProgramMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The program does not have the procedure.
    ProcedureUnavailable,
    /// The arguments are none of the procedure's.
    GarbageArguments,
    /// The server failed.
    SystemError,
    /// The server speaks other versions of the protocol.
    RpcMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The caller is refused.
    AuthError(AuthProblem),
}

/// A call that is answered before anybody looks at its arguments.
pub(crate) type Refused = (u32, ReplyStatus);

/// A record's header as it came.
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

/// Appends the header of a call.
pub(crate) fn write_call(header: &CallHeader, to: &mut Vec<u8>) {
    let mut to = Encoder::new(to);
    // A vector takes whatever comes, and the credential is legal.
    let words = [
        header.xid,
        CALL,
        RPC_VERSION,
        header.program,
        header.version,
        header.procedure,
    ];
    let _ = to
        .words(words)
        .and_then(|()| header.credential.encode(&mut to))
        .and_then(|()| encode_verifier(&mut to));
}

/// Appends the header of a reply.
pub(crate) fn write_reply(xid: u32, status: ReplyStatus, to: &mut Vec<u8>) {
    let mut to = Encoder::new(to);
    // A vector takes whatever comes.
    let _ = encode_reply(xid, status, &mut to);
}

fn encode_reply(xid: u32, status: ReplyStatus, to: &mut Encoder<'_>) -> Result<(), XdrError> {
    let number = match status {
        ReplyStatus::RpcMismatch { low, high } => {
            return to.words([xid, REPLY, DENIED, 0, low, high]);
        }
        ReplyStatus::AuthError(problem) => {
            return to.words([xid, REPLY, DENIED, 1, problem as u32]);
        }
        ReplyStatus::Success => 0,
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
    let mut from = Decoder::new(record);
    let [xid, kind] = from.words()?;
    match kind {
        CALL => read_call(xid, &mut from),
        REPLY => Ok(Header::Reply {
            xid,
            status: read_reply(&mut from)?,
        }),
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
        (Ok(credential), Some(())) => Ok(Header::Call(CallHeader {
            xid,
            program,
            version,
            procedure,
            credential,
        })),
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
                0 => ReplyStatus::Success,
                1 => ReplyStatus::ProgramUnavailable,
                2 => ReplyStatus::ProgramMismatch {
                    low: from.word()?,
                    high: from.word()?,
                },
                3 => ReplyStatus::ProcedureUnavailable,
                4 => ReplyStatus::GarbageArguments,
                5 => ReplyStatus::SystemError,
                other => return unknown(other),
            })
        }
        DENIED => Ok(match from.word()? {
            0 => ReplyStatus::RpcMismatch {
                low: from.word()?,
                high: from.word()?,
            },
            1 => {
                let number = from.word()?;
                let problem = AuthProblem::of(number);
                return problem
                    .map_or_else(|| unknown(number), |it| Ok(ReplyStatus::AuthError(it)));
            }
            other => return unknown(other),
        }),
        other => unknown(other),
    }
}
