//! Studies of translation designs: replays of traces, costs, and the tables and figures of the papers.
//!
//! | module | what it holds |
//! |---|---|
//! | [`sweep`] | lists of values, and their product |
//! | [`study`], [`files`] | many configurations on one trace, on files |
//! | [`config`], [`counts`] | a configuration, and what it counts |
//! | [`choosers`] | policies of applications for unpinning, and the optimum |
//! | [`decode`] | from a trace to lookups |
//! | [`fast`] | engines for the common configurations, hundreds of millions of lookups a second |
//! | [`replay`], [`shadow`] | every configuration, by the firmware's own code |
//! | [`cost`] | what a lookup costs: UTLB's equations, profiles |
//! | [`memory`] | what a NIC's memory holds, structure by structure |
//! | [`published`], [`tables`] | the papers' tables and figures as data; ours beside them |
//! | [`rows`] | outcomes as rows |
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "used inside this project only")]

pub mod choosers;
pub mod config;
pub mod cost;
pub mod counts;
pub mod decode;
pub mod fast;
pub mod files;
mod handles;
pub mod memory;
mod pool;
pub mod published;
pub mod replay;
pub mod rows;
pub mod shadow;
pub mod study;
pub mod sweep;
pub mod tables;

#[cfg(test)]
mod testing;
