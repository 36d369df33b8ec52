//! Studies of translation designs: replays of traces, costs, and the tables and figures of the papers.
//!
//! | module | what it holds |
//! |---|---|
//! | [`published`] | the papers' tables and figures as data |
//! | [`cost`] | what a lookup costs: UTLB's equations, profiles |
//! | [`counts`] | what a replay counts |
//! | [`decode`] | from a trace to lookups |
//! | [`fast`] | engines for the common configurations, hundreds of millions of lookups a second |
#![forbid(unsafe_code)]

pub mod cost;
pub mod counts;
pub mod decode;
pub mod fast;
pub mod published;

#[cfg(test)]
mod testing;
