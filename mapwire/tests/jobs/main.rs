//! Jobs of real processes under the real launcher. Each test starts `mapwire run` with this program as the ranks; a closure
//! in the test is what a rank does. After each job nothing may be left of it: see `harness::leaks`.

#[allow(unsafe_code)]
mod allocations;
mod atomics;
mod awaiting;
mod collectives;
mod consistency;
mod datagrams;
mod designs;
mod dying;
mod events;
mod examples;
mod files;
mod flushing;
#[allow(unsafe_code)]
mod forks;
mod harness;
mod heap;
mod hostile_atomics;
mod hostile_control;
mod hostile_datagrams;
mod hostile_memory;
mod hostile_packets;
mod lazy;
mod libfabric;
mod limits;
mod locks;
mod modes;
#[allow(unsafe_code)]
mod one_host;
mod order;
mod parting;
mod parts;
mod paths;
mod pinning;
mod privacy;
mod proxies;
mod refusals;
mod requests;
mod revocation;
mod rpc;
mod sending_from;
mod services;
#[allow(unsafe_code)]
mod sharing;
#[allow(unsafe_code)]
mod signals;
mod tracing;
mod unaligned;
mod units;
mod waiting;
