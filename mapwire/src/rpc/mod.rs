//! Remote procedure calls between ranks: ONC RPC version 2 with XDR, without a receive call, and without copies that the form of the data does
//! not ask for (VMMC §5.4).
//!
//! ```no_run
//! use mapwire::rpc::{Rpc, RpcConfig};
//! use mapwire::Node;
//!
//! const PROGRAM: u32 = 0x2000_0001;
//! let node = Node::join()?;
//! let rpc = Rpc::open(&node, RpcConfig::default())?;
//! if node.rank() == 0 {
//!     let server = rpc.serve(PROGRAM, 1)?;
//!     while let Some(mut request) = server.next(None)? {
//!         let (a, b): (u32, u32) = request.arguments()?;
//!         request.reply(&(a + b))?;
//!     }
//! } else {
//!     let caller = rpc.caller(0, PROGRAM, 1)?;
//!     let sum: u32 = caller.call(1, &(20_u32, 22_u32))?;
//!     assert_eq!(sum, 42);
//! }
//! # Ok::<(), mapwire::rpc::Error>(())
//! ```
//!
//! Arguments and results of up to [`RpcConfig::inline_bytes`] travel in a message. Longer ones are encoded straight into memory that the peer
//! lends where it is on this host, and into memory of this process otherwise, from where the NIC stores them into the peer's. The
//! receiver decodes them where they lie. Both need the peer's memory only while a record lies in it.

mod caller;
mod config;
mod deferred;
mod end;
mod error;
mod inner;
mod pair;
mod program;
mod record;
mod replies;
mod request;
mod server;
mod tending;
mod writer;

pub use caller::{Caller, Pending};
pub use config::RpcConfig;
pub use end::Rpc;
pub use error::Error;
pub use mapwire_rpc::xdr::{self, Decoder, Encoder, FixedOpaque, Opaque, Xdr, XdrError};
pub use mapwire_rpc::{AuthProblem, AuthSys, CallError, Counters, Credential, PeerCredentials, Refusal, ReplyStatus};
pub use program::Program;
pub use record::Record;
pub use request::Request;
pub use server::Server;
