//! mapwire joins the memory of separate processes and machines.
//!
//! A process exports a buffer; another imports it and stores straight into it: no receive call, no system buffer, no system
//! call or interrupt on the common path (VMMC §2). On that stands a memory that all ranks of a parallel program share
//! (Millipage).
//!
//! | to do | use |
//! |---|---|
//! | join the job that `mapwire run` started | [`Node::join`] |
//! | let others store into memory, or fetch from it | [`Node::export_buffer`], [`Node::alloc`] |
//! | store into another rank's memory, or fetch from it | [`Node::import`], then [`Import::send`], [`Import::fetch`] |
//! | say "data, then flag" | [`Import::put_signal`] |
//! | let several senders signal by one word | [`Import::put_signal_add`], [`Import::put_signal_or`] |
//! | change a word of another rank in one step | [`Import::fetch_add_u64`], [`Import::compare_swap_u64`], [`Import::swap_u64`] |
//! | wait for one of several signals | [`Node::wait_any`] |
//! | sleep in `epoll` until something comes | [`Node::event_fd`] |
//! | store or fetch many parts, or rows of a matrix | [`Import::send_vectored`], [`Import::fetch_strided`] |
//! | compute while bytes move | [`Import::send_async`], [`Import::put_signal_async`], [`Import::fetch_async`] |
//! | set up with all ranks: wait, hand out, collect, add up | [`Node::barrier`], [`Node::broadcast`], [`Node::gather`], [`Node::reduce`] |
//! | name a byte of any import with one number | [`Import::proxy_at`], then [`Node::send_to`], [`Node::fetch_from`] |
//! | know that what was sent is in place | [`Import::flush`] |
//! | call procedures of other ranks, or serve such calls | [`rpc::Rpc::open`] |
//! | share memory among all ranks | [`Shared::open`], [`Shared::alloc`] |
//! | use more memory than RAM | [`Far::alloc`] |
//! | change a large file's bytes in memory alone | [`Far::map_file`] |
//! | read a file into shared memory, or write one from it | [`SharedSlice::read_from`], [`SharedSlice::write_to`] |
//!
//! ```no_run
//! use mapwire::{Node, Rights};
//!
//! let node = Node::join()?;
//! if node.rank() == 0 {
//!     let buffer = node.alloc(4096)?;
//!     let export = node.export_buffer(&buffer).name("inbox").rights(Rights::ALL).start()?;
//!     export.wait_signal(0, 1)?;
//!     println!("rank 1 says {}", buffer.load_u64(8)?);
//! } else {
//!     let inbox = node.import(0, "inbox").rights(Rights::STORE).start()?;
//!     inbox.put_signal(&42_u64.to_le_bytes(), 8, 0, 1)?;
//! }
//! # Ok::<(), mapwire::Error>(())
//! ```
//!
//! # Features
//!
//! None is on unless asked for. `sealing` seals what goes to other hosts: without it, jobs over several hosts, `--transport udp` and jobs
//! that meet by a name are refused, unless nothing is to be sealed. `etcd` lets jobs meet in etcd besides.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod buffer;
mod collective;
mod config;
mod copies;
pub mod environment;
mod error;
pub mod errors;
mod events;
mod export;
mod far;
mod files;
pub mod global;
mod import;
mod leaving;
pub mod log;
pub mod meeting;
mod node;
mod opening;
#[allow(unsafe_code)]
mod raw;
pub mod rpc;
pub mod services;
#[allow(unsafe_code)]
mod shared;
#[allow(unsafe_code)]
mod slice;
pub mod sync;
mod threads;
mod waiting;

pub use buffer::Buffer;
pub use collective::{Reducible, Reduction};
pub use config::{Coherence, ConfigError, NodeConfig, Path, SharedConfig};
pub use error::{Error, ErrorKind};
pub use events::EventFd;
pub use export::{Export, ExportBuilder};
pub use far::{Far, FarBuilder, FarSlice};
pub use import::{Import, ImportBuilder, Request, Rows, Stable, StableMut};
pub use mapwire_driver::config::DriverMode;
pub use mapwire_driver::notices::Notification;
pub use mapwire_dsm::Counters as SharedCounters;
pub use mapwire_host::faults::FaultBackend;
pub use mapwire_host::pinning::PinnerKind;
pub use mapwire_host::waiting::WaitStrategy;
pub use mapwire_nic::link::{LinkCounters, LinkStats};
pub use mapwire_nic::{Counters as NicCounters, MemoryBreakdown};
pub use mapwire_pager::{Latencies as FarLatencies, Statistics as FarStatistics};
pub use mapwire_seal::{Cause, Counters as Rejections};
pub use mapwire_translation::{Candidates, ChooseVictims, Counters as TranslationCounters, Page, PageRange};
pub use mapwire_vmmc::{Importers, ProxyAddress, ProxyError};
pub use mapwire_wire::{Key, NodeId, Rights};
pub use node::{Node, Polling};
pub use shared::{AllocOptions, LockGuard, Shared, SharedBox, SharedRows, SharedVec, Unit};
#[doc(hidden)]
pub use shared::{allocates_at, allocates_by};
pub use slice::{Sharable, SharedSlice};
pub use waiting::Awaited;
