//! Tests of whole clusters in virtual time, and of what the papers say.

mod canaries;
mod conformance;
mod coverage;
mod global;
mod goodput;
mod lazy;
mod papers;
mod replay;
mod rpc;
mod seeds;
mod services;
mod shared;
