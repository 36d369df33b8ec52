//! What becomes of calls.

use alloc::vec::Vec;

use mapwire_wire::NodeId;
use thiserror::Error;

use crate::auth::{AuthProblem, Credential, PeerCredentials};
use crate::message::ReplyStatus;

/// Arguments or results, where they lie.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described above, once for all")]
pub enum Body {
    /// In the `record` of a message, from byte `at` on.
    Inline { record: Vec<u8>, at: usize },
    /// In this node's memory for the peer, which can change them: read once, then [release](crate::Rpc::release).
    Lent(Lent),
}

/// Where a record lies in this node's memory for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// First byte, counted from the begin of the memory. It and the others lie within.
    pub at: u64,
    /// How many.
    pub bytes: u64,
    /// This node's session, whose memory it is.
    pub session: u64,
}

impl Body {
    /// No bytes.
    pub const EMPTY: Self = Self::Inline { record: Vec::new(), at: 0 };

    /// How many bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Inline { record, at } => (record.len() - *at) as u64,
            Self::Lent(lent) => lent.bytes,
        }
    }
}

/// A call under way, at its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid(pub u32);

/// A call of a peer, at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// Who calls.
    pub peer: NodeId,
    /// The connection that the call came by.
    pub session: u64,
    /// Its number at the caller.
    pub xid: u32,
    /// Nobody waits for a reply.
    pub is_one_way: bool,
}

/// A call of a peer, handed out to be answered.
#[derive(Debug)]
pub struct Incoming {
    /// To answer by.
    pub id: RequestId,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    /// Who calls: as it says, which was held against the kernel's word where that is known.
    pub credential: Credential,
    /// The kernel's word of the peer.
    pub peer: Option<PeerCredentials>,
    /// The arguments.
    pub body: Body,
}

/// Why a call has no results.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum CallError {
    /// The deadline is over. The server may carry the call out all the same.
    #[error("no reply came in time; the server may have carried the call out, or may yet do so")]
    TimedOut,
    /// The server's process or host is gone.
    #[error(
        "the server is gone; it may have carried the call out: call again when another one serves, if the procedure may run twice"
    )]
    Gone,
    /// The server has ended its service or begun anew.
    #[error("the server has closed the connection; it may have carried the call out")]
    Closed,
    /// A message was lost because too many waited.
    #[error("the call was lost: too many messages wait for the server")]
    Lost,
    /// The server does not have the program.
    #[error("the server does not have the program")]
    ProgramUnavailable,
    /// The server has other versions of it.
    #[error("the server has versions {low} to {high} of the program only")]
    ProgramMismatch { low: u32, high: u32 },
    /// The program does not have the procedure.
    #[error("the program does not have the procedure")]
    ProcedureUnavailable,
    /// The server could not read the arguments.
    #[error("the server cannot read the arguments: they are of another type, or longer than it takes")]
    GarbageArguments,
    /// The server failed.
    #[error("the server failed (SYSTEM_ERR)")]
    SystemError,
    /// The server speaks another version of ONC RPC.
    #[error("the server speaks versions {low} to {high} of ONC RPC, and this is version 2")]
    RpcMismatch { low: u32, high: u32 },
    /// The server refuses the caller.
    #[error("the server refuses the caller ({0:?}): see its rules for credentials")]
    AuthError(AuthProblem),
}

/// The results of a call, or why there are none.
pub type Outcome = Result<Body, CallError>;

impl ReplyStatus {
    /// What a caller makes of it.
    pub(crate) const fn outcome(self) -> Result<(), CallError> {
        Err(match self {
            Self::Success => return Ok(()),
            Self::ProgramUnavailable => CallError::ProgramUnavailable,
            Self::ProgramMismatch { low, high } => CallError::ProgramMismatch { low, high },
            Self::ProcedureUnavailable => CallError::ProcedureUnavailable,
            Self::GarbageArguments => CallError::GarbageArguments,
            Self::SystemError => CallError::SystemError,
            Self::RpcMismatch { low, high } => CallError::RpcMismatch { low, high },
            Self::AuthError(problem) => CallError::AuthError(problem),
        })
    }
}

/// Why something cannot be done now.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Refusal {
    /// There is no connection to the peer, or not the one that was meant.
    #[error("no connection to node {}", .0.0)]
    NotOpen(NodeId),
    /// The peer has not taken what was sent before: try again later.
    #[error("node {} has not taken the calls before this one", .0.0)]
    NoWindow(NodeId),
    /// Nothing is free in the peer's memory for so much: try again later.
    #[error("the memory that node {} lends for records is in use", .0.0)]
    NoRoom(NodeId),
    /// The record is longer than the peer takes.
    #[error("{bytes} B are more than the {limit} B that node {} takes in a record: send less in one call", .peer.0)]
    TooLong { peer: NodeId, bytes: u64, limit: u64 },
    /// Too many calls of this node wait for replies.
    #[error("{0} calls wait for their replies: wait for some of them first")]
    TooMany(usize),
    /// The call was answered already, or its caller has given it up.
    #[error("nobody waits for a reply to call {0:#x}")]
    NotAwaited(u32),
}
