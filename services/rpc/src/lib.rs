//! Remote procedure calls (VMMC §5.4, "vRPC"): ONC RPC version 2 (RFC 5531) with XDR (RFC 4506), whose records are stored into memory
//! that the peer lends, one node without its machine.
//!
//! [`Rpc`] is a node in both roles, *caller* and *server*: a [`Service`](mapwire_vmmc::service::Service), which is fed with messages and asks for
//! messages to be sent. A record has two parts. Its header always comes in a message, which is this node's alone, so that what was checked
//! stays so. Its body, arguments or results, follows there where it is short. A longer one is stored into the receiver's memory, at a place
//! that the sender picks ([`Rpc::reserve`]); the message says where, and the receiver says when the place is free again. The record mark of
//! RFC 5531 §11, which is for streams of bytes, is not needed.
//!
//! What it relies on: messages between two nodes arrive once, unchanged and in order; a body is in place before its message. What it
//! promises: a call ends with its own reply, or with a [`CallError`]; a call is carried out at most once; peers whose calls wait take turns; a peer that does not keep to the protocol can take a bounded amount of memory, and
//! harms nobody else.
//!
//! Limits: a call whose connection ends may have been carried out or not; nobody can tell. Flavours of authentication are NONE and SYS.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod area;
mod auth;
mod calls;
mod config;
mod counters;
mod envelope;
mod message;
mod outcome;
mod rpc;
pub mod xdr;

pub use area::LINE;
pub use auth::{AuthProblem, AuthSys, Credential, MAX_AUTH_BYTES, MAX_GROUPS, MAX_MACHINE_BYTES, PeerCredentials};
pub use config::{Config, DEFAULT_MAX_RECORD_BYTES, MOST_IN_FLIGHT};
pub use counters::Counters;
pub use envelope::{Draft, ENVELOPE_BYTES, Offer, Placed, Room};
pub use message::{CallHeader, RPC_VERSION, ReplyStatus};
pub use outcome::{Body, CallError, Incoming, Lent, Outcome, Refusal, RequestId, Xid};
pub use rpc::{Connection, Due, Loan, Rpc, Standing};
